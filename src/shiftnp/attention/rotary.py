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
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from shiftnp.attention.mask import PairMask
from shiftnp.attention.reference import softmax_over_keys

Bias = Sequence[tuple[Float[Tensor, "b h nq 1"], Float[Tensor, "b nq nk"]]]
"""Gated additive attention bias: maps that all heads share, each with the gain of every head and query."""


class Rotation(NamedTuple):
    """Rotations by angles `a`, held as phases `exp(i a)`."""

    phase: Complex[Tensor, "b h n r"]

    def to(self, dtype: torch.dtype) -> Rotation:
        """The rotations for channels of that dtype."""
        return Rotation(self.phase.to(dtype.to_complex()))

    def __call__(self, z: Float[Tensor, "b h n c"], inverse: bool = False) -> Float[Tensor, "b h n c"]:
        """The first `2 r` channels, two by two, as `r` points of the plane, rotated; the other channels stay."""
        rotated = 2 * self.phase.shape[-1]
        point = torch.view_as_complex(z[..., :rotated].unflatten(-1, (-1, 2)).contiguous())
        out = torch.view_as_real(point * (self.phase.conj() if inverse else self.phase)).flatten(-2)
        return out if rotated == z.shape[-1] else torch.cat([out, z[..., rotated:]], -1)


class RealRotation(NamedTuple):
    """The same rotations in real numbers, for programs that are exported: other formats have no complex ones.

    Rotated channels are in halves, all first coordinates before all second ones, and `inverse` expects them so: a dot
    product does not depend on the order of channels, and no pairs have to be put together in between.
    """

    cos: Float[Tensor, "b h n r"]
    sin: Float[Tensor, "b h n r"]

    def to(self, dtype: torch.dtype) -> RealRotation:
        """The rotations for channels of that dtype."""
        return RealRotation(self.cos.to(dtype), self.sin.to(dtype))

    def __call__(self, z: Float[Tensor, "b h n c"], inverse: bool = False) -> Float[Tensor, "b h n c"]:
        """See `Rotation`."""
        r = self.cos.shape[-1]
        if inverse:
            a, b = z[..., :r], z[..., r : 2 * r]
            out = torch.stack([a * self.cos + b * self.sin, b * self.cos - a * self.sin], -1).flatten(-2)
        else:
            a, b = z[..., : 2 * r : 2], z[..., 1 : 2 * r : 2]
            out = torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1)
        return out if 2 * r == z.shape[-1] else torch.cat([out, z[..., 2 * r :]], -1)


def attend(
    q: Float[Tensor, "b h nq d"],
    k: Float[Tensor, "b h nk d"],
    v: Float[Tensor, "b h nk dv"],
    pairs: PairMask = None,
    bias: Bias = (),
) -> Float[Tensor, "b h nq dv"]:
    """Softmax attention with scores `q . k + bias`. The output of a query without keys is undefined, and the caller
    discards it."""
    # On a CPU, torch's fused kernel needs values as wide as keys; its fallback is slower than `attend_explicit`.
    return (attend_explicit if q.device.type == "cpu" else attend_sdpa)(q, k, v, pairs, bias)


def attend_explicit(q: Tensor, k: Tensor, v: Tensor, pairs: PairMask, bias: Bias) -> Tensor:
    """Attention in plain torch: scores, softmax, weighted sum."""
    scores = q @ k.mT
    for gain, shared in bias:
        scores = torch.addcmul(scores, gain, shared[:, None])
    return softmax_over_keys(scores, pairs) @ v


def attend_sdpa(q: Tensor, k: Tensor, v: Tensor, pairs: PairMask, bias: Bias) -> Tensor:
    """Attention through torch's `scaled_dot_product_attention`."""
    mask = None if pairs is None else (pairs | ~pairs.any(-1, keepdim=True))[:, None]
    if bias:
        added = torch.stack([gain * shared[:, None] for gain, shared in bias]).sum(0)
        mask = added if mask is None else added.masked_fill(~mask, -math.inf)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
