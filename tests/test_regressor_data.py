"""What goes into a `Regressor` and comes out of it: numpy, pandas, xarray, dates, grids, folders."""

from __future__ import annotations

import datetime
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from conftest import small_model
from regressors import folder, observations, regressor, same, weights
from shiftnp import Regressor
from shiftnp.regressor import pretrained, write_pretrained
from shiftnp.regressor import weights as weight_files
from shiftnp.tasks.fill_values import absurd

XT = np.random.default_rng(1).uniform(0, 8, size=(11, 2))


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*observations())


def table(n: int = 40) -> pd.DataFrame:
    x, y = observations(n)
    return pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], "zinc": y}, index=[f"site {i}" for i in range(n)])


# --- arrays ----------------------------------------------------------------------------------------------------------


def test_anything_like_an_array(fitted):
    x, y = observations()

    class Wrapped:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return np.array(self.values, dtype=dtype)

    expected = fitted.predict(XT)
    for convert in (Wrapped, torch.from_numpy, np.ndarray.tolist, lambda a: a.astype(object), np.asfortranarray):
        assert np.array_equal(regressor().fit(convert(x), convert(y)).predict(convert(XT)), expected)


def test_masked_values_are_missing():
    x, y = observations()
    masked = np.ma.masked_less(y, -0.5)
    expected = regressor().fit(x, np.where(y < -0.5, np.nan, y))
    model = regressor().fit(x, masked)
    assert model.dropped_ == expected.dropped_ == (y < -0.5).sum() > 0
    assert np.array_equal(model.predict(np.ma.masked_array(XT)), expected.predict(XT))
    whole = np.ma.masked_equal(np.arange(30), 3)
    assert regressor(1).fit(np.arange(30.0), whole).dropped_ == 1
    with pytest.raises(ValueError, match="X contains NaN: 'x1' is missing in 1 of 40 rows"):
        regressor().fit(np.ma.masked_where(x == x[5, 1], x), y)
    days = np.ma.masked_array(DAYS.to_numpy(), np.arange(30) == 2)
    with pytest.raises(ValueError, match="X contains NaN: 'x0' is missing in 1 of 30 rows"):
        regressor(1).fit(days, np.arange(30.0))


@pytest.mark.parametrize(("value", "said"), [(1e20, "1e+20"), (-9999.0, "-9999")])
def test_one_absurd_value_is_named(value, said):
    x, y = observations()
    y[7] = value
    with pytest.warns(UserWarning, match=f"'y0' of y is {said.replace('+', '.')} in row 7, which is absurdly far"):
        regressor(scales=1).fit(x, y)


@pytest.mark.parametrize("seed", range(20))
def test_heavy_tails_are_not_absurd(seed):
    rng = np.random.default_rng(seed)
    for values in (
        np.exp(3 * rng.normal(size=300)),
        rng.standard_t(1.5, size=300),
        np.where(rng.random(300) < 0.9, 0.0, rng.exponential(size=300)),
        np.eye(1, 40)[0],
        np.array([1.0, 1.1, 500.0]),
        np.array([np.nan, np.nan]),
    ):
        assert absurd(values) is None


def test_float32_inputs_give_float64_predictions():
    x, y = (a.astype(np.float32) for a in observations())
    model = regressor(dtype="float32").fit(x, y)
    mean = model.predict(x)
    assert mean.dtype == np.float64
    same(mean, regressor(scales=3).fit(x, y).predict(x), 1e-3)


def test_integers_and_a_single_input():
    t = np.arange(30)
    y = np.sin(t / 3)
    one, other = regressor(1).fit(t, y), regressor(1).fit(t[:, None].astype(float), y)
    assert np.array_equal(one.predict(t), other.predict(t[:, None]))


def test_a_column_of_outputs_stays_one():
    x, y = observations()
    assert regressor().fit(x, y[:, None]).predict(XT).shape == (11, 1)


# --- pandas ----------------------------------------------------------------------------------------------------------


def test_pandas_in_pandas_out(fitted):
    frame = table()
    model = regressor().fit(frame[["lon", "lat"]], frame["zinc"])
    assert list(model.feature_names_in_) == ["lon", "lat"]
    targets = frame.iloc[5:9]
    mean, std = model.predict(targets, return_std=True)
    expected = fitted.predict(frame[["lon", "lat"]].to_numpy()[5:9], return_std=True)
    for series, values in zip((mean, std), expected, strict=True):
        assert isinstance(series, pd.Series)
        assert list(series.index) == ["site 5", "site 6", "site 7", "site 8"]
        assert series.name == "zinc"
        assert np.array_equal(series, values)
    quantiles = model.predict_quantiles(targets, [0.1, 0.9])
    assert list(quantiles.columns) == [0.1, 0.9]
    assert quantiles.index.equals(targets.index)
    assert (quantiles[0.1] < quantiles[0.9]).all()
    summary = model.predict_table(targets)
    assert list(summary.columns) == ["mean", "std", "q0.05", "q0.95"]
    assert np.array_equal(summary["mean"], mean)
    assert summary.index.equals(targets.index)
    assert list(model.predict_table(targets.to_numpy()[:, :2]).columns) == list(summary.columns)


def test_columns_are_found_by_name():
    frame = table()
    model = regressor().fit(frame[["lon", "lat"]], frame["zinc"])
    assert model.predict(frame[["zinc", "lat", "lon"]]).equals(model.predict(frame))
    with pytest.raises(ValueError, match="no column of X named 'lat': did you mean 'latt'"):
        model.predict(frame.rename(columns={"lat": "latt"}))
    with pytest.raises(ValueError, match="two columns named 'lon'"):
        regressor().fit(frame[["lon", "lon"]], frame["zinc"])


def test_several_outputs_of_a_table():
    frame = table().assign(lead=lambda f: -f["zinc"])
    model = regressor().fit(frame[["lon", "lat"]], frame[["zinc", "lead"]])
    mean, std = model.predict(frame, return_std=True)
    assert list(mean.columns) == list(std.columns) == ["zinc", "lead"]
    quantiles = model.predict_quantiles(frame, [0.1, 0.9])
    assert list(quantiles.columns) == [("zinc", 0.1), ("zinc", 0.9), ("lead", 0.1), ("lead", 0.9)]
    assert "lead q0.05" in model.predict_table(frame)
    assert "zinc" in model.report().splitlines()[1]


def test_missing_values_of_pandas():
    frame = table()
    frame["zinc"] = frame["zinc"].astype("Float64")
    frame.loc["site 3", "zinc"] = pd.NA
    model = regressor().fit(frame[["lon", "lat"]], frame["zinc"])
    assert model.dropped_ == 1
    frame["lon"] = frame["lon"].astype("Float64")
    frame.loc["site 4", "lon"] = pd.NA
    with pytest.raises(ValueError, match="'lon' is missing in 1 of 40 rows"):
        model.predict(frame)


# --- dates -----------------------------------------------------------------------------------------------------------

DAYS = pd.date_range("2021-03-01", periods=30, freq="36h")


@pytest.mark.parametrize(
    "convert",
    [
        lambda t: t,
        lambda t: t.to_numpy(),
        lambda t: t.to_numpy().astype("datetime64[s]"),
        lambda t: t.strftime("%Y-%m-%d %H:%M").to_numpy(),
        lambda t: t.strftime("%Y-%m-%dT%H:%MZ").tolist(),
        lambda t: np.array(t.to_pydatetime(), dtype=object),
        lambda t: pd.DataFrame({"x0": t}),
        lambda t: pd.DataFrame({"x0": t.tz_localize("UTC").tz_convert("Europe/Rome")}),
        lambda t: pd.DataFrame({"x0": t.strftime("%Y-%m-%d %H:%M")}),
    ],
)
def test_dates_of_all_kinds(convert):
    y = np.sin(np.arange(30) / 4)
    expected = regressor(1).fit(DAYS.to_numpy(), y).predict(DAYS.to_numpy())
    times = convert(DAYS)
    same(regressor(1).fit(times, y).predict(times), expected, 1e-12)


AWARE = DAYS.tz_localize("UTC").tz_convert("Europe/Rome")


@pytest.mark.parametrize(
    "aware", [pd.DataFrame({"x0": AWARE}), AWARE, AWARE.to_series(), [f"{t}Z" for t in DAYS], list(AWARE)]
)
def test_dates_have_a_time_zone_everywhere_or_nowhere(aware, tmp_path):
    y = np.sin(np.arange(30) / 4)
    model = regressor(1).fit(aware, y)
    model.save(tmp_path / "model")
    for one in (model, Regressor.load(tmp_path / "model")):
        for naive in (DAYS, DAYS.to_numpy(), pd.DataFrame({"x0": DAYS}), list(map(str, DAYS))):
            with pytest.raises(ValueError, match=r"has no time zone, and the data of `fit` have .*: give both a zone"):
                one.predict(naive)
        same(one.predict(pd.DataFrame({"x0": AWARE.tz_convert("Asia/Tokyo")})), model.predict(aware))
        grid = one.predict_grid(x0=3)
        assert grid.x0.values[0] == DAYS[0].to_datetime64()
        assert grid.x0.attrs == {"time_zone": "UTC"}
        same(one.predict_grid(x0=AWARE[:2])["mean"], one.predict_grid(x0=DAYS[:2])["mean"])
    with pytest.raises(ValueError, match=r"has the time zone .*, and the data of `fit` have none: give both a zone"):
        regressor(1).fit(DAYS, y).predict(aware)
    field = xr.DataArray(y, {"x0": DAYS}, ("x0",))
    frame = pd.DataFrame({"x0": AWARE})
    same(regressor(1).fit(field).predict(frame), regressor(1).fit(frame, y).predict(field))


def test_compact_dates_and_numbers_as_text():
    y = np.arange(3.0)
    dates = regressor(1).fit(["19580329", "19580405", "19580412"], y)
    assert dates._inputs.kinds == ("date",)
    same(dates._x[:, 0], [-4296, -4289, -4282])
    same(dates.predict([datetime.date(1958, 4, 7)]), dates.predict(["1958-04-07"]))
    assert regressor(1).fit(["1.5", "2.5", "3.5"], y)._inputs.kinds == ("number",)


def test_durations_become_days():
    hours = pd.to_timedelta(np.arange(10), unit="h")
    model = regressor(1).fit(pd.DataFrame({"t": hours}), np.arange(10.0))
    same(model._x[:, 0], np.arange(10) / 24)
    assert model.predict_grid(t=3).t.dtype == "timedelta64[ns]"


def test_dates_and_numbers_do_not_mix():
    model = regressor(1).fit(DAYS, np.sin(np.arange(30)))
    with pytest.raises(ValueError, match="holds numbers, and dates in the data"):
        model.predict([1.0, 2.0])
    with pytest.raises(ValueError, match="must hold numbers or dates"):
        regressor(1).fit(["2021-01-01", "yesterday"], [1.0, 2.0])


# --- grids and xarray ------------------------------------------------------------------------------------------------


def test_a_grid_has_names_units_and_predictions():
    frame = table()
    frame["zinc"].attrs["units"] = "ppm"
    zinc = frame["zinc"].copy()
    zinc.attrs["units"] = "ppm"
    model = regressor().fit(frame[["lon", "lat"]], zinc)
    field = model.predict_grid(lon=7, lat=(1.0, 3.0, 5), quantiles=(0.05, 0.95))
    assert dict(field.sizes) == {"lon": 7, "lat": 5, "quantile": 2}
    same(field.lat, np.linspace(1, 3, 5))
    same([field.lon.min(), field.lon.max()], [frame["lon"].min(), frame["lon"].max()])
    assert field["mean"].attrs["units"] == field["std"].attrs["units"] == "ppm"
    assert field.attrs["comment"] == model.report()
    at = pd.DataFrame({"lon": field.lon.values[2], "lat": field.lat.values}, index=range(5))
    mean, std = model.predict(at, return_std=True)
    same(field["mean"].isel(lon=2), mean)
    same(field["std"].isel(lon=2), std)
    same(field["quantiles"].isel(lon=2).T, model.predict_quantiles(at, [0.05, 0.95]))


def test_dates_come_back_in_a_grid():
    model = regressor(1).fit(pd.DataFrame({"time": DAYS}), np.sin(np.arange(30) / 4))
    field = model.predict_grid(time=59)
    assert field.time.dtype == "datetime64[ns]"
    assert field.time.values[0] == DAYS[0].to_datetime64()
    assert field.time.values[2] == DAYS[1].to_datetime64()
    two = model.predict_grid(time=["2021-03-01", "2021-04-01"])
    assert list(two.time.values) == [np.datetime64("2021-03-01", "ns"), np.datetime64("2021-04-01", "ns")]
    three = model.predict_grid(time=("2021-03-01", "2021-03-03", 3))
    assert three.time.values[1] == np.datetime64("2021-03-02", "ns")


def test_a_grid_goes_around_a_periodic_input():
    x = np.stack([np.arange(0, 360, 10.0), np.tile([0.0, 1.0], 18)], 1)
    model = regressor(period={"x0": 360}, scales=1).fit(x, np.sin(np.radians(x[:, 0])))
    same(model.predict_grid(x0=36, x1=2).x0, x[:, 0])


@pytest.mark.parametrize(("low", "high"), [(0.0, 359.0), (-175.0, 180.0), (350.0, 380.0)])
def test_the_grid_of_a_periodic_input_has_the_range_of_the_data(low, high):
    rng = np.random.default_rng(0)
    lon = np.concatenate([[low, high], rng.uniform(low, high, 28)])
    model = regressor(period={"lon": 360}, scales=1).fit(pd.DataFrame({"lon": lon, "lat": lon / 9}), np.sin(lon))
    same(model.predict_grid(lon=5, lat=2).lon, np.linspace(low, high, 5))


def test_wrong_grids(fitted):
    with pytest.raises(ValueError, match="no input named 'x9'"):
        fitted.predict_grid(x9=3)
    with pytest.raises(ValueError, match="at least 1 point along 'x0'"):
        fitted.predict_grid(x0=0)
    with pytest.raises(ValueError, match="list of numbers"):
        fitted.predict_grid(x0=["2020-01-01"])
    with pytest.raises(ValueError, match=r"x0=\(low, high, number\)"):
        regressor().fit(np.zeros((0, 2)), []).predict_grid(x0=3)


def cube() -> xr.DataArray:
    lat, time = np.linspace(40, 45, 6), pd.date_range("2020-01-01", periods=7)
    values = np.sin(lat)[:, None] + np.arange(7) / 5
    values[2, 3:5] = np.nan
    field = xr.DataArray(
        values, {"lat": ("lat", lat, {"units": "degrees_north"}), "time": time}, ("lat", "time"), "t2m"
    )
    return field.assign_attrs(units="K")


def test_a_field_with_holes_is_filled():
    field = cube()
    model = regressor().fit(field)
    assert model.dropped_ == 2
    assert list(model.feature_names_in_) == ["lat", "time"]
    mean, std = model.predict(field, return_std=True)
    assert mean.dims == field.dims
    assert mean.coords.equals(field.coords)
    assert mean.notnull().all()
    assert mean.name == "t2m"
    assert mean.attrs == {"units": "K"}
    assert (std > 0).all()
    frame = field.to_series().dropna().reset_index()
    other = regressor().fit(frame[["lat", "time"]], frame["t2m"])
    at = field.isel(lat=2).to_series().reset_index().assign(lat=field.lat.values[2])
    same(mean.isel(lat=2), other.predict(at))
    grid = model.predict_grid(lat=4, time=3)
    assert grid["mean"].attrs["units"] == "K"
    assert grid.lat.attrs["units"] == "degrees_north"
    assert model.predict_quantiles(field, [0.1, 0.9]).dims == ("lat", "time", "quantile")


def test_targets_may_be_fields_of_a_dataset():
    """A covariate such as elevation is a variable on the grid."""
    x, y = observations(30)
    model = regressor().fit(pd.DataFrame(x, columns=["lon", "elevation"]), y)
    grid = xr.Dataset({"elevation": (("lat", "lon"), np.arange(6.0).reshape(2, 3))}, {"lon": [1.0, 2.0, 3.0]})
    mean = model.predict(grid)
    assert set(mean.dims) == {"lat", "lon"}
    same(mean.sel(lon=2.0).values, model.predict(np.array([[2.0, 1.0], [2.0, 4.0]])))
    with pytest.raises(ValueError, match="no coordinate 'elevation'"):
        model.predict(grid.drop_vars("elevation"))


# --- folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 40, 100])
def test_a_saved_regressor_predicts_exactly_the_same(n, tmp_path):
    frame = table(n)
    frame["time"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame["lat"], unit="D")
    model = regressor(period={"lon": 30}, neighbours=64).fit(frame[["lon", "time"]], frame["zinc"])
    model.save(tmp_path / "model")
    again = Regressor.load(tmp_path / "model")
    targets = table(20).assign(time=pd.Timestamp("2020-01-03"))
    for one, other in zip(
        model.predict(targets, return_std=True), again.predict(targets, return_std=True), strict=True
    ):
        assert one.equals(other)
    assert again.report() == model.report()
    assert again.n_features_in_ == 2
    assert again.update(frame[["lon", "time"]], frame["zinc"]).dropped_ == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    assert {p.suffix for p in (tmp_path / "model").rglob("*") if p.is_file()} == {".json", ".safetensors", ".md"}
    again.fit(frame[["lon", "time"]], frame["zinc"])


def test_an_output_without_observations_is_saved(tmp_path):
    x, y = observations(20, outputs=2)
    y[:, 1] = np.nan
    model = regressor().fit(x, y)
    model.save(tmp_path / "model")
    assert np.array_equal(Regressor.load(tmp_path / "model").predict(XT), model.predict(XT))


def test_saving_replaces_an_earlier_model_only(tmp_path, fitted):
    fitted.save(tmp_path / "a")
    other = regressor().fit(*observations(12))
    other.save(tmp_path / "a")
    assert np.array_equal(Regressor.load(tmp_path / "a").predict(XT), other.predict(XT))
    (tmp_path / "b").mkdir()
    fitted.save(tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").write_text("important")
    with pytest.raises(FileExistsError, match="no saved Regressor"):
        fitted.save(tmp_path / "c")
    assert (tmp_path / "c" / "thesis.tex").read_text() == "important"


def test_a_failed_save_leaves_the_earlier_model(tmp_path, fitted, monkeypatch):
    from shiftnp.regressor import saving

    fitted.save(tmp_path / "a")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(saving, "write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        regressor().fit(*observations(12)).save(tmp_path / "a")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]
    assert np.array_equal(Regressor.load(tmp_path / "a").predict(XT), fitted.predict(XT))


def test_damaged_folders(tmp_path, fitted):
    with pytest.raises(FileNotFoundError, match="no saved Regressor"):
        Regressor.load(tmp_path)
    fitted.save(tmp_path / "a")
    file = tmp_path / "a" / "regressor.json"
    good = json.loads(file.read_text())
    for bad in (
        "{",
        "[]",
        json.dumps({**good, "scales": 3}),
        json.dumps({**good, "format": 99}),
        json.dumps({k: v for k, v in good.items() if k != "unit"}),
        json.dumps({**good, "parameters": {"folds": "all"}}),
    ):
        file.write_text(bad)
        with pytest.raises(ValueError, match="damaged or of another version"):
            Regressor.load(tmp_path / "a")
    file.write_text(json.dumps(good))
    data = bytearray((tmp_path / "a" / "observations.safetensors").read_bytes())
    data[-3] ^= 1
    (tmp_path / "a" / "observations.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        Regressor.load(tmp_path / "a")


def test_weights_in_half_precision(tmp_path):
    model = small_model("te-tnp", 1, kernel="rotary", likelihood="mixture", dtype=torch.float32)
    write_pretrained(tmp_path, model, "card")
    assert (tmp_path / "README.md").read_text() == "card"
    loaded = weight_files.load(tmp_path)
    assert loaded.dtype == torch.float32
    for p, q in zip(loaded.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    assert weight_files.load(tmp_path) is loaded


def test_folders_of_weights(tmp_path):
    assert pretrained(2, folder()) == folder() / "2d"
    assert pretrained(2, weights(2)) == weights(2)
    x, y = observations(dx=4)
    with pytest.raises(ValueError, match="takes 1 to 3 inputs, got 4"):
        Regressor().fit(x, y)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Regressor(weights=tmp_path / "none").fit(*observations())
    with pytest.raises(FileNotFoundError, match=r"has no config.json"):
        Regressor(weights=tmp_path).fit(*observations())
    shutil.copytree(weights(2), tmp_path / "bad")
    for config in ("{", "{}", '{"format": 1, "model": "te-tnp", "settings": {"dx": 2}}'):
        (tmp_path / "bad" / "config.json").write_text(config)
        with pytest.raises(ValueError, match=r"config.json|damaged"):
            Regressor(weights=tmp_path / "bad").fit(*observations())
    write_pretrained(tmp_path / "tnp", small_model("tnp", 2), "card")
    with pytest.raises(ValueError, match="translation equivariant"):
        Regressor(weights=tmp_path / "tnp").fit(*observations())


def test_missing_shipped_weights_are_said_to_be_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(weight_files, "SHIPPED", tmp_path)
    with pytest.raises(FileNotFoundError, match="no pretrained weights for 2 inputs"):
        Regressor().fit(*observations())


@pytest.mark.parametrize("dx", [1, 2, 3])
def test_shipped_weights(dx):
    """Those in the package follow a smooth function; before they are there, the error says so."""
    x, y = observations(60, dx)
    if not (weight_files.SHIPPED / f"{dx}d").is_dir():
        with pytest.raises(FileNotFoundError, match="no pretrained weights"):
            Regressor().fit(x, y)
        return
    model = Regressor().fit(x[:50], y[:50])
    assert model.score(x[50:], y[50:]) > (0.5 if dx < 3 else -0.5)
