"""Stacking of predictive distributions (Yao et al. 2018): a Gaussian process beside the pretrained model, for functions
that are smoother than the network can resolve.

Both predict the same held-out observations, and the process gets the share of the mixture that makes these most likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.regressor.folds import Fold
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.passes import tensor
from shiftnp.regressor.process import SMALLEST, fit_process
from shiftnp.regressor.scales import Scales, spread

DOUBT = 1.0
"""Held-out observations that count as if only the network explained them: few observations decide nothing."""
LEAST = 0.01
"""A smaller share is none."""


def add_process(
    scale: Scales,
    folds: Sequence[Fold],
    u: Float[np.ndarray, "n dx"],
    y: Float[np.ndarray, " n"],
    seed: int,
) -> Scales:
    """Scales of one output with a Gaussian process and its share, if held-out observations favour one.

    Args:
        u: coordinates of the observations.
        y: their outputs; NaN where there is none.
    """
    process = None if scale.held_out is None else fit_process(u, y, seed)
    if process is None or scale.held_out is None or scale.y is None:
        return scale
    parts, floor = [], SMALLEST * spread(y)
    for fold in folds:
        there = ~np.isnan(y[fold.held_out])
        if np.isnan(y[fold.context]).all():
            return scale
        parts.append(process.predict(tensor(fold.xc), tensor(y[fold.context]), tensor(fold.xt[there]), floor))
    mean, std = (torch.cat(part) for part in zip(*parts, strict=True))
    found = Mixture(torch.ones_like(mean)[:, None], mean[:, None], std[:, None])
    weight = share(found.log_prob(scale.y) - scale.held_out.log_prob(scale.y))
    if weight < LEAST:
        return scale
    held_out = scale.held_out.join(found, torch.tensor(weight, dtype=torch.float64))
    return replace(scale, process=process, share=weight, held_out=held_out)


def share(gain: Float[Tensor, " h"]) -> float:
    """The weight `w` of the second of two distributions with the largest `sum log(1 - w + w exp(gain))`, less `DOUBT`
    observations that only the first explains; by bisection, as the sum is concave.

    Args:
        gain: log density of the second less that of the first, at held-out observations.
    """
    excess = gain.clamp(max=500.0).expm1()
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        slope = float((excess / (1 + middle * excess)).sum()) - DOUBT / (1 - middle)
        low, high = (middle, high) if slope > 0 else (low, middle)
    return low
