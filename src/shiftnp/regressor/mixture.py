"""Predictive distributions as mixtures of Gaussians, one for each target: moments, density, quantiles, samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.metrics import mean_distance

ONE_SIGMA = (0.15865525393145707, 0.8413447460685429)
"""Probabilities of a value at most one standard deviation below and above the mean of a Gaussian."""
CLOSE = 1e-12
"""Error of the probability of a quantile."""


class Mixture(NamedTuple):
    """A mixture of `c` Gaussians for each target, in float64; weights sum to one over the last dimension.

    A component of weight zero is padding and has no influence, whatever its mean and standard deviation.
    """

    weight: Float[Tensor, "*any c"]
    means: Float[Tensor, "*any c"]
    stds: Float[Tensor, "*any c"]

    @property
    def mean(self) -> Float[Tensor, "*any"]:
        """Mean of the mixture."""
        return (self.weight * self.means).sum(-1)

    @property
    def std(self) -> Float[Tensor, "*any"]:
        """Standard deviation of the mixture: of the components and between their means."""
        around = self.means - self.mean[..., None]  # not E[y^2] - E[y]^2, which rounds small variances away
        return (self.weight * (self.stds.square() + around.square())).sum(-1).sqrt()

    def spread(self, factor: Float[Tensor, "*#any"]) -> Mixture:
        """The mixture stretched about its mean by a factor: the mean stays, the standard deviation is multiplied."""
        mean, factor = self.mean[..., None], factor[..., None]
        return Mixture(self.weight, mean + factor * (self.means - mean), factor * self.stds)

    def join(self, other: Mixture, share: Float[Tensor, "*#any"]) -> Mixture:
        """The mixture of this and another one, which gets the given share of the weight."""
        share = share[..., None]
        weight = torch.cat([self.weight * (1 - share), other.weight * share], -1)
        return Mixture(weight, torch.cat([self.means, other.means], -1), torch.cat([self.stds, other.stds], -1))

    def log_prob(self, y: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Log density at `y`."""
        z = (y[..., None] - self.means) / self.stds
        return torch.logsumexp(self.weight.log() - 0.5 * z.square() - self.stds.log() - 0.5 * math.log(2 * math.pi), -1)

    def cdf(self, y: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Probability of a value of at most `y`."""
        return (self.weight * torch.special.ndtr((y[..., None] - self.means) / self.stds)).sum(-1)

    def quantile(self, q: float) -> Float[Tensor, "*any"]:
        """The value whose `cdf` is `q`, by Chandrupatla's method (1997): interpolation where safe, else halves."""
        z = torch.special.ndtri(torch.tensor(q, dtype=torch.float64))
        there = self.weight > 0  # between the smallest and the largest quantile of a component
        each = self.means + z * self.stds
        b, a = each.where(there, math.inf).amin(-1), each.where(there, -math.inf).amax(-1)
        fb, fa = self.cdf(b) - q, self.cdf(a) - q
        middle = 0.5 * torch.ones_like(a)
        t = middle
        best = a.where(fa.abs() < fb.abs(), b)
        for _ in range(100):  # the root is between a, the last point, and b
            at = a + t * (b - a)
            f = self.cdf(at) - q
            same = f.sign() == fa.sign()
            c, fc = a.where(same, b), fa.where(same, fb)
            b, fb = b.where(same, a), fb.where(same, fa)
            a, fa = at, f
            best = a.where(fa.abs() < fb.abs(), b)
            if bool(((torch.minimum(fa.abs(), fb.abs()) <= CLOSE) | (at == b) | (at == c)).all()):
                break
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            inverse = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            safe = (phi.square() < xi) & ((1 - phi).square() < 1 - xi) & inverse.isfinite()
            t = inverse.where(safe, middle).clamp(1e-9, 1 - 1e-9)
        return best

    @property
    def half_width(self) -> Float[Tensor, "*any"]:
        """Half of the width of the central 68.3 % interval: the standard deviation of a Gaussian. That of a mixture may
        be due to a component that is far wider than all others and has a weight of a thousandth."""
        return 0.5 * (self.quantile(ONE_SIGMA[1]) - self.quantile(ONE_SIGMA[0]))

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, " n *any"]:
        """`n` draws of every target, independent of all other targets."""
        shape = self.weight.shape[:-1]
        flat = Mixture(*(t.reshape(-1, t.shape[-1]) for t in self))
        if not len(flat.weight):
            return torch.empty(n, *shape, dtype=torch.float64)
        pick = torch.multinomial(flat.weight, n, replacement=True, generator=generator)
        noise = torch.randn(pick.shape, generator=generator, dtype=torch.float64)
        drawn = flat.means.gather(-1, pick) + flat.stds.gather(-1, pick) * noise
        return drawn.T.reshape(n, *shape)

    def crps(self, y: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Continuous ranked probability score at `y`, in the units of `y`."""
        score = (self.weight * mean_distance(y[..., None] - self.means, self.stds)).sum(-1)
        for i in range(self.means.shape[-1]):
            spread = (self.stds[..., i, None].square() + self.stds.square()).sqrt()
            pairs = (
                self.weight[..., i, None] * self.weight * mean_distance(self.means[..., i, None] - self.means, spread)
            )
            score = score - 0.5 * pairs.sum(-1)
        return score


def combine(parts: Mixture, weight: Float[Tensor, "*any s"]) -> Mixture:
    """One mixture of `s` mixtures `[*any, s, c]` with the given weights."""
    joint = parts.weight * weight[..., None]
    return Mixture(joint.flatten(-2), parts.means.flatten(-2), parts.stds.flatten(-2))


def check_levels(levels: Sequence[float] | float) -> tuple[float, ...]:
    """Levels of quantiles; raises a ValueError for those that are not between 0 and 1."""
    found = tuple(map(float, np.atleast_1d(np.asarray(levels, dtype=np.float64))))
    if not all(0 < level < 1 for level in found):
        raise ValueError(f"Quantiles must be between 0 and 1, for instance 0.05, got {levels!r}.")
    return found
