"""How well a wave explains a data set: wrap the data around its period, and predict every observation from the others.

The prediction is the mean of the others, weighted by `cos^2m(w . d / 2)`, which is one where a whole number of waves
lies between two points and nearly zero elsewhere. Only displacements count, so that data may lie anywhere. A long wave
is a smooth window instead: then the others are the neighbours.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

SHARPNESS = 16
"""`m`: at 16 the weights are those of a window whose standard deviation is an eighteenth of the period."""
PRIOR = 0.03
"""Weight of one more value, zero, without which few observations would be predicted from next to nothing."""
DAMPING = 0.02
"""Of steps, lest a few noisy observations make them wild."""


def errors(
    angle: Float[Tensor, "b n r"], y: Float[Tensor, "b n dy"], observed: Float[Tensor, "b n dy"]
) -> Float[Tensor, "b r"]:
    """Mean squared error for each of many waves, at a cost linear in points: the weights are sums of `m` harmonics.

    Args:
        angle: `w . x` of every wave.
        y: zero where nothing was observed.
    """
    own = torch.stack([y.mT, observed.mT], 1)[..., None]  # [b, 2, dy, n, 1]
    harmonic = phase = torch.complex(angle.cos(), angle.sin())[:, None, None]
    sums = _share(0) * own.sum(-2, keepdim=True) - own  # without itself
    for h in range(1, SHARPNESS + 1):
        total = own.to(phase.dtype).mT @ harmonic
        sums = sums + 2 * _share(h) * (harmonic * total.conj()).real
        harmonic = harmonic * phase
    value, weight = sums.unbind(1)
    left = observed.mT[..., None] * (y.mT[..., None] - value / (weight.clamp(min=0) + PRIOR))
    return left.square().sum((1, 2)) / observed.sum((1, 2)).clamp(min=1)[:, None]


def _share(harmonic: int) -> float:
    """Coefficient of `exp(i h a)` in `cos^2m(a / 2)`."""
    return math.comb(2 * SHARPNESS, SHARPNESS + harmonic) / 4**SHARPNESS


@torch.no_grad()
def tune(
    vector: Float[Tensor, "b dx"],
    x: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n dy"],
    observed: Float[Tensor, "b n dy"],
    reach: Float[Tensor, ""],
    free: list[int],
) -> Float[Tensor, "b dx"]:
    """A wave vector that should explain the data better: one step of Gauss and Newton, pair by pair.

    Args:
        reach: no component changes by more than this.
        free: components that may change at all.
    """
    d = x[:, :, None] - x[:, None]
    half = (vector[:, None, None] * d).sum(-1) / 2
    cos = half.cos()
    weight = cos ** (2 * SHARPNESS)
    weight.diagonal(dim1=1, dim2=2).zero_()
    slope = -SHARPNESS * (cos ** (2 * SHARPNESS - 1) * half.sin())[..., None] * d[..., free]
    total = weight @ observed + PRIOR
    mean = weight @ y / total
    change = torch.einsum("bijx,bjy->biyx", slope, y)
    change = change - mean[..., None] * torch.einsum("bijx,bjy->biyx", slope, observed)
    change = (observed / total)[..., None] * change
    normal = torch.einsum("biyx,biyz->bxz", change, change)
    damping = DAMPING * (1 + observed.sum((1, 2))) / reach.square()  # in units of `x`, as what it is added to
    normal.diagonal(dim1=1, dim2=2).add_(damping[:, None])
    step = torch.linalg.solve(normal, torch.einsum("biyx,biy->bx", change, y - mean))
    tuned = vector.clone()
    tuned[:, free] += step.clamp(-reach, reach)
    return tuned
