"""How attention blocks are stacked: full attention, and the two pseudo-token styles. Each serves plain and TE models.

A stack works in two halves, so that a context is encoded once for any number of targets:
`encode(context) -> memory`, the tokens that targets attend to at each layer, and `decode(memory, targets) -> z`.

Neighbours within a radius are those of the initial positions, wherever tokens move afterwards, so that the receptive
field is finite as stated.
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
    """What targets attend to: the tokens after each layer, the initial tokens, and a cell list of these."""

    start: Tokens
    layers: list[Tokens]
    cells: CellList | None = None

    @property
    def keys_per_target(self) -> int:
        """Number of tokens that a target attends to, roughly."""
        n = self.start.z.shape[1]
        return n if self.cells is None else min(n, max(1, self.cells.mean_neighbours))

    def order(self, x: Float[Tensor, "1 nt dx"]) -> Int[Tensor, " nt"] | None:
        """An order of targets at `x` in which those of a chunk are neighbours; None: any will do."""
        return None if self.cells is None else self.cells.order(x)


class Stack(nn.Module):
    """What all stacks share: attention masks and the target blocks.

    The last target block has no location update, since no later layer would use it.
    """

    def __init__(self, layers: int, make_block: MakeBlock, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.target = nn.ModuleList(make_block(i < layers - 1) for i in range(layers))

    def mask(self, q: Tokens, k: Tokens, cells: CellList | None = None) -> AttentionMask:
        """Which query attends to which key: those that are there and within the radius. None: all to all.

        Args:
            cells: of the keys, if they are known.
        """
        there = None if k.mask is None else k.mask[:, None, :]
        if self.geometry.radius is None:
            return there
        dtype = torch.promote_types(q.z.dtype, torch.float32)
        if not torch.compiler.is_exporting() and q.z.shape[1] * k.z.shape[1] > DENSE:
            cells = self.cells(k) if cells is None else cells
            return cells.neighbours(q.positions, q.mask, dtype)
        near = self.geometry.within_reach(self.geometry.displacement(q.positions, k.positions, dtype))
        return near if there is None else near & there

    def cells(self, k: Tokens) -> CellList:
        """The keys in a cell list."""
        return CellList(self.geometry, k.positions, k.mask)

    def memory(self, start: Tokens) -> Memory:
        """The memory before the first layer."""
        if torch.compiler.is_exporting():
            return Memory(start, [])
        # Worth it as soon as many targets may come.
        many = self.geometry.radius is not None and start.z.shape[1] ** 2 > DENSE
        return Memory(start, [], self.cells(start) if many else None)

    def decode(self, memory: Memory, t: Tokens) -> Float[Tensor, "b nt dz"]:
        """Targets attend to the tokens of each encoder layer in turn."""
        mask = self.mask(t, memory.start, memory.cells)
        for block, keys in zip(self.target, memory.layers, strict=True):
            t = block(t, keys, mask)
        return t.z


class FullStack(Stack):
    """Each layer: context <- context, then target <- context. The TNP."""

    def __init__(self, layers: int, make_block: MakeBlock, geometry: Geometry = FLAT) -> None:
        super().__init__(layers, make_block, geometry)
        self.context = nn.ModuleList(make_block(True) for _ in range(layers))

    def encode(self, c: Tokens) -> Memory:
        """The memory of a context, for any number of targets."""
        memory = self.memory(c)
        mask = self.mask(c, c, memory.cells)
        for block in self.context:
            c = block(c, c, mask)
            # As keys of the targets, tokens need no bias of their own, which is the square of their number.
            memory.layers.append(c._replace(attention_bias=None))
        return memory._replace(start=memory.start._replace(attention_bias=None))


class PerceiverStack(Stack):
    """Each layer: pseudo <- context, pseudo <- pseudo, then target <- pseudo. The LBANP."""

    def __init__(
        self,
        layers: int,
        make_block: MakeBlock,
        pseudo: PlainPseudo | RelativePseudo,
        geometry: Geometry = FLAT,
    ) -> None:
        super().__init__(layers, make_block, geometry)
        self.pseudo = pseudo
        self.gather = nn.ModuleList(make_block(True) for _ in range(layers))
        self.mix = nn.ModuleList(make_block(True) for _ in range(layers))

    def encode(self, c: Tokens) -> Memory:
        """The memory of a context, for any number of targets."""
        u = self.pseudo(c)
        memory, from_context, among = self.memory(u), self.mask(u, c), self.mask(u, u)
        for gather, mix in zip(self.gather, self.mix, strict=True):
            u = gather(u, c, from_context)
            u = mix(u, u, among)
            memory.layers.append(u)
        return memory


class ISTStack(Stack):
    """Each layer: pseudo <- context, context <- pseudo, and target <- pseudo.

    The last layer has no context <- pseudo, since nothing would read it.
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
        self.gather = nn.ModuleList(make_block(True) for _ in range(layers))
        self.spread = nn.ModuleList(make_block(True) for _ in range(layers - 1))

    def encode(self, c: Tokens) -> Memory:
        """The memory of a context, for any number of targets."""
        u = self.pseudo(c)
        memory, from_context, to_context = self.memory(u), self.mask(u, c), self.mask(c, u)
        for i, gather in enumerate(self.gather):
            u = gather(u, c, from_context)
            memory.layers.append(u)
            if i < len(self.spread):
                c = self.spread[i](c, u, to_context)
        return memory


PSEUDO_STACKS: dict[str, type[PerceiverStack] | type[ISTStack]] = {"ist": ISTStack, "perceiver": PerceiverStack}


def pseudo_stack(style: str) -> type[PerceiverStack] | type[ISTStack]:
    """The pseudo-token stack of that name."""
    if style not in PSEUDO_STACKS:
        raise ValueError(f"style must be one of {', '.join(map(repr, PSEUDO_STACKS))}, got {style!r}.")
    return PSEUDO_STACKS[style]
