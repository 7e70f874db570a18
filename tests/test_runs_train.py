"""The loop: what it learns, and that nothing which happens to it is lost or changes the result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from shiftnp._machine import processor
from shiftnp.metrics import log_likelihood
from shiftnp.runs import step as step_module
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.run import Run
from shiftnp.runs.step import loss, make_optimiser, train_step
from shiftnp.runs.train import train
from shiftnp.tasks import TASKS, GPTask, Stream, TestSet

SHIFTNP = str(Path(sys.executable).with_name("shiftnp"))
TASK = {"kernels": ("se",), "length": (0.5, 2.0), "points": (1, 8), "targets": 16}
CONFIG = RunConfig(
    model="tnp",
    task="gp-1d",
    training=Training(steps=24, batch_size=4, log_every=5, valid_every=8, valid_tasks=8, learning_rate=1e-3),
    model_settings={"dz": 16, "heads": 2, "head_dim": 8, "layers": 1},
    task_settings=TASK,
)


def changed(**kwargs):
    return replace(CONFIG, training=replace(CONFIG.training, **kwargs))


def trained(folder, config=CONFIG, **kwargs):
    """A run in a new folder, trained as far as it goes."""
    run = Run.create(folder, config)
    assert train(run, gap=False, quiet=True, **kwargs)
    return run


def entries(run):
    """What it noted, without what a clock says."""
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in run.metrics()]


def assert_identical(a: Run, b: Run):
    """To the last bit: weights, optimiser, notes."""
    assert entries(a) == entries(b)
    for first, second in ((a.model().state_dict(), b.model().state_dict()), (a.state()["model"], b.state()["model"])):
        assert first.keys() == second.keys()
        assert all(torch.equal(first[k], second[k]) for k in first)
    moments = [[entry[k] for _, entry in sorted(r.state()["moments"].items()) for k in sorted(entry)] for r in (a, b)]
    assert all(torch.equal(x, y) for x, y in zip(*moments, strict=True))


# --- one run ---------------------------------------------------------------------------------------------------------


def test_a_run_explains_itself(tmp_path):
    run = trained(tmp_path / "run")
    assert Run.open(tmp_path / "run") == run
    assert run.is_finished
    assert run.step == 24
    assert [e["step"] for e in run.metrics() if "loss" in e] == [5, 10, 15, 20]
    assert [e["step"] for e in run.metrics() if "valid" in e] == [8, 16, 24]
    batch = next(iter(replace(run.task.test_sets()["valid"], tasks=8)))
    with torch.no_grad():
        prediction = run.model()(batch.xc, batch.yc, batch.xt)
        score = log_likelihood(prediction, batch.yt)
    assert float(score.double().mean()) == pytest.approx(run.metrics()[-1]["valid"], abs=1e-6)
    assert not list((tmp_path / "run").glob(".*.part"))


def test_seed_decides_everything(tmp_path):
    a, b, c = (trained(tmp_path / str(i), changed(seed=s, steps=8)) for i, s in enumerate((3, 3, 4)))
    assert_identical(a, b)
    assert entries(a) != entries(c)


def test_workers_change_nothing(tmp_path):
    assert_identical(trained(tmp_path / "0"), trained(tmp_path / "2", workers=2))


def test_first_step_is_the_papers(tmp_path):
    """AdamW on the clipped gradient of the mean negative log-likelihood, done by hand."""
    run = trained(tmp_path / "run", changed(steps=1, clip=1e-3))
    model = run.new_model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = next(iter(Stream(run.task, 4, seed=0)))
    (-log_likelihood(model(batch.xc, batch.yc, batch.xt), batch.yt).mean()).backward()
    for p in model.parameters():
        p.grad.clamp_(-1e-3, 1e-3)
    optimiser.step()
    for p, q in zip(model.parameters(), run.model().parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_the_loop_makes_the_step_that_benchmarks_make(tmp_path):
    """To the last bit, with a learning rate that changes."""
    run = trained(tmp_path / "run", changed(steps=4, schedule="cosine", warmup=1))
    model, training = run.new_model(), run.config.training
    optimiser = make_optimiser(model, training)
    for step, batch in zip(range(4), Stream(run.task, 4, seed=0), strict=False):
        expected = loss(model, batch).detach()
        assert torch.equal(train_step(model, optimiser, batch, training, step), expected)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), run.model().parameters(), strict=True))


def test_schedule():
    cosine = Training(steps=100, learning_rate=1.0, schedule="cosine", warmup=9)
    assert cosine.rate(0) == pytest.approx(0.1, rel=1e-3)
    assert cosine.rate(50) == pytest.approx(0.5)
    assert cosine.rate(99) < 1e-3
    squared = replace(cosine, schedule="cosine-squared")
    assert [squared.rate(step) for step in (20, 50, 70)] == pytest.approx([cosine.rate(s) ** 2 for s in (20, 50, 70)])
    assert squared.rate(0) == pytest.approx(0.1, rel=1e-3)  # the warm-up is not squared
    assert squared.rate(80) < 0.01
    assert Training(learning_rate=0.5).rate(10**6) == 0.5


@pytest.mark.parametrize("decay", [0.05, 0.9])
def test_the_moving_average_of_the_weights_is_kept(tmp_path, decay):
    """`a <- d a + (1 - d) w` after every step, with `d` at most `(1 + step) / (10 + step)`, done by hand."""
    steps = 4
    run = trained(tmp_path / "run", changed(ema=decay, steps=steps))
    model = run.new_model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    average = [p.detach().clone() for p in model.parameters()]
    for step, batch in zip(range(steps), Stream(run.task, 4, seed=0), strict=False):
        optimiser.zero_grad()
        (-log_likelihood(model(batch.xc, batch.yc, batch.xt), batch.yt).mean()).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimiser.step()
        d = min(decay, (1 + step) / (10 + step))
        average = [d * a + (1 - d) * p.detach() for a, p in zip(average, model.parameters(), strict=True)]
    for a, p in zip(average, run.model().parameters(), strict=True):
        torch.testing.assert_close(a, p.detach(), rtol=1e-4, atol=1e-6)
    last, kept = run.state()["model"], run.model().state_dict()
    assert not any(torch.equal(last[name], kept[name]) for name in kept)
    assert all(torch.equal(kept[k], v) for k, v in run.state()["average"].items())


def test_without_clipping_gradients_are_taken_as_they_are(tmp_path):
    """Clipping at a tiny value changes the first update of AdamW, which divides by the gradient and epsilon."""
    clipped, free, huge = (trained(tmp_path / str(c), changed(steps=1, clip=c)) for c in (1e-9, None, 1e9))
    assert_identical(free, huge)
    assert entries(free) != entries(clipped)


def test_bf16_trains(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftnp.attention.tiled.LOW_PRECISION", True)
    wide, narrow = trained(tmp_path / "32"), trained(tmp_path / "16", changed(precision="bf16"))
    assert narrow.metrics()[-1]["valid"] == pytest.approx(wide.metrics()[-1]["valid"], abs=0.05)
    assert narrow.metrics()[-1]["valid"] != wide.metrics()[-1]["valid"]
    assert narrow.model().dtype == torch.float32


@pytest.mark.parametrize("precision", ["bf16", "bf16-pairs", "float32"])
def test_where_bf16_does_not_pay_it_is_float32_and_says_so(precision, tmp_path, monkeypatch, capsys):
    expected = trained(tmp_path / "32").metrics()[-1]["valid"]
    monkeypatch.setattr("shiftnp.attention.tiled.LOW_PRECISION", False)
    capsys.readouterr()
    run = Run.create(tmp_path / "run", changed(precision=precision))
    train(run, gap=False)
    said = " ".join(capsys.readouterr().out.split())
    assert (f"so --precision {precision} is float32." in said) == (precision != "float32")
    assert run.metrics()[-1]["valid"] == expected


@pytest.mark.parametrize("faster", [True, False])
def test_whole_steps_decide_between_bf16_and_float32(faster, monkeypatch):
    """With a clock that counts a pass in float32 as one second."""
    now, run = [0.0], Run(Path(), changed(precision="bf16"))
    model, batch = run.new_model(), next(iter(Stream(run.task, 4, 0)))
    compute = step_module.loss

    def counted(*args, pays):
        now[0] += (0.5 if faster else 0.95) if pays else 1.0
        return compute(*args, pays=pays)

    monkeypatch.setattr(step_module, "loss", counted)
    monkeypatch.setattr(step_module.tiled, "bf16_pays", lambda *a: True)
    monkeypatch.setattr("time.process_time", lambda: now[0])
    assert step_module.low_precision_is_faster(model, batch, "bf16") is faster
    assert all(p.grad is None for p in model.parameters())
    monkeypatch.setattr(
        step_module.tiled, "bf16_pays", lambda *a: False
    )  # products alone are slower: steps are not tried
    now[0] = 0.0
    assert not step_module.low_precision_is_faster(model, batch, "bf16")
    assert now[0] == 0.0


def test_a_run_goes_on_in_its_precision_on_the_same_kind_of_processor(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftnp.runs.state.low_precision_is_faster", lambda *a: True)
    whole = trained(tmp_path / "whole", changed(precision="bf16-pairs", steps=6))
    part = trained(tmp_path / "part", changed(precision="bf16-pairs", steps=3))
    assert part.state()["bf16"] is True
    assert part.state()["processor"] == processor()
    monkeypatch.setattr("shiftnp.runs.state.low_precision_is_faster", lambda *a: pytest.fail("measured again"))
    longer = part.extend(6)
    train(longer, gap=False, quiet=True)
    for a, b in zip(longer.model().parameters(), whole.model().parameters(), strict=True):
        assert torch.equal(a, b)
    monkeypatch.setattr("shiftnp.runs.state.processor", lambda: "an abacus")
    monkeypatch.setattr("shiftnp.runs.state.low_precision_is_faster", lambda *a: False)
    train(longer.extend(7), gap=False, quiet=True)
    assert longer.state()["bf16"] is False
    assert longer.state()["processor"] == "an abacus"


def test_runs_in_float32_say_nothing_of_processors(tmp_path):
    assert not {"bf16", "processor"} & trained(tmp_path / "run").state().keys()


def test_tensorboard_on_request(tmp_path):
    run = trained(tmp_path / "run", tensorboard=True)
    assert list(run.folder.glob("events.out.tfevents.*"))


def test_gap_to_the_ceiling_is_followed(tmp_path, monkeypatch):
    zero = torch.zeros(CONFIG.training.valid_tasks, dtype=torch.float64)
    monkeypatch.setattr("shiftnp.runs.train.best_possible", lambda test_set, mixture: zero)
    run = Run.create(tmp_path / "run", CONFIG)
    train(run, quiet=True)
    for entry in run.metrics():
        if "valid" in entry:
            assert entry["gap"] == pytest.approx(-entry["valid"])


# --- interruptions ---------------------------------------------------------------------------------------------------


ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # several processes on few cores wait for each other otherwise


def command(folder, *args):
    return [SHIFTNP, "train", "--resume", str(folder), "--no-gap", "--save-every", "0.02", *args]


def go_on(folder, *args, before=(SHIFTNP,)):
    """Goes on with a run to its end."""
    result = subprocess.run([*before, *command(folder, *args)[1:]], capture_output=True, text=True, env=ONE_THREAD)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run of a few seconds, in a process of its own like those that are killed."""
    run = Run.create(tmp_path_factory.mktemp("whole") / "run", changed(steps=200, ema=0.99, schedule="cosine"))
    go_on(run.folder)
    return run


SIGNALLING = """
import os, sys, threading, time
from shiftnp.cli import main
from shiftnp.runs.run import Run

folder, number, step, delay = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])

def send():
    run = Run.open(folder)
    while max((entry["step"] for entry in run.metrics()), default=0) <= step or (number == 9 and run.step <= step):
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(os.getpid() if number == 9 else 0, number)

threading.Thread(target=send, daemon=True).start()
sys.argv = ["shiftnp", *sys.argv[5:]]
main()
"""
"""Resumes a run and signals its own process group once the run is past a step. That is in the same process, so that a
busy machine, which holds up one process and not another, changes nothing."""


def resume_and_signal(folder, number, step, delay, *args):
    """Exit code and output of a process that goes on with a run and is sent a signal after that step."""
    about = (str(folder), str(int(number)), str(step), str(delay))
    process = subprocess.Popen(
        [sys.executable, "-c", SIGNALLING, *about, *command(folder, *args)[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ONE_THREAD,
        start_new_session=True,
    )
    said, errors = process.communicate()
    assert process.returncode in (0, 130, -signal.SIGKILL), errors
    return process.returncode, said


def test_killed_at_random_moments_it_ends_the_same(tmp_path, uninterrupted):
    run = Run.create(tmp_path / "run", uninterrupted.config)
    rng, steps = random.Random(0), [0]
    for _ in range(4):
        code, _ = resume_and_signal(run.folder, signal.SIGKILL, run.step, rng.uniform(0, 0.1))
        assert code == -signal.SIGKILL
        steps.append(run.step)
    assert steps == sorted(set(steps))  # each kill came after another checkpoint
    go_on(run.folder)
    assert_identical(run, uninterrupted)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_saves_and_says_how_to_go_on(tmp_path, uninterrupted, how):
    run = Run.create(tmp_path / "run", uninterrupted.config)
    code, said = resume_and_signal(run.folder, how, 0, 0, "--save-every", "1e9")
    assert code == 130
    assert 0 < run.step < 200
    assert f"step {run.step} is saved" in said
    assert f"shiftnp train --resume {run.folder}" in said.replace("\n", "")
    go_on(run.folder)
    assert_identical(run, uninterrupted)


def test_ctrl_c_in_a_terminal_reaches_loader_workers_too(tmp_path, uninterrupted):
    run = Run.create(tmp_path / "run", uninterrupted.config)
    code, said = resume_and_signal(run.folder, signal.SIGINT, 0, 0, "--workers", "2")
    assert code == 130
    assert "is saved. Go on with" in said
    assert run.state() is not None


def test_damaged_weights_come_back_from_the_state(tmp_path):
    run = trained(tmp_path / "run")
    path = run.folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:500])
    assert not run.is_finished
    assert train(run, gap=False, quiet=True)
    assert path.read_bytes() == whole


def test_a_run_that_cannot_be_made_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="layers"):
        Run.create(tmp_path / "run", replace(CONFIG, model_settings={"layers": 0}))
    assert not (tmp_path / "run").exists()


def test_a_run_is_made_longer_but_not_shorter(tmp_path):
    run = trained(tmp_path / "run")
    assert run.extend(30).config.changes == ("steps=30",)
    assert Run.open(run.folder).extend(40).config.changes == ("steps=40",)
    with pytest.raises(ValueError, match="more than the 10 asked for"):
        run.extend(10)
    with run.lock(), pytest.raises(RuntimeError, match="another process"):
        run.extend(50)
    assert Run.open(run.folder).config.training.steps == 40


def test_notes_of_steps_that_come_again_are_taken_back(tmp_path):
    run = trained(tmp_path / "run")
    whole = entries(run)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "loss": 1.0}\n{"step": 100, "lo')  # a crash in mid-line
    longer = run.extend(30)
    assert train(longer, gap=False, quiet=True)
    assert entries(longer)[: len(whole)] == whole
    assert [e["step"] for e in longer.metrics()][len(whole) :] == [25, 30, 30]
    assert longer.is_finished


def test_two_processes_do_not_train_one_run(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    with FileLock(run.folder / ".lock"), pytest.raises(RuntimeError, match="another process"):
        train(run, gap=False, quiet=True)


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path):
    run = trained(tmp_path / "run")
    before = (run.folder / "state.safetensors").read_bytes()
    longer = run.extend(40)
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000));"
        f"sys.argv = {command(run.folder)!r}; from shiftnp.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, env=ONE_THREAD)
    assert result.returncode != 0
    assert "cannot be written (File too large). That of step 24 is intact." in result.stderr
    assert "Traceback" not in result.stderr
    assert (run.folder / "state.safetensors").read_bytes() == before
    assert not list(run.folder.glob(".*.part"))
    assert train(longer, gap=False, quiet=True)


# --- broken numbers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken(GPTask):
    """Has targets beyond all numbers, always or in every third batch."""

    always: bool = False

    def sample(self, batch_size, generator):
        batch = super().sample(batch_size, generator)
        bad = self.always or int(torch.randint(3, (), generator=generator)) == 0
        return replace(batch, yt=batch.yt * 1e30) if bad else batch

    def test_sets(self):
        return {"valid": TestSet(GPTask(**TASK), seed=2, tasks=8)}


def test_steps_without_a_finite_loss_are_skipped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "broken", Broken)
    run = trained(tmp_path / "run", replace(CONFIG, task="broken"))
    state = run.state()
    assert 2 < state["skipped"] < 16
    updates = next(iter(state["moments"].values()))["step"]
    assert int(updates) == 24 - state["skipped"]
    assert run.metrics()[-2]["skipped"] <= state["skipped"]
    assert all(v.isfinite().all() for v in run.model().state_dict().values())


def test_after_several_in_a_row_it_stops_with_good_weights(tmp_path, monkeypatch):
    run = trained(tmp_path / "run")
    monkeypatch.setitem(TASKS, "broken", Broken)
    before = run.model().state_dict()
    always = {**TASK, "always": True}
    worse = Run(run.folder, replace(changed(steps=100, patience=3), task="broken", task_settings=always))
    with pytest.raises(ArithmeticError, match=r"3 steps in a row had no finite loss .* Try a smaller --learning-rate"):
        train(worse, gap=False, quiet=True)
    after = worse.model().state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize("patience", [3, 1000])
def test_broken_weights_are_never_kept(tmp_path, patience):
    """Neither before the first checkpoint is due, nor at the end of a run that nobody stopped."""
    run = Run.create(tmp_path / "run", changed(learning_rate=1e30, patience=patience))
    with pytest.raises(ArithmeticError, match="The weights of step 0, which were good, are kept"):
        train(run, gap=False, quiet=True)
    first = run.new_model().state_dict()
    assert all(torch.equal(first[k], v) for k, v in run.model().state_dict().items())


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("one") / "run", changed(steps=20, log_every=1))
    go_on(run.folder)
    return run


def assert_same_curve(run, other):
    a, b = entries(run), entries(other)
    assert [e["step"] for e in a] == [e["step"] for e in b]
    for x, y in zip(a, b, strict=True):
        for key in x:
            assert x[key] == pytest.approx(y[key], rel=1e-5, abs=1e-6)


def test_two_processes_train_like_one(tmp_path, one_process):
    run = Run.create(tmp_path / "run", one_process.config)
    go_on(run.folder, "--devices", "2")
    assert_same_curve(run, one_process)


def test_torchrun_too(tmp_path, one_process):
    run = Run.create(tmp_path / "run", one_process.config)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29533"]
    go_on(run.folder, before=(*torchrun, "-m", "shiftnp.cli"))
    assert_same_curve(run, one_process)


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", -1), ("batch_size", 0), ("learning_rate", 0.0), ("ema", 1.5), ("schedule", "linear"), ("clip", -1.0)],
)
def test_settings_that_make_no_sense_are_refused(name, value):
    code = f"from shiftnp.runs.config import Training; Training({name}={value!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"ValueError: {name} must be" in result.stderr


def test_configs_survive_json():
    config = changed(ema=0.5)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


# --- a stated time, and the best weights -----------------------------------------------------------------------------


def test_schedule_follows_the_time():
    timed = Training(minutes=2.0, learning_rate=1.0, schedule="cosine", warmup=1000)
    assert timed.part(10**6, 30.0) == 0.25
    assert timed.rate(0, 0.0) < 1e-2
    assert timed.rate(10, 0.05) == pytest.approx(1.0, abs=0.01)  # warm-up takes a twentieth of the time at most
    assert timed.rate(10, 0.5) == pytest.approx(0.5)
    assert timed.rate(10, 1.1) == 0
    with pytest.raises(ValueError, match="minutes must be a positive number"):
        Training(minutes=0.0)


def test_a_run_of_some_minutes_ends_and_goes_on(tmp_path, monkeypatch):
    config = changed(minutes=0.02, schedule="cosine", valid_tasks=2)
    run = Run.create(tmp_path / "run", config)
    requests = iter([False] * 3 + [True] * 100)
    with monkeypatch.context() as patch:
        patch.setattr("shiftnp.runs.signals.StopRequest.__bool__", lambda self: next(requests))
        stopped = not train(run, gap=False, quiet=True)
    if stopped:  # unless the first steps took all of the time
        assert not run.is_finished
        assert run.steps > run.step == 3
        assert train(run, gap=False, quiet=True)
    assert run.is_finished
    assert run.steps == run.step > 0
    assert run.state()["seconds"] >= 1.2
    assert [e["step"] for e in run.metrics() if "valid" in e][-1] == run.step
    with pytest.raises(ValueError, match=r"is trained for 0\.02 minutes"):
        run.extend(100)


def scripted(monkeypatch, values):
    """Validations have these scores, one after the other, by their number of steps."""
    monkeypatch.setattr(
        "shiftnp.runs.train.validate",
        lambda model, batches, fabric: torch.full((2,), next(values), dtype=torch.float64),
    )


def test_the_best_weights_are_kept(tmp_path, monkeypatch):
    """To the last bit those that a run up to that step has, and after an interruption, too."""
    until = trained(tmp_path / "until", changed(steps=16))
    scripted(monkeypatch, iter([-3.0, -1.0, -2.0]))
    best = trained(tmp_path / "best", changed(keep="best"))
    assert best.is_finished
    assert best.step == 24
    assert best.state()["best_step"] == 16
    for name, value in best.model().state_dict().items():
        assert torch.equal(value, until.model().state_dict()[name])
    again = Run.create(tmp_path / "again", changed(keep="best"))
    scripted(monkeypatch, iter([-3.0, -1.0, -2.0]))
    requests = iter([False] * 20 + [True])
    with monkeypatch.context() as patch:
        patch.setattr("shiftnp.runs.signals.StopRequest.__bool__", lambda self: next(requests))
        assert not train(again, gap=False, quiet=True)
    assert again.state()["best_step"] == 16
    assert train(again, gap=False, quiet=True)
    assert_identical(best, again)


def test_the_validation_set_that_gains_least_decides(tmp_path, monkeypatch):
    """Known places get better and better, new places do not, although they are easier: the weights that are best at
    new places are kept."""

    @dataclass(frozen=True)
    class Two(GPTask):
        def test_sets(self):
            one = TestSet(GPTask(**TASK), seed=2, tasks=8)
            return {"valid": one, "valid-new-places": one}

    monkeypatch.setitem(TASKS, "two", Two)
    scripted(monkeypatch, iter([-6.0, -3.0, -5.0, -2.5, -4.0, -2.8]))
    run = trained(tmp_path / "run", replace(changed(keep="best"), task="two"))
    assert run.state()["best_step"] == 16
    assert [e["valid-new-places"] for e in run.metrics() if "valid" in e] == [-3.0, -2.5, -2.8]
