"""Finite receptive field, linear cost: attention among neighbours within a radius, found through a list of cells.

Keys are sorted into cells no smaller than the radius, so that the neighbours of a query lie in its own cell and those
around it. Queries close to each other form a block, and what at least one of them may see are its keys. A block is a
small dense attention problem with its own mask; blocks of similar size are padded and run together, as if they were
tasks. Nothing here grows faster than the number of points times that of their neighbours, and the result is that of the
dense mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shiftnp.attention.reference import Pairs
from shiftnp.attention.tiled import Places
from shiftnp.geometry import Geometry

MOST_DIMS = 4
"""Cells divide at most so many dimensions: a cell has `3^dims` around it, and itself."""
MOST_QUERIES = 32
"""Queries in a block. Padding grows with it, and what is gathered for every query shrinks."""
BUNDLE = (1 << 13, 1 << 17)
"""Pairs that run together, unless one block has more: few for little padding, many for few calls."""

PART = 4
"""Queries in a part of a cell, about, where cells have more."""
SLACK = 1 + 1e-5
"""Cells are that much larger than the radius, so that rounding loses no neighbour."""
FARTHEST = 2.0**50
"""Cells farther out are one, so that whole numbers stay exact."""
ENDS = ("amin", "amax")


class Bundle(NamedTuple):
    """Blocks of similar size, padded: rows of queries and keys in all tasks taken one after the other."""

    q: Int[Tensor, "blocks nq"]
    k: Int[Tensor, "blocks nk"]
    pairs: Bool[Tensor, "blocks nq nk"]


class Neighbourhood(NamedTuple):
    """Who sees whom, as blocks.

    Attributes:
        row: where each query is among the rows of all bundles, one after the other; row 0, which is empty, if in none.
        seen: whether a query sees any key.
    """

    bundles: list[Bundle]
    row: Int[Tensor, "b nq"]
    seen: Bool[Tensor, "b nq 1"]


Sight = Pairs | Neighbourhood
"""Who sees whom, in either form."""
Kernel = Callable[[Tensor, Tensor, Tensor, Places, Places, Pairs], tuple[Tensor, Tensor | None]]
"""Attention of `q, k, v` at their places: attended values, and how far queries step (eq. 8)."""


def attend(
    kernel: Kernel,
    q: Float[Tensor, "b h nq dq"],
    k: Float[Tensor, "b h nk dk"],
    v: Float[Tensor, "b h nk dv"],
    at_q: Places,
    at_k: Places,
    sight: Sight,
) -> tuple[Float[Tensor, "b h nq dv"], Float[Tensor, "b nq dx"] | None]:
    """What the kernel gives for all tokens at once or, in a neighbourhood, block by block."""
    if not isinstance(sight, Neighbourhood):
        return kernel(q, k, v, at_q, at_k, sight)
    heads, dk = k.shape[1], k.shape[1] * k.shape[3]
    of_q, of_kv = _rows(q), torch.cat([_rows(k), _rows(v)], -1)

    def split(rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (heads, -1)).transpose(1, 2)

    outs, steps = [of_kv.new_zeros(1, of_kv.shape[-1] - dk)], []
    for bundle in sight.bundles:
        kv = _gather(of_kv, bundle.k)
        places = _take(at_q, bundle.q), _take(at_k, bundle.k)
        out, step = kernel(
            split(_gather(of_q, bundle.q)), split(kv[..., :dk]), split(kv[..., dk:]), *places, bundle.pairs
        )
        outs.append(_rows(out))
        if step is not None:
            steps.append(step.flatten(0, 1))
    out = split(_gather(torch.cat(outs), sight.row))
    if not steps:
        return out, None
    still = steps[0].new_zeros(1, steps[0].shape[-1])
    return out, _gather(torch.cat([still, *steps]), sight.row)


def seen(sight: Sight) -> Bool[Tensor, " b #nq 1"] | None:
    """Which queries see any key. None: all do."""
    if sight is None:
        return None
    return sight.seen if isinstance(sight, Neighbourhood) else sight.any(-1, keepdim=True)


class Cells:
    """The keys of all tasks, sorted into cells no smaller than the radius.

    Args:
        at: where the keys are. Cells are laid out relative to their middle, so that large coordinates lose nothing.
        mask: which keys are there. Others are nobody's neighbours.
    """

    def __init__(self, geometry: Geometry, at: Places, mask: Bool[Tensor, "b n"] | None = None) -> None:
        self.geometry, self.at = geometry, _detach(at)
        self.origin = _middle(self.at.x, mask)
        self.dims = min(MOST_DIMS, at.x.shape[-1])
        self.around = [self._layout(i) for i in range(self.dims)]
        self.rows = _there(self.at, mask)
        self.place = self._place(self.at)[self.rows]
        number, self.levels = _number(self.rows // at.x.shape[1], self._grid(self.place))
        order = number.argsort(stable=True)
        self.rows, self.place = self.rows[order], self.place[order]
        self.size = torch.bincount(number)
        self.start = self.size.cumsum(0) - self.size

    @property
    def typical(self) -> int:
        """Keys that a query among the keys has in the cells around it, roughly."""
        return 0 if len(self.rows) == 0 else 3**self.dims * int(self.size.square().sum()) // len(self.rows)

    def order(self, x: Float[Tensor, "1 n dx"]) -> Int[Tensor, " n"]:
        """Queries of the only task cell by cell: chunk by chunk in this order, neighbours come together."""
        return _number(torch.zeros_like(x[0, :, 0], dtype=torch.long), self._grid(self._place(Places(x))))[0].argsort()

    def near(self, at: Places, mask: Bool[Tensor, "b n"] | None, dtype: torch.dtype) -> Neighbourhood:
        """The keys that each query sees. Queries that are not there see none.

        Args:
            dtype: of displacements, which decide what is within reach as they do elsewhere.
        """
        at = _detach(at)
        b, n, _ = at.x.shape
        row = torch.zeros(b * n, dtype=torch.long, device=at.x.device)
        rows = _there(at, mask)
        bundles: list[Bundle] = []
        some = [row.new_zeros(1, dtype=torch.bool)]
        if len(rows) and len(self.rows):
            count = 1
            for bundle, there in self._bundles(at, rows, dtype):
                slot = torch.arange(there.numel(), device=row.device) + count
                row[bundle.q[there]] = slot[there.flatten()]
                count += there.numel()
                some.append(bundle.pairs.any(-1).flatten())
                bundles.append(bundle)
        row = row.view(b, n)
        return Neighbourhood(bundles, row, torch.cat(some)[row][..., None])

    def _bundles(self, at: Places, rows: Tensor, dtype: torch.dtype) -> Iterator[tuple[Bundle, Bool[Tensor, "b n"]]]:
        """Blocks of similar size, and which of their queries are no padding."""
        rows, start, nq, keys, nk = self._blocks(at, rows)
        first = nk.cumsum(0) - nk
        # Blocks in order of size; from one number of queries to the next, that of keys goes up and down in turn.
        turn = torch.where(nq % 2 == 0, nk, nk.max() - nk)
        order = (nq * (nk.max() + 1) + turn).argsort(stable=True)
        order = order[nk[order] > 0]
        work = (nq * nk)[order].cumsum(0)
        part = work // max(BUNDLE[0], min(BUNDLE[1], int(work[-1]) // 16 + 1)) if len(work) else work
        for blocks in order.split(torch.unique_consecutive(part, return_counts=True)[1].tolist()):
            i, there_q = _pad(start[blocks], nq[blocks])
            j, there_k = _pad(first[blocks], nk[blocks])
            q, k = rows[i], self.rows[keys[j]]
            (xq, mq), (xk, mk) = _take(at, q), _take(self.at, k)
            near = self.geometry.within_reach(self.geometry.between(xq, xk, mq, mk, dtype))
            yield Bundle(q, k, near & there_q[:, :, None] & there_k[:, None]), there_q

    def _blocks(self, at: Places, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Queries in order, where blocks start among them and how many they have; keys, and how many a block has."""
        place = self._place(at)[rows]
        task = rows // at.x.shape[1]
        # Where queries are dense, blocks are parts of cells: the closer queries are, the more keys they share.
        number, _ = _number(task, self._grid(place))
        fine = max(1, min(4, int((len(rows) / (1 + int(number.max())) / PART) ** (1 / self.dims))))
        grid = self._grid(place, fine)
        if fine > 1:
            number, _ = _number(task, grid)
        order = number.argsort(stable=True)
        number, rows, place, task = number[order], rows[order], place[order], task[order]
        size = torch.bincount(number)
        rank = torch.arange(len(rows), device=rows.device) - (size.cumsum(0) - size)[number]
        # A block in a cell with very many queries is only some of them.
        most = int(size.max()) // MOST_QUERIES + 1
        _, block, nq = torch.unique_consecutive(
            number * most + rank // MOST_QUERIES, return_inverse=True, return_counts=True
        )
        start = nq.cumsum(0) - nq
        cells = self._cells_around(task[start], torch.floor_divide(grid[order[start]], fine))
        keys, owner = self._prune(cells, place, block, start)
        return rows, start, nq, keys, torch.bincount(owner, minlength=len(nq))

    def _prune(self, cells: Tensor, place: Tensor, block: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Keys in the cells around each block that are within reach of the box around its queries; and their block."""
        apart = self.geometry.wrap(place - place[start][block])
        where = block[:, None].expand_as(apart)
        low, high = (apart.new_zeros(len(start), apart.shape[1]).scatter_reduce(0, where, apart, f) for f in ENDS)
        centre, half = place[start] + (low + high) / 2, (high - low) / 2
        size = torch.where(cells >= 0, self.size[cells], 0)
        owner = torch.arange(len(cells), device=cells.device).repeat_interleave(size.sum(1))
        size, begin = size.flatten(), self.start[cells].flatten()
        keys = torch.arange(len(owner), device=owner.device) + (begin - size.cumsum(0) + size).repeat_interleave(size)
        beyond = self.geometry.wrap(self.place[keys] - centre[owner]).abs() - half[owner]
        near = torch.linalg.vector_norm(beyond.clamp(min=0), dim=-1) <= self.geometry.reach * SLACK
        return keys[near], owner[near]

    # --- the grid ------------------------------------------------------------------------------------------------

    def _layout(self, i: int) -> tuple[float, int | None, list[int]]:
        """Along one dimension: the side of a cell, the number of cells on a circle, and steps to those around one."""
        side, period = self.geometry.reach * SLACK, (self.geometry.period or (None,) * self.dims)[i]
        if period is None:
            return side, None, [-1, 0, 1]
        n = max(1, int(period / side))
        return period / n, n, sorted({step % n for step in (-1, 0, 1)})

    def _place(self, at: Places) -> Float[Tensor, "rows dx"]:
        place = at.x.double() - self.origin
        return (place if at.moved is None else place + at.moved.double()).flatten(0, 1)

    def _grid(self, place: Float[Tensor, "rows dx"], fine: int = 1) -> Float[Tensor, "rows dims"]:
        """Whole numbers that say in which cell, or which part of `1 / fine` of its side, a place is."""
        columns = []
        for i, (side, n, _) in enumerate(self.around):
            column = torch.floor(place[:, i] * (fine / side)).clamp(-FARTHEST, FARTHEST)
            columns.append(column if n is None else column.remainder(n * fine))
        return torch.stack(columns, -1)

    def _cells_around(self, task: Int[Tensor, " c"], grid: Float[Tensor, "c dims"]) -> Int[Tensor, "c near"]:
        """Numbers of the occupied cells at and around those given; -1 where there is none."""
        found = task[:, None]
        for i, (values, table) in enumerate(self.levels):
            _, n, steps = self.around[i]
            column = grid[:, i, None] + grid.new_tensor(steps)
            rank = _find(values, column if n is None else column.remainder(n))
            code = found[:, :, None] * len(values) + rank[:, None]
            code = torch.where((found[:, :, None] >= 0) & (rank[:, None] >= 0), code, -1)
            found = _find(table, code.flatten(1))
        return found


def _number(
    task: Int[Tensor, " n"], grid: Float[Tensor, "n dims"]
) -> tuple[Int[Tensor, " n"], list[tuple[Tensor, Tensor]]]:
    """Numbers occupied cells of all tasks from zero, one dimension after the other, so that no product of extents can
    become too large; with the tables in which `Cells._cells_around` finds them again."""
    number, levels = task, []
    for column in grid.unbind(-1):
        values, rank = torch.unique(column, return_inverse=True)
        table, number = torch.unique(number * len(values) + rank, return_inverse=True)
        levels.append((values, table))
    return number, levels


def _find(table: Tensor, wanted: Tensor) -> Tensor:
    """Where in a sorted table something is; -1 where it is not."""
    at = torch.searchsorted(table, wanted.contiguous()).clamp(max=len(table) - 1)
    return torch.where(table[at] == wanted, at, -1)


def _pad(start: Int[Tensor, " n"], count: Int[Tensor, " n"]) -> tuple[Int[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Runs of whole numbers as rows of one length, and which of them are no padding (which repeats the first)."""
    steps = torch.arange(int(count.max()), device=start.device)
    there = steps < count[:, None]
    return start[:, None] + steps * there, there


def _there(at: Places, mask: Bool[Tensor, "b n"] | None) -> Int[Tensor, " rows"]:
    if mask is None:
        return torch.arange(at.x.shape[0] * at.x.shape[1], device=at.x.device)
    return mask.flatten().nonzero()[:, 0]


def _middle(x: Float[Tensor, "b n dx"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b 1 dx"]:
    """The median of those that are there, which, unlike a mean, no outlier takes far away."""
    if x.shape[1] == 0:
        return x.new_zeros(len(x), 1, x.shape[2], dtype=torch.float64)
    there = x.double() if mask is None else x.double().where(mask[..., None], torch.nan)
    return there.nanmedian(1, keepdim=True).values.nan_to_num(0.0)


def _detach(at: Places) -> Places:
    return Places(at.x.detach(), None if at.moved is None else at.moved.detach())


def _take(at: Places, rows: Int[Tensor, "blocks n"]) -> Places:
    x, moved = (None if t is None else _gather(t.flatten(0, 1), rows) for t in at)
    assert x is not None
    return Places(x, moved)


def _rows(t: Float[Tensor, "b h n d"]) -> Float[Tensor, "rows hd"]:
    return t.transpose(1, 2).flatten(2).flatten(0, 1)


def _gather(t: Float[Tensor, "rows c"], rows: Int[Tensor, "b n"]) -> Float[Tensor, "b n c"]:
    """`t[rows]`, the faster way."""
    return t.index_select(0, rows.flatten()).unflatten(0, rows.shape)
