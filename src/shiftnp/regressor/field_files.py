"""Observations from fields (NetCDF, Zarr)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shiftnp._optional import import_optional
from shiftnp._registry import UnknownName, choose
from shiftnp.regressor.cells import input_column
from shiftnp.regressor.observations import Observations, Targets
from shiftnp.tasks.climate_files import open_dataset, read_values
from shiftnp.tasks.reading import listed

KEPT = ("units", "long_name", "standard_name", "axis", "positive")
"""Attributes of variables that results have as well."""
PLACE = re.compile(r"(nav_)?(lon|lat)(gitude|itude)?|xc|yc", re.IGNORECASE)
"""Names of variables that are places, also where a file does not say that they are coordinates."""


def read_field(path: Path, x: list[str], y: list[str], select: Mapping[str, str]) -> Observations:
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
        inputs = pd.DataFrame({name: input_column(pd.Series(flat[name]), name, path) for name in x})
        grid = Targets(inputs, coordinates(arrays[0], dims), dims) if set(dims) <= set(x) else None
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


def coordinates(array: Any, dims: Sequence[str]) -> Any:
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
