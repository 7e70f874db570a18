"""Observations and targets from files: tables (CSV, TSV, Parquet) and fields (NetCDF, Zarr)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from shiftnp._optional import import_optional
from shiftnp._registry import UnknownName, choose
from shiftnp.regressor.columns import Columns, check_zones
from shiftnp.regressor.columns import read as read_columns
from shiftnp.regressor.times import in_zone, parse_dates
from shiftnp.tasks.climate_files import open_dataset, read_values
from shiftnp.tasks.fill_values import absurd, mask, suspect, too_large
from shiftnp.tasks.reading import listed, shorten
from shiftnp.tasks.table_files import check_points, read_frame

FIELDS = (".nc", ".nc4", ".cdf", ".h5", ".zarr")
"""Suffixes of files with fields."""
KEPT = ("units", "long_name", "standard_name", "axis", "positive")
"""Attributes of variables that results have as well."""
PLACE = re.compile(r"(nav_)?(lon|lat)(gitude|itude)?|xc|yc", re.IGNORECASE)
"""Names of variables that are places, also where a file does not say that they are coordinates."""


NUMBER = r"[-+]?\d*[.,]?\d+(e[-+]?\d+)?(\.\d+)?"
"""A column of a file without names has a number as its name, to which pandas adds another if it occurs twice."""


@dataclass(frozen=True, eq=False)
class Targets:
    """Inputs to predict at.

    Args:
        rows: a DataFrame with a column for each input and a row for each target.
        like: for a grid an `xarray.Dataset` without variables, whose coordinates results have.
        dims: dimensions of the grid, in the order of the rows.
        columns: for points a DataFrame with all columns of their file.
        known: observed values on the grid, by output; NaN in its holes.
    """

    rows: Any
    like: Any = None
    dims: tuple[str, ...] = ()
    columns: Any = None
    known: dict[str, Float[np.ndarray, " n"]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of targets along each dimension of the grid."""
        return tuple(self.like.sizes[dim] for dim in self.dims)


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations from a file, with all inputs and at least one output each.

    Args:
        inputs, outputs: DataFrames with a row for each observation; NaN where an output is missing.
        places: number of each observation in its file: the row of a table, counted from 1, or the cell of a field.
        attributes: attributes of each variable, such as its units, by name.
        grid: the grid of the file, if it has one.
        notes: sentences about what was read, for the user.
    """

    inputs: Any
    outputs: Any
    places: Any
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    grid: Targets | None = None
    notes: tuple[str, ...] = ()

    @property
    def y(self) -> Any:
        """The outputs as `Regressor.fit` takes them: a Series if there is one, with its attributes."""
        if self.outputs.shape[1] > 1:
            return self.outputs
        name = str(self.outputs.columns[0])
        column = self.outputs[name]
        column.attrs = dict(self.attributes.get(name, {}))
        return column


def is_field(path: Path) -> bool:
    """Whether a file has fields (NetCDF, Zarr), and not a table."""
    return path.is_dir() or path.suffix.lower() in FIELDS


def read_observations(
    path: Path,
    x: Sequence[str] = (),
    y: Sequence[str] = (),
    select: Mapping[str, str] | None = None,
    missing: Sequence[float | str] = (),
) -> Observations:
    """Reads observations from a file.

    Args:
        x: names of the inputs. Of a field they may be left out: its dimensions.
        y: names of the outputs. Of a file with one field they may be left out.
        select: values by name: rows of a table with these values, or the cells of a field that are nearest to them.
        missing: numbers, or cells of a table such as "-", that mean "not observed".

    Raises:
        UnknownName: a name is not in the file, or has to be given.
    """
    if not path.exists():
        raise FileNotFoundError(f"No file {path}: give a table (.csv, .tsv, .parquet) or a field (.nc, .zarr).")
    for name in {name for name in x if name in y or list(x).count(name) > 1}:
        raise UnknownName(f"{name!r} is named twice: each column is one input or one output.")
    if is_field(path):
        found = _read_field(path, list(x), list(y), select or {})
    else:
        found = _read_table(path, list(x), list(y), select or {}, [str(cell).strip() for cell in missing])
    return _clean(found, path, [float(number) for number in missing if _is_number(number)])


def _clean(found: Observations, path: Path, missing: Sequence[float]) -> Observations:
    """Observations with all inputs and at least one output; numbers that mean "not observed" are NaN."""
    pd = import_optional("pandas", f"Reading {path.name}")
    outputs, notes = {}, list(found.notes)
    for name in found.outputs.columns:
        values = mask(_numbers(found.outputs[name], str(name), path), missing)
        if (bad := too_large(values)).any():
            raise ValueError(
                f"{name!r} in {path} is {values[bad][0]:g} in {int(bad.sum())} places, which is no observation: make "
                f"it missing with --missing {values[bad][0]:g}."
            )
        if (odd := suspect(values)) is not None:
            notes.append(
                f"{name!r} is {odd[0]:g} in {odd[1]} places, far from all other values: if it means missing, say "
                f"--missing {odd[0]:g}."
            )
        elif (row := absurd(values)) is not None:
            where = f"{'cell' if is_field(path) else 'row'} {np.asarray(found.places)[row]}"
            notes.append(
                f"{name!r} is {values[row]:.9g} in {where}, which is absurdly far from all other values and ruins "
                f"predictions: correct it, or say --missing {values[row]:.9g}."
            )
        outputs[str(name)] = values
    inputs = found.inputs.copy()
    for name in inputs.columns:
        if pd.api.types.is_numeric_dtype(inputs[name]):
            values = mask(inputs[name].to_numpy(dtype=np.float64, na_value=np.nan), missing)
            inputs[name] = np.where(too_large(values), np.nan, values)
    lacking = inputs.isna()
    some = lacking.any(axis=1).to_numpy()
    there = ~np.all([np.isnan(values) for values in outputs.values()], axis=0)
    if (some & there).any() and found.grid is None:
        names = ", ".join(map(str, inputs.columns[lacking.any()]))
        notes.append(f"{int((some & there).sum())} of {len(inputs)} rows have no {names} and are left out.")
    keep = ~some & there
    if not keep.any():
        raise ValueError(f"{path} has no row with all of {listed(inputs.columns)} and any of {listed(outputs)}.")
    if found.grid is not None:
        found.grid.known.update(outputs)
    return Observations(
        inputs[keep].reset_index(drop=True),
        pd.DataFrame(outputs)[keep].reset_index(drop=True),
        np.asarray(found.places)[keep],
        found.attributes,
        found.grid,
        tuple(notes),
    )


def _numbers(column: Any, name: str, path: Path) -> Float[np.ndarray, " n"]:
    pd = import_optional("pandas", f"Reading {path.name}")
    types = pd.api.types
    if types.is_numeric_dtype(column) and not types.is_bool_dtype(column) and not types.is_complex_dtype(column):
        numbers: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers
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
    return f"{shorten(example, 40)!r} in {kind} {column.index[first] + 1}{more}{do}"


# --- tables ----------------------------------------------------------------------------------------------------------


def _read_table(
    path: Path, x: list[str], y: list[str], select: Mapping[str, str], missing: Sequence[str]
) -> Observations:
    frame = _frame(path, (*x, *y, *select))
    if not len(frame):
        raise ValueError(f"{path} has no rows below the names of its columns.")
    if not x or not y:
        lacking = " and ".join(["the inputs with --x"] * (not x) + ["the output with --y"] * (not y))
        raise UnknownName(f"Name {lacking}: {path} has the columns {listed(frame.columns)}.")
    for name in (*x, *y, *select):
        choose(name, dict.fromkeys(frame.columns), f"column of {path.name}")
        if list(frame.columns).count(name) > 1:
            raise ValueError(f"{path} has several columns called {name!r}: rename or drop all but one.")
    check_points(frame, (*x, *y), str(path))
    for name in (*x, *y):
        frame[name] = _text_as_numbers(frame[name], frame.attrs.get("decimal", "."), missing)
    frame = frame.assign(__row__=np.arange(1, len(frame) + 1))
    for name, value in select.items():
        frame = frame[_equal(frame[name], name, value)]
        if not len(frame):
            raise ValueError(f"{path} has no row with {name}={value}.")
    inputs, notes = {}, []
    for name in x:
        inputs[name] = _input(frame[name], name, path)
        if inputs[name] is not frame[name] and frame[name].dtype.kind in "if" and inputs[name].dtype.kind == "M":
            notes.append(f"{name!r} is read as dates, such as {frame[name].iloc[0]:.0f}.")
    pd = import_optional("pandas", f"Reading {path.name}")
    rows = pd.DataFrame(inputs)
    return Observations(rows, frame[y], frame["__row__"], notes=tuple(notes))


def _frame(path: Path, names: Sequence[str]) -> Any:
    """A table whose rows are numbered, and which has columns of these names or at least any names."""
    frame = read_frame(path).reset_index(drop=True)
    frame.columns = [str(name).strip() for name in frame.columns]
    if not names or not set(names) <= set(frame.columns):
        numbers = [re.fullmatch(NUMBER, name) for name in frame.columns]
        if any(numbers) and all(
            n or name.startswith("Unnamed") for n, name in zip(numbers, frame.columns, strict=True)
        ):
            raise UnknownName(
                f"{path} has numbers in its first line ({listed(frame.columns, 3)}), which must hold the names of the "
                "columns: add such a line."
            )
    return frame


def _text_as_numbers(column: Any, decimal: str, missing: Sequence[str] = ()) -> Any:
    """A column of text with its numbers written with decimal points, and nothing in cells that mean "not observed"."""
    if column.dtype.kind not in "OU" or not len(column):
        return column
    text = column.astype(str).str.strip()
    column = column.where(~text.isin(list(missing)))
    if decimal == "," and text.str.contains(",", regex=False).any():
        column = column.where(column.isna(), text.str.replace(r"^([-+]?\d*),(\d+)$", r"\1.\2", regex=True))
    return column


def _equal(column: Any, name: str, value: str) -> Any:
    """Mask of the rows of a column with a value, which is a number, a date or text."""
    dates = parse_dates(column, name)
    try:
        if dates.dtype.kind == "M":
            dates = dates if getattr(dates.dtype, "tz", None) is None else dates.dt.tz_localize(None)
            return dates == np.datetime64(f"{value[:4]}-{value[4:6]}-{value[6:]}" if value.isdigit() else value)
        if column.dtype.kind in "iuf":
            return column == float(value)
    except ValueError:
        return column != column  # no row has it
    return column.astype(str).str.strip() == value


def _input(column: Any, name: str, path: Path, expected: str | None = None) -> Any:
    """A column of inputs as numbers or dates."""
    pd = import_optional("pandas", f"Reading {path.name}")
    types = pd.api.types
    column = column if expected == "number" else parse_dates(column, name, expected == "date")
    if types.is_datetime64_any_dtype(column):
        return column
    if types.is_timedelta64_dtype(column):
        return column
    try:
        return pd.Series(_numbers(column, name, path), index=column.index)
    except ValueError:
        bad = np.array([v == v and v is not None and not _is_number(v) for v in column])
        what = _cells(column, bad, path, expected is None) if bad.any() else f"{str(column.iloc[0])!r}: convert it"
        raise ValueError(
            f"Column {name!r} of {path} must hold numbers or dates (such as 2024-01-31), has {what}."
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


# --- fields ----------------------------------------------------------------------------------------------------------


def _read_field(path: Path, x: list[str], y: list[str], select: Mapping[str, str]) -> Observations:
    pd = import_optional("pandas", f"Reading {path.name}")
    with open_dataset(path) as data:
        names = {str(name): name for name in (*data.data_vars, *data.coords, *data.dims)}
        for name in (*x, *y, *select):
            choose(name, names, f"variable of {path.name}")
        if not y:
            y = [str(name) for name, array in data.data_vars.items() if array.ndim and array.dtype.kind in "fiu"]
            if len(y) != 1:
                raise UnknownName(f"Name the output with --y: {path} has the variables {listed(data.data_vars)}.")
        data, notes = _select(data, select, path)
        long = [dim for name in y for dim in data[name].dims if data.sizes[dim] > 1]
        if not x:
            _check_places(data, long, y, path)
            x = list(dict.fromkeys(map(str, long)))
        if not x:
            raise ValueError(f"{listed(y)} in {path} is a single value: there is nothing to predict it from.")
        covered = {dim for name in x for dim in data[name].dims}
        for dim in long:
            if dim not in covered:
                first = str(data[dim].values[0]).removesuffix(":00.000000000")
                raise UnknownName(
                    f"{listed(y)} in {path} has {data.sizes[dim]} values along {dim!r}: add {dim} to --x, or choose "
                    f"one with --select {dim}={first}."
                )
        data = data.squeeze([dim for dim in data.dims if data.sizes[dim] == 1 and dim not in covered])
        xr = import_optional("xarray", f"Reading {path.name}")
        arrays = xr.broadcast(*(data[name] for name in (*y, *x)))
        flat = {name: read_values(a, path).ravel() for name, a in zip((*y, *x), arrays, strict=True)}
        attributes = {
            name: {key: data[name].attrs[key] for key in KEPT if key in data[name].attrs} for name in (*x, *y)
        }
        dims = tuple(map(str, arrays[0].dims))
        inputs = pd.DataFrame({name: _input(pd.Series(flat[name]), name, path) for name in x})
        grid = Targets(inputs, _coordinates(arrays[0], dims), dims) if set(dims) <= set(x) else None
        outputs = pd.DataFrame({name: flat[name] for name in y})
    return Observations(inputs, outputs, np.arange(1, len(inputs) + 1), attributes, grid, tuple(notes))


def _check_places(data: Any, dims: Sequence[Any], y: Sequence[str], path: Path) -> None:
    """Raises an UnknownName if a dimension is only a number, such as that of a station, and other variables say where
    that is: coordinates along it, or what has the name of one."""
    for dim in dims:
        if dim in data.coords:
            continue
        places = [
            str(name)
            for name, array in data.variables.items()
            if (name in data.coords or PLACE.fullmatch(str(name)))
            and name not in y
            and dim in array.dims
            and set(array.dims) <= set(dims)
            and array.dtype.kind in "fiuM"
        ]
        if places:
            raise UnknownName(
                f"{listed(y)} in {path} is along {dim!r}, which has no coordinate of its own: name the inputs, such as "
                f"--x {' '.join(places[:3])}, or --x {dim} for the number along it."
            )


def _coordinates(array: Any, dims: Sequence[str]) -> Any:
    """The coordinates of a field along its dimensions, as a Dataset without variables."""
    xr = import_optional("xarray", "A field")
    about = {dim: {key: array[dim].attrs[key] for key in KEPT if key in array[dim].attrs} for dim in dims}
    return xr.Dataset(coords={dim: (dim, array[dim].values, about[dim]) for dim in dims})


def _select(data: Any, select: Mapping[str, str], path: Path) -> tuple[Any, list[str]]:
    """The part of a file that is nearest to values of its coordinates, and sentences that name them."""
    notes = []
    for name, value in select.items():
        if name not in data.dims:
            raise UnknownName(f"{name!r} is no dimension of {path}: --select takes {listed(data.dims)}.")
        along = data[name].values
        try:
            wanted = np.datetime64(value) if along.dtype.kind == "M" else float(value)
            nearest = int(np.abs(along - wanted).argmin())
        except (ValueError, TypeError) as error:
            raise UnknownName(f"--select {name}={value} is no value of {name!r}, such as {along[0]}.") from error
        if not along.min() <= wanted <= along.max() and len(along) > 1:
            raise UnknownName(f"--select {name}={value} is outside of {path}: {along.min()} to {along.max()}.")
        data = data.isel({name: nearest})
        found = str(along[nearest]).removesuffix(".000000000")
        notes.append(f"{name} = {found} is selected.")
    return data, notes


# --- targets ---------------------------------------------------------------------------------------------------------


def check_targets(path: Path) -> None:
    """Raises a FileNotFoundError if there is no file of targets."""
    if not path.exists():
        raise FileNotFoundError(f"No file {path}: --at takes a table (.csv, .tsv, .parquet) or a grid (.nc, .zarr).")


def read_targets(path: Path, inputs: Columns) -> Targets:
    """Targets from a file with the inputs that a model was fitted to: the rows of a table, or the cells of a field."""
    check_targets(path)
    pd = import_optional("pandas", f"Reading {path.name}")
    kinds = dict(zip(inputs.names, inputs.kinds, strict=True))
    if not is_field(path):
        frame = _frame(path, inputs.names)
        for name in inputs.names:
            choose(name, dict.fromkeys(frame.columns), f"column of {path.name}")
        check_points(frame, inputs.names, str(path))
        written = {n: _text_as_numbers(frame[n], frame.attrs.get("decimal", ".")) for n in inputs.names}
        rows = pd.DataFrame({name: _input(written[name], name, path, kinds[name]) for name in inputs.names})
        _check_kinds(rows, kinds, path)
        check_zones(read_columns(rows, "X", "x").columns, inputs, f"of {path}", "the observations")
        return Targets(rows, columns=frame)
    with open_dataset(path) as data:
        for name in inputs.names:
            known = map(str, (*data.coords, *data.dims, *data.data_vars))
            choose(name, dict.fromkeys(known), f"variable of {path.name}")
        covered = {dim for name in inputs.names for dim in data[name].dims}
        data = data.squeeze([dim for dim in data.dims if data.sizes[dim] == 1 and dim not in covered])
        xr = import_optional("xarray", f"Reading {path.name}")
        widest = sorted(inputs.names, key=lambda name: -data[name].ndim)  # a field has its dimensions in their order
        arrays = dict(zip(widest, xr.broadcast(*(data[name] for name in widest)), strict=True))
        dims = tuple(map(str, arrays[widest[0]].dims))
        flat = {name: pd.Series(read_values(arrays[name], path).ravel()) for name in inputs.names}
        rows = pd.DataFrame({name: _input(flat[name], name, path, kinds[name]) for name in inputs.names})
        _check_kinds(rows, kinds, path)
        for j, name in enumerate(inputs.names):
            rows[name] = in_zone(rows[name], inputs.zone(j))
        return Targets(rows, _coordinates(arrays[widest[0]], dims), dims)


def _check_kinds(rows: Any, kinds: Mapping[str, str], path: Path) -> None:
    for name, kind in kinds.items():
        found = {"M": "date", "m": "duration"}.get(rows[name].dtype.kind, "number")
        if found != kind:
            raise ValueError(f"Column {name!r} of {path} holds {found}s, and {kind}s in the observations.")
