"""Phase folding: how well a period explains a data set.

The data are folded modulo the period of a candidate frequency `w`, and every observation is predicted from the others
by a Nadaraya-Watson smoother over phase with weights `cos^2m(w . d / 2)`: one if two points are an integer number of
periods apart, nearly zero at other phases. The leave-one-out squared error scores the candidate, as in phase dispersion
minimisation (Stellingwerf, 1978). Only displacements `d` enter, so the score is translation invariant. If the period of
the candidate is longer than the data, this is an ordinary kernel smoother.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

SHARPNESS = 16
"""`m`: at 16 the weights are those of a Gaussian window whose standard deviation is an eighteenth of the period."""
PSEUDO_COUNT = 0.03
"""Shrinkage: weight of an additional observation of zero, for points that have hardly any neighbours in phase."""
DAMPING = 0.02
"""Damping (Levenberg-Marquardt) of Gauss-Newton steps, which are unstable with few noisy observations."""
MOST_PAIRS = 1 << 22
"""Pairs of observations in memory at once; if there are more, rows are processed in chunks."""


def fold_errors(
    angle: Float[Tensor, "b n r"], y: Float[Tensor, "b n dy"], observed: Float[Tensor, "b n dy"]
) -> Float[Tensor, "b r"]:
    """Leave-one-out mean squared error of each candidate frequency, in time linear in the number of points.

    The weights are a sum of `m` harmonics, so sums over the other points factor.

    Args:
        angle: `w . x` of every candidate.
        y: zero where nothing was observed.
    """
    own = torch.stack([y.mT, observed.mT], 1)[..., None]  # [b, 2, dy, n, 1]
    harmonic = phase = torch.complex(angle.cos(), angle.sin())[:, None, None]
    sums = _coefficient(0) * own.sum(-2, keepdim=True) - own  # without the point itself
    for h in range(1, SHARPNESS + 1):
        total = own.to(phase.dtype).mT @ harmonic
        sums = sums + 2 * _coefficient(h) * (harmonic * total.conj()).real
        harmonic = harmonic * phase
    value, weight = sums.unbind(1)
    residual = observed.mT[..., None] * (y.mT[..., None] - value / (weight.clamp(min=0) + PSEUDO_COUNT))
    return residual.square().sum((1, 2)) / observed.sum((1, 2)).clamp(min=1)[:, None]


def _coefficient(harmonic: int) -> float:
    """Fourier coefficient of `exp(i h a)` in `cos^2m(a / 2)`."""
    return math.comb(2 * SHARPNESS, SHARPNESS + harmonic) / 4**SHARPNESS


@torch.no_grad()
def gauss_newton_step(
    vector: Float[Tensor, "b dx"],
    x: Float[Tensor, "b n dx"],
    y: Float[Tensor, "b n dy"],
    observed: Float[Tensor, "b n dy"],
    reach: Float[Tensor, ""],
    free: list[int],
) -> Float[Tensor, "b dx"]:
    """A frequency vector with a smaller leave-one-out error: one damped Gauss-Newton step over all pairs.

    Args:
        reach: largest change of a component.
        free: components that may change.
    """
    b, n, _ = x.shape
    normal = x.new_zeros(b, len(free), len(free))
    right = x.new_zeros(b, len(free))
    # An exported program has no chunks, as its sizes are dynamic.
    if torch.compiler.is_exporting() or b * n * n <= MOST_PAIRS:
        chunks = [(0, slice(None))]
    else:
        rows = max(1, MOST_PAIRS // (b * n))
        chunks = [(i, slice(i, i + rows)) for i in range(0, n, rows)]
    for i, own in chunks:
        d = x[:, own, None] - x[:, None]
        half = (vector[:, None, None] * d).sum(-1) / 2
        cos = half.cos()
        weight = cos ** (2 * SHARPNESS)
        weight.diagonal(offset=i, dim1=1, dim2=2).zero_()
        slope = -SHARPNESS * (cos ** (2 * SHARPNESS - 1) * half.sin())[..., None] * d[..., free]
        total = weight @ observed + PSEUDO_COUNT
        mean = weight @ y / total
        jacobian = torch.einsum("bijx,bjy->biyx", slope, y)
        jacobian = jacobian - mean[..., None] * torch.einsum("bijx,bjy->biyx", slope, observed)
        jacobian = (observed[:, own] / total)[..., None] * jacobian
        normal = normal + torch.einsum("biyx,biyz->bxz", jacobian, jacobian)
        right = right + torch.einsum("biyx,biy->bx", jacobian, y[:, own] - mean)
    damping = DAMPING * (1 + observed.sum((1, 2))) / reach.square()  # in the units of the normal matrix
    normal = normal + torch.diag_embed(damping[:, None].expand(-1, len(free)))
    step = torch.linalg.solve(normal, right).clamp(-reach, reach)
    columns = list(vector.unbind(-1))
    for j, dim in enumerate(free):
        columns[dim] = columns[dim] + step[:, j]
    return torch.stack(columns, -1)
