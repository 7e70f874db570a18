"""A polynomial trend of the outputs of a context, which is removed before a prediction and added to it.

The pretrained models predict functions that vary around a level. A trend hides what varies around it, such as a season.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SHRINKAGE = 2.0
"""Pseudo-observations by which coefficients are shrunk to zero."""
DOUBT = 0.5
"""Standard deviation of a trend beyond the data: this fraction of the spread around it, for each standard deviation of
the inputs beyond their range."""


class Trend(NamedTuple):
    """Trends of `b` contexts, without a level. Beyond the range of the inputs they are straight lines.

    Args:
        centre, unit: mean and standard deviation of the inputs.
        low, high: range of the standardised inputs.
        coefficients: of the terms: the inputs, then their products in pairs.
        spread: standard deviation of the outputs around the trend; 0 if there is none.
    """

    centre: Float[Tensor, "b 1 dx"]
    unit: Float[Tensor, "b 1 dx"]
    low: Float[Tensor, "b 1 dx"]
    high: Float[Tensor, "b 1 dx"]
    coefficients: Float[Tensor, "b p 1"]
    spread: Float[Tensor, " b"]

    def at(self, x: Float[Tensor, "b n dx"]) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
        """The trend at inputs, and its standard deviation, which is zero in the range of the data."""
        z = (x - self.centre) / self.unit
        inside = z.clamp(self.low, self.high)
        beyond = (z - inside).norm(dim=-1)
        return (terms(z, inside) @ self.coefficients)[..., 0], DOUBT * self.spread[:, None] * beyond


def terms(z: Float[Tensor, "b n dx"], inside: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n p"]:
    """The inputs, then their products in pairs, linear around the nearest inputs in the range of the data."""
    i, j = torch.triu_indices(z.shape[-1], z.shape[-1])
    products = inside[..., i] * z[..., j] + inside[..., j] * z[..., i] - inside[..., i] * inside[..., j]
    return torch.cat([z, products], -1)


def fit_trend(x: Float[Tensor, "b n dx"], y: Float[Tensor, "b n"], degree: Int[Tensor, " b"]) -> Trend:
    """Trends by least squares with shrunk coefficients.

    Args:
        y: outputs; NaN where there is none.
        degree: 0 (no trend), 1 (linear) or 2 (quadratic), of each context.
    """
    there = ~y.isnan()
    n = there.sum(1).clamp(min=1)[:, None, None]
    centre = masked(x, there).sum(1, keepdim=True) / n
    unit = (masked(x - centre, there).square().sum(1, keepdim=True) / n).sqrt()
    unit = unit.where(unit > 0, 1.0)
    z = masked((x - centre) / unit, there)
    basis = terms(z, z)
    basis = masked(basis - basis.sum(1, keepdim=True) / n, there)
    order = torch.tensor([1] * x.shape[-1] + [2] * (basis.shape[-1] - x.shape[-1]))
    basis = basis * (order <= degree[:, None])[:, None]
    residual = y - y.nanmean(1, keepdim=True)
    gram = basis.mT @ basis + SHRINKAGE * torch.eye(basis.shape[-1], dtype=basis.dtype)
    coefficients = torch.linalg.solve(gram, basis.mT @ residual.nan_to_num()[..., None])
    rest = residual.nan_to_num() - (basis @ coefficients)[..., 0]
    spread = (rest.square().sum(1) / n[:, 0, 0]).sqrt().where(degree > 0, 0.0)
    return Trend(centre, unit, z.amin(1, keepdim=True), z.amax(1, keepdim=True), coefficients, spread)


def masked(a: Float[Tensor, "b n p"], there: Bool[Tensor, "b n"]) -> Float[Tensor, "b n p"]:
    """Zero where there is no output."""
    return a.where(there[..., None], 0.0)


def explained(x: Float[Tensor, "n dx"], y: Float[Tensor, " n"]) -> float:
    """The fraction of the variance that a quadratic trend explains, adjusted for its number of coefficients."""
    values = y[~y.isnan()]
    trend = fit_trend(x[None], y[None], torch.tensor([2]))
    left = len(values) - 1 - trend.coefficients.shape[1]
    variance = float(values.var(correction=0)) if len(values) else 0.0
    if left < 1 or not variance:
        return 0.0
    return 1 - float(trend.spread[0]) ** 2 / variance * (len(values) - 1) / left
