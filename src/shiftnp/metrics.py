"""Metrics of predictions: log-likelihood, squared error, CRPS, coverage and calibration.

Each takes a prediction of batch shape `[b, nt]` and event shape `[dy]` and the targets `yt` `[b, nt, dy]`; with a
`mask` `[b, nt]`, masked targets are ignored, whatever their values. A metric is one number for each task: the mean over
its targets and over channels (the log-likelihood is the joint one of all channels of a target).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.likelihoods import Components, components_of

COVERAGE = {"50": 0.5, "90": 0.9, "95": 0.95}
"""Nominal probabilities of the central intervals whose coverage is reported, by their names in per cent."""
LEVELS = tuple(i / 20 for i in range(1, 20))
"""Probabilities at which calibration is measured: 5 %, 10 %, ..., 95 %."""


def log_likelihood(dist: Distribution, yt: Tensor, mask: Bool[Tensor, "b nt"] | None = None) -> Float[Tensor, " b"]:
    """Log-likelihood per target of each task, over the unmasked targets `yt` `[b, nt, dy]`."""
    yt = targets(dist, yt, mask)  # zeros instead of padding, as NaN in padding would spread to gradients
    return mean_over_targets(dist.log_prob(yt), mask)


def squared_error(dist: Distribution, yt: Tensor, mask: Bool[Tensor, "b nt"] | None = None) -> Float[Tensor, " b"]:
    """Squared error of the predicted mean; the root of its mean over tasks is the RMSE."""
    error = dist.mean.double() - targets(dist, yt, mask).double()
    return mean_over_targets(error.square().mean(-1), mask)


def crps(dist: Distribution, yt: Tensor, mask: Bool[Tensor, "b nt"] | None = None) -> Float[Tensor, " b"]:
    """Continuous ranked probability score of each channel's marginal `F`, in the units of `y`; smaller is better.

    `integral (F(z) - 1[z >= y])^2 dz = E|Y - y| - 1/2 E|Y - Y'|`, with `Y, Y' ~ F` independent: for mixtures of
    Gaussians a sum over pairs of components (Grimit et al., 2006).
    """
    w, mean, std = marginals(dist)
    y = targets(dist, yt, mask).double()[..., None, :]
    score = (w[..., None] * mean_distance(y - mean, std)).sum(-2)
    for i in range(mean.shape[-2]):  # one row of pairs at a time, as exact posteriors have a thousand components
        rest = slice(i, None)
        pairs = w[..., i, None] * w[..., rest]
        pairs[..., 1:] *= 2  # (i, j) and (j, i)
        spread = (std[..., i, None, :].square() + std[..., rest, :].square()).sqrt()
        distance = mean_distance(mean[..., i, None, :] - mean[..., rest, :], spread)
        score = score - 0.5 * (pairs[..., None] * distance).sum(-2)
    return mean_over_targets(score.mean(-1), mask)


def pit(dist: Distribution, yt: Tensor, mask: Bool[Tensor, "b nt"] | None = None) -> Float[Tensor, "b nt dy"]:
    """Probability integral transform: the marginal CDF of each channel at the target.

    Uniform on [0, 1] if predictions are calibrated. NaN at masked targets.
    """
    w, mean, std = marginals(dist)
    y = targets(dist, yt, mask).double()[..., None, :]
    below = (w[..., None] * torch.special.ndtr((y - mean) / std)).sum(-2)
    return below if mask is None else below.masked_fill(~mask[..., None], math.nan)


def coverage(
    dist: Distribution, yt: Tensor, level: float, mask: Bool[Tensor, "b nt"] | None = None
) -> Float[Tensor, " b"]:
    """Fraction of targets inside the central interval of probability `level`."""
    if not 0 < level < 1:
        raise ValueError(f"level must be a probability between 0 and 1, for instance 0.9, got {level}.")
    u = pit(dist, yt, mask)
    return mean_over_targets(indicator((u - 0.5).abs() <= level / 2, u).mean(-1), mask)


def pit_below(dist: Distribution, yt: Tensor, mask: Bool[Tensor, "b nt"] | None = None) -> Float[Tensor, "b levels"]:
    """Fraction of targets whose `pit` is at most `p`, for each `p` of `LEVELS`; `p` itself if calibrated."""
    u = pit(dist, yt, mask)
    return torch.stack([mean_over_targets(indicator(u <= p, u).mean(-1), mask) for p in LEVELS], -1)


def calibration_error(below: Float[Tensor, "n levels"]) -> float:
    """Mean over `LEVELS` of `|fraction - p|`, from `pit_below` of `n` tasks of equal weight.

    Zero for calibrated predictions in the limit of many targets, 1/2 at most.
    """
    return (below.double().mean(0).cpu() - torch.tensor(LEVELS, dtype=torch.float64)).abs().mean().item()


# --- shared parts ----------------------------------------------------------------------------------------------------


def marginals(dist: Distribution) -> Components:
    """Each channel of each target as a mixture of Gaussians, in float64, with weights that sum to one."""
    weight, mean, std = (part.double() for part in components_of(dist))
    # A standard deviation of zero would divide by zero; a tiny one gives the same step function.
    return Components(weight / weight.sum(-1, keepdim=True), mean, std.clamp(min=1e-150))


def mean_distance(m: Float[Tensor, "*any"], s: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """`E|X|` of `X ~ N(m, s^2)`: `2 s pdf(m/s) + m (2 cdf(m/s) - 1)`."""
    z = m / s
    return s * math.sqrt(2 / math.pi) * (-0.5 * z.square()).exp() + m * torch.erf(z / math.sqrt(2))


def targets(dist: Distribution, yt: Tensor, mask: Tensor | None) -> Tensor:
    """The targets after checks, with zeros where they are masked."""
    if yt.shape != dist.batch_shape + dist.event_shape:
        expected = tuple(dist.batch_shape + dist.event_shape)
        raise ValueError(f"yt must have shape [b, nt, dy] = {expected}, got {tuple(yt.shape)}.")
    yt = yt if mask is None else yt.where(mask[..., None], 0.0)
    if not yt.isfinite().all():
        raise ValueError("yt holds NaN or inf at targets that are there: drop those targets or mask them out.")
    return yt


def mean_over_targets(value: Float[Tensor, "b nt"], mask: Bool[Tensor, "b nt"] | None) -> Float[Tensor, " b"]:
    """Mean of each task over the unmasked targets; 0 if there are none."""
    if mask is None:
        return value.mean(-1)
    return value.where(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)


def indicator(event: Bool[Tensor, "*any"], of: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """1 where an event is true, 0 where it is false, and NaN where `of` is NaN, so that NaN propagates to means."""
    return event.to(of.dtype).masked_fill(of.isnan(), math.nan)
