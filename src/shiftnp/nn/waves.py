"""Wave vectors that can be learned, except along circles, where only whole numbers of waves fit."""

from __future__ import annotations

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from shiftnp.attention.rotary import Turn
from shiftnp.geometry import Geometry


class Waves(nn.Module):
    """Wave vectors for each head, of given lengths at first, in all directions.

    Along circles the whole numbers of waves that come nearest are kept, as such: `2 pi / period` is multiplied in the
    precision of the data.

    Args:
        learned: False: they stay as they are, and all run the same way.
    """

    def __init__(self, lengths: Float[Tensor, "h r"], dims: int, geometry: Geometry, learned: bool = True) -> None:
        super().__init__()
        vectors = lengths[..., None] * normalize(torch.randn(*lengths.shape, dims), dim=-1)
        if not learned:  # one of the two ways that a wave can run, the same for neighbours
            vectors = torch.where(vectors[..., :1] < 0, -vectors, vectors)
        flat, circles = geometry.split_dimensions(dims)
        self.units = [2 * math.pi / float((geometry.period or ())[i] or 1) for i in circles]
        self.back = [[*flat, *circles].index(i) for i in range(dims)]
        self.free: Tensor | None
        self.whole: Tensor | None
        if learned and flat:
            self.free = nn.Parameter(vectors[..., flat].contiguous())
        else:
            self.register_buffer("free", vectors[..., flat] if flat else None)
        self.register_buffer("whole", None)
        if circles:
            self.whole = (vectors[..., circles] / torch.tensor(self.units)).round()
            for unit, along in zip(self.units, self.whole.unbind(-1), strict=True):
                if float(lengths.max()) < unit / 2:
                    raise ValueError(
                        f"band ends before the first wave that fits a period of {2 * math.pi / unit:g}: it must reach"
                        f" {unit:.3g} radians per unit of input, better several times that."
                    )
                if not along.any():  # few waves may all run in other directions by chance
                    along[-1, -1] = 1

    def vectors(self, dtype: torch.dtype) -> Float[Tensor, "h r dx"]:
        parts = [] if self.free is None else [self.free.to(dtype)]
        if self.whole is not None:
            parts.append(self.whole.to(dtype) * self.whole.new_tensor(self.units, dtype=dtype))
        return torch.cat(parts, -1)[..., self.back]

    def forward(self, x: Float[Tensor, "b n dx"]) -> Turn:
        angle = angles(x[:, None], self.vectors(x.dtype)[:, None])
        return Turn(torch.complex(angle.cos(), angle.sin()))


def harmonics(
    vector: Float[Tensor, "b dx"], x: Float[Tensor, "b n dx"], multiples: Float[Tensor, " r"]
) -> Complex[Tensor, "b 1 n r"]:
    """Phases of multiples of one wave for each task."""
    angle = angles(x, vector[:, None, None].to(x.dtype)) * multiples
    return torch.complex(angle.cos(), angle.sin())[:, None]


def angles(x: Float[Tensor, "*any n dx"], vectors: Float[Tensor, "*more r dx"]) -> Float[Tensor, "*all n r"]:
    """`w . x`, product by product: a phase is no place for the rounding that matrix products may be allowed."""
    parts = [x[..., i, None] * vectors[..., i] for i in range(x.shape[-1])]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def shared_out(band: tuple[float, float], heads: int, n: int) -> Float[Tensor, "h r"]:
    """Lengths spread evenly over the logarithm of a band and dealt out in turns: each head spans the band, and no two
    have the same."""
    return torch.logspace(math.log10(band[0]), math.log10(band[1]), n * heads).view(n, heads).T
