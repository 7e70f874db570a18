"""Translation-equivariant attention whose score factors over query and key, at the cost of plain attention.

To the content score `q . k` comes a relative one, `Re[q_r e^(i w_r . x_q) conj(k_r e^(i w_r . x_k))]`, which depends on
`x_q - x_k` alone and yet is a product of something of the query and something of the key: turn both by the angle of
their place, and an ordinary dot product does the rest. In the same way values are turned before the attention and
turned back after it: `sum_m alpha_m R(w' . (x_m - x_q)) v_m`. A head can thus take signed combinations that depend on
distance, which averages with positive weights, as those of eq. 5, cannot.

Waves do not decay. The window `-lambda |x_q - x_k|^2`, which factors too once the softmax has cancelled `|x_q|^2`,
keeps a query from looking at distances that it has never seen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from shiftnp.attention.reference import Pairs, softmax_over_keys

More = tuple[tuple[Float[Tensor, "b h nq 1"], Float[Tensor, "b nq nk"]], ...]
"""Scores that all heads share, and how much each head heeds them."""


class Turn(NamedTuple):
    """Angles `a`, as `exp(i a)`."""

    phase: Complex[Tensor, "b h n r"]

    def __call__(self, z: Float[Tensor, "b h n c"], back: bool = False) -> Float[Tensor, "b h n c"]:
        """The first `2 r` channels, two by two, as `r` points in the plane, turned by the angles; the others stay."""
        planes = 2 * self.phase.shape[-1]
        point = torch.view_as_complex(z[..., :planes].unflatten(-1, (-1, 2)).contiguous())
        turned = torch.view_as_real(point * (self.phase.conj() if back else self.phase)).flatten(-2)
        return turned if planes == z.shape[-1] else torch.cat([turned, z[..., planes:]], -1)


def attend(
    q: Float[Tensor, "b h nq d"],
    k: Float[Tensor, "b h nk d"],
    v: Float[Tensor, "b h nk dv"],
    pairs: Pairs = None,
    more: More = (),
) -> Float[Tensor, "b h nq dv"]:
    """Softmax attention with scores `q . k`; a query that sees no key gets something that its caller takes back.

    Args:
        more: to be added to the scores, such as likeness by the spectrum of the data (`nn/spectrum.py`).
    """
    # On a CPU, torch's kernel wants values as wide as keys, and else does the same as `plainly`, only slower.
    return (plainly if q.device.type == "cpu" else through_torch)(q, k, v, pairs, more)


def plainly(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs, more: More) -> Tensor:
    scores = q @ k.mT
    for gain, shared in more:
        scores = torch.addcmul(scores, gain, shared[:, None])
    return softmax_over_keys(scores, pairs) @ v


def through_torch(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs, more: More) -> Tensor:
    seen = None if pairs is None else (pairs | ~pairs.any(-1, keepdim=True))[:, None]
    if more:
        bias = torch.stack([gain * shared[:, None] for gain, shared in more]).sum(0)
        seen = bias if seen is None else bias.masked_fill(~seen, -math.inf)
    return scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=1.0)
