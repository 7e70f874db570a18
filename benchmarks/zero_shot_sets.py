"""The data sets of `zero_shot.py`: tables of inputs and outputs, and their random splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from zero_shot_further import CHOSEN_ON, CURVES, SERIES, SURFACES, Function, sites

from shiftnp._optional import import_optional
from shiftnp.tasks.gp_kernels import COVARIANCES

SIZES = (30, 100, 300, 1000)
TARGETS = 500
"""Number of withheld observations that are predicted, at most."""
SEED = 0


class Table(NamedTuple):
    """Observations: inputs and one output, in their own units."""

    name: str
    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, " n"]


class Case(NamedTuple):
    """Observations to predict from, and withheld ones."""

    name: str
    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, " n"]
    xt: Float[np.ndarray, "m dx"]
    yt: Float[np.ndarray, " m"]


@dataclass(frozen=True)
class Source:
    """Where the data are.

    Args:
        data: folder with the CSV files that `zero_shot_data.py` writes.
        climate: folder with ERA5 and WFDE5 files.
    """

    data: Path
    climate: Path

    def csv(self, name: str) -> Any:
        """A table as a DataFrame."""
        return _csv(self.data / f"{name}.csv")


@cache
def _csv(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: benchmarks/zero_shot_data.py makes it, see its docstring.")
    return import_optional("pandas", "Reading CSV files").read_csv(path)


@dataclass(frozen=True)
class DataSet:
    """A kind of data: one or several tables, each split at random once or several times.

    Args:
        tables: makes the tables, given the number of observations to predict from.
        inputs: number of inputs.
        group: "issue" (there when the goals were set), "other", "further" (see `zero_shot_further.py`; some of them
            were looked at while Regressor was improved) or "unseen" (none of them was).
        splits: random splits of each table.
        sizes: numbers of observations to predict from.
        least: number of withheld observations, at least; tables with fewer are left out.
    """

    tables: Callable[[Source, int], list[Table]]
    inputs: int = 2
    group: str = "issue"
    splits: int = 1
    sizes: tuple[int, ...] = SIZES
    least: int = 20

    def cases(self, source: Source, size: int) -> list[Case]:
        """The splits of all tables that have enough observations."""
        found = []
        for i, table in enumerate(self.tables(source, size)):
            for split in range(self.splits if len(table.y) >= size + self.least else 0):
                order = np.random.default_rng((SEED, i, split)).permutation(len(table.y))
                some, rest = order[:size], order[size : size + TARGETS]
                name = table.name + (f", split {split}" if self.splits > 1 else "")
                found.append(Case(name, table.x[some], table.y[some], table.x[rest], table.y[rest]))
        return found


def columns(frame: Any, inputs: tuple[str, ...], output: str, name: str = "") -> Table:
    """The table of some columns of a DataFrame, without missing values."""
    frame = frame[[*inputs, output]].dropna()
    values = frame.to_numpy(np.float64)
    return Table(name, values[:, :-1], values[:, -1])


def once(name: str, inputs: tuple[str, ...], output: str, log: bool = False) -> Callable[[Source, int], list[Table]]:
    """One table from a CSV file of that name."""

    def tables(source: Source, size: int) -> list[Table]:
        table = columns(source.csv(name), inputs, output, output)
        return [table._replace(y=np.log(table.y)) if log else table]

    return tables


# --- one input ---------------------------------------------------------------------------------------------------


def co2(source: Source, size: int) -> list[Table]:
    """Weekly CO2 at Mauna Loa, which comes with the package."""
    text = (resources.files("shiftnp") / "data" / "co2.csv").read_text()
    rows = [row.split(",") for row in text.split()[1:]]
    dates = np.array([row[0] for row in rows], dtype="datetime64[D]")
    years = (dates - np.datetime64("1958-01-01")) / np.timedelta64(1, "D") / 365.25 + 1958
    return [Table("weeks", years[:, None], np.array([float(row[1]) for row in rows]))]


def wind_series(source: Source, size: int) -> list[Table]:
    """Square root of the daily wind speed at four stations, from periods with half as many days again as `size`."""
    frame, tables = source.csv("wind"), []
    for i, station in enumerate(("DUB", "VAL", "MAL", "BIR")):
        speed = np.sqrt(frame.speed[frame.station == station].to_numpy(np.float64))
        days = min(len(speed), size + size // 2)
        start = int(np.random.default_rng((SEED, i, size)).integers(len(speed) - days + 1))
        some = np.arange(start, start + days, dtype=np.float64)
        tables.append(Table(station, some[:, None], speed[start : start + days]))
    return tables


# --- two inputs --------------------------------------------------------------------------------------------------


def pm10(source: Source, size: int) -> list[Table]:
    """PM10 on eight days of the year."""
    frame = source.csv("pm10")
    return [columns(frame[frame.day == d], ("x", "y"), "pm10", f"day {d}") for d in range(20, 365, 45)]


def wind_days(source: Source, size: int) -> list[Table]:
    """Square root of the wind speed at twelve stations on 24 days."""
    frame = source.csv("wind")
    dates = sorted(frame.date.unique())[100::270][:24]
    tables = [columns(frame[frame.date == d], ("lon", "lat"), "speed", str(d)) for d in dates]
    return [table._replace(y=np.sqrt(table.y)) for table in tables]


def colorado(source: Source, size: int) -> list[Table]:
    """Monthly temperature and precipitation at stations in Colorado."""
    frame, tables = source.csv("colorado"), []
    for year, month in ((1955, 1), (1968, 7), (1981, 4), (1990, 10)):
        some = frame[(frame.year == year) & (frame.month == month)]
        tables += [columns(some, ("lon", "lat"), name, f"{name} {year}-{month:02d}") for name in ("tmax", "ppt")]
    return tables


REGIONS = {"Europe": (-11, 40, 35, 71), "Alps": (3, 17, 43, 49.5), "Iberia": (-10, 3, 36, 44), "north": (5, 31, 55, 71)}
"""West, east, south and north of the regions of WFDE5."""


def wfde5(source: Source, size: int) -> list[Table]:
    """Monthly mean temperature over land, in regions of Europe and on the whole of it."""
    found = np.load(source.climate / "wfde5_tair_europe_0p5deg_monthly_1979-2019.npz")
    lon, lat = np.meshgrid(found["lon"], found["lat"])
    tables = []
    for month, region in ((75, "Alps"), (294, "Iberia"), (195, "north"), (381, "Europe"), (6, "Europe"), (120, "Alps")):
        west, east, south, north = REGIONS[region]
        field = found["tair_K"][month].astype(np.float64)
        there = np.isfinite(field) & (lon > west) & (lon < east) & (lat > south) & (lat < north)
        when = f"{1979 + month // 12}-{month % 12 + 1:02d}"
        tables.append(Table(f"{region} {when}", np.stack([lon[there], lat[there]], 1).astype(float), field[there]))
    return tables


def grid(lon: Any, lat: Any, field: Any, name: str) -> Table:
    """The table of a field on a grid of latitudes and longitudes."""
    west, south = np.meshgrid(np.asarray(lon, float), np.asarray(lat, float))
    field = np.asarray(field, float)
    there = np.isfinite(field)
    return Table(name, np.stack([west[there], south[there]], 1), field[there])


def era5(source: Source, size: int) -> list[Table]:
    """Temperature at one time in Europe, Italy and the United Kingdom."""
    xarray = import_optional("xarray", "Reading NetCDF files")
    tables = []
    with xarray.open_dataset(source.climate / "era5_europe_temp.nc") as data:
        for i in (2, 13):
            tables.append(grid(data.longitude, data.latitude, data.t2m[i], f"Europe {i}"))
    with xarray.open_dataset(source.climate / "era5_italy_2m_temperature.nc") as data:
        tables.append(grid(data.longitude, data.latitude, data.t2m[100], "Italy"))
    found = np.load(source.climate / "era5_t2m_uk_0p25deg_hourly_2019-03.npz")
    tables.append(grid(found["lon"], found["lat"], found["t2m_K"][300], "United Kingdom"))
    return tables


def ozone(source: Source, size: int) -> list[Table]:
    """Ozone on five days."""
    frame = source.csv("ozone")
    return [columns(frame[frame.day == d], ("lon", "lat"), "ozone", f"day {d}") for d in (5, 22, 45, 60, 78)]


def jura(source: Source, size: int) -> list[Table]:
    """Three metals in soil."""
    return [columns(source.csv("jura"), ("x", "y"), metal, metal) for metal in ("cd", "co", "zn")]


# --- three inputs ------------------------------------------------------------------------------------------------


def pm10_days(source: Source, size: int) -> list[Table]:
    """PM10 over place and time, in two periods with half as many observations again as `size`."""
    frame = source.csv("pm10").sort_values(["day", "station"])
    tables = []
    for first in (30, 200):
        some = frame[frame.day >= first].iloc[: size + size // 2]
        tables.append(columns(some, ("x", "y", "day"), "pm10", f"from day {first}"))
    return tables


def colorado_elevation(source: Source, size: int) -> list[Table]:
    """Monthly temperature and precipitation over longitude, latitude and elevation."""
    frame, tables = source.csv("colorado"), []
    for year, month, name in ((1955, 1, "tmax"), (1968, 7, "tmax"), (1981, 4, "ppt"), (1990, 10, "tmin")):
        some = frame[(frame.year == year) & (frame.month == month)]
        tables.append(columns(some, ("lon", "lat", "elevation"), name, f"{name} {year}-{month:02d}"))
    return tables


# --- Gaussian processes ------------------------------------------------------------------------------------------


def processes(dx: int) -> Callable[[Source, int], list[Table]]:
    """Samples of Gaussian processes with four kernels, two of each, with random length-scales and noise."""

    def tables(source: Source, size: int) -> list[Table]:
        found = []
        for i, kernel in enumerate(("se", "matern12", "matern32", "matern52") * (2 if size < 1000 else 1)):
            rng = np.random.default_rng((SEED, dx, i, size))
            x = rng.uniform(size=(size + min(TARGETS, max(size, 100)), dx))
            length, noise = np.exp(rng.uniform(np.log([0.05, 0.05]), np.log([0.5, 0.5])))
            d = torch.from_numpy(x[:, None] - x[None])
            gram = COVARIANCES[kernel](d, torch.full(d.shape[:-1], length, dtype=torch.float64)).numpy()
            gram[np.diag_indices(len(x))] += 1e-8
            y = np.linalg.cholesky(gram) @ rng.normal(size=len(x)) + noise * rng.normal(size=len(x))
            found.append(Table(f"{kernel}, length-scale {length:.2f}, noise {noise:.2f}", x, y))
        return found

    return tables


# --- further data sets -------------------------------------------------------------------------------------------


def further(file: str, name: str) -> Callable[[Source, int], list[Table]]:
    """One data set of series.csv or maps.csv."""

    def tables(source: Source, size: int) -> list[Table]:
        frame = source.csv(file)
        inputs = ("x",) if file == "series" else ("x0", "x1")
        return [columns(frame[frame.name == name], inputs, "y", name)]

    return tables


def functions(dx: int, known: dict[str, Function]) -> Callable[[Source, int], list[Table]]:
    """One data set of each function, at uniform inputs; of some also in clusters or on a grid."""

    def tables(source: Source, size: int) -> list[Table]:
        found = []
        for i, (name, function) in enumerate(known.items()):
            rng = np.random.default_rng((SEED, 0, dx, i, size))
            kind = ("uniform", "uniform", "clusters", "grid")[i % 4]
            x = sites(dx, kind, size + 200, rng)
            found.append(Table(f"{name}, {kind}", x, function(x, rng)))
        return found

    return tables


MAPS = {
    "quakes": (100, 300),
    "volcano": (100, 300, 1000),
    "radiation": (100, 300),
    "accident": (100, 300),
    "topography": (30,),
    "oil-field": (30, 80),
    "ore": (25,),
    "radar": (100, 300, 1000),
    "mountains": (100, 300, 1000, 5000),
    "glacier": (100, 300),
    "oxford": (30, 100),
    "fulmar": (100, 300),
    "pcb": (30, 100),
}
"""Further data sets with two inputs, and numbers of observations."""


def group_of(name: str) -> str:
    """The group of a further data set."""
    return "further" if name in CHOSEN_ON else "unseen"


SETS: dict[str, DataSet] = {
    "co2": DataSet(co2, inputs=1, splits=3),
    "wind-series": DataSet(wind_series, inputs=1),
    "gp-1d": DataSet(processes(1), inputs=1),
    "meuse": DataSet(once("meuse", ("x", "y"), "zinc", log=True), splits=4),
    "pm10": DataSet(pm10),
    "wind-days": DataSet(wind_days, sizes=(9,), least=3),
    "colorado": DataSet(colorado),
    "wfde5": DataSet(wfde5),
    "gp-2d": DataSet(processes(2)),
    "jura": DataSet(jura, group="other", sizes=(30, 100, 300)),
    "sic97": DataSet(once("sic97", ("x", "y"), "rainfall"), group="other", splits=3),
    "ozone": DataSet(ozone, group="other"),
    "rainfall": DataSet(once("rainfall", ("lon", "lat"), "precip"), group="other", splits=2),
    "coalash": DataSet(once("coalash", ("x", "y"), "coalash"), group="other", splits=3),
    "walker": DataSet(once("walker", ("x", "y"), "v"), group="other", splits=3),
    "era5": DataSet(era5, group="other", sizes=(*SIZES, 5000)),
    "pm10-days": DataSet(pm10_days, inputs=3, sizes=(300, 1000)),
    "colorado-elevation": DataSet(colorado_elevation, inputs=3, sizes=(30, 100)),
}
"""Data sets by name."""
SETS |= {
    name: DataSet(further("series", name), inputs=1, group=group_of(name), splits=2, sizes=(30, 100, 300), least=12)
    for name in SERIES
}
SETS |= {
    name: DataSet(further("maps", name), group=group_of(name), splits=2, sizes=sizes, least=10)
    for name, sizes in MAPS.items()
}
SETS |= {
    f"functions-{dx}d": DataSet(functions(dx, known), inputs=dx, group="further", sizes=(10, 30, 100))
    for dx, known in ((1, CURVES), (2, SURFACES))
}
