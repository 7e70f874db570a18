"""Evenly spaced observations: predictions between them are not too sure, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import torch

from regressors import observations, regressor, same
from shiftnp import Regressor
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.process import Process
from shiftnp.regressor.regular import Bound


def evenly(n=60, outputs=None):
    """A noisy function at whole numbers."""
    x = np.arange(n, dtype=float)[:, None]
    y = np.sin(0.3 * x + np.arange(outputs or 1)) + 0.2 * np.random.default_rng(0).normal(size=(n, outputs or 1))
    return x, y if outputs else y[:, 0]


def test_the_bound_holds_close_to_observations():
    one = torch.ones(5, 2, dtype=torch.float64)
    prediction = Mixture(one / 2, 0 * one, torch.tensor([[0.1, 3.0]], dtype=torch.float64).expand(5, 2))
    distance = torch.tensor([0.0, 1.0, 1.5, 2.0, 7.0], dtype=torch.float64)
    found = Bound(reach=2.0, least=0.5).apply(prediction, distance)
    same(found.stds[:, 0], [0.5, 0.5, 0.25, 0.1, 0.1])
    same(found.stds[:, 1], 5 * [3.0])
    assert found.means is prediction.means


@pytest.mark.parametrize("dx", [1, 2])
def test_scattered_observations_have_no_bound(dx):
    assert regressor(dx).fit(*observations(60, dx)).scales_[0].bound is None


def test_evenly_spaced_observations_have_one():
    model = regressor(1).fit(*evenly())
    bound = model.scales_[0].bound
    spacing = model._box.coordinates(np.array([[0.0], [1.0]])) * model.scales_[0].typical
    same(bound.reach, np.ptp(spacing), 1e-6)
    assert regressor(1, calibrate=False).fit(*evenly()).scales_[0].bound is None
    assert regressor(1, period={0: 60.0}).fit(*evenly()).scales_[0].bound is None


def test_the_bound_is_below_the_smaller_spreads():
    """Held-out spreads differ from place to place; close to observations none is wider than farther away."""
    x = np.arange(80.0)[:, None]
    y = np.where(x[:, 0] < 60, 3.0, 0.1) * np.random.default_rng(0).normal(size=80)
    model = Regressor().fit(x, y)
    quiet = np.arange(70, 76, 1.0)[:, None]
    at, between = (model.predict(quiet + d, return_std=True)[1].mean() for d in (0.0, 0.5))
    assert at < 1.1 * between


def test_only_predictions_between_observations_change():
    model = regressor(1).fit(*evenly())
    between, beyond = np.arange(5, 9, 0.25)[:, None], np.array([[-3.0], [61.0], [80.0]])
    before = {}
    bound, model.scales_[0].bound = model.scales_[0].bound, None
    for name, xt in (("between", between), ("beyond", beyond)):
        before[name] = model.predict(xt, return_std=True)
    model.scales_[0].bound = bound._replace(least=10 * float(np.max(before["between"][1])))
    mean, std = model.predict(between, return_std=True)
    same(mean, before["between"][0])
    assert (std > 2 * before["between"][1]).all()
    for a, b in zip(model.predict(beyond, return_std=True), before["beyond"], strict=True):
        same(a, b)


@pytest.mark.parametrize("n", [60, 150])
def test_targets_may_be_split_and_models_saved(n, tmp_path):
    """Also with more observations than neighbours, several outputs and missing ones."""
    x, y = evenly(n, outputs=2)
    y[10:14, 1] = np.nan
    model = regressor(1, neighbours=64, variants=1).fit(x, y)
    assert all(scale.bound for scale in model.scales_)
    xt = np.linspace(-2, n + 2, 31)[:, None]
    std = model.predict(xt, return_std=True)[1]
    same(np.concatenate([model.predict(t[None], return_std=True)[1] for t in xt]), std)
    model.save(tmp_path / "model")
    loaded = Regressor.load(tmp_path / "model")
    assert loaded.scales_[0].bound == model.scales_[0].bound
    same(loaded.predict(xt, return_std=True)[1], std)


def test_an_output_that_is_missing_in_a_region():
    """There, no observation of it is among the neighbours: the prediction is that of the network without any."""
    x, y = evenly(200, outputs=2)
    y[:140, 1] = np.nan
    model = regressor(1, neighbours=32, variants=1, gp=True).fit(x, y)
    assert model.scales_[1].bound
    model.scales_[1].process, model.scales_[1].share = Process(np.ones((2, 1)), 0.0, 0.1), 0.9
    mean, std = model.predict(np.array([[3.3], [50.0], [170.5]]), return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    weight = next(p.weight for _, p in model._predictor.blocks(np.array([[3.3]])))
    same(weight.sum(-1), [[1.0], [1.0]])


def test_intervals_between_regular_observations_cover():
    """CO2 every fifth week: 38 % without the bound."""
    rows = [row.split(",") for row in (files("shiftnp") / "data/co2.csv").read_text().split()[1:]]
    years = np.array([row[0] for row in rows], dtype="datetime64[D]").astype("datetime64[Y]").astype(int) + 1970
    weeks = np.flatnonzero((years >= 1984) & (years < 1990))
    x, y = weeks[:, None].astype(float), np.array([float(row[1]) for row in rows])[weeks]
    observed = np.arange(len(x)) % 5 == 0
    model = Regressor().fit(x[observed], y[observed])

    def cover():
        low, high = model.predict_quantiles(x[~observed], [0.05, 0.95]).T
        return np.mean((low <= y[~observed]) & (y[~observed] <= high))

    assert 0.75 < cover() < 0.97
    model.scales_ = [replace(model.scales_[0], bound=None)]
    assert cover() < 0.6
