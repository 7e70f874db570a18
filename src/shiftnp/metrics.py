"""How good predictions are."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution


def log_likelihood(
    dist: Distribution, yt: Float[Tensor, "b nt dy"], mask: Bool[Tensor, "b nt"] | None = None
) -> Float[Tensor, " b"]:
    """Log-likelihood per target point of each task, over the targets that are there."""
    if mask is None:
        return dist.log_prob(yt).mean(-1)
    score = dist.log_prob(yt.where(mask[..., None], 0.0))  # padding may hold NaN, which would poison gradients
    return score.where(mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)
