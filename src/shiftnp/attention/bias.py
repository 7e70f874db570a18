"""Additive attention bias of low rank."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

MOST_SCORES = 1 << 24
"""Attention scores held in memory at once; if there are more, queries are processed in chunks."""


class LowRankBias(NamedTuple):
    """`s` low-rank attention bias maps `q_s k^T`, stored as factors and, if they are small, as maps too."""

    q: Float[Tensor, "b s nq f"]
    k: Float[Tensor, "b nk f"]
    maps: Float[Tensor, "b s nq nk"] | None = None

    @staticmethod
    def of(q: Float[Tensor, "b s nq f"], k: Float[Tensor, "b nk f"]) -> LowRankBias:
        """The bias of these factors; its maps are computed at once if they fit, as every layer needs them."""
        bias = LowRankBias(q, k)
        small = in_one_piece(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[1])
        return bias._replace(maps=bias.rows(slice(None))) if small else bias

    def rows(self, rows: slice) -> Float[Tensor, "b s rows nk"]:
        """The maps of some queries."""
        if self.maps is not None:
            return self.maps[:, :, rows]
        with torch.autocast(self.q.device.type, enabled=False):
            return self.q[:, :, rows] @ self.k.mT[:, None]


def in_one_piece(scores: int) -> bool:
    """Whether this many scores fit in memory. An exported program has no chunks, as its sizes are dynamic."""
    return torch.compiler.is_exporting() or scores <= MOST_SCORES
