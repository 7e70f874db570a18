"""Model x test set -> table with standard errors over tasks.

`score` gives one number per task, `summarise` turns these into the figures of a table, `evaluate` does both for a run
and keeps them in its folder as `evaluation.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.distributions import Distribution

import shiftnp
from shiftnp._io import write_json
from shiftnp._registry import choose
from shiftnp.baselines.gp import GPBaseline
from shiftnp.metrics import calibration_error, coverage, crps, log_likelihood, pit_below, squared_error
from shiftnp.models import NeuralProcess
from shiftnp.runs.run import Run
from shiftnp.tasks import GPTask, TestSet
from shiftnp.tasks.ceiling import ceiling

FORMAT = 1  # of evaluation.json
COVERAGE = {"50": 0.5, "90": 0.9, "95": 0.95}
ABSURD = -10.0  # nats per target: what no sensible prediction scores, and what a mean over tasks can hide
Summary = dict[str, Any]


class Scores(NamedTuple):
    """How good a prediction was, task by task, on the CPU."""

    context: Int[Tensor, " n"]
    """Number of context points that are there."""
    log_likelihood: Float[Tensor, " n"]
    squared_error: Float[Tensor, " n"]
    crps: Float[Tensor, " n"]
    covered: Float[Tensor, "n 3"]
    """Share of targets in the central intervals of `COVERAGE`."""
    pit_below: Float[Tensor, "n 19"]


def score(
    predict: Callable[..., Distribution],
    test_set: TestSet,
    device: torch.device | str = "cpu",
    advance: Callable[[int], object] | None = None,
) -> Scores:
    """Scores of a predictor on all tasks of a test set.

    Args:
        predict: a model or a baseline, `predict(xc, yc, xt, mask_c)`.
        device: where it is.
        advance: called after each batch with its number of tasks, to show progress.
    """
    rows = []
    for batch in test_set:
        batch = batch.to(device)
        yt, mask = batch.yt.double(), batch.mask_t
        if yt.shape[1] == 0 or (mask is not None and not mask.any(-1).all()):
            raise ValueError("A task of the test set has no targets and cannot be scored: leave it out.")
        with torch.no_grad():
            dist = predict(batch.xc, batch.yc, batch.xt, batch.mask_c)
            there = torch.ones_like(batch.xc[..., 0], dtype=torch.bool) if batch.mask_c is None else batch.mask_c
            row = (
                there.sum(-1),
                log_likelihood(dist, yt, mask),
                squared_error(dist, yt, mask),
                crps(dist, yt, mask),
                torch.stack([coverage(dist, yt, level, mask) for level in COVERAGE.values()], -1),
                pit_below(dist, yt, mask),
            )
        rows.append([value.cpu() for value in row])
        if advance is not None:
            advance(len(yt))
    return Scores(*(torch.cat(column) for column in zip(*rows, strict=True)))


# --- from tasks to figures -------------------------------------------------------------------------------------------


def number(value: Tensor | float) -> float | None:
    """A plain number for JSON, which knows no NaN and no infinity: None instead."""
    return float(value) if math.isfinite(value) else None


def mean_and_error(values: Float[Tensor, " n"]) -> dict[str, float | None]:
    """Mean over tasks and its standard error, which one task alone does not have."""
    error = values.std() / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return {"mean": number(values.mean()), "standard_error": number(error)}


def summarise(scores: Scores, best: Float[Tensor, " n"] | None = None) -> Summary:
    """The figures of a table, as plain JSON.

    Args:
        best: log-likelihood per target of the best possible predictor on the same tasks. Then `gap` says how far below
            it the predictor is, task by task, which has far less noise than the score itself.
    """
    ll = scores.log_likelihood
    if best is not None and len(best) != len(ll):
        raise ValueError(f"best must have one number for each of the {len(ll)} tasks, got {len(best)}.")

    def in_short(rows: Tensor | slice = slice(None)) -> Summary:
        figures: Summary = {"tasks": len(ll[rows]), "log_likelihood": mean_and_error(ll[rows])}
        if best is not None:
            figures["gap"] = mean_and_error(best[rows] - ll[rows]) | {"ceiling": number(best[rows].mean())}
        return figures

    mse = mean_and_error(scores.squared_error)
    rmse = math.nan if mse["mean"] is None else math.sqrt(mse["mean"])
    # By the delta method: d sqrt(m) = dm / 2 sqrt(m).
    rmse_error = math.nan if mse["standard_error"] is None or rmse == 0 else mse["standard_error"] / (2 * rmse)
    worst = ll.nan_to_num(nan=-math.inf, neginf=-math.inf).argsort(stable=True)[:5].tolist()
    return in_short() | {
        "median_log_likelihood": number(ll.quantile(0.5)),
        "rmse": {"value": number(rmse), "standard_error": number(rmse_error)},
        "crps": mean_and_error(scores.crps),
        "coverage": {name: mean_and_error(scores.covered[:, i]) for i, name in enumerate(COVERAGE)},
        "calibration_error": number(calibration_error(scores.pit_below)),
        "pit_below": [number(share) for share in scores.pit_below.mean(0)],  # at LEVELS, for a picture of calibration
        "by_context": {name: in_short(rows) for name, rows in context_bins(scores.context).items()},
        "extremes": {
            "threshold": ABSURD,
            "tasks": int((~(ll >= ABSURD)).sum()),  # NaN is no better
            "not_finite": int((~ll.isfinite()).sum()),
            "worst": [{"task": i, "context": int(scores.context[i]), "log_likelihood": number(ll[i])} for i in worst],
        },
    }


def context_bins(context: Int[Tensor, " n"]) -> dict[str, Tensor]:
    """Which tasks have how many context points, in bins that double: 0, 1, 2, 3-4, 5-8, ... as far as there are any."""
    bins, low, high = {}, 0, 0
    while low <= int(context.max()):
        inside = (context >= low) & (context <= high)
        if inside.any():
            bins[str(low) if low == high else f"{low}-{high}"] = inside
        low, high = high + 1, max(1, 2 * high)
    return bins


def best_possible(test_set: TestSet, mixture: bool, folder: Path | None = None) -> Float[Tensor, " n"] | None:
    """Log-likelihood per target, task by task, of the best predictor there can be; None where it is not known.

    It is known for Gaussian processes without sums of kernels, and is worked out once for each number of tasks: those
    of a shorter test set need not be the first of a longer one, as a last batch of another size is drawn otherwise.

    Args:
        mixture: for predictors that return mixtures; else the best Gaussian counts.
        folder: where it is kept. None: the user's cache.
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
) -> dict[str, Any]:
    """Evaluates a run on the test sets of its experiment and keeps the figures in its folder, as `evaluation.json`.

    Sets that were evaluated before, with the same weights and the same `tasks`, stay there beside the new ones.

    Args:
        sets: names of test sets; None: all.
        tasks: only so many of each, to have a quick look.
        quiet: show no progress.
        gap: compare with the best possible predictor where it is known. Finding it takes minutes, but only once.
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
    about, model = describe(run, device), run.model(device)
    while describe(run, device) != about:  # a training that goes on has just written newer weights
        about, model = describe(run, device), run.model(device)
    mixture = isinstance(model, NeuralProcess) and model.config["likelihood"] == "mixture"
    best = {name: best_possible(test_set, mixture) if gap else None for name, test_set in chosen.items()}
    done: dict[str, Summary] = {}
    with contextlib.suppress(ValueError):  # a damaged file is written anew
        before = read_evaluation(run)
        if before is not None and (before["weights"], before["tasks"]) == (about["weights"], tasks):
            done = before["sets"]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=quiet) as progress:
        bar = progress.add_task("", total=sum(test_set.tasks for test_set in chosen.values()))
        for name, test_set in chosen.items():
            progress.update(bar, description=name)
            start = time.perf_counter()
            scores = score(model, test_set, device, lambda n: progress.advance(bar, n))
            done[name] = summarise(scores, best[name]) | {"seconds": round(time.perf_counter() - start, 2)}
            if isinstance(model, GPBaseline):
                done[name]["fits"] = dict(model.report)
                model.report.clear()
            result = about | {"tasks": tasks, "seconds": round(sum(s["seconds"] for s in done.values()), 2)}
            if run.is_baseline:
                result["fits"] = dict(sum((Counter(s["fits"]) for s in done.values()), Counter()))
            result["sets"] = {key: done[key] for key in known if key in done}
            write_json(run.folder / "evaluation.json", result)  # after each set: what is done is kept
    return result


def sets_of(run: Run) -> dict[str, TestSet]:
    """The test sets of a run: those of its experiment, or those that its task names."""
    from shiftnp.experiments import EXPERIMENTS
    from shiftnp.experiments.base import own_test_sets

    experiment = EXPERIMENTS.get(run.config.experiment or "")
    return own_test_sets(run.task) if experiment is None else experiment.test_sets(run.task)


def describe(run: Run, device: torch.device | str) -> dict[str, Any]:
    """What is evaluated, and on what machine."""
    config, step, steps = run.config, run.step, run.config.training.steps
    return {
        "format": FORMAT,
        "shiftnp": shiftnp.__version__,
        "label": config.label,
        **{name: getattr(config, name) for name in ("experiment", "row", "preset", "task", "model")},
        "changes": list(config.changes),
        "seed": config.training.seed,
        "step": step,
        "steps": steps,
        "weights": fingerprint(run),
        "note": None if step >= steps else f"Not finished: {step} of {steps} steps. These figures are not final.",
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "device": str(device),
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
        },
    }


def fingerprint(run: Run) -> str | None:
    """What tells the weights of a run from all others; None if it has none."""
    path = run.folder / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else None


def read_evaluation(run: Run) -> dict[str, Any] | None:
    """What `evaluate` kept in the folder of a run; None if it was not evaluated yet."""
    path = run.folder / "evaluation.json"
    if not path.exists():
        return None
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        whole = data.keys() >= {"label", "task", "seed", "weights", "tasks", "sets", "note"}
        if data["format"] == FORMAT and whole and all("seconds" in summary for summary in data["sets"].values()):
            return data
        what = f"of format {data['format']}, not {FORMAT}"
    except (ValueError, KeyError, TypeError, AttributeError):
        what = "damaged"
    raise ValueError(f"{path} is {what}: write it anew with `shiftnp evaluate {run.folder}`.")


def is_current(run: Run, evaluation: dict[str, Any]) -> bool:
    """Whether an evaluation is of the weights that the run has now."""
    return bool(evaluation["weights"] == fingerprint(run))
