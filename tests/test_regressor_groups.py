"""Fine-tuning on many data sets of one kind: what is held out, which weights are kept, and how predictions choose
their data set. A clock that the test sets takes the place of the real one, so that the number of steps is known."""

from __future__ import annotations

import copy
import math
import os
import signal
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regressors import regressor, same, weights
from shiftnp.regressor import Regressor, finetune, finetune_tasks
from shiftnp.regressor.box import Box
from shiftnp.regressor.finetune_tasks import Held, Parts, Pool, Sampler, hold_out, validation_tasks
from shiftnp.regressor.groups import Groups, read_labels
from shiftnp.regressor.scales import Scales
from shiftnp.regressor.weights import load
from shiftnp.tasks.stations import spacing

SECONDS = 0.05
"""What every look at the clock takes."""


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by `SECONDS` whenever it is read."""
    now = SimpleNamespace(seconds=0.0)

    def read():
        now.seconds += SECONDS
        return now.seconds

    monkeypatch.setattr(finetune, "time", SimpleNamespace(monotonic=read, perf_counter=read))
    monkeypatch.setattr("shiftnp.regressor.estimator.time", SimpleNamespace(perf_counter=read))
    monkeypatch.setattr(finetune_tasks, "TASKS", 2)
    return now


def days(groups=20, stations=15, seed=0):
    """A wave that moves from day to day, at fixed stations, with noise; rows in random order."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 8, (stations, 2))
    day, station = (a.ravel() for a in np.meshgrid(np.arange(groups), np.arange(stations), indexing="ij"))
    x = places[station]
    y = 20 + 5 * np.sin(x[:, 0] * 0.8 + day) + 0.3 * rng.normal(size=len(x))
    order = rng.permutation(len(x))
    return x[order], y[order], day[order], np.array([f"s{i}" for i in station])[order]


def fitted(minutes=0.0):
    x, y, day, station = days()
    return regressor(scales=1, variants=1).fit(x, y, groups=day, station=station, minutes=minutes)


@cache
def kept():
    return fitted()


def untuned():
    """A regressor with groups and pretrained weights, which a test may update."""
    return copy.copy(kept())


# --- predictions -----------------------------------------------------------------------------------------------------


def test_each_row_is_predicted_from_its_own_group():
    model = untuned()
    x, y, day, _ = days()
    at = np.random.default_rng(1).uniform(0, 8, (7, 2))
    groups = np.array([3, 5, 3, 3, 11, 5, 3])
    mean, std = model.predict(at, return_std=True, groups=groups)
    for g in (3, 5, 11):
        one = model.select(g)
        assert sorted(one._y[:, 0]) == sorted(y[day == g])
        same(one.predict(at, return_std=True), model.predict(at, return_std=True, groups=g), 0)
        same(mean[groups == g], one.predict(at)[groups == g], 1e-12)
        same(std[groups == g], one.predict(at, return_std=True)[1][groups == g], 1e-12)
    assert abs(model.predict(at, groups=3) - model.predict(at, groups=5)).max() > 1e-3
    q = model.predict_quantiles(at, [0.05, 0.95], groups=groups)
    assert (q[:, 0] < mean).all()
    assert (mean < q[:, 1]).all()
    assert math.isfinite(model.log_likelihood(x, y, groups=day))
    assert model.score(x, y, groups=day) <= 1
    assert len(model.select(3).sample(at, n=2)) == 2


def test_another_group_changes_nothing_for_the_first():
    model, at = untuned(), np.array([[1.0, 2.0], [4.0, 7.0]])
    before = model.predict(at, groups="3")
    x, y, day, _ = days(seed=5)
    today = day == 0
    model.update(x[today], y[today], groups="today")
    same(model.predict(at, groups="3"), before, 0)
    assert sorted(model.select("today")._y[:, 0]) == sorted(y[today])
    alone = model.predict(at, groups="today")
    model.update(x[day == 1], y[day == 1], groups=["today"] * 15)
    assert len(model.select("today")._x) == 30
    assert abs(model.predict(at, groups="today") - alone).max() > 1e-6


def test_pandas_in_pandas_out():
    pd = pytest.importorskip("pandas")
    x, y, day, station = days()
    frame = pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], "t": y, "station": station})
    frame["day"] = pd.Timestamp("2005-01-01") + pd.to_timedelta(day, unit="D")
    inputs = frame[["lon", "lat"]]
    model = regressor(scales=1).fit(inputs, frame["t"], groups=frame["day"], station=frame["station"], minutes=0)
    assert model._groups.labels[:2] == ("2005-01-01", "2005-01-02")
    some = frame.sample(9, random_state=0)
    mean = model.predict(some[["lon", "lat"]], groups=some["day"])
    assert list(mean.index) == list(some.index)
    one = model.predict_table(some[["lon", "lat"]], groups=pd.Timestamp("2005-01-03"))
    assert list(one) == ["mean", "std", "q0.05", "q0.95"]
    same(one["mean"], model.select("2005-01-03").predict(some[["lon", "lat"]]), 0)


def test_labels_are_text():
    moments = np.array(["2005-01-01", "2005-01-02T06:00"], "datetime64[ns]")
    assert read_labels(moments, 2, "groups") == ["2005-01-01", "2005-01-02T06:00:00"]
    assert read_labels([1.0, 2.5, 3], 3, "groups") == ["1", "2.5", "3"]
    assert read_labels(np.array(["a", 7], dtype=object), 2, "groups") == ["a", "7"]
    for missing in (["a", None], [1.0, np.nan], np.array(["NaT", "2005-01-01"], "datetime64[D]")):
        with pytest.raises(ValueError, match="groups has no label in row"):
            read_labels(missing, 2, "groups")
    assert Groups.of(["b", "a", "b"]).join(Groups.of(["c", "a"])).labels == ("a", "b", "c")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: m.predict(x), r"fitted to 20 groups: name that of each row by groups=\.\.\., or one by select"),
        (lambda m, x: m.predict_grid(x0=3), "fitted to 20 groups"),
        (lambda m, x: m.sample(x), "fitted to 20 groups"),
        (lambda m, x: m.update(x, x[:, 0]), "fitted to 20 groups"),
        (lambda m, x: m.predict(x, groups="33"), "no group named '33'"),
        (lambda m, x: m.predict(x, groups=[1, 2]), r"one label for each of the 300 rows, got the shape \(2,\)"),
        (lambda m, x: m.select(3).predict(x, groups=3), "only if `fit` had groups"),
        (lambda m, x: m.select(3).select(3), "fitted to one data set"),
    ],
)
def test_wrong_groups_are_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call(untuned(), days()[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"station": "s"}, "station needs groups"),
        ({"groups": "day", "minutes": -1}, "minutes must be a number of at least 0"),
        ({"groups": "two"}, "2 different labels, and fine-tuning needs at least 5 data sets"),
        ({"groups": "day", "station": ["a"]}, "station must have one label for each of the 300 rows"),
    ],
)
def test_wrong_fits_are_one_sentence(arguments, message):
    x, y, day, station = days()
    given = {"day": day, "s": station, "two": day % 2}
    arguments = {k: given.get(v, v) if isinstance(v, str) else v for k, v in arguments.items()}
    with pytest.raises(ValueError, match=message):
        regressor().fit(x, y, **arguments)


# --- what training sees ----------------------------------------------------------------------------------------------


def pool_of(groups=20, stations=15):
    """Outputs are the number of the row, so that a test can tell which row it sees."""
    x, _, day, station = days(groups, stations)
    box = Box.around(x, (None, None), 512)
    codes = np.unique(station, return_inverse=True)[1]
    return Pool(box.coordinates(x), 1.0 * np.arange(len(x))[:, None], day, codes, box.wrapping, 512)


SCALES = [Scales(np.array([[1.5, 0.7]]), torch.ones(1, dtype=torch.float64))]


def test_training_sees_neither_held_out_groups_nor_held_out_stations():
    pool, rng = pool_of(), np.random.default_rng(0)
    parts = hold_out(pool, rng)
    assert len(np.unique(pool.group[parts.group])) == 4
    assert len(np.unique(pool.station[parts.station])) == 3
    sampler = Sampler(pool, parts, SCALES, rng)
    drawn, sizes = set(), []
    raw = pool.y.copy()
    for _ in range(60):
        o, rows = sampler.sets[int(rng.integers(len(sampler.sets)))]
        task = sampler.task(o, rows)
        assert task.xc.shape[1] + task.xt.shape[1] <= 12
        z = torch.cat([task.yc, task.yt], 1)[0, :, 0]
        # Standardised by the context: mean zero and variance one there.
        if task.yc.shape[1] > 1:
            same(task.yc.mean(), 0.0)
        sizes.append(len(z))
        drawn |= set(rows.tolist())
    seen = np.array(sorted(drawn))
    assert not parts.group[seen].any()
    assert not parts.station[seen].any()
    assert min(sizes) <= 8  # of 12 stations; up to half of them are left out
    assert max(sizes) >= 11
    assert np.array_equal(raw, pool.y)


def test_validation_is_on_held_out_groups_and_either_kind_of_station():
    pool, rng = pool_of(), np.random.default_rng(0)
    parts = hold_out(pool, rng)
    for new in (False, True):
        (held,) = validation_tasks(pool, parts, SCALES, new, rng)
        context = held.yc[~held.yc.isnan()].long().numpy()
        targets = held.y.long().numpy()
        assert len(held.yc) == 4
        assert parts.group[context].all()
        assert parts.group[targets].all()
        assert not parts.station[context].any()
        assert (parts.station[targets] == new).all()
        assert not set(context) & set(targets) or not new
        for yc, yt, there in zip(held.yc, held.yt, held.there, strict=True):
            rows = torch.cat([yc[~yc.isnan()], yt[there]]).long().numpy()
            assert len(np.unique(pool.group[rows])) == 1
            assert len(set(rows)) == len(rows)
        sums = held.by_task(held.y)
        same(sums, [float(yt[there].mean()) for yt, there in zip(held.yt, held.there, strict=True)])


def test_positions_are_jittered_by_a_part_of_the_spacing(monkeypatch):
    monkeypatch.setattr(finetune_tasks, "STRETCH", 0.0)
    pool = pool_of()
    nothing = np.zeros(len(pool.u), bool)
    sampler = Sampler(pool, Parts(nothing, nothing), SCALES, np.random.default_rng(0))
    o, rows = sampler.sets[0]
    places, moved = pool.u[rows] * SCALES[0].factors[0], []
    # Distances to the first point of a task, by the numbers of the rows, without jitter and with it.
    for jitter in (0.0, 0.3):
        monkeypatch.setattr(finetune_tasks, "JITTER", jitter)
        off = []
        for _ in range(40):
            task = sampler.task(o, rows)
            x = torch.cat([task.xc, task.xt], 1)[0].numpy()
            pairs = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
            known = np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1))
            off.append(min(abs(np.sort(known.ravel())[:, None] - pairs.ravel()[None]).min(0).max(), 9.0))
        moved.append(np.max(off))
    assert moved[0] < 1e-9
    assert moved[1] > 1e-3


def test_spacing_is_the_distance_to_the_nearest_station():
    x = np.array([[0.0, 0.0, 1.0], [3.0, 4.0, 1.0], [3.0, 5.0, 2.0], [0.0, 0.0, 7.0], [3.0, 4.0, 3.0]])
    station = np.array([0, 1, 2, 0, 1])
    near = np.array([5.0, 1.0, 1.0, 5.0, 1.0])
    same(spacing(x, station), np.stack([near, near, 0 * near], -1), 0)  # the last input is not fixed, such as time
    same(spacing(x, np.arange(5)), np.zeros_like(x), 0)  # no station is seen twice


def test_too_few_stations_are_not_held_out():
    pool = pool_of(stations=4)
    assert not hold_out(pool, np.random.default_rng(0)).station.any()
    model = regressor(scales=1).fit(*days(stations=4)[:2], groups=days(stations=4)[2], minutes=0)
    assert model.tuning_.new is None
    assert model.tuning_.held_out_stations == 0
    assert "new places" not in model.report()


# --- which weights are kept ------------------------------------------------------------------------------------------


def test_weights_that_help_are_kept_saved_and_loaded(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "RATE", 3e-3)
    pretrained = {k: v.clone() for k, v in load(weights(2), "cpu", torch.float64).state_dict().items()}
    model = fitted(minutes=0.2)
    tuning = model.tuning_
    assert clock.seconds <= 12 + 5 * SECONDS
    assert tuning.kept
    assert tuning.ended in ("time", "no improvement")
    assert 10 < tuning.best <= tuning.steps
    assert tuning.known.sure > 0
    assert tuning.new.sure > 0
    assert (tuning.groups, tuning.held_out_groups, tuning.stations, tuning.held_out_stations) == (16, 4, 12, 3)
    assert f"fine-tuned: {tuning.best} of {tuning.steps} steps" in model.report()
    # The gain is that of the weights which are used, over the pretrained ones.
    plain = untuned()
    assert plain.tuning_.known.before == tuning.known.before
    assert not plain.tuning_.kept
    assert "training ended after 0 steps, too early" in plain.report()
    assert model.scores_[0].log_likelihood - plain.scores_[0].log_likelihood == pytest.approx(tuning.new.gain, rel=1e-6)
    # Other regressors still find the pretrained weights.
    again = load(weights(2), "cpu", torch.float64).state_dict()
    assert all(torch.equal(again[k], v) for k, v in pretrained.items())
    at = np.random.default_rng(1).uniform(0, 8, (6, 2))
    assert abs(model.predict(at, groups=3) - plain.predict(at, groups=3)).max() > 1e-3

    model.save(tmp_path / "m")
    loaded = Regressor.load(tmp_path / "m")
    same(loaded.predict(at, return_std=True, groups=3), model.predict(at, return_std=True, groups=3), 0)
    assert loaded.tuning_ == tuning
    assert loaded.report() == model.report()
    assert not list((tmp_path / "m").rglob("*.pt"))
    x, y, day, _ = days(seed=9)
    for m in (model, loaded):
        m.update(x[day == 0], y[day == 0], groups="new")
    same(loaded.predict(at, groups="new"), model.predict(at, groups="new"), 0)


def test_weights_that_do_not_help_are_dropped(clock, monkeypatch):
    monkeypatch.setattr(finetune, "RATE", 10.0)
    model = fitted(minutes=0.1)
    assert not model.tuning_.kept
    assert model.tuning_.steps > 3
    assert model._model is load(weights(2), "cpu", torch.float64)
    assert "not fine-tuned, the pretrained weights stay" in model.report()
    at = np.array([[1.0, 2.0]])
    same(model.predict(at, groups=3), untuned().predict(at, groups=3), 0)


def test_the_error_at_new_places_is_that_over_stations_if_larger():
    """One of three stations gains much, on all days: over days that looks sure, over stations it is not."""
    before, after = torch.zeros(100), torch.full((100,), 0.1) + 0.01 * torch.randn(100)
    stations = torch.zeros(3), torch.tensor([0.3, 0.0, 0.0])
    days = finetune.gain((before, after))
    both = finetune.gain((before, after), stations)
    assert both.gain == days.gain
    assert days.sure > 0
    assert both.error == pytest.approx(0.1)
    assert both.sure < 0.01


def test_values_of_held_out_stations_are_averaged_by_station():
    there = torch.tensor([[True, True, False], [True, True, True]])
    station = torch.tensor([[7, 2, 0], [2, 9, 7]])
    y = torch.zeros(2, 3, dtype=torch.float64)
    held = Held(0, y[..., None], y, y[..., None], y, there, station, torch.zeros(2, dtype=torch.float64))
    values = torch.arange(5.0, dtype=torch.float64)  # stations 7, 2; 2, 9, 7
    same(held.by_station(values), [1.5, 2.0, 3.0])  # 2, 7, 9
    same(held.by_task(values), [0.5, 3.0])


def test_a_gain_at_known_places_alone_is_not_enough(clock, monkeypatch):
    monkeypatch.setattr(finetune, "RATE", 3e-3)
    gains = finetune.gains

    def worse_at_new_places(before, after):
        known, new = gains(before, after)
        return known, finetune.Gain(new.before, -0.1, 0.01)

    monkeypatch.setattr(finetune, "gains", worse_at_new_places)
    model = fitted(minutes=0.1)
    assert model.tuning_.known.gain > 0
    assert not model.tuning_.kept
    assert model.tuning_.ended == "no improvement"  # after half of the time


def test_ctrl_c_keeps_the_best_weights(clock, monkeypatch):
    monkeypatch.setattr(finetune, "RATE", 3e-3)
    batch, calls = Sampler.batch, []

    def interrupted(self, dtype):
        calls.append(1)
        if len(calls) == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return batch(self, dtype)

    monkeypatch.setattr(Sampler, "batch", interrupted)
    model = fitted(minutes=0.3)
    assert model.tuning_.ended == "Ctrl-C"
    assert model.tuning_.steps == 40
    assert model.tuning_.kept
    assert 0 < model.tuning_.best < 40
    assert np.isfinite(model.predict(np.array([[1.0, 2.0]]), groups=3)).all()


def test_narrow_intervals_at_new_places_are_warned_of(monkeypatch):
    monkeypatch.setattr(finetune, "ENOUGH_COVER", 1.01)
    monkeypatch.setattr(finetune, "COUNTED", 4)
    with pytest.warns(UserWarning, match=r"90 % intervals cover \d+% .* too narrow at new places"):
        fitted()


def test_several_outputs_and_missing_values(clock):
    x, y, day, station = days()
    both = np.stack([y, -3 * y], -1)
    both[day == 2, 1] = np.nan
    both[::7, 0] = np.nan
    model = regressor(scales=1).fit(x, both, groups=day, station=station, minutes=0.05)
    assert len(model.scales_) == len(model.spread_factors_) == len(model.scores_) == 2
    assert model.predict(x[:4], groups=day[:4]).shape == (4, 2)
    assert model.tuning_.steps > 0


def test_a_fit_without_groups_forgets_them():
    model, (x, y, _, _) = untuned(), days()
    model.fit(x[:30], y[:30])
    assert model.tuning_ is None
    assert model.predict(x[:3]).shape == (3,)
