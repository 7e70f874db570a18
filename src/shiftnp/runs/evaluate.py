"""Evaluation of a run on its test sets: metrics with standard errors over tasks, or over the groups of a table.

`shiftnp.runs.scoring.score` computes metrics for each task, `summarise` averages them over tasks, `evaluate` does both
for a run and writes `evaluation.json` to its folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shlex
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._machine import commit, processor
from shiftnp._progress import progress
from shiftnp._registry import choose
from shiftnp.baselines.gp import GPBaseline
from shiftnp.metrics import COVERAGE, calibration_error
from shiftnp.models import NeuralProcess
from shiftnp.runs.results import FAILED, BinSummary, Estimate, Evaluation, Failures, Gap, Machine, SetSummary, TaskScore
from shiftnp.runs.run import Run
from shiftnp.runs.scoring import Scores, score
from shiftnp.tasks import TestSet
from shiftnp.tasks.base import Unit, reported_test_sets

# --- metrics of a test set -------------------------------------------------------------------------------------------


def summarise(
    scores: Scores,
    best: Float[Tensor, " n"] | None = None,
    origins: Int[Tensor, " n"] | None = None,
    unit: Unit | None = None,
) -> SetSummary:
    """Mean metrics of a test set, with standard errors over tasks.

    Args:
        best: log-likelihood per target of the best possible predictor on the same tasks. The mean difference to it is
            `gap`, whose standard error is far smaller than that of the log-likelihood itself.
        origins: number of the group of observations that each task is made from; standard errors are over groups.
            None: tasks are independent.
        unit: the unit of the results, if it is not that of the scores.
    """
    shift = 0.0 if unit is None else -math.log(unit.factor)  # of log densities
    scores = scores if unit is None else in_unit(scores, unit)
    best = None if best is None else best + shift
    ll = scores.log_likelihood
    if best is not None and len(best) != len(ll):
        raise ValueError(f"best must have one number for each of the {len(ll)} tasks, got {len(best)}.")
    mse = estimate(scores.squared_error, origins)
    rmse = math.nan if mse.mean is None else math.sqrt(mse.mean)
    # By the delta method: d sqrt(m) = dm / 2 sqrt(m).
    rmse_error = math.nan if mse.standard_error is None or rmse == 0 else mse.standard_error / (2 * rmse)
    return SetSummary(
        tasks=len(ll),
        log_likelihood=estimate(ll, origins),
        gap=gap_to(best, ll, origins),
        median_log_likelihood=number(ll.quantile(0.5)),
        rmse=Estimate(number(rmse), number(rmse_error)),
        crps=estimate(scores.crps, origins),
        coverage={name: estimate(scores.covered[:, i], origins) for i, name in enumerate(COVERAGE)},
        calibration_error=number(calibration_error(scores.pit_below)),
        pit_below=tuple(number(share) for share in scores.pit_below.mean(0)),
        by_context={
            name: BinSummary(int(rows.sum()), estimate(ll, origins, rows), gap_to(best, ll, origins, rows))
            for name, rows in context_bins(scores.context).items()
        },
        failures=failures(scores, FAILED + shift),
        groups=None if origins is None else len(origins.unique()),
        unit=None if unit is None else unit.name,
    )


def in_unit(scores: Scores, unit: Unit) -> Scores:
    """Scores of predictions of one output in another unit."""
    return scores._replace(
        log_likelihood=scores.log_likelihood - math.log(unit.factor),
        squared_error=scores.squared_error * unit.factor**2,
        crps=scores.crps * unit.factor,
    )


def estimate(
    values: Float[Tensor, " n"],
    origins: Int[Tensor, " n"] | None = None,
    rows: Bool[Tensor, " n"] | slice = slice(None),
) -> Estimate:
    """Mean over tasks and its standard error.

    With groups of tasks (`origins`), the error is that of a mean over groups, whose tasks may be correlated: the root
    of `m / (m - 1) sum_g (sum_i in g (v_i - mean))^2 / n^2` for `n` tasks of `m` groups. For groups of one task it is
    the usual one.

    Args:
        rows: the tasks that count.
    """
    values = values[rows]
    mean = values.mean()
    if origins is None:
        error = values.std() / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return Estimate(number(mean), number(error))
    group = origins[rows].unique(return_inverse=True)[1]
    m = int(group.max()) + 1
    sums = torch.zeros(m, dtype=values.dtype).index_add_(0, group, values - mean)
    error = (sums.square().sum() * m / (m - 1)).sqrt() / len(values) if m > 1 else math.nan
    return Estimate(number(mean), number(error))


def gap_to(
    best: Float[Tensor, " n"] | None,
    values: Float[Tensor, " n"],
    origins: Int[Tensor, " n"] | None = None,
    rows: Bool[Tensor, " n"] | slice = slice(None),
) -> Gap | None:
    """Mean difference between the log-likelihoods of the best possible predictor and `values`; None if `best` is."""
    if best is None:
        return None
    below = estimate(best - values, origins, rows)
    return Gap(below.mean, below.standard_error, number(best[rows].mean()))


def failures(scores: Scores, threshold: float = FAILED) -> Failures:
    """Number of failed tasks, and the five tasks with the lowest log-likelihood."""
    ll = scores.log_likelihood
    worst = ll.nan_to_num(nan=-math.inf, neginf=-math.inf).argsort(stable=True)[:5].tolist()
    return Failures(
        threshold=threshold,
        tasks=int((~(ll >= threshold)).sum()),  # NaN counts as failed
        not_finite=int((~ll.isfinite()).sum()),
        worst=tuple(TaskScore(i, int(scores.context[i]), number(ll[i])) for i in worst),
    )


def number(value: Tensor | float) -> float | None:
    """A finite number, or None, because JSON has neither NaN nor infinity."""
    return float(value) if math.isfinite(value) else None


def context_bins(context: Int[Tensor, " n"]) -> dict[str, Bool[Tensor, " n"]]:
    """Masks of the tasks in each bin of context sizes: 0, 1, 2, 3-4, 5-8, 9-16, ..., without empty bins."""
    bins, low, high = {}, 0, 0
    while low <= int(context.max()):
        inside = (context >= low) & (context <= high)
        if inside.any():
            bins[str(low) if low == high else f"{low}-{high}"] = inside
        low, high = high + 1, max(1, 2 * high)
    return bins


def best_possible(test_set: TestSet, mixture: bool, folder: Path | None = None) -> Float[Tensor, " n"] | None:
    """Log-likelihood per target of the best possible predictor on each task; None if it is not known.

    Args:
        mixture: use the best mixture, for models that predict mixtures; otherwise the best Gaussian.
        folder: folder in which the result is cached. None: the user's cache.
    """
    return test_set.task.ceiling(test_set, mixture, folder)


# --- runs ------------------------------------------------------------------------------------------------------------


def evaluate(
    run: Run,
    sets: Sequence[str] | None = None,
    tasks: int | None = None,
    device: torch.device | str = "cpu",
    quiet: bool = False,
    gap: bool = True,
    warn: Callable[[str], object] = warnings.warn,
    test_sets: Mapping[str, TestSet] | None = None,
) -> Evaluation:
    """Evaluates a run on test sets and writes the metrics to `evaluation.json` in its folder.

    Results of other test sets with the same weights and the same `tasks` are kept in the file. If it holds results of
    the same weights on more tasks, it is left as it is.

    Args:
        sets: names of test sets; None: all.
        tasks: number of tasks of each test set to use; None: all.
        quiet: show no progress bar.
        gap: compare with the best possible predictor if it is known. Computing it takes minutes, but only once.
        warn: called with a message if `evaluation.json` is not written; the results are still returned.
        test_sets: the test sets, by name. None: those of the run's task. `shiftnp.experiments.evaluation_sets(run)`
            gives those of its experiment.
    """
    if tasks is not None and tasks < 1:
        raise ValueError(f"tasks must be a whole number of at least 1, got {tasks}.")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used here: {str(error).splitlines()[0]}") from error
    known = reported_test_sets(run.task) if test_sets is None else test_sets
    if not known:
        raise ValueError(f"The task {run.config.task} has no test sets to evaluate {run.folder} on.")
    chosen = {name: choose(name, known, f"test set of {run.config.label}") for name in sets or known}
    if tasks is not None:
        chosen = {name: replace(test_set, tasks=min(tasks, test_set.tasks)) for name, test_set in chosen.items()}
    result, model = describe(run, tasks, device), run.model(device)
    while describe(run, tasks, device) != result:  # a training process has just written newer weights
        result, model = describe(run, tasks, device), run.model(device)
    mixture = isinstance(model, NeuralProcess) and model.likelihood.ceiling == "mixture"
    best = {name: best_possible(test_set, mixture) if gap else None for name, test_set in chosen.items()}
    done: dict[str, SetSummary] = {}
    path, more = run.folder / "evaluation.json", False
    with contextlib.suppress(ValueError, OSError):  # a file that cannot be read is overwritten
        before = read_evaluation(run)
        if before is not None and before.weights == result.weights:
            done = before.sets if before.tasks == tasks else {}
            more = tasks is not None and (before.tasks is None or before.tasks > tasks)
            if more:
                had = "all tasks" if before.tasks is None else f"{before.tasks:,} tasks"
                warn(f"{path} is kept, with its scores on {had} of each test set, more than {tasks:,}.")
    unwritten: OSError | None = None
    with progress(quiet=quiet) as shown:
        bar = shown.add_task("", total=sum(test_set.tasks for test_set in chosen.values()))
        for name, test_set in chosen.items():
            shown.update(bar, description=name)
            start = time.perf_counter()
            scores = score(model, test_set, device, lambda n: shown.advance(bar, n))
            task = test_set.task
            summary = summarise(scores, best[name], task.origins(test_set), task.unit)
            summary = replace(summary, seconds=round(time.perf_counter() - start, 2))
            if isinstance(model, GPBaseline):
                summary = replace(summary, fits=dict(model.report))
                model.report.clear()
            done = {**done, name: summary}
            result = replace(result, sets={key: done[key] for key in known if key in done})
            try:  # after each test set, so that an interruption loses little
                if not more:
                    write_json(path, result.to_json())
            except OSError as error:
                unwritten = error
    if unwritten is not None:
        warn(f"{path} cannot be written ({unwritten.strerror or unwritten}), so the results are not saved.")
    return result


def describe(run: Run, tasks: int | None, device: torch.device | str) -> Evaluation:
    """An evaluation without test sets: the run, its weights and the machine."""
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
        steps=run.steps,
        weights=fingerprint(run),
        tasks=tasks,
        machine=Machine(
            processor=processor(),
            device=str(device),
            threads=torch.get_num_threads(),
            torch=str(torch.__version__),
        ),
        sets={},
        commit=commit(),
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
    """Whether an evaluation is of the run's current weights."""
    return evaluation.weights == fingerprint(run)
