"""Transformer stacks: full attention, and the two pseudo-token styles (perceiver, IST), for plain and TE models.

A stack has two halves, so that a context is encoded once for any number of targets:
`encode(context) -> memory`, the tokens that targets attend to at each layer, and `decode(memory, targets) -> z`.

With a radius, neighbours are determined from the initial positions, not from those after location updates (eq. 8), so
that the receptive field is finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from shiftnp.attention import threads
from shiftnp.attention.chunks import slices
from shiftnp.attention.local import SLACK, CellList
from shiftnp.attention.mask import AttentionMask, BlockMask
from shiftnp.geometry import Geometry, Positions
from shiftnp.nn.block import Block
from shiftnp.nn.pseudo import PlainPseudo, RelativePseudo
from shiftnp.nn.tokens import Tokens

FLAT = Geometry()
DENSE = 1 << 14
"""Pairs of a task up to which a dense mask is faster than a cell list."""
MOST_DISTANCES = 1 << 22
"""Distances between old and new tokens held in memory at once."""
MOST_QUERIES = 1 << 13
"""Queries of a block at once, without gradients, so that memory stays bounded and activations near the cache."""
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


class Part(NamedTuple):
    """Some of the queries, the keys that they may attend to (all if it is None), and the mask of their pairs."""

    q: slice | Int[Tensor, " nq"]
    k: Int[Tensor, " nk"] | None
    mask: AttentionMask

    def keys(self, k: Tokens) -> Tokens:
        """The keys of this part."""
        return k if self.k is None else k.take(self.k)


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

    def parts(self, q: Tokens, k: Tokens, cells: CellList | None = None) -> list[Part]:
        """The queries in parts, so that memory stays bounded; one part if gradients are needed.

        With a radius, a part holds the queries of adjacent cells, and only keys near them: keys are projected for each
        part anew.
        """
        tasks, n = q.z.shape[:2]
        whole = torch.compiler.is_exporting() or torch.is_grad_enabled() or n <= MOST_QUERIES
        if whole or (tasks > 1 and self.geometry.radius is not None):
            return [Part(slice(None), *self.near(q, k, cells))]
        chunks = slices(n, MOST_QUERIES)
        order = None if cells is None else cells.order(q.positions.x)
        rows = chunks if order is None else [order[chunk] for chunk in chunks]
        parts: dict[int, Part] = {}

        def make(i: int) -> None:
            parts[i] = Part(rows[i], *self.near(q.take(rows[i]), k, cells))

        threads.each(make, range(len(rows)), q.z.device)
        return [parts[i] for i in range(len(rows))]

    def near(self, q: Tokens, k: Tokens, cells: CellList | None) -> tuple[Int[Tensor, " nk"] | None, AttentionMask]:
        """The keys that any of the queries may attend to (None: all), and the mask of pairs with them."""
        mask = self.mask(q, k, cells)
        if isinstance(mask, BlockMask) and len(k.z) == 1 and not torch.is_grad_enabled():
            some, of_some = mask.attended(k.z.shape[1])
            return (None, mask) if len(some) == k.z.shape[1] else (some, of_some)
        return None, mask

    @staticmethod
    def update(block: nn.Module, q: Tokens, k: Tokens, parts: list[Part]) -> Tokens:
        """Updates the queries by a block, part after part."""
        if len(parts) == 1:
            (part,) = parts
            return block(q, part.keys(k), part.mask)
        z, offsets = torch.empty_like(q.z), []

        def compute(part: Part) -> None:
            done = block(q.take(part.q), part.keys(k), part.mask)
            z[:, part.q] = done.z
            if done.offset is not None:
                offsets.append((part.q, done.offset))

        threads.each(compute, parts, z.device)
        if not offsets:
            return q._replace(z=z, offset=None)
        offset = offsets[0][1].new_empty(*z.shape[:2], offsets[0][1].shape[-1])
        for rows, of_part in offsets:
            offset[:, rows] = of_part
        return q._replace(z=z, offset=offset)

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
        parts = self.parts(t, memory.start, memory.cells)
        for block, keys in zip(self.target, memory.layers, strict=True):
            t = self.update(block, t, keys, parts)
        return t.z


class FullStack(Stack):
    """Stack of the TNP. Each layer: context attends to context, then targets attend to context."""

    def __init__(self, layers: int, make_block: MakeBlock, geometry: Geometry = FLAT) -> None:
        super().__init__(layers, make_block, geometry)
        self.context = nn.ModuleList(make_block(True) for _ in range(layers))

    def encode(self, c: Tokens) -> Memory:
        """The memory of a context, for any number of targets."""
        memory = self.memory(c)
        parts = self.parts(c, c, memory.cells)
        for block in self.context:
            c = self.update(block, c, c, parts)
            memory.layers.append(c)
        return memory

    def extend(self, memory: Memory, new: Tokens) -> Memory:
        """The memory of a context with more points, for a stack with a radius.

        A new point changes tokens within one radius of it in the first layer, within two in the second, and so on.
        Only these are computed again, from tokens within one radius more.
        """
        start = memory.start.join(new)
        distance = self.distance(start, new)
        before, layers = start, []
        for i, (block, old) in enumerate(zip(self.context, memory.layers, strict=True), 1):
            q, k = (Selection(distance <= hops * self.geometry.reach * SLACK) for hops in (i, i + 1))
            before = q.put(old.join(new), block(q(before), k(before), self.mask(q(start), k(start))))
            layers.append(before)
        return self.memory(start)._replace(layers=layers)

    def distance(self, t: Tokens, new: Tokens) -> Float[Tensor, "b n"]:
        """Distance of each token from the nearest new one; infinite at padding."""
        x, y, dtype = t.positions.x, new.positions.x, torch.promote_types(t.z.dtype, torch.float32)
        nearest = x.new_full(x.shape[:2], math.inf, dtype=dtype)
        size = max(1, MOST_DISTANCES // max(1, nearest.numel()))
        for i in range(0, y.shape[1], size):
            some = Positions(y[:, i : i + size])
            d = torch.linalg.vector_norm(self.geometry.displacement(Positions(x), some, dtype), dim=-1)
            if new.mask is not None:
                d = d.masked_fill(~new.mask[:, None, i : i + size], math.inf)
            nearest = torch.minimum(nearest, d.amin(-1))
        return nearest if t.mask is None else nearest.masked_fill(~t.mask, math.inf)


class Selection:
    """Some tokens of each task, padded to the same number; calling it selects them."""

    def __init__(self, chosen: Bool[Tensor, "b n"]) -> None:
        count = chosen.sum(1)
        most = max(1, int(count.max())) if len(count) else 1
        # Chosen tokens first, in their order.
        self.rows = (~chosen).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
        self.valid = torch.arange(most, device=chosen.device) < count[:, None]

    def __call__(self, t: Tokens) -> Tokens:
        x, offset = (None if v is None else v.take_along_dim(self.rows[..., None], 1) for v in (t.x, t.offset))
        mask = self.valid if t.mask is None else self.valid & t.mask.take_along_dim(self.rows, 1)
        return t._replace(z=t.z.take_along_dim(self.rows[..., None], 1), x=x, offset=offset, mask=mask)

    def put(self, t: Tokens, new: Tokens) -> Tokens:
        """The tokens `t` with the embeddings and offsets of the selected ones replaced."""
        task, slot = self.valid.nonzero(as_tuple=True)
        at = task, self.rows[task, slot]
        offset = t.offset
        if new.offset is not None:
            base = new.offset.new_zeros(*t.z.shape[:2], new.offset.shape[-1]) if offset is None else offset
            offset = base.index_put(at, new.offset[task, slot].to(base.dtype))
        return t._replace(z=t.z.index_put(at, new.z[task, slot].to(t.z.dtype)), offset=offset)


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
        memory, from_context, to_context = self.memory(u), self.mask(u, c), self.parts(c, u)
        for i, block in enumerate(self.pseudo_from_context):
            u = block(u, c, from_context)
            memory.layers.append(u)
            if i < len(self.context_from_pseudo):
                c = self.update(self.context_from_pseudo[i], c, u, to_context)
        return memory


PSEUDO_STACKS: dict[str, type[PerceiverStack] | type[ISTStack]] = {"ist": ISTStack, "perceiver": PerceiverStack}


def pseudo_stack(style: str) -> type[PerceiverStack] | type[ISTStack]:
    """The pseudo-token stack of that name."""
    if style not in PSEUDO_STACKS:
        raise ValueError(f"style must be one of {', '.join(map(repr, PSEUDO_STACKS))}, got {style!r}.")
    return PSEUDO_STACKS[style]
