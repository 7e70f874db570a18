"""The paper's attention without its memory: eqs. 5, 6 and 8 in tiles, with a backward pass that computes again.

The specification, `reference.py`, writes the hidden activations of `rho` and `phi` for every pair to memory and keeps
them for the backward pass. Here a tile of rows (some queries with all their keys) goes from scores to gradients in
buffers that stay in the processor's cache, and the next tile uses them again. If one row alone has too many keys for
that, the networks stream over them and only its scores are ever whole, a number for each key and head. What is kept
between the passes is small: queries, keys, values and places, nothing of a pair. Memory grows linearly with the number
of points.

Same parameters, same function: tested against the reference, values and gradients. Plain torch operations, not run on a
GPU yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from shiftnp.attention.precision import bf16_pays
from shiftnp.attention.reference import Pairs, softmax_over_keys
from shiftnp.geometry import Geometry

TILE = {"cpu": 4096, "cuda": 1 << 18}
"""Pairs whose hidden activations are held at once: on a CPU, few enough for the cache."""
LOW_PRECISION: bool | None = None
"""Whether bfloat16 pays (None: where it measures faster than float32)."""
_allowed = ContextVar("_allowed", default=False)


@contextmanager
def low_precision() -> Iterator[None]:
    """Allows the networks bfloat16, as autocast would, and leaves everything else as it is."""
    before = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(before)


def allows_low_precision(device: torch.device) -> bool:
    """Whether networks may run in bfloat16 here and now."""
    return _allowed.get() or torch.is_autocast_enabled(device.type)


def uses_low_precision(device: torch.device, width: int) -> bool:
    """Whether networks of that width do so: they may, and it pays."""
    return allows_low_precision(device) and low_precision_pays(device, width)


def low_precision_pays(device: torch.device, width: int) -> bool:
    """Whether products of that width are faster in bfloat16 than in float32 on that device."""
    return bf16_pays(device, width) if LOW_PRECISION is None else LOW_PRECISION


class Places(NamedTuple):
    """Where tokens lie: `x` in the dtype of the inputs, and how far they have `moved` in that of the weights."""

    x: Float[Tensor, "b n dx"]
    moved: Float[Tensor, "b n dx"] | None = None


class Net(NamedTuple):
    """Weights of a network with two hidden layers: `w3 relu(w2 relu(w1 x + b1) + b2) + b3`."""

    w1: Float[Tensor, "w d_in"]
    b1: Float[Tensor, " w"]
    w2: Float[Tensor, "w w"]
    b2: Float[Tensor, " w"]
    w3: Float[Tensor, "d_out w"]
    b3: Float[Tensor, " d_out"] | None = None


def attend(
    q: Float[Tensor, "b h nq d"],
    k: Float[Tensor, "b h nk d"],
    v: Float[Tensor, "b h nk dv"],
    at_q: Places,
    at_k: Places,
    rho: Net,
    phi: Net | None = None,
    geometry: Geometry | None = None,
    pairs: Pairs = None,
    tile: int | None = None,
    low_precision: bool = False,
) -> tuple[Float[Tensor, "b h nq dv"], Float[Tensor, "b nq dx"] | None]:
    """Attended values (eqs. 5 and 6) and, with `phi`, the step of every query (eq. 8).

    Args:
        tile: pairs in a tile (None: see `TILE`).
        low_precision: networks run in bfloat16, whose products torch sums up in float32.
    """
    settings = (geometry or Geometry(), tile or TILE.get(q.device.type, TILE["cuda"]), low_precision)
    tensors = (q, k, v, at_q.x, at_k.x, at_q.moved, at_k.moved, pairs)
    out, step = Attention.apply(settings, *tensors, *rho[:5], *(phi or ()))
    return out, step if phi is not None else None


class Attention(torch.autograd.Function):
    """`attend` with its gradient."""

    @staticmethod
    def forward(ctx: Any, settings: Any, *tensors: Any) -> Any:
        ctx.settings = settings
        ctx.save_for_backward(*tensors)
        q, v, xq = tensors[0], tensors[2], tensors[3]
        with torch.autocast(q.device.type, enabled=False):
            work = Work(settings, *tensors)
            out = q.new_empty(*q.shape[:3], v.shape[-1], dtype=v.dtype)
            step = q.new_zeros(xq.shape, dtype=work.dtype)
            for rows in work.tiles():
                tile = work.tile(*rows)
                b, n = rows
                out[b, :, n] = tile.alpha @ work.v[b]
                if tile.weight is not None:
                    step[b, n] = (tile.weight[..., None] * tile.chord).sum(-2)
        return out, step

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor, dstep: Tensor) -> Any:
        with torch.autocast(dout.device.type, enabled=False):
            work = Work(ctx.settings, *ctx.saved_tensors)
            gradients = work.gradients(dout.to(work.dtype), dstep.to(work.dtype), any(ctx.needs_input_grad[4:8]))
        pairs = zip(gradients, ctx.saved_tensors, strict=True)
        return None, *(None if g is None or t is None else g.to(t.dtype) for g, t in pairs)


class Tile(NamedTuple):
    """What is known of some queries and all keys of some tasks."""

    inputs: Float[Tensor, "p d_in"]  # of rho: scores and displacements, pair by pair
    d: Float[Tensor, "b n nk dx"]
    chord: Float[Tensor, "b n nk dx"]
    alpha: Float[Tensor, "b h n nk"]
    weight: Float[Tensor, "b n nk"] | None  # of eq. 8, with its constant C
    share: Float[Tensor, "b n nk"] | float  # C, and zero where a query does not see a key


class Work:
    """One pass over all tiles: what is prepared once, and the buffers that tiles share."""

    def __init__(
        self,
        settings: tuple[Geometry, int, bool],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        xq: Tensor,
        xk: Tensor,
        mq: Tensor | None,
        mk: Tensor | None,
        pairs: Pairs,
        *weights: Tensor,
    ) -> None:
        self.geometry, self.size, low = settings
        self.dtype = torch.promote_types(weights[0].dtype, torch.float32)
        self.scale = q.shape[-1] ** -0.5
        self.q, self.k, self.v = q.to(self.dtype) * self.scale, k.to(self.dtype), v.to(self.dtype)
        self.xq, self.xk, self.mq, self.mk, self.pairs = xq, xk, mq, mk, pairs
        pairs_at_most = min(self.size, q.shape[0] * q.shape[2] * k.shape[2])
        scratch = q.new_empty(pairs_at_most, len(weights[1]), dtype=torch.bfloat16 if low else self.dtype)
        self.rho = Layers(Net(*weights[:5]), scratch)
        self.phi: Layers | None = None
        if len(weights) > 5:
            phi = Net(*weights[5:])
            assert phi.b3 is not None
            # Eq. 8 wants the sum of the outputs, which is one output of summed weights.
            self.phi = Layers(phi._replace(w3=phi.w3.sum(0, keepdim=True), b3=phi.b3.sum(0, keepdim=True)), scratch)
            self.phi_outputs = len(phi.w3)

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """Tasks and queries of each tile: whole tasks as long as they are small, else rows of one task."""
        b, _, nq, _ = self.q.shape
        nk = self.k.shape[2]
        tasks, rows = max(1, self.size // max(1, nq * nk)), max(1, self.size // nk)
        for i in range(0, b, tasks):
            for j in range(0, nq, rows):
                yield slice(i, i + tasks), slice(j, min(nq, j + rows))

    def tile(self, b: slice, n: slice) -> Tile:
        """Eqs. 5, 6 and the weights of eq. 8."""
        moved = None if self.mq is None else self.mq[b, n]
        d = self.geometry.between(self.xq[b, n], self.xk[b], moved, None if self.mk is None else self.mk[b], self.dtype)
        scores = self.q[b, :, n] @ self.k[b].mT
        inputs = torch.cat([scores.movedim(1, -1), self.geometry.features(d)], -1)
        shape, inputs = inputs.shape[:3], inputs.flatten(0, 2)
        pairs = self.pairs if self.pairs is None else self.pairs[b] if self.pairs.shape[1] == 1 else self.pairs[b, n]
        alpha = softmax_over_keys(self.rho(inputs).unflatten(0, shape).movedim(-1, 1).contiguous(), pairs)
        if self.phi is None:
            return Tile(inputs, d, d, alpha, None, 0.0)
        share: Tensor | float = 1 / d.shape[2]
        if pairs is not None:
            share = pairs / pairs.sum(-1, keepdim=True).clamp(min=1).to(self.dtype)
        weight = self.phi(self.by_pair(alpha))[:, 0].unflatten(0, shape) * share
        return Tile(inputs, d, self.geometry.chord(d), alpha, weight, share)

    @staticmethod
    def by_pair(t: Float[Tensor, "b h n nk"]) -> Float[Tensor, "p h"]:
        return t.movedim(1, -1).flatten(0, 2)

    def gradients(self, dout: Tensor, dstep: Tensor, places: bool) -> list[Tensor | None]:
        """Those of all tensors that `__init__` took, in its order; of places only if they are wanted."""
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
                dweight = (tile.chord * along).sum(-1) * tile.share
                back = self.phi.backward(self.by_pair(tile.alpha), dweight.flatten()[:, None])
                dalpha += back.unflatten(0, shape).movedim(-1, 1)
            dlogits = tile.alpha * (dalpha - (tile.alpha * dalpha).sum(-1, keepdim=True))
            back = self.rho.backward(tile.inputs, self.by_pair(dlogits)).unflatten(0, shape)
            dscores = back[..., :heads].movedim(-1, 1)
            dq[b, :, n] = dscores @ self.k[b]
            dk[b] += dscores.mT @ self.q[b, :, n]
            if places:
                dchord = None if tile.weight is None else tile.weight[..., None] * along
                dd = self.geometry.pull_back(tile.d, back[..., heads:], dchord)
                dxq[b, n] = dd.sum(2)
                dxk[b] -= dd.sum(1)
        from_places: list[Tensor | None] = [dxq, dxk, dxq, dxk] if places else [None] * 4
        of_phi: list[Tensor] = []
        if self.phi is not None:
            *first, w3, b3 = self.phi.sums
            of_phi = [*first, w3.expand(self.phi_outputs, -1), b3.expand(self.phi_outputs)]
        return [dq * self.scale, dk, dv, *from_places, None, *self.rho.sums[:5], *of_phi]


class Layers:
    """A network at work on one tile after the other. A tile that is too large for the buffers goes through in parts.

    Args:
        scratch: a buffer for gradients, which networks may share; its dtype is that of the products.
    """

    def __init__(self, net: Net, scratch: Tensor) -> None:
        low: Any = (None if t is None else t.to(scratch.dtype) for t in net)
        self.net = Net(*low)
        # Products with a handful of columns are slow unless these are many enough for the processor's registers.
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
        """The gradient of the inputs, and the weights' added to `sums`. Uses what the last call left in the buffers,
        and overwrites it."""
        net, n = self.net, len(x)
        if n > len(self.scratch):
            parts = zip(x.split(len(self.scratch)), dout.split(len(self.scratch)), strict=True)
            return torch.cat([self._again(*part) for part in parts])
        x, dout = x.to(net.w1.dtype), dout.to(net.w1.dtype)
        first, second = self.first[:n], self.second[:n]
        last = [dout.T @ second, *([] if net.b3 is None else [dout.sum(0)])]
        dsecond = past_relu(torch.mm(dout, net.w3, out=self.scratch[:n]), second)
        middle = [dsecond.T @ first, dsecond.sum(0)]
        dfirst = past_relu(torch.mm(dsecond, net.w2, out=second), first)
        for total, part in zip(self.sums, [(x.T @ dfirst).T, dfirst.sum(0), *middle, *last], strict=True):
            total += part
        return (dfirst @ self.wide)[:, : x.shape[1]].to(self.out_dtype)

    def _again(self, x: Float[Tensor, "p d_in"], dout: Float[Tensor, "p d_out"]) -> Float[Tensor, "p d_in"]:
        """The same for a part of a tile, whose activations the buffers no longer hold."""
        self(x)
        return self.backward(x, dout)


def past_relu(gradient: Tensor, output: Tensor) -> Tensor:
    """In place: the gradient before a ReLU that gave `output`."""
    return torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
