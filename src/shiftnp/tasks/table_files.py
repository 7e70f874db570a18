"""Reader of tables of observations: CSV and other text, Parquet or a pandas DataFrame."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import lzma
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from shiftnp._optional import import_optional
from shiftnp._registry import UnknownName
from shiftnp.tasks.dates import parse_dates
from shiftnp.tasks.fill_values import mask, too_large, warn_of_fill_values
from shiftnp.tasks.reading import listed, reading, shorten

TEXT = ("csv", "tsv", "txt", "dat")
"""Suffixes of tables in text form."""
THOUSANDS = r"[-+]?\d{1,3}(\.\d{3})+(,\d*)?"
"""A number that may have points between groups of three digits."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of observations. NaN in `y` means not observed.

    Args:
        inputs: names of the inputs, with the unit of those that were dates.
        group: index of the data set of each row, in sorted order of the group column.
        station: index of the station of each row.
    """

    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, "n dy"]
    group: Int[np.ndarray, " n"] | None
    inputs: tuple[str, ...]
    station: Int[np.ndarray, " n"] | None = None


def read_frame(path: Path) -> Any:
    """Reads a file as a pandas DataFrame."""
    pd = import_optional("pandas", f"Reading {path.name}")
    if not path.exists():
        raise FileNotFoundError(f"No file {path}: `path` must be a CSV or Parquet file.")
    kind = "".join(path.suffixes[-2:]).lower()
    if kind.endswith((".parquet", ".pq")):
        import_optional("pyarrow", f"Reading {path.name}")
        with reading(path, "a Parquet file"):
            return pd.read_parquet(path)
    if any(f".{name}" in kind for name in TEXT):
        with reading(path, "a table in text form"):
            form = text_form(path)
            try:
                frame = pd.read_csv(path, low_memory=False, skipinitialspace=True, **form._asdict())
                header = pd.read_csv(path, header=None, nrows=1, dtype=str, skipinitialspace=True, **form._asdict())
            except pd.errors.EmptyDataError:
                frame = None
        if frame is None:
            raise ValueError(f"{path} has no rows: it is empty.")
        frame.attrs["decimal"] = form.decimal
        names = header.iloc[0].str.strip()
        frame.attrs["repeated"] = list(names[names.duplicated()])  # which pandas calls a, a.1, a.2
        return frame
    raise ValueError(
        f"{path} is neither .csv nor .tsv nor .parquet: convert it, or read it with pandas and give `frame`."
    )


def check_points(frame: Any, names: Sequence[str], where: str) -> None:
    """Raises a ValueError for columns with numbers such as 1.234 in a file with decimal commas, where the point may be
    that of thousands."""
    if frame.attrs.get("decimal") != ",":
        return
    for name in names:
        if frame[name].dtype.kind in "fiubM":
            continue
        text = frame[name].dropna().astype(str).str.strip()
        pointed = text[text.str.contains(".", regex=False)]
        if len(pointed) and pointed.str.fullmatch(THOUSANDS).all():
            example = shorten(pointed.iloc[0], 40)
            raise ValueError(
                f"Column {name!r} of {where} has {example}, which may be {example.replace('.', '')} or "
                f"{example.replace('.', ',', 1)} in a file with decimal commas: write its numbers without points."
            )


class TextForm(NamedTuple):
    """How a table is written as text: arguments of `pandas.read_csv`."""

    sep: str
    decimal: str
    skiprows: int
    encoding: str


def text_form(path: Path) -> TextForm:
    """The separator (comma, semicolon, tab, bar or blanks), the decimal point or comma, the number of comment lines
    (with #) before the header and the encoding of a table in text form, from its first lines."""
    unpack: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    with unpack(path, "rb") as file:
        head: bytes = file.read(1 << 16)
    if path.suffix.lower() in (".zip", ".zst"):  # pandas unpacks them
        return TextForm(",", ".", 0, "utf-8-sig")
    try:
        utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding = "utf-16" if utf16 else "utf-8-sig"
        head.decode("utf-16" if utf16 else "utf-8", errors="strict")
    except UnicodeDecodeError as error:
        if error.start <= len(head) - 4 and encoding != "utf-16":  # a character may be cut at the end
            encoding = "latin-1"
    lines = head.decode(encoding, errors="replace").splitlines()
    skip = next((i for i, line in enumerate(lines) if not line.startswith("#")), 0)
    lines = [line for line in lines[skip : skip + 20] if line.strip()]

    def widths(separator: str) -> list[int]:
        return [len(row) for row in csv.reader(lines, delimiter=separator)]

    def rank(separator: str) -> tuple[bool, int]:
        found = widths(separator)
        return len(set(found[:-1])) <= 1, found[0]  # the last line may be cut

    usual = [separator for separator in ",;\t|" if lines and widths(separator)[0] > 1]
    sep = max(usual, key=rank) if usual else r"\s+" if path.suffix.lower() in (".txt", ".dat") else ","
    comma = sep == ";" and any(re.search(r"(^|;)\s*[-+]?\d*,\d+\s*(;|$)", line) for line in lines[1:])
    return TextForm(sep, "," if comma else ".", skip, encoding)


def read_table(
    frame: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
    group: str | None,
    drop_missing: bool,
    where: str,
    missing: Sequence[float] = (),
    station: str | None = None,
) -> Table:
    """Inputs, outputs, groups and stations of a DataFrame. Rows without any output are left out.

    Args:
        where: name of the frame in error messages.
        missing: numbers that mean "not observed", in any of the columns.
    """
    labels = [name for name in (group, station) if name is not None]
    by_lower = {str(column).lower(): str(column) for column in frame.columns}
    for name in (*inputs, *outputs, *labels):
        count = int((frame.columns == name).sum())
        if not count:
            close = get_close_matches(name.lower(), by_lower, n=1)
            hint = f": did you mean {by_lower[close[0]]!r}?" if close else f"; its columns are {listed(frame.columns)}."
            raise UnknownName(f"{where} has no column {name!r}{hint}")
        if count > 1:
            raise ValueError(f"{where} has {count} columns called {name!r}: rename or drop all but one.")
    if not len(frame):
        raise ValueError(f"{where} has no rows.")
    check_points(frame, (*inputs, *outputs), where)
    columns = [_numbers(frame[name], name, where) for name in inputs]
    x = mask(np.stack([values for values, _ in columns], -1), missing)
    y = mask(np.stack([_numbers(frame[name], name, where, dates=False)[0] for name in outputs], -1), missing)
    for name, values in (*zip(inputs, x.T, strict=True), *zip(outputs, y.T, strict=True)):
        if (bad := too_large(values)).any():
            row = int(bad.argmax())
            raise ValueError(
                f"Column {name!r} of {where} has {values[row]:g} in row {row + 1}, which is no observation: leave it "
                "empty, or declare a fill value by `missing`."
            )
        warn_of_fill_values(values, f"Column {name!r} of {where}")

    absent = {name: np.isnan(values) for name, values in zip(inputs, x.T, strict=True)}
    for name in labels:
        absent[name] = frame[name].isna().to_numpy() | absent.get(name, False)
    lacking = np.any(list(absent.values()), axis=0)
    if lacking.any() and not drop_missing:
        names = ", ".join(name for name, rows in absent.items() if rows.any())
        raise ValueError(
            f"{where} has no {names} in {lacking.sum()} of its {len(frame)} rows: fill them in, or leave these rows "
            "out by `drop_missing` (in `shiftnp train`: task.drop_missing=true)."
        )
    keep = ~lacking & np.isfinite(y).any(1)
    if not keep.any():
        raise ValueError(f"{where} has no row with all of {', '.join(inputs)} and any of {', '.join(outputs)}.")
    codes, stations = (None if name is None else _codes(frame[name][keep], name, where) for name in (group, station))
    return Table(x[keep], y[keep], codes, tuple(name for _, name in columns), stations)


def _codes(column: Any, name: str, where: str) -> Int[np.ndarray, " n"]:
    """Numbers of the different values of a column, in sorted order."""
    try:
        found: np.ndarray = import_optional("pandas", "A group column").factorize(column, sort=True)[0]
    except TypeError as error:
        raise ValueError(f"Column {name!r} of {where} cannot be sorted into groups: make it text.") from error
    return found.astype(np.int64)


def _numbers(column: Any, name: str, where: str, dates: bool = True) -> tuple[Float[np.ndarray, " n"], str]:
    """A column in float64, and its name; dates become days since 1970-01-01 (UTC), with this unit in the name."""
    pd = import_optional("pandas", "A table")
    types = pd.api.types
    column = parse_dates(column, name) if dates else column
    plain = types.is_numeric_dtype(column) and not types.is_bool_dtype(column) and not types.is_complex_dtype(column)
    if plain:
        return column.to_numpy(dtype=np.float64, na_value=np.nan), name
    if types.is_timedelta64_dtype(column):
        return (column / pd.Timedelta(days=1)).to_numpy(dtype=np.float64), f"{name} (days)"
    try:
        if not dates:
            raise ValueError
        moments = (
            column if types.is_datetime64_any_dtype(column) else pd.to_datetime(column, format="ISO8601", utc=True)
        )
        moments = moments.dt.tz_localize("UTC") if moments.dt.tz is None else moments.dt.tz_convert("UTC")
        days = ((moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        bad = pd.to_numeric(column.astype(str), errors="coerce").isna() & column.notna()
        example = column[bad].iloc[0] if bad.any() else column.iloc[0]
        kinds = "numbers or ISO dates" if dates else "numbers"
        raise ValueError(
            f"Column {name!r} of {where} must hold {kinds}, has {shorten(str(example), 40)!r}: convert it first."
        ) from error
    return days, f"{name} (days since 1970-01-01)"
