from __future__ import annotations

import io
import json
import math

import pytest
import torch
from rich.console import Console

from shiftnp.bench import sample, train
from shiftnp.bench.train import measure, table
from shiftnp.experiments.base import Row

SMALL = {"dz": 8, "heads": 2, "head_dim": 4, "layers": 1}
ROWS = (
    Row("tnp", "TNP", "tnp", SMALL, paper=((1.0, math.nan),)),
    Row("te-tnp", "TE-TNP", "te-tnp", SMALL, paper=((2.39, math.nan),)),
    Row("cnp", "CNP", "cnp", {"dz": 8}),
)


def shown(result):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table(result))
    return console.export_text()


def test_a_measurement():
    result = measure(ROWS, "laptop", repeats=3, quiet=True)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert list(result["models"]) == ["tnp", "te-tnp", "cnp"]
    assert result["finished"]
    assert result["batch_size"] == 16
    assert result["seed"] == 0
    assert result["machine"]["threads"] == torch.get_num_threads()
    for entry in result["models"].values():
        low, high = entry["quartiles"]
        assert 0 < low <= entry["median"] <= high
        assert entry["steps"] == 3
    assert result["models"]["tnp"]["ratio"] == 1
    assert result["models"]["te-tnp"]["paper_ratio"] == 2.39
    assert result["models"]["cnp"]["paper_ratio"] is None
    for word in ("TE-TNP", "2.39", "1.00", result["machine"]["torch"]):
        assert word in shown(result)


def test_models_take_turns_on_the_same_batches(monkeypatch):
    seen = []
    monkeypatch.setattr(train, "train_step", lambda model, _, batch, *rest: seen.append((type(model).__name__, batch)))
    measure(ROWS, "paper", repeats=2, seed=5, quiet=True)
    names, batches = zip(*seen, strict=True)
    assert names == ("TNP", "TETNP", "CNP") * 3  # one round to warm up
    assert [batches.index(batch) // 3 for batch in batches] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    seen.clear()
    measure(ROWS, "paper", repeats=2, seed=5, quiet=True)
    assert all(torch.equal(batch.xc, before.xc) for (_, batch), before in zip(seen, batches, strict=True))


def test_ctrl_c_keeps_what_was_measured(monkeypatch):
    steps = []

    def step(model, optimiser, batch, training, step):
        steps.append(batch)
        if len(steps) == 8:  # the second model of the second round after the warm-up
            raise KeyboardInterrupt

    monkeypatch.setattr(train, "train_step", step)
    result = measure(ROWS, "laptop", repeats=5, quiet=True)
    assert not result["finished"]
    assert [entry["steps"] for entry in result["models"].values()] == [2, 1, 1]
    assert "cut short" in shown(result)


def test_ctrl_c_before_anything_was_measured(monkeypatch):
    def step(model, optimiser, batch, training, step):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train_step", step)
    result = measure(ROWS, "laptop", repeats=5, quiet=True)
    assert [entry["median"] for entry in result["models"].values()] == [None] * 3
    assert "TE-TNP" in shown(result)
    json.dumps(result, allow_nan=False)


def test_without_the_tnp_there_are_no_ratios():
    result = measure(ROWS[2:], "laptop", repeats=1, quiet=True)
    assert result["models"]["cnp"]["median"] > 0
    assert result["models"]["cnp"]["ratio"] is None


def test_no_repeats_are_refused():
    with pytest.raises(ValueError, match="must be at least 1, got 3 and 0"):
        measure(ROWS, "laptop", repeats=0)
    with pytest.raises(ValueError, match="must be at least 1, got 0 and 2"):
        measure((), "laptop", repeats=2)


def test_joint_samples():
    rows = {"rotary": {**SMALL, "kernel": "rotary"}, "mlp": {**SMALL, "kernel": "mlp"}}
    result = sample.measure(3, 4, 5, steps=(2, None), quiet=True, rows=rows)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["finished"]
    for entry in result["models"].values():
        assert [row["steps"] for row in entry["draws"]] == [2, None]
        assert all(row["cpu_seconds"] > 0 and row["measured_functions"] == 3 for row in entry["draws"])
    assert sample.table(result).row_count == 4
    scaled = sample.measure(30, 2, 3, steps=(2,), longest=0.0, quiet=True, rows=rows)
    assert all(row["measured_functions"] == sample.FEW for entry in scaled["models"].values() for row in entry["draws"])
    with pytest.raises(ValueError, match="functions"):
        sample.measure(0)
