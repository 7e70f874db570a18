"""What every task in `TASKS` promises, see `shiftnp.tasks.Task`."""

from __future__ import annotations

import dataclasses
import inspect
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch.distributions import Independent, Normal

from shiftnp.batch import Batch
from shiftnp.plots.style import styles
from shiftnp.runs.config import RunConfig
from shiftnp.scaling import Scaling
from shiftnp.tasks import TASKS, Stream, Task, TestSet, task_class
from shiftnp.tasks.base import generator_for

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def settings_of(name: str) -> dict[str, object]:
    """Settings with which a task has data; skips where there are none."""
    if name.startswith("gp"):
        return {"kernels": ("se",), "targets": 8, "points": (1, 6)}
    if name.startswith("prior"):
        return {"targets": 8, "points": (0, 6)}
    if name == "table":
        return {"inputs": ("lon", "lat"), "outputs": ("t",), "group": "day", "context": (0.2, 0.6)}
    folder = {"climate": "climate", "kolmogorov": "kolmogorov"}.get(name, name.removeprefix("t-"))
    if not (DATA / folder).is_dir():
        pytest.skip(f"There are no data for {name}: {DATA / folder} is not there.")
    if name == "climate":
        path = str(DATA / folder / "wfde5_tair_europe_0p5deg_monthly_1979-2019.npz")
        return {"path": path, "size": (6, 6, 3)}
    if name == "kolmogorov":
        return {"path": str(DATA / folder), "crop": (4, 6, 6), "points": (1, 20)}
    return {"path": str(DATA / folder), "context": (0.01, 0.1)}


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest, tmp_path: Path) -> Task:
    settings = settings_of(request.param)
    if request.param == "table":
        rng = np.random.default_rng(0)
        rows = np.column_stack([rng.uniform(size=(240, 2)), rng.normal(size=240), np.repeat(np.arange(20), 12)])
        settings["path"] = str(tmp_path / "stations.csv")
        np.savetxt(tmp_path / "stations.csv", rows, delimiter=",", header="lon,lat,t,day", comments="")
    return TASKS[request.param](**settings)


def tensors(batch: Batch) -> list[torch.Tensor]:
    return [value for value in vars(batch).values() if value is not None]


def equal(a: Batch, b: Batch) -> bool:
    return len(tensors(a)) == len(tensors(b)) and all(map(torch.equal, tensors(a), tensors(b)))


def standard_normal(xc, yc, xt, mask=None):
    zero = torch.zeros(*xt.shape[:2], yc.shape[-1])
    return Independent(Normal(zero, torch.ones_like(zero)), 1)


def test_the_generator_alone_decides_what_is_sampled(task):
    a, b, c = (task.sample(3, generator_for(seed, 0)) for seed in (1, 1, 2))
    assert equal(a, b)
    assert not equal(a, c)
    for x, y, mask in ((a.xc, a.yc, a.mask_c), (a.xt, a.yt, a.mask_t)):
        assert x.shape == (3, y.shape[1], task.dx)
        assert y.shape == (3, y.shape[1], task.dy)
        assert x.dtype == y.dtype == torch.float32
        assert mask is None or mask.shape == y.shape[:2]


def test_test_sets_are_the_same_twice_and_hold_no_training_batch(task):
    sets = task.test_sets()
    assert "valid" in sets
    for test_set in sets.values():
        first, again = (next(iter(test_set)) for _ in range(2))
        assert equal(first, again)
        assert len(first.xc) == test_set.batch_size
        assert not equal(first, next(iter(Stream(task, test_set.batch_size, test_set.seed))))
        examples = test_set.examples(3)
        assert [len(batch.xc) for batch in examples] == [1, 1, 1]
        assert sorted(len(b.xc[0]) for b in examples) == [len(b.xc[0]) for b in examples]


def test_fewer_tasks_in_whole_batches_are_the_first_ones(task):
    test_set = task.test_sets()["valid"]
    fewer = dataclasses.replace(test_set, tasks=2 * test_set.batch_size)
    assert len(fewer) == 2
    assert all(map(equal, fewer, islice(test_set, 2)))


def test_settings_survive_json(task):
    settings = {f.name: getattr(task, f.name) for f in dataclasses.fields(task) if f.init}
    config = RunConfig("tnp", "any", task_settings=settings)
    again = type(task)(**RunConfig.from_json(json.loads(json.dumps(config.to_json()))).task_settings)
    assert repr(again) == repr(task)
    assert equal(again.sample(2, generator_for(0, 0)), task.sample(2, generator_for(0, 0)))


def test_scaling_is_kept_by_a_setting(task):
    scaling = task.scaling
    if scaling is None:
        assert "fixed_scaling" not in inspect.signature(type(task)).parameters
        return
    assert len(scaling.x_mean) == len(scaling.inputs) == task.dx
    assert len(scaling.y_mean) == len(scaling.outputs) == task.dy
    written = json.loads(json.dumps(dataclasses.asdict(scaling)))
    assert dataclasses.replace(task, fixed_scaling=Scaling(**written)).scaling == scaling
    other = dataclasses.replace(scaling, y_std=[2 * std for std in scaling.y_std])
    a, b = (dataclasses.replace(task, fixed_scaling=s).sample(2, generator_for(0, 0)) for s in (scaling, other))
    torch.testing.assert_close(a.yt, 2 * b.yt)


def test_pictures_are_figures(task):
    batch = task.sample(2, generator_for(0, 0))
    prediction = standard_normal(batch.xc, batch.yc, batch.xt)
    assert isinstance(task.draw(batch), Figure)
    assert isinstance(task.draw(batch, prediction, index=1), Figure)


def test_models_are_compared_on_the_same_data(task):
    models = {"one $_{$": standard_normal, "two": standard_normal}
    sets = {name: test_set for name, test_set in task.test_sets().items() if name != "valid"}
    looks = dict(zip(models, styles(["tnp", "te-tnp"]), strict=True))
    found = task.comparison(models, sets, looks)
    assert len(found) == (1 if task.is_side_by_side else 2)
    for figure, caption, _ in found:
        figure.draw_without_rendering()
        assert caption.endswith(".")
    if not task.is_side_by_side:
        assert [caption.startswith(name) for (_, caption, _), name in zip(found, models, strict=True)] == [True, True]


@pytest.mark.parametrize("mixture", [True, False])
def test_ceilings_have_a_number_for_each_task(task, mixture, tmp_path):
    test_set = dataclasses.replace(task.test_sets()["valid"], tasks=3, batch_size=2)
    ceiling = task.ceiling(test_set, mixture, tmp_path)
    assert ceiling is None or (ceiling.shape == (3,) and bool(ceiling.isfinite().all()))


@pytest.mark.parametrize("name", TASKS)
def test_the_command_line_knows_its_settings(name):
    kind = task_class(name)
    assert issubclass(kind, Task)
    assert {*kind.path_settings, *kind.sequence_settings} <= set(inspect.signature(kind).parameters)


def test_a_small_task_needs_no_more_than_four_definitions(tmp_path):
    """The defaults of the protocol: no scaling, no ceiling, a picture for each model."""

    @dataclasses.dataclass(frozen=True)
    class Noise(Task):
        dx, dy = 1, 1

        def sample(self, batch_size, generator):
            x, y = torch.rand(2, batch_size, 5, 1, generator=generator)
            return Batch(x[:, :2], y[:, :2], x[:, 2:], y[:, 2:])

        def test_sets(self):
            return {"valid": TestSet(self, seed=2, tasks=4, batch_size=2)}

        def draw(self, batch, prediction=None, index=0):
            return Figure()

    task, sets = Noise(), Noise().test_sets()
    assert task.scaling is None
    assert task.ceiling(sets["valid"], True, tmp_path) is None
    (figure, caption, _), _ = task.comparison({"a": standard_normal, "b": standard_normal}, sets)
    assert figure.get_suptitle() == "a"
    assert caption == "a on a test data set (valid) with 2 context points."
