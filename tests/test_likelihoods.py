from __future__ import annotations

import pytest
import torch
from torch.nn.functional import softplus

from shiftnp.likelihoods import LIKELIHOODS, draw, make_likelihood


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
