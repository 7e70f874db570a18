"""Bayesian regression on the harmonics of a frequency: how well a period explains a data set.

For a frequency `w` an output is modelled as `a_0 + sum_h a_h cos(h w . x) + b_h sin(h w . x)` plus noise, with Gaussian
priors on the coefficients. The marginal likelihood is the evidence for the frequency. Its least-squares form with one
harmonic is the Lomb-Scargle periodogram, with several the multiharmonic periodogram (Schwarzenberg-Czerny, 1996);
Bretthorst (1988) treats it as Bayesian spectrum analysis. `a_h` and `b_h` have the same prior, so the model is a
stationary Gaussian process with covariance `sum_h v_h cos(h w . d)`, and evidence and predictions are translation
invariant.

All that is needed of the data are sums of `cos(m w . x)` and `sin(m w . x)`, with and without the outputs, so the cost
is linear in the number of points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.attention.buffers import buffer


class Posterior(NamedTuple):
    """Posterior of the regression with each candidate frequency and each prior.

    Attributes:
        evidence: log marginal likelihood, summed over outputs, without its constant `-n log(2 pi) / 2`.
        first, second: `E[f(x)]` and `E[f(x)^2]` as trigonometric polynomials: coefficients of constant, cosines, sines.
    """

    evidence: Float[Tensor, "b s r"]
    first: Float[Tensor, "b dy s r m"]
    second: Float[Tensor, "b dy s r m"]


def waves(angle: Float[Tensor, "*any r"], top: int) -> Float[Tensor, "m *any c"]:
    """`cos(m a)` and `sin(m a)`, next to each other, for `m` from 1 to `top`: the powers of `exp(i a)`.

    Valid until the next call: without gradients they are in memory that is reused.
    """
    if torch.compiler.is_exporting():
        cos, sin = zip(*waves_real(angle, top), strict=True)
        return torch.stack([torch.stack(cos), torch.stack(sin)], -1).flatten(-2)
    base = torch.complex(angle.cos(), angle.sin())
    # Few products, so that rounding stays small.
    if angle.requires_grad:
        powers = [base]
        for m in range(2, top + 1):
            powers.append(powers[m // 2 - 1] * powers[m - m // 2 - 1])
        out = torch.stack(powers)
    else:
        out = buffer("waves", (top, *angle.shape), base.dtype, base.device)
        out[0] = base
        for m in range(2, top + 1):
            torch.mul(out[m // 2 - 1], out[m - m // 2 - 1], out=out[m - 1])
    return torch.view_as_real(out).flatten(-2)


def waves_real(angle: Float[Tensor, "*any r"], top: int) -> Iterator[tuple[Tensor, Tensor]]:
    """`cos(m a)` and `sin(m a)` in real numbers, for programs that are exported: other formats have no complex ones."""
    cos, sin = angle.cos(), angle.sin()
    yield cos, sin
    twice, before = 2 * cos, (torch.ones_like(cos), torch.zeros_like(cos))
    for _ in range(2, top + 1):  # Chebyshev's recurrence: fewer operations than a rotation
        following = twice * cos - before[0], twice * sin - before[1]
        before, (cos, sin) = (cos, sin), following
        yield cos, sin


def polynomial(angle: Float[Tensor, "b n r"], coefficients: Float[Tensor, "m b k c"]) -> Float[Tensor, "b n k"]:
    """Trigonometric polynomials without their constants, summed over angles.

    Args:
        coefficients: of `waves`.
    """
    if not torch.compiler.is_exporting():
        return (waves(angle, len(coefficients)) @ coefficients.mT).sum(0)
    # One harmonic after the other: most of the time would go into putting them together.
    terms = zip(waves_real(angle, len(coefficients)), coefficients.mT, strict=True)
    return torch.stack([cos @ c[:, ::2] + sin @ c[:, 1::2] for (cos, sin), c in terms]).sum(0)


def interleave(polynomial: Float[Tensor, "*any p"]) -> tuple[Float[Tensor, "*any"], Float[Tensor, "m *any 2"]]:
    """Coefficients of the constant, cosines and sines as the constant and the coefficients of `waves`."""
    top = polynomial.shape[-1] // 2
    constant, cos, sin = polynomial.split([1, top, top], -1)
    return constant[..., 0], torch.stack([cos.movedim(-1, 0), sin.movedim(-1, 0)], -1)


def products(harmonics: int) -> Float[Tensor, "p p m"]:
    """The products of two waves up to `harmonics` as combinations of the waves up to twice that.

    Waves are in the order constant, cosines, sines.
    """
    waves_of_one, top = 2 * harmonics + 1, 2 * harmonics
    table = torch.zeros(waves_of_one, waves_of_one, 2 * top + 1)
    for i in range(waves_of_one):
        for j in range(waves_of_one):
            a, b = (k if k <= harmonics else k - harmonics for k in (i, j))
            if (i > harmonics) == (j > harmonics):  # cos a cos b, or sin a sin b
                table[i, j, abs(a - b)] += 0.5
                table[i, j, a + b] += 0.5 if i <= harmonics else -0.5
            else:  # sin s cos c
                s, c = (a, b) if i > harmonics else (b, a)
                table[i, j, top + s + c] += 0.5
                if s != c:
                    table[i, j, top + abs(s - c)] += 0.5 if s > c else -0.5
    return table


def regress(
    sums: Float[Tensor, "b dy r m"],
    moments: Float[Tensor, "b dy r p"],
    squares: Float[Tensor, "b dy"],
    count: Float[Tensor, "b dy"],
    prior: Float[Tensor, "s p"],
    noise: Float[Tensor, " s"],
    table: Float[Tensor, "p p m"],
) -> Posterior:
    """The regression for `r` candidate frequencies and `s` priors.

    Args:
        sums: sum over the observations of the waves up to twice the number of harmonics.
        moments: sum over the observations of output times wave.
        squares, count: sum of the squared outputs, and their number.
        prior: prior variance of the coefficients.
        noise: variance of the noise.
        table: see `products`.
    """
    p = len(table)
    # Matrices first: fast, and without LAPACK.
    gram = (table.flatten(0, 1) @ sums.movedim(-1, 0).flatten(1)).view(p, p, *sums.shape[:2], 1, sums.shape[2])
    ridge = (noise[:, None] / prior).T  # [p, s]
    eye = torch.eye(p, dtype=sums.dtype, device=sums.device)
    matrix = gram + (eye[..., None] * ridge)[:, :, None, None, :, None]  # [p, p, b, dy, s, r]
    exporting = torch.compiler.is_exporting()
    inverse, log_det = (invert_exported if exporting else invert if matrix.requires_grad else invert_)(matrix)
    right = moments.movedim(-1, 0)[:, :, :, None]  # [p, b, dy, 1, r]
    mean = (inverse * right).sum(1)  # [p, b, dy, s, r]
    variance, n = noise[:, None], count[..., None, None]
    misfit = (squares[..., None, None] - (mean * right).sum(0)) / variance
    log_det = log_det + prior.log().sum(-1)[:, None] + (n - p) * variance.log()
    evidence = -0.5 * (misfit + log_det).sum(1)
    square = variance * inverse + mean[:, None] * mean
    second = (
        (table.flatten(0, 1).T @ square.flatten(2).flatten(0, 1)).view(table.shape[-1], *mean.shape[1:]).movedim(0, -1)
    )
    first = mean.movedim(0, -1)
    cos, sin = first.split([(p + 1) // 2, p // 2], -1)
    rest = first.new_zeros(*first.shape[:-1], p // 2)
    return Posterior(evidence, torch.cat([cos, rest, sin, rest], -1), second)


def invert(
    matrix: Float[Tensor, "p p *any"],
) -> tuple[Float[Tensor, "p p *any"], Float[Tensor, "*any"]]:
    """Inverse and log-determinant of many small positive definite matrices, by sweeping one row after the other."""
    log_det = torch.zeros_like(matrix[0, 0])
    for k in range(len(matrix)):
        pivot = matrix[k, k].clone()
        log_det = log_det + pivot.log()
        row = matrix[k] / pivot
        matrix = matrix - matrix[:, k, None] * row
        matrix[k], matrix[:, k] = row, row
        matrix[k, k] = -1 / pivot
    return -matrix, log_det


def invert_(matrix: Float[Tensor, "p p *any"]) -> tuple[Float[Tensor, "p p *any"], Float[Tensor, "*any"]]:
    """`invert` in place and without gradients."""
    log_det, update = torch.zeros_like(matrix[0, 0]), torch.empty_like(matrix)
    for k in range(len(matrix)):
        pivot = matrix[k, k].clone()
        log_det += pivot.log()
        row = matrix[k] / pivot
        matrix -= torch.mul(matrix[:, k, None], row, out=update)
        matrix[k], matrix[:, k] = row, row
        matrix[k, k] = -1 / pivot
    return matrix.neg_(), log_det


def invert_exported(
    matrix: Float[Tensor, "p p *any"],
) -> tuple[Float[Tensor, "p p *any"], Float[Tensor, "*any"]]:
    """`invert` without assignments, which are slow in an exported program.

    The row and the column of a pivot are results of the same subtraction as all others, which loses digits if the pivot
    is large. The matrix is therefore scaled to a diagonal of ones, so that no pivot is larger than one.
    """
    diagonal = torch.stack([matrix[k, k] for k in range(len(matrix))])
    scale, log_det = diagonal.rsqrt(), diagonal.log().sum(0)
    scales = scale[:, None] * scale
    matrix = matrix * scales
    units = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for k in range(len(matrix)):
        pivot, unit = matrix[k, k], units[k].view(-1, *[1] * log_det.ndim)
        log_det = log_det + pivot.log()
        matrix = matrix - (matrix[:, k] - unit)[:, None] * ((matrix[k] - unit) / pivot) - 2 * unit[:, None] * unit
    return -matrix * scales, log_det
