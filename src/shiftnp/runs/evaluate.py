"""A run on its test sets: figures with standard errors over tasks.

`shiftnp.runs.scoring.score` gives numbers for each task, `summarise` turns them into the figures of a table, `evaluate`
does both for a run and keeps them in its folder as `evaluation.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._progress import progress
from shiftnp._registry import choose
from shiftnp.baselines.gp import GPBaseline
from shiftnp.bench.machine import processor
from shiftnp.metrics import calibration_error
from shiftnp.models import NeuralProcess
from shiftnp.runs.results import FAILED, BinSummary, Estimate, Evaluation, Failures, Gap, Machine, SetSummary, TaskScore
from shiftnp.runs.run import Run
from shiftnp.runs.scoring import COVERAGE, Scores, score
from shiftnp.tasks import GPTask, TestSet
from shiftnp.tasks.ceiling import ceiling

# --- from tasks to figures -------------------------------------------------------------------------------------------


def summarise(scores: Scores, best: Float[Tensor, " n"] | None = None) -> SetSummary:
    """The figures of a table.

    Args:
        best: log-likelihood per target of the best possible predictor on the same tasks. Then `gap` says how far below
            it the predictor is, task by task, which has far less noise than the score itself.
    """
    ll = scores.log_likelihood
    if best is not None and len(best) != len(ll):
        raise ValueError(f"best must have one number for each of the {len(ll)} tasks, got {len(best)}.")
    mse = estimate(scores.squared_error)
    rmse = math.nan if mse.mean is None else math.sqrt(mse.mean)
    # By the delta method: d sqrt(m) = dm / 2 sqrt(m).
    rmse_error = math.nan if mse.standard_error is None or rmse == 0 else mse.standard_error / (2 * rmse)
    return SetSummary(
        tasks=len(ll),
        log_likelihood=estimate(ll),
        gap=gap_to(best, ll),
        median_log_likelihood=number(ll.quantile(0.5)),
        rmse=Estimate(number(rmse), number(rmse_error)),
        crps=estimate(scores.crps),
        coverage={name: estimate(scores.covered[:, i]) for i, name in enumerate(COVERAGE)},
        calibration_error=number(calibration_error(scores.pit_below)),
        pit_below=tuple(number(share) for share in scores.pit_below.mean(0)),
        by_context={
            name: BinSummary(int(rows.sum()), estimate(ll[rows]), gap_to(best, ll, rows))
            for name, rows in context_bins(scores.context).items()
        },
        failures=failures(scores),
    )


def estimate(values: Float[Tensor, " n"]) -> Estimate:
    """Mean over tasks and its standard error."""
    error = values.std() / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Estimate(number(values.mean()), number(error))


def gap_to(
    best: Float[Tensor, " n"] | None, values: Float[Tensor, " n"], rows: Bool[Tensor, " n"] | slice = slice(None)
) -> Gap | None:
    """How far below the best possible predictor some log-likelihoods are; None if that is not known."""
    if best is None:
        return None
    below = estimate((best - values)[rows])
    return Gap(below.mean, below.standard_error, number(best[rows].mean()))


def failures(scores: Scores) -> Failures:
    """How many tasks failed, and the five with the lowest log-likelihood."""
    ll = scores.log_likelihood
    worst = ll.nan_to_num(nan=-math.inf, neginf=-math.inf).argsort(stable=True)[:5].tolist()
    return Failures(
        threshold=FAILED,
        tasks=int((~(ll >= FAILED)).sum()),  # NaN is no better
        not_finite=int((~ll.isfinite()).sum()),
        worst=tuple(TaskScore(i, int(scores.context[i]), number(ll[i])) for i in worst),
    )


def number(value: Tensor | float) -> float | None:
    """A finite number, or None: JSON knows no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None


def context_bins(context: Int[Tensor, " n"]) -> dict[str, Bool[Tensor, " n"]]:
    """Which tasks belong to which bin of context sizes: 0, 1, 2, 3-4, 5-8, 9-16, ..., without empty bins."""
    bins, low, high = {}, 0, 0
    while low <= int(context.max()):
        inside = (context >= low) & (context <= high)
        if inside.any():
            bins[str(low) if low == high else f"{low}-{high}"] = inside
        low, high = high + 1, max(1, 2 * high)
    return bins


def best_possible(test_set: TestSet, mixture: bool, folder: Path | None = None) -> Float[Tensor, " n"] | None:
    """Log-likelihood per target of the best possible predictor, task by task; None where it is not known.

    It is known for Gaussian processes without sums of kernels. It is computed once for each number of tasks: the tasks
    of a shorter test set need not be the first of a longer one, because a last batch of another size is drawn anew.

    Args:
        mixture: compare with the best mixture, for models that predict mixtures; else with the best Gaussian.
        folder: where the result is cached. None: the user's cache.
    """
    task = test_set.task
    if not isinstance(task, GPTask) or any("+" in kernel for kernel in task.kernels):
        return None
    # A task that comes from JSON has lists; with tuples it finds what was worked out for the same task before.
    values = {field.name: getattr(task, field.name) for field in fields(task)}
    lists: dict[str, Any] = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    known = ceiling(replace(test_set, task=replace(task, **lists)), folder)
    return known.mixture if mixture else known.gaussian


# --- runs ------------------------------------------------------------------------------------------------------------


def evaluate(
    run: Run,
    sets: Sequence[str] | None = None,
    tasks: int | None = None,
    device: torch.device | str = "cpu",
    quiet: bool = False,
    gap: bool = True,
    warn: Callable[[str], object] = warnings.warn,
) -> Evaluation:
    """Evaluates a run on the test sets of its experiment and keeps the figures in its folder, as `evaluation.json`.

    Test sets that were evaluated before, with the same weights and the same `tasks`, stay beside the new ones.

    Args:
        sets: names of test sets; None: all.
        tasks: how many tasks of each test set to use; None: all.
        quiet: show no progress.
        gap: compare with the best possible predictor where it is known. Finding it takes minutes, but only once.
        warn: is called with a sentence if `evaluation.json` cannot be written; the results are returned all the same.
    """
    if tasks is not None and tasks < 1:
        raise ValueError(f"tasks must be a whole number of at least 1, got {tasks}.")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used here: {str(error).splitlines()[0]}") from error
    known = sets_of(run)
    if not known:
        raise ValueError(f"The task {run.config.task} has no test sets to evaluate {run.folder} on.")
    chosen = {name: choose(name, known, f"test set of {run.config.label}") for name in sets or known}
    if tasks is not None:
        chosen = {name: replace(test_set, tasks=min(tasks, test_set.tasks)) for name, test_set in chosen.items()}
    result, model = describe(run, tasks, device), run.model(device)
    while describe(run, tasks, device) != result:  # a training that goes on has just written newer weights
        result, model = describe(run, tasks, device), run.model(device)
    mixture = isinstance(model, NeuralProcess) and model.config["likelihood"] == "mixture"
    best = {name: best_possible(test_set, mixture) if gap else None for name, test_set in chosen.items()}
    done: dict[str, SetSummary] = {}
    with contextlib.suppress(ValueError, OSError):  # a file that cannot be read is written anew
        before = read_evaluation(run)
        if before is not None and (before.weights, before.tasks) == (result.weights, tasks):
            done = before.sets
    unwritten: OSError | None = None
    with progress(quiet=quiet) as shown:
        bar = shown.add_task("", total=sum(test_set.tasks for test_set in chosen.values()))
        for name, test_set in chosen.items():
            shown.update(bar, description=name)
            start = time.perf_counter()
            scores = score(model, test_set, device, lambda n: shown.advance(bar, n))
            summary = replace(summarise(scores, best[name]), seconds=round(time.perf_counter() - start, 2))
            if isinstance(model, GPBaseline):
                summary = replace(summary, fits=dict(model.report))
                model.report.clear()
            done = {**done, name: summary}
            result = replace(result, sets={key: done[key] for key in known if key in done})
            try:  # after each set: what is done is kept
                write_json(run.folder / "evaluation.json", result.to_json())
            except OSError as error:
                unwritten = error
    if unwritten is not None:
        path, why = run.folder / "evaluation.json", unwritten.strerror or unwritten
        warn(f"{path} cannot be written ({why}), so that the results are not kept.")
    return result


def sets_of(run: Run) -> dict[str, TestSet]:
    """The test sets of a run: those of its experiment, or else those of its task."""
    from shiftnp.experiments import EXPERIMENTS
    from shiftnp.experiments.base import own_test_sets

    experiment = EXPERIMENTS.get(run.config.experiment or "")
    return own_test_sets(run.task) if experiment is None else experiment.test_sets(run.task)


def describe(run: Run, tasks: int | None, device: torch.device | str) -> Evaluation:
    """What is evaluated and on what machine, without any test set yet."""
    config = run.config
    return Evaluation(
        label=config.label,
        experiment=config.experiment,
        row=config.row,
        preset=config.preset,
        task=config.task,
        model=config.model,
        changes=tuple(config.changes),
        seed=config.training.seed,
        step=run.step,
        steps=config.training.steps,
        weights=fingerprint(run),
        tasks=tasks,
        machine=Machine(
            processor=processor(),
            device=str(device),
            threads=torch.get_num_threads(),
            torch=str(torch.__version__),
        ),
        sets={},
    )


def fingerprint(run: Run) -> str | None:
    """A checksum of the weights of a run; None if it has none."""
    path = run.folder / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else None


def read_evaluation(run: Run) -> Evaluation | None:
    """The content of `evaluation.json` in the folder of a run; None if the run was not evaluated yet."""
    path = run.folder / "evaluation.json"
    if not path.exists():
        return None
    again = f"evaluate again with `shiftnp evaluate {shlex.quote(str(run.folder))}`."
    try:
        data = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {again}") from error
    try:
        return Evaluation.from_json(data)
    except ValueError as error:
        raise ValueError(f"{path} cannot be used, because {error}: {again}") from error


def is_current(run: Run, evaluation: Evaluation) -> bool:
    """Whether an evaluation is of the weights that the run has now."""
    return evaluation.weights == fingerprint(run)
