"""Frequency vectors of rotary embeddings: learned, except along periodic dimensions, where they are harmonics."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from shiftnp.attention.rotary import Rotation
from shiftnp.geometry import Geometry


class FrequencyBank(nn.Module):
    """Frequency vectors `w_hr` for each head, of given lengths at initialisation and in random directions.

    Along a dimension of period `P` only integer multiples of `2 pi / P` are periodic, so frequencies are rounded to the
    nearest ones and stay fixed. They are stored as integers, so that `2 pi / P` has the precision of the data.

    Args:
        lengths: lengths of the frequency vectors, in radians per unit of input.
        learned: whether the vectors are learned. If not, they are fixed and point into one half-space.
    """

    def __init__(self, lengths: Float[Tensor, "h r"], dims: int, geometry: Geometry, learned: bool = True) -> None:
        super().__init__()
        vectors = lengths[..., None] * normalize(torch.randn(*lengths.shape, dims), dim=-1)
        if not learned:  # w and -w are the same frequency: neighbours in the bank have the same sign
            vectors = torch.where(vectors[..., :1] < 0, -vectors, vectors)
        flat, circular = geometry.flat(dims), geometry.circular
        self.fundamentals = [2 * math.pi / float(geometry.period_of(i) or 1) for i in circular]
        self.order = [[*flat, *circular].index(i) for i in range(dims)]
        self.flat: Tensor | None
        self.harmonics: Tensor | None
        if learned and flat:
            self.flat = nn.Parameter(vectors[..., flat].contiguous())
        else:
            self.register_buffer("flat", vectors[..., flat] if flat else None)
        self.register_buffer("harmonics", None)
        if circular:
            self.harmonics = (vectors[..., circular] / torch.tensor(self.fundamentals)).round()
            for fundamental, along in zip(self.fundamentals, self.harmonics.unbind(-1), strict=True):
                if float(lengths.max()) < fundamental / 2:
                    raise ValueError(
                        f"band ends before the first frequency of a period of {2 * math.pi / fundamental:g}: it must"
                        f" reach {fundamental:.3g} radians per unit of input, better several times that."
                    )
                if not along.any():  # with few vectors, all may have a zero harmonic here by chance
                    along[-1, -1] = 1

    def vectors(self, dtype: torch.dtype) -> Float[Tensor, "h r dx"]:
        """All frequency vectors."""
        parts = [] if self.flat is None else [self.flat.to(dtype)]
        if self.harmonics is not None:
            parts.append(self.harmonics.to(dtype) * self.harmonics.new_tensor(self.fundamentals, dtype=dtype))
        return torch.cat(parts, -1)[..., self.order]

    def forward(self, x: Float[Tensor, "b n dx"], dtype: torch.dtype) -> Rotation:
        """Rotations by `w_hr . x` of channels of that dtype, heads first."""
        return Rotation.by(angles(x[:, None], self.vectors(x.dtype)[:, None]), dtype)


def angles(x: Float[Tensor, "*any n dx"], vectors: Float[Tensor, "*more r dx"]) -> Float[Tensor, "*all n r"]:
    """`w . x` without a matrix product, which may run in reduced precision (TF32), too coarse for a phase."""
    total = x[..., 0, None] * vectors[..., 0]
    for i in range(1, x.shape[-1]):
        total = torch.addcmul(total, x[..., i, None], vectors[..., i])
    return total


def interleaved(band: tuple[float, float], heads: int, n: int) -> Float[Tensor, "h r"]:
    """Lengths log-spaced over a band and interleaved across heads: each head spans the band, and no two have the
    same."""
    return torch.logspace(math.log10(band[0]), math.log10(band[1]), n * heads).view(n, heads).T
