"""`Regressor` on dask arrays: block by block, lazily, into files, with the values of a prediction in memory."""

from __future__ import annotations

import threading

import dask
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from regressors import observations, regressor
from shiftnp import Regressor
from shiftnp.regressor.predictor import Predictor

LEVELS = (0.05, 0.9)


def fit(n: int = 80, outputs: int | None = None, **arguments) -> Regressor:
    """A regressor with many anchors, on named inputs."""
    x, y = observations(n, outputs=outputs)
    model = regressor(**{"neighbours": 32, "scales": 1, **arguments})
    return model.fit(pd.DataFrame(x, columns=["lon", "lat"]), y)


@pytest.fixture(scope="module")
def model() -> Regressor:
    return fit()


@pytest.fixture
def sizes(monkeypatch) -> list[int]:
    """Numbers of targets that are predicted at once, as they come."""
    found: list[int] = []
    statistics = Predictor.statistics

    def record(self, x, levels=()):
        found.append(len(x))
        return statistics(self, x, levels)

    monkeypatch.setattr(Predictor, "statistics", record)
    return found


# --- grids -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 1e-6)])
@pytest.mark.parametrize("n", [20, 80])
def test_a_grid_does_not_depend_on_its_blocks(n, dtype, tolerance):
    model = fit(n, outputs=2, dtype=dtype)
    whole = model.predict_grid(LEVELS, lon=7, lat=5)
    for chunks in (1, {"lat": 2}, (4, 3), "auto"):
        cells = whole.isel(lon=slice(2 if chunks == 1 else None))  # every cell by itself, or larger blocks
        blocks = model.predict_grid(LEVELS, lon=cells.lon.values, lat=cells.lat.values, chunks=chunks)
        assert blocks["mean"].chunks is not None
        assert blocks["mean"].attrs == cells["mean"].attrs
        xr.testing.assert_allclose(blocks.compute(), cells, rtol=tolerance, atol=tolerance)


def test_a_grid_of_dates_in_blocks():
    days = pd.date_range("2021-03-01", periods=30, freq="2D")
    model = regressor(1).fit(pd.DataFrame({"time": days}), np.sin(np.arange(30) / 4))
    xr.testing.assert_allclose(
        model.predict_grid(time=50, chunks=8).compute(), model.predict_grid(time=50), rtol=1e-11, atol=1e-11
    )


def test_blocks_are_bounded_and_only_those_needed_are_computed(model, sizes):
    field = model.predict_grid(lon=3000, lat=2000, chunks={"lon": 30, "lat": 40})
    assert sizes == []
    assert field["mean"].chunksizes["lat"] == (40,) * 50
    corner = field.isel(lon=slice(2), lat=slice(40, 43)).compute()
    assert sizes == [1200]  # mean and standard deviation come from the same pass
    lon, lat = (corner[name].values for name in ("lon", "lat"))
    xr.testing.assert_allclose(corner, model.predict_grid(lon=lon, lat=lat), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["map.zarr", "map.nc"])
def test_a_grid_is_written_block_by_block(name, sizes, tmp_path):
    model = fit(20, outputs=2)
    expected = model.predict_grid(LEVELS, lon=7, lat=5, chunks=4).compute(scheduler="synchronous")
    blocks = len(sizes)
    assert blocks == 4
    for _ in range(2):  # the second replaces the first
        written = model.predict_grid(LEVELS, lon=7, lat=5, chunks=4, out=tmp_path / name)
        xr.testing.assert_identical(written.compute(), expected)  # also: the scheduler does not matter
        assert written["mean"].chunks is not None
        written.close()
    assert len(sizes) == 3 * blocks
    assert max(sizes) == 16
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_without_chunks_is_in_blocks_as_well(model, sizes, monkeypatch, tmp_path):
    from shiftnp.regressor import grid

    monkeypatch.setattr(grid, "BLOCK", 64)
    with model.predict_grid(lon=30, lat=20, out=str(tmp_path / "map.zarr")) as field:
        assert field.sizes == {"lon": 30, "lat": 20}
    assert max(sizes) <= 64


@pytest.mark.parametrize("name", ["map.zarr", "map.nc"])
def test_a_failure_leaves_the_earlier_file(name, model, monkeypatch, tmp_path):
    model.predict_grid(lon=4, lat=4, out=tmp_path / name).close()
    statistics = Predictor.statistics

    def fail(self, x, levels=()):
        if x[:, 0].max() > 4:
            raise RuntimeError("out of memory")
        return statistics(self, x, levels)

    monkeypatch.setattr(Predictor, "statistics", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        model.predict_grid(lon=9, lat=9, chunks=3, out=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with xr.open_dataset(tmp_path / name) as field:
        assert field.sizes == {"lon": 4, "lat": 4}


def test_wrong_blocks_and_files(model, tmp_path):
    with pytest.raises(ValueError, match=r"\.tif.*\.zarr"):
        model.predict_grid(out=tmp_path / "map.tif")
    with pytest.raises(ValueError, match="no input named 'lom': did you mean 'lon'"):
        model.predict_grid(chunks={"lom": 3})
    with pytest.raises(ValueError, match="chunks must be"):
        model.predict_grid(chunks="many")
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_grid((5,), chunks=3)


# --- fields ----------------------------------------------------------------------------------------------------------


def cube() -> xr.DataArray:
    """A field with dates and a hole."""
    lat, time = np.linspace(40, 45, 6), pd.date_range("2020-01-01", periods=7)
    values = np.sin(lat)[:, None] + np.arange(7) / 5
    values[2, 3:5] = np.nan
    return xr.DataArray(values, {"lat": lat, "time": time}, ("lat", "time"), "t2m", {"units": "K"})


def test_a_field_of_dask_arrays_is_predicted_in_its_blocks(sizes):
    field = cube()
    model = regressor().fit(field)
    expected = model.predict(field, return_std=True)
    sizes.clear()
    lazy = model.predict(field.chunk(lat=4, time=3), return_std=True)
    assert sizes == []
    for one, other in zip(lazy, expected, strict=True):
        assert one.chunks == ((4, 2), (3, 3, 1))
        assert one.attrs == other.attrs == {"units": "K"}
        assert one.name == "t2m"
    xr.testing.assert_allclose(xr.merge([lazy[0].rename("a"), lazy[1].rename("b")]).compute()["a"], expected[0])
    assert sorted(sizes) == [2, 4, 6, 6, 12, 12]
    xr.testing.assert_allclose(lazy[1].compute(), expected[1], rtol=1e-11)
    quantiles = model.predict_quantiles(field.chunk(time=3), LEVELS)
    assert quantiles.dims == ("lat", "time", "quantile")
    assert quantiles.chunks is not None
    xr.testing.assert_allclose(quantiles.compute(), model.predict_quantiles(field, LEVELS), rtol=1e-11)


def test_fit_to_a_field_of_dask_arrays():
    field = cube()
    assert np.array_equal(regressor().fit(field.chunk(lat=2)).predict(field), regressor().fit(field).predict(field))


@pytest.mark.parametrize("outputs", [None, 2])
def test_a_covariate_in_dask_arrays(outputs):
    x, y = observations(30, outputs=outputs)
    model = regressor().fit(pd.DataFrame(x, columns=["lon", "elevation"]), y)
    height = (("lat", "lon"), np.arange(24.0).reshape(4, 6) / 5)
    grid = xr.Dataset({"elevation": height}, {"lon": np.arange(6.0), "name": ("lon", list("abcdef"))})
    expected = model.predict(grid)
    for chunks in ({"lon": 2, "lat": 3}, {"lat": 1}):
        lazy = model.predict(grid.chunk(chunks))
        assert lazy.chunks is not None
        assert lazy.dims == expected.dims
        xr.testing.assert_allclose(lazy.compute(), expected, rtol=1e-11, atol=1e-11)


def test_a_missing_covariate_is_reported():
    x, y = observations(30)
    model = regressor().fit(pd.DataFrame(x, columns=["lon", "elevation"]), y)
    grid = xr.Dataset({"elevation": ("lon", [1.0, 2.0, np.nan, 3.0])}, {"lon": np.arange(4.0)}).chunk(lon=2)
    with pytest.raises(ValueError, match="'elevation' is missing in 1 of 2 rows"):
        model.predict(grid).compute()
    with pytest.raises(ValueError, match="no coordinate 'elevation'"):
        model.predict(grid.drop_vars("elevation").assign(other=grid.elevation))


def test_a_lazy_prediction_is_of_the_fit_that_made_it():
    model = fit(20)
    lazy, before = model.predict_grid(lon=5, lat=4, chunks=3), model.predict_grid(lon=5, lat=4)
    model.update(*observations(10, seed=1))
    xr.testing.assert_allclose(lazy.compute(), before, rtol=1e-11, atol=1e-11)


# --- where blocks are computed ---------------------------------------------------------------------------------------


def test_lazy_predictions_can_be_sent_to_workers(model):
    cloudpickle = pytest.importorskip("cloudpickle")  # dask has it
    lazy = model.predict_grid(lon=5, lat=4, chunks=3)
    sent = cloudpickle.loads(cloudpickle.dumps(lazy))
    xr.testing.assert_identical(sent.compute(), lazy.compute())
    tasks = dask.optimize(lazy["mean"].data)[0].__dask_graph__()
    assert sum(isinstance(getattr(task, "value", task), Predictor) for task in dict(tasks).values()) <= 1


def test_threads_of_dask_and_torch_do_not_multiply(model, monkeypatch):
    inside, statistics, before = [], Predictor.statistics, torch.get_num_threads()

    def record(self, x, levels=()):
        inside.append(torch.get_num_threads())
        return statistics(self, x, levels)

    monkeypatch.setattr(Predictor, "statistics", record)
    try:
        torch.set_num_threads(3)
        assert torch.get_num_threads() == 3
        with dask.config.set(scheduler="threads", num_workers=4):
            model.predict_grid(lon=8, lat=8, chunks=2).compute()
        assert inside == [1] * 16
        after: list[int] = []
        thread = threading.Thread(target=lambda: after.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert [torch.get_num_threads(), *after] == [3, 3]
    finally:
        torch.set_num_threads(before)


def test_without_dask(model, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ImportError, match=r"needs the package dask.*shiftnp\[dask\]"):
        model.predict_grid(chunks=3)
    assert model.predict_grid(lon=2, lat=2)["mean"].chunks is None
