"""`shiftnp check` with small random weights: folds, methods, scores, suspicious points, the verdict and the page."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch

from regressors import folder, observations
from shiftnp import Regressor
from shiftnp.baselines.distance import InverseDistance
from shiftnp.baselines.single import SingleGP
from shiftnp.regressor import rivals
from shiftnp.regressor.crossvalidation import (
    BLOCKS,
    PRETRAINED,
    RANDOM,
    Scored,
    block_folds,
    cross_validate,
    pretrained_method,
    random_folds,
    statistics,
    suspicious,
    verdict,
)
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.rivals import features, tabular_method
from test_cli_predict import Page, close
from test_cli_predict import shiftnp as shiftnp


@pytest.fixture
def quick(monkeypatch):
    """A Gaussian process that is hardly fitted."""
    monkeypatch.setattr(rivals, "SingleGP", lambda: SingleGP(starts=1, iterations=3))


def table(n=24):
    x, y = observations(n)
    return pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], "temperature": y})


def check(*more):
    return ("check", "a.csv", "--x", "lon", "lat", "--y", "temperature", "--weights", folder(), "--folds", "2", *more)


def test_a_constant_output_has_nothing_to_check(shiftnp):
    table().assign(temperature=3.0).to_csv("a.csv", index=False)
    code, out, err = shiftnp(*check())
    assert (code, out) == (1, "")
    assert err == "shiftnp: 'temperature' of a.csv is 3 everywhere: there is nothing to check.\n"


@pytest.mark.parametrize("option", ["--out", "--report"])
def test_a_protected_folder_is_noticed_before_the_work(option, shiftnp):
    code, _, err = shiftnp(*check(option, "/proc/maps/check.json"))  # there is not even a file to read
    assert code == 1
    assert "/proc/maps/check.json cannot be written (" in err
    assert err.endswith("name another folder.\n")


def test_scores_verdict_picture_and_page(shiftnp, quick, tmp_path):
    data = table()
    data.loc[7, "temperature"] = 50.0
    data.to_csv("a.csv", index=False)
    code, out, err = shiftnp(*check("--report", "page.html"))
    assert (code, err) == (0, "")
    found = json.loads((tmp_path / "a-check.json").read_text())
    methods = [PRETRAINED, "fitted GP", "inverse distance", "nearest neighbour"]
    for name in (RANDOM, BLOCKS):
        assert list(found["scores"][name]) == methods
        assert name in out
    assert all(method in out for method in methods)
    assert found["suspicious"][0]["place"] == 8
    assert "suspicious: row 8 (lon" in out
    assert found["verdict"] in out
    assert out.splitlines()[-3:] == [str(tmp_path / name) for name in ("a-check.json", "a-check.png", "page.html")]
    assert (tmp_path / "a-check.png").read_bytes().startswith(b"\x89PNG")

    x, y = data[["lon", "lat"]].to_numpy(), data["temperature"].to_numpy()
    folds = random_folds(x, 2, np.random.default_rng(0))
    total, inside = [], []
    for fold in folds:
        model = Regressor(weights=folder()).fit(x[fold.train], y[fold.train])
        low, high = model.predict_quantiles(x[fold.test], [0.05, 0.95]).T
        inside += [(low <= y[fold.test]) & (y[fold.test] <= high)]
        total.append(model.log_likelihood(x[fold.test], y[fold.test]) * len(fold.test))
    mine = found["scores"][RANDOM][PRETRAINED]
    close(mine["log-likelihood"], sum(total) / len(y), 1e-5)
    close(mine["coverage 90 %"], np.concatenate(inside).mean())

    page = Page()
    page.feed((tmp_path / "page.html").read_text())
    assert all(source.startswith("data:image/") for source in page.sources)
    assert len(page.sources) == 5
    said = " ".join(page.text)
    assert found["verdict"] in said
    assert "shiftnp check a.csv --x lon lat" in said
    assert "could not be drawn" not in said


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--y", "temperatur"), 2, "did you mean 'temperature'?"),
        (("--folds", "1"), 2, "--folds must be between 2 and 100, got 1."),
        (("--out", "a.txt"), 2, "--out must end in .json, got a.txt."),
        (("--select", "few=1"), 1, "a.csv has observations at fewer than 10 places, too few to check anything."),
        (("--weights", "nowhere"), 1, "nowhere is not a folder of pretrained weights"),
    ],
)
def test_mistakes_get_one_sentence(more, code, message, shiftnp, quick, tmp_path):
    table().assign(few=np.arange(24) // 20).to_csv("a.csv", index=False)
    found, out, err = shiftnp(*check(*more))
    assert found == code, err
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_without_gpytorch_one_line_says_so(shiftnp, monkeypatch, tmp_path):
    present = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gpytorch" else present(name))
    table().to_csv("a.csv", index=False)
    code, out, err = shiftnp(*check("--no-picture"))
    assert code == 0
    assert err == "There is no fitted GP in the comparison: pip install 'shiftnp[gp]'.\n"
    assert "inverse distance" in out
    assert "fitted GP" not in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-check.json", "a.csv"]


# --- folds -----------------------------------------------------------------------------------------------------------


def test_folds_divide_the_observations():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (50, 2)).astype(float)  # several at one place
    for folds in (random_folds(x, 4, rng), block_folds(x, 4, rng)):
        assert len(folds) == 4
        assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(50))
        for fold in folds:
            assert sorted([*fold.train, *fold.test]) == list(range(50))
    for fold in random_folds(x, 4, rng):
        assert not {tuple(row) for row in x[fold.train]} & {tuple(row) for row in x[fold.test]}


def test_blocks_are_intervals_of_one_input():
    x = np.random.default_rng(0).permutation(30)[:, None].astype(float)
    for fold in block_folds(x, 3, np.random.default_rng(0)):
        assert np.ptp(x[fold.test]) == 9


def test_of_many_observations_some_are_held_out(monkeypatch):
    monkeypatch.setattr("shiftnp.regressor.crossvalidation.MOST", 20)
    x = np.random.default_rng(0).uniform(size=(100, 2))
    for folds in (random_folds(x, 4, np.random.default_rng(0)), block_folds(x, 4, np.random.default_rng(0))):
        assert [len(fold.test) for fold in folds] == [5] * 4
        assert [len(fold.train) for fold in folds] == [75] * 4


# --- methods ---------------------------------------------------------------------------------------------------------


def test_inverse_distance_is_its_formula():
    rng = np.random.default_rng(0)
    x, y, xt = (torch.from_numpy(rng.normal(size=shape)) for shape in ((1, 9, 2), (1, 9, 1), (1, 4, 2)))
    d = torch.cdist(xt, x)[0]
    w = d**-2
    found = InverseDistance()(x, y, xt)
    close(found.mean[0, :, 0], (w * y[0, :, 0]).sum(1) / w.sum(1))
    close(InverseDistance(neighbours=1)(x, y, xt).mean[0, :, 0], y[0, d.argmin(1), 0])
    errors = []
    for i in range(9):
        keep = [j for j in range(9) if j != i]
        errors.append(y[0, i, 0] - InverseDistance()(x[:, keep], y[:, keep], x[:, [i]]).mean[0, 0, 0])
    close(found.stddev[0, :, 0], [math.sqrt(np.mean(np.square(errors)))] * 4)


def test_inverse_distance_at_an_observation_without_data_and_with_gaps():
    x = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]], dtype=torch.float64)
    y = torch.tensor([[[1.0], [math.nan], [3.0]]], dtype=torch.float64)
    close(InverseDistance()(x, y, x[:, :1]).mean, [[[1.0]]])
    mask = torch.tensor([[True, True, False]])
    found = InverseDistance()(x, y, x, mask)
    close(found.mean, np.ones((1, 3, 1)))
    nothing = InverseDistance()(x, torch.full_like(y, math.nan), x)
    close(nothing.mean, np.zeros((1, 3, 1)))
    close(nothing.stddev, np.ones((1, 3, 1)))


def test_features_wrap():
    x = np.array([[1.0, 0.0], [359.0, 1.0], [180.0, 2.0], [90.0, 3.0]])
    u, ut = features(x, x + np.array([360.0, 0.0]), (360.0, None))
    close(u, ut)
    assert np.linalg.norm(u[0, :2] - u[1, :2]) < 0.05 * np.linalg.norm(u[0, :2] - u[2, :2])


def test_every_method_does_not_depend_on_units(quick):
    x, y = observations(20)
    folds = random_folds(x, 2, np.random.default_rng(0))
    methods, notes = rivals.rivals((None, None), 20)
    assert notes == []
    methods[PRETRAINED] = pretrained_method((None, None), weights=folder(), dtype="float64")
    for method in methods.values():
        one = cross_validate(x, y, folds, method)
        other = cross_validate(1000 * x + 5e5, 100 * y - 7, folds, method)
        close(other.mean, 100 * one.mean - 7, 1e-5)
        close(other.crps, 100 * one.crps, 1e-5)
        close(other.pit, one.pit, 1e-5)
        close(other.log_density, one.log_density - math.log(100), 1e-5)


class FakeTabular:
    """A tabular model that knows the mean and the spread, and keeps how it was made."""

    made: list[dict] = []  # noqa: RUF012

    def __init__(self, **arguments):
        self.made.append(arguments)

    def fit(self, x, y):
        self.mean, self.std = y.mean(), y.std()
        return self

    def predict(self, x, output_type, quantiles):
        assert output_type == "quantiles"
        z = torch.special.ndtri(torch.tensor(quantiles, dtype=torch.float64)).numpy()
        return [np.full(len(x), self.mean + self.std * v) for v in z]


def test_tabular_models_are_used_with_weights_and_never_download(monkeypatch, tmp_path):
    fake = ModuleType("tabpfn")
    fake.TabPFNRegressor = FakeTabular
    fake.__spec__ = importlib.util.spec_from_loader("tabpfn", None)
    monkeypatch.setitem(sys.modules, "tabpfn", fake)
    monkeypatch.setenv("TABPFN_MODEL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(FakeTabular, "made", [])
    methods, notes = rivals.rivals((None,), 20)
    assert "TabPFN" not in methods
    assert notes == [
        f"TabPFN is installed but cannot be used (its weights are not in {tmp_path}, and nothing is downloaded)."
    ]
    assert FakeTabular.made == []
    (tmp_path / "tabpfn-v2-regressor.ckpt").write_bytes(b"")
    methods, notes = rivals.rivals((None,), 20)
    assert notes == []
    y = np.random.default_rng(0).normal(3.0, 2.0, 200)
    found = methods["TabPFN"](np.zeros((200, 1)), y, np.zeros((50, 1)), y[:50])
    assert FakeTabular.made == [{"model_path": str(tmp_path / "tabpfn-v2-regressor.ckpt")}]
    ones = torch.ones(50, 1, dtype=torch.float64)
    exact = statistics(Mixture(ones, ones * float(y.mean()), ones * float(y.std())), y[:50])
    assert abs(found[3].mean() - exact[3].mean()) < 0.02 * exact[3].mean()
    assert abs(found[2].mean() - exact[2].mean()) < 0.05
    assert np.abs(found[4] - exact[4]).max() < 0.02


def test_quantiles_may_come_in_rows_or_columns():
    class Turned(FakeTabular):
        def predict(self, x, **arguments):
            return np.array(super().predict(x, **arguments)).T

    arguments = {"output_type": "quantiles", "quantiles": list(rivals.LEVELS)}
    y = np.random.default_rng(0).normal(size=40)
    each = [
        tabular_method(cls, arguments)(np.zeros((40, 1)), y, np.zeros((9, 1)), y[:9]) for cls in (FakeTabular, Turned)
    ]
    close(*each)


# --- conclusions -----------------------------------------------------------------------------------------------------


def scored(crps, pit, seconds=1.0) -> Scored:
    zero = np.zeros(len(pit))
    return Scored(np.arange(len(pit)), zero, zero + 1, zero, np.asarray(crps, float), np.asarray(pit, float), seconds)


@pytest.mark.parametrize(
    ("mine", "spread", "expected"),
    [
        (0.8, 1.0, "20 % better in CRPS than the fitted GP in blocks; its 90 % intervals cover 90 % (as they should)."),
        (1.1, 1.0, "10 % worse in CRPS than the fitted GP in blocks; its 90 % intervals cover 90 % (as they should)."),
        (0.8, 1.3, "its 90 % intervals cover 69 % (too narrow)."),
        (0.8, 0.9, "its 90 % intervals cover 100 % (wider than necessary)."),
    ],
)
def test_the_verdict(mine, spread, expected):
    base = np.linspace(0.9, 1.1, 1000)
    pit = 0.5 + spread * (np.linspace(0.0005, 0.9995, 1000) - 0.5)
    others = {"fitted GP": scored(base, pit), "nearest neighbour": scored(base + 1, pit)}
    assert verdict({BLOCKS: {PRETRAINED: scored(mine * base, pit), **others}}).endswith(expected)


def test_the_verdict_knows_what_is_no_difference():
    rng = np.random.default_rng(0)
    pit = rng.uniform(size=100)
    results = {PRETRAINED: scored(rng.uniform(size=100), pit), "fitted GP": scored(rng.uniform(size=100), pit)}
    assert verdict({RANDOM: results}).startswith(
        "The pretrained model is level with the fitted GP in random folds (CRPS "
    )


def test_intervals_are_judged_by_what_chance_explains():
    for n, expected in ((155, "85 % (too narrow)."), (40, "85 % (as they should).")):
        pit = np.where(np.arange(n) < 0.848 * n, 0.5, 0.999)
        results = {PRETRAINED: scored(np.ones(n), pit), "fitted GP": scored(np.ones(n), pit)}
        assert verdict({RANDOM: results}).endswith(expected)


def test_suspicious_points_are_far_from_their_prediction():
    found = suspicious(scored(np.zeros(5), np.zeros(5)), np.array([0.0, 4.5, -9.0, 3.9, 1.0]))
    assert [(one.row, one.residual) for one in found] == [(2, -9.0), (1, 4.5)]
