"""How good predictions are."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution


def log_likelihood(dist: Distribution, yt: Tensor, mask: Bool[Tensor, "b nt"] | None = None) -> Float[Tensor, " b"]:
    """Log-likelihood per target point of each task, over the targets `yt` `[b, nt, dy]` that are there."""
    if yt.shape != dist.batch_shape + dist.event_shape:
        expected = tuple(dist.batch_shape + dist.event_shape)
        raise ValueError(f"yt must have shape [b, nt, dy] = {expected}, got {tuple(yt.shape)}.")
    there = yt if mask is None else yt.where(mask[..., None], 0.0)
    if there.isnan().any():
        raise ValueError("yt holds NaN at targets that are there: drop those targets or mask them out.")
    if mask is None:
        return dist.log_prob(yt).mean(-1)
    score = dist.log_prob(there)  # without what padding holds: NaN would poison gradients
    return score.where(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)
