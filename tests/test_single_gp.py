"""The Gaussian process that is fitted to a single data set."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gpytorch", reason="needs the extra `gp`")
from shiftnp.baselines.single import SingleGP


def covariance(a, b, length, nu):
    r = np.sqrt((((a[:, None] - b[None]) / length) ** 2).sum(-1) * 2 * nu)
    return np.exp(-r) * {0.5: 1.0, 2.5: 1 + r + r**2 / 3}[nu]


def sample(n=60, targets=40, length=(0.3, 1.0), noise=0.1, seed=0):
    """Observations and targets of a Matern 5/2 process, and the exact prediction at the targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n + targets, 2))
    gram = covariance(x, x, np.array(length), 2.5)
    y = np.linalg.cholesky(gram + 1e-9 * np.eye(len(x))) @ rng.normal(size=len(x)) + noise * rng.normal(size=len(x))
    solved = np.linalg.solve(gram[:n, :n] + noise**2 * np.eye(n), np.concatenate([gram[:n, n:], y[:n, None]], 1))
    mean = gram[n:, :n] @ solved[:, -1]
    std = np.sqrt(1 + noise**2 - (gram[n:, :n] * solved[:, :-1].T).sum(1))
    return x[:n], y[:n], x[n:], y[n:], mean, std


def log_likelihood(y, mean, std):
    return float((-0.5 * ((y - mean) / std) ** 2 - np.log(std)).mean())


@pytest.mark.parametrize("kernel", ["matern52", "two-materns"])
def test_a_fit_comes_close_to_the_truth(kernel):
    x, y, xt, yt, mean, std = sample()
    found = SingleGP(kernel).predict(x, y, xt)
    assert log_likelihood(yt, mean, std) - log_likelihood(yt, *found) < 0.15
    assert np.abs(found[0] - mean).mean() < 0.3 * std.mean()


def test_units_do_not_matter():
    x, y, xt, *_ = sample()
    mean, std = SingleGP().predict(x, y, xt)
    there = SingleGP().predict(x * [1000.0, 0.01] + 500.0, 20 * y - 7, xt * [1000.0, 0.01] + 500.0)
    np.testing.assert_allclose((there[0] + 7) / 20, mean, atol=1e-4)
    np.testing.assert_allclose(there[1] / 20, std, atol=1e-4)


@pytest.mark.parametrize("y", [np.zeros(5), np.arange(5.0), np.ones(1)])
def test_degenerate_outputs_give_finite_predictions(y):
    x = np.arange(len(y), dtype=float)[:, None]
    mean, std = SingleGP(starts=1, iterations=20).predict(x, y, np.linspace(-1, 6, 9)[:, None])
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="covariance must be one of matern52, two-materns"):
        SingleGP("se")
    with pytest.raises(ValueError, match="starts must be between 1 and 3"):
        SingleGP(starts=4)
