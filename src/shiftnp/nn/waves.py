"""Wave vectors that are learned, except along circles, where only whole numbers of waves fit."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from shiftnp.attention.separable import Turn
from shiftnp.displacement import Geometry
from shiftnp.typing import Real


class Waves(nn.Module):
    """Wave vectors for each head, of given lengths at first, in all directions."""

    def __init__(self, lengths: Float[Tensor, "h r"], dims: int, geometry: Geometry) -> None:
        super().__init__()
        vectors = lengths[..., None] * normalize(torch.randn(*lengths.shape, dims), dim=-1)
        flat, circles = geometry.split_dimensions(dims)
        self.back = [[*flat, *circles].index(i) for i in range(dims)]
        self.fixed: Tensor | None
        self.free = nn.Parameter(vectors[..., flat]) if flat else None
        self.register_buffer("fixed", geometry.whole_waves(vectors)[..., circles] if circles else None)

    @property
    def vectors(self) -> Float[Tensor, "h r dx"]:
        return torch.cat([part for part in (self.free, self.fixed) if part is not None], -1)[..., self.back]

    def forward(self, x: Float[Tensor, "b n dx"]) -> Turn:
        """By the angles `w . x`, in float32 at least: a phase is no place for rounding."""
        with torch.autocast(x.device.type, enabled=False):
            angle = x[:, None] @ self.vectors.to(x.dtype).mT
        return Turn(torch.complex(angle.cos(), angle.sin()))


def shared_out(band: tuple[Real, Real], heads: int, n: int) -> Float[Tensor, "h r"]:
    """Lengths spread evenly over the logarithm of a band and dealt out in turns: each head spans the band, and no two
    have the same."""
    return torch.logspace(math.log10(band[0]), math.log10(band[1]), n * heads).view(n, heads).T
