"""Matrix products of many small matrices."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def product(a: Float[Tensor, "b h n m"], b: Float[Tensor, "b h m d"]) -> Float[Tensor, "b h n d"]:
    """`a @ b`, with less overhead."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])
