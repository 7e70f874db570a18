"""Tiled attention with activation recomputation: eqs. 5, 6 and 8 of the paper in memory linear in the number of points.

The specification, `reference.py`, writes the hidden activations of the pairwise MLPs `rho` and `phi` to memory for
every pair and keeps them for the backward pass. Here a tile of rows (some queries with all their keys) goes from scores
to outputs in buffers that fit the processor's cache and that the next tile reuses; the backward pass recomputes the
activations tile by tile. A row with more keys than a tile holds streams through the MLPs in parts, and only its scores,
one number for each key and head, are held at once. Between the passes only queries, keys, values and positions are
kept, and scores and weights if they are few. Pairs that the mask excludes do not go through the MLPs (unless they are
few): local attention has more of them than of others. Each thread runs whole tiles (`threads.py`).

Where the time goes: for each pair and MLP there are four products with a matrix of the MLP's width (forward,
recomputation, two in the backward pass), which no layout makes cheaper; the plain formula needs three of them, so in
float32 all that tiles can save is memory traffic. `shiftnp bench attention` times these products alone beside whole
steps. What is left are products with few rows or columns (scores, displacements, heads), ReLUs and the softmax.

Same parameters and same function as the reference, tested for values and gradients. Plain torch operations; not run on
a GPU yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.attention import threads
from shiftnp.attention.buffers import buffer
from shiftnp.attention.mask import PairMask
from shiftnp.attention.pair_mlp import BufferedMLP, MLPWeights
from shiftnp.attention.precision import bf16_pays
from shiftnp.attention.products import product
from shiftnp.geometry import Geometry, Positions

TILE_BYTES = 1 << 20
"""Size of a tile's activations of a hidden layer, which fit the cache of a core: 2,048 pairs at a width of 128."""
LARGEST_TILE = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Pairs in a tile, at most."""

SLICES = 16
"""Slices of a tile, at most, that go through the MLPs one after the other: all other operations are faster on few large
tiles. A tile whose activations are used after it has one slice."""
TILES = 2
"""Tiles for each thread, at least, so that none waits long for the others."""

KEPT = 1 << 22
"""Scores, displacements and weights of a call that are kept for the backward pass if there are no more than this."""

SPARSE = 0.9
"""If a smaller fraction of the pairs than this attends, the others do not go through the MLPs."""

LOW_PRECISION: bool | None = None
"""Whether the pairwise MLPs use bfloat16 where it is allowed (None: where it measures faster than float32)."""
_allowed = ContextVar("_allowed", default=False)
_decided: ContextVar[bool | None] = ContextVar("_decided", default=None)


@contextmanager
def low_precision(pays: bool | None = None) -> Iterator[None]:
    """Context manager that allows bfloat16 in the pairwise MLPs, as autocast would, and nowhere else.

    Args:
        pays: whether it is used, also under autocast. None: where it measures faster than float32.
    """
    allowed, decided = _allowed.set(True), _decided.set(pays)
    try:
        yield
    finally:
        _allowed.reset(allowed)
        _decided.reset(decided)


def allows_low_precision(device: torch.device) -> bool:
    """Whether the pairwise MLPs may run in bfloat16: inside `low_precision` or under autocast."""
    return _allowed.get() or torch.is_autocast_enabled(device.type)


def uses_low_precision(device: torch.device, width: int, pairs: int | None = None) -> bool:
    """Whether MLPs of that width run in bfloat16 for so many pairs: it is allowed, and faster than float32."""
    if not allows_low_precision(device):
        return False
    decided = _decided.get()
    return low_precision_pays(device, width, pairs) if decided is None else decided


def low_precision_pays(device: torch.device, width: int, rows: int | None = None) -> bool:
    """Whether MLPs of that width are faster in bfloat16 than in float32 on that device, see `bf16_pays`."""
    return bf16_pays(device, width, rows) if LOW_PRECISION is None else LOW_PRECISION


def attend(
    q: Float[Tensor, "b h nq d"],
    k: Float[Tensor, "b h nk d"],
    v: Float[Tensor, "b h nk dv"],
    at_q: Positions,
    at_k: Positions,
    rho: MLPWeights,
    phi: MLPWeights | None = None,
    geometry: Geometry | None = None,
    pairs: PairMask = None,
    tile: int | None = None,
    low_precision: bool = False,
) -> tuple[Float[Tensor, "b h nq dv"], Float[Tensor, "b nq dx"] | None]:
    """Attended values (eqs. 5 and 6) and, with `phi`, the location update of every query (eq. 8).

    Args:
        tile: pairs in a tile (None: `tile_size`).
        low_precision: run the pairwise MLPs in bfloat16, with matrix products accumulated in float32.
    """
    keep = torch.is_grad_enabled() and len(q) * q.shape[2] * k.shape[2] * (rho.w1.shape[1] + len(rho.w3) + 2) <= KEPT
    size = tile or tile_size(q.device, len(rho.b1), 2 if low_precision else 4)
    settings = (geometry or Geometry(), size, low_precision, keep)
    tensors = (q, k, v, at_q.x, at_k.x, at_q.offset, at_k.offset, pairs)
    out, step = TiledAttention.apply(settings, *tensors, *rho[:5], *(phi or ()))
    return out, step if phi is not None else None


def tile_size(device: torch.device, width: int, itemsize: int = 4) -> int:
    """Number of pairs in a tile, for pairwise MLPs of that width whose activations have so many bytes each."""
    if device.type != "cpu":
        return LARGEST_TILE["cuda"]
    return min(LARGEST_TILE["cpu"], max(1024, TILE_BYTES // (width * itemsize)))


class TiledAttention(torch.autograd.Function):
    """The autograd function of `attend`; its backward pass recomputes activations tile by tile."""

    @staticmethod
    def forward(ctx: Any, settings: Any, *tensors: Any) -> Any:
        ctx.settings = settings
        ctx.save_for_backward(*tensors)
        q, v, xq = tensors[0], tensors[2], tensors[3]
        with torch.autocast(q.device.type, enabled=False):
            work = TiledPass(settings, *tensors, sliced=True)
            b, h, nq, _ = q.shape
            out = q.new_empty(h, b, nq, v.shape[-1], dtype=v.dtype)
            step = q.new_zeros(xq.shape, dtype=work.dtype)
            tiles = list(work.tiles())
            ctx.kept = [None] * len(tiles) if work.keeps else []
            remaining = iter(enumerate(tiles))  # threads take tiles from it

            def forward() -> None:
                nets = work.nets()
                for i, (tasks, rows) in remaining:
                    tile = work.tile(nets, tasks, rows)
                    out[:, tasks, rows] = product(tile.alpha, work.v[:, tasks])
                    if tile.weight is not None:
                        step[tasks, rows] = (tile.weight * tile.smooth).sum(-1).movedim(0, -1)
                    if work.keeps:
                        ctx.kept[i] = tile

            threads.run([forward] * threads.count(q.device, len(tiles)))
        return out.transpose(0, 1), step

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor, dstep: Tensor) -> Any:
        with torch.autocast(dout.device.type, enabled=False):
            # Without kept tiles, the activations of a recomputed tile are used while they are in the buffers.
            work = TiledPass(ctx.settings, *ctx.saved_tensors, sliced=bool(ctx.kept))
            positions = any(ctx.needs_input_grad[4:8])
            gradients = work.gradients(dout.to(work.dtype), dstep.to(work.dtype), positions, ctx.kept)
        pairs = zip(gradients, ctx.saved_tensors, strict=True)
        return None, *(None if g is None or t is None else g.to(t.dtype) for g, t in pairs)


class Tile(NamedTuple):
    """Intermediate results for some queries and all keys of some tasks, heads or dimensions first."""

    at: Int[Tensor, " p"] | None  # the pairs that go through the MLPs, tasks, queries and keys flattened; None: all
    inputs: Float[Tensor, "d_in p"]  # of rho: scores and displacement features of these pairs
    d: Float[Tensor, "dx b n nk"]
    smooth: Float[Tensor, "dx b n nk"]
    alpha: Float[Tensor, "h b n nk"]
    weight: Float[Tensor, "b n nk"] | None  # of eq. 8, with its constant C
    scale: Float[Tensor, "b n nk"] | float  # C, and zero where a query does not attend to a key


class Nets(NamedTuple):
    """The pairwise MLPs of one thread."""

    rho: BufferedMLP
    phi: BufferedMLP | None


class TiledPass:
    """A forward or backward pass over all tiles, with the tensors that the tiles share."""

    def __init__(
        self,
        settings: tuple[Geometry, int, bool, bool],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        xq: Tensor,
        xk: Tensor,
        offset_q: Tensor | None,
        offset_k: Tensor | None,
        pairs: PairMask,
        *weights: Tensor,
        sliced: bool,
    ) -> None:
        self.geometry, size, low, self.keeps = settings
        self.dtype = torch.promote_types(weights[0].dtype, torch.float32)
        self.scale = q.shape[-1] ** -0.5
        q, k, v = (t.to(self.dtype).transpose(0, 1) for t in (q, k, v))  # heads first
        self.q, self.k, self.v = (q * self.scale).contiguous(), k.contiguous(), v.contiguous()
        self.xq, self.xk, self.offset_q, self.offset_k, self.pairs = xq, xk, offset_q, offset_k, pairs
        # Only the weights of a query without keys have to be set to zero after the softmax.
        self.lonely = pairs is not None and not bool(pairs.any(-1).all())
        number = q.shape[1] * q.shape[2] * k.shape[2]
        share = number // (TILES * threads.count(q.device, number) * size)
        self.rows, self.size = min(size, number), size * max(1, min(SLICES, share)) if sliced else size
        dense = 1.0 if pairs is None or not pairs.numel() else int(pairs.count_nonzero()) / pairs.numel()
        self.sparse = dense < SPARSE
        if self.sparse:  # a tile holds more pairs, so that those that attend nearly fill it
            self.size = int(self.size / max(dense / 0.9, 0.1))
        self.weights, self.mlp_dtype = weights, torch.bfloat16 if low else self.dtype

    def nets(self) -> Nets:
        """The MLPs, with buffers of the current thread."""
        rho = BufferedMLP("rho", MLPWeights(*self.weights[:5]), self.rows, self.mlp_dtype)
        if len(self.weights) == 5:
            return Nets(rho, None)
        phi = MLPWeights(*self.weights[5:])
        assert phi.b3 is not None
        # Eq. 8 wants the sum of the outputs, which is one output of summed weights.
        summed = phi._replace(w3=phi.w3.sum(0, keepdim=True), b3=phi.b3.sum(0, keepdim=True))
        return Nets(rho, BufferedMLP("phi", summed, self.rows, self.mlp_dtype))

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """Slices of tasks and queries for each tile: several small tasks, or some queries of one task."""
        _, b, nq, _ = self.q.shape
        nk = self.k.shape[2]
        tasks = even(b, max(1, self.size // max(1, nq * nk)))
        rows = even(nq, max(1, self.size // nk))
        for i in range(0, b, tasks):
            for j in range(0, nq, rows):
                yield slice(i, min(b, i + tasks)), slice(j, min(nq, j + rows))

    def tile(self, nets: Nets, b: slice, n: slice) -> Tile:
        """Computes eqs. 5 and 6 and the weights of eq. 8 for the tasks `b` and the queries `n`."""
        q, k, heads = self.q[:, b, n], self.k[:, b], len(self.q)
        shape = (*q.shape[1:3], k.shape[2])
        size = (nets.rho.net.w1.shape[1], *shape)
        inputs = q.new_empty(size) if self.keeps else buffer("inputs", size, self.dtype, q.device)
        torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT, out=inputs[:heads].flatten(0, 1))
        d = self._displacement(b, n, inputs[heads:])
        pairs = self.pairs if self.pairs is None else self.pairs[b] if self.pairs.shape[1] == 1 else self.pairs[b, n]
        at = pairs.expand(shape).flatten().nonzero()[:, 0] if pairs is not None and self.sparse else None
        of_pairs = take(inputs.flatten(1), at)
        lowest = torch.finfo(self.dtype).min
        logits = put(nets.rho(of_pairs), at, shape, lowest)
        if pairs is not None and at is None:
            logits.masked_fill_(~pairs, lowest)
        alpha = logits.softmax(-1)
        if pairs is not None and self.lonely:
            alpha *= pairs
        if nets.phi is None:
            return Tile(at, of_pairs, d, d, alpha, None, 0.0)
        scale: Tensor | float = 1 / shape[2]
        if pairs is not None:
            scale = pairs / pairs.sum(-1, keepdim=True).clamp(min=1).to(self.dtype)
        weight = put(nets.phi(take(alpha.flatten(1), at)), at, shape)[0] * scale
        smooth = self.geometry.smooth(d.movedim(0, -1)).movedim(-1, 0)
        return Tile(at, of_pairs, d, smooth, alpha, weight, scale)

    def _displacement(self, b: slice, n: slice, features: Float[Tensor, "f b n nk"]) -> Float[Tensor, "dx b n nk"]:
        """Displacements; writes their features."""
        xq, xk = self.xq[b, n], self.xk[b]
        offset_q, offset_k = (None if t is None else t[b] for t in (self.offset_q, self.offset_k))
        offset_q = offset_q if offset_q is None else offset_q[:, n]
        if self.geometry.period is not None:
            d = self.geometry.displacement(Positions(xq, offset_q), Positions(xk, offset_k), self.dtype)
            features.copy_(self.geometry.features(d).movedim(-1, 0))
            return d.movedim(-1, 0)
        for i, d in enumerate(features):  # what `Geometry.displacement` does, in place
            torch.sub(xq[:, :, None, i], xk[:, None, :, i], out=d)
            if offset_q is not None:
                d += offset_q[:, :, None, i]
            if offset_k is not None:
                d -= offset_k[:, None, :, i]
        return features

    def gradients(
        self,
        dout: Float[Tensor, "b h nq dv"],
        dstep: Float[Tensor, "b nq dx"],
        positions: bool,
        kept: Sequence[Tile] = (),
    ) -> list[Tensor | None]:
        """Gradients of all tensor arguments of `__init__`, in its order; those of positions only if `positions`.

        Args:
            kept: the tiles of the forward pass, if they were kept.
        """
        tiles, heads, dout = list(self.tiles()), len(self.q), dout.transpose(0, 1).contiguous()
        dq, dxq = torch.zeros_like(self.q), self.q.new_zeros(self.xq.shape)
        number = threads.count(self.q.device, len(tiles))
        sums: list[Any] = [None] * number

        def backward(thread: int) -> None:
            nets, keys = self.nets(), (torch.zeros_like(self.k), torch.zeros_like(self.v), dxq.new_zeros(self.xk.shape))
            dk, dv, dxk = keys
            # A contiguous share of the tiles, so that sums do not depend on which thread is faster.
            for i in range(thread * len(tiles) // number, (thread + 1) * len(tiles) // number):
                b, n = tiles[i]
                tile = kept[i] if kept else self.tile(nets, b, n)
                at, alpha, douts = tile.at, tile.alpha, dout[:, b, n]
                dalpha = product(douts, self.v[:, b].mT)
                dv[:, b] += product(alpha.mT, douts)
                along = dstep[b, n].movedim(-1, 0)[..., None]
                if nets.phi is not None:
                    dweight = (tile.smooth * along).sum(0) * tile.scale
                    arguments = take(alpha.flatten(1), at), take(dweight.view(1, -1), at)
                    dalpha += put(nets.phi.backward(*arguments, recompute=bool(kept)), at, alpha.shape[1:])
                dlogits = torch._softmax_backward_data(dalpha, alpha, -1, alpha.dtype)
                back = nets.rho.backward(tile.inputs, take(dlogits.flatten(1), at), recompute=bool(kept))
                back = put(back, at, alpha.shape[1:])
                dq[:, b, n] = product(back[:heads], self.k[:, b])
                dk[:, b] += product(back[:heads].mT, self.q[:, b, n])
                if positions:
                    dsmooth = None if tile.weight is None else (tile.weight * along).movedim(0, -1)
                    dd = self.geometry.vjp(tile.d.movedim(0, -1), back[heads:].movedim(0, -1), dsmooth)
                    dxq[b, n] = dd.sum(2)
                    dxk[b] -= dd.sum(1)
            sums[thread] = [*keys, *nets.rho.gradients(), *([] if nets.phi is None else nets.phi.gradients())]

        threads.run([partial(backward, thread) for thread in range(number)])
        dk, dv, dxk, *of_nets = (sum(of_threads[1:], of_threads[0]) for of_threads in zip(*sums, strict=True))
        of_rho, of_phi = of_nets[:5], of_nets[5:]
        if of_phi:
            *first, w3, b3 = of_phi
            of_phi = [*first, w3.expand(len(self.weights[9]), -1), b3.expand(len(self.weights[9]))]
        of_positions: list[Tensor | None] = [dxq, dxk, dxq, dxk] if positions else [None] * 4
        of_tokens = [t.transpose(0, 1) for t in (dq * self.scale, dk, dv)]
        return [*of_tokens, *of_positions, None, *of_rho, *of_phi]


def take(values: Float[Tensor, "c all"], at: Int[Tensor, " p"] | None) -> Float[Tensor, "c p"]:
    """The values of some pairs, or of all."""
    return values if at is None else values.index_select(1, at)


def put(
    values: Float[Tensor, "c p"], at: Int[Tensor, " p"] | None, shape: Sequence[int], others: float = 0.0
) -> Float[Tensor, "c b n nk"]:
    """The inverse of `take`, with a value for all other pairs."""
    if at is None:
        return values.unflatten(1, shape)
    return values.new_full((len(values), prod(shape)), others).index_copy_(1, at, values).unflatten(1, shape)


def even(n: int, most: int) -> int:
    """The size of the parts if `n` things are divided evenly into as few parts of at most `most` as possible."""
    return max(1, -(-n // max(1, -(-n // most))))
