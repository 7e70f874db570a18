"""Reading climate files (NetCDF, Zarr, npz): one air temperature on a grid of latitudes, longitudes and times."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from shiftnp._optional import import_optional
from shiftnp.tasks.fill_values import mask, missing_setting, suspect, too_large, warn_of_fill_values
from shiftnp.tasks.hdf5_check import check_hdf5
from shiftnp.tasks.reading import listed, reading, shorten
from shiftnp.tasks.zarr_check import check_zarr

HDF5 = b"\x89HDF"  # the first bytes of NetCDF 4
SUFFIXES = (".nc", ".nc4", ".cdf", ".h5", ".npz", ".zarr")
GRAVITY = 9.80665  # m / s^2, by which a geopotential becomes a height

# Standard names, units and common names, in lower case, by which the parts of a file are recognised.
_TIME = {"time", "valid_time", "t", "date"}
_LAT = {"latitude", "lat", "degrees_north", "degree_north", "nav_lat", "y"}
_LON = {"longitude", "lon", "degrees_east", "degree_east", "nav_lon", "x"}
_TEMPERATURE = {"air_temperature", "t2m", "2t", "tas", "tair", "tair_k", "t2m_k", "tg", "temperature"}
_ELEVATION = {"surface_altitude", "geopotential", "surface_geopotential", "geopotential_at_surface"}
_ELEVATION |= {"elevation", "elevation_m", "elev", "orog", "orography", "altitude", "asurf", "topo", "z"}
_KELVIN = {"k", "kelvin", "kelvins", "degk", "deg_k", "degrees_kelvin"}
_CELSIUS = {"c", "degc", "deg_c", "°c", "celsius", "degree_celsius", "degrees_celsius", "degrees_c", "degreec"}


class FileInfo(NamedTuple):
    """Variable, coordinates and calendar of one file. Longitudes and the order of latitudes are the file's own."""

    path: Path
    variable: str
    calendar: str
    lat: Float[np.ndarray, " h"]
    lon: Float[np.ndarray, " w"]
    days: Float[np.ndarray, " t"]  # since 1970-01-01, counted in the file's calendar


def open_file(path: Path) -> Any:
    """Opens a file as a lazy `xarray.Dataset` with dimensions `time`, `lat` and `lon` if it has them."""
    return _rename(open_dataset(path), path)


def open_dataset(path: Path) -> Any:
    """Opens a file as a lazy `xarray.Dataset`, with its own names."""
    xr = import_optional("xarray", f"Reading {path.name}")
    if path.suffix == ".npz":
        data = _open_npz(path, xr)
    else:
        # The xarray backend is chosen by the first bytes and passed as a class: xarray's own guess imports every
        # installed backend, and eccodes, imported before cartopy, crashes Python.
        options: dict[str, Any] = {}
        if path.is_dir():
            check_zarr(path)
            engine, what = xr.backends.ZarrBackendEntrypoint, "a Zarr store"
            options = {"consolidated": False}  # consolidated metadata is optional
        else:
            head = first_bytes(path)
            if head[:3] == b"CDF":
                import_optional("scipy", f"Reading {path.name}, which is NetCDF 3,")
                engine, what = xr.backends.ScipyBackendEntrypoint, "a NetCDF 3 file"
            elif head == HDF5:
                import_optional("h5netcdf", f"Reading {path.name}")
                engine, what = xr.backends.H5netcdfBackendEntrypoint, "a NetCDF 4 file"
                check_hdf5([path])
            elif head[:2] == b"PK":
                raise ValueError(f"{path} is a zip archive: unpack it and give the NetCDF files in it.")
            else:
                raise ValueError(
                    f"{path} is neither NetCDF nor Zarr nor npz: convert it, from GRIB with grib_to_netcdf."
                )
        undecoded = None
        with reading(path, what):
            try:
                data = xr.open_dataset(path, engine=engine, decode_timedelta=False, cache=False, **options)
            except ValueError as error:
                if "cftime" not in str(error) and "decode time" not in str(error):
                    raise
                undecoded = error
        if undecoded is not None:
            raise ValueError(
                f"The times in {path} cannot be read; they need CF units such as 'hours since 1900-01-01' and, "
                "in calendars other than the standard one, the package cftime."
            ) from undecoded
    return data


def first_bytes(path: Path) -> bytes:
    """The first four bytes of a file, which tell its format; none for a folder."""
    if path.is_dir():
        return b""
    with reading(path, "a file"), path.open("rb") as file:
        return file.read(4)


def read_values(array: Any, path: Path, dtype: type | None = None) -> np.ndarray:
    """Reads the values of a lazy array, converted to `dtype` if that is given."""
    if array.nbytes > _memory():
        raise ValueError(
            f"{array.name} in {path} has {array.size} values, more than this machine can hold: read less of it, or get "
            "the file again if it should be smaller."
        )
    with reading(path, "a climate file"), np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array.values, dtype)


def _memory() -> float:
    """Bytes of physical memory, infinite if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _coordinate(data: Any, name: str, path: Path) -> Float[np.ndarray, " n"]:
    """Latitudes or longitudes, in float64."""
    limit = 90.5 if name == "lat" else 720
    values = read_values(data[name], path, np.float64)
    if not values.size or not (np.abs(values) <= limit).all() or len(np.unique(values)) < len(values):
        raise ValueError(f"{path} has a {name} that is not degrees, or some of them twice: get it again or convert it.")
    return values


def _open_npz(path: Path, xr: Any) -> Any:
    """An npz with `lat`, `lon`, `time_h` or `month` (since 1970-01), `elevation_m` and a temperature `NAME_K`."""
    with reading(path, "an npz file"), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        names = {name: arrays[name] for name in arrays.files}
    unit = "h" if "time_h" in names else "M" if "month" in names else None
    if unit is None or not {"lat", "lon"} <= names.keys():
        raise ValueError(f"{path} must have arrays lat, lon and time_h or month (since 1970), has {listed(names)}.")
    with reading(path, "an npz file with a time for each field"):
        time = names["time_h" if unit == "h" else "month"].astype(f"datetime64[{unit}]").astype("datetime64[ns]")
    coords = {"time": time, "lat": names["lat"], "lon": names["lon"]}
    data: dict[str, Any] = {}
    for name, values in names.items():
        if values.ndim == 3:
            data[name] = (("time", "lat", "lon"), values, {"units": name.rpartition("_")[2]})
        elif values.ndim == 2:
            # Spectral smoothing leaves ripples of some metres at sea.
            data[name] = (("lat", "lon"), np.maximum(values, 0), {"units": "m"})
    with reading(path, "an npz file whose arrays fit together"):
        return xr.Dataset(data, coords)


def _rename(data: Any, path: Path) -> Any:
    """The data set with its coordinates renamed to `time`, `lat` and `lon`."""
    for new, known, axis in (("time", _TIME, "T"), ("lat", _LAT, "Y"), ("lon", _LON, "X")):
        found = [str(name) for name in data.variables if _matches(data[name], known - {"x", "y", "t"}, axis)]
        # Dimensions come first (corners of cells, reference times and the like are none), bare names x, y and t last.
        found = [name for name in found if name in data.dims] or found
        found = found or [str(name) for name in data.dims if name in known and name in data.variables]
        if not found:
            continue
        old = new if new in found else found[0]
        if data[old].ndim > 1:
            raise ValueError(
                f"{path} has {old} in {data[old].ndim} dimensions: interpolate it to a latitude-longitude grid."
            )
        if data[old].ndim == 0:
            data = data.expand_dims(old)
        elif data[old].dims != (old,):
            data = data.set_coords(old).swap_dims({data[old].dims[0]: old})
        if old != new:
            data = data.drop_vars(new, errors="ignore").rename({old: new})
    return data


def _matches(array: Any, known: set[str], axis: str | None = None) -> bool:
    attrs = array.attrs
    words = {str(array.name).lower(), str(attrs.get("standard_name", "")).lower(), str(attrs.get("units", "")).lower()}
    return bool(words & known) or (axis is not None and attrs.get("axis") == axis)


def file_info(path: Path, variable: str | None = None) -> FileInfo | None:
    """Variable and coordinates of a file, None if it has no temperature."""
    with open_file(path) as data:
        name = temperature(data, path, variable)
        if name is None:
            return None
        days, calendar = to_days(data["time"], path)
        if not np.isfinite(days).all():
            raise ValueError(f"{path} has missing times: get it again, or remove what has no time.")
        lat, lon = (_coordinate(data, axis, path) for axis in ("lat", "lon"))
        return FileInfo(path, name, calendar, lat, lon, days)


def temperature(data: Any, path: Path, variable: str | None = None) -> str | None:
    """Name of the temperature in an opened file, None if there is none."""
    gridded = [str(name) for name, array in data.data_vars.items() if {"time", "lat", "lon"} <= set(array.dims)]
    if variable is not None:
        if variable in gridded:
            return variable
        return None
    found = [name for name in gridded if _matches(data[name], _TEMPERATURE)]
    found = found or [name for name in gridded if _matches(data[name], _KELVIN | _CELSIUS)]
    if len(found) > 1:
        raise ValueError(f"{path} has several temperatures, {listed(found)}: say which by `variable`.")
    return found[0] if found else None


def select_dims(array: Any, path: Path, *dims: str) -> Any:
    """The array with dimensions `dims`, in this order; other dimensions must have size one and are dropped."""
    for dim in set(array.dims) - set(dims):
        if array.sizes[dim] > 1:
            raise ValueError(
                f"{array.name} in {path} has {array.sizes[dim]} values along {dim}: select one and write a new file."
            )
        array = array.isel({dim: 0})
    return array.transpose(*dims)


def observed(values: Float[np.ndarray, "*any"], where: str, missing: Sequence[float]) -> Float[np.ndarray, "*any"]:
    """The values of a field with NaN where they are `missing`. Raises if one is 1e30 or more."""
    values = mask(values, missing)
    if (bad := too_large(values)).any():
        number = values.flat[int(bad.argmax())]
        raise ValueError(
            f"{where} has {number:g} in {int(bad.sum())} places, which is no observation: declare it as _FillValue in "
            "the file, or by `missing`."
        )
    return values


def to_celsius(
    values: Float[np.ndarray, "*any"], units: str, where: str, missing: Sequence[float] = ()
) -> Float[np.ndarray, "*any"]:
    """Temperatures in degrees Celsius, float32, NaN where `missing`; without units, values above 150 are kelvins."""
    values = observed(values.astype(np.float32), where, missing)
    if (found := suspect(values)) is not None:
        raise ValueError(
            f"{where} has {found[0]:g} in {found[1]} places, far from all other values: if it is a fill value, declare "
            f"it as _FillValue in the file or by {missing_setting(found[0])}."
        )
    if not np.isfinite(values).any():
        return values
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    unit = units.strip().lower().replace(" ", "_")
    if not unit:
        unit = "k" if low > 150 else "c"
    if unit not in _KELVIN | _CELSIUS:
        raise ValueError(f"{where} is in {shorten(units, 40)!r}: convert it to K or degC.")
    offset = 273.15 if unit in _KELVIN else 0.0
    if low - offset < -100 or high - offset > 70:
        raise ValueError(
            f"{where} goes from {low:g} to {high:g} in {shorten(units, 40)!r}, which no air temperature does: check "
            "its units, or declare fill values by `missing`."
        )
    return values - np.float32(offset)


def elevation(
    path: Path, missing: Sequence[float] = ()
) -> tuple[Float[np.ndarray, " h"], Float[np.ndarray, " w"], Float[np.ndarray, "h w"]] | None:
    """Latitudes, longitudes and metres above sea of a file, None if it has no elevation."""
    with open_file(path) as data:
        for name, array in data.data_vars.items():
            others = [dim for dim in array.dims if dim not in ("lat", "lon") and array.sizes[dim] > 1]
            if others or not _matches(array, _ELEVATION) or not {"lat", "lon"} <= set(array.dims):
                continue
            metres = read_values(select_dims(array, path, "lat", "lon"), path, np.float64)
            metres = observed(metres, f"{name} in {path}", missing)
            warn_of_fill_values(metres, f"{name} in {path}")
            units = str(array.attrs.get("units", "m")).replace(" ", "")
            if units in ("m**2s**-2", "m2s-2", "m^2s^-2", "m2/s2", "m^2/s^2"):
                metres = np.maximum(metres / GRAVITY, 0)  # spectral ripples around zero at sea
            elif units not in ("m", "metre", "metres", "meter", "meters"):
                raise ValueError(f"{name} in {path} is in {shorten(units, 40)!r}: convert it to metres.")
            if min(metres.shape) < 2:
                raise ValueError(
                    f"{name} in {path} has {metres.shape} points, but a grid needs 2 x 2: name another file."
                )
            return _coordinate(data, "lat", path), _coordinate(data, "lon", path), metres
    return None


def to_days(time: Any, path: Path) -> tuple[Float[np.ndarray, " t"], str]:
    """Times as days since 1970-01-01, and the calendar in which they are counted."""
    values = read_values(time, path)
    if np.issubdtype(values.dtype, np.datetime64):
        return (values - np.datetime64("1970-01-01", "ns")) / np.timedelta64(1, "D"), "standard"
    calendar = getattr(values.flat[0], "calendar", None) if values.size else None
    if calendar is None:
        raise ValueError(f"The times in {path} are bare numbers: they need CF units such as 'hours since 1900-01-01'.")
    cftime = import_optional("cftime", f"The calendar {calendar!r} of {path.name}")
    return np.asarray(cftime.date2num(values, "days since 1970-01-01", calendar), np.float64), calendar


def date(days: float, calendar: str) -> str:
    """Days since 1970-01-01 as a date and time, in the given calendar."""
    if calendar == "standard":
        return str(np.datetime64(round(days * 1440), "m")).replace("T", " ")
    cftime = import_optional("cftime", f"The calendar {calendar!r}")
    moment = cftime.num2date(round(days * 1440), "minutes since 1970-01-01", calendar)
    return str(moment.strftime("%Y-%m-%d %H:%M"))


def data_files(paths: Iterable[Path]) -> list[Path]:
    """The paths with a suffix of climate files, sorted."""
    return sorted(path for path in paths if path.suffix in SUFFIXES)
