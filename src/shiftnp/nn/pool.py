"""Mean pooling over a set that may be empty."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class Mean(nn.Module):
    """Mean over the points that are not masked out; a learned vector for an empty set."""

    def __init__(self, dz: int) -> None:
        super().__init__()
        self.empty = nn.Parameter(torch.randn(dz))

    def forward(self, z: Float[Tensor, "*any n dz"], mask: Bool[Tensor, "*any n"] | None) -> Float[Tensor, "*any dz"]:
        if mask is None:
            mask = torch.ones(z.shape[:-1], dtype=torch.bool, device=z.device)
        total = z.where(mask[..., None], 0.0).sum(-2)
        count = mask.sum(-1, keepdim=True)
        return torch.where(count > 0, total / count.clamp(min=1), self.empty)
