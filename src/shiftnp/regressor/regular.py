"""Targets between regularly spaced observations.

Cross-validation judges predictions at held-out observations. If observations are evenly spaced, all of these are far
from the others, and nothing tells noise from fast variation: closer to an observation the network, or a Gaussian
process, may be far too sure. There, standard deviations get a lower bound, a part of those at held-out observations.
Joint samples do not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.regressor.folds import Fold
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.passes import tensor

PART, LOW = 0.8, 0.1
"""The lower bound, as a fraction of this quantile of the standard deviations at held-out observations: a small one, as
they differ from place to place, and predictions close to an observation must not be less sure than farther away."""
SMALL, EVEN = 0.05, 0.5
"""Observations are evenly spaced if this quantile of the distances of held-out observations to the others is at least
this fraction of their median."""
ENOUGH = 8
"""Held-out observations that are needed to tell."""


class Bound(NamedTuple):
    """A lower bound of standard deviations.

    Args:
        reach: distance from the nearest observation below which it begins; it holds in full below half of that.
        least: the bound.
    """

    reach: float
    least: float

    def apply(self, prediction: Mixture, distance: Float[Tensor, " m"]) -> Mixture:
        """Predictions of targets at these distances from the nearest observation, none of them too sure."""
        part = (2 - 2 * distance / self.reach).clamp(0, 1)[:, None]
        return prediction._replace(stds=torch.maximum(prediction.stds, part * self.least))


def find_bound(
    folds: Sequence[Fold], y: Float[np.ndarray, " n"], metric: Float[np.ndarray, " dx"], held_out: Mixture
) -> Bound | None:
    """The bound for one output; None if its observations are not evenly spaced.

    Args:
        metric: factor of each coordinate in distances.
        held_out: calibrated predictions of the held-out observations.
    """
    parts = []
    for fold in folds:
        known, there = ~np.isnan(y[fold.context]), ~np.isnan(y[fold.held_out])
        if known.any() and there.any():
            parts.append(nearest(tensor(fold.xt[there] * metric), tensor(fold.xc[known] * metric)))
    distances = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    if len(distances) < ENOUGH:
        return None
    reach = float(distances.quantile(SMALL))
    if not reach > EVEN * float(distances.median()):
        return None
    typical = (held_out.weight * held_out.stds.log()).sum(-1).exp()  # not that of a wide component of small weight
    return Bound(reach, PART * float(typical.quantile(LOW)))


def nearest(x: Float[Tensor, "m dx"], z: Float[Tensor, "n dx"]) -> Float[Tensor, " m"]:
    """Distance of each of `x` to the nearest of `z`; infinite if there are none."""
    return torch.cdist(x, z).amin(1) if len(z) else torch.full((len(x),), torch.inf, dtype=x.dtype)
