"""Joint samples at several targets: drawn one after the other, each added to the observations of the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.models import NeuralProcess
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.passes import predict_rows, tensor
from shiftnp.regressor.scales import Scales
from shiftnp.regressor.tiles import Tiles

STEPS = 32
"""Number of steps in which targets are sampled; targets of one step are independent given those of the steps before."""


def sample_jointly(
    model: NeuralProcess,
    tiles: Tiles,
    y: Float[np.ndarray, "n k"],
    scales: Sequence[Scales],
    factors: Sequence[float],
    u: Float[np.ndarray, "m dx"],
    n: int,
    generator: torch.Generator,
    variants: int = 1,
) -> Float[Tensor, "functions m k"]:
    """`n` functions at the targets, noise included; outputs are independent of each other.

    Every function has one of the scales, drawn by their weights, and its own order of targets.

    Args:
        tiles: tiles with a single anchor.
        factors: the factor of the spread of each output.
        variants: see `predict_rows`.
    """
    context, xc = tiles.context(0)
    result = torch.empty(n, len(u), y.shape[1], dtype=torch.float64)
    for o, scale in enumerate(scales):
        if not len(y) or np.isnan(y[:, o]).all():
            result[..., o] = torch.randn(n, len(u), generator=generator, dtype=torch.float64)
            continue
        pick = torch.multinomial(scale.weights, n, replacement=True, generator=generator)
        by = tensor(scale.factors)[pick][:, None]
        x, t = tensor(xc)[None] * by, tensor(tiles.relative(0, u))[None] * by
        values = tensor(y[context, o]).expand(n, -1)
        order = torch.rand(n, len(u), generator=generator).argsort(1)
        factor = torch.tensor([factors[o]], dtype=torch.float64)
        floor = torch.zeros(n, dtype=torch.float64)
        for some in order.split(-(-len(u) // STEPS), dim=1):
            at = t.take_along_dim(some[..., None], 1)
            prediction: Mixture = predict_rows(model, x, values, at, floor, variants)
            drawn = prediction.spread(factor).sample(1, generator)[0]
            result[..., o].scatter_(1, some, drawn)
            x, values = torch.cat([x, at], 1), torch.cat([values, drawn], 1)
    return result
