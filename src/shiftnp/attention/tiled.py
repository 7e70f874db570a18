"""Tiled attention with activation recomputation: eqs. 5, 6 and 8 of the paper in memory linear in the number of points.

The specification, `reference.py`, writes the hidden activations of the pairwise MLPs `rho` and `phi` to memory for
every pair and keeps them for the backward pass. Here a tile of rows (some queries with all their keys) goes from scores
to outputs in buffers that fit the processor's cache and that the next tile reuses; the backward pass recomputes the
activations tile by tile. A row with more keys than a tile holds streams through the MLPs in parts, and only its scores,
one number for each key and head, are held at once. Between the passes only queries, keys, values and positions are
kept.

Same parameters and same function as the reference, tested for values and gradients. Plain torch operations; not run on
a GPU yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from shiftnp.attention.mask import PairMask
from shiftnp.attention.precision import bf16_pays
from shiftnp.attention.reference import softmax_over_keys
from shiftnp.geometry import Geometry, Positions

ACTIVATIONS = 1 << 19
"""Hidden activations of a layer that a tile holds on a CPU: few enough for the cache, 4,096 pairs at a width of 128."""
LARGEST_TILE = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Pairs in a tile, at most."""

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


class MLPWeights(NamedTuple):
    """Weights of an MLP with two hidden layers: `w3 relu(w2 relu(w1 x + b1) + b2) + b3`."""

    w1: Float[Tensor, "w d_in"]
    b1: Float[Tensor, " w"]
    w2: Float[Tensor, "w w"]
    b2: Float[Tensor, " w"]
    w3: Float[Tensor, "d_out w"]
    b3: Float[Tensor, " d_out"] | None = None

    @staticmethod
    def of(layers: Iterable[Any]) -> MLPWeights:
        """The weights of three linear layers."""
        first, second, last = layers
        return MLPWeights(first.weight, first.bias, second.weight, second.bias, last.weight, last.bias)


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
    settings = (geometry or Geometry(), tile or tile_size(q.device, len(rho.b1)), low_precision)
    tensors = (q, k, v, at_q.x, at_k.x, at_q.offset, at_k.offset, pairs)
    out, step = TiledAttention.apply(settings, *tensors, *rho[:5], *(phi or ()))
    return out, step if phi is not None else None


def tile_size(device: torch.device, width: int) -> int:
    """Number of pairs in a tile, for pairwise MLPs of that width."""
    if device.type != "cpu":
        return LARGEST_TILE["cuda"]
    return min(LARGEST_TILE["cpu"], max(1024, ACTIVATIONS // width))


class TiledAttention(torch.autograd.Function):
    """The autograd function of `attend`; its backward pass recomputes activations tile by tile."""

    @staticmethod
    def forward(ctx: Any, settings: Any, *tensors: Any) -> Any:
        ctx.settings = settings
        ctx.save_for_backward(*tensors)
        q, v, xq = tensors[0], tensors[2], tensors[3]
        with torch.autocast(q.device.type, enabled=False):
            work = TiledPass(settings, *tensors)
            out = q.new_empty(*q.shape[:3], v.shape[-1], dtype=v.dtype)
            step = q.new_zeros(xq.shape, dtype=work.dtype)
            for rows in work.tiles():
                tile = work.tile(*rows)
                b, n = rows
                out[b, :, n] = tile.alpha @ work.v[b]
                if tile.weight is not None:
                    step[b, n] = (tile.weight[..., None] * tile.smooth).sum(-2)
        return out, step

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor, dstep: Tensor) -> Any:
        with torch.autocast(dout.device.type, enabled=False):
            work = TiledPass(ctx.settings, *ctx.saved_tensors)
            gradients = work.gradients(dout.to(work.dtype), dstep.to(work.dtype), any(ctx.needs_input_grad[4:8]))
        pairs = zip(gradients, ctx.saved_tensors, strict=True)
        return None, *(None if g is None or t is None else g.to(t.dtype) for g, t in pairs)


class Tile(NamedTuple):
    """Intermediate results for some queries and all keys of some tasks."""

    inputs: Float[Tensor, "p d_in"]  # of rho: scores and displacement features, pair by pair
    d: Float[Tensor, "b n nk dx"]
    smooth: Float[Tensor, "b n nk dx"]
    alpha: Float[Tensor, "b h n nk"]
    weight: Float[Tensor, "b n nk"] | None  # of eq. 8, with its constant C
    scale: Float[Tensor, "b n nk"] | float  # C, and zero where a query does not attend to a key


class TiledPass:
    """A forward or backward pass over all tiles, with the tensors and buffers that the tiles share."""

    def __init__(
        self,
        settings: tuple[Geometry, int, bool],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        xq: Tensor,
        xk: Tensor,
        offset_q: Tensor | None,
        offset_k: Tensor | None,
        pairs: PairMask,
        *weights: Tensor,
    ) -> None:
        self.geometry, self.size, low = settings
        self.dtype = torch.promote_types(weights[0].dtype, torch.float32)
        self.scale = q.shape[-1] ** -0.5
        self.q, self.k, self.v = q.to(self.dtype) * self.scale, k.to(self.dtype), v.to(self.dtype)
        self.xq, self.xk, self.offset_q, self.offset_k, self.pairs = xq, xk, offset_q, offset_k, pairs
        pairs_at_most = min(self.size, q.shape[0] * q.shape[2] * k.shape[2])
        scratch = q.new_empty(pairs_at_most, len(weights[1]), dtype=torch.bfloat16 if low else self.dtype)
        self.rho = BufferedMLP(MLPWeights(*weights[:5]), scratch)
        self.phi: BufferedMLP | None = None
        if len(weights) > 5:
            phi = MLPWeights(*weights[5:])
            assert phi.b3 is not None
            # Eq. 8 wants the sum of the outputs, which is one output of summed weights.
            summed = phi._replace(w3=phi.w3.sum(0, keepdim=True), b3=phi.b3.sum(0, keepdim=True))
            self.phi = BufferedMLP(summed, scratch)
            self.phi_outputs = len(phi.w3)

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """Slices of tasks and queries for each tile: several small tasks, or some queries of one task."""
        b, _, nq, _ = self.q.shape
        nk = self.k.shape[2]
        tasks, rows = max(1, self.size // max(1, nq * nk)), max(1, self.size // nk)
        for i in range(0, b, tasks):
            for j in range(0, nq, rows):
                yield slice(i, i + tasks), slice(j, min(nq, j + rows))

    def tile(self, b: slice, n: slice) -> Tile:
        """Computes eqs. 5 and 6 and the weights of eq. 8 for the tasks `b` and the queries `n`."""
        at_q = Positions(self.xq[b, n], None if self.offset_q is None else self.offset_q[b, n])
        at_k = Positions(self.xk[b], None if self.offset_k is None else self.offset_k[b])
        d = self.geometry.displacement(at_q, at_k, self.dtype)
        scores = self.q[b, :, n] @ self.k[b].mT
        inputs = torch.cat([scores.movedim(1, -1), self.geometry.features(d)], -1)
        shape, inputs = inputs.shape[:3], inputs.flatten(0, 2)
        pairs = self.pairs if self.pairs is None else self.pairs[b] if self.pairs.shape[1] == 1 else self.pairs[b, n]
        alpha = softmax_over_keys(self.rho(inputs).unflatten(0, shape).movedim(-1, 1).contiguous(), pairs)
        if self.phi is None:
            return Tile(inputs, d, d, alpha, None, 0.0)
        scale: Tensor | float = 1 / d.shape[2]
        if pairs is not None:
            scale = pairs / pairs.sum(-1, keepdim=True).clamp(min=1).to(self.dtype)
        weight = self.phi(self.by_pair(alpha))[:, 0].unflatten(0, shape) * scale
        return Tile(inputs, d, self.geometry.smooth(d), alpha, weight, scale)

    @staticmethod
    def by_pair(t: Float[Tensor, "b h n nk"]) -> Float[Tensor, "p h"]:
        """One row for each pair of query and key, one column for each head."""
        return t.movedim(1, -1).flatten(0, 2)

    def gradients(self, dout: Tensor, dstep: Tensor, positions: bool) -> list[Tensor | None]:
        """Gradients of all tensor arguments of `__init__`, in its order; those of positions only if `positions`."""
        dq, dk, dv = (torch.zeros_like(t) for t in (self.q, self.k, self.v))
        dxq, dxk = (self.q.new_zeros(t.shape) for t in (self.xq, self.xk))
        heads = self.q.shape[1]
        for b, n in self.tiles():
            tile = self.tile(b, n)
            shape = tile.d.shape[:3]
            dalpha = dout[b, :, n] @ self.v[b].mT
            dv[b] += tile.alpha.mT @ dout[b, :, n]
            along = dstep[b, n][:, :, None]
            if self.phi is not None:
                dweight = (tile.smooth * along).sum(-1) * tile.scale
                back = self.phi.backward(self.by_pair(tile.alpha), dweight.flatten()[:, None])
                dalpha += back.unflatten(0, shape).movedim(-1, 1)
            dlogits = tile.alpha * (dalpha - (tile.alpha * dalpha).sum(-1, keepdim=True))
            back = self.rho.backward(tile.inputs, self.by_pair(dlogits)).unflatten(0, shape)
            dscores = back[..., :heads].movedim(-1, 1)
            dq[b, :, n] = dscores @ self.k[b]
            dk[b] += dscores.mT @ self.q[b, :, n]
            if positions:
                dsmooth = None if tile.weight is None else tile.weight[..., None] * along
                dd = self.geometry.vjp(tile.d, back[..., heads:], dsmooth)
                dxq[b, n] = dd.sum(2)
                dxk[b] -= dd.sum(1)
        of_positions: list[Tensor | None] = [dxq, dxk, dxq, dxk] if positions else [None] * 4
        of_phi: list[Tensor] = []
        if self.phi is not None:
            *first, w3, b3 = self.phi.sums
            of_phi = [*first, w3.expand(self.phi_outputs, -1), b3.expand(self.phi_outputs)]
        return [dq * self.scale, dk, dv, *of_positions, None, *self.rho.sums[:5], *of_phi]


class BufferedMLP:
    """An MLP applied to one tile after the other in reused buffers. A tile larger than the buffers is split.

    Args:
        scratch: a buffer for gradients, which several MLPs may share; its dtype is that of the matrix products.
    """

    def __init__(self, net: MLPWeights, scratch: Tensor) -> None:
        low: Any = (None if t is None else t.to(scratch.dtype) for t in net)
        self.net = MLPWeights(*low)
        # Matrix products with few columns are slow: the columns are padded to the width of SIMD registers.
        self.wide = pad(self.net.w1, (0, -net.w1.shape[1] % 16))
        self.first, self.second, self.scratch = torch.empty_like(scratch), torch.empty_like(scratch), scratch
        self.out_dtype = torch.promote_types(net.w1.dtype, torch.float32)
        self.sums = [torch.zeros_like(t, dtype=self.out_dtype) for t in net if t is not None]
        """Gradients of the weights, summed over tiles."""

    def __call__(self, x: Float[Tensor, "p d_in"]) -> Float[Tensor, "p d_out"]:
        net, n = self.net, len(x)
        if n > len(self.scratch):
            return torch.cat([self(part) for part in x.split(len(self.scratch))])
        first = torch.addmm(net.b1, x.to(net.w1.dtype), net.w1.T, out=self.first[:n]).relu_()
        second = torch.addmm(net.b2, first, net.w2.T, out=self.second[:n]).relu_()
        out = second @ net.w3.T if net.b3 is None else torch.addmm(net.b3, second, net.w3.T)
        return out.to(self.out_dtype)

    def backward(self, x: Float[Tensor, "p d_in"], dout: Float[Tensor, "p d_out"]) -> Float[Tensor, "p d_in"]:
        """VJP: returns the gradient of the inputs and adds that of the weights to `sums`. Uses the activations of the
        last call, which are still in the buffers, and overwrites them."""
        net, n = self.net, len(x)
        if n > len(self.scratch):
            parts = zip(x.split(len(self.scratch)), dout.split(len(self.scratch)), strict=True)
            return torch.cat([self._recompute(*part) for part in parts])
        x, dout = x.to(net.w1.dtype), dout.to(net.w1.dtype)
        first, second = self.first[:n], self.second[:n]
        last = [dout.T @ second, *([] if net.b3 is None else [dout.sum(0)])]
        dsecond = relu_backward(torch.mm(dout, net.w3, out=self.scratch[:n]), second)
        middle = [dsecond.T @ first, dsecond.sum(0)]
        dfirst = relu_backward(torch.mm(dsecond, net.w2, out=second), first)
        for total, part in zip(self.sums, [(x.T @ dfirst).T, dfirst.sum(0), *middle, *last], strict=True):
            total += part
        return (dfirst @ self.wide)[:, : x.shape[1]].to(self.out_dtype)

    def _recompute(self, x: Float[Tensor, "p d_in"], dout: Float[Tensor, "p d_out"]) -> Float[Tensor, "p d_in"]:
        """`backward` for a part of a tile, whose activations are recomputed first."""
        self(x)
        return self.backward(x, dout)


def relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """VJP of a ReLU with this `output`, in place."""
    return torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
