"""Real data for `zero_shot.py`: from the R packages of Debian to CSV files.

The data are under the GPL (version 2 or later), like the packages, so they are for measuring and do not come with
shiftnp. Get the packages, unpack them without installing, and convert them (`pip install rdata`):

    apt-get download r-cran-sp r-cran-gstat r-cran-fields
    for package in *.deb; do dpkg -x "$package" packages; done
    python benchmarks/zero_shot_data.py packages --out DIR

This writes one CSV file for each data set: meuse (zinc in soil), pm10 (German stations, 2005), wind (Irish stations,
1961 to 1978), colorado (monthly climate, 1895 to 1997), jura (heavy metals in soil), sic97 (Swiss rainfall), ozone
(Midwest of the USA, 1987), rainfall (North America), coalash (a coal seam) and walker (Walker Lake).
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shiftnp._optional import import_optional


def read(library: Path, name: str) -> Mapping[str, Any]:
    """The R objects in a file of an installed package, such as sp/data/meuse.rda."""
    rdata = import_optional("rdata", "Reading R data", "dev")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of package sp are read as plain attributes
        found: Mapping[str, Any] = rdata.read_rda(library / name, default_encoding="utf8")
    return found


def degrees(text: str) -> float:
    """Degrees of a coordinate such as 51d56'N or 6d21'25.056"W."""
    found = re.fullmatch(r"(\d+)d(\d+)'(?:([\d.]+)\")?([NSEW])", text)
    if found is None:
        raise ValueError(f"{text!r} is not a coordinate such as 51d56'N.")
    whole, minutes, seconds, side = found.groups()
    return (int(whole) + int(minutes) / 60 + float(seconds or 0) / 3600) * (-1 if side in "SW" else 1)


def meuse(library: Path) -> dict[str, Any]:
    """Zinc in the top soil of a flood plain, in mg/kg; places in metres."""
    table = read(library, "sp/data/meuse.rda")["meuse"]
    return {name: table[name] for name in ("x", "y", "zinc", "copper", "lead")}


def pm10(library: Path) -> dict[str, Any]:
    """Daily means of PM10 at rural stations, in micrograms per cubic metre; places in metres (UTM 32)."""
    found = read(library, "gstat/data/DE_RB_2005.rda")["DE_RB_2005"]
    station, day = np.asarray(found.index).T
    places = np.asarray(found.sp.coords)[station - 1]
    values = np.asarray(found.data["PM10"])
    return {"station": station, "day": day, "x": places[:, 0].round(1), "y": places[:, 1].round(1), "pm10": values}


def wind(library: Path) -> dict[str, Any]:
    """Daily mean wind speed at twelve stations, in knots."""
    found = read(library, "gstat/data/wind.rda")
    table, places = found["wind"], found["wind.loc"]
    days = zip(*(map(int, table[k]) for k in ("year", "month", "day")), strict=True)
    date = [f"{1900 + y}-{m:02d}-{d:02d}" for y, m, d in days]
    columns: dict[str, list[Any]] = {name: [] for name in ("date", "station", "lon", "lat", "speed")}
    for code, lat, lon in zip(*(map(str, places[k]) for k in ("Code", "Latitude", "Longitude")), strict=True):
        speed = np.asarray(table[code], float)
        columns["date"] += date
        columns["station"] += [code] * len(speed)
        columns["lon"] += [round(degrees(lon), 4)] * len(speed)
        columns["lat"] += [round(degrees(lat), 4)] * len(speed)
        columns["speed"] += speed.tolist()
    return columns


def colorado(library: Path) -> dict[str, Any]:
    """Monthly mean of daily maximum and minimum temperature (degrees Celsius) and precipitation at stations."""
    found = read(library, "fields/data/COmonthlyMet.rda")
    highest, lowest, rain = (np.asarray(found[f"CO.{k}"]) for k in ("tmax", "tmin", "ppt"))
    there = ~(np.isnan(highest) & np.isnan(lowest) & np.isnan(rain))
    year, month, station = there.nonzero()
    return {
        "year": np.asarray(found["CO.years"])[year].astype(int),
        "month": month + 1,
        "lon": np.asarray(found["CO.loc"]["lon"])[station],
        "lat": np.asarray(found["CO.loc"]["lat"])[station],
        "elevation": np.asarray(found["CO.elev"])[station],
        "tmax": highest[there],
        "tmin": lowest[there],
        "ppt": rain[there],
    }


def jura(library: Path) -> dict[str, Any]:
    """Heavy metals in the top soil of the Swiss Jura, in mg/kg; places in km."""
    found = read(library, "gstat/data/jura.rda")
    both = [found["prediction.dat"], found["validation.dat"]]
    return {
        new: np.concatenate([np.asarray(table[old], float) for table in both])
        for old, new in (("Xloc", "x"), ("Yloc", "y"), ("Cd", "cd"), ("Co", "co"), ("Zn", "zn"))
    }


def sic97(library: Path) -> dict[str, Any]:
    """Daily rainfall in Switzerland on 8 May 1986, in tenths of a millimetre; places in metres."""
    found = read(library, "gstat/data/sic97.rda")["sic_full"]
    places = np.asarray(found.coords)
    return {"x": places[:, 0], "y": places[:, 1], "rainfall": found.data["rainfall"]}


def ozone(library: Path) -> dict[str, Any]:
    """Daily ozone (8-hour mean, parts per billion) at stations of the Midwest of the USA."""
    found = read(library, "fields/data/ozone2.rda")["ozone2"]
    values, places = np.asarray(found["y"]), np.asarray(found["lon.lat"])
    day, station = (~np.isnan(values)).nonzero()
    return {"day": day + 1, "lon": places[station, 0], "lat": places[station, 1], "ozone": values[day, station]}


def rainfall(library: Path) -> dict[str, Any]:
    """Mean summer precipitation in North America, in tenths of a millimetre."""
    found = read(library, "fields/data/NorthAmericanRainfall.rda")["NorthAmericanRainfall"]
    return {
        new: np.asarray(found[old])
        for old, new in (("longitude", "lon"), ("latitude", "lat"), ("elevation", "elevation"), ("precip", "precip"))
    }


def coalash(library: Path) -> dict[str, Any]:
    """Coal ash of a seam in Pennsylvania, in per cent; places on a grid."""
    table = read(library, "gstat/data/coalash.rda")["coalash"]
    return {name: table[name] for name in ("x", "y", "coalash")}


def walker(library: Path) -> dict[str, Any]:
    """The variable V of the Walker Lake data, more densely sampled where it is large."""
    found = read(library, "gstat/data/walker.rda")["walker"]
    places = np.asarray(found.coords)
    return {"x": places[:, 0], "y": places[:, 1], "v": found.data["V"]}


SETS: dict[str, Callable[[Path], dict[str, Any]]] = {
    f.__name__: f for f in (meuse, pm10, wind, colorado, jura, sic97, ozone, rainfall, coalash, walker)
}


def main() -> None:
    """Converts all data sets."""
    parser = argparse.ArgumentParser(description="Converts data of R packages to CSV files.")
    parser.add_argument("packages", type=Path, help="folder with the unpacked Debian packages")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the CSV files to")
    args = parser.parse_args()
    pandas = import_optional("pandas", "Writing CSV files")
    args.out.mkdir(parents=True, exist_ok=True)
    for name, convert in SETS.items():
        columns = convert(args.packages / "usr/lib/R/site-library")
        table = pandas.DataFrame({key: np.asarray(values) for key, values in columns.items()})
        table.to_csv(args.out / f"{name}.csv", index=False, float_format="%.10g")
        print(f"{args.out / name}.csv: {len(table)} rows, {', '.join(table.columns)}")


if __name__ == "__main__":
    main()
