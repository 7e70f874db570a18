"""Transformer stacks: full attention, and the two pseudo-token styles (perceiver, IST), for plain and TE models.

A stack has two halves, so that a context is encoded once for any number of targets:
`encode(context) -> memory`, the tokens that targets attend to at each layer, and `decode(memory, targets) -> z`.

With a radius, neighbours are determined from the initial positions, not from those after location updates (eq. 8), so
that the receptive field is finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from shiftnp.attention.local import CellList
from shiftnp.attention.mask import AttentionMask
from shiftnp.geometry import Geometry
from shiftnp.nn.block import Block
from shiftnp.nn.pseudo import PlainPseudo, RelativePseudo
from shiftnp.nn.tokens import Tokens

FLAT = Geometry()
DENSE = 1 << 14
"""Pairs of a task up to which a dense mask is faster than a cell list."""
MakeBlock = Callable[[bool], Block]
"""Makes a new block; the argument says whether a later layer uses the locations of its queries (eq. 8)."""


class Memory(NamedTuple):
    """The encoded context that targets attend to: tokens after each layer, initial tokens and their cell list."""

    start: Tokens
    layers: list[Tokens]
    cells: CellList | None = None

    @property
    def keys_per_target(self) -> int:
        """Approximate number of tokens that a target attends to."""
        n = self.start.z.shape[1]
        return n if self.cells is None else min(n, max(1, self.cells.mean_neighbours))

    def order(self, x: Float[Tensor, "1 nt dx"]) -> Int[Tensor, " nt"] | None:
        """A permutation of targets at `x` that sorts them by cell, so that a chunk holds neighbours; None: any."""
        return None if self.cells is None else self.cells.order(x)


class Stack(nn.Module):
    """Base class of the stacks, with attention masks and the target blocks.

    The last target block has no location update, since no later layer would use it.
    """

    def __init__(self, layers: int, make_block: MakeBlock, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.target = nn.ModuleList(make_block(i < layers - 1) for i in range(layers))

    def mask(self, q: Tokens, k: Tokens, cells: CellList | None = None) -> AttentionMask:
        """The attention mask: True for keys that are not padding and within the radius. None: all pairs attend.

        Args:
            cells: cell list of the keys, if it was computed before.
        """
        present = None if k.mask is None else k.mask[:, None, :]
        if self.geometry.radius is None:
            return present
        dtype = torch.promote_types(q.z.dtype, torch.float32)
        if not torch.compiler.is_exporting() and q.z.shape[1] * k.z.shape[1] > DENSE:
            cells = self.cells(k) if cells is None else cells
            return cells.neighbours(q.positions, q.mask, dtype)
        near = self.geometry.within_reach(self.geometry.displacement(q.positions, k.positions, dtype))
        return near if present is None else near & present

    def cells(self, k: Tokens) -> CellList:
        """A cell list of the keys."""
        return CellList(self.geometry, k.positions, k.mask)

    def memory(self, start: Tokens) -> Memory:
        """The memory before the first layer."""
        if torch.compiler.is_exporting():
            return Memory(start, [])
        # With many context points a cell list pays off; the number of targets is not known yet.
        many = self.geometry.radius is not None and start.z.shape[1] ** 2 > DENSE
        return Memory(start, [], self.cells(start) if many else None)

    def decode(self, memory: Memory, t: Tokens) -> Float[Tensor, "b nt dz"]:
        """Targets attend to the tokens of each encoder layer in turn."""
        mask = self.mask(t, memory.start, memory.cells)
        for block, keys in zip(self.target, memory.layers, strict=True):
            t = block(t, keys, mask)
        return t.z


class FullStack(Stack):
    """Stack of the TNP. Each layer: context attends to context, then targets attend to context."""

    def __init__(self, layers: int, make_block: MakeBlock, geometry: Geometry = FLAT) -> None:
        super().__init__(layers, make_block, geometry)
        self.context = nn.ModuleList(make_block(True) for _ in range(layers))

    def encode(self, c: Tokens) -> Memory:
        """The memory of a context, for any number of targets."""
        memory = self.memory(c)
        mask = self.mask(c, c, memory.cells)
        for block in self.context:
            c = block(c, c, mask)
            memory.layers.append(c)
        return memory


class PerceiverStack(Stack):
    """Perceiver-style stack, the LBANP. Each layer: pseudo-tokens attend to the context, then to each other; then
    targets attend to pseudo-tokens."""

    def __init__(
        self,
        layers: int,
        make_block: MakeBlock,
        pseudo: PlainPseudo | RelativePseudo,
        geometry: Geometry = FLAT,
    ) -> None:
        super().__init__(layers, make_block, geometry)
        self.pseudo = pseudo
        self.pseudo_from_context = nn.ModuleList(make_block(True) for _ in range(layers))
        self.pseudo_self = nn.ModuleList(make_block(True) for _ in range(layers))

    def encode(self, c: Tokens) -> Memory:
        """The memory of a context, for any number of targets."""
        u = self.pseudo(c)._replace(summary=c.summary)
        memory, from_context, among = self.memory(u), self.mask(u, c), self.mask(u, u)
        for from_context_block, self_block in zip(self.pseudo_from_context, self.pseudo_self, strict=True):
            u = from_context_block(u, c, from_context)
            u = self_block(u, u, among)
            memory.layers.append(u)
        return memory


class ISTStack(Stack):
    """Induced set transformer (IST) stack. Each layer: pseudo-tokens attend to the context, then the context and the
    targets attend to pseudo-tokens.

    In the last layer the context is not updated, since nothing would use it.
    """

    def __init__(
        self,
        layers: int,
        make_block: MakeBlock,
        pseudo: PlainPseudo | RelativePseudo,
        geometry: Geometry = FLAT,
    ) -> None:
        super().__init__(layers, make_block, geometry)
        self.pseudo = pseudo
        self.pseudo_from_context = nn.ModuleList(make_block(True) for _ in range(layers))
        self.context_from_pseudo = nn.ModuleList(make_block(True) for _ in range(layers - 1))

    def encode(self, c: Tokens) -> Memory:
        """The memory of a context, for any number of targets."""
        u = self.pseudo(c)._replace(summary=c.summary)
        memory, from_context, to_context = self.memory(u), self.mask(u, c), self.mask(c, u)
        for i, block in enumerate(self.pseudo_from_context):
            u = block(u, c, from_context)
            memory.layers.append(u)
            if i < len(self.context_from_pseudo):
                c = self.context_from_pseudo[i](c, u, to_context)
        return memory


PSEUDO_STACKS: dict[str, type[PerceiverStack] | type[ISTStack]] = {"ist": ISTStack, "perceiver": PerceiverStack}


def pseudo_stack(style: str) -> type[PerceiverStack] | type[ISTStack]:
    """The pseudo-token stack of that name."""
    if style not in PSEUDO_STACKS:
        raise ValueError(f"style must be one of {', '.join(map(repr, PSEUDO_STACKS))}, got {style!r}.")
    return PSEUDO_STACKS[style]
