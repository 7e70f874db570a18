"""Observations from numpy, pandas, xarray and whatever else is like an array, as columns of numbers, and back.

Dates become days since 1970-01-01 (UTC), durations become days.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from shiftnp._optional import import_optional
from shiftnp._registry import choose
from shiftnp.tasks.dates import zone_of

Kind = Literal["number", "date", "duration"]
DAY = np.timedelta64(1, "D")
COMPACT = re.compile(r"\d{8}")


@dataclass(frozen=True)
class Columns:
    """Names and kinds of the columns of a data set.

    Args:
        given: whether the names come from the data; else they are x0, x1, ...
        attributes: attributes of each column, such as its unit, by name.
        zones: name of the time zone of each column, None for numbers and for dates without one; nothing if the data
            cannot have zones (xarray) and are taken to be in UTC.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    given: bool = False
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    zones: tuple[str | None, ...] = ()

    def zone(self, j: int) -> str | None:
        """Time zone of column `j`, or None if it has none."""
        return self.zones[j] if self.zones else None

    def about(self, j: int) -> dict[str, Any]:
        """Attributes of column `j` where dates cannot have a time zone and are in UTC."""
        zone = {} if self.zone(j) is None else {"time_zone": "UTC"}
        return {**self.attributes.get(self.names[j], {}), **zone}

    def restore(self, j: int, values: Float[np.ndarray, "*any"]) -> np.ndarray:
        """Values of column `j` as they were given: dates (in UTC) and durations instead of numbers."""
        if self.kinds[j] == "number":
            return values
        whole = (values * 86_400e6).round().astype("int64")  # microseconds
        return whole.astype("datetime64[us]" if self.kinds[j] == "date" else "timedelta64[us]").astype(
            f"{'datetime64' if self.kinds[j] == 'date' else 'timedelta64'}[ns]"
        )


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of numbers, and what is needed to give results in the form of the data.

    Args:
        flat: whether the data were one-dimensional.
        like: the pandas index of the rows, or an xarray object with the coordinates of results; None: numpy.
    """

    values: Float[np.ndarray, "n d"]
    columns: Columns
    flat: bool = False
    like: Any = None


@dataclass(frozen=True, eq=False)
class Chunked:
    """Targets that are read block by block.

    Args:
        arrays: a dask array for each input, with the dimensions that it varies along; blocks of all are the same.
        axes: which of all dimensions these are, in ascending order.
        columns: kinds of the arrays.
        like: an xarray object with the coordinates of results.
    """

    arrays: tuple[Any, ...]
    axes: tuple[tuple[int, ...], ...]
    columns: Columns
    like: Any = None


# --- reading ---------------------------------------------------------------------------------------------------------


def loaded(package: str) -> Any:
    """An optional package if it has been imported, which it has if data are of one of its classes; else None."""
    return sys.modules.get(package)


def is_pandas(data: Any) -> bool:
    """Whether data are a pandas DataFrame or Series."""
    pd = loaded("pandas")
    return pd is not None and isinstance(data, (pd.DataFrame, pd.Series))


def is_xarray(data: Any) -> bool:
    """Whether data are an xarray Dataset or DataArray."""
    xr = loaded("xarray")
    return xr is not None and isinstance(data, (xr.Dataset, xr.DataArray))


def read(data: Any, what: str, prefix: str, known: Columns | None = None, dates: bool = True) -> Table:
    """Reads inputs or outputs.

    Args:
        what: the argument, "X" or "y", for error messages.
        prefix: names of columns without a name: the prefix and a number.
        known: columns of the data that the model was fitted to. Columns with names are found by them, in any order and
            among others.
        dates: whether columns may hold dates.
    """
    if is_xarray(data):
        return _read_xarray(data, what, known)
    index, attributes = None, {}
    names: list[Any] | None = None
    flat = False
    if is_pandas(data):
        index, flat = data.index, data.ndim == 1
        names = [data.name] if flat else list(data.columns)
        if flat and names == [None]:
            names = None
        if names is not None and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{what} has two columns named {twice!r}: rename or drop one.")
        if names is not None and known is not None and known.given and not flat:
            names = [choose(name, {str(n): str(n) for n in names}, f"column of {what}") for name in known.names]
            data = data.rename(columns=str)[names]
        attributes = {str(n): dict(data.attrs) for n in names or () if flat and data.attrs}
        series = [data] if flat else [data.iloc[:, j] for j in range(data.shape[1])]
        arrays, zones = [_plain(one) for one in series], [zone_of(one) for one in series]
        rows = len(data)
    elif hasattr(data, "columns") and hasattr(data, "get_column"):  # polars
        names = list(data.columns)
        if known is not None and known.given:
            names = [choose(name, {n: n for n in names}, f"column of {what}") for name in known.names]
        arrays, rows = [data.get_column(name).to_numpy() for name in names], len(data)
        zones = [getattr(data.get_column(name).dtype, "time_zone", None) for name in names]
    else:
        array = _array(data, what)
        flat = array.ndim == 1
        arrays = [array] if flat else list(array.T)
        zones = [zone_of(one) for one in arrays]
        rows = len(array)
    if names is None:
        names = [f"{prefix}{j}" for j in range(len(arrays))]
        given = False
    else:
        given = all(isinstance(name, str) for name in names)
        names = [str(name) for name in names]
    numbers = [numbers_of(a, f"Column {n!r} of {what}", dates) for a, n in zip(arrays, names, strict=True)]
    values = np.stack([v for v, _ in numbers], -1) if numbers else np.zeros((rows, 0))
    zones = [zone if kind == "date" else None for (_, kind), zone in zip(numbers, zones, strict=True)]
    columns = Columns(tuple(names), tuple(kind for _, kind in numbers), given, attributes, tuple(zones))
    if known is not None:
        _match(columns, known, what)
    return Table(values, columns, flat, index)


def read_field(data: Any) -> tuple[Table, Table]:
    """Inputs and outputs of an xarray DataArray: its coordinates and its values."""
    x = _read_xarray(data, "X", None)
    name = str(data.name) if data.name is not None else "y0"
    values, kind = numbers_of(
        np.asarray(data.transpose(*x.like.dims).values).ravel(), f"The field {name!r}", dates=False
    )
    return x, Table(values[:, None], Columns((name,), (kind,), True, {name: dict(data.attrs)}), True)


def _read_xarray(data: Any, what: str, known: Columns | None) -> Table:
    """The coordinates of every cell of a DataArray or Dataset; for known inputs also its variables, such as elevation
    on a grid."""
    xr = import_optional("xarray", "A field")
    fields = _fields(data, what, known)
    names = tuple(fields)
    cells = xr.broadcast(*fields.values())
    numbers = [numbers_of(f.values.ravel(), f"{n!r} of {what}") for f, n in zip(cells, names, strict=True)]
    attributes = {name: dict(field.attrs) for name, field in fields.items() if field.attrs}
    columns = Columns(names, tuple(kind for _, kind in numbers), True, attributes)
    if known is not None:
        _match(columns, known, what)
    return Table(np.stack([v for v, _ in numbers], -1), columns, like=cells[0].drop_attrs(deep=False))


def _fields(data: Any, what: str, known: Columns | None) -> dict[str, Any]:
    """The coordinates or variables of a DataArray or Dataset that are inputs."""
    names = known.names if known is not None else tuple(map(str, data.dims))
    present = {str(name): data[name] for name in (*data.coords, *getattr(data, "data_vars", ()))}
    for name in names:
        if name not in present:
            raise ValueError(f"{what} has no coordinate {name!r}: assign one (`assign_coords`), or drop the dimension.")
    return {name: present[name] for name in names}


def is_chunked(data: Any) -> bool:
    """Whether data are an xarray object with dask arrays."""
    return is_xarray(data) and bool(data.chunks)


def read_chunked(data: Any, what: str, known: Columns) -> Chunked:
    """Inputs on the blocks of a DataArray or Dataset with dask arrays; nothing is computed."""
    xr, da = import_optional("xarray", "A field"), import_optional("dask.array", "A field of dask arrays", "dask")
    data = data.unify_chunks()
    fields = _fields(data, what, known)
    like = xr.broadcast(*fields.values())[0].drop_attrs(deep=False)
    arrays, axes = [], []
    for name in known.names:
        part = fields[name].transpose(*(dim for dim in like.dims if dim in fields[name].dims))
        sizes = tuple(data.chunksizes.get(dim, -1) for dim in part.dims)
        arrays.append(part.data if part.chunks else da.from_array(part.values, sizes))
        axes.append(tuple(map(like.dims.index, part.dims)))
    return Chunked(tuple(arrays), tuple(axes), known, like)


def read_block(arrays: Sequence[np.ndarray], known: Columns, what: str = "X") -> Table:
    """The rows of one block of `Chunked`."""
    found = [
        numbers_of(a.ravel(), f"{n!r} of {what}")
        for a, n in zip(np.broadcast_arrays(*arrays), known.names, strict=True)
    ]
    columns = replace(known, kinds=tuple(kind for _, kind in found))
    _match(columns, known, what)
    return Table(np.stack([v for v, _ in found], -1), columns)


def _match(columns: Columns, known: Columns, what: str) -> None:
    if len(columns.names) != len(known.names):
        # The first words are those of scikit-learn.
        raise ValueError(
            f"{what} has {len(columns.names)} features, but Regressor is expecting {len(known.names)} features as "
            f"input ({', '.join(known.names)}). Reshape your data to one row per point and one column per input."
        )
    for name, kind, expected in zip(known.names, columns.kinds, known.kinds, strict=True):
        if kind != expected:
            raise ValueError(f"Column {name!r} of {what} holds {kind}s, and {expected}s in the data of `fit`.")
    check_zones(columns, known, f"of {what}", "the data of `fit`")


def check_zones(columns: Columns, known: Columns, where: str, others: str) -> None:
    """Raises a ValueError if dates have a time zone in one of two data sets only."""
    if not columns.zones or not known.zones:
        return
    for name, kind, zone, expected in zip(known.names, columns.kinds, columns.zones, known.zones, strict=True):
        if kind == "date" and (zone is None) != (expected is None):
            has, lacks = (f"the time zone {zone}", "none") if zone is not None else ("no time zone", str(expected))
            raise ValueError(
                f"Column {name!r} {where} has {has}, and {others} have {lacks}: give both a zone, or none."
            )


def _plain(column: Any) -> np.ndarray:
    """A pandas column as a numpy array; moments with a time zone in UTC."""
    pd = loaded("pandas")
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return np.asarray(column)
    return column.to_numpy() if column.dtype.kind == "c" else column.to_numpy(dtype=np.float64, na_value=np.nan)


def _array(data: Any, what: str) -> np.ndarray:
    if hasattr(data, "toarray") and hasattr(data, "nnz"):
        raise TypeError(f"{what} is a sparse matrix, which Regressor does not take: convert it with `.toarray()`.")
    if data is None:
        raise ValueError(f"Regressor requires {what} to be passed, but the target {what} is None.")
    if hasattr(data, "detach"):  # a torch tensor
        data = data.detach().cpu().numpy()
    array = _unmasked(data) if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{what} must have one row per point and one column per variable, got shape {array.shape}. Reshape your "
            "data."
        )
    return array


def _unmasked(data: np.ma.MaskedArray[Any, Any]) -> np.ndarray:
    """A masked array as a plain one, with NaN, NaT or None where it is masked."""
    kind, absent = data.dtype.kind, np.ma.getmaskarray(data)
    if not absent.any():
        return np.asarray(data)
    values = np.array(data, dtype=np.float64 if kind in "fiub" else data.dtype if kind in "mMc" else object)
    values[absent] = {"m": np.timedelta64("NaT"), "M": np.datetime64("NaT"), "O": None}.get(values.dtype.kind, np.nan)
    return values


def numbers_of(values: np.ndarray, what: str, dates: bool = True) -> tuple[Float[np.ndarray, " n"], Kind]:
    """A column in float64, and its kind."""
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {what} has complex numbers.")
    if values.dtype.kind in "fiub":
        return values.astype(np.float64), "number"
    if values.dtype.kind in "mM" and dates:
        days = values.astype(f"{'datetime64' if values.dtype.kind == 'M' else 'timedelta64'}[ns]").astype(np.int64)
        return np.where(np.isnat(values), np.nan, days / 86_400e9), "date" if values.dtype.kind == "M" else "duration"
    if values.dtype.kind in "OUT":
        there = [v for v in values if v is not None and v == v]
        text = [str(v) for v in there if isinstance(v, str)]
        if dates and text and len(text) == len(there) and all(map(COMPACT.fullmatch, text)):
            iso = np.array([f"{v[:4]}-{v[4:6]}-{v[6:]}" if isinstance(v, str) else "NaT" for v in values], dtype=object)
            return _dates(iso, what), "date"
        try:
            return values.astype(np.float64), "number"
        except ValueError:
            if dates:
                return _dates(values, what), "date"
        except TypeError:
            if dates and all(hasattr(v, "isoformat") for v in there):
                return _dates(values, what), "date"
            other = next((v for v in there if not isinstance(v, str | int | float)), None)
            raise TypeError(
                f"{what} holds {type(other).__name__}: an argument must be a string or a number, or a date."
            ) from None
    kinds = "numbers or dates (such as 2024-01-31)" if dates else "numbers"
    example = next((v for v in values if not _is_number(v)), values[0] if len(values) else "nothing")
    raise ValueError(f"{what} must hold {kinds}, has {str(example)[:40]!r}: convert it first.")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _dates(values: np.ndarray, what: str) -> Float[np.ndarray, " n"]:
    """ISO dates as days since 1970-01-01."""
    try:
        if (pd := loaded("pandas")) is not None:
            moments = pd.to_datetime(values, format="ISO8601", utc=True).tz_localize(None).to_numpy()
        else:
            moments = np.array([v if v is not None and v == v else "NaT" for v in values], "datetime64[us]")
    except (ValueError, TypeError, OverflowError) as error:
        example = next((v for v in values if isinstance(v, str) and not _is_number(v)), values[0])
        raise ValueError(
            f"{what} must hold numbers or dates (such as 2024-01-31), has {str(example)[:40]!r}: convert it first."
        ) from error
    return numbers_of(moments, what)[0]
