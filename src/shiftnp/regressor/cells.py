"""Columns and variables of files as numbers or dates, with errors that name the cell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from shiftnp._optional import import_optional
from shiftnp.tasks.dates import parse_dates
from shiftnp.tasks.reading import shorten

FIELDS = (".nc", ".nc4", ".cdf", ".h5", ".zarr")
"""Suffixes of files with fields."""


def is_field(path: Path) -> bool:
    """Whether a file has fields (NetCDF, Zarr), and not a table."""
    return path.is_dir() or path.suffix.lower() in FIELDS


def numbers(column: Any, name: str, path: Path) -> Float[np.ndarray, " n"]:
    """A column in float64; raises a ValueError that names the first cell that is no number."""
    pd = import_optional("pandas", f"Reading {path.name}")
    types = pd.api.types
    if types.is_numeric_dtype(column) and not types.is_bool_dtype(column) and not types.is_complex_dtype(column):
        plain: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return plain
    values = pd.to_numeric(column.astype(str).where(column.notna()), errors="coerce")
    bad = (values.isna() & column.notna()).to_numpy()
    if types.is_bool_dtype(column) or types.is_datetime64_any_dtype(column):
        raise ValueError(f"Column {name!r} of {path} must hold numbers, has {str(column.iloc[0])!r}: convert it.")
    if bad.any():
        raise ValueError(f"Column {name!r} of {path} must hold numbers, has {_cells(column, bad, path)}.")
    found: np.ndarray = values.to_numpy(dtype=np.float64)
    return found


def _cells(column: Any, bad: np.ndarray, path: Path, hint: bool = True) -> str:
    """The first of the cells that are not what they should be, with its row, the number of others, and what to do.

    Args:
        hint: whether --missing may help.
    """
    first, others = int(bad.argmax()), int(bad.sum()) - 1
    kind = "cell" if is_field(path) else "row"
    example = str(column.iloc[first]).strip()
    more = f" and {others} other {kind}{'s' * (others > 1)}" if others else ""
    some = hint and not is_field(path) and not bad.all() and 0 < len(example) <= 20
    do = f": correct it, or say --missing {shlex.quote(example)} if it means not observed" if some else ": convert it"
    if some and first == 0 and not others:
        do = f": delete that row if it holds units, or say --missing {shlex.quote(example)} if it means not observed"
    return f"{shorten(example, 40)!r} in {kind} {column.index[first] + 1}{more}{do}"


def input_column(column: Any, name: str, path: Path, expected: str | None = None) -> Any:
    """A column of inputs as numbers or dates."""
    pd = import_optional("pandas", f"Reading {path.name}")
    types = pd.api.types
    column = column if expected == "number" else parse_dates(column, name, expected == "date")
    if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        return column
    try:
        return pd.Series(numbers(column, name, path), index=column.index)
    except ValueError:
        bad = np.array([v == v and v is not None and not is_number(v) for v in column])
        what = _cells(column, bad, path, expected is None) if bad.any() else f"{str(column.iloc[0])!r}: convert it"
        raise ValueError(
            f"Column {name!r} of {path} must hold numbers or dates (such as 2024-01-31), has {what}."
        ) from None


def is_number(value: Any) -> bool:
    """Whether a value, also as text, is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def text_as_numbers(column: Any, decimal: str, missing: Sequence[str] = ()) -> Any:
    """A column of text with its numbers written with decimal points, and nothing in cells that mean "not observed"."""
    if column.dtype.kind not in "OU" or not len(column):
        return column
    text = column.astype(str).str.strip()
    column = column.where(~text.isin(list(missing)))
    if decimal == "," and text.str.contains(",", regex=False).any():
        column = column.where(column.isna(), text.str.replace(r"^([-+]?\d*),(\d+)$", r"\1.\2", regex=True))
    return column
