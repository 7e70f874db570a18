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
        radius: points farther apart than this (Euclidean, the shorter way round) do not see each other. None: all do.
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
        circular, length = self._circles(d)
        return d - torch.where(circular, length * torch.floor(d / length + 0.5), 0.0)

    def _circles(self, like: Tensor) -> tuple[Bool[Tensor, " dx"], Float[Tensor, " dx"]]:
        """Which dimensions are circles, and their lengths (one for the others)."""
        lengths = [1.0 if p is None else p for p in self.period or ()]
        return torch.tensor([p is not None for p in self.period or ()], device=like.device), like.new_tensor(lengths)

    def features(self, d: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any f"]:
        """What a network sees of a displacement: itself, and along a circle a point on that circle, so that nothing
        jumps half a period away, where the shorter way changes sides."""
        if self.period is None:
            return d
        circular, length = self._circles(d)
        scale = length[circular] / (2 * math.pi)
        return torch.cat([self.chord(d), scale * torch.cos(d[..., circular] / scale)], -1)

    @property
    def extra_features(self) -> int:
        """How many more features there are than dimensions."""
        return 0 if self.period is None else sum(p is not None for p in self.period)

    def chord(self, d: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any dx"]:
        """Displacements along which a point can move: `d`, and `P / 2 pi sin(2 pi d / P)` along a circle."""
        if self.period is None:
            return d
        circular, length = self._circles(d)
        scale = length / (2 * math.pi)
        return torch.where(circular, scale * torch.sin(d / scale), d)

    def average(self, psi: Float[Tensor, "b #m n"], x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b #m dx"]:
        """`sum_n psi_mn x_n` for weights that sum to one; along a circle the direction of `sum_n psi_mn exp(i x_n)`.

        The latter has no direction where the points balance, as an even ring with equal weights does: no average on a
        circle can then move with the data.
        """
        mean = psi @ x
        if self.period is None:
            return mean
        circular, length = self._circles(x)
        scale = length / (2 * math.pi)
        sin, cos = psi @ torch.sin(x / scale), psi @ torch.cos(x / scale)
        lost = sin.square() + cos.square() < 1e-24  # where atan2 would have no gradient
        return torch.where(circular, scale * torch.atan2(sin.masked_fill(lost, 0.0), cos.masked_fill(lost, 1.0)), mean)

    def displacement(self, xq: Float[Tensor, "b nq dx"], xk: Float[Tensor, "b nk dx"]) -> Float[Tensor, "b nq nk dx"]:
        """`x_q - x_k` for every pair."""
        return self.wrap(xq[:, :, None] - xk[:, None, :])

    @staticmethod
    def centre(x: Float[Tensor, "b n dx"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b 1 dx"]:
        """Mean of the points that are there (zero if there are none), in the dtype of `x`: what large coordinates are
        taken relative to. Detached, because nothing else may depend on it."""
        x = x.detach()
        weight = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        weight = weight / weight.sum(1, keepdim=True).clamp(min=1)
        return weight[:, None] @ x

    @property
    def reach(self) -> float:
        """The radius, and a millionth more: points of a lattice may lie at exactly the radius, and rounding must not
        decide whether they see each other. Infinite without a radius."""
        return math.inf if self.radius is None else self.radius * (1 + 1e-6)

    def within_reach(self, d: Float[Tensor, "b nq nk dx"]) -> Bool[Tensor, "b nq nk"]:
        """Which pairs are no farther apart than the radius."""
        return torch.linalg.vector_norm(d, dim=-1) <= self.reach
