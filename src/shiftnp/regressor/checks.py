"""Checks of the inputs and outputs that a user has given, and of the periods of inputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from shiftnp._registry import choose
from shiftnp.regressor.columns import DAY, Columns, Kind, Table
from shiftnp.tasks.fill_values import absurd, suspect, too_large


def check_inputs(table: Table, what: str = "X") -> None:
    """Raises a ValueError for inputs that are missing or infinite."""
    for name, values in zip(table.columns.names, table.values.T, strict=True):
        if np.isnan(values).any():
            raise ValueError(
                f"{what} contains NaN: {name!r} is missing in {np.isnan(values).sum()} of {len(values)} rows: drop or "
                "fill them."
            )
        _check_size(values, f"{name!r} of {what}")


def check_outputs(table: Table) -> None:
    """Raises a ValueError for infinite outputs, and warns of numbers that look like fill values or are absurd."""
    for name, values in zip(table.columns.names, table.values.T, strict=True):
        _check_size(values, f"{name!r} of y")
        there = values[~np.isnan(values)]
        if not len(there):
            continue
        low, middle, high = np.quantile(there, (0.25, 0.5, 0.75))
        if np.abs(there - middle).max() <= 10 * (high - low):
            continue
        if (found := suspect(there)) is not None:
            warnings.warn(
                f"{name!r} of y is {found[0]:g} in {found[1]} places, far from all other values, which looks like "
                "a fill value: replace it by NaN.",
                stacklevel=4,
            )
        elif (row := absurd(values)) is not None:
            warnings.warn(
                f"{name!r} of y is {values[row]:.9g} in row {row}, which is absurdly far from all other values and "
                "ruins predictions: correct it, or replace it by NaN.",
                stacklevel=4,
            )


def _check_size(values: Float[np.ndarray, " n"], what: str) -> None:
    bad = too_large(values)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"{what} contains infinity or a number too large ({values[row]:g} in row {row}): check it.")


def periods(period: Any, columns: Columns) -> tuple[float | None, ...]:
    """The period of each input, from a mapping of names or positions, or from one number for a single input."""
    if period is None:
        return (None,) * len(columns.names)
    if not isinstance(period, Mapping):
        if len(columns.names) > 1:
            raise ValueError(f"period must name its input, for instance {{{columns.names[0]!r}: 360}}, got {period!r}.")
        period = {0: period}
    found: list[float | None] = [None] * len(columns.names)
    for key, value in period.items():
        if isinstance(key, str):
            j = choose(key, {name: i for i, name in enumerate(columns.names)}, "input")
        elif isinstance(key, int) and -len(found) <= key < len(found):
            j = key
        else:
            raise ValueError(f"period must name inputs or their positions, got {key!r} for {len(found)} inputs.")
        found[j] = _period(value, columns.kinds[j])
    return tuple(found)


def _period(value: Any, kind: Kind) -> float:
    if kind != "number" and not isinstance(value, int | float):
        value = np.timedelta64(value) / DAY  # also of datetime.timedelta and pandas.Timedelta
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"A period must be a positive number (of dates: of days), got {value!r}.")
    return float(value)
