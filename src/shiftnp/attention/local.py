"""Block-sparse local attention: a finite receptive field at linear cost, with neighbours from a cell list.

Keys are sorted into cells no smaller than the radius, so that the neighbours of a query lie in its own cell and in
the adjacent cells (a cell list, as in molecular dynamics). Queries close to each other form a block, whose keys are all
that at least one of them may attend to. A block is a small dense attention problem with its own mask; blocks of similar
size are padded and run together as one batch. Time and memory grow with the number of points times the number of
neighbours of each, and the result equals that of dense attention with a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shiftnp.attention.mask import AttentionMask, BlockGroup, BlockMask, PairMask
from shiftnp.geometry import Geometry, Positions

MOST_DIMS = 4
"""The grid of cells divides at most this many dimensions: a cell and its neighbours are `3^dims` cells."""
MOST_QUERIES = 32
"""Queries in a block, at most. More queries share gathered keys, at the cost of more padding."""
GROUP = (1 << 13, 1 << 17)
"""Smallest and largest number of pairs in a group of blocks: few for little padding, many for few calls."""

PART = 4
"""Approximate number of queries in a part of a cell; cells with more are subdivided."""
SLACK = 1 + 1e-5
"""Ratio of the cell size to the radius, above one so that rounding loses no neighbour."""
FARTHEST = 2.0**50
"""Largest cell index; points farther out share the last cell, so that indices stay exact in float64."""
ENDS = ("amin", "amax")


DenseAttention = Callable[[Tensor, Tensor, Tensor, Positions, Positions, PairMask], tuple[Tensor, Tensor | None]]
"""Attention of `q, k, v` at their positions: attended values, and the location update of the queries (eq. 8)."""


def attend(
    dense: DenseAttention,
    q: Float[Tensor, "b h nq dq"],
    k: Float[Tensor, "b h nk dk"],
    v: Float[Tensor, "b h nk dv"],
    at_q: Positions,
    at_k: Positions,
    mask: AttentionMask,
) -> tuple[Float[Tensor, "b h nq dv"], Float[Tensor, "b nq dx"] | None]:
    """Applies dense attention to all tokens at once or, with a block mask, block by block."""
    if not isinstance(mask, BlockMask):
        return dense(q, k, v, at_q, at_k, mask)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()  # once, and not for each group
    outs, steps = [v.new_zeros(1, v.shape[1] * v.shape[3])], []
    for group in mask.groups or _no_pairs(q, k):
        of_q, of_k, of_v = _gather_heads(q, group.q), _gather_heads(k, group.k), _gather_heads(v, group.k)
        out, step = dense(of_q, of_k, of_v, _take(at_q, group.q), _take(at_k, group.k), group.pairs)
        outs.append(_rows(out))
        if step is not None:
            steps.append(step.flatten(0, 1))
    out = _gather(torch.cat(outs), mask.row).unflatten(-1, (v.shape[1], -1)).transpose(1, 2)
    if not steps:
        return out, None
    no_step = steps[0].new_zeros(1, steps[0].shape[-1])
    return out, _gather(torch.cat([no_step, *steps]), mask.row)


def _no_pairs(q: Float[Tensor, "b h nq dq"], k: Float[Tensor, "b h nk dk"]) -> list[BlockGroup]:
    """A block of one query and one key that does not attend, so that every parameter gets a gradient, of zero."""
    if not q.shape[0] * q.shape[2] or not k.shape[2]:
        return []
    row = torch.zeros(1, 1, dtype=torch.long, device=q.device)
    return [BlockGroup(row, row, torch.zeros(1, 1, 1, dtype=torch.bool, device=q.device))]


class CellList:
    """The keys of all tasks, sorted into cells no smaller than the radius.

    Args:
        at: positions of the keys. Cells are relative to their median, so that large coordinates keep their precision.
        mask: True for keys that are present; the others (padding) are left out.
    """

    def __init__(self, geometry: Geometry, at: Positions, mask: Bool[Tensor, "b n"] | None = None) -> None:
        self.geometry, self.at = geometry, _detach(at)
        self.origin = _median(self.at.x, mask)
        self.dims = min(MOST_DIMS, at.x.shape[-1])
        self.around = [self._layout(i) for i in range(self.dims)]
        self.rows = _present(self.at, mask)
        self.place = self._coordinates(self.at)[self.rows]
        number, self.levels = _number(self.rows // at.x.shape[1], self._grid(self.place))
        order = number.argsort(stable=True)
        self.rows, self.place = self.rows[order], self.place[order]
        self.size = torch.bincount(number)
        self.start = self.size.cumsum(0) - self.size

    @property
    def mean_neighbours(self) -> int:
        """Approximate mean number of keys in the cells around a key."""
        return 0 if len(self.rows) == 0 else 3**self.dims * int(self.size.square().sum()) // len(self.rows)

    def order(self, x: Float[Tensor, "1 n dx"]) -> Int[Tensor, " n"]:
        """A permutation of the queries of a single task that sorts them by cell, so that a chunk holds neighbours."""
        return _number(torch.zeros_like(x[0, :, 0], dtype=torch.long), self._grid(self._coordinates(Positions(x))))[
            0
        ].argsort()

    def neighbours(self, at: Positions, mask: Bool[Tensor, "b n"] | None, dtype: torch.dtype) -> BlockMask:
        """The keys within the radius of each query; masked queries have none.

        Args:
            dtype: dtype of the displacements, the same as for a dense mask, so that both select the same pairs.
        """
        at = _detach(at)
        b, n, _ = at.x.shape
        row = torch.zeros(b * n, dtype=torch.long, device=at.x.device)
        rows = _present(at, mask)
        groups: list[BlockGroup] = []
        some = [row.new_zeros(1, dtype=torch.bool)]
        if len(rows) and len(self.rows):
            count = 1
            for group, valid in self._groups(at, rows, dtype):
                slot = torch.arange(valid.numel(), device=row.device) + count
                row[group.q[valid]] = slot[valid.flatten()]
                count += valid.numel()
                some.append(group.pairs.any(-1).flatten())
                groups.append(group)
        row = row.view(b, n)
        return BlockMask(groups, row, torch.cat(some)[row][..., None])

    def _groups(
        self, at: Positions, rows: Tensor, dtype: torch.dtype
    ) -> Iterator[tuple[BlockGroup, Bool[Tensor, "b n"]]]:
        """Blocks of similar size, and which of their queries are not padding."""
        rows, start, nq, keys, nk = self._blocks(at, rows)
        first = nk.cumsum(0) - nk
        # Blocks sorted by number of queries, then by number of keys, alternately ascending and descending.
        zigzag = torch.where(nq % 2 == 0, nk, nk.max() - nk)
        order = (nq * (nk.max() + 1) + zigzag).argsort(stable=True)
        order = order[nk[order] > 0]
        work = (nq * nk)[order].cumsum(0)
        part = work // max(GROUP[0], min(GROUP[1], int(work[-1]) // 16 + 1)) if len(work) else work
        for blocks in order.split(torch.unique_consecutive(part, return_counts=True)[1].tolist()):
            i, valid_q = _pad(start[blocks], nq[blocks])
            j, valid_k = _pad(first[blocks], nk[blocks])
            q, k = rows[i], self.rows[keys[j]]
            d = self.geometry.displacement(_take(at, q), _take(self.at, k), dtype)
            near = self.geometry.within_reach(d)
            yield BlockGroup(q, k, near & valid_q[:, :, None] & valid_k[:, None]), valid_q

    def _blocks(self, at: Positions, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Sorted queries, with the start and number of queries of each block; keys, and the number of each block."""
        coordinates = self._coordinates(at)[rows]
        task = rows // at.x.shape[1]
        # In cells with many queries, blocks are parts of cells: the closer queries are, the more keys they share.
        number, _ = _number(task, self._grid(coordinates))
        fine = max(1, min(4, int((len(rows) / (1 + int(number.max())) / PART) ** (1 / self.dims))))
        grid = self._grid(coordinates, fine)
        if fine > 1:
            number, _ = _number(task, grid)
        order = number.argsort(stable=True)
        number, rows, coordinates, task = number[order], rows[order], coordinates[order], task[order]
        size = torch.bincount(number)
        rank = torch.arange(len(rows), device=rows.device) - (size.cumsum(0) - size)[number]
        # Cells with more than MOST_QUERIES queries are split into several blocks.
        most = int(size.max()) // MOST_QUERIES + 1
        _, block, nq = torch.unique_consecutive(
            number * most + rank // MOST_QUERIES, return_inverse=True, return_counts=True
        )
        start = nq.cumsum(0) - nq
        cells = self._cells_around(task[start], torch.floor_divide(grid[order[start]], fine))
        keys, owner = self._prune(cells, coordinates, block, start)
        return rows, start, nq, keys, torch.bincount(owner, minlength=len(nq))

    def _prune(self, cells: Tensor, coordinates: Tensor, block: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Keys in the cells around each block within the radius of the bounding box of its queries; and their block."""
        apart = self.geometry.wrap(coordinates - coordinates[start][block])
        where = block[:, None].expand_as(apart)
        low, high = (apart.new_zeros(len(start), apart.shape[1]).scatter_reduce(0, where, apart, f) for f in ENDS)
        centre, half = coordinates[start] + (low + high) / 2, (high - low) / 2
        size = torch.where(cells >= 0, self.size[cells], 0)
        owner = torch.arange(len(cells), device=cells.device).repeat_interleave(size.sum(1))
        size, begin = size.flatten(), self.start[cells].flatten()
        keys = torch.arange(len(owner), device=owner.device) + (begin - size.cumsum(0) + size).repeat_interleave(size)
        beyond = self.geometry.wrap(self.place[keys] - centre[owner]).abs() - half[owner]
        near = torch.linalg.vector_norm(beyond.clamp(min=0), dim=-1) <= self.geometry.reach * SLACK
        return keys[near], owner[near]

    # --- the grid ------------------------------------------------------------------------------------------------

    def _layout(self, i: int) -> tuple[float, int | None, list[int]]:
        """Along one dimension: side of a cell, number of cells if it is periodic, offsets to a cell's neighbours."""
        side, period = self.geometry.reach * SLACK, self.geometry.period_of(i)
        if period is None:
            return side, None, [-1, 0, 1]
        n = max(1, int(period / side))
        return period / n, n, sorted({step % n for step in (-1, 0, 1)})

    def _coordinates(self, at: Positions) -> Float[Tensor, "rows dx"]:
        """Coordinates relative to the origin of the cells, tasks flattened."""
        x = at.x.double() - self.origin
        return (x if at.offset is None else x + at.offset.double()).flatten(0, 1)

    def _grid(self, coordinates: Float[Tensor, "rows dx"], fine: int = 1) -> Float[Tensor, "rows dims"]:
        """Integer cell indices of coordinates, or those of cells `fine` times as small."""
        columns = []
        for i, (side, n, _) in enumerate(self.around):
            column = torch.floor(coordinates[:, i] * (fine / side)).clamp(-FARTHEST, FARTHEST)
            columns.append(column if n is None else column.remainder(n * fine))
        return torch.stack(columns, -1)

    def _cells_around(self, task: Int[Tensor, " c"], grid: Float[Tensor, "c dims"]) -> Int[Tensor, "c near"]:
        """Numbers of the given cells and their neighbours; -1 for cells without keys."""
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
    """Numbers the occupied cells of all tasks from zero, one dimension after the other, so that no product of extents
    overflows; also returns the lookup tables of `CellList._cells_around`."""
    number, levels = task, []
    for column in grid.unbind(-1):
        values, rank = torch.unique(column, return_inverse=True)
        table, number = torch.unique(number * len(values) + rank, return_inverse=True)
        levels.append((values, table))
    return number, levels


def _find(table: Tensor, wanted: Tensor) -> Tensor:
    """Indices of the `wanted` entries in a sorted table; -1 for entries that it does not hold."""
    at = torch.searchsorted(table, wanted.contiguous()).clamp(max=len(table) - 1)
    return torch.where(table[at] == wanted, at, -1)


def _pad(start: Int[Tensor, " n"], count: Int[Tensor, " n"]) -> tuple[Int[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Ranges of indices as rows of equal length, padded with their first entry, and the mask of entries that are not
    padding."""
    steps = torch.arange(int(count.max()), device=start.device)
    valid = steps < count[:, None]
    return start[:, None] + steps * valid, valid


def _present(at: Positions, mask: Bool[Tensor, "b n"] | None) -> Int[Tensor, " rows"]:
    """Row numbers of the tokens that are not masked out, tasks flattened."""
    if mask is None:
        return torch.arange(at.x.shape[0] * at.x.shape[1], device=at.x.device)
    return mask.flatten().nonzero()[:, 0]


def _median(x: Float[Tensor, "b n dx"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b 1 dx"]:
    """The median of the unmasked positions, which, unlike their mean, is robust to outliers."""
    if x.shape[1] == 0:
        return x.new_zeros(len(x), 1, x.shape[2], dtype=torch.float64)
    present = x.double() if mask is None else x.double().where(mask[..., None], torch.nan)
    return present.nanmedian(1, keepdim=True).values.nan_to_num(0.0)


def _detach(at: Positions) -> Positions:
    return Positions(at.x.detach(), None if at.offset is None else at.offset.detach())


def _take(at: Positions, rows: Int[Tensor, "blocks n"]) -> Positions:
    x, offset = (None if t is None else _gather(t.flatten(0, 1), rows) for t in at)
    assert x is not None
    return Positions(x, offset)


def _rows(t: Float[Tensor, "b h n d"]) -> Float[Tensor, "rows hd"]:
    return t.transpose(1, 2).flatten(2).flatten(0, 1)


def _gather_heads(t: Float[Tensor, "b h n d"], rows: Int[Tensor, "blocks m"]) -> Float[Tensor, "blocks h m d"]:
    """The tokens in those rows, tasks flattened, heads first; from tokens of one head that follow each other."""
    _, h, n, d = t.shape
    first = (rows // n * h)[:, None] + torch.arange(h, device=t.device)[:, None]
    at = first * n + (rows % n)[:, None]
    return t.reshape(-1, d).index_select(0, at.flatten()).view(*at.shape, d)


def _gather(t: Float[Tensor, "rows c"], rows: Int[Tensor, "b n"]) -> Float[Tensor, "b n c"]:
    """`t[rows]`, through `index_select`, which is faster."""
    return t.index_select(0, rows.flatten()).unflatten(0, rows.shape)
