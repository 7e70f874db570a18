from __future__ import annotations

import dataclasses
import gc
import json
import os
import pickle
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal

from shiftnp.scaling import Scaling
from shiftnp.tasks import hdf5_check
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.climate import ClimateTask, split_times
from shiftnp.tasks.climate_files import date
from shiftnp.tasks.climate_grid import REGIONS, interpolate

xr = pytest.importorskip("xarray")

LAT, LON = np.arange(40.25, 64, 0.5), np.arange(-5.75, 30, 0.5)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def heights(lat, lon):
    return 500 + 300 * np.sin(lat / 3)[:, None] * np.cos(lon / 4)[None]


def celsius(lat, lon, hours):
    """A temperature that tells where and when it was taken."""
    return (hours[:, None, None] / 50 - lat[:, None]) / 2 + lon / 10 + 20


def write(
    path,
    lat=LAT,
    lon=LON,
    hours=None,
    units="K",
    names=("time", "lat", "lon"),
    calendar="standard",
    elevation=True,
    sea=None,
    offset=0.0,
    temperature="t2m",
):
    hours = np.arange(60) * 6.0 if hours is None else hours
    values = celsius(lat, (lon + 180) % 360 - 180, hours) + (273.15 if units == "K" else 0) + offset
    if sea is not None:
        values = np.where(sea(lat[:, None], (lon + 180) % 360 - 180), np.nan, values)
    attrs = {"units": units} if units else {}
    time = names[0], hours, {"units": "hours since 2019-01-01", "calendar": calendar}
    data = xr.Dataset({temperature: (names, values.astype(np.float32), attrs)}, {names[0]: time})
    data = data.assign_coords({names[1]: lat, names[2]: lon})
    if elevation:
        data["orog"] = names[1:], heights(lat, lon), {"units": "m"}
    if path.suffix == ".zarr":
        data.to_zarr(path, consolidated=False, zarr_format=3)
    else:
        data.to_netcdf(path, engine="scipy" if path.suffix == ".cdf" else "h5netcdf")
    return path


def points(task, batch):
    """All points of a batch that are there, in their own units."""
    x, y = torch.cat([batch.xc, batch.xt], 1), torch.cat([batch.yc, batch.yt], 1)
    there = [
        torch.ones(v.shape[:2], dtype=torch.bool) if mask is None else mask
        for v, mask in ((batch.xc, batch.mask_c), (batch.xt, batch.mask_t))
    ]
    keep = torch.cat(there, 1)
    return task.scaling.undo_x(x)[keep].numpy(), task.scaling.undo_y(y)[keep].numpy()[:, 0]


def check_against_the_formula(task, lon_is=lambda lon: lon):
    x, y = points(task, task.sample(4, generator()))
    hours = (x[:, 2] - task.source.parts[0].days.min()) * 24
    expected = (hours / 50 - x[:, 0]) / 2 + lon_is(x[:, 1]) / 10 + 20
    np.testing.assert_allclose(y, expected, atol=2e-3)
    low, high, west, east = REGIONS["central"]
    assert ((x[:, 0] >= low) & (x[:, 0] < high) & (x[:, 1] >= west) & (x[:, 1] < east)).all()
    np.testing.assert_allclose(x[:, 3], 500 + 300 * np.sin(x[:, 0] / 3) * np.cos(x[:, 1] / 4), atol=5)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"lat": LAT[::-1]},
        {"units": "degC"},
        {"units": ""},
        {"calendar": "noleap"},
        {"calendar": "360_day"},
        {"names": ("valid_time", "latitude", "longitude"), "temperature": "Tair"},
    ],
    ids=lambda kind: "-".join(kind) or "plain",
)
def test_every_way_to_write_a_file_gives_the_same_numbers(tmp_path, kind):
    check_against_the_formula(ClimateTask(write(tmp_path / "a.nc", **kind)))


@pytest.mark.parametrize("name", ["a.cdf", "a.zarr"])
def test_netcdf_3_and_zarr(tmp_path, name):
    if name.endswith("zarr"):
        pytest.importorskip("zarr")
    check_against_the_formula(ClimateTask(write(tmp_path / name)))


def test_longitudes_from_0_to_360_across_greenwich(tmp_path):
    lon = np.sort(LON % 360)
    file = write(tmp_path / "a.nc", lon=lon, elevation=False)
    globe = np.arange(0, 360, 0.5), np.arange(-90, 90.1, 0.5)
    orography = xr.Dataset(
        {"z": (("lat", "lon"), heights(globe[1], globe[0]) * 9.80665, {"units": "m**2 s**-2"})},
        {"lat": globe[1], "lon": globe[0]},
    )
    orography.to_netcdf(tmp_path / "orography.nc", engine="h5netcdf")
    task = ClimateTask(file)
    check_against_the_formula(task)
    west = task.test_sets()["west"].task
    x, y = points(west, west.sample(16, generator()))
    assert -4 < x[:, 1].min() < -3
    assert 7 < x[:, 1].max() < 8
    hours = (x[:, 2] - task.source.parts[0].days.min()) * 24
    np.testing.assert_allclose(y, (hours / 50 - x[:, 0]) / 2 + x[:, 1] / 10 + 20, atol=2e-3)


def test_crops_have_the_shape_and_context_of_the_paper(tmp_path):
    task = ClimateTask(write(tmp_path / "a.nc"))
    shares = []
    for i in range(50):
        batch = task.sample(2, generator(i))
        nc, nt = batch.xc.shape[1], batch.xt.shape[1]
        assert nc + nt == 15 * 15 * 5
        assert batch.mask_c is None
        assert batch.mask_t is None
        shares.append(nc / 1125)
    assert 0.01 <= min(shares) < 0.05
    assert 0.29 < max(shares) <= 1 / 3 + 1e-3
    x = task.scaling.undo_x(torch.cat([batch.xc, batch.xt], 1))[0].numpy().round(4)
    lat, lon, days = (np.unique(x[:, k]) for k in range(3))
    assert (len(lat), len(lon), len(days)) == (15, 15, 5)
    np.testing.assert_allclose(np.diff(days), 0.25, atol=2e-4)  # six hours
    assert len(np.unique(x[:, :3], axis=0)) == 1125  # no point twice


def test_hourly_data_are_thinned_to_six_hours_and_strides_are_kept(tmp_path):
    file = write(tmp_path / "a.nc", hours=np.arange(240.0))
    task = ClimateTask(file, size=(5, 5, 3), stride=(2, 1, None))
    x, _ = points(task, task.sample(1, generator()))
    assert np.diff(np.unique(x[:, 0].round(3))) == pytest.approx(1.0)
    assert np.diff(np.unique(x[:, 1].round(3))) == pytest.approx(0.5)
    assert np.diff(np.unique(x[:, 2].round(3))) == pytest.approx(0.25, abs=2e-3)
    hourly = dataclasses.replace(task, stride=(2, 1, 1))
    x, _ = points(hourly, hourly.sample(1, generator()))
    assert np.diff(np.unique(x[:, 2].round(4))) == pytest.approx(1 / 24, abs=1e-3)


def test_sea_is_left_out_and_what_is_there_is_masked(tmp_path):
    task = ClimateTask(write(tmp_path / "a.nc", sea=lambda lat, lon: (lon > 18) & (lat > 46)))
    batch = task.sample(32, generator())
    assert batch.mask_t is not None
    assert not batch.mask_t.all(1).all()
    for mask, values in ((batch.mask_c, (batch.xc, batch.yc)), (batch.mask_t, (batch.xt, batch.yt))):
        for v in values:
            assert v.isfinite().all()
            assert mask is None or (v[~mask] == 0).all()
    x, _ = points(task, batch)
    assert not ((x[:, 1] > 18.01) & (x[:, 0] > 46.01)).any()
    check_against_the_formula(task)
    count = batch.mask_t.sum(1) + (batch.xc.shape[1] if batch.mask_c is None else batch.mask_c.sum(1))
    assert count.min() >= 113  # a tenth of a crop
    with pytest.raises(ValueError, match="choose a smaller `size`"):
        ClimateTask(write(tmp_path / "b.nc", sea=lambda lat, lon: lat > 0)).sample(1, generator())


def test_standardisation_is_that_of_training_region_and_times_alone(tmp_path):
    task = ClimateTask(write(tmp_path / "a.nc"))
    scaling = task.scaling
    data = task._region
    train = split_times(60, 5, (0.7, 0.1, 0.2), 12, 1) == 0
    inside = celsius(data.lat, data.lon, np.arange(60) * 6.0)[train]
    assert scaling.y_mean[0] == pytest.approx(inside.mean(), abs=1e-4)
    assert scaling.y_std[0] == pytest.approx(inside.std(), abs=1e-4)
    assert scaling.x_mean[:2] == pytest.approx((47.5, 18))
    assert scaling.x_std[2] == pytest.approx(data.days[train].std())
    assert Scaling(**json.loads(json.dumps(dataclasses.asdict(scaling)))) == scaling
    for test in task.test_sets().values():
        assert test.task.scaling == scaling

    # Nothing outside moves it: neither other regions nor other times.
    def spoilt(path):
        with xr.open_dataset(path, engine="h5netcdf") as data:
            other = data.load().copy(deep=True)
        t = other["t2m"].values
        box = (other.lat.values[:, None] < 53) & (other.lat.values[:, None] > 42)
        box = box & (other.lon.values > 8) & (other.lon.values < 28)
        t[:, ~box] += 20
        t[~train] += 20
        other.to_netcdf(tmp_path / "spoilt.nc", engine="h5netcdf")
        return tmp_path / "spoilt.nc"

    assert ClimateTask(spoilt(tmp_path / "a.nc")).scaling == scaling


def test_training_validation_and_tests_share_no_time(tmp_path):
    task = ClimateTask(write(tmp_path / "a.nc", hours=np.arange(300) * 6.0), size=(4, 4, 5))
    sets = task.test_sets()
    assert list(sets) == ["valid", "central", "west", "north"]

    def times(task):
        return set(points(task, task.sample(256, generator()))[0][:, 2].round(2))

    seen = {name: times(t.task) for name, t in sets.items()} | {"train": times(task)}
    for name in ("valid", "central", "west", "north"):
        # More than a step apart: the gap.
        assert min(abs(a - b) for a in seen[name] for b in seen["train"]) > 0.3
    assert not seen["valid"] & seen["central"]
    assert seen["central"] == seen["west"] == seen["north"]
    assert len(seen["train"]) > 2 * len(seen["central"]) > 2 * len(seen["valid"])


def test_stretches_of_time():
    split = split_times(1460, 5, (0.7, 0.1, 0.2), 12, 1)
    assert np.bincount(split + 1)[1:] / 1460 == pytest.approx([0.7, 0.1, 0.2], abs=0.03)
    assert (np.diff(np.flatnonzero(split == 2)) > 1).sum() == 11  # twelve stretches of tests
    assert not ((split[:-1] != split[1:]) & (split[:-1] >= 0) & (split[1:] >= 0)).any()
    with pytest.raises(ValueError, match="17 times are too few"):
        split_times(17, 5, (0.7, 0.1, 0.2), 12, 1)


def test_crops_do_not_reach_over_missing_files(tmp_path):
    write(tmp_path / "1.nc", hours=np.arange(30) * 6.0)
    write(tmp_path / "2.nc", hours=720 + np.arange(40) * 6.0)  # 22 days are missing
    task = ClimateTask(tmp_path / "*.nc", size=(4, 4, 5), shares=(0.8, 0.1, 0.1))
    assert len(task.source.parts) == 2
    batch = task.sample(64, generator())
    days = task.scaling.undo_x(torch.cat([batch.xc, batch.xt], 1))[..., 2]
    assert (days.amax(1) - days.amin(1)).max() < 1.01
    assert days.max() - days.min() > 20


def test_batches_depend_on_the_generator_alone(tmp_path):
    file = write(tmp_path / "a.nc")
    a, b, c = (ClimateTask(file).sample(3, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(a.yt, b.yt)
    assert a.yt.shape != c.yt.shape or not torch.equal(a.yt, c.yt)
    test = ClimateTask(file).test_sets()["north"]
    assert json.loads(json.dumps(dataclasses.asdict(test.task)))["split"] == "test"
    assert torch.equal(
        pickle.loads(pickle.dumps(test.task)).sample(3, generator()).yt, test.task.sample(3, generator()).yt
    )
    again = test.task.sample(16, generator_for(1, 0))
    assert torch.equal(next(iter(test)).yt, again.yt)


def test_refusals_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("SHIFTNP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="SHIFTNP_DATA"):
        ClimateTask().sample(1, generator())
    with pytest.raises(ValueError, match="region must be one of central, west, north"):
        ClimateTask(region="east")
    with pytest.raises(ValueError, match="lat_min"):
        ClimateTask(region=(50, 40, 0, 10))
    (tmp_path / "flat").mkdir()
    bare = write(tmp_path / "flat" / "a.nc", elevation=False)
    with pytest.raises(ValueError, match="has no elevation, nor has a file beside it"):
        ClimateTask(bare).sample(1, generator())
    other = write(tmp_path / "other.nc")
    check_against_the_formula(ClimateTask(bare, elevation=other))
    small = write(tmp_path / "small.nc", lat=LAT[:20])
    with pytest.raises(
        ValueError, match=r"small.nc covers latitudes 40.25 to 49.75 and longitudes -5.75 to 29.75; not"
    ):
        ClimateTask(small).sample(1, generator())
    assert "north" not in ClimateTask(small, region=(42, 49, 8, 28), size=(5, 5, 5)).test_sets()
    with pytest.raises(ValueError, match="too few for crops"):
        ClimateTask(small, region=(42, 46, 8, 28)).sample(1, generator())
    with pytest.raises(ValueError, match="'degF'"):
        ClimateTask(write(tmp_path / "f.nc", units="degF")).sample(1, generator())
    with pytest.raises(ValueError, match="check its units"):
        ClimateTask(write(tmp_path / "wrong.nc", units="degC", offset=273)).sample(1, generator())
    with pytest.raises(ValueError, match="the variable 'rain'"):
        ClimateTask(other, variable="rain").sample(1, generator())
    xr.Dataset(
        {"t2m": (("time", "lat", "lon"), np.zeros((20, len(LAT), len(LON))), {"units": "degC"})},
        {"time": np.arange(20.0), "lat": LAT, "lon": LON},
    ).to_netcdf(tmp_path / "timeless.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match="bare numbers"):
        ClimateTask(tmp_path / "timeless.nc").sample(1, generator())
    (tmp_path / "zip.nc").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match="zip archive"):
        ClimateTask(tmp_path / "zip.nc").sample(1, generator())
    with pytest.raises(FileNotFoundError, match=r"nowhere.nc"):
        ClimateTask(tmp_path / "nowhere.nc").sample(1, generator())


@pytest.mark.parametrize("name", ["a.nc", "a.cdf", "a.zarr", "a.npz"])
def test_damaged_files_are_one_sentence(tmp_path, name):
    path = tmp_path / name
    if name.endswith("npz"):
        hours = np.arange(60) * 6
        field = (celsius(LAT, LON, hours) + 273.15).astype(np.float32)
        np.savez(path, lat=LAT, lon=LON, time_h=hours, t2m_K=field, elevation_m=heights(LAT, LON))
    else:
        write(path)
    check_against = ClimateTask(path).sample(1, generator())
    assert check_against.yc.isfinite().all()
    broken = tmp_path / f"broken{path.suffix}"
    if path.is_dir():
        path.rename(broken)
        chunk = next(p for p in sorted((broken / "t2m").rglob("*")) if p.is_file() and p.suffix != ".json")
        chunk.write_bytes(chunk.read_bytes()[:-20])
    else:
        broken.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"is damaged or not .* \(.+\): get it again or convert it\.$") as error:
        ClimateTask(broken).sample(1, generator())
    assert str(error.value).startswith(str(broken))
    assert "\n" not in str(error.value)


def test_damaged_metadata_of_zarr_are_one_sentence(tmp_path, caplog):
    def longer(data):
        return json.dumps(json.loads(data) | {"shape": [10**10]}).encode()

    changes = {"orog": lambda _: b"{", "t2m": lambda _: b"[1]", "lat": lambda _: None, "lon": longer}
    for name, change in changes.items():
        path = write(tmp_path / f"{name}.zarr")
        file = path / name / "zarr.json"
        content = change(file.read_bytes())
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}.*get ") as error:
            ClimateTask(path).sample(1, generator())
        assert "\n" not in str(error.value)
    gc.collect()  # when zarr's threads report what nobody asked for
    assert not caplog.records


def test_a_file_that_blocks_or_crashes_the_library_is_refused(tmp_path, monkeypatch):
    good = write(tmp_path / "a.nc", hours=np.arange(20) * 6.0)
    blocks = tmp_path / "blocks.nc"
    os.mkfifo(blocks)  # opening it waits for a writer, forever
    monkeypatch.setattr(hdf5_check, "SECONDS", 5.0)
    with pytest.raises(ValueError, match=r"blocks.nc is damaged or very slow to read \(opening it took more than 7 s"):
        hdf5_check.check_hdf5([good, blocks])
    crash = tmp_path / "crash.py"
    crash.write_text("import os; print(flush=True); os.abort()")
    monkeypatch.setattr(hdf5_check, "__file__", str(crash))
    other = write(tmp_path / "b.nc", hours=np.arange(20) * 6.0)
    with pytest.raises(ValueError, match=r"b.nc is damaged \(it crashes the HDF5 library\): get it again\."):
        hdf5_check.check_hdf5([good, other])


def test_an_axis_of_absurd_length_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = write(tmp_path / "a.nc")
    with h5py.File(path, "a") as file:
        file.create_dataset("extra", shape=(10**11,), chunks=(1000,), dtype="f8").make_scale()
    with pytest.raises(ValueError, match=r"a.nc is damaged or not a NetCDF 4 file \(extra has 100000000000 values\)"):
        ClimateTask(path).sample(1, generator())


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_zarr_store_runs_nothing(tmp_path, monkeypatch):
    """Old versions of zarr unpickled chunks if the metadata said so."""
    zarr = pytest.importorskip("zarr", minversion="3.1")
    assert zarr is not None
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "a.zarr"
    (store / "lat").mkdir(parents=True)
    (store / ".zgroup").write_text('{"zarr_format": 2}')
    about = {"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "|O", "compressor": None, "fill_value": None}
    (store / "lat" / ".zarray").write_text(json.dumps(about | {"order": "C", "filters": [{"id": "pickle"}]}))
    (store / "lat" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["lat"]}')
    (store / "lat" / "0").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match=r"a\.zarr"):
        ClimateTask(store).sample(1, generator())
    assert not (tmp_path / "evil").exists()


def test_versions_of_zarr_that_run_pickles_are_not_installed():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    (zarr,) = [need for need in project["project"]["optional-dependencies"]["geo"] if need.startswith("zarr")]
    assert tuple(map(int, zarr.removeprefix("zarr>=").split("."))) >= (3, 1)


def test_files_are_checked_once(tmp_path, monkeypatch):
    paths = [write(tmp_path / f"{i}.nc", hours=720.0 * i + np.arange(20) * 6.0) for i in range(3)]
    started = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: started.append(1) or run(*args, **kwargs))
    for _ in range(2):
        ClimateTask(tmp_path / "*.nc", size=(4, 4, 2)).sample(1, generator())
    assert len(started) == 1
    paths[0].write_bytes(paths[0].read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"0.nc is damaged or not a NetCDF 4 file \(.*truncated file"):
        hdf5_check.check_hdf5(paths)


@pytest.mark.parametrize("value", [9.96921e36, -9999.0, 1e20])
def test_undeclared_fill_values_are_refused_and_can_be_declared(tmp_path, value):
    path = write(tmp_path / "a.nc")
    with xr.open_dataset(path, engine="h5netcdf") as data:
        data = data.load()
    spoilt = data.copy(deep=True)
    spoilt["t2m"].values[:, (LAT > 46), 35:40] = value
    spoilt["t2m"].encoding.pop("_FillValue", None)
    spoilt.to_netcdf(tmp_path / "spoilt.nc", engine="h5netcdf", encoding={"t2m": {"_FillValue": None}})
    with pytest.raises(ValueError, match=r"t2m in .*spoilt.nc has .* in \d+ places.*_FillValue") as error:
        ClimateTask(tmp_path / "spoilt.nc").sample(1, generator())
    assert f"{value:g}" in str(error.value)
    check_against_the_formula(ClimateTask(tmp_path / "spoilt.nc", missing=(value,)))
    flooded = data.copy(deep=True)
    flooded["orog"].values[20:25, 35:60] = -9999
    flooded.to_netcdf(tmp_path / "flooded.nc", engine="h5netcdf")
    with pytest.warns(UserWarning, match=r"orog in .*flooded.nc is -9999 in 125 places.*by missing=-9999 "):
        ClimateTask(tmp_path / "flooded.nc").sample(1, generator())
    task = ClimateTask(tmp_path / "flooded.nc", missing=(-9999,))
    assert task._region.elevation[np.isfinite(task._region.elevation)].min() > 100


def test_coordinates_that_are_not_degrees_are_refused(tmp_path):
    wrong = {"nan": np.where(LAT == 50.25, np.nan, LAT), "far": LAT * 1e3, "twice": np.where(LAT == 50.25, 49.75, LAT)}
    for name, lat in wrong.items():
        path = write(tmp_path / f"{name}.nc", lat=lat)
        with pytest.raises(ValueError, match=rf"{name}.nc has a lat that is not degrees, or some of them twice"):
            ClimateTask(path).sample(1, generator())


def test_missing_times_and_single_rows_are_refused(tmp_path):
    path = write(tmp_path / "a.nc", hours=np.where(np.arange(60) == 7, np.nan, np.arange(60) * 6.0))
    with pytest.raises(ValueError, match=r"a.nc has missing times"):
        ClimateTask(path).sample(1, generator())
    row = write(tmp_path / "row.nc", lat=LAT[:1])
    with pytest.raises(ValueError, match=r"orog in .*row.nc has \(1, 72\) points, but a grid needs 2 x 2"):
        ClimateTask(write(tmp_path / "b.nc"), elevation=row).sample(1, generator())


def test_elevation_between_grid_points():
    lat, lon = np.array([2.0, 1.0, 0.0]), np.array([0.0, 120.0, 240.0])
    values = lat[:, None] * 10 + np.array([0.0, 1.0, np.nan])
    out = interpolate(lat, lon, values, np.array([0.25, 1.0]), np.array([0.0, 60.0]))
    np.testing.assert_allclose(out, [[2.5, 3.0], [10.0, 10.5]])
    assert np.isnan(interpolate(lat, lon, values, np.array([9.0]), np.array([0.0]))).all()


def test_dates_in_calendars():
    assert date(17956.25, "standard") == "2019-03-01 06:00"
    assert date(365 * 49 + 59.0, "noleap") == "2019-03-01 00:00"


def test_maps_show_context_truth_mean_and_deviation_without_network(tmp_path, monkeypatch):
    def no_network(*_args, **_kwargs):
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    task = ClimateTask(write(tmp_path / "a.nc", sea=lambda lat, lon: (lon > 18) & (lat > 46)))
    batch = task.sample(2, generator())
    prediction = Independent(Normal(batch.yt, torch.ones_like(batch.yt)), 1)
    figure = task.draw(batch, prediction, index=1)
    figure.savefig(tmp_path / "maps.png")
    titles = [ax.get_title() for ax in figure.axes[:4]]
    assert titles == ["context", "truth", "mean at targets", "standard deviation"]
    context, truth, mean = (ax.collections[0].get_array().compressed() for ax in figure.axes[:3])
    assert len(context) + len(mean) == len(truth)
    assert np.ma.allclose(np.sort(np.concatenate([context, mean])), np.sort(truth))
    assert len(task.draw(batch).axes) == 3


def test_coastlines_are_drawn_where_cartopy_has_them(tmp_path, monkeypatch):
    cartopy, shapefile = pytest.importorskip("cartopy"), pytest.importorskip("shapefile")
    from shiftnp.plots.maps import coastline

    monkeypatch.setitem(cartopy.config, "data_dir", tmp_path)
    monkeypatch.setitem(cartopy.config, "pre_existing_data_dir", tmp_path / "none")
    assert coastline((0.0, 10.0, 40.0, 50.0)) == []
    folder = tmp_path / "shapefiles" / "natural_earth" / "physical"
    folder.mkdir(parents=True)
    with shapefile.Writer(str(folder / "ne_50m_coastline")) as writer:
        writer.field("name", "C")
        for line in ([[-5, 45], [15, 45]], [[100, 0], [101, 0]]):
            writer.line([line])
            writer.record("coast")
    (line,) = coastline((0.0, 10.0, 40.0, 50.0))
    np.testing.assert_allclose(line, [[0, 45], [10, 45]])


ROOT = Path(os.environ.get("SHIFTNP_DATA") or Path(__file__).parents[2] / "shared" / "data") / "climate"


@pytest.mark.parametrize(
    ("name", "region", "coldest", "hottest"),
    [
        ("wfde5_tair_europe_0p5deg_monthly_1979-2019.npz", "central", -25, 32),
        ("era5_europe_temp.nc", "central", -5, 45),
        ("era5_italy_2m_temperature.nc", (37, 46, 8, 18), -15, 45),
        ("era5_t2m_uk_0p25deg_hourly_2019-03.npz", (50, 58, -10, 2), -15, 25),
        ("wfde5_uk_air_temperature.nc", (50, 60, -11, 3), -20, 20),
    ],
)
def test_real_files_give_sensible_tasks(name, region, coldest, hottest):
    if not (ROOT / name).exists():
        pytest.skip(f"{name} is not in {ROOT}; SHIFTNP_DATA may name the folder that has climate/ in it")
    task = ClimateTask(ROOT / name, region=region)
    low, high, west, east = REGIONS[region] if isinstance(region, str) else region
    batch = task.sample(16, generator())
    x, y = points(task, batch)
    assert coldest < y.min() < y.max() < hottest
    assert low - 1e-3 <= x[:, 0].min()
    assert x[:, 0].max() < high
    assert west - 1e-3 <= x[:, 1].min()
    assert x[:, 1].max() < east
    assert x[:, 3].min() > -1
    assert 100 < x[:, 3].max() < 3500
    assert abs(batch.yc.mean()) < 1.5
    # It is colder higher up: about 6 degrees for a kilometre, less in single months.
    if "era5_europe" in name or "monthly" in name:
        lapse = np.linalg.lstsq(np.c_[np.ones(len(x)), x], y, rcond=None)[0][4]
        assert -0.012 < lapse < -0.001
    if "monthly" in name:
        assert list(task.test_sets()) == ["valid", "central", "west", "north"]
    if name == "era5_europe_temp.nc":
        assert list(task.test_sets()) == ["valid", "central", "west"]


def test_a_folder_of_many_grids_gives_the_one_with_most_times(monkeypatch):
    if not (ROOT / "era5_europe_temp.nc").exists():
        pytest.skip(f"{ROOT} has no climate files; SHIFTNP_DATA may name the folder that has climate/ in it")
    monkeypatch.setenv("SHIFTNP_DATA", str(ROOT.parent))
    assert [part.path.name for part in ClimateTask().source.parts] == ["wfde5_tair_europe_0p5deg_monthly_1979-2019.npz"]


def test_elevation_goes_all_around_the_world():
    lat, lon = np.array([-10.0, 0.0, 10.0]), np.arange(0.0, 360.0, 10.0)
    heights = np.broadcast_to(np.cos(np.deg2rad(lon)), (3, 36))
    to = np.arange(-180.0, 180.0, 10.0)
    np.testing.assert_allclose(interpolate(lat, lon, heights, lat, to)[1], np.cos(np.deg2rad(to)), atol=1e-9)


def test_a_task_comes_back_from_json():
    """In a process of its own: the checks of this test run take no list for a tuple."""
    code = """
import dataclasses, json
from shiftnp.tasks.climate import ClimateTask
from shiftnp.scaling import Scaling
scaling = Scaling("abcd", "e", [0] * 4, [1] * 4, [0], [1])
task = ClimateTask(region=(50, 58, -10, 2), size=(4, 4, 2), fixed_scaling=scaling)
assert ClimateTask(**json.loads(json.dumps(dataclasses.asdict(task)))) == task
try:
    ClimateTask(region=[1, 2, 3])
except ValueError as error:
    assert "region must have 4 entries" in str(error)
else:
    raise SystemExit("a box of three numbers was accepted")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fewer_targets_in_training(tmp_path):
    path = write(tmp_path / "a.nc")
    whole, few = (ClimateTask(path, targets=n).sample(4, generator()) for n in (None, 10))
    assert torch.equal(few.xc, whole.xc)
    assert torch.equal(few.yt, whole.yt[:, :10])
    assert ClimateTask(path, targets=10).test_sets()["central"].task == ClimateTask(path).test_sets()["central"].task
    with pytest.raises(ValueError, match="targets"):
        ClimateTask(path, targets=0)


def test_relative_time_counts_from_the_middle_of_the_crop(tmp_path):
    task = ClimateTask(write(tmp_path / "a.nc"), relative_time=True)
    batch = task.sample(4, generator())
    x = torch.cat([batch.xc, batch.xt], 1)
    days = task.scaling.undo_x(x)[..., 2]
    assert days.unique().numpy() == pytest.approx([-0.5, -0.25, 0.0, 0.25, 0.5])  # every six hours
    assert x[..., 2].std(correction=0).item() == pytest.approx(1, abs=1e-5)
    absolute = dataclasses.replace(task, relative_time=False).sample(4, generator())
    other = torch.cat([absolute.xc, absolute.xt], 1)
    assert torch.equal(x[..., [0, 1, 3]], other[..., [0, 1, 3]])
    span = ClimateTask(tmp_path / "a.nc").scaling.undo_x(other)[..., 2]
    torch.testing.assert_close(days - days[:, :1], span - span[:, :1], atol=1e-3, rtol=0)
    assert "from the middle" in task.for_comparison(batch)[1]


def test_a_task_says_which_data_it_reads(tmp_path):
    assert ClimateTask(write(tmp_path / "a.nc")).data == "a.nc: 60 times from 2019-01-01 to 2019-01-15, 6 hours apart."
