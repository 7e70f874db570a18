from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from conftest import small_model
from shiftnp import TASKS, log_likelihood
from shiftnp.tasks.base import Stream, TestSet, generator_for
from shiftnp.tasks.ceiling import PACKAGED, ceiling, compute, read
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_kernels import COVARIANCES
from shiftnp.tasks.gp_posterior import BayesOptimal, GPOracle


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


@pytest.mark.parametrize("kernel", COVARIANCES)
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
        expected = COVARIANCES[kernel](d[near][:, None], torch.ones(int(near.sum()))).mean()
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
    dist = GPOracle(task, truth)(batch.xc, batch.yc, batch.xt)
    for b in range(4):
        kernel, length = COVARIANCES[task.kernels[truth.kernel[b]]], truth.length[b]

        def k(a, c, kernel=kernel, length=length):
            d = a.double()[:, None] - c.double()
            return kernel(d, length.expand(d.shape[:-1])).numpy()

        xc, xt, yc = batch.xc[b], batch.xt[b], batch.yc[b].double().numpy()
        gain = k(xt, xc) @ np.linalg.inv(k(xc, xc) + 0.04 * np.eye(5))
        np.testing.assert_allclose(dist.mean[b], gain @ yc, atol=1e-8)
        variance = np.diag(k(xt, xt) - gain @ k(xc, xt)) + 0.04
        np.testing.assert_allclose(dist.variance[b, :, 0], variance, atol=1e-8)


@pytest.mark.parametrize(
    "change",
    [
        {"kernels": ("rational",)},
        {"kernels": (1, 2)},
        {"kernels": "se"},
        {"kernels": ()},
        {"length": (0, 1)},
        {"length": (1.0,)},
        {"points": (5, 2)},
        {"points": (1.5, 2)},
        {"points": 5},
        {"noise": 0},
        {"noise": "low"},
        {"context": ()},
        {"context": (1, 0)},
        {"target": (0, math.inf)},
        {"shift": "far"},
        {"bimodal": "yes"},
        {"targets": 2.5},
        {"dx": "1"},
        {"train_targets": 0},
    ],
    ids=str,
)
def test_bad_settings_are_refused_by_name(change):
    with pytest.raises(ValueError, match=f"^{next(iter(change))} must"):
        unchecked(**change)


def unchecked(**settings):
    """A task without the checks of annotations, which only tests have."""
    task = object.__new__(GPTask)
    for field in fields(GPTask):
        object.__setattr__(task, field.name, settings.get(field.name, field.default))
    task.__post_init__()
    return task


def test_equal_settings_make_equal_tasks():
    """Whether they come from JSON, which has lists, or as ints where floats are meant."""
    task = unchecked(kernels=["se"], points=[1, 3], length=[1, 2], context=[-2, 2], noise=1, shift=0)
    same = GPTask(kernels=("se",), points=(1, 3), length=(1.0, 2.0), context=(-2.0, 2.0), noise=1.0)
    assert task == same
    assert repr(task) == repr(same)
    assert hash(task) == hash(same)


@pytest.mark.parametrize("dx", [2, 3])
def test_more_inputs(dx):
    task = GPTask(
        dx=dx, kernels=("se", "periodic", "matern12", "matern32"), length=(1.0, 1.0), points=(2, 2), targets=8
    )
    batch, truth = task.sample_with_truth(3000, generator())
    assert batch.xc.shape == (3000, 2, dx)
    x = torch.cat([batch.xc, batch.xt], 1).double()
    y = torch.cat([batch.yc, batch.yt], 1).double()
    expected = task.covariance(x, x, truth)
    near = (expected > 0.5) & (expected < 1)
    assert (y @ y.mT)[near].mean().item() == pytest.approx(expected[near].mean().item(), abs=0.06)


def test_sums_of_kernels_have_unit_variance_and_two_length_scales():
    task = GPTask(kernels=("se+periodic",), points=(1, 1), targets=4)
    batch, truth = task.sample_with_truth(4000, generator())
    assert truth.length.shape == (4000, 2)
    assert batch.yt.square().mean().item() == pytest.approx(1.04, abs=0.06)
    x = torch.zeros(1, 1, 1, dtype=torch.float64)
    one = truth._replace(kernel=truth.kernel[:1], length=truth.length[:1])
    expected = (
        sum(
            COVARIANCES[k](torch.ones(1, 1, 1, 1).double(), one.length[:, j, None, None])
            for j, k in enumerate(("se", "periodic"))
        )
        / 2
    )
    torch.testing.assert_close(task.covariance(x, x + 1, one), expected)
    with pytest.raises(ValueError, match="sums"):
        BayesOptimal(task)


def test_bimodal_inputs():
    batch = TASKS["gp-1d-bimodal"]().sample(500, generator())
    for x in (batch.xc, batch.xt):
        assert x.abs().min() >= 1
        assert x.abs().max() <= 4
        assert (x > 0).float().mean().item() == pytest.approx(0.5, abs=0.1)


# --- test sets and streams -------------------------------------------------------------------------------------------


def test_test_sets_are_the_same_tasks_moved():
    sets = GPTask(targets=4).test_sets()
    assert set(sets) == {"valid", *(f"delta-{d}" for d in ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"))}
    here, there = (next(iter(sets[name])) for name in ("delta-0.0", "delta-1.0"))
    assert torch.equal(here.yt, there.yt)
    torch.testing.assert_close(there.xt, here.xt + 1)
    assert not torch.equal(here.yt, next(iter(sets["valid"])).yt)
    assert sum(len(b.yt) for b in sets["valid"]) == sets["valid"].tasks


def test_fewer_targets_in_training_leave_test_sets_as_they_are():
    few, many = GPTask(targets=4, train_targets=2), GPTask(targets=4)
    assert few.sample(3, torch.Generator().manual_seed(0)).yt.shape[1] == 2
    assert few.test_sets() == many.test_sets()
    assert repr(few) == repr(many)  # what a ceiling is kept under
    with pytest.raises(ValueError, match="train_targets"):
        ceiling(TestSet(few, seed=0, tasks=1))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core
def test_a_stream_is_the_same_with_any_number_of_workers_and_processes():
    task = GPTask(targets=2, points=(1, 3))

    def take(n, workers, **kwargs):
        loader = torch.utils.data.DataLoader(Stream(task, 2, seed=3, **kwargs), batch_size=None, num_workers=workers)
        batches = iter(loader)
        return [next(batches).yt for _ in range(n)]

    alone = take(6, 0)
    assert len({float(y.sum()) for y in alone}) == 6  # no batch comes twice
    processes = [take(6, 0, rank=rank, world=2) for rank in (0, 1)]
    for same in (take(6, 2), [torch.cat(pair) for pair in zip(*processes, strict=True)]):
        assert all(torch.equal(a, b) for a, b in zip(alone, same, strict=True))
    assert torch.equal(take(1, 2, start=4)[0], alone[4])
    with pytest.raises(ValueError, match="multiple of the 3 processes"):
        Stream(task, 2, seed=3, world=3)


def test_no_stream_meets_a_test_set():
    """Not even one with its seed: seed 1 would otherwise train on the test tasks."""
    task = GPTask(targets=4, points=(3, 3))
    for name in ("valid", "delta-0.0"):
        test_set = task.test_sets()[name]
        trained, tested = next(iter(Stream(task, test_set.batch_size, test_set.seed))), next(iter(test_set))
        assert not torch.isclose(trained.yt, tested.yt).any()


# --- the exact answer -----------------------------------------------------------------------------------------


def scores(task, n=8, size=16):
    """Log-likelihoods of the oracle, of the mixture and of its Gaussian on the same tasks."""
    rows = []
    for i in range(n):
        batch, truth = task.sample_with_truth(size, generator_for(7, i))
        predictors = (GPOracle(task, truth), BayesOptimal(task), BayesOptimal(task, gaussian=True))
        rows.append(
            torch.stack([log_likelihood(p(batch.xc, batch.yc, batch.xt), batch.yt.double()) for p in predictors])
        )
    return torch.cat(rows, 1)


def test_who_knows_more_predicts_better():
    task = GPTask(targets=32, points=(1, 24))
    oracle, mixture, gaussian = scores(task).mean(1)
    assert oracle > mixture > gaussian
    batch, _ = task.sample_with_truth(16, generator_for(7, 0))  # a model, here one that has learnt nothing
    assert log_likelihood(small_model("te-tnp")(batch.xc, batch.yc, batch.xt), batch.yt.double()).mean() < gaussian


def test_the_quadrature_has_converged():
    task = GPTask(targets=16, points=(30, 30))
    batch = task.sample(6, generator(4))
    a, b = (
        log_likelihood(BayesOptimal(task, nodes=n, periodic_nodes=p)(batch.xc, batch.yc, batch.xt), batch.yt.double())
        for n, p in ((80, 1500), (160, 3000))
    )
    torch.testing.assert_close(a, b, rtol=0, atol=1e-3)


def test_known_hyperparameters_need_no_quadrature():
    """With one kernel and hardly any freedom in the length-scale, Bayes is the oracle."""
    task = GPTask(kernels=("matern52",), length=(0.7, 0.7001), points=(9, 9), targets=5)
    batch, truth = task.sample_with_truth(3, generator())
    oracle = GPOracle(task, truth)(batch.xc, batch.yc, batch.xt)
    for gaussian in (False, True):
        bayes = BayesOptimal(task, gaussian=gaussian)(batch.xc, batch.yc, batch.xt)
        torch.testing.assert_close(bayes.mean, oracle.mean, rtol=0, atol=1e-3)
        torch.testing.assert_close(bayes.stddev, oracle.stddev, rtol=0, atol=1e-3)


def test_gaussian_has_the_moments_of_the_mixture():
    task = GPTask(points=(3, 3), targets=5)
    batch = task.sample(4, generator())
    mixture, gaussian = (BayesOptimal(task, gaussian=g)(batch.xc, batch.yc, batch.xt) for g in (False, True))
    torch.testing.assert_close(mixture.mean, gaussian.mean)
    torch.testing.assert_close(mixture.stddev, gaussian.stddev)


@pytest.mark.parametrize("gaussian", [False, True])
def test_masked_points_are_dropped_points(gaussian):
    task = GPTask(points=(6, 6), targets=5)
    batch, truth = task.sample_with_truth(3, generator())
    mask = torch.tensor([[True, False, True, True, False, True]]).expand(3, -1)
    keep = mask[0]
    for predict in (BayesOptimal(task, gaussian=gaussian), GPOracle(task, truth)):
        masked = predict(batch.xc, batch.yc, batch.xt, mask)
        dropped = predict(batch.xc[:, keep], batch.yc[:, keep], batch.xt)
        torch.testing.assert_close(masked.mean, dropped.mean)
        torch.testing.assert_close(masked.stddev, dropped.stddev)
        nothing = predict(batch.xc, batch.yc, batch.xt, torch.zeros_like(mask))
        torch.testing.assert_close(nothing.mean, torch.zeros_like(nothing.mean))
        torch.testing.assert_close(nothing.variance, torch.full_like(nothing.mean, 1.04))


def test_ceilings_are_kept(tmp_path):
    test_set = replace(GPTask(targets=4, points=(1, 5)).test_sets()["delta-0.4"], tasks=5, batch_size=2)
    first = ceiling(test_set, tmp_path)
    assert [len(s) for s in first] == [5, 5, 5]
    (file,) = tmp_path.iterdir()
    stamp = file.stat().st_mtime_ns
    again = ceiling(replace(test_set, task=replace(test_set.task, shift=0.0)), tmp_path)  # a shift changes no ceiling
    assert file.stat().st_mtime_ns == stamp
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    ceiling(replace(test_set, seed=9), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    file.write_bytes(b"rubbish")  # a broken file is made again
    assert torch.equal(ceiling(test_set, tmp_path).mixture, first.mixture)


def test_a_longer_ceiling_serves_whole_batches(tmp_path):
    """A last batch that is not whole is drawn differently, and has to be computed."""
    test_set = TestSet(GPTask(kernels=("se",), targets=4, points=(1, 5)), seed=1, tasks=7, batch_size=2)
    longer = ceiling(test_set, tmp_path)
    for tasks in (2, 6):
        fewer = replace(test_set, tasks=tasks)
        found = read(fewer, tmp_path)
        assert torch.equal(found.gaussian, longer.gaussian[:tasks])
        torch.testing.assert_close(found.gaussian, compute(fewer).gaussian)
    assert read(replace(test_set, tasks=5), tmp_path) is None
    assert read(replace(test_set, tasks=8), tmp_path) is None
    assert read(replace(test_set, batch_size=1), tmp_path) is None
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["gp-1d", "gp-1d-bimodal"])
def test_ceilings_of_named_test_sets_come_with_the_package(name, tmp_path, monkeypatch):
    def refuse(test_set):
        raise AssertionError("computed")

    monkeypatch.setattr("shiftnp.tasks.ceiling.compute", refuse)
    task = TASKS[name]()
    for test_set in task.test_sets().values():
        for mixture in (True, False):
            found = task.ceiling(test_set, mixture, tmp_path)
            assert found.shape == (test_set.tasks,)
            assert torch.equal(task.ceiling(replace(test_set, tasks=64), mixture, tmp_path), found[:64])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "test_set"), [("gp-1d", "valid"), ("gp-1d-bimodal", "delta-0.0")])
def test_packaged_ceilings_are_what_is_computed(name, test_set):
    test_set = TASKS[name]().test_sets()[test_set]
    packaged, computed = read(test_set, PACKAGED), compute(replace(test_set, tasks=16))
    for a, b in zip(packaged, computed, strict=True):
        torch.testing.assert_close(a[:16], b, rtol=0, atol=1e-5)
    oracle, mixture, gaussian = (column.mean() for column in packaged)
    assert oracle > mixture > gaussian
