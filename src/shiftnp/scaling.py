"""Standardisation of inputs and outputs by means and standard deviations of the training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """Standardisation `x -> (x - x_mean) / x_std`, and the same for `y`; `dataclasses.asdict` gives it as plain data.

    Args:
        inputs, outputs: names of the variables, with units.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    x_mean: Sequence[float]
    x_std: Sequence[float]
    y_mean: Sequence[float]
    y_std: Sequence[float]

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "x_mean", "x_std", "y_mean", "y_std"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # lists, when it comes back from JSON
        if not all(std > 0 for std in (*self.x_std, *self.y_std)):
            raise ValueError(f"standard deviations must be positive, got x_std={self.x_std} and y_std={self.y_std}.")

    def x(self, x: Num[Tensor, "*any dx"]) -> Float[Tensor, "*any dx"]:
        """Standardised inputs, in the dtype of `x` (integers become float64)."""
        x = x if x.is_floating_point() else x.double()
        return (x - x.new_tensor(self.x_mean)) / x.new_tensor(self.x_std)

    def y(self, y: Num[Tensor, "*any dy"]) -> Float[Tensor, "*any dy"]:
        """Standardised outputs, in the dtype of `y` (integers become float64)."""
        y = y if y.is_floating_point() else y.double()
        return (y - y.new_tensor(self.y_mean)) / y.new_tensor(self.y_std)

    def undo_x(self, x: Float[Tensor, "*any dx"]) -> Float[Tensor, "*any dx"]:
        """Inputs in original units, in float64, because times are large numbers."""
        x = x.double()
        return x * x.new_tensor(self.x_std) + x.new_tensor(self.x_mean)

    def undo_y(self, y: Float[Tensor, "*any dy"]) -> Float[Tensor, "*any dy"]:
        """Outputs, or means of predictions, in original units, in float64."""
        y = y.double()
        return y * y.new_tensor(self.y_std) + y.new_tensor(self.y_mean)

    def undo_std(self, std: Float[Tensor, "*any dy"]) -> Float[Tensor, "*any dy"]:
        """Standard deviations of outputs in original units, in float64."""
        std = std.double()
        return std * std.new_tensor(self.y_std)


def scaling_or_none(value: Any) -> Scaling | None:
    """A scaling from itself or from JSON data; None stays None."""
    if isinstance(value, dict):
        try:
            return Scaling(**value)
        except TypeError:
            pass
    if value is None or isinstance(value, Scaling):
        return value
    raise ValueError(f"fixed_scaling must be a Scaling, got {value!r}.")


def moments(values: Float[np.ndarray, "*any"], weights: Float[np.ndarray, "*any"] | None = None) -> tuple[float, float]:
    """Weighted mean and standard deviation without missing values; the standard deviation of a constant is one."""
    observed = np.isfinite(values)
    if not observed.any():
        return 0.0, 1.0
    kept = values[observed].astype(np.float64)
    weight = np.ones_like(kept) if weights is None else weights[observed]
    mean = float(np.average(kept, weights=weight))
    std = float(np.sqrt(np.average((kept - mean) ** 2, weights=weight)))
    # Rounding gives a constant a tiny standard deviation, which must not become a divisor.
    return mean, std if std > 1e-9 * max(1.0, abs(mean)) else 1.0


class Standardisation(NamedTuple):
    """Mean and standard deviation of the outputs of each context, in float64; both can be broadcast over points."""

    mean: Float[Tensor, "b 1 dy"]
    std: Float[Tensor, "b 1 dy"]

    def apply(self, y: Float[Tensor, "b n dy"]) -> Float[Tensor, "b n dy"]:
        """Standardised outputs, in float64."""
        return (y.double() - self.mean) / self.std

    def undo(self, y: Float[Tensor, "b n dy"]) -> Float[Tensor, "b n dy"]:
        """Outputs in original units, in float64."""
        return y.double() * self.std + self.mean


def standardise_by_context(yc: Float[Tensor, "b nc dy"], mask: Bool[Tensor, "b nc"] | None = None) -> Standardisation:
    """How a pretrained model standardises the outputs of each data set: by mean and standard deviation of its context.

    Missing values (NaN) and padding do not count. Without an observation the mean is zero. Where the standard deviation
    is unknown (`sample_moments`) it is one, in the units of the data: predictions are then no better than that guess.

    Args:
        mask: True for points, False for padding.
    """
    y = yc.double() if mask is None else yc.double().where(mask[..., None], torch.nan)
    mean, std = sample_moments(y.mT, rounding=torch.finfo(yc.dtype).eps)
    return Standardisation(mean[:, None], std.nan_to_num(1.0)[:, None])


def sample_moments(y: Float[Tensor, "*any n"], rounding: float = 2.3e-16) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of samples, over the last dimension, of the values that are not NaN.

    The divisor of the variance is `n - 1`. Without values the mean is zero. With fewer than two, or if all are equal up
    to rounding, the standard deviation is unknown, which is NaN.

    Args:
        rounding: relative rounding error of the values. Rounding gives a constant a tiny standard deviation, which must
            not become a divisor.
    """
    observed = ~y.isnan()
    n = observed.sum(-1)
    mean = y.where(observed, 0.0).sum(-1) / n.clamp(min=1)
    square = (y - mean[..., None]).where(observed, 0.0).square().sum(-1)
    std = (square / (n - 1).clamp(min=1)).sqrt()
    size = y.where(observed, 0.0).abs().amax(-1) if y.shape[-1] else torch.zeros_like(mean)
    return mean, std.where(std > 4 * rounding * size, torch.nan)
