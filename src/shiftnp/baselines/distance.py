"""Inverse distance weighting and the nearest neighbour, with the spread of their own leave-one-out errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

LEFT_OUT = 1000
"""Number of observations that are left out, at most, to find the spread."""
DISTANCES = 1 << 22
"""Distances that are in memory at once."""


@dataclass(frozen=True)
class InverseDistance:
    """Interpolation `sum_i w_i y_i / sum_i w_i` with `w_i = |x - x_i|^-power`, called like a model.

    The predictive distribution is a Gaussian. Its standard deviation is the root mean square of the leave-one-out
    errors, the same everywhere.

    Args:
        power: exponent of the distance.
        neighbours: number of nearest observations that are used; 1: the nearest neighbour.
    """

    power: float = 2.0
    neighbours: int = 16

    def __call__(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc dy"],
        xt: Float[Tensor, "b nt dx"],
        mask: Bool[Tensor, "b nc"] | None = None,
    ) -> Distribution:
        """A distribution of batch shape `[b, nt]` and event shape `[dy]`, in float64; standard normal without data."""
        observed = ~yc.isnan() if mask is None else ~yc.isnan() & mask[..., None]
        mean = torch.zeros(*xt.shape[:2], yc.shape[-1], dtype=torch.float64)
        std = torch.ones_like(mean)
        for b in range(len(xc)):
            for j in range(yc.shape[-1]):
                there = observed[b, :, j]
                x, y = xc[b, there].double(), yc[b, there, j].double()
                if not len(y):
                    continue
                mean[b, :, j] = self.interpolate(x, y, xt[b].double())
                std[b, :, j] = self.spread(x, y)
        return Independent(Normal(mean, std), 1)

    def spread(self, x: Float[Tensor, "n dx"], y: Float[Tensor, " n"]) -> Tensor:
        """Root mean square of the leave-one-out errors; of a single observation its size, or 1."""
        if len(y) == 1:
            return y[0].abs() if y[0] != 0 else y.new_ones(())
        some = torch.arange(0, len(y), -(-len(y) // LEFT_OUT))
        errors = y[some] - self.interpolate(x, y, x[some], without=some)
        return errors.square().mean().sqrt().clamp(min=1e-9 * float(y.abs().max()) or 1e-9)

    def interpolate(
        self, x: Float[Tensor, "n dx"], y: Float[Tensor, " n"], xt: Float[Tensor, "m dx"], without: Tensor | None = None
    ) -> Float[Tensor, " m"]:
        """Interpolated values at the targets; `without`: an observation for each target that is left out."""
        parts = []
        size = max(1, DISTANCES // len(x))
        for i in range(0, len(xt), size):
            d = torch.cdist(xt[i : i + size], x, compute_mode="donot_use_mm_for_euclid_dist")
            if without is not None:
                d.scatter_(1, without[i : i + size, None], torch.inf)
            near, at = d.topk(min(self.neighbours, len(x)), largest=False)
            w = (near.clamp(min=1e-9) / near[:, :1].clamp(min=1e-9)) ** -self.power  # relative, so nothing overflows
            parts.append((w * y[at]).sum(1) / w.sum(1))
        return torch.cat(parts) if parts else xt.new_zeros(0)
