from __future__ import annotations

import pytest
import torch
from torch.nn.functional import softplus

from conftest import random_batch, small_model
from shiftnp.likelihoods import LIKELIHOODS, Components, Likelihood, components_of, draw, make_likelihood
from shiftnp.metrics import crps, log_likelihood, pit_below


def outputs(likelihood, n=3, scale=1.0):
    return scale * torch.randn(2, n, likelihood.d_in, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_draws_have_the_moments_of_the_distribution(name):
    likelihood = make_likelihood(name, dy=2, floor=0.1, components=3)
    dist = likelihood(outputs(likelihood))
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        draws = torch.stack([draw(dist, g) for _ in range(20_000)])
    error = dist.stddev / 20_000**0.5
    assert ((draws.mean(0) - dist.mean).abs() < 5 * error).all()
    torch.testing.assert_close(draws.std(0), dist.stddev.detach(), rtol=0.05, atol=0)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_floor_bounds_every_density(name):
    floor = 0.01
    likelihood = make_likelihood(name, dy=1, floor=floor, components=2)
    out = outputs(likelihood)
    with torch.no_grad():
        for p in likelihood.parameters():
            p.fill_(-100.0)
    raw = {"heteroscedastic": slice(1, None), "homoscedastic": slice(0, 0), "mixture": slice(3, None, 2)}[name]
    out[..., raw] = -100.0
    dist = likelihood(out)
    at_mean = dist.component_distribution if name == "mixture" else dist
    torch.testing.assert_close(at_mean.stddev, torch.full_like(at_mean.stddev, floor**0.5))


def test_heteroscedastic_is_mean_and_softplus():
    likelihood = make_likelihood("heteroscedastic", dy=2, floor=0.5, components=3)
    out = outputs(likelihood)
    dist = likelihood(out)
    assert torch.equal(dist.mean, out[..., :2])
    torch.testing.assert_close(dist.variance, softplus(out[..., 2:]) + 0.5)


def test_mixture_log_prob_is_the_log_of_a_sum():
    likelihood = make_likelihood("mixture", dy=2, floor=0.1, components=3)
    dist = likelihood(outputs(likelihood))
    y = torch.zeros(2, 3, 2)
    parts = dist.component_distribution
    density = sum(
        dist.mixture_distribution.probs[..., k]
        * (torch.distributions.Normal(parts.mean[..., k, :], parts.stddev[..., k, :]).log_prob(y).sum(-1).exp())
        for k in range(3)
    )
    torch.testing.assert_close(dist.log_prob(y), density.log())


# --- the protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_prediction_is_a_mixture_of_gaussians(name):
    likelihood = make_likelihood(name, dy=2, floor=0.1, components=3)
    dist = likelihood(outputs(likelihood))
    weight, mean, std = components_of(dist)
    assert weight.shape == (2, 3, 3 if name == "mixture" else 1)
    assert mean.shape == std.shape == (*weight.shape, 2)
    first = (weight[..., None] * mean).sum(-2)
    second = (weight[..., None] * (mean.square() + std.square())).sum(-2)
    torch.testing.assert_close(first, dist.mean)
    torch.testing.assert_close(second - first.square(), dist.variance)


def test_which_ceiling_counts():
    kinds = {name: make_likelihood(name, 1, 0.1, 3).ceiling for name in LIKELIHOODS}
    assert kinds == {"heteroscedastic": "gaussian", "homoscedastic": "gaussian", "mixture": "mixture"}


class Contaminated(Likelihood):
    """Gaussian with a few outliers: a mixture of `N(mean, s^2)` and `N(mean, (wide s)^2)`."""

    ceiling = "mixture"

    def __init__(self, dy: int, floor: float, share: float = 0.1, wide: float = 5.0) -> None:
        super().__init__()
        self.dy, self.floor, self.share, self.wide, self.d_in = dy, floor, share, wide, 2 * dy

    def forward(self, raw):
        mean, log_std = raw.split(self.dy, dim=-1)
        std = log_std.exp() + self.floor
        return Outliers(mean, std, self.share, self.wide)


class Outliers(torch.distributions.Distribution):
    """A distribution of its own, which torch does not have."""

    def __init__(self, mean, std, share, wide):
        super().__init__(mean.shape[:-1], mean.shape[-1:], validate_args=False)
        self.loc, self.std, self.share, self.wide = mean, std, share, wide

    def components(self):
        weight = self.loc.new_tensor([1 - self.share, self.share]).expand(*self.batch_shape, 2)
        mean, std = (torch.stack(pair, -2) for pair in ((self.loc, self.loc), (self.std, self.wide * self.std)))
        return Components(weight, mean, std)

    def log_prob(self, value):
        weight, mean, std = self.components()
        each = torch.distributions.Normal(mean, std).log_prob(value[..., None, :]).sum(-1)
        return (weight.log() + each).logsumexp(-1)

    @property
    def mean(self):
        return self.loc

    @property
    def variance(self):
        return self.std.square() * (1 - self.share + self.share * self.wide**2)


def test_a_new_likelihood_is_one_class_and_one_line(monkeypatch):
    """Models, metrics and samples take it from the registry; arguments that it does not take are not passed to it."""
    monkeypatch.setitem(LIKELIHOODS, "contaminated", Contaminated)
    batch = random_batch(dy=2)
    model = small_model("tnp", dy=2, likelihood="contaminated", components=7)
    assert model.likelihood.ceiling == "mixture"
    prediction = model(batch.xc, batch.yc, batch.xt)
    for metric in (log_likelihood, crps, pit_below):
        score = metric(prediction, batch.yt)
        assert len(score) == 2
        assert score.isfinite().all()
    a, b = (model.sample(batch.xc, batch.yc, batch.xt, n=2, generator=torch.Generator().manual_seed(0)) for _ in "ab")
    assert a.shape == (2, *batch.yt.shape)
    assert torch.equal(a, b)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("size", [1e38, float("inf"), float("nan")])
def test_broken_predictions_give_broken_samples(name, size):
    """One broken target leaves the others as they are, and is no reason to stop."""
    likelihood = make_likelihood(name, dy=2, floor=0.1, components=3)
    good = outputs(likelihood)
    bad = good.index_fill(1, torch.tensor([1]), size)
    with torch.no_grad():
        a, b = (draw(likelihood(raw), torch.Generator().manual_seed(0)) for raw in (good, bad))
    assert torch.equal(a[:, 0], b[:, 0])
    assert size < float("inf") or not b[:, 1].isfinite().any()
