"""Rotary attention with learned frequencies: translation equivariant at the cost of plain attention.

A rotary position embedding (RoPE; Su et al., 2021) rotates pairs of query and key channels by the angles `w_r . x` of
their positions. The product of two rotated vectors, `Re[q_r conj(k_r) exp(i w_r . (x_q - x_k))]`, depends on the
displacement alone, so an ordinary dot product is a relative score. Here `x` is continuous and may have several
dimensions, and the frequency vectors `w_r` are learned. Values are rotated before the attention and rotated back after
it, `sum_m alpha_m R(w' . (x_m - x_q)) v_m`: a head can thus take signed combinations that depend on distance, which
averages with positive weights, as those of eq. 5, cannot.

Rotary scores do not decay with distance. A Gaussian locality bias, `-lambda |x_q - x_k|^2` with a query-dependent
`lambda`, keeps a query from attending at distances that did not occur in training.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from shiftnp.attention.chunks import slices
from shiftnp.attention.mask import PairMask
from shiftnp.attention.products import product


class Rotation(NamedTuple):
    """Rotations by angles `a`, with their phases `exp(i a)`, for tokens that follow each other within a head or heads
    that follow each other within a token.

    The phases carry no gradient: that of the angles follows from the rotated channels, see `Rotate`.
    """

    angle: Float[Tensor, "b i j r"]
    phase: Complex[Tensor, "b i j r"] | None

    @staticmethod
    def by(angle: Float[Tensor, "b i j r"], dtype: torch.dtype) -> Rotation:
        """Rotations of channels of that dtype by angles, which may be more precise."""
        if torch.compiler.is_exporting():
            return Rotation(angle, None)  # see `rotate_real`
        phase = angle.new_empty(angle.shape, dtype=dtype.to_complex())
        real, imaginary = torch.view_as_real(phase).unbind(-1)
        torch.cos(angle.detach(), out=real)
        torch.sin(angle.detach(), out=imaginary)
        return Rotation(angle, phase)

    def transpose(self) -> Rotation:
        """The same with tokens and heads exchanged."""
        return Rotation(self.angle.transpose(1, 2), None if self.phase is None else self.phase.transpose(1, 2))

    def __call__(
        self, z: Float[Tensor, "b j i c"], rest: Float[Tensor, "b j i d"] | None = None, inverse: bool = False
    ) -> Float[Tensor, "b i j e"]:
        """The channels, two by two, as `r` points of the plane, rotated; then the other channels, `rest`, as they are.

        Tokens and heads are exchanged: attention wants heads first, projections want tokens first.
        """
        if self.phase is not None:
            return Rotate.apply(z, rest, self.angle, self.phase, inverse)
        parts = rotate_real(z.transpose(1, 2), self.angle.cos().to(z.dtype), self.angle.sin().to(z.dtype), inverse)
        return torch.cat(parts if rest is None else (*parts, rest.transpose(1, 2)), -1)


class Rotate(torch.autograd.Function):
    """The autograd function of `Rotation`: the derivative of a rotated point by its angle is that point, rotated by a
    right angle."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, rest: Tensor | None, angle: Tensor, phase: Tensor, inverse: bool) -> Tensor:
        b, j, i, c = z.shape
        out = z.new_empty(b, i, j, c + (0 if rest is None else rest.shape[-1]))
        _write(out[..., :c], _points(z.transpose(1, 2)), phase.conj() if inverse else phase)
        if rest is not None:
            out[..., c:] = rest.transpose(1, 2)
        ctx.inverse, ctx.has_rest = inverse, rest is not None
        ctx.save_for_backward(out, phase)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor) -> Any:
        out, phase = ctx.saved_tensors
        c = 2 * phase.shape[-1]
        dpoints, dangle = _points(dout[..., :c]), None
        dz = dout.new_empty(*dout.transpose(1, 2).shape[:3], c)
        _write(dz.transpose(1, 2), dpoints, phase if ctx.inverse else phase.conj())
        if ctx.needs_input_grad[2]:
            points = _points(out[..., :c])
            a, b = (points, dpoints) if not ctx.inverse else (dpoints, points)
            dangle = (a.real * b.imag).sub_(a.imag * b.real)
        return dz, dout[..., c:].transpose(1, 2) if ctx.has_rest else None, dangle, None, None


def rotate_real(
    z: Float[Tensor, "*any c"], cos: Float[Tensor, "*any r"], sin: Float[Tensor, "*any r"], inverse: bool
) -> tuple[Float[Tensor, "*any r"], Float[Tensor, "*any r"]]:
    """Rotations in real numbers, for programs that are exported: other formats have no complex ones.

    Channels are in halves, all first coordinates before all second ones, so that no pairs have to be taken apart or put
    together. The halves are returned.
    """
    half = z.shape[-1] // 2
    a, b = z[..., :half], z[..., half:]
    return (a * cos + b * sin, b * cos - a * sin) if inverse else (a * cos - b * sin, a * sin + b * cos)


def _points(z: Float[Tensor, "*any c"]) -> Complex[Tensor, "*any r"]:
    """Pairs of channels as complex numbers; a view where the layout in memory allows it."""
    pairs = z.unflatten(-1, (-1, 2))
    aligned = pairs.stride(-1) == 1 and all(s % 2 == 0 for s in (pairs.storage_offset(), *pairs.stride()[:-1]))
    return torch.view_as_complex(pairs if aligned else pairs.contiguous())


def _write(out: Float[Tensor, "*any c"], a: Complex[Tensor, "*any r"], b: Complex[Tensor, "*any r"]) -> None:
    """Writes a product of complex numbers to pairs of channels."""
    points = _points(out)
    if points.data_ptr() == out.data_ptr():
        torch.mul(a, b, out=points)
    else:
        out.copy_(torch.view_as_real(a * b).flatten(-2))


def attend(
    q: Float[Tensor, "b h nq d"],
    k: Float[Tensor, "b h nk d"],
    v: Float[Tensor, "b h nk dv"],
    pairs: PairMask = None,
    width: Float[Tensor, "b h nq 1"] | None = None,
    distance: Float[Tensor, "b nq nk"] | None = None,
) -> Float[Tensor, "b h nq dv"]:
    """Softmax attention with scores `q . k - width * distance`. The output of a query without keys is undefined, and
    the caller discards it."""
    if q.device.type != "cpu":
        return attend_sdpa(q, k, v, pairs, width, distance)
    # Torch's fused kernel needs values as wide as keys there; its fallback is slower than this.
    if torch.compiler.is_exporting():
        return attend_explicit(q, k, v, pairs, width, distance)
    return LocalityAttention.apply(q, k, v, pairs, width, distance)


def attend_explicit(
    q: Tensor, k: Tensor, v: Tensor, pairs: PairMask, width: Tensor | None, distance: Tensor | None
) -> Tensor:
    """Attention in plain torch: scores, softmax, weighted sum."""
    scores = q @ k.mT
    if width is not None and distance is not None:
        scores = scores - width * distance[:, None]
    if pairs is not None:
        # A sum is faster in other runtimes than a choice between two numbers for each score.
        excluded = (~pairs[:, None]).to(scores.dtype) * torch.finfo(scores.dtype).min
        scores = scores + excluded
    return scores.softmax(-1) @ v


def attend_sdpa(
    q: Tensor, k: Tensor, v: Tensor, pairs: PairMask, width: Tensor | None, distance: Tensor | None
) -> Tensor:
    """Attention through torch's `scaled_dot_product_attention`."""
    mask = None if pairs is None else (pairs | ~pairs.any(-1, keepdim=True))[:, None]
    if width is not None and distance is not None:
        bias = -width * distance[:, None]
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)


class LocalityAttention(torch.autograd.Function):
    """The autograd function of `attend` on a CPU: a few tasks after the other, whose scores fit the processor's cache,
    in place. Attention weights are kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, pairs: PairMask, width: Tensor | None, distance: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, width, distance)
        b, h, nq, _ = q.shape
        out, ctx.alpha = q.new_empty(b, h, nq, v.shape[-1]), []
        for t in tasks_at_once(b, h * nq * k.shape[2]):
            if width is None or distance is None:
                scores = product(q[t], k[t].mT)
            else:
                scores = q.new_empty(*q[t].shape[:3], k.shape[2])  # of another layout `flatten` would copy it
                torch.mul(width[t], distance[t, None], out=scores)
                scores.flatten(0, 1).baddbmm_(q[t].flatten(0, 1), k[t].flatten(0, 1).mT, beta=-1)
            if pairs is not None:
                scores.masked_fill_(~pairs[t, None], torch.finfo(q.dtype).min)
            alpha = torch.softmax(scores, -1, out=scores)
            torch.bmm(alpha.flatten(0, 1), v[t].flatten(0, 1), out=out[t].flatten(0, 1))
            if any(ctx.needs_input_grad):
                ctx.alpha.append(alpha)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor) -> Any:
        q, k, v, width, distance = ctx.saved_tensors
        dq, dk, dv = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))
        dwidth = None if width is None else torch.empty_like(width)
        ddistance = torch.empty_like(distance) if ctx.needs_input_grad[5] else None
        for t, alpha in zip(tasks_at_once(len(q), q.shape[1] * q.shape[2] * k.shape[2]), ctx.alpha, strict=True):
            dscores = product(dout[t], v[t].mT)
            torch.bmm(alpha.mT.flatten(0, 1), dout[t].flatten(0, 1), out=dv[t].flatten(0, 1))
            torch.ops.aten._softmax_backward_data.out(dscores, alpha, -1, alpha.dtype, grad_input=dscores)
            torch.bmm(dscores.flatten(0, 1), k[t].flatten(0, 1), out=dq[t].flatten(0, 1))
            torch.bmm(dscores.mT.flatten(0, 1), q[t].flatten(0, 1), out=dk[t].flatten(0, 1))
            if ddistance is not None:
                ddistance[t] = -(width[t] * dscores).sum(1)
            if dwidth is not None:
                torch.sum(dscores.mul_(distance[t, None]), -1, keepdim=True, out=dwidth[t])
        return dq, dk, dv, None, None if dwidth is None else dwidth.neg_(), ddistance


SCORES_AT_ONCE = 1 << 20
"""Attention scores of several tasks that are computed at once."""


def tasks_at_once(tasks: int, scores: int) -> list[slice]:
    """Slices of tasks with so many scores each."""
    return slices(tasks, max(1, SCORES_AT_ONCE // max(1, scores)))
