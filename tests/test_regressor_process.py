"""The Gaussian process in `Regressor`: its formulas, its share of the predictions, and what it changes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regressors import observations, regressor, same
from shiftnp import Regressor
from shiftnp.regressor.process import Process, cholesky, fit_process, loss, minimise, squares
from shiftnp.regressor.stacking import DOUBT, share

XT = np.random.default_rng(1).uniform(-1, 9, size=(23, 2))


def smooth(x):
    """A function without noise."""
    return np.sin(0.7 * x[:, 0]) * np.cos(0.5 * x[:, -1]) + 0.1 * x[:, 0]


@pytest.fixture(scope="module")
def fitted():
    """With random weights the process gets nearly all of the predictions."""
    model = regressor(gp=True).fit(*observations(60))
    assert 0.5 < model.scales_[0].share < 1
    return model


# --- formulas --------------------------------------------------------------------------------------------------------


def test_predictions_are_those_of_the_textbook():
    rng = np.random.default_rng(0)
    xc, xt, yc = rng.normal(size=(20, 2)), rng.normal(size=(5, 2)), rng.normal(size=20) + 100
    rates, rough, noise = np.array([[0.7, 1.3], [2.0, 0.5]]), 0.4, 0.2

    def kernel(a, b):
        r, s = (np.sqrt((((a[:, None] - b) * rate) ** 2).sum(-1)) for rate in rates)
        r = math.sqrt(5) * r
        return (1 + r + r**2 / 3) * np.exp(-r) + rough * np.exp(-s)

    inverse, across = np.linalg.inv(kernel(xc, xc) + noise * np.eye(20)), kernel(xc, xt)
    level = (inverse @ yc).sum() / inverse.sum()
    variance = (yc - level) @ inverse @ (yc - level) / 20
    mean, std = Process(rates, rough, noise).predict(*map(torch.from_numpy, (xc, yc, xt)), 0.0)
    same(mean, level + across.T @ inverse @ (yc - level), 1e-6)
    same(std, np.sqrt(variance * (1 + rough + noise - (across * (inverse @ across)).sum(0))), 1e-6)


def test_observations_without_output_are_left_out():
    x, y = observations(20)
    y[3] = np.nan
    there = ~np.isnan(y)
    process = Process(np.full((2, 2), 0.5), 0.5, 0.1)
    with_nan = process.predict(*map(torch.from_numpy, (x, y, XT)), 0.0)
    for a, b in zip(with_nan, process.predict(*map(torch.from_numpy, (x[there], y[there], XT)), 0.0), strict=True):
        same(a, b)


def test_a_covariance_that_rounding_makes_indefinite():
    kernel = torch.ones(5, 5, dtype=torch.float64) - 1e-9 * torch.eye(5, dtype=torch.float64)
    with pytest.raises(RuntimeError):
        torch.linalg.cholesky(kernel)
    factor = cholesky(kernel.clone())
    same(factor @ factor.mT, kernel, 1e-6)


@pytest.mark.parametrize("at", [[0.3, -0.2, -3.0], [0.3, -0.2, 0.5, 0.1, -0.7, -3.0]], ids=["smooth", "with rough"])
def test_the_gradient_is_that_of_the_loss(at):
    x, y = (torch.from_numpy(a) for a in observations(25))
    differences, z, at = squares(x, x), (y - y.mean()) / y.std(), torch.tensor(at, dtype=torch.float64)
    gradient = loss(at, differences, z)[1]
    for step, slope in zip(1e-5 * torch.eye(len(at), dtype=torch.float64), gradient, strict=True):
        same((loss(at + step, differences, z)[0] - loss(at - step, differences, z)[0]) / 2e-5, slope, 1e-6)


def test_the_optimiser_finds_the_minimum():
    """Rosenbrock's valley with a shallow slope; and never worse than the start, even if values are not finite."""

    def valley(x):
        a, b = x
        value = (1 - a) ** 2 + 5 * (b - a**2) ** 2
        return 100 * float(value), 100 * torch.stack([-2 * (1 - a) - 20 * a * (b - a**2), 10 * (b - a**2)])

    found = minimise(valley, torch.tensor([-0.5, 0.8], dtype=torch.float64))
    same(found, [1, 1], 0.05)
    start = torch.zeros(2, dtype=torch.float64)
    wrong = minimise(lambda x: (math.nan if x.any() else 0.0, torch.ones_like(x)), start)
    assert torch.equal(wrong, start)


@pytest.mark.parametrize("rough", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_is_at_least_as_good_as_the_truth(rough, seed):
    """Outputs of a known process: the parameters that are found are not worse than its own."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 8, size=(150, 2))
    true = Process(np.array([[1.0, 0.2], [0.2, 0.4]]), rough, 0.05)
    y = np.linalg.cholesky(true.kernel(*[torch.from_numpy(x)] * 2).numpy() + 0.05 * np.eye(150)) @ rng.normal(size=150)
    found = fit_process(x, y, seed=0)
    differences, z = squares(*[torch.from_numpy(x)] * 2), torch.from_numpy((y - y.mean()) / y.std())

    def loss_of(process):
        rates, tail = process.rates.reshape(-1), [process.rough, process.noise]
        values = [*rates, *tail] if process.rough else [*rates[:2], process.noise]
        return loss(torch.tensor(np.log(values)), differences, z)[0]

    assert loss_of(found) <= loss_of(true)
    assert rough == 0 or found.rough > 0.05


@pytest.mark.parametrize("y", [np.ones(30), np.arange(5.0), np.full(30, np.nan)], ids=["constant", "few", "none"])
def test_no_process_for_few_or_equal_outputs(y):
    assert fit_process(np.random.default_rng(0).normal(size=(len(y), 2)), y, seed=0) is None


# --- the share -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [-2.0, 0.0, 0.5, 30.0])
def test_the_share_maximises_the_likelihood(level):
    gain = level + torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grid = torch.linspace(0, 1 - 1e-6, 20001, dtype=torch.float64)[:, None]
    values = torch.logaddexp((1 - grid).log(), grid.log() + gain).sum(1) + DOUBT * (1 - grid[:, 0]).log()
    assert abs(share(gain) - float(grid[values.argmax(), 0])) < 1e-4


def test_the_share_of_a_process_that_is_worse_is_none_and_of_a_better_one_not_all():
    assert share(torch.full((40,), -1.0, dtype=torch.float64)) < 1e-9
    assert 0.9 < share(torch.full((40,), 1000.0, dtype=torch.float64)) < 1


# --- predictions -----------------------------------------------------------------------------------------------------


def test_smooth_functions_are_predicted_far_better():
    rng = np.random.default_rng(0)
    x, xt = rng.uniform(0, 8, size=(2, 80, 2))
    errors = {}
    for gp in (False, True):
        model = Regressor(gp=gp).fit(x, smooth(x))
        errors[gp] = np.sqrt(np.mean((model.predict(xt) - smooth(xt)) ** 2))
    assert errors[True] < 0.4 * errors[False]
    assert f"{model.scales_[0].share:.0%} Gaussian process" in model.report()


@pytest.mark.parametrize("n", [60, 120])
def test_invariances(n):
    """Shifts, units, the order of rows, and targets one by one, also with more observations than neighbours."""
    x, y = observations(n)
    arguments = {"gp": True, "neighbours": 64, "variants": 1}
    model = regressor(**arguments).fit(x, y)
    assert model.scales_[0].share > 0.5
    mean, std = model.predict(XT, return_std=True)
    order = np.random.default_rng(2).permutation(n)
    changed = [
        (regressor(**arguments).fit(x + 1024.0, y), XT + 1024.0, 1.0),
        (regressor(**arguments).fit(x * 8, y), XT * 8, 1.0),
        (regressor(**arguments).fit(x[order], y[order]), XT, 1.0),
        (regressor(**arguments).fit(x, 4 * y), XT, 4.0),
    ]
    for other, xt, factor in changed:
        for a, b in zip(other.predict(xt, return_std=True), (mean, std), strict=True):
            same(a, factor * b, 1e-6)
    same(np.concatenate([model.predict(t[None]) for t in XT]), mean)


def test_held_out_scores_include_the_process(fitted):
    alone = regressor().fit(*observations(60))
    assert fitted.scores_[0].log_likelihood > alone.scores_[0].log_likelihood + 0.1


def test_outputs_have_processes_of_their_own():
    x, y = observations(60, outputs=2)
    both = regressor(gp=True).fit(x, y)
    for o in range(2):
        same(regressor(gp=True).fit(x, y[:, o]).predict(XT), both.predict(XT)[:, o], 1e-6)


def test_joint_samples_have_the_moments_of_the_process(fitted):
    model = regressor(gp=True).fit(*observations(60))
    model.scales_ = [replace(model.scales_[0], share=1.0)]
    drawn = model.sample(XT, n=4000, joint=True)
    mean, std = model.predict(XT, return_std=True)
    np.testing.assert_allclose(drawn.mean(0), mean, atol=5 * std.max() / math.sqrt(4000))
    np.testing.assert_allclose(drawn.std(0), std, rtol=0.1)
    mixed = fitted.sample(XT[:4], n=30, joint=True)
    assert mixed.shape == (30, 4)
    assert np.isfinite(mixed).all()


def test_functions_of_a_process_have_its_covariance():
    x, y = (torch.from_numpy(a) for a in observations(15))
    xt, process = torch.tensor([[4.0, 4.0], [4.3, 4.2]], dtype=torch.float64), Process(np.full((2, 2), 0.5), 0.1, 0.01)
    drawn = process.sample(x, y, xt, 20_000, 1.0, torch.Generator().manual_seed(0))
    mean, std = process.predict(x, y, xt, 0.0)
    covariance = np.cov(drawn.T.numpy())
    np.testing.assert_allclose(covariance.diagonal(), std.square(), rtol=0.05)
    _, solved, variance = process._condition(x, y, xt)
    prior = process.kernel(xt, xt)[0, 1]
    np.testing.assert_allclose(covariance[0, 1], variance * (prior - solved[:, 0] @ solved[:, 1]), rtol=0.05)
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.05 * float(std.max()))


def test_a_saved_regressor_predicts_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = Regressor.load(tmp_path / "model")
    assert loaded.scales_[0].share == fitted.scales_[0].share
    same(loaded.predict(XT), fitted.predict(XT))


def test_observations_that_are_equal_around_a_target():
    """No rain in half of the region: predictions there are finite, with an uncertainty."""
    x, y = observations(200)
    y[x[:, 0] < 5] = 0.0
    model = regressor(gp=True, neighbours=32, variants=1).fit(x, y)
    model.scales_ = [replace(model.scales_[0], process=Process(np.full((2, 2), 0.5), 0.0, 0.01), share=0.9)]
    dry = np.column_stack([np.linspace(0, 2, 9), np.linspace(0, 8, 9)])
    table = np.stack([*model.predict(dry, return_std=True), *model.predict_quantiles(dry).T])
    assert np.isfinite(table).all()
    assert (table[1] > 0).all()
    assert np.isfinite(model.log_likelihood(dry, np.zeros(9)))


def test_a_period_has_no_process():
    model = regressor(1, gp=True, period={0: 8.0}).fit(*(a[..., :1] if a.ndim > 1 else a for a in observations(60)))
    assert model.scales_[0].process is None
