"""Dates in columns of files: ISO text, 2024/01/31, 31.01.2024, year and month (2024-01), whole numbers (20240131)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from shiftnp._optional import import_optional

YEARS = (1000, 2999)
"""Years of dates that are written as whole numbers."""
NAMED = re.compile(r"dat[eu]|time|month|day|yyyy|period|mois|monat", re.IGNORECASE)
"""Names of columns in which 202401 is a month. Six digits are too often something else."""
LATE = re.compile(r"\s*(\d{1,2})([./])(\d{1,2})\2(\d{4})(?:[ T]+(\S.*))?")
"""A date with the year at its end."""
ZONED = re.compile(r"\d[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)\s*$")
"""A moment with a time zone as text."""
FORMS = {8: "%Y%m%d", 6: "%Y%m"}


def parse_dates(column: Any, name: str, expected: bool = False) -> Any:
    """A pandas column with its dates as datetime64, in their time zone if they have one, or the column itself if it
    holds something else. Dates such as 03.04.2024 of which nothing says whether the day comes first raise a ValueError.

    Args:
        name: name of the column, which decides what six digits mean.
        expected: the column is known to hold dates.
    """
    pd = import_optional("pandas", "A column of dates")
    types = pd.api.types
    if column.dtype.kind in "Mmbc" or types.is_datetime64_any_dtype(column) or types.is_bool_dtype(column):
        return column
    there = column[column.notna()]
    if not len(there):
        return column
    if types.is_numeric_dtype(column):
        values = there.to_numpy(dtype=np.float64)
        if not np.isfinite(values).all() or (values != values.round()).any() or values.min() < 10_000:
            return column
        text = pd.Series([str(int(v)) for v in values], index=there.index)
    else:
        text = there.astype(str).str.strip()
        found = [LATE.fullmatch(value) for value in text]
        if all(found):
            text = pd.Series(_year_first([one.groups("") for one in found if one], text.iloc[0], name), text.index)
    digits = int(text.str.len().iloc[0])
    if text.str.fullmatch(rf"\d{{{digits}}}").all():
        if digits not in FORMS or not (digits == 8 or expected or NAMED.search(name)):
            return column
        moments = pd.to_datetime(text, format=FORMS[digits], errors="coerce")
        if moments.isna().any() or not moments.dt.year.between(*YEARS).all():
            return column
    elif types.is_numeric_dtype(column) or not text.str.match(r"\d{4}[-/]\d{1,2}").all():
        return column
    else:
        try:
            moments = pd.to_datetime(text.str.replace("/", "-"), format="ISO8601", utc=True)
        except (ValueError, OverflowError):
            return column
        zone = zone_of(text)
        moments = moments.dt.tz_localize(None) if zone is None else moments.dt.tz_convert(zone)
    return moments.dt.as_unit("us").reindex(column.index)


def zone_of(column: Any) -> str | None:
    """Name of the time zone of a pandas or numpy column of dates; None if it has none. That of text is the offset of
    all of its moments, such as UTC+01:00, or UTC if they differ."""
    zone = getattr(column.dtype, "tz", None)
    if zone is None and column.dtype.kind in "OUT":
        first = next((v for v in column if v is not None and v == v), None)
        if isinstance(first, str):
            return _zone_of_text([v for v in column if isinstance(v, str)]) if ZONED.search(first) else None
        zone = getattr(first, "tzinfo", None)
    if zone is None:
        return None
    try:
        import_optional("pandas", "A time zone").Timestamp(0, tz=str(zone))
    except Exception:  # a zone of another library, whose name says nothing
        return "UTC"
    return str(zone)


def _zone_of_text(moments: Sequence[str]) -> str:
    offsets = {found[1] for moment in moments if (found := ZONED.search(moment))}
    parts = re.fullmatch(r"([+-]\d\d):?(\d\d)?", offsets.pop()) if len(offsets) == 1 else None
    return "UTC" if parts is None else f"UTC{parts[1]}:{parts[2] or '00'}"


def in_utc(column: Any) -> Any:
    """A pandas column with moments that have a time zone as those in UTC without one."""
    return column if getattr(column.dtype, "tz", None) is None else column.dt.tz_convert("UTC").dt.tz_localize(None)


def in_zone(column: Any, zone: str | None) -> Any:
    """A pandas column of moments in UTC as those in a time zone; as it is without one."""
    return column if zone is None else column.dt.tz_localize("UTC").dt.tz_convert(zone)


def _year_first(parts: Sequence[Sequence[str]], example: str, name: str) -> list[str]:
    """Dates with the year at their end as ISO text; the number that exceeds 12 somewhere is the day."""
    first, second = (max(int(part[j]) for part in parts) for j in (0, 2))
    if first <= 12 and second <= 12:
        raise ValueError(
            f"Column {name!r} has dates such as {example}, of which nothing says whether the day or the month comes "
            "first: write them as 2017-07-16."
        )
    day, month = (0, 2) if first > 12 else (2, 0)
    return [f"{p[3]}-{p[month].zfill(2)}-{p[day].zfill(2)}" + (f"T{p[4]}" if p[4] else "") for p in parts]
