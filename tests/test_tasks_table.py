from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal

from shiftnp.scaling import Scaling
from shiftnp.tasks.base import TestSet
from shiftnp.tasks.table import TableTask, subsample

pd = pytest.importorskip("pandas")

ROLES = {"inputs": ("lon", "lat"), "outputs": ("t",)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def stations(days=40, each=30, seed=0):
    """Measurements whose `t` is the number of the row, so that a test can tell which row it sees."""
    r = np.random.default_rng(seed)
    n = days * each
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.repeat(np.arange(days), each), unit="D")
    frame = pd.DataFrame({"lon": r.uniform(5, 15, n), "lat": r.uniform(45, 55, n), "day": day, "t": np.arange(n) * 1.0})
    frame["rain"] = r.uniform(0, 1, n)
    return frame.sample(frac=1, random_state=1)  # rows of one day need not be neighbours


def rows_of(task, batch, which="ct"):
    """Row numbers (`t`) of each task's context and targets."""
    out = []
    for i in range(len(batch.xc)):
        seen = []
        for y, mask, name in ((batch.yc, batch.mask_c, "c"), (batch.yt, batch.mask_t, "t")):
            keep = slice(None) if mask is None else mask[i]
            if name in which:
                seen.append(task.scaling.undo_y(y[i][keep])[:, 0].round().long())
        out.append(torch.cat(seen).tolist())
    return out


def test_each_group_is_a_data_set_and_no_row_comes_twice():
    task = TableTask(frame=stations(), group="day", **ROLES)
    batch = task.sample(16, generator())
    assert (task.dx, task.dy) == (2, 1)
    for rows in rows_of(task, batch):
        assert sorted(rows) == list(range(min(rows), min(rows) + 30))
        assert min(rows) % 30 == 0
    shares = [len(rows) / 30 for i in range(10) for rows in rows_of(task, task.sample(16, generator(i)), "c")]
    assert 0.1 <= min(shares) < 0.15
    assert 0.65 < max(shares) <= 0.7


@pytest.mark.parametrize("group", ["day", None])
@pytest.mark.parametrize("order", ["random", "sorted"])
def test_training_validation_and_tests_share_no_group_or_row(group, order):
    task = TableTask(frame=stations(), group=group, order=order, **ROLES)
    sets = {"train": task} | {name: test.task for name, test in task.test_sets().items()}
    assert list(sets) == ["train", "valid", "test"]
    seen = {}
    for name, part in sets.items():
        batch = part.sample(128, generator())
        seen[name] = {row // 30 if group else row for rows in rows_of(part, batch) for row in rows}
        assert part.scaling == task.scaling
    assert not seen["train"] & seen["valid"]
    assert not seen["train"] & seen["test"]
    assert not seen["valid"] & seen["test"]
    total = 40 if group else 1200
    assert [len(seen[name]) / total for name in sets] == pytest.approx([0.7, 0.1, 0.2], abs=0.03)
    if group and order == "sorted":
        assert max(seen["train"]) < min(seen["valid"]) <= max(seen["valid"]) < min(seen["test"])


def test_standardisation_is_that_of_the_training_rows():
    frame = stations()
    task = TableTask(frame=frame, group="day", order="sorted", **ROLES)
    train = frame[frame.t < 28 * 30]
    scaling = task.scaling
    assert scaling.x_mean == pytest.approx((train.lon.mean(), train.lat.mean()))
    assert scaling.y_std == pytest.approx((train.t.std(ddof=0),))
    frame.loc[frame.t >= 28 * 30, "lon"] += 100
    assert TableTask(frame=frame, group="day", order="sorted", **ROLES).scaling == scaling
    assert Scaling(**json.loads(json.dumps(dataclasses.asdict(scaling)))) == scaling


def test_a_block_holds_out_all_points_of_a_box():
    task = TableTask(
        frame=stations(each=100), group="day", holdout="block", block=("lon", "lat"), inputs=("lon", "lat", "rain"),
        outputs=("t",),
    )  # fmt: skip
    for i in range(5):
        batch = task.sample(8, generator(i))
        for k in range(8):
            xc, xt = batch.xc[k][batch.mask_c[k]][:, :2], batch.xt[k][batch.mask_t[k]][:, :2]
            low, high = xt.min(0).values, xt.max(0).values
            assert not ((xc >= low) & (xc <= high)).all(1).any()
            assert len(xc) + len(xt) == 100
            assert 10 <= len(xc) <= 70


def test_points_on_the_edge_of_a_box_are_all_held_out():
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), -1).reshape(-1, 2)
    frame = pd.DataFrame(
        {"lon": np.tile(grid[:, 0], 10), "lat": np.tile(grid[:, 1], 10), "day": np.arange(10).repeat(144)}
    )
    frame["t"] = 1.0 * np.arange(len(frame))
    task = TableTask(frame=frame, group="day", holdout="block", context=(0.5, 0.9), **ROLES)
    with pytest.warns(UserWarning, match="1008 training rows at only 144 places"):
        batch = task.sample(16, generator())
    for k in range(16):
        xc, xt = batch.xc[k][batch.mask_c[k]], batch.xt[k][batch.mask_t[k]]
        assert not ((xc >= xt.min(0).values - 1e-6) & (xc <= xt.max(0).values + 1e-6)).all(1).any()


def test_missing_outputs_are_not_observed_and_never_targets():
    frame = stations()
    frame.loc[frame.t % 3 == 0, "rain"] = np.nan
    frame.loc[frame.t % 5 == 0, ["rain", "t"]] = np.nan
    task = TableTask(frame=frame, group="day", inputs=("lon", "lat"), outputs=("t", "rain"))
    batch = task.sample(16, generator())
    assert batch.yc[..., 1].isnan().any()
    assert not batch.yc.isnan().all(-1).any()
    assert batch.yt.isfinite().all()
    assert batch.mask_t.any(1).all()


def test_rows_without_inputs_are_refused_or_left_out():
    frame = stations()
    frame.loc[frame.t < 4, "lat"] = np.nan
    frame.loc[frame.t == 7, "day"] = pd.NaT
    with pytest.raises(ValueError, match="no lat, day in 5 of its 1200 rows"):
        TableTask(frame=frame, group="day", **ROLES).sample(1, generator())
    task = TableTask(frame=frame, group="day", drop_missing=True, **ROLES)
    assert len(task.table.x) == 1195
    assert task.sample(64, generator()).xc.isfinite().all()


@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
def test_dates_become_days(zone):
    frame = stations()
    days = (frame["day"] - pd.Timestamp("1970-01-01")).dt.days
    frame["when"] = frame["day"].dt.tz_localize(zone)
    task = TableTask(frame=frame, inputs=("when", "lat"), outputs=("t",))
    np.testing.assert_allclose(task.table.x[:, 0], days - (0 if zone is None else 1 / 24))
    assert task.scaling.inputs == ("when (days since 1970-01-01)", "lat")


@pytest.mark.parametrize("form", ["%Y%m%d", "%d.%m.%Y", "%Y/%m/%d"])
def test_dates_may_be_whole_numbers_or_text(form):
    frame = stations()
    days = (frame["day"] - pd.Timestamp("1970-01-01")).dt.days
    text = frame["day"].dt.strftime(form)
    frame["when"] = text.astype(int) if form == "%Y%m%d" else text
    task = TableTask(frame=frame, inputs=("when", "lat"), outputs=("t",))
    np.testing.assert_allclose(task.table.x[:, 0], days)
    assert task.scaling.inputs == ("when (days since 1970-01-01)", "lat")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet"])
def test_files_give_the_same_batches_as_the_frame(tmp_path, name):
    frame, path = stations(days=10), tmp_path / name
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if "tsv" in name else ",", index=False)
    roles = {"inputs": ("lon", "lat", "day"), "outputs": ("t",), "group": "day"}
    a, b = (task.sample(4, generator()) for task in (TableTask(path, **roles), TableTask(frame=frame, **roles)))
    torch.testing.assert_close(a.xc, b.xc)
    torch.testing.assert_close(a.yt, b.yt)


def test_batches_depend_on_the_generator_alone():
    a, b, c = (TableTask(frame=stations(), group="day", **ROLES).sample(4, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(a.yt, b.yt)
    assert a.yt.shape != c.yt.shape or not torch.equal(a.yt, c.yt)


def test_long_tables_are_thinned():
    task = TableTask(frame=stations(days=100, each=100), points=40, **ROLES)
    for rows in rows_of(task, task.sample(8, generator())):
        assert len(rows) == 40 == len(set(rows))
    drawn = np.concatenate([subsample(1000, 10, generator(i)) for i in range(500)])
    assert drawn.mean() == pytest.approx(499.5, abs=15)
    assert all(len(set(subsample(1000, 10, generator(i)))) == 10 for i in range(50))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": ("lon", "height")}, "no column 'height'; its columns are lon, lat"),
        ({"inputs": "lon"}, "inputs must be a list"),
        ({"outputs": ()}, "at least one column"),
        ({"outputs": ("name",)}, "'name' of the frame must hold numbers, has 'a'"),
        ({"inputs": ("name",)}, "must hold numbers or ISO dates, has 'a'"),
        ({"block": ("height",)}, "block must name some of the inputs"),
        ({"context": (0.5, 2)}, "context must be a range"),
        ({"group": "half"}, "2 groups of 'half' in the frame are too few"),
        ({"path": "x.csv"}, "not both"),
        ({"path": "x.csv", "frame": None}, "No file x.csv"),
    ],
)
def test_refusals_say_what_to_do(change, message):
    frame = stations(days=10)
    frame["name"], frame["half"] = "a", frame.t % 2
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        TableTask(**{"frame": frame, **ROLES, **change}).sample(1, generator())


def test_signalling_nans_are_missing():
    frame = stations()
    values = frame["t"].to_numpy(copy=True)
    values.view(np.uint64)[:5] = 0x7FF0_0000_0000_0001
    frame["t"] = values
    assert len(TableTask(frame=frame, **ROLES).table.x) == 1195  # a warning of numpy would be an error here


def test_two_columns_of_one_name_are_refused():
    frame = stations().rename(columns={"rain": "t"})
    with pytest.raises(ValueError, match=r"the frame has 2 columns called 't': rename or drop all but one\."):
        TableTask(frame=frame, **ROLES).sample(1, generator())
    with pytest.raises(ValueError, match=r"the frame has no rows"):
        TableTask(frame=stations()[:0], **ROLES).sample(1, generator())


@pytest.mark.parametrize(("column", "value"), [("t", 9.96921e36), ("t", 1e30), ("t", -np.inf), ("lat", 1e30)])
def test_values_that_no_observation_has_are_refused(column, value):
    frame = stations()
    frame[column] = np.where(np.arange(len(frame)) == 6, value, frame[column])
    with pytest.raises(ValueError, match=rf"Column '{column}' of the frame has {value:g} in row 7".replace("+", r"\+")):
        TableTask(frame=frame, **ROLES).sample(1, generator())
    if np.isfinite(value):
        table = TableTask(frame=frame, missing=(value,), drop_missing=True, **ROLES).table
        assert len(table.x) == 1199
        assert np.abs(table.y).max() < 1200


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [-9999, -999, -99.9, 9999, 99999, 1e20])
def test_fill_values_are_warned_of_and_can_be_declared(value, dtype):
    frame = stations()
    frame["rain"] = frame["rain"].where(frame.t % 40 > 0, value).astype(dtype)
    roles = {"inputs": ("lon", "lat"), "outputs": ("rain",)}
    with pytest.warns(UserWarning, match=r"Column 'rain' of the frame is .* in 30 places.*missing=") as caught:
        TableTask(frame=frame, **roles).sample(1, generator())
    assert f"by missing={value:g} (in `shiftnp train`: task.missing={value:g})" in str(caught[0].message)
    table = TableTask(frame=frame, missing=(value,), **roles).table  # a warning would be an error here
    assert len(table.x) == 1170
    assert table.y.max() < 1
    inputs = TableTask(frame=frame, inputs=("rain",), outputs=("t",), missing=(value,))
    with pytest.raises(ValueError, match="no rain in 30 of its 1200 rows"):
        inputs.sample(1, generator())


def test_real_values_are_no_fill_values():
    frame = stations()
    frame["pressure"] = np.random.default_rng(0).normal(1000, 8, len(frame)).round()  # 999 among its neighbours
    frame["once"] = frame["rain"].where(frame.t != 5, -999)  # an outlier, perhaps, but it does not repeat
    frame["wide"] = np.random.default_rng(0).normal(0, 1e4, len(frame)).round(-1).clip(-9999)
    TableTask(frame=frame, inputs=("lon", "lat"), outputs=("pressure", "once", "wide")).sample(1, generator())


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet"])
@pytest.mark.parametrize("content", ["cut", "empty", "noise"])
def test_damaged_files_are_one_sentence(tmp_path, name, content):
    path = tmp_path / name
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
        stations(days=10).to_parquet(path)
    else:
        stations(days=10).to_csv(path, sep="\t" if "tsv" in name else ",", index=False)
    data = path.read_bytes()
    cut = (
        data[: len(data) // 2]
        if not name.endswith(("csv", "tsv"))
        else data[:2000] + b"\n1,2,3,4,5,6,7\t8\t9\t10\t11\t12\t13\n"
    )
    path.write_bytes({"cut": cut, "empty": b"", "noise": np.random.default_rng(0).bytes(3000)}[content])
    empty = content == "empty" and not name.endswith("parquet")
    message = r"has no rows: it is empty\.$" if empty else r"is damaged or not .* \(.+\): get it again or convert it\.$"
    with pytest.raises(ValueError, match=message) as error:
        TableTask(path, **ROLES).sample(1, generator())
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_what_the_system_does_not_let_us_read_is_one_sentence(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(OSError, match=r"a\.csv cannot be read \(.*[Dd]irectory.*\)\.$"):
        TableTask(tmp_path / "a.csv", **ROLES).sample(1, generator())


@pytest.mark.parametrize("value", [[1], {}, 1j, True, b"a", "a"], ids=lambda value: type(value).__name__)
def test_columns_that_are_no_numbers_are_one_sentence(value):
    frame = stations(days=10)
    frame["odd"] = pd.Series([value] * len(frame), index=frame.index)
    for roles in ({"inputs": ("odd",), "outputs": ("t",)}, {"inputs": ("lon",), "outputs": ("odd",)}):
        with pytest.raises(ValueError, match=r"Column 'odd' of the frame must hold numbers.*: convert it first\.$"):
            TableTask(frame=frame, **roles).sample(1, generator())


def test_a_whole_number_beyond_all_floats_is_one_sentence():
    frame = stations(days=10)
    frame["odd"] = pd.Series([10**400] * len(frame), index=frame.index, dtype=object)
    with pytest.raises(ValueError, match=r"Column 'odd' of the frame must hold numbers, has '10+\.\.\.'"):
        TableTask(frame=frame, inputs=("lon",), outputs=("odd",)).sample(1, generator())


def test_names_from_a_file_do_not_break_the_sentence():
    frame = pd.DataFrame({f"a\nb{i}\x1b[31m": [1.0] for i in range(100)})
    with pytest.raises(ValueError, match="has no column 'lon'; its columns are") as error:
        TableTask(frame=frame, **ROLES).sample(1, generator())
    assert str(error.value).isprintable()
    assert "and 80 more" in str(error.value)


@pytest.mark.parametrize("inputs", [("lon",), ("lon", "lat", "rain")])
def test_pictures(tmp_path, inputs):
    task = TableTask(frame=stations(), group="day", inputs=inputs, outputs=("t",))
    batch = task.sample(2, generator())
    prediction = Independent(Normal(batch.yt, torch.ones_like(batch.yt)), 1)
    figure = task.draw(batch, prediction, index=1)
    figure.savefig(tmp_path / "table.png")
    if len(inputs) > 1:
        sizes = [len(ax.collections[0].get_offsets()) for ax in figure.axes[:4]]
        assert sizes[0] + sizes[2] == sizes[1] == 30
        assert sizes[2] == sizes[3]
    assert task.draw(batch).axes


# --- stations --------------------------------------------------------------------------------------------------------


def network(days=20, each=30):
    """Stations that are observed every day; `t` is 1000 times the day plus the number of the station."""
    r = np.random.default_rng(0)
    place = r.uniform(5, 15, (each, 2))
    day, station = (a.ravel() for a in np.meshgrid(np.arange(days), np.arange(each), indexing="ij"))
    frame = pd.DataFrame({"lon": place[station, 0], "lat": place[station, 1], "day": day})
    frame["name"] = [f"station {i}" for i in station]
    frame["t"] = 1000.0 * day + station
    return frame.sample(frac=1, random_state=1)


NETWORK = {**ROLES, "group": "day", "station": "name"}


def seen(test_set, which):
    """Days and stations of contexts or targets."""
    rows = [row for batch in test_set for task in rows_of(test_set.task, batch, which) for row in task]
    return {row // 1000 for row in rows}, {row % 1000 for row in rows}


def test_new_places_are_in_no_context_and_in_no_training():
    task = TableTask(frame=network(), **NETWORK)
    sets = {name: dataclasses.replace(test, tasks=64) for name, test in task.test_sets().items()}
    assert list(sets) == ["valid", "valid-new-places", "known-places", "new-places"]
    train_days, trained = seen(TestSet(task, seed=0, tasks=64), "ct")
    assert len(trained) == 21
    targets = {name: seen(test, "t") for name, test in sets.items()}
    for name, test in sets.items():
        days, stations = seen(test, "c")
        assert stations <= trained
        assert not train_days & (days | targets[name][0])
        assert test.task.scaling == task.scaling
    assert targets["valid"][1] <= trained
    assert targets["known-places"][1] <= trained
    assert len(targets["valid-new-places"][1]) == 3
    assert len(targets["new-places"][1]) == 6
    assert not targets["valid-new-places"][1] & (trained | targets["new-places"][1])
    assert not targets["new-places"][1] & trained


def test_training_drops_and_jitters_stations_and_tests_do_not():
    frame = network()
    calm = TableTask(frame=frame, drop=0.0, jitter=0.0, **NETWORK)
    places = torch.from_numpy(calm._sets[0].x).float()
    assert len(places) == 21

    def found(task):
        batches = [task.sample(1, generator(i)) for i in range(30)]
        points = [torch.cat([b.xc[0], b.xt[0]]) for b in batches]
        return [len(p) for p in points], max(float(torch.cdist(p, places).min(1).values.max()) for p in points)

    sizes, moved = found(calm)
    assert set(sizes) == {21}
    assert moved < 1e-5
    sizes, moved = found(TableTask(frame=frame, drop=0.5, jitter=0.0, **NETWORK))
    assert min(sizes) <= 13
    assert min(sizes) >= 10
    assert max(sizes) >= 19
    assert moved < 1e-5
    sizes, moved = found(TableTask(frame=frame, drop=0.0, jitter=0.3, **NETWORK))
    assert set(sizes) == {21}
    assert moved > 0.02
    test = TableTask(frame=frame, **NETWORK).test_sets()["known-places"].task
    sizes, moved = found(test)
    assert set(sizes) == {21}
    assert moved < 1e-5


def test_fixed_places_without_stations_are_warned_of_once():
    frame = network()
    task = TableTask(frame=frame, group="day", **ROLES)
    with pytest.warns(UserWarning, match=r"the frame has 420 training rows at only 30 places.*task\.station=COLUMN"):
        task.sample(1, generator())
    task.sample(1, generator())  # a warning would be an error here
    TableTask(frame=frame, **NETWORK).sample(1, generator())
    TableTask(frame=stations(), group="day", **ROLES).sample(1, generator())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": None}, "station needs a group"),
        ({"station": "nam"}, "no column 'nam'"),
        ({"drop": 1.5}, "drop must be a share"),
        ({"jitter": -1}, "jitter must be a share"),
        ({"places": "new"}, 'places="new" needs'),
        ({"station": "half"}, "2 stations of 'half' in the frame are too few"),
    ],
)
def test_wrong_stations_say_what_to_do(change, message):
    frame = network()
    frame["half"] = frame.t % 2
    with pytest.raises(ValueError, match=message):
        TableTask(**{"frame": frame, **NETWORK, **change}).sample(1, generator())


def test_origins_are_the_groups_that_tasks_are_made_from():
    test_set = dataclasses.replace(TableTask(frame=network(), **NETWORK).test_sets()["new-places"], tasks=40)
    rows = [task for batch in test_set for task in rows_of(test_set.task, batch, "t")]
    days = [{row // 1000 for row in task}.pop() for task in rows]
    origins = test_set.task.origins(test_set).tolist()
    assert len(origins) == 40
    assert len(set(zip(origins, days, strict=True))) == len(set(days)) == len(set(origins)) == 4
    alone = TableTask(frame=stations(), **ROLES).test_sets()["test"]
    assert set(alone.task.origins(alone).tolist()) == {0}  # all tasks are made from the same rows


def test_scores_are_in_the_units_of_a_single_output():
    task = TableTask(frame=stations(), group="day", **ROLES)
    assert task.unit.name == "t"
    assert task.unit.factor == task.scaling.y_std[0]
    assert TableTask(frame=stations(), inputs=("lon",), outputs=("t", "rain")).unit is None
