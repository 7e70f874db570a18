"""Attention masks, which say which query attends to which key: dense, or block-sparse."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

PairMask = Bool[Tensor, " b #nq nk"] | None
"""Dense: True where the query attends to the key. None: every query attends to every key."""


class BlockGroup(NamedTuple):
    """Blocks of similar size, padded to one shape: indices of queries and keys (tasks flattened), and a pair mask."""

    q: Int[Tensor, "blocks nq"]
    k: Int[Tensor, "blocks nk"]
    pairs: Bool[Tensor, "blocks nq nk"]


class BlockMask(NamedTuple):
    """Block-sparse: small dense problems that together hold all pairs that attend.

    Attributes:
        groups: the blocks.
        row: index of each query in the concatenated outputs of all groups; 0, a row of zeros, for a query in none.
        has_keys: whether a query attends to any key.
    """

    groups: list[BlockGroup]
    row: Int[Tensor, "b nq"]
    has_keys: Bool[Tensor, "b nq 1"]

    def attended(self, keys: int) -> tuple[Int[Tensor, " some"], BlockMask]:
        """The keys, out of so many, that occur in a block, and this mask for them alone."""
        occurs = torch.zeros(keys, dtype=torch.bool, device=self.row.device)
        for group in self.groups:
            occurs[group.k.flatten()] = True
        place = occurs.cumsum(0) - 1
        return occurs.nonzero()[:, 0], self._replace(groups=[g._replace(k=place[g.k]) for g in self.groups])


AttentionMask = PairMask | BlockMask
"""A dense or a block-sparse mask."""


def has_keys(mask: AttentionMask) -> Bool[Tensor, " b #nq 1"] | None:
    """Mask of the queries that attend to at least one key. None: all do."""
    if mask is None:
        return None
    return mask.has_keys if isinstance(mask, BlockMask) else mask.any(-1, keepdim=True)
