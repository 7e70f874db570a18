"""The whole predictive distribution at targets, for scores that a mean and a standard deviation do not give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from shiftnp.regressor.mixture import Mixture

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor


def distribution(model: Regressor, x: Float[np.ndarray, "m dx"], output: int = 0) -> Mixture:
    """The predictive distribution `[m]` of new observations of one output, in its units.

    Args:
        x: targets, as numbers.
    """
    blocks = [(rows, Mixture(*(part[output] for part in mixture))) for rows, mixture in model._blocks(x)]
    width = max((mixture.weight.shape[-1] for _, mixture in blocks), default=1)
    weight = torch.zeros(len(x), width, dtype=torch.float64)
    whole = Mixture(weight, weight.clone(), torch.ones_like(weight))  # padding has weight zero
    for rows, mixture in blocks:
        for all_of_it, some in zip(whole, mixture, strict=True):
            all_of_it[torch.from_numpy(rows), : some.shape[-1]] = some
    return whole
