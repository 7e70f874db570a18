"""Trends of contexts."""

from __future__ import annotations

import pytest
import torch

from shiftnp.regressor.trend import SHRINKAGE, explained, fit_trend


def inputs(b=3, n=400, dx=2):
    return 5 + 2 * torch.randn(b, n, dx, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def polynomial(x):
    return 3 * x[..., 0] - x[..., 1] + 0.5 * x[..., 0] ** 2 + x[..., 0] * x[..., 1]


def test_polynomials_are_found():
    """Up to shrinkage, and up to a constant, which the standardisation removes."""
    x = inputs()
    y = polynomial(x)
    rest = y - fit_trend(x, y, torch.tensor([0, 1, 2])).at(x)[0]
    none, linear, quadratic = rest.std(1).tolist()
    assert none == pytest.approx(float(y[0].std()))
    assert 0.05 * none < linear < 0.9 * none
    assert quadratic < 2 * SHRINKAGE / x.shape[1] * none


def test_missing_outputs_and_padding_have_no_influence():
    x = inputs()
    y = polynomial(x)
    y[:, 300:] = torch.nan
    changed = x.clone()
    changed[:, 300:] = 1e6
    degree = torch.tensor([1, 2, 2])
    alone = fit_trend(x[:, :300], y[:, :300], degree)
    for values, other in zip(fit_trend(changed, y, degree), alone, strict=True):
        assert torch.allclose(values, other)


def test_trends_are_straight_beyond_the_data():
    x = inputs(dx=1)
    trend = fit_trend(x, x[..., 0] ** 2, torch.tensor([2, 2, 2]))
    inside, no_doubt = trend.at(x)
    assert torch.allclose(no_doubt, torch.zeros_like(inside))
    square = x[..., 0] ** 2
    assert torch.allclose(inside - inside.mean(1, keepdim=True), square - square.mean(1, keepdim=True), atol=1.0)
    far = x.amax(1, keepdim=True) + torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)[:, None]
    level, doubt = trend.at(far)
    assert torch.allclose(level.diff(n=2), torch.zeros(3, 2, dtype=torch.float64), atol=1e-9)
    assert (doubt.diff() > 0).all()


def test_without_a_trend_there_is_no_doubt():
    x = inputs()
    level, doubt = fit_trend(x, polynomial(x), torch.tensor([0, 0, 2])).at(10 * x)
    assert not level[:2].any()
    assert not doubt[:2].any()
    assert doubt[2].any()


def test_the_share_of_a_trend_is_adjusted_for_its_coefficients():
    x = inputs(1, 50)[0]
    noise = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert abs(explained(x, noise)) < 0.3
    assert explained(x, polynomial(x) + 0.1 * noise) > 0.95
    assert explained(x[:4], noise[:4]) == 0
    assert explained(x, torch.ones(50, dtype=torch.float64)) == 0
