"""How points lie relative to each other: the only file that knows the geometry of the input space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shiftnp.typing import Real


@dataclass(frozen=True)
class Geometry:
    """Flat space, some of whose dimensions may be circles, with an optional horizon.

    Args:
        period: one entry per dimension, the length after which it repeats (360 for a longitude in degrees) or None.
            A displacement is then the shorter way round; at exactly half a period its sign is arbitrary.
        radius: points farther apart than this (Euclidean) do not see each other. None: all do.
    """

    period: tuple[Real | None, ...] | None = None
    radius: Real | None = None

    @staticmethod
    def of(dims: int, period: Real | Sequence[Real | None] | None, radius: Real | None) -> Geometry:
        """A geometry of `dims` dimensions from what a user writes; one number as `period` holds for all of them."""
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

    def wrap(self, d: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any dx"]:
        """Displacements reduced to the shorter way round."""
        if self.period is None:
            return d
        circular = torch.tensor([p is not None for p in self.period], device=d.device)
        length = d.new_tensor([1.0 if p is None else p for p in self.period])
        return d - torch.where(circular, length * torch.floor(d / length + 0.5), 0.0)

    def displacement(self, xq: Float[Tensor, "b nq dx"], xk: Float[Tensor, "b nk dx"]) -> Float[Tensor, "b nq nk dx"]:
        """`x_q - x_k` for every pair."""
        return self.wrap(xq[:, :, None] - xk[:, None, :])

    def centre(self, x: Float[Tensor, "b n dx"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b 1 dx"]:
        """Mean of the points that are there (circular along a circle, zero if there are none), in the dtype of `x`.

        Detached: what is computed from displacements does not depend on it, so neither does any gradient.
        """
        x = x.detach()
        weight = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        weight = (weight / weight.sum(1, keepdim=True).clamp(min=1))[..., None]
        mean = (weight * x).sum(1, keepdim=True)
        if self.period is None:
            return mean
        length = x.new_tensor([math.inf if p is None else p for p in self.period])
        angle = x * (2 * math.pi / length)
        sin, cos = ((weight * f(angle)).sum(1, keepdim=True) for f in (torch.sin, torch.cos))
        around = torch.atan2(sin, cos) / (2 * math.pi) * length
        return torch.where(length.isfinite(), around, mean)

    def pairs(
        self, xq: Float[Tensor, "b nq dx"], xk: Float[Tensor, "b nk dx"], mask: Bool[Tensor, "b nk"] | None
    ) -> Bool[Tensor, "b #nq nk"] | None:
        """Which query sees which key: those that are there and not beyond the radius. None: all see all."""
        there = None if mask is None else mask[:, None, :]
        if self.radius is None:
            return there
        near = torch.linalg.vector_norm(self.displacement(xq, xk), dim=-1) <= self.radius
        return near if there is None else near & there
