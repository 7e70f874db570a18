"""Every experiment, preset and row builds, survives JSON and makes a training step; the paper's figures are its own."""

from __future__ import annotations

import gzip
import json
import math
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shiftnp.baselines import BASELINES
from shiftnp.experiments import EXPERIMENTS
from shiftnp.experiments.base import on_task
from shiftnp.experiments.presets import LAPTOP_SIZE
from shiftnp.metrics import log_likelihood
from shiftnp.runs.config import RunConfig
from shiftnp.runs.run import Run
from shiftnp.tasks import TASKS
from shiftnp.tasks.base import generator_for

EVERY = [
    (experiment.name, preset, row.name, task)
    for experiment in EXPERIMENTS.values()
    for preset in experiment.presets
    for row in experiment.rows
    for task in experiment.tasks
]
# Data sets so small that a model of any size makes its step in a moment.
TINY = {
    "gp-1d": {"points": (3, 3), "targets": 4},
    "t-mnist": {"canvas": 30, "context": (0.005, 0.01), "targets": 4},
    "t-cifar10": {"canvas": 34, "context": (0.005, 0.01), "targets": 4},
    "kolmogorov": {"points": (3, 3), "targets": 4},
    "climate": {"size": (3, 3, 2), "context": (0.3, 0.3), "targets": 4},
    **{f"prior-{dx}d": {"points": (3, 3), "targets": 4} for dx in (1, 2, 3)},
}
PRETRAINING = ("pretrain-1d", "pretrain-2d", "pretrain-3d")  # not in the paper


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory):
    """Data of every experiment in miniature."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("mnist", "cifar10", "kolmogorov", "climate"):
        (folder / name).mkdir()
    for name in ("train", "t10k"):
        digits = struct.pack(">HBB3I", 0, 8, 3, 20, 28, 28) + rng.bytes(20 * 28 * 28)
        (folder / "mnist" / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(digits))
    for name in ("data_batch_1", "cifar10_test_first2000"):
        photos = rng.integers(0, 256, (20, 1024, 3), np.uint8)
        Image.fromarray(photos).save(folder / "cifar10" / f"{name}.png")
    for i in range(3):
        flow = rng.normal(size=(16, 2, 16, 16)).astype(np.float32)
        np.save(folder / "kolmogorov" / f"trajectory-{i:05d}.npy", flow)
    lat, lon, hours = np.arange(41.75, 63, 0.5), np.arange(-4.75, 29, 0.5), 6 * np.arange(60)
    shape = len(hours), len(lat), len(lon)
    np.savez(
        folder / "climate" / "small.npz",
        tair_K=(280 + rng.normal(size=shape)).astype(np.float32),
        elevation_m=rng.uniform(0, 900, shape[1:]).astype(np.float32),
        lat=lat,
        lon=lon,
        time_h=hours,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHIFTNP_DATA", str(folder))
        yield folder


def need_packages(task, model=""):
    if task == "climate":
        pytest.importorskip("xarray", reason="needs the extra `geo`")
    if model in BASELINES:
        pytest.importorskip("linear_operator", reason="needs the extra `gp`")


@pytest.mark.parametrize(("name", "preset", "row", "task"), EVERY)
def test_a_config_survives_json(name, preset, row, task):
    config = EXPERIMENTS[name].configure(row, task, preset)
    assert (config.experiment, config.row, config.preset, config.task) == (name, row, preset, task)
    assert config.changes == ()
    assert RunConfig.from_json(config.to_json()) == config
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json(), allow_nan=False))) == config


@pytest.mark.parametrize(("name", "preset", "row", "task"), EVERY)
def test_a_training_step(name, preset, row, task):
    settings = {f"task.{k}": v for k, v in TINY[task].items()}
    model = EXPERIMENTS[name].row(row).model
    need_packages(task, model)
    if model in BASELINES:
        settings["iterations"] = 2
    run = Run(Path(), EXPERIMENTS[name].configure(row, task, preset, {"batch_size": 2}, settings))
    batch = run.task.sample(run.config.training.batch_size, generator_for(0, 0))
    model = run.model() if run.is_baseline else run.new_model()
    loss = -log_likelihood(model(batch.xc, batch.yc, batch.xt, batch.mask_c), batch.yt, batch.mask_t).mean()
    assert loss.isfinite()
    if not run.is_baseline:
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_table_is_whole(name):
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    assert set(experiment.presets) == ({"laptop"} if name in PRETRAINING else {"laptop", "paper"})
    assert experiment.main in [row.name for row in experiment.rows]
    assert len({row.name for row in experiment.rows}) == len(experiment.rows)
    assert {column.task for column in experiment.columns} == set(experiment.tasks) <= set(TASKS)
    for row in experiment.rows:
        assert len(row.paper) == len(experiment.columns)
        assert set(row.paper) == {None} or None not in row.paper


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "timing"])
def test_columns_are_test_sets(name):
    experiment = EXPERIMENTS[name]
    for column in experiment.columns:
        need_packages(column.task)
        run = Run(Path(), experiment.configure(task=column.task))
        assert column.test_set in experiment.test_sets(run.task)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "timing"])
def test_on_a_laptop_all_models_are_trained_alike(name):
    experiment = EXPERIMENTS[name]
    rows = [row for row in experiment.rows if row.model not in BASELINES and not row.laptop]
    configs = [experiment.configure(row.name, task) for row in rows for task in experiment.tasks]
    assert all(config.training == configs[0].training for config in configs)
    assert all(config.task_settings == configs[0].task_settings for config in configs)
    assert configs[0].training.schedule == {"adamw": "cosine", "muon": "cosine-squared"}[configs[0].training.optimiser]
    assert 0 < configs[0].training.warmup < configs[0].training.steps / 10


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in ("timing", *PRETRAINING)])
def test_on_a_laptop_all_models_have_the_same_size(name):
    """Every model is small, and trained for long; only the number of channels and the kernel differ from row to row."""
    experiment = EXPERIMENTS[name]
    for row in experiment.rows:
        for task in experiment.tasks:
            laptop, paper = (experiment.configure(row.name, task, preset) for preset in ("laptop", "paper"))
            if row.laptop or row.model in BASELINES:
                continue
            assert laptop.training.steps >= 5_000
            size = {"channels": 32} if row.model == "convcnp" else LAPTOP_SIZE
            assert {k: v for k, v in laptop.model_settings.items() if k in size}.items() <= size.items()
            sizes = (*LAPTOP_SIZE, "channels")
            unlike = {k for k in laptop.model_settings if laptop.model_settings[k] != paper.model_settings.get(k)}
            assert unlike <= set(sizes)


def test_the_papers_settings():
    for name, experiment in EXPERIMENTS.items():
        for row in experiment.rows if name not in PRETRAINING else ():
            config = experiment.configure(row.name, preset="paper")
            training = config.training
            assert training.steps == (0 if row.model in BASELINES else 500_000)
            assert (training.learning_rate, training.clip, training.schedule) == (5e-4, 0.5, "constant")
            assert (training.warmup, training.ema, training.precision) == (0, None, "float32")
            if row.paper[0] is None:
                continue
            small = experiment.name in ("image-completion", "kolmogorov", "climate")
            assert training.batch_size == (8 if small and row.model in ("rcnp", "te-pt-tnp") else 16)
            assert config.model_settings.get("dz") in (None, 32 if small else 128)
            assert config.task_settings == {}


@pytest.mark.parametrize("name", PRETRAINING)
def test_pretraining(name):
    experiment = EXPERIMENTS[name]
    config = experiment.configure()
    assert (config.row, config.model, config.training.batch_size) == ("te-tnp-rotary", "te-tnp", 8)
    assert config.model_settings["kernel"]["name"] == "rotary"
    assert config.model_settings["location_update"] is False
    assert config.model_settings["variance_floor"] < TASKS[config.task]().noise[0] / (
        1 + TASKS[config.task]().trend[1] ** 2
    )
    with pytest.raises(ValueError, match=f"no preset of {name} named 'paper'"):
        experiment.configure(preset="paper")
    gp = experiment.configure("gp")
    assert (gp.training.steps, gp.model_settings["covariance"]) == (0, "matern52")
    controls = {row.name for row in experiment.rows} - {"te-tnp-rotary", "gp"}
    assert controls == ({"te-tnp-rotary-control"} if name == "pretrain-1d" else set())
    assert config.model_settings["kernel"]["period_search"] == (256 if name == "pretrain-1d" else 0)


def test_an_images_cells_are_its_pixels():
    settings = EXPERIMENTS["image-completion"].configure("convcnp", "t-cifar10").model_settings
    task = TASKS["t-cifar10"]()
    steps = settings["points_per_unit"] * task.sample(1, generator_for(0, 0)).xt[0, :, 0]
    assert math.isclose(float((steps.max() - steps.min()) / 63), 1, rel_tol=1e-5)
    assert settings["likelihood"] == "homoscedastic"


def test_what_the_ablation_leaves_out():
    experiment = EXPERIMENTS["ablation"]
    whole, *without = (experiment.configure(row.name).model_settings for row in experiment.rows)
    no_update, mean = {"location_update": False}, {"initialiser": "mean"}
    assert without == [whole | no_update, whole | mean, whole | no_update | mean]
    sets = experiment.test_sets(TASKS["gp-1d"](noise=0.1))
    assert replace(sets["bimodal"].task, bimodal=False) == sets["uniform"].task == TASKS["gp-1d"](noise=0.1)
    assert sets["bimodal"].task.bimodal
    assert sets["bimodal"].seed == sets["uniform"].seed


# Copied from the paper's tables once more, to catch slips.
PAPER = {
    "gp-1d": {
        "tnp": "-0.48 0.00 -0.48 0.01 -0.49 0.01 -0.50 0.01 -0.52 0.01 -0.57 0.01",
        "pt-tnp-m8": "-0.52 0.00 -0.52 0.01 -0.56 0.01 -0.73 0.01 -0.76 0.01 -0.71 0.01",
        "pt-tnp-m16": "-0.49 0.00 -0.50 0.01 -0.53 0.01 -0.57 0.01 -0.60 0.01 -0.64 0.01",
        "pt-tnp-m32": "-0.48 0.00 -0.49 0.01 -0.52 0.01 -0.55 0.01 -0.59 0.01 -0.63 0.01",
        "cnp": "-0.69 0.01 -0.71 0.01 -0.77 0.005 -0.86 0.01 -0.98 0.00 -1.08 0.00",
        "rcnp": "-0.58 0.01 " * 6,
        "convcnp": "-0.46 0.01 " * 6,
        "te-tnp": "-0.47 0.01 " * 6,
        "te-pt-tnp-m8": "-0.50 0.00 " * 6,
        "te-pt-tnp-m16": "-0.50 0.00 " * 6,
        "te-pt-tnp-m32": "-0.46 0.00 " * 6,
    },
    "image-completion": {
        "cnp": "0.64 0.00 0.72 0.00",
        "rcnp": "1.04 0.02 1.19 0.02",
        "convcnp": "1.20 0.02 1.44 0.02",
        "pt-tnp-m64": "1.14 0.02 1.43 0.01",
        "pt-tnp-m128": "1.14 0.02 1.46 0.02",
        "te-pt-tnp-m64": "1.18 0.03 1.50 0.02",
        "te-pt-tnp-m128": "1.25 0.03 1.51 0.02",
    },
    "kolmogorov": {
        "multi-task-gp": "0.48 0.02",
        "cnp": "-0.97 0.01",
        "rcnp": "0.16 0.02",
        "pt-tnp-m64": "0.63 0.003",
        "pt-tnp-m128": "0.74 0.03",
        "te-pt-tnp-m64": "0.92 0.03",
        "te-pt-tnp-m128": "0.90 0.03",
    },
    "climate": {
        "gp": "0.90 0.01 1.22 0.01 1.02 0.01",
        "cnp": "0.36 0.00 -5.70 0.05 -1.64 0.02",
        "rcnp": "0.96 0.01 -0.09 0.04 0.34 0.01",
        "pt-tnp": "0.73 0.01 -0.40 0.01 -0.19 0.00",
        "te-pt-tnp": "1.35 0.01 1.27 0.01 1.44 0.01",
    },
    "ablation": {
        "te-pt-tnp-m32": "-0.44 0.01 -0.67 0.01",
        "no-input-adjustment": "-0.46 0.01 -0.76 0.01",
    },
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_figures(name):
    """All rows in the order of the table, all figures as printed."""
    typed = {row: [float(word) for word in line.split()] for row, line in PAPER[name].items()}
    rows = [row for row in EXPERIMENTS[name].rows if None not in row.paper]
    ours = {row.name: [v for figures in row.paper for v in figures] for row in rows}
    assert list(ours.items()) == list(typed.items())


def test_the_papers_times():
    ratios = {row.name: row.paper[0][0] for row in EXPERIMENTS["timing"].rows}
    assert list(ratios) == ["tnp", "pt-tnp-m32", "cnp", "rcnp", "convcnp", "te-tnp", "te-pt-tnp-m32"]
    assert ratios["tnp"] == 1
    assert ratios["te-tnp"] == pytest.approx(2.391, abs=1e-3)
    assert ratios["te-pt-tnp-m32"] == pytest.approx(1.693, abs=1e-3)
    assert ratios["cnp"] == pytest.approx(0.515, abs=1e-3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"row": "te-tpn"}, "model in gp-1d named 'te-tpn': did you mean 'te-tnp'"),
        ({"task": "gp-2d"}, "task in gp-1d named 'gp-2d': did you mean 'gp-1d'"),
        ({"settings": {"head": 4}}, "setting of te-tnp named 'head': did you mean 'heads'"),
        ({"settings": {"task.nois": 1}}, "setting of the task gp-1d named 'nois': did you mean 'noise'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_names_get_help(wrong, message):
    with pytest.raises(ValueError, match=message):
        EXPERIMENTS["gp-1d"].configure(**wrong)


def test_any_other_model_is_a_row_too():
    config = EXPERIMENTS["kolmogorov"].configure("anp")
    assert config.model == config.row == "anp"
    assert config.model_settings == LAPTOP_SIZE
    assert EXPERIMENTS["kolmogorov"].row("anp").paper == (None,)


def test_what_is_set_otherwise_is_noted():
    config = EXPERIMENTS["gp-1d"].configure("tnp", training={"steps": 5, "seed": 3}, settings={"dz": 64})
    assert config.changes == ("steps=5", "dz=64")
    assert config.model_settings["dz"] == 64
    assert (config.training.steps, config.training.seed) == (5, 3)


# --- settings --------------------------------------------------------------------------------------------------------


def kernel(settings, row="te-tnp", **kwargs):
    return EXPERIMENTS["gp-1d"].configure(row, settings=settings, **kwargs).model_settings.get("kernel")


def test_arguments_of_a_kernel():
    assert kernel({"kernel": "rotary"}) == "rotary"
    band = {"kernel": "rotary", "kernel.frequencies": 32, "kernel.band": (0.2, 26)}
    assert kernel(band) == {"name": "rotary", "frequencies": 32, "band": (0.2, 26)}
    whole = {"kernel": {"name": "rotary", "frequencies": 8}, "kernel.band": (1, 2)}
    assert kernel(whole) == {"name": "rotary", "frequencies": 8, "band": (1, 2)}
    config = EXPERIMENTS["gp-1d"].configure("te-tnp", settings=band)
    assert config.changes == ("kernel=rotary", "kernel.frequencies=32", "kernel.band=0.2,26")
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert kernel(band, row="tnp", lenient=True) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "rotary", "kernel.frequency": 3}, "argument of the kernel rotary named 'frequency': did you mean"),
        ({"kernel.frequencies": 3}, "no argument of the kernel mlp named 'frequencies'"),
        ({"kernel": "rotery", "kernel.frequencies": 3}, "no kernel named 'rotery': did you mean 'rotary'"),
        ({"kernel": "rotary", "kernel.band": 3}, "kernel.band must be 2 numbers, got 3"),
        ({"kernel": {}, "kernel.band": (1, 2)}, "kernel must have a name, one of mlp, rotary"),
    ],
)
def test_wrong_arguments_of_a_kernel(settings, message):
    with pytest.raises(ValueError, match=message):
        kernel(settings)


def test_a_model_without_kernel_has_no_arguments_of_it():
    with pytest.raises(ValueError, match="no setting of tnp named 'kernel'"):
        kernel({"kernel.band": (1, 2)}, row="tnp")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dz": "big"}, "dz must be a whole number, got 'big'"),
        ({"dz": True}, "dz must be a whole number, got True"),
        ({"radius": math.nan}, "radius must be a number or None, got nan"),
        ({"task.points": ()}, r"task.points must be 2 whole numbers, got \(\)"),
        ({"task.noise": "loud"}, "task.noise must be a number, got 'loud'"),
    ],
)
def test_settings_have_types(settings, message):
    with pytest.raises(ValueError, match=message):
        EXPERIMENTS["gp-1d"].configure("te-tnp", settings=settings)


def test_a_batch_size_as_in_the_preset_overrides_that_of_the_row():
    config = EXPERIMENTS["climate"].configure("te-pt-tnp", preset="paper", training={"batch_size": 16})
    assert config.training.batch_size == 16
    assert config.changes == ("batch_size=16",)


def test_tables_have_the_rotary_kernel_and_keep_the_best_weights():
    path = {"task.path": "t.csv", "task.inputs": ("x",), "task.outputs": ("y",)}
    config = on_task("table").configure(training={"minutes": 5.0}, settings=path)
    assert config.model_settings["kernel"] == "rotary"
    assert config.training.keep == "best"
    assert "--minutes 5.0" in config.command
    finer = on_task("table").configure(settings={**path, "kernel.frequencies": 32})
    assert finer.model_settings["kernel"] == {"name": "rotary", "frequencies": 32}
    assert on_task("table").configure(settings={**path, "kernel": "mlp"}).model_settings["kernel"] == "mlp"
    assert on_task("gp-1d").configure().training.keep == "last"
