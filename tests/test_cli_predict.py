"""`shiftnp predict` with small random weights: files in and out, targets, dates, pictures, pages and errors."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from regressors import folder, observations
from shiftnp import Regressor
from shiftnp.cli import FIRST, main
from shiftnp.plots.regression import Prediction, draw_predictions
from shiftnp.regressor import results
from shiftnp.regressor.files import read_observations
from shiftnp.tasks.dates import parse_dates
from shiftnp.tasks.table_files import text_form


@pytest.fixture
def shiftnp(monkeypatch, capsys, tmp_path):
    """Runs a command in a folder of its own; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["shiftnp", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def frame(n=30, dx=2, outputs=None) -> pd.DataFrame:
    x, y = observations(n, dx, outputs)
    names = ["lon", "lat", "height"][:dx]
    made = pd.DataFrame(x, columns=names)
    return made.assign(temperature=y) if outputs is None else made.assign(temperature=y[:, 0], rain=y[:, 1])


def predict(file, *more, x=("lon", "lat"), y=("temperature",)):
    return ("predict", file, "--x", *x, "--y", *y, "--weights", folder(), *more)


def close(a, b, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=tolerance, atol=tolerance)


def test_a_repeated_column_is_refused(shiftnp, tmp_path):
    (tmp_path / "a.csv").write_text("lon,lat,temperature, lon\n1,2,3,4\n2,3,4,5\n")
    code, _, err = shiftnp(*predict("a.csv"))
    assert (code, err.count("\n")) == (1, 1)
    assert "several columns called 'lon'" in err
    (tmp_path / "a.csv").write_text("lon,lat,temperature,lon.1\n1,2,3,4\n2,3,4,5\n")
    assert shiftnp(*predict("a.csv", "--grid", "2", "--no-picture"))[0] == 0


def test_a_row_of_units_and_infinite_values_say_what_to_do(shiftnp, tmp_path):
    (tmp_path / "units.csv").write_text("lon,lat,temperature\ndeg_E,deg_N,degC\n1,2,3\n2,3,4\n")
    code, _, err = shiftnp(*predict("units.csv"))
    assert code == 1
    assert "has 'deg_E' in row 1: delete that row if it holds units" in err
    (tmp_path / "inf.csv").write_text("lon,lat,temperature\n1,2,inf\n2,3,-Inf\n3,4,5\n")
    code, _, err = shiftnp(*predict("inf.csv"))
    assert code == 1
    assert err.endswith("-inf or inf in 2 places, which is no observation: make it missing with --missing -inf inf.\n")
    assert shiftnp(*predict("inf.csv", "--missing", "-inf", "inf", "--grid", "2", "--no-picture"))[0] == 0


def test_longitudes_on_both_sides_of_zero(shiftnp, tmp_path):
    data = frame().assign(lon=lambda d: np.linspace(-20, 20, len(d)) % 360)
    data.to_csv("a.csv", index=False)
    more = ("--grid", "5", "--no-picture", "--out", "a.nc")
    assert "say --period lon=360" in shiftnp(*predict("a.csv", *more))[2]
    code, _, err = shiftnp(*predict("a.csv", *more, "--period", "lon=360"))
    assert (code, err) == (0, "")
    with xr.open_dataset("a.nc", engine="h5netcdf") as found:
        close(found["lon"], np.linspace(-20, 20, 5))


def test_moments_with_one_offset_keep_it(shiftnp, tmp_path):
    hours = [f"2023-01-01T{h:02}:00:00+01:00" for h in range(12)]
    pd.DataFrame({"time": hours, "flow": np.sin(np.arange(12.0))}).to_csv("a.csv", index=False)
    more = ("--grid", "3", "--no-picture", "--out", "o.csv", "--weights", folder())
    assert shiftnp("predict", "a.csv", "--x", "time", "--y", "flow", *more)[0] == 0
    written = pd.read_csv("o.csv")["time"]
    assert [str(pd.Timestamp(moment)) for moment in written] == [
        f"2023-01-01 {clock}+01:00" for clock in ("00:00:00", "05:30:00", "11:00:00")
    ]


def test_weights_of_a_saved_regressor_make_maps(shiftnp, tmp_path):
    data = frame()
    Regressor(weights=folder()).fit(data[["lon", "lat"]], data["temperature"]).save(tmp_path / "network")
    data.to_csv("today.csv", index=False)
    for name, weights in (("ours.csv", folder()), ("saved.csv", "network/weights")):
        more = ("--weights", weights, "--out", name, "--no-picture", "--at", "today.csv")
        assert shiftnp("predict", "today.csv", "--x", "lon", "lat", "--y", "temperature", *more)[0] == 0
    close(pd.read_csv("saved.csv"), pd.read_csv("ours.csv"))


def test_a_table_becomes_a_map_with_its_picture(shiftnp, tmp_path):
    data = frame()
    data.to_csv("stations.csv", index=False)
    code, out, err = shiftnp(*predict("stations.csv", "--grid", "7x5", "--out", "map.nc", "--quantiles", "0.1", "0.5"))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[:5]] == [
        "points",
        "scales",
        "cross-validated CRPS",
        "90 % intervals cover",
        "seconds",
    ]
    assert lines[5:] == [str(tmp_path / "map.nc"), str(tmp_path / "map.png")]
    model = Regressor(weights=folder()).fit(data[["lon", "lat"]], data["temperature"])
    expected = model.predict_grid(lon=7, lat=5, quantiles=(0.1, 0.5))
    with xr.open_dataset("map.nc", engine="h5netcdf") as found:
        assert found["mean"].dims == ("lon", "lat")
        for name in ("lon", "lat", "mean", "std", "quantiles", "quantile"):
            close(found[name], expected[name])
        assert found.attrs["history"].startswith("shiftnp predict stations.csv")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.nc", "map.png", "stations.csv"]


WRITERS = {
    "a.csv": lambda d, p: d.to_csv(p, index=False),
    "a.csv.gz": lambda d, p: d.to_csv(p, index=False),
    "a.tsv": lambda d, p: d.to_csv(p, index=False, sep="\t"),
    "semicolons.csv": lambda d, p: d.to_csv(p, index=False, sep=";", decimal=","),
    "blanks.txt": lambda d, p: d.to_csv(p, index=False, sep=" "),
    "a.parquet": lambda d, p: d.to_parquet(p),
    "a.nc": lambda d, p: d.rename_axis("station").to_xarray().to_netcdf(p, engine="h5netcdf"),
    "a.zarr": lambda d, p: d.rename_axis("station").to_xarray().to_zarr(p, consolidated=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_is_read_alike(name, tmp_path):
    data = frame()
    WRITERS[name](data, tmp_path / name)
    found = read_observations(tmp_path / name, ["lat", "lon"], ["temperature"])
    close(found.inputs, data[["lat", "lon"]])
    close(found.outputs, data[["temperature"]])
    assert found.grid is None
    assert list(found.places) == list(range(1, 31))


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.nc", "out.zarr"])
@pytest.mark.parametrize("at", [True, False])
def test_every_format_is_written_alike(name, at, shiftnp, tmp_path):
    data = frame(outputs=2)
    data.to_csv("a.csv", index=False)
    points = pd.DataFrame({"lat": [1.0, 2.5, np.nan], "site": ["a", "b", "c"], "lon": [3.0, 4.0, 5.0]})
    points.to_csv("points.csv", index=False)
    more = ("--at", "points.csv") if at else ("--grid", "3")
    code, _, err = shiftnp(*predict("a.csv", *more, "--out", name, "--no-picture", y=("temperature", "rain")))
    assert (code, err) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "points.csv", name}
    model = Regressor(weights=folder()).fit(data[["lon", "lat"]], data[["temperature", "rain"]])
    if at:
        rows = points[["lon", "lat"]].dropna()
    else:
        axes = (np.linspace(data[name].min(), data[name].max(), 3) for name in ("lon", "lat"))
        rows = pd.DataFrame(np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], 1), columns=["lon", "lat"])
    expected = model.predict_table(rows)
    if name.endswith((".nc", ".zarr")):
        kind = {"engine": "h5netcdf"} if name.endswith(".nc") else {"engine": "zarr", "consolidated": False}
        with xr.open_dataset(name, **kind) as found:
            assert found["rain_mean"].dims == (("point",) if at else ("lon", "lat"))
            flat = {
                f"{o} {s}": found[f"{o}_{s}"].values.ravel() for o in ("temperature", "rain") for s in ("mean", "std")
            }
            flat |= {f"{o} q0.95": found[f"{o}_quantiles"].values[1].ravel() for o in ("temperature", "rain")}
    else:
        read = pd.read_parquet if name.endswith("t") else lambda p: pd.read_csv(p, sep="\t" if "tsv" in p else ",")
        found = flat = read(name)
        assert list(found.columns[:3]) == (["lat", "site", "lon"] if at else ["lon", "lat", "temperature mean"])
    for column in ("temperature mean", "temperature std", "rain mean", "rain q0.95"):
        values = np.asarray(flat[column])
        close(values[: len(rows)], expected[column])
        assert np.isnan(values[len(rows) :]).all()
        assert len(values) == (3 if at else 9)


def field(shape=(6, 5)) -> xr.Dataset:
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(shape[0]))[:, None] + np.cos(np.arange(shape[1]))
    holes = np.where(rng.random(shape) < 0.3, np.nan, values)
    coords = {"lat": np.linspace(50, 40, shape[0]), "lon": np.linspace(0, 8, shape[1])}
    made = xr.Dataset({"t": (("lat", "lon"), holes, {"units": "K", "long_name": "air"})}, coords)
    made["lon"].attrs["units"] = "degrees_east"
    return made


def test_holes_of_a_field_are_filled_on_its_own_grid(shiftnp, tmp_path):
    data = field()
    data.to_netcdf("holes.nc", engine="h5netcdf")
    code, out, _ = shiftnp("predict", "holes.nc", "--weights", folder(), "--out", "full.nc")
    assert code == 0
    assert "(lat, lon -> t)" in out
    assert (tmp_path / "full.png").is_file()
    model = Regressor(weights=folder()).fit(data["t"])
    with xr.open_dataset("full.nc", engine="h5netcdf") as found:
        assert found["t"].dims == ("lat", "lon")
        close(found["lat"], data["lat"])
        there = data["t"].notnull().values
        assert 0 < there.sum() < there.size
        close(found["t"].values[there], data["t"].values[there])
        close(found["t"].values[~there], model.predict(data["t"]).values[~there], 1e-6)
        close(found["mean"], model.predict(data["t"]), 1e-6)
        assert found["std"].attrs == {"units": "K", "long_name": "standard deviation of air"}
        assert found["lon"].attrs["units"] == "degrees_east"


def test_one_time_of_a_field_is_selected(shiftnp):
    data = field().expand_dims(time=pd.date_range("2020-01-01", periods=3)).copy()
    data["t"] = data["t"] + xr.DataArray([0.0, 10.0, 20.0], dims="time")
    data.to_netcdf("cube.nc", engine="h5netcdf")
    code, _, err = shiftnp("predict", "cube.nc", "--x", "lon", "lat", "--weights", folder())
    assert code == 2
    assert "3 values along 'time': add time to --x, or choose one with --select time=2020-01-01T00:00" in err
    more = ("--weights", folder(), "--out", "day.nc", "--no-picture")
    code, _, err = shiftnp("predict", "cube.nc", "--select", "time=2020-01-02", *more)
    assert code == 0
    assert "time = 2020-01-02T00:00:00 is selected" in err
    with xr.open_dataset("day.nc", engine="h5netcdf") as found:
        close(found["t"].values[field()["t"].notnull().values], field()["t"].values[field()["t"].notnull()] + 10)
    code, _, err = shiftnp("predict", "cube.nc", "--select", "time=2031-01-02", *more)
    assert code == 2
    assert "outside of cube.nc" in err


@pytest.mark.parametrize("declared", [True, False])
def test_places_of_stations_are_not_their_numbers(declared, shiftnp):
    data = frame()
    places = {name: ("station", data[name]) for name in ("lon", "lat")}
    made = xr.Dataset({"temperature": ("station", data["temperature"]), **places})
    made = made.set_coords(["lon", "lat"]) if declared else made
    made.to_netcdf("stations.nc", engine="h5netcdf")
    more = ("--y", "temperature", "--weights", folder(), "--no-picture", "--out", "o.nc", "--grid", "3")
    code, _, err = shiftnp("predict", "stations.nc", *more)
    assert code == 2
    assert "along 'station', which has no coordinate of its own: name the inputs, such as --x lon lat, or --x st" in err
    code, out, _ = shiftnp("predict", "stations.nc", "--x", "lon", "lat", *more)
    assert code == 0
    assert out.startswith("points: 30 (lon, lat -> temperature)")
    assert shiftnp("predict", "stations.nc", "--x", "station", *more)[0] == 0


def test_curved_grids_are_given_by_their_coordinates(shiftnp):
    lon, lat = np.meshgrid(np.arange(6.0), np.arange(5.0))
    lon, lat = lon + 0.1 * lat, lat - 0.1 * lon
    made = xr.Dataset({"t": (("j", "i"), np.sin(lon + lat))}, {"lon": (("j", "i"), lon), "lat": (("j", "i"), lat)})
    made.to_netcdf("curved.nc", engine="h5netcdf")
    more = ("--weights", folder(), "--no-picture", "--out", "o.nc", "--grid", "3")
    code, _, err = shiftnp("predict", "curved.nc", *more)
    assert code == 2
    assert "along 'j', which has no coordinate of its own: name the inputs, such as --x lon lat" in err
    code, out, _ = shiftnp("predict", "curved.nc", "--x", "lon", "lat", *more)
    assert code == 0
    assert out.startswith("points: 30 (lon, lat -> t)")
    made.drop_vars(["lon", "lat"]).to_netcdf("pixels.nc", engine="h5netcdf")
    assert shiftnp("predict", "pixels.nc", *more)[0] == 0


def test_three_inputs_are_drawn_as_slices(shiftnp, tmp_path):
    data = field((4, 4)).expand_dims(time=pd.date_range("2020-01-01", periods=3)).copy()
    data.to_netcdf("cube.nc", engine="h5netcdf")
    code, _, err = shiftnp("predict", "cube.nc", "--weights", folder(), "--out", "full.zarr", "--report", "page.html")
    assert (code, err) == (0, "")
    assert (tmp_path / "full.png").is_file()
    with xr.open_zarr("full.zarr", consolidated=False) as found:
        assert found["mean"].dims == ("time", "lat", "lon")


def test_a_covariate_on_a_grid_is_an_input(shiftnp):
    rng = np.random.default_rng(0)
    data = frame(30, 3)
    data.to_csv("a.csv", index=False)
    height = np.where(np.eye(3, 4), np.nan, rng.uniform(0, 8, (3, 4)))
    grid = xr.Dataset({"height": (("lat", "lon"), height)}, {"lat": [1.0, 2.0, 3.0], "lon": [0.0, 1.0, 2.0, 3.0]})
    grid.to_netcdf("dem.nc", engine="h5netcdf")
    code, _, err = shiftnp(*predict("a.csv", "--at", "dem.nc", "--out", "map.nc", x=("lon", "lat", "height")))
    assert (code, err) == (0, "")
    model = Regressor(weights=folder()).fit(data[["lon", "lat", "height"]], data["temperature"])
    with xr.open_dataset("map.nc", engine="h5netcdf") as found:
        assert found["mean"].dims == ("lat", "lon")
        assert (np.isnan(found["mean"].values) == np.isnan(height)).all()
        one = pd.DataFrame({"lon": [3.0], "lat": [2.0], "height": [height[1, 3]]})
        close(found["mean"].sel(lat=2.0, lon=3.0), model.predict(one).iloc[0], 1e-6)


@pytest.mark.parametrize(
    ("written", "months"),
    [
        (lambda t: t.strftime("%Y-%m-%d"), False),
        (lambda t: t.strftime("%Y-%m-%dT%H:%M:%SZ"), False),
        (lambda t: t.strftime("%Y%m%d").astype(int), False),
        (lambda t: t.strftime("%Y/%m/%d"), False),
        (lambda t: t.strftime("%d.%m.%Y"), False),
        (lambda t: t.strftime("%d/%m/%Y %H:%M"), False),
        (lambda t: t.strftime("%m/%d/%Y"), False),
        (lambda t: t.strftime("%Y-%m"), True),
        (lambda t: t.strftime("%Y%m").astype(int), True),
    ],
)
def test_dates_are_read_and_come_back(written, months, shiftnp):
    rng = np.random.default_rng(0)
    times = pd.date_range("1958-03-01", periods=25, freq="MS") + pd.to_timedelta(0 if months else 28, unit="D")
    data = pd.DataFrame({"date": written(times), "co2": rng.normal(size=25)})
    data.to_csv("co2.csv", index=False)
    code, _, err = shiftnp(*predict("co2.csv", "--grid", "11", "--out", "curve.nc", x=("date",), y=("co2",)))
    assert code == 0, err
    with xr.open_dataset("curve.nc", engine="h5netcdf") as found:
        assert found["date"].dtype.kind == "M"
        ends = found["date"].values[[0, -1]]
        assert (np.abs(ends - times[[0, -1]].values) < np.timedelta64(1, "s")).all()
    data.iloc[:3][["date"]].to_csv("points.csv", index=False)
    code, _, err = shiftnp(*predict("co2.csv", "--at", "points.csv", "--out", "at.csv", x=("date",), y=("co2",)))
    assert code == 0, err
    assert len(pd.read_csv("at.csv")) == 3


def test_time_zones_come_back(shiftnp, tmp_path):
    times = pd.date_range("2024-03-20", periods=25, freq="D", tz="Europe/Rome")
    naive = pd.DataFrame({"t": times.tz_convert("UTC").tz_localize(None), "y": np.sin(np.arange(25.0))})
    naive.assign(t=times).to_parquet("rome.parquet")
    naive.to_parquet("naive.parquet")
    naive.assign(t=times.tz_convert("UTC").strftime("%Y-%m-%dT%H:%MZ")).to_csv("utc.csv", index=False)

    def run(file, *more):
        return shiftnp(*predict(file, *more, x=("t",), y=("y",)))

    assert run("rome.parquet", "--grid", "3", "--out", "o.parquet", "--report", "page.html")[0] == 0
    found = pd.read_parquet("o.parquet")
    assert str(found["t"].dt.tz) == "Europe/Rome"
    assert list(found["t"])[::2] == [times[0], times[-1]]
    assert run("naive.parquet", "--grid", "3", "--out", "n.parquet")[0] == 0
    close(found["mean"], pd.read_parquet("n.parquet")["mean"])
    assert run("rome.parquet", "--grid", "3", "--out", "o.nc")[0] == 0
    for out in ("o.nc", "at.nc"):
        with xr.open_dataset(out, engine="h5netcdf") as field:
            assert field["t"].values[0] == naive["t"].to_numpy()[0]
            assert field["t"].attrs == {"time_zone": "UTC"}
        assert run("rome.parquet", "--at", "utc.csv", "--out", "at.nc")[0] == 0
    assert run("rome.parquet", "--at", "o.nc", "--out", "again.nc")[0] == 0
    code, _, err = run("rome.parquet", "--at", "naive.parquet", "--out", "at.csv")
    assert code == 1
    assert "'t' of naive.parquet has no time zone, and the observations have Europe/Rome: give both a zone" in err
    assert run("rome.parquet", "--select", "t=2024-03-21", "--grid", "2")[1].startswith("points: 1 ")


def test_numbers_are_no_dates():
    for values, name in (
        ([178605, 181390, 180561], "x"),  # metres
        ([178605, 181390, 180561], "date_like"),  # months 05, 90, 61
        ([202401, 202402], "x"),  # six digits without a name
        ([20240131, 20241331], "date"),
        ([1958.24, 1959.5], "year"),
        ([1958, 1959], "year"),
        (["a", "b"], "date"),
    ):
        column = pd.Series(values)
        assert parse_dates(column, name) is column


def test_dates_that_may_be_two_are_refused():
    with pytest.raises(ValueError, match=r"'date' has dates such as 03\.04\.2017.*: write them as 2017-07-16\."):
        parse_dates(pd.Series(["03.04.2017", "12.04.2017"]), "date")
    both = pd.Series(["16.04.2017", "03.17.2017"])
    assert parse_dates(both, "date") is both
    found = parse_dates(pd.Series(["3/4/2017 12:30", None, "16/4/2017 00:00"]), "date")
    assert list(found.dropna().astype(str)) == ["2017-04-03 12:30:00", "2017-04-16 00:00:00"]
    assert list(found.isna()) == [False, True, False]


def test_axes_show_dates():
    t = pd.date_range("1958-03-29", periods=40, freq="60D").to_numpy()
    y = np.zeros(40)
    one = Prediction(("date",), "co2", {"date": t}, y, {"date": t}, y, y + 1, y - 2, y + 2, ("date",))
    figure = draw_predictions([one])
    figure.canvas.draw()
    (axes,) = figure.axes or figure.subfigs[0].axes
    assert "1960" in [label.get_text() for label in axes.get_xticklabels()]


def test_longitudes_wrap(shiftnp):
    frame().to_csv("a.csv", index=False)
    pd.DataFrame({"lon": [1.0, 9.0], "lat": [2.0, 2.0]}).to_csv("at.csv", index=False)
    for period, same in ((("--period", "lon=8"), True), ((), False)):
        assert shiftnp(*predict("a.csv", "--at", "at.csv", "--out", "o.csv", "--no-picture", *period))[0] == 0
        mean = pd.read_csv("o.csv")["mean"]
        assert (abs(mean[0] - mean[1]) < 1e-5) == same


def test_a_map_of_longitudes_shows_observations_where_they_are(shiftnp, monkeypatch):
    drawn = []
    monkeypatch.setattr("shiftnp.plots.regression.draw_predictions", lambda shown: drawn.append(shown[0]))
    monkeypatch.setattr("shiftnp.cli.predict.write_picture", lambda *_: None)
    data = frame()
    data["lon"] = 45 * data["lon"]
    data.to_csv("a.csv", index=False)
    grid = xr.Dataset(coords={"lat": [1.0, 2.0], "lon": np.arange(-180.0, 180.0, 20)})
    grid.to_netcdf("grid.nc", engine="h5netcdf")
    for more in (("--grid", "5"), ("--at", "grid.nc")):
        assert shiftnp(*predict("a.csv", "--period", "lon=360", "--out", "o.nc", *more))[0] == 0
        shown = drawn.pop()
        inside = (shown.x["lon"] >= shown.at["lon"].min()) & (shown.x["lon"] <= shown.at["lon"].max() + 20)
        assert inside.all()
        close(shown.x["lon"] % 360, data["lon"] % 360)
    assert shown.at["lon"].min() == -180


def test_rows_are_selected_and_numbers_declared_missing(shiftnp):
    data = frame().assign(day=["2020-01-01", "2020-01-02"] * 15, kind=["a", "b"] * 15, number=[1, 2] * 15)
    data.loc[[0, 2, 4], "temperature"] = -9999
    data.loc[6, "lat"] = np.nan
    data.to_csv("a.csv", index=False)
    for select in ("day=2020-01-01", "kind=a", "number=1"):
        code, out, err = shiftnp(
            *predict("a.csv", "--select", select, "--missing", "-9999", "--grid", "2", "--no-picture")
        )
        assert code == 0
        assert out.startswith("points: 11 (lon, lat -> temperature)")
        assert err == "1 of 15 rows have no lat and are left out.\n"
    code, _, err = shiftnp(*predict("a.csv", "--grid", "2", "--no-picture"))
    assert code == 0
    assert (
        "'temperature' is -9999 in 3 places, far from all other values: if it means missing, say --missing -9999."
        in err
    )


def test_one_absurd_value_is_said_once_with_its_row(shiftnp):
    data = frame()
    data.loc[0, "lat"] = np.nan
    data.loc[11, "temperature"] = 1e20
    data.to_csv("a.csv", index=False)
    code, _, err = shiftnp(*predict("a.csv", "--grid", "2", "--no-picture"))
    assert code == 0
    assert err.count("absurdly far") == 1
    assert "'temperature' is 1e+20 in row 12, which is absurdly far from all other values and ruins predictions" in err
    code, _, err = shiftnp(*predict("a.csv", "--grid", "2", "--no-picture", "--missing", "1e+20"))
    assert (code, "absurd" in err) == (0, False)


def test_infinite_values_are_declared_missing(shiftnp):
    data = frame()
    data.loc[[0, 2], "temperature"] = np.inf
    data.to_csv("a.csv", index=False)
    code, _, err = shiftnp(*predict("a.csv", "--grid", "2", "--no-picture"))
    assert code == 1
    assert err.endswith("make it missing with --missing inf.\n")
    code, out, err = shiftnp(*predict("a.csv", "--grid", "2", "--no-picture", "--missing", "inf"))
    assert (code, err) == (0, "")
    assert out.startswith("points: 28 ")


@pytest.mark.parametrize("decimal", [".", ","])
def test_cells_of_text_are_named_and_declared_missing(decimal, shiftnp):
    data = frame().round(3).astype(object)
    data = data.map(lambda v: str(v).replace(".", decimal))
    data.loc[[16, 20, 21, 25], "temperature"] = ["<0.5", "-", "-", "-"]
    data.loc[3, "lat"] = "-"
    data.to_csv("a.csv", index=False, sep=";")
    more = ("--grid", "2", "--no-picture")
    code, _, err = shiftnp(*predict("a.csv", *more))
    assert code == 1
    assert (
        "'lat' of a.csv must hold numbers or dates (such as 2024-01-31), has '-' in row 4: correct it, or say " in err
    )
    code, _, err = shiftnp(*predict("a.csv", *more, "--missing", "-"))
    assert code == 1
    assert "has '<0.5' in row 17: correct it, or say --missing '<0.5' if it means not observed." in err
    code, _, err = shiftnp(*predict("a.csv", *more, x=("lon",)))
    assert "'temperature' of a.csv must hold numbers, has '<0.5' in row 17 and 3 other rows: correct it" in err
    code, out, err = shiftnp(*predict("a.csv", *more, "--missing", "-", "<0.5"))
    assert code == 0
    assert out.startswith("points: 25 ")
    assert err == "1 of 30 rows have no lat and are left out.\n"


def test_names_may_be_numbers(tmp_path):
    pd.DataFrame(observations(12)[0]).to_csv(tmp_path / "a.csv", index=False)
    assert read_observations(tmp_path / "a.csv", ["0"], ["1"]).inputs.shape == (12, 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings(encoding, tmp_path):
    data = frame().rename(columns={"temperature": "température"})
    data.to_csv(tmp_path / "a.csv", index=False, encoding=encoding)
    close(read_observations(tmp_path / "a.csv", ["lon"], ["température"]).outputs, data[["température"]])


@pytest.mark.parametrize(
    ("cells", "refused"),
    [
        (["1.234", "2.345", "999"], True),
        (["1.234.567", "2.345"], True),
        (["1.234", "12,5"], True),
        (["1.23", "1.234"], False),
        (["1,234", "2,345"], False),
    ],
)
def test_points_beside_decimal_commas_may_be_those_of_thousands(cells, refused, tmp_path):
    lines = [f"{i},5;{cells[i % len(cells)]}" for i in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["x;zinc", *lines]))
    if not refused:
        found = read_observations(tmp_path / "a.csv", ["x"], ["zinc"]).outputs["zinc"]
        close(found[: len(cells)], [float(cell.replace(",", ".")) for cell in cells])
        return
    with pytest.raises(ValueError, match=r"'zinc' of .*a.csv has 1\.234.* which may be 1234.* without points\."):
        read_observations(tmp_path / "a.csv", ["x"], ["zinc"])


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.sources, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        assert tag not in ("script", "link", "iframe")

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("dx", [1, 2])
def test_the_page_is_self_contained_and_names_its_command(dx, shiftnp, tmp_path):
    frame(30, dx).to_csv("a.csv", index=False)
    names = ("lon", "lat")[:dx]
    code, out, _ = shiftnp(*predict("a.csv", "--grid", "9", "--report", "pages/page.html", "--no-picture", x=names))
    assert code == 0
    assert out.splitlines()[-1] == str(tmp_path / "pages" / "page.html")
    page = Page()
    page.feed((tmp_path / "pages" / "page.html").read_text())
    assert len(page.sources) == (3 if dx == 1 else 4)
    assert all(source.startswith("data:image/") for source in page.sources)
    said = " ".join(page.text)
    assert "shiftnp predict a.csv --x lon" in said
    assert "in 90 % intervals" in said
    assert "could not be drawn" not in said


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"x": ("lonn", "lat")}, 2, "There is no column of a.csv named 'lonn': did you mean 'lon'?"),
        ({"y": ("Temperatur",)}, 2, "did you mean 'temperature'?"),
        ({"x": ()}, 2, "Name the inputs with --x: a.csv has the columns lon, lat, temperature, text."),
        ({"y": ()}, 2, "Name the output with --y"),
        ({"x": ("lon", "lon")}, 2, "'lon' is named twice"),
        ({"x": ("lon", "lat", "text", "b")}, 2, "--x takes one to three inputs, got 4"),
        ({"more": ("--period", "lonn=360")}, 2, "There is no input named 'lonn': did you mean 'lon'?"),
        ({"more": ("--period", "lon=x")}, 2, "must be a positive number"),
        ({"more": ("--period", "lon")}, 2, "--period takes name=value, such as lon=360, got 'lon'."),
        ({"more": ("--grid", "axb")}, 2, "--grid takes numbers of points such as 200x200, got 'axb'."),
        ({"more": ("--grid", "2x2x2")}, 2, "--grid takes 2 numbers, for lon, lat, got 2x2x2."),
        ({"more": ("--grid", "2", "--at", "a.csv")}, 2, "give --at or --grid, not both."),
        ({"more": ("--quantiles", "5")}, 2, "quantiles must be between 0 and 1"),
        ({"more": ("--out", "map.tif")}, 2, "map.tif must end in .csv, .tsv, .parquet, .nc or .zarr"),
        ({"more": ("--out", "a.csv")}, 2, "a.csv is read: write to another file."),
        ({"more": ("--select", "txt=1")}, 2, "did you mean 'text'?"),
        ({"more": ("--select", "text=1")}, 1, "a.csv has no row with text=1."),
        ({"more": ("--at", "nothing.csv")}, 1, "No file nothing.csv"),
        ({"more": ("--at", "b.csv")}, 2, "There is no column of b.csv named 'lon': did you mean 'long'?"),
        (
            {"x": ("lon", "text")},
            1,
            "'text' of a.csv must hold numbers or dates (such as 2024-01-31), has 'b' in row 1 and 29 other rows",
        ),
        (
            {"y": ("text",)},
            1,
            "Column 'text' of a.csv must hold numbers, has 'b' in row 1 and 29 other rows: convert it.",
        ),
        ({"file": "empty.csv"}, 1, "empty.csv has no rows: it is empty."),
        ({"file": "names.csv"}, 1, "names.csv has no rows below the names of its columns."),
        (
            {"file": "bare.csv"},
            2,
            "bare.csv has numbers in its first line (1.5, 2.5, 2.5.1), which must hold the names",
        ),
        ({"file": "c.csv"}, 1, "No file c.csv"),
        ({"file": "b.csv", "x": ("long",), "y": ("empty",)}, 1, "b.csv has no row with all of long and any of empty."),
        ({"file": "d.nc"}, 1, "d.nc is neither NetCDF nor Zarr"),
        ({"more": ("--weights", "nowhere")}, 1, "nowhere is not a folder of pretrained weights"),
        ({"more": ("--out", "a.csv/map.nc")}, 1, "a.csv/map.nc cannot be written, because"),
        ({"more": ("--out", "/proc/map.nc")}, 1, "/proc/map.nc cannot be written ("),
        ({"more": ("--out", "/proc/maps/map.nc")}, 1, "/proc/maps/map.nc cannot be written ("),
        ({"more": ("--report", "/proc/page.html")}, 1, "/proc/page.html cannot be written ("),
        ({"more": ("--report", ".")}, 1, ". is a folder: name a file."),
        ({"more": ("--out", ".")}, 2, ". must end in .csv, .tsv, .parquet, .nc or .zarr"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_no_file(more, code, message, shiftnp, tmp_path, monkeypatch):
    if "--weights" not in more.get("more", ()) and "--period" not in more.get("more", ()):
        monkeypatch.setattr("shiftnp.cli.predict.fit", None)  # all of these are noticed before
    frame().assign(text="b").to_csv("a.csv", index=False)
    pd.DataFrame({"long": [1.0, 2.0], "empty": [None, None]}).to_csv("b.csv", index=False)
    (tmp_path / "d.nc").write_text("nothing")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "names.csv").write_text("lon,lat,temperature\n")
    (tmp_path / "bare.csv").write_text("1.5,2.5,2.5\n3,4,5\n")
    before = sorted(tmp_path.iterdir())
    names = {"x": more.get("x", ("lon", "lat")), "y": more.get("y", ("temperature",))}
    args = [*predict(more.get("file", "a.csv"), *more.get("more", ()), **names)]
    for option, chosen in names.items():
        if not chosen:
            args.remove(f"--{option}")
    found, out, err = shiftnp(*args)
    assert found == code, err
    assert message in err
    assert out == ""
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_without_weights_the_option_is_named(shiftnp, monkeypatch, tmp_path):
    from shiftnp.regressor import weights

    monkeypatch.setattr(weights, "SHIPPED", tmp_path)
    frame().to_csv("a.csv", index=False)
    code, _, err = shiftnp("predict", "a.csv", "--x", "lon", "lat", "--y", "temperature")
    assert code == 1
    assert "no pretrained weights for 2 inputs: name a folder with --weights" in err


@pytest.mark.parametrize("name", ["map.nc", "map.zarr", "map.csv", "map.png", "page.html"])
def test_a_failed_write_keeps_the_old_file(name, shiftnp, monkeypatch, tmp_path):
    frame().to_csv("a.csv", index=False)
    out = name if name.startswith("map.") and name != "map.png" else "map.csv"
    args = predict("a.csv", "--grid", "3", "--out", out, "--report", "page.html")
    assert shiftnp(*args)[0] == 0
    target = tmp_path / name
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    where = {"map.nc": xr.Dataset, "map.zarr": xr.Dataset, "map.csv": pd.DataFrame}
    if name in where:
        monkeypatch.setattr(where[name], {"nc": "to_netcdf", "rr": "to_zarr", "sv": "to_csv"}[name[-2:]], full)
    elif name == "map.png":
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    else:
        monkeypatch.setattr("pathlib.Path.write_text", full)
    code, _, err = shiftnp(*args)
    assert code == 1
    assert f"{name} cannot be written (No space left on device)." in err
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after.keys() == before.keys()
    inside = [path for path in before if path == target or target in path.parents]
    assert inside
    assert all(after[path] == before[path] for path in inside)


def test_an_interrupted_write_leaves_nothing(monkeypatch, tmp_path):
    def stop(self, path, **_):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(xr.Dataset, "to_netcdf", stop)
    with pytest.raises(KeyboardInterrupt):
        results.write_field(tmp_path / "map.nc", xr.Dataset())
    assert list(tmp_path.iterdir()) == []


def test_without_arguments_the_first_commands_are_shown(shiftnp):
    code, out, _ = shiftnp()
    assert (code, out) == (0, FIRST + "\n")
    assert "shiftnp train table --minutes 10 " in FIRST  # the default takes hours
    assert len(re.findall(r"^  shiftnp \w+", out, re.M)) == 5
    commands = re.findall(r"^  shiftnp (\w+)", out, re.M)
    for command in commands:
        assert shiftnp(command, "--help")[0] == 0


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a,b\n1,2\n", (",", ".", 0, "utf-8-sig")),
        ("# about, this\n# and; that\na;b\n1,5;2\n", (";", ",", 2, "utf-8-sig")),
        ("a;b,c\n1;2\n3;4\n", (";", ".", 0, "utf-8-sig")),
        ('"a,b";c\n1.5;2\n', (";", ".", 0, "utf-8-sig")),
        ("a|b\n1|2\n", ("|", ".", 0, "utf-8-sig")),
        ("température\n1\n", (",", ".", 0, "latin-1")),
    ],
)
def test_the_form_of_text_is_found(text, form, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("latin-1"))
    assert tuple(text_form(path)) == form


def test_tracebacks_are_shown_on_demand(shiftnp, monkeypatch):
    def fail(self):
        raise LookupError("an unforeseen case")

    command = ("predict", "a.csv", "--x", "lon", "--y", "t")
    code, _, err = shiftnp(*command)
    assert (code, err.count("\n")) == (1, 1)
    monkeypatch.setenv("SHIFTNP_DEBUG", "1")
    assert "Traceback" in shiftnp(*command)[2]
    monkeypatch.setattr("shiftnp.cli.predict.Predict.run", fail)
    assert "in fail" in shiftnp(*command)[2]
    monkeypatch.setenv("SHIFTNP_DEBUG", "0")
    code, _, err = shiftnp(*command)
    assert (code, err.count("\n")) == (1, 1)
    assert "unexpected error (LookupError: an unforeseen case)" in err
    assert "SHIFTNP_DEBUG=1" in err
