"""How points lie relative to each other: the only file that knows the geometry of the input space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Geometry:
    """Flat space, some of whose dimensions may be circles, with an optional horizon.

    Args:
        period: one entry per dimension, the length after which it repeats (360 for a longitude in degrees) or None.
        radius: points farther apart than this (Euclidean, the shorter way round) do not see each other. None: all do.
    """

    period: tuple[float | None, ...] | None = None
    radius: float | None = None

    @staticmethod
    def of(dims: int, period: float | Sequence[float | None] | None, radius: float | None) -> Geometry:
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

    def average(self, psi: Float[Tensor, " b #m n"], x: Float[Tensor, "b n dx"]) -> Float[Tensor, " b #m dx"]:
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

    def between(
        self,
        xq: Float[Tensor, "b nq dx"],
        xk: Float[Tensor, "b nk dx"],
        moved_q: Float[Tensor, "b nq dx"] | None,
        moved_k: Float[Tensor, "b nk dx"] | None,
        dtype: torch.dtype,
    ) -> Float[Tensor, "b nq nk dx"]:
        """`x_q - x_k` of points that have moved from where they were, in `dtype`.

        Taken in the dtype of the inputs, the difference of places is small enough for that of the weights.
        """
        d = self.displacement(xq, xk).to(dtype)
        if moved_q is not None:
            d = d + moved_q[:, :, None]
        if moved_k is not None:
            d = d - moved_k[:, None, :]
        return d if moved_q is None and moved_k is None else self.wrap(d)

    def pull_back(
        self,
        d: Float[Tensor, "*any dx"],
        dfeatures: Float[Tensor, "*any f"],
        dchord: Float[Tensor, "*any dx"] | None = None,
    ) -> Float[Tensor, "*any dx"]:
        """The gradient of displacements from those of `features(d)` and `chord(d)`."""
        dims = d.shape[-1]
        straight = dfeatures[..., :dims] if dchord is None else dfeatures[..., :dims] + dchord
        if self.period is None:
            return straight
        circular, length = self._circles(d)
        scale = length / (2 * math.pi)
        out = torch.where(circular, torch.cos(d / scale) * straight, straight)
        out[..., circular] -= torch.sin(d[..., circular] / scale[circular]) * dfeatures[..., dims:]
        return out

    def factors(
        self, xq: Float[Tensor, "b nq dx"], xk: Float[Tensor, "b nk dx"]
    ) -> tuple[Float[Tensor, "b nq f"], Float[Tensor, "b nk f"]]:
        """Vectors whose product is minus the squared distance, up to what depends on the query alone; along a circle,
        the squared length of the straight line between two of its points."""
        ones = xq.new_ones(*xq.shape[:2], 1)
        if self.period is None:
            return torch.cat([2 * xq, -ones], -1), torch.cat([xk, xk.square().sum(-1, keepdim=True)], -1)
        circular, length = self._circles(xq)
        scale = length[circular] / (2 * math.pi)
        on_q, on_k = ([scale * f(x[..., circular] / scale) for f in (torch.sin, torch.cos)] for x in (xq, xk))
        flat_q, flat_k = xq[..., ~circular], xk[..., ~circular]
        return (
            torch.cat([2 * flat_q, -ones, *(2 * x for x in on_q)], -1),
            torch.cat([flat_k, flat_k.square().sum(-1, keepdim=True), *on_k], -1),
        )

    def squared_line(self, d: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any"]:
        """What `factors` is the product of, from displacements: the squared length of the straight line."""
        if self.period is not None:
            circular, length = self._circles(d)
            d = torch.where(circular, length / math.pi * torch.sin(d * (math.pi / length)), d)
        return d.square().sum(-1)

    def embed(self, x: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any f"]:
        """Places as something that can be averaged: themselves, and along circles sine and cosine."""
        if self.period is None:
            return x
        circular, length = self._circles(x)
        scale = length[circular] / (2 * math.pi)
        on = x[..., circular] / scale
        return torch.cat([x[..., ~circular], torch.sin(on), torch.cos(on)], -1)

    def towards(self, x: Float[Tensor, "*any dx"], mean: Float[Tensor, "*more f"]) -> Float[Tensor, "*more dx"]:
        """The mean displacement from `x` to points, from the mean of their `embed`; along circles that of `chord`."""
        if self.period is None:
            return mean - x
        circular, length = self._circles(x)
        scale, n = length[circular] / (2 * math.pi), int(circular.sum())
        on = x[..., circular] / scale
        flat, sin, cos = mean.split([mean.shape[-1] - 2 * n, n, n], -1)
        out = torch.empty(*flat.shape[:-1], x.shape[-1], dtype=x.dtype, device=x.device)
        out[..., ~circular] = flat - x[..., ~circular]
        out[..., circular] = scale * (sin * torch.cos(on) - cos * torch.sin(on))
        return out

    def split_dimensions(self, dims: int) -> tuple[list[int], list[int]]:
        """Which of the dimensions are flat, and which are circles."""
        circles = [i for i, p in enumerate(self.period or ()) if p is not None]
        return [i for i in range(dims) if i not in circles], circles

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
