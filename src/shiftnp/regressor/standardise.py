"""Standardisation of outputs by the mean and the standard deviation of a context."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.scaling import sample_moments

LEAST = 1e-6
"""Standard deviation of constant outputs, as a fraction of their size."""


def moments(y: Float[Tensor, "*any n"], floor: float | Tensor = 0.0) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the last dimension, of the values that are not NaN; the latter is positive.

    They are those of `standardise_by_context`, by which models are pretrained, apart from the unit where the standard
    deviation is unknown. Without values it is 1. A single value gives no spread: its size stands for it, or 1 if it is
    zero. Constant values have a millionth of their size, or 1e-6 if they are zero.

    Args:
        floor: lower bound of the standard deviation.
    """
    n = (~y.isnan()).sum(-1)
    mean, std = sample_moments(y)
    size = mean.abs().where(mean != 0, 1.0)
    unit = (LEAST * size).where(n > 1, size).where(n > 0, 1.0)
    return mean, torch.maximum(std.where(~std.isnan(), unit), torch.as_tensor(floor, dtype=std.dtype))
