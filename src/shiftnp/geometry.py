"""The geometry of the input space: displacements between points, periodic dimensions and a finite radius."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Positions(NamedTuple):
    """Positions of tokens: `x + offset`.

    The two are stored separately because coordinates may be large and displacements small: `x` has the dtype of the
    inputs, and `offset`, the sum of all location updates (eqs. 8 and 9; None: zero), that of the weights.
    """

    x: Float[Tensor, "b n dx"]
    offset: Float[Tensor, "b n dx"] | None = None


@dataclass(frozen=True)
class Geometry:
    """Euclidean space, some of whose dimensions may be periodic, with an optional attention radius.

    Args:
        period: period of each dimension (360 for a longitude in degrees), or None for one that is not periodic.
        radius: points farther apart than this (Euclidean distance, wrapped along periodic dimensions) do not attend to
            each other. None: all do.
    """

    period: tuple[float | None, ...] | None = None
    radius: float | None = None

    @staticmethod
    def of(dims: int, period: float | Sequence[float | None] | None, radius: float | None) -> Geometry:
        """A geometry of `dims` dimensions from checked arguments; one number as `period` holds for all of them."""
        if isinstance(period, (int, float)):
            period = (period,) * dims
        if period is not None:
            if len(period) != dims:
                raise ValueError(f"period needs one entry per equivariant input ({dims}), got {len(period)}.")
            if any(p is not None and not (p > 0 and math.isfinite(p)) for p in period):
                raise ValueError(f"period must hold positive numbers or None, got {tuple(period)}.")
            if all(p is None for p in period):
                period = None
        if radius is not None and not radius > 0:
            raise ValueError(f"radius must be positive or None, got {radius}.")
        return Geometry(None if period is None else tuple(period), radius)

    # --- which dimensions are periodic -----------------------------------------------------------------------------

    @property
    def circular(self) -> list[int]:
        """Indices of the periodic dimensions."""
        return [i for i, p in enumerate(self.period or ()) if p is not None]

    def flat(self, dims: int) -> list[int]:
        """Indices of the dimensions that are not periodic, out of `dims`."""
        return [i for i in range(dims) if i not in self.circular]

    def period_of(self, dim: int) -> float | None:
        """Period of a dimension; None if it is not periodic."""
        return None if self.period is None else self.period[dim]

    def _radii(self, like: Tensor) -> Float[Tensor, " c"]:
        """`P / 2 pi` of each periodic dimension: the radius of its circle."""
        return like.new_tensor([float(p) / (2 * math.pi) for p in self.period or () if p is not None])

    def _replace(self, x: Float[Tensor, "*any dx"], circular: Float[Tensor, "*any c"]) -> Float[Tensor, "*any dx"]:
        """`x` with other values along its periodic dimensions."""
        columns = list(x.unbind(-1))
        for i, column in zip(self.circular, circular.unbind(-1), strict=True):
            columns[i] = column
        return torch.stack(columns, -1)

    # --- displacements ---------------------------------------------------------------------------------------------

    def wrap(self, d: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any dx"]:
        """Displacements wrapped to `[-P / 2, P / 2)` along dimensions of period `P`."""
        if self.period is None:
            return d
        on, length = d[..., self.circular], 2 * math.pi * self._radii(d)
        return self._replace(d, on - length * torch.floor(on / length + 0.5))

    def displacement(self, q: Positions, k: Positions, dtype: torch.dtype) -> Float[Tensor, "b nq nk dx"]:
        """`x_q - x_k` for every pair, in `dtype`.

        Differences are computed in the dtype of the inputs, and are then small enough for the dtype of the weights.
        """
        d = self.wrap(q.x[:, :, None] - k.x[:, None, :]).to(dtype)
        if q.offset is not None:
            d = d + q.offset[:, :, None]
        if k.offset is not None:
            d = d - k.offset[:, None, :]
        return d if q.offset is None and k.offset is None else self.wrap(d)

    def smooth(self, d: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any dx"]:
        """Displacements as directions of a location update: `d`, and `R sin(d / R)` along a circle of radius `R`,
        which, unlike the wrapped displacement, is continuous at half a period."""
        if self.period is None:
            return d
        radius = self._radii(d)
        return self._replace(d, radius * torch.sin(d[..., self.circular] / radius))

    def features(self, d: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any f"]:
        """Displacement features for an MLP: `smooth(d)`, and `R cos(d / R)` for each periodic dimension."""
        if self.period is None:
            return d
        radius = self._radii(d)
        return torch.cat([self.smooth(d), radius * torch.cos(d[..., self.circular] / radius)], -1)

    @property
    def extra_features(self) -> int:
        """Number of displacement features minus number of dimensions."""
        return len(self.circular)

    def vjp(
        self,
        d: Float[Tensor, "*any dx"],
        dfeatures: Float[Tensor, "*any f"],
        dsmooth: Float[Tensor, "*any dx"] | None = None,
    ) -> Float[Tensor, "*any dx"]:
        """Vector-Jacobian product: the gradient of displacements from those of `features(d)` and `smooth(d)`."""
        dims = d.shape[-1]
        straight = dfeatures[..., :dims] if dsmooth is None else dfeatures[..., :dims] + dsmooth
        if self.period is None:
            return straight
        angle = d[..., self.circular] / self._radii(d)
        along = torch.cos(angle) * straight[..., self.circular] - torch.sin(angle) * dfeatures[..., dims:]
        return self._replace(straight, along)

    # --- distances -------------------------------------------------------------------------------------------------

    def squared_chord(self, q: Positions, k: Positions, dtype: torch.dtype) -> Float[Tensor, "b nq nk"]:
        """Squared distance of every pair, in `dtype`; along a circle of radius `R`, that of the chord between two
        points, `2 R sin(d / 2 R)`.

        From displacements: products of positions would round small distances away.
        """
        total: Tensor | None = None
        for i in range(q.x.shape[-1]):  # one dimension after the other: torch is slow in tensors with few columns
            at_q, at_k = (
                Positions(at.x[..., i, None], None if at.offset is None else at.offset[..., i, None]) for at in (q, k)
            )
            period = self.period_of(i)
            d = Geometry(None if period is None else (period,)).displacement(at_q, at_k, dtype)[..., 0]
            d = d if period is None else period / math.pi * torch.sin(d * (math.pi / period))
            if d.requires_grad or torch.compiler.is_exporting():
                total = d.square() if total is None else total + d.square()
            else:  # in place
                total = d.square_() if total is None else total.addcmul_(d, d)
        assert total is not None
        return total

    @property
    def reach(self) -> float:
        """The radius times `1 + 1e-6`, so that rounding does not decide whether points exactly one radius apart, as on
        a grid, attend to each other. Infinite without a radius."""
        return math.inf if self.radius is None else self.radius * (1 + 1e-6)

    def within_reach(self, d: Float[Tensor, "b nq nk dx"]) -> Bool[Tensor, "b nq nk"]:
        """Mask of the pairs whose distance is at most the radius."""
        return torch.linalg.vector_norm(d, dim=-1) <= self.reach

    # --- means -----------------------------------------------------------------------------------------------------

    def average(self, psi: Float[Tensor, " b #m n"], x: Float[Tensor, "b n dx"]) -> Float[Tensor, " b #m dx"]:
        """`sum_n psi_mn x_n` for weights that sum to one; on a circle the circular mean, the argument of
        `sum_n psi_mn exp(i x_n / R)`.

        The circular mean is undefined if that sum is zero, as for points evenly spaced over the circle with equal
        weights: no equivariant average exists then.
        """
        mean = psi @ x
        if self.period is None:
            return mean
        radius = self._radii(x)
        on = x[..., self.circular] / radius
        sin, cos = psi @ torch.sin(on), psi @ torch.cos(on)
        undefined = sin.square() + cos.square() < 1e-24  # atan2 has no gradient there
        sin, cos = sin.masked_fill(undefined, 0.0), cos.masked_fill(undefined, 1.0)
        return self._replace(mean, radius * torch.atan2(sin, cos))

    def embed(self, x: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any f"]:
        """Features of positions that can be averaged linearly: the positions, and along circles sine and cosine."""
        if self.period is None:
            return x
        on = x[..., self.circular] / self._radii(x)
        return torch.cat([x[..., self.flat(x.shape[-1])], torch.sin(on), torch.cos(on)], -1)

    def mean_displacement(
        self, x: Float[Tensor, "*any dx"], mean: Float[Tensor, "*more f"]
    ) -> Float[Tensor, "*more dx"]:
        """Mean of `smooth(x_n - x)` over points `x_n`, from the mean of their `embed`."""
        if self.period is None:
            return mean - x
        flat, radius, n = self.flat(x.shape[-1]), self._radii(x), len(self.circular)
        on = x[..., self.circular] / radius
        straight, sin, cos = mean.split([len(flat), n, n], -1)
        columns: list[Tensor] = [x[..., 0]] * x.shape[-1]
        for i, column in zip(flat, (straight - x[..., flat]).unbind(-1), strict=True):
            columns[i] = column
        around = radius * (sin * torch.cos(on) - cos * torch.sin(on))
        for i, column in zip(self.circular, around.unbind(-1), strict=True):
            columns[i] = column
        return torch.stack(columns, -1)

    @staticmethod
    def centre(x: Float[Tensor, "b n dx"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b 1 dx"]:
        """Mean of the unmasked points (zero if there are none), in the dtype of `x`: the origin that is subtracted from
        large coordinates. Detached, because predictions do not depend on it."""
        x = x.detach()
        weight = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        weight = weight / weight.sum(1, keepdim=True).clamp(min=1)
        return (weight[..., None] * x).sum(1, keepdim=True)  # no matrix product, which autocast would round

    def relative(self, at: Positions, centre: Float[Tensor, "b 1 dx"], dtype: torch.dtype) -> Float[Tensor, "b n dx"]:
        """Positions relative to a centre, in `dtype`."""
        x = self.wrap(at.x - centre).to(dtype)
        return x if at.offset is None else x + at.offset
