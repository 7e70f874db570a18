"""Standardisation of outputs by the mean and the standard deviation of a context."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LEAST = 1e-6
"""Standard deviation of constant outputs, as a fraction of their size."""


def moments(y: Float[Tensor, "*any n"], floor: float | Tensor = 0.0) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the last dimension, of the values that are not NaN; the latter is positive.

    Without values they are 0 and 1. A single value gives no spread: its size stands for it, or 1 if it is zero.
    Constant values have a millionth of their size, or 1e-6 if they are zero.

    Args:
        floor: lower bound of the standard deviation.
    """
    there = ~y.isnan()
    n = there.sum(-1)
    mean = y.where(there, 0.0).sum(-1) / n.clamp(min=1)
    around = (y - mean[..., None]).where(there, 0.0)
    std = (around.square().sum(-1) / n.clamp(min=1)).sqrt()
    size = mean.abs().where(mean != 0, 1.0)
    std = std.where(std > 1e-13 * size.where(mean != 0, 0.0), LEAST * size)
    std = std.where(n != 1, size).where(n != 0, 1.0)
    return mean, torch.maximum(std, torch.as_tensor(floor, dtype=std.dtype))
