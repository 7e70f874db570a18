"""Reference implementation of eqs. 3 and 5-8 of the paper in plain torch.

`pairs` is True where a query attends to a key (None: everywhere). A query without keys gets zero weights, so that its
attended value is zero. Faster backends are tested against these functions, values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.attention.mask import PairMask


def softmax_over_keys(logits: Float[Tensor, "b h nq nk"], pairs: PairMask = None) -> Float[Tensor, "b h nq nk"]:
    """`alpha = exp(logits) / sum_m exp(logits)`, over the keys `m` that the query attends to."""
    if pairs is None:
        return logits.softmax(-1)
    attends = pairs[:, None]
    return logits.masked_fill(~attends, torch.finfo(logits.dtype).min).softmax(-1) * attends


def scores(q: Float[Tensor, "b h nq d"], k: Float[Tensor, "b h nk d"]) -> Float[Tensor, "b h nq nk"]:
    """`q . k / sqrt(d)`, the exponent of eq. 3."""
    return q @ k.mT * q.shape[-1] ** -0.5


def te_attention(
    q: Float[Tensor, "b h nq d"],
    k: Float[Tensor, "b h nk d"],
    v: Float[Tensor, "b h nk dv"],
    displacement: Float[Tensor, "b nq nk dx"],
    rho: Callable[[Tensor], Tensor],
    pairs: PairMask = None,
) -> tuple[Float[Tensor, "b h nq dv"], Float[Tensor, "b h nq nk"]]:
    """Translation-equivariant attention, eqs. 5 and 6: logits `rho(scores of all heads, x_q - x_k)`.

    Returns the attended values and the weights `alpha`, which eq. 8 uses again.
    """
    inputs = torch.cat([scores(q, k).movedim(1, -1), displacement], dim=-1)
    alpha = softmax_over_keys(rho(inputs).movedim(-1, 1), pairs)
    return alpha.to(v.dtype) @ v, alpha


def location_step(
    displacement: Float[Tensor, "b nq nk dx"],
    alpha: Float[Tensor, "b h nq nk"],
    phi: Callable[[Tensor], Tensor],
    pairs: PairMask = None,
) -> Float[Tensor, "b nq dx"]:
    """Eq. 8: `C sum_h sum_m (x_q - x_m) phi_h(alpha_m)`, `C = 1 / (number of keys that the query attends to)`."""
    weight = phi(alpha.movedim(1, -1)).sum(-1)
    count: Tensor | float = weight.shape[-1]
    if pairs is not None:
        weight = weight * pairs
        count = pairs.sum(-1, keepdim=True).clamp(min=1)
    return (weight[..., None] * displacement).sum(-2) / count
