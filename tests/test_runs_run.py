"""The folder of a run: what is damaged, outdated or crafted is refused in one sentence, and nothing is overwritten."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.run import STATE, WEIGHTS, Run, find_runs
from shiftnp.runs.tensors import flatten, read_tensors, unflatten, write_tensors
from shiftnp.runs.train import train

SHIFTNP = str(Path(sys.executable).with_name("shiftnp"))
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
CONFIG = RunConfig(
    model="tnp",
    task="gp-1d",
    training=Training(steps=3, batch_size=2, log_every=1, valid_every=3, valid_tasks=2),
    model_settings={"dz": 8, "heads": 2, "head_dim": 4, "layers": 1},
    task_settings={"kernels": ("se",), "points": (1, 4), "targets": 4},
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("whole") / "run", CONFIG)
    assert train(run, gap=False, quiet=True)
    return run


@pytest.fixture
def run(whole, tmp_path):
    """A copy of a trained run that has two steps to go."""
    shutil.copytree(whole.folder, tmp_path / "run")
    return Run.open(tmp_path / "run").extend(5)


def rewrite(run: Run, change) -> None:
    """Writes the state with one change, and with a checksum that is right."""
    tensors, metadata = read_tensors(run.folder / STATE)
    plain = json.loads(metadata["plain"])
    change(tensors, plain)
    write_tensors(run.folder / STATE, tensors, {"plain": json.dumps(plain)})


# --- state -----------------------------------------------------------------------------------------------------------


def largest(tensors, key):
    names = [name for name in tensors if name.endswith(key)]
    return max(names, key=lambda name: tensors[name].numel())


def test_saved_state_comes_back(run):
    state = run.state()
    assert state["step"] == 3
    assert state["moments"].keys() == {name for name, _ in run.new_model().named_parameters()}
    assert all(float(entry["step"]) == 3 for entry in state["moments"].values())
    assert unflatten(flatten(state)).keys() == {"model", "moments"}


@pytest.mark.parametrize("key", ["exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: torch.zeros(1),
        lambda t: t[..., :-1].clone(),
        lambda t: t.double(),
        lambda t: t * float("nan"),
        lambda t: torch.zeros(()),
    ],
    ids=["one", "short", "double", "nan", "scalar"],
)
def test_moments_that_are_not_their_parameters_are_refused(run, key, wrong):
    """The fused AdamW would read and write beyond them."""

    def change(tensors, plain):
        name = largest(tensors, key)
        tensors[name] = wrong(tensors[name])

    rewrite(run, change)
    with pytest.raises(ValueError, match=rf"{STATE} does not fit config\.json \(.*{key} (is|has) .*change it back"):
        train(run, gap=False, quiet=True)


def remove(name):
    return lambda tensors, plain: tensors.pop(largest(tensors, name))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors, plain: tensors.update({largest(tensors, "/step"): torch.zeros(3)}), "step is float32"),
        (lambda tensors, plain: tensors.update({largest(tensors, "/step"): torch.tensor(-1.0)}), "negative"),
        (lambda tensors, plain: tensors[largest(tensors, "exp_avg_sq")].sub_(1), "negative second moment"),
        (lambda tensors, plain: tensors.update({"moments/other/step": torch.zeros(())}), "other"),
        (remove("exp_avg"), "exp_avg is missing"),
        (lambda tensors, plain: tensors.pop(next(n for n in tensors if n.startswith("model/"))), "is missing"),
        (lambda tensors, plain: plain.update(step="3"), "step must be a whole number"),
        (lambda tensors, plain: plain.update(step=-3), "negative"),
        (lambda tensors, plain: plain.update(losses=[None]), "losses must be a list of numbers"),
        (lambda tensors, plain: plain.pop("skipped"), "skipped"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(run, change, words):
    rewrite(run, change)
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    with pytest.raises(ValueError, match=rf"does not fit config\.json \(.*{words}"):
        train(run, gap=False, quiet=True)
    assert before == {path.name: path.read_bytes() for path in run.folder.iterdir()}


@pytest.mark.parametrize("file", [STATE, WEIGHTS])
def test_every_flipped_bit_is_noticed(run, file):
    """In the bytes of the tensors; in the header it may be a name that nobody reads."""
    data = (run.folder / file).read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    for at in (header, (header + len(data)) // 2, len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        (run.folder / file).write_bytes(changed)
        with pytest.raises(ValueError, match=rf"{file} is damaged.*\(its checksum is wrong\)"):
            run.state() if file == STATE else run.model()
    assert not Run(run.folder, CONFIG).is_finished or file == STATE


def test_weights_without_a_checksum_are_read(run):
    from safetensors.torch import save_file

    weights = run.model().state_dict()
    save_file(weights, run.folder / WEIGHTS, {"step": "3"})
    assert run.step == 3
    assert all(torch.equal(v, weights[k]) for k, v in run.model().state_dict().items())


def test_weights_that_are_not_finite_are_refused(run):
    weights = {name: value * float("nan") for name, value in run.model().state_dict().items()}
    write_tensors(run.folder / WEIGHTS, weights, {"step": "3"})
    with pytest.raises(ValueError, match="values that are not finite"):
        run.model()


def test_equal_weights_make_equal_files(run):
    before = (run.folder / WEIGHTS).read_bytes()
    for _ in range(5):
        write_tensors(run.folder / WEIGHTS, run.model().state_dict(), {"step": "3"})
        assert (run.folder / WEIGHTS).read_bytes() == before


class Payload:
    def __reduce__(self):
        return os.mkdir, ("payload",)


@pytest.mark.parametrize("file", [STATE, WEIGHTS, "state.pt"])
def test_a_pickle_does_not_run(run, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (run.folder / file).write_bytes(pickle.dumps(Payload()))
    if file == STATE:
        with pytest.raises(ValueError, match=f"{file} is damaged") as error:
            train(run, gap=False, quiet=True)
        assert "weights_only" not in str(error.value)
    elif file == WEIGHTS:
        with pytest.raises(ValueError, match=f"{file} is damaged"):
            run.model()
    else:
        assert train(run, gap=False, quiet=True)
    assert not (tmp_path / "payload").exists()


def test_without_its_state_a_run_does_not_start_again(run):
    (run.folder / STATE).unlink()
    weights = (run.folder / WEIGHTS).read_bytes()
    with pytest.raises(ValueError, match=f"{STATE} is missing: this run cannot go on"):
        train(run, gap=False, quiet=True)
    assert (run.folder / WEIGHTS).read_bytes() == weights


# --- config ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a":' * 100_000, "damaged"),
        ("[" * 100_000, "damaged"),
        ("[]", "holds list, not an object"),
        ("{}", "no format and version"),
        ('{"format": 1e999, "shiftnp": "0"}', "no format and version"),
        ("\x00", "damaged"),
    ],
    ids=["objects", "lists", "list", "empty", "infinite", "zero"],
)
def test_an_unreadable_config_gets_one_sentence(run, text, words):
    (run.folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=rf"config\.json.*{words}") as error:
        Run.open(run.folder)
    assert "\n" not in str(error.value)
    assert find_runs(run.folder.parent) == ([], [str(error.value)])


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("preset", 3.5, "preset must be text or None, got 3.5"),
        ("model", None, "model must be text"),
        ("changes", "dz=3", "changes must be a list of words"),
        ("model_settings", [], "model_settings must be an object"),
        ("training", 3, "training must be an object"),
        ("training.steps", "many", "steps must be a whole number"),
        ("training.steps", True, "steps must be a whole number"),
        ("training.clip", "0.5", "clip must be a number or None"),
        ("training.learning_rate", float("nan"), "learning_rate must be a number"),
        ("training.learning_rate", 10**400, "learning_rate must be a number"),
        ("training.schedule", ["cosine"], "schedule must be one of constant, cosine, cosine-squared"),
        ("training.colour", "red", "unknown entry, 'colour'"),
    ],
)
def test_a_config_with_wrong_types_gets_one_sentence(run, entry, value, words):
    data = json.loads((run.folder / "config.json").read_text())
    *where, name = entry.split(".")
    (data[where[0]] if where else data)[name] = value
    (run.folder / "config.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=rf"config\.json, written by shiftnp .*, cannot be used: .*{words}"):
        Run.open(run.folder)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task_settings": {"points": ()}}, "points must be 2 whole numbers"),
        ({"task_settings": {"colour": 1}}, "no setting of the task gp-1d named 'colour'"),
        ({"model_settings": {"dz": "8"}}, "dz must be a whole number"),
        ({"model_settings": {"dz": 8, "dx": 3}}, "the model tnp cannot be made with dz=8, dx=3"),
    ],
)
def test_settings_that_a_model_or_task_does_not_take(tmp_path, settings, words):
    with pytest.raises(ValueError, match=words):
        Run.create(tmp_path / "run", replace(CONFIG, **settings))
    assert not (tmp_path / "run").exists()


def test_control_characters_are_not_printed(run):
    config = replace(run.config, row="\x1b[31mred", changes=("task.path=\x07\na",))
    assert config.label == r"\x1b[31mred (task.path=\x07 a)"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"inputs": ["x"]}',
        "[" * 100_000,
        '{"inputs":["x"],"outputs":["y"],"x_mean":[0,1],"x_std":[1],"y_mean":[0],"y_std":[1]}',
        '{"inputs":["x"],"outputs":["y"],"x_mean":[NaN],"x_std":[1],"y_mean":[0],"y_std":[1]}',
        '{"inputs":["x"],"outputs":["y"],"x_mean":[Infinity],"x_std":[1],"y_mean":[0],"y_std":[1]}',
    ],
    ids=["list", "cut", "incomplete", "nested", "lengths", "nan", "infinite"],
)
def test_a_damaged_scaling_gets_one_sentence(run, text):
    (run.folder / "scaling.json").write_text(text)
    with pytest.raises(ValueError, match=r"scaling\.json is damaged"):
        _ = Run.open(run.folder).task


# --- processes -------------------------------------------------------------------------------------------------------


def test_a_second_process_refuses_before_it_reads_anything(tmp_path, whole):
    """The state is damaged while the first process trains: the second would complain of that if it read it."""
    shutil.copytree(whole.folder, tmp_path / "run")
    run = Run.open(tmp_path / "run").extend(10**6)
    command = [SHIFTNP, "train", "--resume", str(run.folder), "--no-gap", "--save-every", "1e9"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ONE_THREAD)
    try:
        lines = len(run.metrics())
        while len(run.metrics()) <= lines and first.poll() is None:
            time.sleep(0.02)
        state = (run.folder / STATE).read_bytes()
        (run.folder / STATE).write_bytes(b"damaged")
        second = subprocess.run(command, capture_output=True, text=True, env=ONE_THREAD)
        assert second.returncode == 1
        assert "is being trained by another process" in second.stderr
        (run.folder / STATE).write_bytes(state)
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate()
    assert first.returncode == 130
    assert run.step > 3


def test_when_the_folder_is_gone_nothing_is_said_to_be_intact(run, monkeypatch):
    save = Run.save

    def remove_and_save(self, *args):
        shutil.rmtree(self.folder)
        save(self, *args)

    monkeypatch.setattr(Run, "save", remove_and_save)
    with pytest.raises(OSError, match=r"cannot be written .* Its checkpoint is gone"):
        train(run, gap=False, quiet=True)


def test_a_folder_that_is_still_written_to_is_removed(tmp_path):
    """After Ctrl-C a thread may write for a moment."""
    from shiftnp._io import aside

    def write(folder):
        for i in range(200):
            with contextlib.suppress(OSError):
                (folder / str(i)).write_text("x")

    def interrupted():
        with aside(tmp_path / "map.zarr") as new:
            new.mkdir()
            threading.Thread(target=write, args=(new,)).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())
