"""Damaged run folders and odd settings: each either works or is refused in one sentence."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
import torch

from fuzz.cases import cases
from shiftnp.cli.settings import parse_setting
from shiftnp.experiments import EXPERIMENTS
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.run import Run, find_runs
from shiftnp.runs.train import train
from shiftnp.tasks import task_class
from shiftnp.tasks.base import generator_for

FILES = ("config.json", "metrics.jsonl", "model.safetensors", "state.safetensors", "evaluation.json", "scaling.json")
ODD = (-1, 0, 1, True, 2**70, 1.5, -0.0, 1e308, math.nan, math.inf, None, "", "x", "\x1b[31m", "\ud800")
ODD += ([], {}, [1], [[]])
WAYS = ("flip", "cut", "noise", "empty", "remove", "folder", "pickle", "nest", "json")
SIZE = {"dz": 8, "heads": 2, "head_dim": 4, "layers": 1}


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@contextmanager
def one_sentence() -> Iterator[None]:
    """Lets through what works, and errors that tell a user in one line what is wrong. ArithmeticError: it diverged."""
    said = "it works"
    try:
        yield
    except (ValueError, OSError, ArithmeticError) as error:
        said = str(error) or repr(error)
    assert "\n" not in said
    assert "weights_only" not in said
    assert said == "it works" or len(said) > 15


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs that are saved at step 3 of 5: of a Gaussian process with EMA, and of a table with its scaling."""
    folder = tmp_path_factory.mktemp("runs")
    table = folder / "t.csv"
    rows = [f"{i / 40},{math.sin(i):.3f},{i % 12}" for i in range(120)]
    table.write_text("\n".join(["x,y,day", *rows]))
    training = Training(steps=3, batch_size=2, log_every=1, valid_every=2, valid_tasks=2, ema=0.9)
    points = {"points": (1, 4), "targets": 4, "kernels": ("se",)}
    columns = {"path": str(table), "inputs": ("x",), "outputs": ("y",), "group": "day"}
    made = {"gp": RunConfig("tnp", "gp-1d", training, SIZE, points, experiment="gp-1d", row="tnp", preset="laptop")}
    made["table"] = RunConfig("te-tnp", "table", replace(training, ema=None), SIZE, columns)
    for name, config in made.items():
        run = Run.create(folder / name, config)
        assert train(run, gap=False, quiet=True)
        run.extend(5)
        (run.folder / "evaluation.json").write_text('{"format": 1}')
    return [folder / name for name in made]


def damage(path: Path, rng: random.Random, marker: Path) -> None:
    """Damages a file in one of many ways."""
    data = path.read_bytes() if path.exists() else b""
    how = rng.choice((*WAYS, "flip", "json", "json"))
    if how == "flip" and data:
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
    elif how == "cut":
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif how == "noise":
        at = rng.randrange(len(data) + 1)
        path.write_bytes(data[:at] + rng.randbytes(rng.randrange(40)) + data[at + rng.randrange(40) :])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "remove":
        path.unlink(missing_ok=True)
    elif how == "folder":
        path.unlink(missing_ok=True)
        path.mkdir()
    elif how == "pickle":
        if rng.random() < 0.5:
            path.write_bytes(pickle.dumps({"step": 3, "model": Payload(marker)}))
        else:
            torch.save({"step": 3, "model": Payload(marker)}, path)
    elif how == "nest":
        path.write_bytes(b'{"a":' * 20_000 if rng.random() < 0.5 else b"[" * 100_000)
    elif how == "json" and path.suffix == ".json" and data:
        path.write_text(json.dumps(mutated(json.loads(data), rng)))


def mutated(tree, rng: random.Random):
    """JSON with one entry replaced, removed or added, at any depth."""
    places = [()]
    for place in places:  # grows while it is walked
        value = reduce(lambda inner, key: inner[key], place, tree)
        if isinstance(value, dict | list):
            places += [(*place, key) for key in (value if isinstance(value, dict) else range(len(value)))]
    place = rng.choice(places)
    if not place:
        return rng.choice(ODD)
    parent = reduce(lambda inner, key: inner[key], place[:-1], tree)
    how = rng.choice(("replace", "replace", "remove", "add"))
    if how == "remove":
        del parent[place[-1]]
    elif how == "add" and isinstance(parent, dict):
        parent["odd"] = rng.choice(ODD)
    else:
        parent[place[-1]] = rng.choice(ODD)
    return tree


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("seed", cases(40))
def test_damaged_runs(seed, folders, tmp_path):
    rng, marker = random.Random(seed), tmp_path / "marker"
    source = rng.choice(folders)
    whole, folder = Run.open(source), tmp_path / "runs" / "run"
    shutil.copytree(source, folder)
    name = rng.choice(FILES)
    damage(folder / name, rng, marker)
    runs, sentences = find_runs(tmp_path / "runs")
    assert len(runs) + len(sentences) == (folder / "config.json").exists()
    assert all("\n" not in sentence for sentence in sentences)
    for run in runs:
        assert run.config.label.isprintable()
        assert isinstance(run.metrics() if not (folder / "metrics.jsonl").is_dir() else [], list)
        with one_sentence():
            model = run.model()
            if name != "config.json":
                assert same(model.state_dict(), whole.model().state_dict())
            batch = run.task.sample(2, generator_for(0, 0))
            with torch.no_grad():
                assert model(batch.xc, batch.yc, batch.xt, batch.mask_c).mean.isfinite().all()
        with one_sentence():
            state = run.state()
            assert name == "config.json" or state is None or same(state["model"], whole.state()["model"])
        training = run.config.training
        if training.steps <= 10 and training.batch_size <= 8 and training.valid_tasks <= 8:
            with one_sentence():
                assert run.is_finished or train(run, gap=False, quiet=True)
                assert run.is_baseline or all(value.isfinite().all() for value in run.model().state_dict().values())
    assert not marker.exists()


OF_MODEL = ("dz", "heads", "kernel", "radius", "period", "likelihood", "dx", "x", "kernel.band", "kernel.", "", "\x1b")
OF_TASK = ("noise", "points", "kernels", "path", "dx", "inputs", "context", "frame", "")
NAMES = (*OF_MODEL, *(f"task.{name}" for name in OF_TASK))
VALUES = ("1", "-1", "0.5", "1e999", "NaN", "None", "null", "true", "()", "[]", "{}", "{[]:1}", "{1,2}", "a,b", "1,2")
VALUES += ("1,", "'", '"', "\\", "~nobody/x", "\0", "b'x'", "1j", "...", "se", "=", "é", "'\\d'")
VALUES += ("[" * 5000, "(" * 300, "9" * 5000)
LETTERS = "01.,-+eE[](){}'\"\\ ax_:=#\t"


@pytest.mark.parametrize("seed", cases(40))
def test_odd_settings(seed):
    rng = random.Random(seed)
    for _ in range(25):
        pool = VALUES if rng.random() < 0.3 else LETTERS
        value = "".join(rng.choices(pool, k=rng.randrange(12)))
        text = rng.choice(NAMES) + rng.choice(("=", "=", "=", "")) + rng.choice((rng.choice(VALUES), value))
        task = rng.choice(("gp-1d", "table", "t-mnist"))
        with one_sentence():
            name, parsed = parse_setting(text, task_class(task))
            json.dumps(parsed)
            if not name.startswith("kernel."):
                config = EXPERIMENTS["gp-1d"].configure("te-tnp", settings={name: parsed})
                assert config.label.isprintable()
                assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
                _ = Run(Path(), config).task
