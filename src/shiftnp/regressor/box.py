"""The box of the data: each input centred and divided by a unit, so that the box has the side of the training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

SIDE = 3.4
"""Side of the box in which the pretrained models have seen observations."""
LOW, HIGH = 0.02, 0.98
"""Quantiles between which the extent of the data is measured, so that a few remote points do not set it."""


@dataclass(frozen=True)
class Box:
    """The map from inputs to coordinates `(x - centre) / unit`.

    Args:
        centre, unit: one number for each input.
        period: period of each input in its own units; None: it does not wrap.
    """

    centre: tuple[float, ...]
    unit: tuple[float, ...]
    period: tuple[float | None, ...]

    @staticmethod
    def around(x: Float[np.ndarray, "n dx"], period: Sequence[float | None], most: int) -> Box:
        """The box around the data. With more than `most` observations, of which a prediction uses the nearest only,
        units are smaller, such that `most` neighbours fill the standard side."""
        zoom = max(1.0, len(x) / most) ** (1 / x.shape[1])
        centres, units = [], []
        for values, p in zip(x.T, period, strict=True):
            low, high = extent(values if p is None else unwrap(values, p))
            centres.append(0.5 * (low + high))
            units.append((high - low) / SIDE / zoom or 1.0)
        return Box(tuple(centres), tuple(units), tuple(period))

    def coordinates(self, x: Float[np.ndarray, "n dx"]) -> Float[np.ndarray, "n dx"]:
        """Coordinates of inputs; along periodic ones the image that is nearest to the centre."""
        return wrap((x - np.array(self.centre)) / np.array(self.unit), self.wrapping)

    @property
    def wrapping(self) -> Float[np.ndarray, " dx"]:
        """Period of each coordinate; infinite for those that do not wrap."""
        return np.array([np.inf if p is None else p / u for p, u in zip(self.period, self.unit, strict=True)])


def wrap(d: Float[np.ndarray, "*any dx"], period: Float[np.ndarray, " dx"]) -> Float[np.ndarray, "*any dx"]:
    """Displacements to the nearest image, in `[-period/2, period/2)`."""
    if not np.isfinite(period).any():
        return d
    whole = np.where(np.isfinite(period), period, 1.0)
    return np.where(np.isfinite(period), (d + whole / 2) % whole - whole / 2, d)


def extent(values: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Range of the data without a few remote points: exactly the range for evenly spread values."""
    if not len(values):
        return 0.0, 0.0
    low, high = np.quantile(values, (LOW, HIGH))
    if low == high:
        low, high = values.min(), values.max()
        return float(low), float(high)
    margin = (high - low) * 0.5 * (1 / (HIGH - LOW) - 1)
    return float(low - margin), float(high + margin)


def unwrap(values: Float[np.ndarray, " n"], period: float) -> Float[np.ndarray, " n"]:
    """The images of the values, in their order, that lie in one piece: the circle is cut in its widest gap."""
    if not len(values):
        return values
    turns = np.sort(values % period)
    gaps = np.diff(turns, append=turns[0] + period)
    start = turns[(int(gaps.argmax()) + 1) % len(turns)]
    return start + (values - start) % period
