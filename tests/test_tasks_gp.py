from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shiftnp import TASKS
from shiftnp.tasks.gp import KERNELS, GPTask


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_batches_depend_on_the_generator_alone():
    a, b, c = (TASKS["gp-1d"]().sample(4, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(a.yt, b.yt)
    assert a.yt.shape == (4, 128, 1)
    assert not torch.equal(a.yt, c.yt)


def test_inputs_lie_in_their_ranges_and_shift():
    task = GPTask(shift=10)
    g = generator()
    batches = [task.sample(64, g) for _ in range(20)]
    xc, xt = torch.cat([b.xc.flatten() for b in batches]), torch.cat([b.xt.flatten() for b in batches])
    assert 8 <= xc.min() < 8.01
    assert 11.99 < xc.max() <= 12
    assert 7 <= xt.min() < 7.01
    assert 12.99 < xt.max() <= 13
    assert {b.xc.shape[1] for b in batches} <= set(range(1, 65))


@pytest.mark.parametrize("kernel", KERNELS)
def test_covariance_of_samples_is_the_kernel(kernel):
    """Products of two targets, averaged by distance, against the kernel plus noise."""
    task = GPTask(kernels=(kernel,), length=(1.0, 1.0), noise=0.3, points=(1, 1), targets=32)
    batch = task.sample(4000, generator())
    x, y = batch.xt.double(), batch.yt.double()
    assert y.square().mean().item() == pytest.approx(1 + 0.09, abs=0.06)
    d = (x - x.mT).abs()
    i, j = torch.triu_indices(32, 32, offset=1)
    d, product = d[:, i, j], (y @ y.mT)[:, i, j]
    for low in (0.0, 0.25, 0.5, 1.0, 2.0):
        near = (d >= low) & (d < low + 0.1)
        expected = KERNELS[kernel](d[near], torch.tensor(1.0)).mean()
        assert product[near].mean().item() == pytest.approx(expected.item(), abs=0.06)


def test_length_scales_are_log_uniform_and_kernels_equal():
    _, truth = GPTask(points=(1, 1), targets=1).sample_with_truth(20_000, generator())
    logs = (truth.length.log() - math.log(0.25)) / math.log(16)
    assert logs.mean().item() == pytest.approx(0.5, abs=0.01)
    assert logs.var().item() == pytest.approx(1 / 12, abs=0.003)
    assert (truth.kernel.bincount() / 20_000 - 1 / 3).abs().max() < 0.015


def test_posterior_is_that_of_the_textbook():
    task = GPTask(points=(5, 5), targets=3)
    batch, truth = task.sample_with_truth(4, generator())
    dist = task.posterior(batch.xc, batch.yc, batch.xt, truth)
    for b in range(4):
        kernel, length = KERNELS[task.kernels[truth.kernel[b]]], truth.length[b]

        def k(a, c, kernel=kernel, length=length):
            return kernel(a.double() - c.double().mT, length).numpy()

        xc, xt, yc = batch.xc[b], batch.xt[b], batch.yc[b].double().numpy()
        gain = k(xt, xc) @ np.linalg.inv(k(xc, xc) + 0.04 * np.eye(5))
        np.testing.assert_allclose(dist.mean[b], gain @ yc, atol=1e-8)
        variance = np.diag(k(xt, xt) - gain @ k(xc, xt)) + 0.04
        np.testing.assert_allclose(dist.variance[b, :, 0], variance, atol=1e-8)


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="rational"):
        GPTask(kernels=("rational",))
