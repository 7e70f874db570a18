"""Concatenation of climate files in time, and loading of a region into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from shiftnp.tasks import climate_files as files
from shiftnp.tasks.climate_files import FileInfo
from shiftnp.tasks.download import VARIABLE, data_folder
from shiftnp.tasks.hdf5_check import check_hdf5

Box = tuple[float, float, float, float]
"""Minimum and maximum latitude, minimum and maximum longitude, in degrees; the maxima are excluded."""

REGIONS: dict[str, Box] = {"central": (42, 53, 8, 28), "west": (42, 53, -4, 8), "north": (53, 62, 8, 28)}


@dataclass(frozen=True, eq=False)
class Region:
    """Temperatures and elevations of a region, latitudes and longitudes ascending. NaN means missing."""

    lat: Float[np.ndarray, " h"]
    lon: Float[np.ndarray, " w"]
    days: Float[np.ndarray, " t"]  # since 1970-01-01
    elevation: Float[np.ndarray, "h w"]  # metres
    celsius: Float[np.ndarray, "t h w"]

    @property
    def observed(self) -> Bool[np.ndarray, "t h w"]:
        """True where neither temperature nor elevation is missing."""
        return np.isfinite(self.celsius) & np.isfinite(self.elevation)


@dataclass(frozen=True, eq=False)
class Source:
    """Files with the same variable on the same grid, concatenated in time. Holds coordinates only, no fields or open
    files.

    Args:
        parts: variable and coordinates of each file.
        heights: the file with the elevation.
        step: days between two times.
    """

    parts: tuple[FileInfo, ...]
    heights: Path
    step: float

    @property
    def calendar(self) -> str:
        """The CF calendar of the times."""
        return self.parts[0].calendar

    def load(self, name: str, box: Box, stride: tuple[int, int, int | None], missing: tuple[float, ...] = ()) -> Region:
        """Every `stride`-th point of a region, read once and cached.

        Args:
            name: name of the region, for error messages.
            missing: fill values.
        """
        return _load(self, name, box, stride, missing)


def open_source(path: str | None, elevation: str | None, variable: str | None, name: str, box: Box) -> Source:
    """The files at `path` that cover the box; if they are on several grids, those of the grid with most times."""
    return _open_source(*_find_files(path), elevation, variable, name, box)


@lru_cache(maxsize=8)
def _open_source(
    folder: Path, paths: tuple[Path, ...], elevation: str | None, variable: str | None, name: str, box: Box
) -> Source:
    check_hdf5(file for file in paths if files.first_bytes(file) == files.HDF5)  # all of them in one process
    found = [part for file in paths if (part := files.file_info(file, variable)) is not None]
    if not found:
        wanted = "a temperature" if variable is None else f"the variable {variable!r}"
        raise ValueError(
            f"Nothing at {folder} has {wanted} over time, latitude and longitude: give another `path` or `variable`."
        )
    groups: dict[tuple[object, ...], list[FileInfo]] = {}
    for part in found:
        key = (part.variable, part.calendar, part.lat.tobytes(), part.lon.tobytes())
        groups.setdefault(key, []).append(part)
    fitting = [group for group in groups.values() if _inside(group[0], box) is not None]
    if not fitting:
        raise ValueError(_coverage_error([group[0] for group in groups.values()], name, box))
    parts = max(fitting, key=lambda group: sum(len(part.days) for part in group))
    days = np.unique(np.concatenate([part.days for part in parts]))
    if len(days) < 2:
        raise ValueError(f"{parts[0].path} has a single time: give `path` a folder or a pattern of files.")
    return Source(tuple(parts), _find_elevation(parts[0].path, elevation), float(np.median(np.diff(days))))


def covers(source: Source, box: Box) -> bool:
    """Whether the files cover the box, up to one grid spacing."""
    return _inside(source.parts[0], box) is not None


def _find_files(path: str | None) -> tuple[Path, tuple[Path, ...]]:
    """The file or folder that is searched, and the climate files in it."""
    if path is None:
        root = data_folder()
        if root is None:
            raise FileNotFoundError(
                f"No climate data: give a file or folder by `path`, or set {VARIABLE} to a folder that has them in "
                "climate/ (the paper's are derived-near-surface-meteorological-variables in the Copernicus store)."
            )
        found = root / "climate"
    else:
        found = Path(path).expanduser()
    if "*" in found.name:
        paths = files.data_files(found.parent.glob(found.name))
    elif found.is_dir() and found.suffix != ".zarr" and not any((found / f).exists() for f in ("zarr.json", ".zgroup")):
        paths = files.data_files(found.iterdir())
    else:
        paths = [found] if found.exists() else []
    if not paths:
        raise FileNotFoundError(f"No climate files at {found}: give a NetCDF, Zarr or npz file or a folder of them.")
    return found, tuple(paths)


def _find_elevation(temperature: Path, elevation: str | None) -> Path:
    """The file with the elevation: the one given, the one with the temperature, or one in the same folder."""
    if elevation is not None:
        path = Path(elevation).expanduser()
        if not path.exists():
            raise FileNotFoundError(f"No file {path}: `elevation` must be a file with heights or geopotential.")
        if files.elevation(path) is None:
            raise ValueError(f"{path} has no elevation, orography or geopotential: name another file by `elevation`.")
        return path
    if files.elevation(temperature) is not None:
        return temperature
    for path in files.data_files(temperature.parent.iterdir()):
        try:
            if path != temperature and files.elevation(path) is not None and files.file_info(path) is None:
                return path
        except (ValueError, OSError):
            continue  # the user did not name this file
    raise ValueError(
        f"{temperature} has no elevation, nor has a file beside it: name one by `elevation` (ERA5 has geopotential, "
        "WFDE5 grid_point_altitude)."
    )


def _inside(part: FileInfo, box: Box) -> tuple[Int[np.ndarray, " h"], Int[np.ndarray, " w"]] | None:
    """Rows and columns inside the box in ascending order, None if the file does not cover it."""
    inside = []
    # Longitudes are wrapped to start at the western edge of the box.
    for values, (low, high) in ((part.lat, box[:2]), (_wrap_longitudes(part.lon, box[2]), box[2:])):
        order = np.argsort(values, kind="stable")
        spacing = float(np.median(np.diff(values[order]))) if len(values) > 1 else 0.0
        slack = 1e-3 * spacing  # coordinates are rounded, and an edge at a grid point must not depend on that
        kept = order[(values[order] >= low - slack) & (values[order] < high - slack)]
        reach = values[kept]
        # The box is covered if one more row on either side would lie outside it.
        if not len(kept) or reach[0] - spacing > low - 1e-3 * spacing or reach[-1] + spacing < high - 1e-3 * spacing:
            return None
        if len(kept) > 1 and np.diff(reach).max() > 1.5 * spacing:
            return None
        inside.append(kept)
    return inside[0], inside[1]


def _wrap_longitudes(lon: Float[np.ndarray, " w"], west: float) -> Float[np.ndarray, " w"]:
    """Longitudes wrapped to `[west, west + 360)`, up to rounding."""
    return (lon - west + 1e-3) % 360 + west - 1e-3


def _coverage_error(parts: Sequence[FileInfo], name: str, box: Box) -> str:
    has = []
    for part in parts:
        lon = _wrap_longitudes(part.lon, -180)
        has.append(
            f"{part.path} covers latitudes {part.lat.min():g} to {part.lat.max():g} and longitudes {lon.min():g} "
            f"to {lon.max():g}"
        )
    return (
        f"{'; '.join(has)}; not all of the region {name} (latitudes {box[0]:g} to {box[1]:g}, longitudes {box[2]:g} "
        f"to {box[3]:g}): choose another `region` or `path`."
    )


@lru_cache(maxsize=8)
def _load(
    source: Source, name: str, box: Box, stride: tuple[int, int, int | None], missing: tuple[float, ...]
) -> Region:
    first = source.parts[0]
    grid = _inside(first, box)
    if grid is None:
        raise ValueError(_coverage_error([first], name, box))
    rows, columns = grid[0][:: stride[0]], grid[1][:: stride[1]]
    lat, lon = first.lat[rows], _wrap_longitudes(first.lon, box[2])[columns]
    thin = stride[2] or (6 if abs(source.step * 24 - 1) < 0.01 else 1)
    start = min(part.days.min() for part in source.parts)
    days, celsius = [], []
    for part in source.parts:
        # Steps since the first time of all files, so that a missing file does not change which later times are kept.
        count = np.rint((part.days - start) / source.step).astype(np.int64)
        kept = np.flatnonzero(count % thin == 0)
        with files.open_file(part.path) as data:
            array = files.select_dims(data[part.variable], part.path, "time", "lat", "lon")
            units = str(array.attrs.get("units", ""))
            inside = array.isel(time=_slice(kept), lat=_slice(rows), lon=_slice(columns))
            values = files.read_values(inside, part.path, np.float32)
        celsius.append(files.to_celsius(values, units, f"{part.variable} in {part.path}", missing))
        days.append(part.days[kept])
    all_days, order = np.unique(np.concatenate(days), return_index=True)
    heights = files.elevation(source.heights, missing)
    if heights is None:
        raise ValueError(f"{source.heights} has no elevation any more: was it changed?")
    region = Region(lat, lon, all_days, interpolate(*heights, lat, lon), np.concatenate(celsius)[order])
    if not np.isfinite(region.elevation).any():
        raise ValueError(f"{source.heights} has no elevation in the region {name}: name another file by `elevation`.")
    return region


def _slice(index: Int[np.ndarray, " n"]) -> slice | Int[np.ndarray, " n"]:
    """Evenly spaced indices as a slice, with which reading is much faster."""
    if len(index) < 2 or (np.diff(index) != index[1] - index[0]).any():
        return index
    step = int(index[1] - index[0])
    end = int(index[-1]) + (1 if step > 0 else -1)
    return slice(int(index[0]), None if end < 0 else end, step)


def interpolate(
    lat: Float[np.ndarray, " n"],
    lon: Float[np.ndarray, " m"],
    values: Float[np.ndarray, "n m"],
    to_lat: Float[np.ndarray, " h"],
    to_lon: Float[np.ndarray, " w"],
) -> Float[np.ndarray, "h w"]:
    """Bilinear interpolation that ignores missing neighbours; NaN outside the grid."""
    lon = _wrap_longitudes(lon, (to_lon.min() + to_lon.max()) / 2 - 180)  # wraps opposite to the region
    rows, columns = np.argsort(lat), np.argsort(lon)
    lon, values = lon[columns], values[np.ix_(rows, columns)]
    if len(lon) > 1 and lon[0] + 360 - lon[-1] < 1.5 * np.median(np.diff(lon)):  # a global grid is periodic
        lon = np.concatenate([lon[-1:] - 360, lon, lon[:1] + 360])
        values = np.concatenate([values[:, -1:], values, values[:, :1]], 1)
    (i, a), (j, b) = _bracket(lat[rows], to_lat), _bracket(lon, to_lon)
    total, weight = np.zeros((len(to_lat), len(to_lon))), np.zeros((len(to_lat), len(to_lon)))
    for di, wi in ((0, 1 - a), (1, a)):
        for dj, wj in ((0, 1 - b), (1, b)):
            corner, share = values[np.ix_(i + di, j + dj)], wi[:, None] * wj[None]
            known = np.isfinite(corner) & np.isfinite(share)
            total += np.where(known, corner * share, 0)
            weight += np.where(known, share, 0)
    with np.errstate(invalid="ignore"):
        return np.where(weight > 1e-6, total / np.where(weight > 1e-6, weight, 1), np.nan)


def _bracket(grid: Float[np.ndarray, " n"], to: Float[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray]:
    """Index of the grid point before each location and the fraction of the way to the next, NaN outside the grid."""
    before = np.clip(np.searchsorted(grid, to, side="right") - 1, 0, len(grid) - 2)
    far = (to - grid[before]) / (grid[before + 1] - grid[before])
    return before, np.where((far < -0.5) | (far > 1.5), np.nan, np.clip(far, 0, 1))
