from __future__ import annotations

import io
import json
import math
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch.distributions import Independent, Normal

from conftest import SMALL
from shiftnp._schema import from_json
from shiftnp.batch import Batch
from shiftnp.cli import main
from shiftnp.experiments import evaluation_sets
from shiftnp.metrics import LEVELS
from shiftnp.report.terminal import print_tables
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.evaluate import best_possible, context_bins, evaluate, is_current, read_evaluation, summarise
from shiftnp.runs.results import Estimate, Evaluation, Gap, Machine, SetSummary, TaskScore
from shiftnp.runs.run import Run
from shiftnp.runs.scoring import Scores, log_likelihoods, score
from shiftnp.tasks.base import Task, TestSet, Unit
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_posterior import BayesOptimal

# One kernel, whose exact posterior is quick.
GP = {"kernels": ("se",), "points": (1, 6), "targets": 5}


@dataclass(frozen=True)
class Ragged(Task):
    """Tasks of different sizes, whose outputs are standard normal and whose padding is NaN."""

    dx, dy = 1, 2

    def sample(self, batch_size, generator):
        def one():
            nc, nt = (int(torch.randint(low, 6, (), generator=generator)) for low in (0, 1))
            x, y = torch.rand(1, nc + nt, 1, generator=generator), torch.randn(1, nc + nt, 2, generator=generator)
            return Batch(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:])

        batch = Batch.collate([one() for _ in range(batch_size)])
        return replace(batch, yt=batch.yt.masked_fill(~batch.mask_t[..., None], math.nan))

    def test_sets(self):
        return {"test": TestSet(self, seed=1, tasks=10, batch_size=4)}

    def draw(self, batch, prediction=None, index=0):
        return Figure()


def standard_normal(xc, yc, xt, mask=None):
    zero = torch.zeros(*xt.shape[:2], yc.shape[-1])
    return Independent(Normal(zero, torch.ones_like(zero)), 1)


def made_up(n=40, seed=0):
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=n), rng.exponential(size=n), rng.exponential(size=n), rng.random((n, 3)))
    below = np.clip(np.array(LEVELS) + 0.05 * rng.normal(size=(n, 19)), 0, 1)
    return Scores(torch.from_numpy(rng.integers(0, 40, n)), *map(torch.from_numpy, (*values, below)))


def strict(summary):
    """What comes back from JSON, which must hold no NaN."""
    return from_json(SetSummary, json.loads(json.dumps(asdict(summary), allow_nan=False)))


def test_scores_task_by_task():
    done = []
    test_set = Ragged().test_sets()["test"]
    scores = score(standard_normal, test_set, advance=done.append)
    assert done == [4, 4, 2]
    i = 0
    for batch in test_set:
        for yt, there, mask_c in zip(batch.yt, batch.mask_t, batch.mask_c, strict=True):
            y = yt[there].double()
            assert scores.context[i] == mask_c.sum()
            torch.testing.assert_close(scores.squared_error[i], y.square().mean())
            expected = -0.5 * y.square().sum(-1).mean() - math.log(2 * math.pi)
            torch.testing.assert_close(scores.log_likelihood[i], expected)
            torch.testing.assert_close(scores.covered[i, 2], (y.abs() <= 1.959964).double().mean())
            torch.testing.assert_close(scores.pit_below[i, 9], (y <= 0).double().mean())
            i += 1
    assert i == len(scores.crps) == 10
    assert {value.dtype for value in scores[1:]} == {torch.float64}


def test_a_task_without_targets_is_refused():
    test_set = TestSet(GPTask(targets=1), seed=0, tasks=1)
    batch = replace(next(iter(test_set)), mask_t=torch.zeros(1, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="has no targets"):
        score(standard_normal, FixedSet(test_set.task, 0, 1, batch=batch))


@dataclass(frozen=True)
class FixedSet(TestSet):
    batch: Batch | None = None

    def __iter__(self):
        yield self.batch


def test_summary_is_numpys():
    scores, best = made_up(), torch.zeros(40, dtype=torch.float64)
    summary = strict(summarise(scores, best))
    n, ll, mse = 40, scores.log_likelihood.numpy(), scores.squared_error.numpy()
    assert summary.tasks == n
    assert summary.log_likelihood.mean == pytest.approx(ll.mean())
    assert summary.log_likelihood.standard_error == pytest.approx(ll.std(ddof=1) / math.sqrt(n))
    assert summary.median_log_likelihood == pytest.approx(np.median(ll))
    assert summary.gap.mean == pytest.approx(-ll.mean())
    assert summary.gap.standard_error == pytest.approx(ll.std(ddof=1) / math.sqrt(n))
    assert summary.gap.ceiling == 0
    assert summary.rmse.mean == pytest.approx(math.sqrt(mse.mean()))
    assert summary.crps.mean == pytest.approx(scores.crps.mean().item())
    assert summary.coverage["95"].mean == pytest.approx(scores.covered[:, 2].mean().item())
    error = np.abs(scores.pit_below.numpy().mean(0) - np.array(LEVELS)).mean()
    assert summary.calibration_error == pytest.approx(error)
    assert summarise(scores).gap is None
    with pytest.raises(ValueError, match="one number for each of the 40 tasks, got 3"):
        summarise(scores, best[:3])


def test_standard_errors_are_over_groups():
    """Re-splits of one day are no new days: the error of their mean is that of resampling whole days."""
    rng = np.random.default_rng(0)
    scores = made_up(200)
    day = np.repeat(np.arange(20), 10)
    values = torch.from_numpy(rng.normal(size=20)[day] + 0.1 * rng.normal(size=200))
    scores = scores._replace(log_likelihood=values)
    summary = strict(summarise(scores, origins=torch.from_numpy(day)))
    means = values.reshape(20, 10).mean(1).numpy()
    assert summary.groups == 20
    assert summary.log_likelihood.mean == pytest.approx(means.mean())
    assert summary.log_likelihood.standard_error == pytest.approx(means.std(ddof=1) / math.sqrt(20))
    assert summary.log_likelihood.standard_error > 2.5 * summarise(scores).log_likelihood.standard_error
    alone = summarise(scores, origins=torch.arange(200))
    assert alone.crps.standard_error == pytest.approx(summarise(scores).crps.standard_error)
    assert summarise(scores, origins=torch.zeros(200, dtype=torch.int64)).crps.standard_error is None
    again = [values.reshape(20, 10)[rng.integers(20, size=20)].mean().item() for _ in range(2000)]
    assert summary.log_likelihood.standard_error == pytest.approx(np.std(again), rel=0.1)


def test_scores_in_another_unit_are_those_of_predictions_in_it():
    """To rounding, in float64: scoring standardised outputs and converting is scoring in the unit of the data."""
    task = TestSet(GPTask(targets=4), seed=0, tasks=6)

    def predictor(factor):
        def predict(xc, yc, xt, mask=None):
            mean = torch.sin(xt.double())
            return Independent(Normal(factor * mean, factor * (0.5 + mean.abs())), 1)

        return predict

    batches = [replace(batch, yt=batch.yt.double()) for batch in task]
    here = summarise(score(predictor(1.0), batches), unit=Unit("mm", 25.4))
    there = summarise(score(predictor(25.4), [replace(b, yt=25.4 * b.yt) for b in batches]))
    assert here.unit == "mm"
    assert there.unit is None
    for name in ("log_likelihood", "rmse", "crps"):
        one, other = getattr(here, name), getattr(there, name)
        assert one.mean == pytest.approx(other.mean, rel=1e-12)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-10)
    assert here.coverage == there.coverage
    assert here.failures.threshold == pytest.approx(-10 - math.log(25.4))
    assert here.failures.tasks == summarise(score(predictor(1.0), batches)).failures.tasks


def test_error_of_the_rmse_is_that_of_resampling():
    scores = made_up(400)
    mse, rng = scores.squared_error.numpy(), np.random.default_rng(0)
    again = np.sqrt(rng.choice(mse, (2000, 400)).mean(1)).std()
    assert summarise(scores).rmse.standard_error == pytest.approx(again, rel=0.1)


def test_one_task_has_no_standard_error():
    one = Scores(*(value[:1] for value in made_up()))
    summary = strict(summarise(one, one.log_likelihood))
    assert summary.log_likelihood.standard_error is None
    assert summary.gap == Gap(0, None, one.log_likelihood.item())
    exact = summarise(one._replace(squared_error=torch.zeros(1, dtype=torch.float64)))
    assert exact.rmse == Estimate(0, None)


def test_context_bins_double():
    bins = context_bins(torch.tensor([0, 1, 2, 3, 4, 5, 8, 9, 33, 64, 64]))
    counts = {name: int(inside.sum()) for name, inside in bins.items()}
    assert counts == {"0": 1, "1": 1, "2": 1, "3-4": 2, "5-8": 2, "9-16": 1, "33-64": 3}
    scores = made_up()
    summary = summarise(scores, scores.log_likelihood + 1)
    assert sum(s.tasks for s in summary.by_context.values()) == 40
    inside = (scores.context >= 17) & (scores.context <= 32)
    one = summary.by_context["17-32"]
    assert one.log_likelihood.mean == pytest.approx(scores.log_likelihood[inside].mean().item())
    assert one.gap.mean == pytest.approx(1)


def test_failed_tasks_come_to_light():
    ll = torch.zeros(8, dtype=torch.float64)
    ll[2], ll[5], ll[6] = -1000.0, math.nan, -11.0
    scores = made_up(8)._replace(log_likelihood=ll, context=torch.arange(8))
    summary = strict(summarise(scores))
    assert summary.log_likelihood == Estimate(None, None)
    failures = summary.failures
    assert (failures.tasks, failures.not_finite) == (3, 1)
    assert failures.worst[:3] == (TaskScore(5, 5, None), TaskScore(2, 2, -1000.0), TaskScore(6, 6, -11.0))
    assert len(failures.worst) == 5


@pytest.mark.parametrize("mixture", [True, False])
def test_the_best_predictor_has_no_gap(tmp_path, mixture):
    test_set = TestSet(GPTask(**GP, shift=0.25), seed=1, tasks=5, batch_size=4)
    best = best_possible(test_set, mixture, tmp_path)
    scores = score(BayesOptimal(GPTask(**GP), gaussian=not mixture), test_set)
    gap = summarise(scores, best).gap
    assert gap.mean == pytest.approx(0, abs=1e-6)
    assert gap.ceiling == pytest.approx(scores.log_likelihood.mean().item(), abs=1e-6)
    worse = summarise(score(standard_normal, test_set), best).gap
    assert worse.mean > 0.05


def test_what_is_best_is_known_for_single_kernels(tmp_path):
    sums = GPTask(**GP | {"kernels": ("se+periodic", "se")})
    assert best_possible(TestSet(sums, 1, 2), True, tmp_path) is None
    assert best_possible(Ragged().test_sets()["test"], True, tmp_path) is None
    assert best_possible(TestSet(GPTask(**GP), 1, 2), True, tmp_path) is not None
    assert best_possible(TestSet(GPTask(**GP | {"kernels": ["se"]}), 1, 2), True, tmp_path) is not None
    assert len(list(tmp_path.iterdir())) == 1  # lists, as JSON has them, are the same task


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Ceilings are kept here, not in the user's cache."""
    monkeypatch.setattr("shiftnp.tasks.ceiling.pooch.os_cache", lambda name: str(tmp_path / "cache"))


def make_run(folder, step=5, **changes):
    sizes = {"dz": SMALL["dz"], "hidden": 1}
    training = Training(steps=5, seed=3)
    run = Run.create(folder, RunConfig("cnp", "gp-1d", training, sizes, dict(GP), **changes))
    save(run, step)
    return run


def save(run, step, factor=1.0):
    weights = {name: factor * value for name, value in run.new_model().state_dict().items()}
    run.save({"step": step}, weights)


def test_a_run_is_evaluated(tmp_path, cache):
    run = make_run(tmp_path / "run")
    assert read_evaluation(run) is None
    result = evaluate(run, ["delta-0.0", "delta-1.0"], tasks=5, quiet=True)
    assert result == read_evaluation(run) == read_evaluation(Run.open(run.folder))
    assert [p.name for p in run.folder.glob("*evaluation*")] == ["evaluation.json"]
    assert is_current(run, result)
    assert json.loads((run.folder / "evaluation.json").read_text())["format"] == 2
    assert (result.label, result.model, result.task, result.seed) == ("cnp", "cnp", "gp-1d", 3)
    assert (result.step, result.steps, result.tasks, result.is_finished) == (5, 5, 5, True)
    assert result.machine.torch == torch.__version__
    assert list(result.sets) == ["delta-0.0", "delta-1.0"]
    near, far = result.sets.values()
    assert near.tasks == far.tasks == 5
    assert near.gap.ceiling == pytest.approx(far.gap.ceiling)
    expected = score(run.model(), replace(run.task.test_sets()["delta-1.0"], tasks=5))
    assert far.log_likelihood.mean == pytest.approx(expected.log_likelihood.mean().item())
    assert near.gap.mean > 0


def test_all_sets_but_valid_by_default(tmp_path):
    result = evaluate(make_run(tmp_path / "run"), tasks=2, quiet=True, gap=False)
    assert list(result.sets) == [f"delta-{i / 5:.1f}" for i in range(6)]
    assert result.sets["delta-0.0"].gap is None


def test_evaluations_of_the_same_weights_are_merged(tmp_path):
    run = make_run(tmp_path / "run")

    def sets(*names, tasks=2):
        return list(evaluate(run, names, tasks, quiet=True, gap=False).sets)

    assert sets("delta-0.4") == ["delta-0.4"]
    kept = read_evaluation(run).sets["delta-0.4"]
    assert sets("delta-0.2") == ["delta-0.2", "delta-0.4"]  # in the order of the task
    assert read_evaluation(run).sets["delta-0.4"] == kept
    assert sets("delta-0.0", tasks=3) == ["delta-0.0"]
    save(run, step=5, factor=0.5)
    assert not is_current(run, read_evaluation(run))
    assert sets("delta-0.2", tasks=3) == ["delta-0.2"]
    assert is_current(run, read_evaluation(run))


def test_scores_on_more_tasks_are_kept(tmp_path, monkeypatch, capsys):
    """A quick look on a few tasks prints its scores and leaves the file alone, unless the weights are new."""
    run = make_run(tmp_path / "run")
    evaluate(run, ["delta-0.0"], tasks=3, quiet=True, gap=False)
    full = (run.folder / "evaluation.json").read_bytes()
    with pytest.warns(UserWarning, match=r"evaluation.json is kept, with its scores on 3 tasks of each test set"):
        result = evaluate(run, ["delta-0.2"], tasks=2, quiet=True, gap=False)
    assert [(name, summary.tasks) for name, summary in result.sets.items()] == [("delta-0.2", 2)]
    assert (run.folder / "evaluation.json").read_bytes() == full
    command = ["shiftnp", "evaluate", str(run.folder), "--sets", "delta-0.2", "--tasks", "2", "--no-gap"]
    monkeypatch.setattr("sys.argv", command)
    main()
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        f"{run.folder}/evaluation.json is kept, with its scores on 3 tasks of each test set, more than 2."
    ]
    assert "delta-0.2" in said.out
    assert (run.folder / "evaluation.json").read_bytes() == full
    save(run, step=5, factor=0.5)
    evaluate(run, ["delta-0.0"], tasks=2, quiet=True, gap=False)
    assert read_evaluation(run).tasks == 2


def test_the_experiment_says_which_sets(tmp_path, monkeypatch):
    own = SimpleNamespace(test_sets=lambda task: {"mine": TestSet(task, seed=7, tasks=3)})
    monkeypatch.setattr("shiftnp.experiments.EXPERIMENTS", {"known": own})
    run = make_run(tmp_path / "a", experiment="known")
    result = evaluate(run, quiet=True, gap=False, test_sets=evaluation_sets(run))
    assert list(result.sets) == ["mine"]
    assert (result.sets["mine"].tasks, result.tasks) == (3, None)
    unknown = make_run(tmp_path / "b", experiment="gone")
    assert evaluation_sets(unknown).keys() == unknown.task.test_sets().keys() - {"valid"}


def test_an_unfinished_run_says_so(tmp_path):
    result = evaluate(make_run(tmp_path / "run", step=2), ["delta-0.0"], tasks=2, quiet=True, gap=False)
    assert not result.is_finished
    assert "cnp: training is not finished, 2 of 5 steps. These figures are not final." in shown([result])


def test_baselines_report_their_fits(tmp_path):
    pytest.importorskip("gpytorch")
    config = RunConfig("gp", "gp-1d", Training(steps=0), {"iterations": 3}, dict(GP))
    run = Run.create(tmp_path / "gp", config)
    for name in ("delta-0.0", "delta-0.2", "delta-0.2"):
        result = evaluate(run, [name], tasks=3, quiet=True, gap=False)
    assert result.fits["fits"] == 6  # three tasks of two sets
    assert result.is_finished
    assert is_current(run, result)


def test_bad_requests_and_broken_folders_are_refused(tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"no test set of cnp named 'delta-0.3': did you mean 'delta-0.\d'"):
        evaluate(run, ["delta-0.3"], quiet=True)
    with pytest.raises(ValueError, match="tasks must be a whole number of at least 1, got 0"):
        evaluate(run, tasks=0, quiet=True)
    evaluate(run, ["delta-0.0"], tasks=2, quiet=True, gap=False)
    assert list(read_evaluation(run).sets) == ["delta-0.0"]
    weights = run.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        evaluate(run, quiet=True)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="has no weights yet"):
        evaluate(run, quiet=True)


def test_validation_and_evaluation_give_the_same_log_likelihoods():
    batches = list(Ragged().test_sets()["test"])
    model = Run(Path(), RunConfig("cnp", "gp-1d", model_settings={"dz": 16, "hidden": 1})).new_model()
    tasks = list(TestSet(GPTask(**GP), seed=1, tasks=10, batch_size=4))
    torch.testing.assert_close(log_likelihoods(model, tasks), score(model, tasks).log_likelihood, rtol=1e-5, atol=1e-6)
    whole = log_likelihoods(standard_normal, batches)
    torch.testing.assert_close(whole, score(standard_normal, batches).log_likelihood, rtol=1e-6, atol=1e-6)
    assert whole.dtype == torch.float64
    assert not log_likelihoods(model, tasks).requires_grad
    shards = [log_likelihoods(standard_normal, batches, shard=(rank, 2)) for rank in (0, 1)]
    assert torch.equal(shards[0] + shards[1], whole)
    assert not shards[0][4:8].any()
    assert not shards[1][:4].any()


def damage(run, change):
    """Changes the entries of evaluation.json and returns what reading it says then."""
    path = run.folder / "evaluation.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"evaluation.json .*: evaluate again with `shiftnp evaluate") as caught:
        read_evaluation(run)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.update(format=1), "it is of format 1, not 2"),
        (lambda data: data.update(format=9), "it is of format 9, not 2"),
        (lambda data: data.pop("step"), "step is missing"),
        (lambda data: data.update(step="5"), "step must be a whole number, got '5'"),
        (lambda data: data.update(seed=True), "seed must be a whole number, got True"),
        (lambda data: data.update(preset=3.5), "preset must be text, got 3.5"),
        (lambda data: data.update(changes="dz=3"), "changes must be a list, got 'dz=3'"),
        (lambda data: data["machine"].pop("torch"), "machine.torch is missing"),
        (lambda data: data.update(sets=[]), "sets must be an object, got []"),
        (lambda data: data["sets"].update(more=3), "sets.more must be an object, got 3"),
        (lambda data: data["sets"]["delta-0.0"].pop("crps"), "sets.delta-0.0.crps is missing"),
        (
            lambda data: data["sets"]["delta-0.0"]["rmse"].update(mean=math.inf),
            "sets.delta-0.0.rmse.mean must be a finite number, got inf",
        ),
        (lambda data: data["sets"]["delta-0.0"]["by_context"].update(x={}), "by_context.x.tasks is missing"),
        (
            lambda data: data["sets"]["delta-0.0"]["by_context"].update(
                x={"tasks": 1, "log_likelihood": {"mean": 1, "standard_error": None}}
            ),
            "a bin of by_context must be named like 3-4, got 'x'",
        ),
    ],
)
def test_a_damaged_evaluation_says_which_entry(tmp_path, change, words):
    run = make_run(tmp_path / "run")
    evaluate(run, ["delta-0.0"], tasks=2, quiet=True, gap=False)
    said = damage(run, change)
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", "[" * 100_000, '{"format": 2, "label": ' + "[" * 900 + "]" * 900 + "}"]
)
def test_an_evaluation_that_is_no_json_gets_one_sentence(tmp_path, text):
    run = make_run(tmp_path / "run")
    (run.folder / "evaluation.json").write_text(text)
    with pytest.raises(ValueError, match=r"evaluation.json .*: evaluate again with `shiftnp evaluate"):
        read_evaluation(run)
    evaluate(run, ["delta-0.0"], tasks=2, quiet=True, gap=False)
    assert list(read_evaluation(run).sets) == ["delta-0.0"]


def test_results_come_back_from_json():
    result = evaluation("a (laptop)", seed=3)
    assert Evaluation.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


def test_a_folder_that_cannot_be_written_still_gives_results(tmp_path, monkeypatch, capsys):
    run = make_run(tmp_path / "run")

    def refuse(path, data):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("shiftnp.runs.evaluate.write_json", refuse)
    with pytest.warns(UserWarning, match=r"evaluation.json cannot be written \(Permission denied\)"):
        result = evaluate(run, ["delta-0.0", "delta-0.2"], tasks=2, quiet=True, gap=False)
    assert list(result.sets) == ["delta-0.0", "delta-0.2"]
    assert read_evaluation(run) is None
    monkeypatch.setattr("sys.argv", ["shiftnp", "evaluate", str(run.folder), "--tasks", "2", "--no-gap"])
    main()
    said = capsys.readouterr()
    assert "cnp on gp-1d: 2 tasks" in said.out
    assert said.err.startswith(f"{run.folder}/evaluation.json cannot be written (Permission denied)")
    assert len(said.err.splitlines()) == 1


def test_mistakes_in_the_command_and_files_for_folders(tmp_path, monkeypatch, capsys):
    folders = [str(make_run(tmp_path / name).folder) for name in ("a", "b")]
    for runs in (folders[:1], folders):
        monkeypatch.setattr("sys.argv", ["shiftnp", "evaluate", *runs, "--sets", "nope"])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert "no test set of cnp named 'nope'" in capsys.readouterr().err
    with pytest.raises(OSError, match=rf"a/config.json is a file: name the folder of a run, {folders[0]}\."):
        Run.open(tmp_path / "a/config.json")
    (tmp_path / "t.csv").touch()
    with pytest.raises(OSError, match=r"t.csv is a file: name the folder of a run\."):
        Run.open(tmp_path / "t.csv")


def test_one_bad_run_does_not_cost_the_evaluation_of_others(tmp_path, monkeypatch, capsys):
    good, bad, deep = (make_run(tmp_path / name) for name in ("good", "bad", "deep"))
    (bad.folder / "model.safetensors").write_bytes(b"cut short")
    (deep.folder / "config.json").write_text("[" * 100_000)
    folders = [str(run.folder) for run in (deep, bad, good)]
    monkeypatch.setattr("sys.argv", ["shiftnp", "evaluate", *folders, "--tasks", "2", "--no-gap"])
    with pytest.raises(SystemExit, match=r"2 of 3 runs could not be evaluated"):
        main()
    said = capsys.readouterr()
    assert "cnp on gp-1d: 2 tasks" in said.out
    inside = str(good.folder / "config.json" / "all.json")
    monkeypatch.setattr("sys.argv", ["shiftnp", "evaluate", folders[2], "--tasks", "2", "--no-gap", "--out", inside])
    with pytest.raises(SystemExit, match=r"config.json/all.json cannot be written \(File exists\)"):
        main()
    assert [line.split(":")[0] for line in said.err.splitlines()] == [f"Left out {f}" for f in folders[:2]]


# --- tables ----------------------------------------------------------------------------------------------------------


def shown(evaluations, width=100):
    file = io.StringIO()
    print_tables(evaluations, Console(width=width, file=file))
    return file.getvalue()


def evaluation(label, seed=0, step=5, **changes):
    scores = made_up(400, seed)
    scores = scores._replace(context=scores.context**2, **changes)  # many bins
    summary = summarise(scores, scores.log_likelihood + 0.25)
    return Evaluation(
        label=label,
        experiment="gp-1d",
        row="te-tnp",
        preset="laptop",
        task="gp-1d",
        model="te-tnp",
        changes=("dz=8",),
        seed=seed,
        step=step,
        steps=5,
        weights="0123",
        tasks=None,
        machine=Machine("abacus", "cpu", 1, "2.0"),
        sets={"near": summary, "far": summary},
    )


def test_one_run_has_its_sets_as_rows():
    text = shown([evaluation("te-tnp (laptop, learning_rate=0.001)", step=2)])
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert "te-tnp (laptop, learning_rate=0.001) on gp-1d: 400 tasks" in text
    assert "0.250 ± 0.000" in text  # the gap
    assert "1025-2048" in text
    assert "training is not finished, 2 of 5 steps" in text
    assert sum(line.startswith("near ") for line in text.splitlines()) == 3  # figures, and two tables of context sizes


def test_control_characters_are_written_out():
    text = shown([evaluation("\x1b[31mred\x07 (\x9b2J)"), evaluation("b", seed=1)])
    assert "\\x1b[31mred\\x07 (\\x9b2J)" in text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_several_runs_are_rows_of_each_set():
    absurd = torch.linspace(-3e5, 0, 400, dtype=torch.float64)
    runs = [
        evaluation("te-tnp (laptop)"),
        evaluation("te-tnp (laptop)", seed=1),
        evaluation("gp", seed=2, log_likelihood=absurd),
    ]
    text = shown(runs)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert "gp-1d, near: 400 tasks" in text
    assert "te-tnp (laptop), seed 1" in text
    assert "gp [3]: 399 of 400 tasks of far score less than -10 per target; the worst, task 0 with" in text
    assert "-3e+05; the median is -1.5e+05." in " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100])
def test_tables_fit_and_long_names_go_to_a_legend(width):
    labels = ["te-pt-tnp-m32 (laptop, steps=60, dz=32, layers=2)", "tnp (laptop, steps=60)"]
    lines = shown([evaluation(label, seed) for seed, label in enumerate(labels)], width).splitlines()
    assert max(map(len, lines)) <= width
    assert "[1] te-pt-tnp-m32 (laptop, steps=60, dz=32, layers=2), seed 0" in lines
    assert "[2] tnp (laptop, steps=60), seed 1" in [line.rstrip() for line in lines]
    rows = [line for line in lines if re.match(r"te-pt-tnp-m32 \[1\] +-?\d", line)]
    tables = sum(line.startswith("───") for line in lines)
    assert len(rows) == tables  # each in one piece
    alone = shown([evaluation(labels[0])], width).splitlines()
    assert max(map(len, alone)) <= width
    assert {line.split()[0] for line in alone if line[:1] in ("n", "f")} == {"near", "far"}


def test_known_and_new_places_are_scored_apart(tmp_path, monkeypatch):
    """A run on a table of stations: both kinds of places, in units of the table, and a word if intervals are narrow."""
    pd = pytest.importorskip("pandas")
    r = np.random.default_rng(0)
    place, day = r.uniform(0, 5, (12, 2)), np.repeat(np.arange(20), 12)
    frame = pd.DataFrame({"x": np.tile(place[:, 0], 20), "y": np.tile(place[:, 1], 20), "day": day})
    frame["name"], frame["t"] = np.tile(np.arange(12), 20), 100 + 7 * r.normal(size=240)
    frame.to_csv(tmp_path / "t.csv", index=False)
    roles = {"inputs": ("x", "y"), "outputs": ("t",), "group": "day", "station": "name"}
    settings = {"path": str(tmp_path / "t.csv"), **roles}
    small = {k: v for k, v in SMALL.items() if k in ("dz", "heads", "head_dim")}
    config = RunConfig("tnp", "table", Training(steps=0), {**small, "layers": 1}, settings)
    run = Run.create(tmp_path / "run", config)
    run.save({"step": 0}, run.new_model().state_dict())
    result = evaluate(run, tasks=32, quiet=True)
    assert list(result.sets) == ["known-places", "new-places"]
    for summary in result.sets.values():
        assert summary.groups == 4
        assert summary.unit == "t"
        assert 4 < summary.rmse.mean < 20  # the outputs have a standard deviation of 7
    assert read_evaluation(run) == result
    new = result.sets["new-places"]
    narrow = replace(new, coverage={**new.coverage, "90": Estimate(0.72, 0.02)})
    text = io.StringIO()
    print_tables([replace(result, sets={**result.sets, "new-places": narrow})], Console(file=text, width=200))
    assert "32 tasks of 4 groups, in units of t" in text.getvalue()
    assert "90 % intervals cover 72% at new places" in text.getvalue()
