"""Detection of fill values: numbers such as -9999 or 1e20 that stand for missing observations in files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

LARGEST = 1e30
"""No observation is as large as this; NetCDF's default fill value is 9.96921e36."""

COMMON = tuple(sign * number for number in (99, 99.9, 999, 999.9, 9999, 9999.9, 99999, 32768, 1e20) for sign in (-1, 1))
"""Fill values in common use."""

FAR = 20  # robust standard deviations between a fill value and the nearest other value
ABSURD = 100  # how much further than all others from the median an absurd value is
FEW = 0.05  # largest fraction of absurd values


def equals(values: Float[np.ndarray, "*any"], number: float) -> Bool[np.ndarray, "*any"]:
    """Mask of the values that equal `number`, up to the rounding of float32."""
    if not np.isfinite(number):
        return values == number
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(values - number) <= 1e-6 * abs(number)


def mask(values: Float[np.ndarray, "*any"], missing: Sequence[float]) -> Float[np.ndarray, "*any"]:
    """A copy of the values with NaN in place of those declared as missing."""
    absent = np.isnan(values)  # replaced as well: numpy warns about signalling NaNs, which damaged files have
    for number in missing:
        absent |= equals(values, number)
    values = values.copy()
    values[absent] = np.nan
    return values


def too_large(values: Float[np.ndarray, "*any"]) -> Bool[np.ndarray, "*any"]:
    """Mask of the values that are infinite or at least 1e30 in size; False for NaN."""
    return np.abs(values) >= LARGEST


def suspect(values: Float[np.ndarray, "*any"]) -> tuple[float, int] | None:
    """A common fill value that occurs at least twice, far outside the other values, and how often; None if there is
    none."""
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    near = [number for number in COMMON if low - 1e-6 * abs(number) <= number <= high + 1e-6 * abs(number)]
    found = {number: equals(values, number) for number in near}
    found = {number: where for number, where in found.items() if where.sum() > 1}
    rest = values[~np.any(list(found.values()), axis=0)] if found else values
    if not found or not rest.size:
        return None
    lower, upper = np.percentile(rest, (25, 75))
    spread = float(upper - lower) / 1.349 or float(rest.std()) or 1.0
    for number, where in found.items():
        if np.abs(rest - number).min() > FAR * spread:
            return number, int(where.sum())
    return None


def missing_setting(number: float) -> str:
    """How a number is declared as missing, in Python and in commands."""
    return f"missing={number:g} (in `shiftnp train`: task.missing={number:g})"


def absurd(values: Float[np.ndarray, " n"]) -> int | None:
    """Index of a value that is at least 100 times as far from the median as all but a few others; None if there is
    none. Heavy tails do not have such gaps."""
    there = np.flatnonzero(np.isfinite(values))
    if len(there) < 6:
        return None
    distance = np.abs(values[there] - np.median(values[there]))
    farthest = int(distance.argmax())
    near = distance[distance <= 0.5 * distance[farthest]]
    few = len(there) - len(near) <= max(1, FEW * len(there))
    reach = float(near.max(initial=0.0))
    return int(there[farthest]) if few and 0 < ABSURD * reach < distance[farthest] else None


def warn_of_fill_values(values: Float[np.ndarray, "*any"], what: str) -> None:
    """Warns if values seem to contain a fill value. `what` is the column or field and its file, for the message."""
    if (found := suspect(values)) is not None:
        number, count = found
        warnings.warn(
            f"{what} is {number:g} in {count} places, far from all other values, which looks like a fill value: "
            f"make it missing by {missing_setting(number)}.",
            stacklevel=2,
        )
