from __future__ import annotations

import math

import pytest
import scoringrules
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, StudentT

from shiftnp.metrics import (
    LEVELS,
    calibration_error,
    coverage,
    crps,
    log_likelihood,
    pit,
    pit_below,
    squared_error,
)

METRICS = {
    "log_likelihood": log_likelihood,
    "squared_error": squared_error,
    "crps": crps,
    "coverage": lambda dist, yt, mask=None: coverage(dist, yt, 0.9, mask),
    "pit_below": pit_below,
}


def gauss(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gaussian(b=3, nt=4, dy=2, dtype=torch.float64):
    return Independent(Normal(gauss(b, nt, dy, dtype=dtype), gauss(b, nt, dy, seed=1, dtype=dtype).exp()), 1)


def mixture(b=3, nt=4, k=3, dy=2, dtype=torch.float64):
    parts = Normal(2 * gauss(b, nt, k, dy, seed=2, dtype=dtype), gauss(b, nt, k, dy, seed=3, dtype=dtype).exp())
    return MixtureSameFamily(Categorical(logits=gauss(b, nt, k, seed=4, dtype=dtype)), Independent(parts, 1))


def cdf(dist, z):
    """Of each channel, from torch's own distributions. `z` is `[n, b, nt, dy]`."""
    if not isinstance(dist, MixtureSameFamily):
        return dist.base_dist.cdf(z)
    each = dist.component_distribution.base_dist.cdf(z[..., None, :])
    return (dist.mixture_distribution.probs[..., None] * each).sum(-2)


def test_crps_of_gaussians_is_that_of_scoringrules():
    dist, y = gaussian(), gauss(3, 4, 2, seed=5)
    expected = scoringrules.crps_normal(y.numpy(), dist.mean.numpy(), dist.stddev.numpy()).mean((1, 2))
    torch.testing.assert_close(crps(dist, y), torch.from_numpy(expected))


def test_crps_of_mixtures_is_that_of_scoringrules():
    dist, y = mixture(), gauss(3, 4, 2, seed=5)
    parts = dist.component_distribution
    expected = scoringrules.crps_mixnorm(
        y.numpy(),
        parts.mean.numpy(),
        parts.stddev.numpy(),
        dist.mixture_distribution.probs[..., None].expand(-1, -1, -1, 2).numpy(),
        m_axis=-2,
    ).mean((1, 2))
    torch.testing.assert_close(crps(dist, y), torch.from_numpy(expected))


@pytest.mark.parametrize("make", [gaussian, mixture])
def test_crps_is_its_integral(make):
    dist, y = make(), gauss(3, 4, 2, seed=5)
    z = torch.linspace(-60, 60, 40_001, dtype=torch.float64)[:, None, None, None]
    square = (cdf(dist, z.expand(-1, 3, 4, 2)) - (z >= y).double()).square()
    expected = torch.trapezoid(square, z[:, 0, 0, 0], dim=0).mean((1, 2))
    torch.testing.assert_close(crps(dist, y), expected, rtol=0, atol=3e-3)  # half a step at the jump


def test_crps_is_its_expectation():
    dist, y = mixture(b=1, nt=1), gauss(1, 1, 2, seed=5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        a, b = dist.sample((400_000,)), dist.sample((400_000,))
    expected = ((a - y).abs() - 0.5 * (a - b).abs()).mean((0, 2, 3))
    torch.testing.assert_close(crps(dist, y), expected, rtol=0, atol=0.02)


def test_a_mixture_of_equals_is_a_gaussian():
    one, y = gaussian(), gauss(3, 4, 2, seed=5)
    parts = Normal(one.mean[..., None, :].expand(-1, -1, 5, -1), one.stddev[..., None, :].expand(-1, -1, 5, -1))
    same = MixtureSameFamily(Categorical(logits=gauss(3, 4, 5)), Independent(parts, 1))
    for name in ("squared_error", "crps", "coverage", "pit_below"):
        torch.testing.assert_close(METRICS[name](same, y), METRICS[name](one, y))


def test_squared_error_is_that_of_the_mean():
    dist, y = mixture(), gauss(3, 4, 2, seed=5)
    torch.testing.assert_close(squared_error(dist, y), (dist.mean - y).square().mean((1, 2)))


@pytest.mark.parametrize("make", [gaussian, mixture])
def test_pit_is_the_distribution_function(make):
    dist, y = make(), gauss(3, 4, 2, seed=5)
    torch.testing.assert_close(pit(dist, y), cdf(dist, y[None])[0])


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_calibrated_predictions_cover_what_they_promise(level):
    n = 40_000
    dist = Independent(Normal(gauss(40, 1000, 1), gauss(40, 1000, 1, seed=1).exp()), 1)
    y = dist.mean + dist.stddev * gauss(40, 1000, 1, seed=2)
    error = math.sqrt(level * (1 - level) / n)
    assert coverage(dist, y, level).mean().item() == pytest.approx(level, abs=4 * error)
    assert calibration_error(pit_below(dist, y)) < 4 * 0.5 / math.sqrt(n)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_overconfident_predictions_cover_less(level):
    n, normal = 40_000, Normal(torch.zeros((), dtype=torch.float64), 1.0)
    half = Independent(Normal(torch.zeros(40, 1000, 1), torch.full((40, 1000, 1), 0.5)), 1)
    y = gauss(40, 1000, 1)
    reach = 0.5 * normal.icdf(torch.tensor((1 + level) / 2, dtype=torch.float64))
    expected = (2 * normal.cdf(reach) - 1).item()
    assert coverage(half, y, level).mean().item() == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(n))
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    error = (normal.cdf(0.5 * normal.icdf(levels)) - levels).abs().mean().item()
    assert calibration_error(pit_below(half, y)) == pytest.approx(error, abs=4 * 0.5 / math.sqrt(n))


def test_every_task_weighs_the_same_in_the_calibration_error():
    below = torch.tensor(LEVELS, dtype=torch.float64).repeat(2, 1)
    assert calibration_error(below) == 0
    assert calibration_error(below + torch.tensor([[0.2], [-0.1]])) == pytest.approx(0.05)


@pytest.mark.parametrize("make", [gaussian, mixture])
@pytest.mark.parametrize("name", METRICS)
def test_padding_changes_nothing(make, name):
    dist, y = make(nt=6), gauss(3, 6, 2, seed=5)
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[0, 2:], mask[1, ::2] = False, False
    padded = y.masked_fill(~mask[..., None], math.nan)
    scores = METRICS[name](dist, padded, mask)
    torch.testing.assert_close(scores, METRICS[name](dist, y.where(mask[..., None], 7.0), mask))
    torch.testing.assert_close(scores[2], METRICS[name](dist, y)[2])  # nothing of this task is padding
    assert pit(dist, padded, mask)[0, 2:].isnan().all()


@pytest.mark.parametrize("name", METRICS)
def test_bad_targets_are_refused(name):
    dist, y = gaussian(), gauss(3, 4, 2)
    with pytest.raises(ValueError, match=r"yt must have shape \[b, nt, dy\] = \(3, 4, 2\), got \(3, 4, 1\)"):
        METRICS[name](dist, y[..., :1])
    for bad in (math.nan, math.inf):
        y[1, 2, 0] = bad
        with pytest.raises(ValueError, match="yt holds NaN or inf at targets that are there"):
            METRICS[name](dist, y)


def test_other_distributions_are_refused():
    one = torch.ones(3, 4, 2)
    joint = Normal(one, one)
    for dist in (Independent(StudentT(3 * one), 1), joint, MixtureSameFamily(Categorical(torch.ones(3, 4, 2)), joint)):
        with pytest.raises(ValueError, match="known for Gaussians with independent channels"):
            crps(dist, torch.zeros(dist.batch_shape + dist.event_shape))


def test_levels_are_probabilities():
    with pytest.raises(ValueError, match="level must be a probability"):
        coverage(gaussian(), gauss(3, 4, 2), 95)


def test_tails_in_float32():
    """Far away the CRPS is the distance, the transform is a probability, and a zero scale is a step."""
    mean = torch.tensor([0.0, 1e4, -1e4, 3.0]).view(1, 4, 1)
    std = torch.tensor([1e-3, 1e-3, 1.0, 0.0]).view(1, 4, 1)
    dist = Independent(Normal(mean, std, validate_args=False), 1, validate_args=False)
    y = torch.tensor([5.0, -1e4, 0.0, 3.0]).view(1, 4, 1)
    assert crps(dist, y).item() == pytest.approx((5.0 + 2e4 + 1e4) / 4, rel=1e-4)
    assert pit(dist, y).flatten().tolist() == [1.0, 0.0, 1.0, 0.5]
    exact = scoringrules.crps_normal(0.1, 0.0, 1e3)
    wide = Independent(Normal(torch.zeros(1, 1, 1), torch.full((1, 1, 1), 1e3)), 1)
    assert crps(wide, torch.full((1, 1, 1), 0.1)).item() == pytest.approx(exact, rel=1e-6)


def test_broken_predictions_do_not_hide():
    mean = torch.zeros(2, 3, 1)
    mean[0, 1] = math.nan
    dist = Independent(Normal(mean, torch.ones(2, 3, 1), validate_args=False), 1, validate_args=False)
    for score in METRICS.values():
        assert score(dist, torch.zeros(2, 3, 1)).view(2, -1).isnan().all(-1).tolist() == [True, False]
