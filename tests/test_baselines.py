from __future__ import annotations

import math

import pytest
import torch

from shiftnp import log_likelihood
from shiftnp.batch import Batch
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_posterior import GPOracle

pytest.importorskip("gpytorch", reason="needs the extra `gp`")
from shiftnp.baselines.gp import GPBaseline, MultiTaskGPBaseline

TASK = GPTask(kernels=("se",), length=(0.8, 0.8), points=(40, 40), targets=40, target=(-2, 2))


def sample(b=3):
    return TASK.sample_with_truth(b, torch.Generator().manual_seed(0))


def test_a_fit_comes_close_to_the_truth():
    batch, truth = sample()
    baseline = GPBaseline(iterations=200)
    exact = log_likelihood(GPOracle(TASK, truth)(batch.xc, batch.yc, batch.xt), batch.yt.double())
    fitted = log_likelihood(baseline(batch.xc, batch.yc, batch.xt), batch.yt.double())
    assert (exact - fitted).mean() < 0.15
    assert baseline.report["fits"] == 3
    assert baseline.report["restarted"] == baseline.report["failed"] == 0


def test_a_rough_function_is_better_fitted_by_a_rough_kernel():
    rough = GPTask(kernels=("matern52",), length=(0.5, 0.5), noise=0.02, points=(40, 40), targets=40, target=(-2, 2))
    batch, _ = rough.sample_with_truth(8, torch.Generator().manual_seed(0))
    score = {
        name: log_likelihood(
            GPBaseline(iterations=150, covariance=name)(batch.xc, batch.yc, batch.xt), batch.yt.double()
        )
        for name in ("se", "matern52")
    }
    assert score["matern52"].mean() > score["se"].mean()
    with pytest.raises(ValueError, match="covariance must be 'se' or 'matern52', got 'rbf'"):
        GPBaseline(covariance="rbf")


def test_the_contract_of_a_model():
    """Masks, ragged batches, empty contexts, channels that were not observed."""
    batch, _ = sample(2)
    two = torch.cat([batch.yc, 3 - batch.yc], -1)
    two[0, 5:, 1] = math.nan
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[1, 10:] = False
    baseline = GPBaseline(iterations=60)
    dist = baseline(batch.xc, two, batch.xt, mask)
    assert dist.batch_shape == (2, 40)
    assert dist.event_shape == (2,)
    alone = baseline(batch.xc[1:, :10], two[1:, :10], batch.xt[1:])
    torch.testing.assert_close(dist.mean[1:], alone.mean)
    partly = baseline(batch.xc[:1, :5], two[:1, :5, 1:], batch.xt[:1])
    torch.testing.assert_close(dist.mean[:1, :, 1:], partly.mean)
    nothing = baseline(batch.xc, two, batch.xt, torch.zeros_like(mask))
    assert torch.equal(nothing.mean, torch.zeros_like(nothing.mean))
    assert torch.equal(nothing.variance, torch.ones_like(nothing.mean))


def test_one_batch_is_as_good_as_many():
    batch, _ = sample()
    together, apart = (GPBaseline(iterations=50, batch=n)(batch.xc, batch.yc, batch.xt) for n in (64, 1))
    torch.testing.assert_close(together.mean, apart.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.stddev, apart.stddev, rtol=1e-5, atol=1e-5)


def test_outputs_share_what_they_know():
    """One output is a multiple of the other: where only one was seen, the multi-task process knows both."""
    batch, truth = sample()
    y = torch.cat([batch.yc, -2 * batch.yc], -1)
    y[:, 5:, 1] = math.nan
    exact = -2 * GPOracle(TASK, truth)(batch.xc, batch.yc, batch.xt).mean[..., 0]
    shared, alone = (
        (kind(iterations=200)(batch.xc, y, batch.xt).mean[..., 1] - exact).abs().mean()
        for kind in (MultiTaskGPBaseline, GPBaseline)
    )
    assert shared < 0.5 * alone


def test_an_output_that_was_never_observed():
    batch, _ = sample(2)
    y = torch.cat([batch.yc, torch.full_like(batch.yc, math.nan)], -1)
    dist = MultiTaskGPBaseline(iterations=20)(batch.xc, y, batch.xt)
    assert dist.mean.shape == (2, 40, 2)
    assert dist.stddev.isfinite().all()


def test_one_point_is_fitted_without_noise_and_reported():
    batch, _ = sample(2)
    baseline = GPBaseline(iterations=300)
    baseline(batch.xc[:, :1], batch.yc[:, :1], batch.xt)
    assert baseline.report["noise at its floor"] == 2


@pytest.mark.parametrize("kind", [GPBaseline, MultiTaskGPBaseline])
def test_fits_depend_on_the_data_alone(kind):
    """Not on a global generator, nor on whether the caller wants gradients."""
    batch, _ = sample(1)
    y = torch.cat([batch.yc, batch.yc.sin()], -1)
    before = torch.random.get_rng_state()
    plain = kind(iterations=10)(batch.xc, y, batch.xt)
    assert torch.equal(before, torch.random.get_rng_state())
    with torch.inference_mode():
        inferred = kind(iterations=10)(batch.xc, y, batch.xt)
    torch.testing.assert_close(plain.mean, inferred.mean)


def test_a_fit_that_breaks_down_is_started_again_and_counted():
    """Two data sets in one fit, one of which breaks it: both are fitted again, and the report says so."""
    batch, _ = sample(2)
    yc = batch.yc.double()
    yc[1] = 1e200  # squares overflow
    baseline = GPBaseline(iterations=5)
    dist = baseline(batch.xc, yc, batch.xt)
    assert baseline.report["fits"] == 2
    assert baseline.report["restarted"] == 1
    assert baseline.report["failed"] == 1
    assert dist.mean[0].isfinite().all()


def test_climate_like_ragged_batches_group_by_size():
    tasks = [TASK.sample(1, torch.Generator().manual_seed(i)) for i in range(2)]
    short = Batch(tasks[1].xc[:, :7], tasks[1].yc[:, :7], tasks[1].xt, tasks[1].yt)
    batch = Batch.collate([tasks[0], short])
    dist = GPBaseline(iterations=20)(batch.xc, batch.yc, batch.xt, batch.mask_c)
    assert dist.mean.isfinite().all()
