"""Observations and targets from files: tables (CSV, TSV, Parquet) and fields (NetCDF, Zarr)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shiftnp._optional import import_optional
from shiftnp._registry import UnknownName, choose
from shiftnp.regressor.cells import input_column, is_field, is_number, numbers, text_as_numbers
from shiftnp.regressor.columns import Columns, check_zones
from shiftnp.regressor.columns import read as read_columns
from shiftnp.regressor.field_files import coordinates, read_field
from shiftnp.regressor.observations import Observations, Targets
from shiftnp.tasks.climate_files import open_dataset, read_values
from shiftnp.tasks.dates import in_zone, parse_dates
from shiftnp.tasks.fill_values import absurd, mask, suspect, too_large
from shiftnp.tasks.reading import listed
from shiftnp.tasks.table_files import check_points, read_frame

NUMBER = r"[-+]?\d*[.,]?\d+(e[-+]?\d+)?(\.\d+)?"
"""A column of a file without names has a number as its name, to which pandas adds another if it occurs twice."""


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
        found = read_field(path, list(x), list(y), select or {})
    else:
        found = _read_table(path, list(x), list(y), select or {}, [str(cell).strip() for cell in missing])
    return _clean(found, path, [float(number) for number in missing if is_number(number)])


def _clean(found: Observations, path: Path, missing: Sequence[float]) -> Observations:
    """Observations with all inputs and at least one output; numbers that mean "not observed" are NaN."""
    pd = import_optional("pandas", f"Reading {path.name}")
    outputs, notes = {}, list(found.notes)
    for name in found.outputs.columns:
        values = mask(numbers(found.outputs[name], str(name), path), missing)
        if (bad := too_large(values)).any():
            wrong = [f"{value:g}" for value in np.unique(values[bad])]
            raise ValueError(
                f"{name!r} in {path} is {' or '.join(wrong)} in {int(bad.sum())} places, which is no observation: make "
                f"it missing with --missing {' '.join(wrong)}."
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
        if list(frame.columns).count(name) > 1 or name in frame.attrs.get("repeated", ()):
            raise ValueError(f"{path} has several columns called {name!r}: rename or drop all but one.")
    check_points(frame, (*x, *y), str(path))
    for name in (*x, *y):
        frame[name] = text_as_numbers(frame[name], frame.attrs.get("decimal", "."), missing)
    frame = frame.assign(__row__=np.arange(1, len(frame) + 1))
    for name, value in select.items():
        frame = frame[_equal(frame[name], name, value)]
        if not len(frame):
            raise ValueError(f"{path} has no row with {name}={value}.")
    inputs, notes = {}, []
    for name in x:
        inputs[name] = input_column(frame[name], name, path)
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
        written = {n: text_as_numbers(frame[n], frame.attrs.get("decimal", ".")) for n in inputs.names}
        rows = pd.DataFrame({name: input_column(written[name], name, path, kinds[name]) for name in inputs.names})
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
        rows = pd.DataFrame({name: input_column(flat[name], name, path, kinds[name]) for name in inputs.names})
        _check_kinds(rows, kinds, path)
        for j, name in enumerate(inputs.names):
            rows[name] = in_zone(rows[name], inputs.zone(j))
        return Targets(rows, coordinates(arrays[widest[0]], dims), dims)


def _check_kinds(rows: Any, kinds: Mapping[str, str], path: Path) -> None:
    for name, kind in kinds.items():
        found = {"M": "date", "m": "duration"}.get(rows[name].dtype.kind, "number")
        if found != kind:
            raise ValueError(f"Column {name!r} of {path} holds {found}s, and {kind}s in the observations.")
