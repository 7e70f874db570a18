"""Calibration: one factor of the predictive spread, chosen by the likelihood of held-out observations."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.regressor.mixture import Mixture

RANGE = 4.0
"""The factor is between one over this number and this number."""
PRIOR = 30.0
"""Number of held-out observations at which the logarithm of the factor is half of its best value."""
MARGIN = 0.5
"""Standard errors by which the logarithm of the factor is then raised. What is chosen by cross-validation looks better
than it is, the more so the fewer observations there are; without a margin 90 % intervals cover about 88 %."""


def spread_factor(prediction: Mixture, y: Float[Tensor, " h"]) -> float:
    """The factor of the spread that is best for held-out observations, shrunk to 1 if they are few, with a margin."""
    if not len(y):
        return 1.0
    low, high = -math.log(RANGE), math.log(RANGE)
    for _ in range(3):  # each time finer around the best
        grid = torch.linspace(low, high, 17, dtype=torch.float64)
        scores = torch.stack([prediction.spread(f.expand(len(y))).log_prob(y).sum() for f in grid.exp()])
        best, width = float(grid[int(scores.argmax())]), (high - low) / 16
        low, high = max(best - width, -math.log(RANGE)), min(best + width, math.log(RANGE))
    error = 1 / math.sqrt(2 * len(y))  # of the logarithm of a standard deviation of so many Gaussian numbers
    return math.exp(best * len(y) / (len(y) + PRIOR) + MARGIN * error)


class Scores(NamedTuple):
    """Cross-validated scores of one output, after calibration: mean over held-out observations, in its own units.

    Attributes:
        held_out: number of held-out observations.
        crps: continuous ranked probability score.
        log_likelihood: log density.
        coverage: fraction within the central 90 % interval.
    """

    held_out: int
    crps: float
    log_likelihood: float
    coverage: float


def scores(prediction: Mixture, y: Float[Tensor, " h"]) -> Scores:
    """Scores of the predictions of held-out observations."""
    inside = (prediction.cdf(y) - 0.5).abs() <= 0.45
    values = prediction.crps(y), prediction.log_prob(y), inside.double()
    return Scores(len(y), *(float(v.mean()) if len(y) else math.nan for v in values))
