"""The benchmark of `Regressor` beside fitted Gaussian processes: its splits, scores, summaries and stored rivals."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from regressors import folder
from shiftnp.regressor.mixture import Mixture

pytest.importorskip("gpytorch", reason="needs the extra `gp`")
sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
import zero_shot
import zero_shot_data
import zero_shot_sets

NOWHERE = zero_shot_sets.Source(Path("nowhere"), Path("nowhere"))


def case(seed=0):
    rng = np.random.default_rng(seed)
    return zero_shot_sets.Case("a", rng.normal(size=(20, 2)), rng.normal(size=20), rng.normal(size=(9, 2)), np.zeros(9))


def row(name, size, ours, theirs, group="issue"):
    def entry(crps, seconds):
        covered = {"50": 0.5, "90": crps, "95": 0.95}
        times = {"seconds": seconds, "processor seconds": seconds}
        return {"crps": crps, "log-likelihood": -crps, "rmse": crps, "coverage": covered, **times}

    return {
        "data set": name,
        "size": size,
        "group": group,
        zero_shot.OURS: entry(ours, 1.0),
        "gp": entry(theirs, 10.0),
    }


def test_observations_and_withheld_ones_are_different_ones():
    data = zero_shot_sets.SETS["co2"]
    some, other, _ = data.cases(NOWHERE, 300)
    assert len(some.y) == 300
    assert len(some.yt) == zero_shot_sets.TARGETS
    assert not set(some.x[:, 0]) & set(some.xt[:, 0])
    assert not np.array_equal(some.x, other.x)
    assert np.array_equal(some.x, data.cases(NOWHERE, 300)[0].x)
    assert data.cases(NOWHERE, 5000) == []  # there are 2,225 weeks


def test_missing_data_are_named():
    with pytest.raises(FileNotFoundError, match=r"meuse\.csv does not exist: benchmarks/zero_shot_data\.py makes it"):
        zero_shot_sets.SETS["meuse"].cases(NOWHERE, 30)


def test_scores_are_in_units_of_the_observations():
    def scored(unit):
        a = case()._replace(y=unit * case().y, yt=unit * np.linspace(-2, 2, 9))
        one = torch.ones(9, 1, dtype=torch.float64)
        return zero_shot.scores(Mixture(one, torch.zeros_like(one), unit * one), a)

    found = scored(1.0)
    assert found["coverage"]["90"] == pytest.approx(7 / 9)
    assert found["rmse"] == pytest.approx(math.sqrt(5 / 3) / case().y.std())
    there = scored(1000.0)
    assert there.pop("coverage") == found.pop("coverage")
    assert there == pytest.approx(found)


def test_rivals_are_stored_and_belong_to_their_data(tmp_path):
    path, computed = tmp_path / "new" / "gp.json", []

    def compute():
        computed.append(1)
        return {"crps": 0.5}

    assert zero_shot.cached(path, case(), None) is None
    for _ in range(2):
        assert zero_shot.cached(path, case(), compute) == {"crps": 0.5}
    assert len(computed) == 1
    assert zero_shot.cached(path, case(1), None) is None
    zero_shot.cached(path, case(1), compute)
    assert len(computed) == 2


def test_every_data_set_has_the_same_weight():
    rows = [row("a", 30, 1.0, 2.0), row("a", 30, 2.0, 1.0), row("a", 100, 1.0, 4.0), row("b", 30, 3.0, 2.0)]
    found = zero_shot.summarise(rows)["against gp"]
    assert found["crps ratio"] == pytest.approx(math.sqrt(math.sqrt(1 * 0.25) * 1.5))
    assert found["by data set"]["a"]["all sizes"]["crps ratio"] == pytest.approx(0.5)
    assert found["worst data set"] == {"b": pytest.approx(1.5)}
    assert found["log-likelihood difference"] == pytest.approx(((0 + 3) / 2 - 1) / 2)
    assert found["times faster"] == pytest.approx(10)
    assert found["by size"]["30"]["crps ratio"] == pytest.approx(math.sqrt(1.5))


def test_regressor_and_rivals_are_scored_together(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.json"
    command = ["zero_shot.py", "--weights", str(folder()), "--only", "gp-1d", "--sizes", "30", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*command, "--cache", str(tmp_path), "--set", "folds=2", "scales=1"])
    monkeypatch.setattr(
        zero_shot_sets.SETS["gp-1d"].__class__,
        "cases",
        lambda *_: [case()._replace(x=np.ones((20, 1)), xt=np.ones((9, 1)))],
    )
    zero_shot.main()
    assert "against two-materns" in capsys.readouterr().out
    assert '"commit"' in out.read_text()


def test_parts_are_joined(tmp_path, monkeypatch, capsys):
    for name, size in (("a", 30), ("b", 100)):
        part = {"command": f"run {name}", "cases": [row(name, size, 1.0, 2.0)], "left out for lack of weights": ["c"]}
        (tmp_path / f"{name}.json").write_text(json.dumps(part))
    out = tmp_path / "out.json"
    files = [str(tmp_path / f"{name}.json") for name in "ab"]
    monkeypatch.setattr(sys, "argv", ["zero_shot.py", "--join", *files, "--out", str(out)])
    zero_shot.main()
    found = json.loads(out.read_text())
    assert found["command"] == ["run a", "run b"]
    assert found["summary"]["all"]["data sets"] == 2
    assert found["summary"]["all"]["against gp"]["crps ratio"] == 0.5
    assert "data sets of the issue against gp" in capsys.readouterr().out


def test_coordinates_are_read():
    assert zero_shot_data.degrees("51d56'N") == pytest.approx(51 + 56 / 60)
    assert zero_shot_data.degrees("6d21'25.2\"W") == pytest.approx(-(6 + 21 / 60 + 0.007))
    with pytest.raises(ValueError, match="is not a coordinate"):
        zero_shot_data.degrees("51.5")
