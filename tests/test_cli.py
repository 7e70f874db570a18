from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import shiftnp
from shiftnp import Regressor
from shiftnp.cli import explain, main
from shiftnp.cli.arguments import options_first
from shiftnp.cli.settings import parse_setting
from shiftnp.cli.train import LONGEST_NAME, Train, folder_name
from shiftnp.experiments import EXPERIMENTS
from shiftnp.models import MODELS
from shiftnp.runs.config import Training
from shiftnp.runs.run import Run, removed_on_failure
from shiftnp.tasks import TASKS, GPTask, TableTask

SHIFTNP = [str(Path(sys.executable).with_name("shiftnp"))]


def run(*args, cwd=None):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # small tensors; other processes may want the other cores
    return subprocess.run([*SHIFTNP, *map(str, args)], capture_output=True, text=True, cwd=cwd, env=env)


def succeeds(*args, cwd=None):
    result = run(*args, cwd=cwd)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("predict",),
        ("check",),
        ("list",),
        ("train",),
        ("evaluate",),
        ("report",),
        ("bench",),
        ("data",),
        ("data", "preview"),
        ("data", "ceiling"),
        ("data", "kolmogorov"),
    ],
)
def test_help(command):
    result = run(*command, "--help")
    assert result.returncode == 0
    assert "usage: shiftnp" in result.stdout


def test_help_is_fast():
    """It does not import torch: the best of three takes far less than a second."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run("--help")
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0
    code = "import sys, shiftnp.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_list():
    printed = run("list").stdout
    for name in (*EXPERIMENTS, *MODELS, *TASKS):
        assert name in printed


def test_list_explains_a_task_and_a_model():
    table = succeeds("list", "table")
    assert "station: the column that names the station" in table
    assert "task.shares=0.7,0.1,0.2" in table
    assert max(map(len, table.splitlines())) <= 120
    assert "bimodal=True" in explain("gp-1d-bimodal")
    assert re.search(r"^    dz: size of a token(.|\n)* dz=128 ", explain("te-tnp"), re.M)
    for name in (*TASKS, *MODELS):
        assert "Settings:\n" in explain(name)


def test_preview(tmp_path):
    result = run("data", "preview", "gp-1d", "targets=20", 'kernels=["se"]', "--predict", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "preview-gp-1d.png").stat().st_size > 5000
    assert str(tmp_path) in result.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("data", "preview", "gp1d"), "did you mean 'gp-1d'"),
        (("data", "preview", "gp-1d", "dx"), "name=value, got 'dx'"),
        (("data", "preview", "gp-1d", "noise=-1"), "noise"),
        (("data", "preview", "gp-1d", "colour=red"), "no setting of gp-1d named 'colour'"),
        (("data", "preview", "gp-1d", "dxx=2"), "did you mean 'dx'"),
        (("data", "preview", "gp-1d", "dx=two"), "dx must be"),
        (("data", "ceiling", "delta-9"), "no test set named"),
        (("lst",), "There is no command `shiftnp lst`: did you mean `shiftnp list`?"),
    ],
)
def test_mistakes_get_one_sentence(command, message):
    result = run(*command)
    assert result.returncode != 0
    assert message in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("train",), "name an experiment"),
        (("train", "gp1d"), "did you mean 'gp-1d'"),
        (("train", "gp-1d", "--model", "te-tpn"), "did you mean 'te-tnp'"),
        (("train", "gp-1d", "dzz=3"), "did you mean 'dz'"),
        (("train", "gp-1d", "task.nose=3"), "did you mean 'noise'"),
        (("train", "gp-1d", "noise=3"), "write task.noise="),
        (("train", "gp-1d", "--model", "all", "dzz=3"), "did you mean 'dz'"),
        (("train", "gp-1d", "--task", "kolmogorov"), "no task in gp-1d named"),
        (("train", "gp-1d", "--preset", "desktop"), "laptop"),
        (("train", "gp-1d", "--stps", "3"), "--steps"),
        (("train", "gp-1d", "--ema", "2"), "ema must be a decay"),
        (("train", "gp-1d", "--out", "/proc/nowhere"), "/proc/nowhere"),
        (("train", "gp-1d", "--model", "all", "--out", "x"), "--out names the folder of one run"),
        (("train", "--resume", "nowhere"), "nowhere is not a run: it does not exist"),
        (("train", "gp-1d", "--resume", "nowhere"), "keeps its settings"),
        (("evaluate", "nowhere"), "nowhere is not a run: it does not exist"),
        (("evaluate", "."), "it has no config.json"),
        (("report", "gp-2d"), "did you mean 'gp-1d'"),
        (("report", "gp-1d"), "`shiftnp train gp-1d` makes one"),
        (("report", "timing"), "`shiftnp train timing` makes one"),
        (
            ("data", "kolmogorov", "--trajectories", "1", "--out", "x", "--resolution", "100"),
            "cells must divide the grid of 100 points evenly",
        ),
    ],
)
def test_mistakes_with_runs_get_one_sentence(command, message, tmp_path, monkeypatch, capsys):
    """In this process, which is faster; what is wrong shows before anything heavy begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["shiftnp", *command])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert message in str(stopped.value) + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (("preview", "gp-1d"), 2, "no command `shiftnp preview`: did you mean `shiftnp data preview`?"),
        (("data", "previw", "gp-1d"), 2, "no command `shiftnp data previw`: did you mean `shiftnp data preview`?"),
        (("zzz",), 2, "no command `shiftnp zzz`: there are predict, check, list,"),
        (("data", "zzz"), 2, "no command `shiftnp data zzz`: there are preview, kolmogorov, ceiling."),
        (("data", "preview", "gp-1d", "x={[]:1}"), 2, "no setting of gp-1d named 'x'"),
        (("data", "preview", "gp-1d", "noise={[]:1}"), 2, "noise must be a number, got '{[]:1}'"),
        (("data", "preview", "gp-1d", "points=()"), 2, "points must be 2 whole numbers, got ()"),
        (("data", "preview", "gp-1d", "task.targets=[" + "[" * 9999), 2, "targets must be"),
        (("data", "preview", "table", "path=2024", "inputs=0,1", "outputs=2"), 1, "2024"),
        (("data", "preview", "table", "task.path=2024", "task.inputs=0,1", "outputs=2"), 1, "2024"),
        (("train", "table", "task.path=2024", "task.inputs=0,1", "task.outputs=2"), 1, "2024"),
        (("train", "table", "task.path=", "task.inputs=x", "task.outputs=y"), 2, "task.path must be a path"),
        (("train", "table"), 2, "table needs task.path, task.inputs, task.outputs, such as task.path=stations.csv "),
        (("train", "table", "task.path=a.csv", "task.inputs=x"), 2, "needs task.outputs, such as task.outputs="),
        (("data", "preview", "table", "path=a.csv"), 2, "table needs inputs, outputs, such as inputs=lon,lat outputs="),
        (("list", "tabel"), 2, "no model or task named 'tabel': did you mean 'table'"),
        (("train", "gp-1d", "--steps", "0"), 2, "--steps must be 1 or more, got 0"),
        (("train", "tabel"), 2, "no experiment or task named 'tabel': did you mean 'table'"),
        (("train", "zzz"), 2, "table"),
        (("train", "gp-1d", "task.points=()"), 2, "task.points must be 2 whole numbers, got ()"),
        (("train", "gp-1d", "dz=big"), 2, "dz must be a whole number, got 'big'"),
        (("train", "gp-1d", "layers=0"), 2, "layers must be"),
        (("train", "gp-1d", f"layers={2**70}"), 2, "layers must be below"),
        (("train", "gp-1d", "--clip", "-1"), 2, "clip must be a positive number"),
        (("train", "gp-1d", "--clip", "x"), 2, "--clip"),
        (("train", "timing", "dz=3"), 2, "timing is measured, not trained"),
        (("train", "--resume", "nowhere"), 1, "nowhere is not a run"),
        (("data", "preview", "gp-1d", "--seed", "-1"), 2, "--seed must be 0 or more, got -1"),
        (("evaluate",), 2, "name the folder of at least one run"),
        (("evaluate", "nowhere", "--tasks", "0"), 2, "--tasks must be 1 or more, got 0"),
        (("report", "gp-1d", "--tasks", "0"), 2, "--tasks must be 1 or more, got 0"),
        (("report", "table"), 2, "There is no experiment named 'table'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_exit_codes(command, code, message, tmp_path, monkeypatch, capsys):
    """2 for a wrong command line, 1 for data that are missing or wrong; in one sentence."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["shiftnp", *command])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = str(stopped.value) + "".join(capsys.readouterr())
    assert message in said
    assert code == (2 if stopped.value.code == 2 else 1)
    assert not list(tmp_path.iterdir())


def planned(monkeypatch, *command):
    """The configs of the runs that a command would train."""
    plan = []
    monkeypatch.setattr(Train, "train", lambda self, runs, steps=None: plan.extend(runs))
    monkeypatch.setattr(sys, "argv", ["shiftnp", "train", *map(str, command)])
    main()
    return [config for _, config in plan]


def test_none_switches_clipping_and_averaging_off(monkeypatch, tmp_path):
    """An option that is not given is another thing than None."""
    monkeypatch.chdir(tmp_path)
    assert planned(monkeypatch, "gp-1d")[0].training.clip == 0.5
    (config,) = planned(monkeypatch, "gp-1d", "--clip", "None")
    assert config.training.clip is None
    assert config.changes == ("clip=None",)
    (config,) = planned(monkeypatch, "gp-1d", "--ema", "0.9", "--schedule", "constant", "--batch-size", 3)
    assert (config.training.ema, config.training.schedule, config.training.batch_size) == (0.9, "constant", 3)
    assert planned(monkeypatch, "gp-1d")[0].training.ema == 0.99
    (config,) = planned(monkeypatch, "gp-1d", "--ema", "None")
    assert config.training.ema is None
    assert config.changes == ("ema=None",)


def test_settings_and_options_come_in_any_order(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (usual,) = planned(monkeypatch, "gp-1d", "dz=16", "layers=2", "--steps", 7, "--no-gap")
    assert (usual.training.steps, usual.model_settings["dz"], usual.model_settings["layers"]) == (7, 16, 2)
    for mixed in (
        ("gp-1d", "dz=16", "--steps", 7, "layers=2", "--no-gap"),
        ("--no-gap", "gp-1d", "--steps=7", "dz=16", "--tensorboard", "layers=2"),
        ("gp-1d", "--steps", 7, "dz=16", "--gap", "layers=2"),
    ):
        assert planned(monkeypatch, *mixed) == [usual]
    assert options_first(["gp-1d", "--out", "a=1", "b=2", "--seed", "-1"]) == [
        "--out",
        "a=1",
        "--seed",
        "-1",
        "gp-1d",
        "b=2",
    ]


def test_every_entry_of_training_is_an_option_with_its_help():
    said = run("train", "--help").stdout
    assert "`shiftnp list table`" in " ".join(said.replace("│", " ").split())
    for name in Training.__dataclass_fields__:
        assert f"--{name.replace('_', '-')} " in said
        help_text = re.search(rf"^        {name}: (\S+)", Training.__doc__, re.M)
        assert help_text is not None, name
        assert help_text[1] in said


def test_version_and_completion():
    assert run("--version").stdout == f"shiftnp {shiftnp.__version__}\n"
    assert "--tyro-print-completion bash" in run("--help").stdout
    assert "complete" in run("--tyro-print-completion", "bash").stdout


def test_names_of_folders_are_short(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (config,) = planned(monkeypatch, "gp-1d", "dz=64", "--seed", 3)
    assert folder_name(config, False) == "te-tnp-laptop-seed3-dz=64"
    sizes = ("dz=64", "heads=4", "head_dim=16", "layers=3")
    (long,), (other,) = (planned(monkeypatch, "gp-1d", f"task.noise={noise}", *sizes) for noise in (0.1, 0.2))
    assert re.fullmatch(r"te-tnp-laptop-seed0-[0-9a-f]{6}", folder_name(long, False))
    assert folder_name(long, False) != folder_name(other, False)
    assert len(folder_name(long, True)) <= LONGEST_NAME


def test_what_is_measured_is_not_trained(monkeypatch, tmp_path):
    from shiftnp.bench import train
    from shiftnp.experiments.base import Row

    monkeypatch.chdir(tmp_path)
    rows, measure = (Row("cnp", "CNP", "cnp", {"dz": 8}),), train.measure
    monkeypatch.setattr(train, "measure", lambda _, preset, repeats, seed: measure(rows, preset, 1, seed, quiet=True))
    assert planned(monkeypatch, "timing", "--preset", "paper") == []
    result = json.loads((tmp_path / "runs/timing/paper/timing.json").read_text())
    assert result["preset"] == "paper"
    assert result["models"]["cnp"]["steps"] == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("task.inputs=lon,lat", ("lon", "lat")),
        ("task.inputs=[lon, lat]", ("lon", "lat")),
        ('task.inputs=["lon", "lat"]', ("lon", "lat")),
        ("task.inputs=('lon', 'lat')", ("lon", "lat")),
        ("task.inputs=lon", ("lon",)),
        ("task.outputs=2", ("2",)),
        ("task.inputs=0,1", ("0", "1")),
        ("task.inputs=2024.10", ("2024.10",)),
        ("task.context=0.1,0.5", (0.1, 0.5)),
        ("task.path=2024", str(Path("2024").absolute())),
        ("task.path=None", None),
        ("dx=2", 2),
        ("bimodal=true", True),
        ("x={[]:1}", "{[]:1}"),
        ("x={1, 2}", ("{1", "2}")),
        ("x='\\d'", "\\d"),
        ('kernel={"name": "rotary", "band": [1, 2]}', {"name": "rotary", "band": (1, 2)}),
    ],
)
def test_settings_may_be_written_in_many_ways(text, value):
    assert parse_setting(text, TableTask)[1] == value


def test_one_kernel_is_a_sequence_too():
    assert parse_setting("task.kernels=se", GPTask) == ("task.kernels", ("se",))


# --- from training to the report ------------------------------------------------------------------------------------

TINY = ("dz=32", "heads=2", "head_dim=16", "layers=2", "task.kernels=se", "task.length=0.5,2", "task.targets=16")
QUICK = ("--valid-every", 100, "--valid-tasks", 32, "--batch-size", 8, "--learning-rate", 2e-3, "--no-gap")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder in which two small models were trained for some seconds."""
    folder = tmp_path_factory.mktemp("project")
    for model in ("tnp", "te-tnp"):
        said = succeeds("train", "gp-1d", *TINY, "--model", model, "--steps", 250, *QUICK, cwd=folder)
        assert "Trained for 250 steps" in said
        assert re.search(r"loss \(NLL\) [+-]\d\.\d{3}  valid \(LL\) [+-]\d\.\d{3}", said)
    return folder


def runs(project):
    return sorted((project / "runs/gp-1d").iterdir())


def test_a_few_seconds_of_training_beat_the_prior(project):
    """By 0.25 nats per target, on test tasks, without knowing more than the context."""
    printed = succeeds(
        "evaluate", *runs(project), "--sets", "delta-0.0", "--tasks", 128, "--no-gap", "--out", "all.json", cwd=project
    )
    results = json.loads((project / "all.json").read_text())
    assert [result["row"] for result in results] == ["te-tnp", "tnp"]
    task = GPTask(kernels=("se",), length=(0.5, 2.0), targets=16)
    prior = torch.distributions.Normal(0.0, math.sqrt(1 + task.noise**2))
    batches = list(task.test_sets()["delta-0.0"])[:8]
    score = float(torch.cat([prior.log_prob(batch.yt) for batch in batches]).mean())
    for result in results:
        summary = result["sets"]["delta-0.0"]
        assert summary["tasks"] == 128
        assert summary["log_likelihood"]["mean"] > score + 0.25
        assert f"{summary['log_likelihood']['mean']:.3f}" in printed
        assert summary["gap"] is None


def test_the_report_shows_what_was_measured(project):
    for folder in runs(project):
        succeeds("evaluate", folder, "--tasks", 16, "--no-gap", cwd=project)
    html, markdown = map(Path, succeeds("report", "gp-1d", cwd=project).split()[-2:])
    for folder in runs(project):
        score = json.loads((folder / "evaluation.json").read_text())["sets"]["delta-0.6"]["log_likelihood"]
        for page in (html, markdown):
            text = page.read_text().replace("\N{MINUS SIGN}", "-")
            assert f"{score['mean']:.2f}" in text
            assert "-0.47" in text  # the paper's TE-TNP
            assert "steps=250" in text


def test_going_on(project):
    """All models at once, what is finished being left alone; longer; and not twice."""
    folder = runs(project)[0]
    weights = (folder / "model.safetensors").read_bytes()
    again = run("train", "gp-1d", *TINY, "--model", "te-tnp", "--steps", 250, *QUICK, cwd=project)
    assert again.returncode != 0
    assert "holds a run already: go on with `shiftnp train --resume" in again.stderr
    assert "Finished already, after 250 steps" in succeeds("train", "--resume", folder, cwd=project)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert "Going on from step 250 of 260" in succeeds(
        "train", "--resume", folder, "--steps", 260, "--no-gap", cwd=project
    )


def test_a_damaged_run_gets_one_sentence(project, tmp_path, monkeypatch):
    def damaged(file, change):
        folder = tmp_path / f"damaged-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(runs(project)[1], folder)
        (folder / file).write_bytes(change((folder / file).read_bytes()))
        return folder

    def cut(data):
        return data[: len(data) // 2]

    def newer(data):
        return json.dumps({**json.loads(data), "format": 99, "shiftnp": "9.0", "colour": "red"}).encode()

    def unknown(data):
        return json.dumps({**json.loads(data), "colour": "red"}).encode()

    for file, change, command, message in (
        ("model.safetensors", cut, ("evaluate",), "model.safetensors is damaged"),
        ("state.safetensors", cut, ("train", "--steps", "300", "--resume"), "state.safetensors is damaged"),
        ("config.json", cut, ("evaluate",), "config.json is damaged"),
        ("config.json", newer, ("evaluate",), "was written by shiftnp 9.0 (format 99), newer than this one"),
        ("config.json", unknown, ("evaluate",), "colour"),
    ):
        monkeypatch.setattr(sys, "argv", ["shiftnp", *command, str(damaged(file, change))])
        with pytest.raises(SystemExit, match=re.escape(message)):
            main()


def test_a_table_of_ones_own(tmp_path):
    """Trained where the table is, evaluated from elsewhere, with its own units at hand."""
    rng = torch.Generator().manual_seed(0)
    lines = [f"{x:.3f},{20 + 5 * x:.3f},{i % 30}" for i, x in enumerate(torch.rand(600, generator=rng).tolist())]
    (tmp_path / "data").mkdir()
    (tmp_path / "data/t.csv").write_text("\n".join(["lon,temperature,day", *lines]))
    task = ("task.path=t.csv", "task.inputs=lon", "task.outputs=temperature", "task.group=day")
    small = ("dz=16", "heads=2", "head_dim=8", "layers=1", "--batch-size", 4, "--valid-tasks", 4, "--no-gap")
    out = ("--model", "tnp", "--steps", 5, "--out", tmp_path / "run")
    succeeds("train", "table", *task, *small, *out, cwd=tmp_path / "data")
    assert "log-" in succeeds("evaluate", tmp_path / "run", "--tasks", 4, cwd=tmp_path)
    trained = Run.open(tmp_path / "run")
    model, scaling = trained.model(), trained.scaling
    assert 20 < scaling.y_mean[0] < 25
    x, y, new = torch.tensor([[[0.2], [0.7]]]), torch.tensor([[[21.0], [23.5]]]), torch.tensor([[[0.5]]])
    predicted = model(scaling.x(x), scaling.y(y), scaling.x(new))  # as in docs/howto/train.md
    assert 15 < scaling.undo_y(predicted.mean).item() < 30
    with pytest.raises(ValueError, match=r"run is a run of `shiftnp train`.*docs/howto/train.md"):
        Regressor(weights=tmp_path / "run").fit([[0.1], [0.2], [0.3]], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("command", [("train", "table"), ("data", "preview", "table")])
def test_a_wrong_column_is_a_wrong_command_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("lon,Temperature\n" + "".join(f"{i},{i % 5}\n" for i in range(40)))
    for output, hint in (
        ("temperatur", ": did you mean 'Temperature'?"),
        ("wind", "; its columns are lon, Temperature."),
    ):
        settings = ("task.path=t.csv", "task.inputs=lon", f"task.outputs={output}")
        monkeypatch.setattr(sys, "argv", ["shiftnp", *command, *settings])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert capsys.readouterr().err.endswith(f"t.csv has no column {output!r}{hint}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_start_that_fails_leaves_nothing(tmp_path, monkeypatch, capsys):
    """Each row is a data set of its own, which shows after the folder is made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("lon,temperature\n" + "".join(f"{i},{i % 5}\n" for i in range(40)))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").touch()
    table = ("train", "table", "task.path=t.csv", "task.inputs=lon", "task.outputs=temperature", "task.group=lon")
    for out in ("runs/deep", "mine"):
        for _ in range(2):  # the second time as well, not that there is a run already
            monkeypatch.setattr(sys, "argv", ["shiftnp", *table, "--out", out])
            with pytest.raises(SystemExit, match="No data set of the split 'valid'"):
                main()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "notes.txt", "t.csv"]


def test_a_run_that_was_there_survives_a_failure(tmp_path):
    (tmp_path / "config.json").touch()
    with pytest.raises(ValueError, match="why"), removed_on_failure(tmp_path):
        raise ValueError("why")
    assert (tmp_path / "config.json").exists()


def test_a_baseline_needs_no_training(tmp_path):
    said = succeeds("train", "gp-1d", "--model", "gp", "--steps", 7, "--out", "run", "iterations=5", cwd=tmp_path)
    assert "nothing to train" in said
    printed = succeeds("evaluate", "run", "--tasks", 2, "--sets", "delta-0.0", "--no-gap", cwd=tmp_path)
    assert "gp" in printed


def test_one_fill_value_is_a_sequence_of_one(tmp_path):
    """As the warning about fill values says, without a comma."""
    path = tmp_path / "stations.csv"
    path.write_text("x,y\n" + "".join(f"{i},{-9999 if i % 7 == 0 else i % 5}\n" for i in range(60)))
    result = run("data", "preview", "table", f"path={path}", "inputs=x", "outputs=y", "missing=-9999", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "fill value" not in result.stderr


def test_warnings_are_one_line(tmp_path):
    path = tmp_path / "stations.csv"
    path.write_text("x,y\n" + "".join(f"{i},{-9999 if i % 7 == 0 else i % 5}\n" for i in range(60)))
    result = run("data", "preview", "table", f"path={path}", "inputs=x", "outputs=y", cwd=tmp_path)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Warning: Column 'y' of {path} is -9999 in 9 places")
    assert line.endswith("by missing=-9999 (in `shiftnp train`: task.missing=-9999).")
