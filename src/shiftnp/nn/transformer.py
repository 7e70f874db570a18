"""How attention blocks are stacked: full attention, and the two pseudo-token styles. Each serves plain and TE models.

A stack works in two halves, so that a context is encoded once for any number of targets:
`encode(context) -> memory`, the tokens that targets attend to at each layer, and `decode(memory, targets) -> z`.

Neighbours within a radius are those at the start, wherever tokens move afterwards, so that a receptive field is what it
says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shiftnp.attention.local import Cells, Sight
from shiftnp.attention.tiled import Places
from shiftnp.geometry import Geometry
from shiftnp.nn.block import Block
from shiftnp.nn.pseudo import PlainPseudo, RelativePseudo
from shiftnp.nn.tokens import Tokens, displacement

FLAT = Geometry()
DENSE = 1 << 14
"""Pairs of a task up to which it is not worth looking for neighbours: all are computed, and what is out of reach counts
nothing."""
MakeBlock = Callable[[bool], Block]
"""Makes a new block; the argument says whether something later depends on where its queries go (eq. 8)."""


class Memory(NamedTuple):
    """What targets attend to: the tokens as each layer left them, as they were at the start, and where to find them."""

    start: Tokens
    layers: list[Tokens]
    cells: Cells | None = None

    @property
    def keys_per_target(self) -> int:
        """How many tokens a target looks at, roughly, before those out of reach are left out."""
        n = self.start.z.shape[1]
        return n if self.cells is None else min(n, max(1, self.cells.typical))


class Stack(nn.Module):
    """What all stacks share: who sees whom, and the tower of target blocks.

    The last target block leaves its locations where they are, since nothing would come after.
    """

    def __init__(self, layers: int, make_block: MakeBlock, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.target = nn.ModuleList(make_block(i < layers - 1) for i in range(layers))

    def sight(self, q: Tokens, k: Tokens, cells: Cells | None = None) -> Sight:
        """Which query sees which key: those that are there and within the radius. None: all see all.

        Args:
            cells: of the keys, if they are known.
        """
        there = None if k.mask is None else k.mask[:, None, :]
        if self.geometry.radius is None:
            return there
        if q.z.shape[1] * k.z.shape[1] > DENSE:
            cells = self.cells(k) if cells is None else cells
            return cells.near(places(q), q.mask, torch.promote_types(q.z.dtype, torch.float32))
        near = self.geometry.within_reach(displacement(self.geometry, q, k))
        return near if there is None else near & there

    def cells(self, k: Tokens) -> Cells:
        """Where keys are to be found."""
        return Cells(self.geometry, places(k), k.mask)

    def memory(self, start: Tokens) -> Memory:
        """What targets will attend to, as long as no layer has left anything."""
        # Worth it as soon as many targets may come.
        many = self.geometry.radius is not None and start.z.shape[1] ** 2 > DENSE
        return Memory(start, [], self.cells(start) if many else None)

    def decode(self, memory: Memory, t: Tokens) -> Float[Tensor, "b nt dz"]:
        """Targets attend to what each layer of the encoder left for them."""
        sight = self.sight(t, memory.start, memory.cells)
        for block, keys in zip(self.target, memory.layers, strict=True):
            t = block(t, keys, sight)
        return t.z


class FullStack(Stack):
    """Each layer: context <- context, then target <- context. The TNP."""

    def __init__(self, layers: int, make_block: MakeBlock, geometry: Geometry = FLAT) -> None:
        super().__init__(layers, make_block, geometry)
        self.context = nn.ModuleList(make_block(True) for _ in range(layers))

    def encode(self, c: Tokens) -> Memory:
        memory = self.memory(c)
        sight = self.sight(c, c, memory.cells)
        for block in self.context:
            c = block(c, c, sight)
            memory.layers.append(c)
        return memory


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
        u = self.pseudo(c)
        memory, from_context, among = self.memory(u), self.sight(u, c), self.sight(u, u)
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
        u = self.pseudo(c)
        memory, from_context, to_context = self.memory(u), self.sight(u, c), self.sight(c, u)
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


def places(t: Tokens) -> Places:
    """Where tokens are."""
    assert t.x is not None
    return Places(t.x, t.moved)
