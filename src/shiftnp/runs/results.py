"""Results of an evaluation as dataclasses: the content of `evaluation.json`, from which reports are made.

A metric that is not a finite number is None.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import shiftnp
from shiftnp import _schema

FORMAT = 2  # of evaluation.json
FAILED = -10.0
"""A task whose log-likelihood per target is below this, or not a number, has failed. A mean over tasks can hide it."""


@dataclass(frozen=True)
class Estimate:
    """A mean over tasks (for the RMSE: the root of a mean) and its standard error, which is None for a single task.

    Where several tasks are made from one group of observations, the standard error is over groups.
    """

    mean: float | None
    standard_error: float | None = None


@dataclass(frozen=True)
class Gap(Estimate):
    """Gap to the ceiling: mean over tasks of the best possible log-likelihood minus that of the model.

    Args:
        ceiling: mean log-likelihood of the best possible predictor.
    """

    ceiling: float | None = None


@dataclass(frozen=True)
class BinSummary:
    """Metrics of the tasks with similar numbers of context points."""

    tasks: int
    log_likelihood: Estimate
    gap: Gap | None = None


@dataclass(frozen=True)
class TaskScore:
    """One task: its index in the test set, its number of context points and its log-likelihood per target."""

    task: int
    context: int
    log_likelihood: float | None


@dataclass(frozen=True)
class Failures:
    """Tasks with a very low log-likelihood, which a mean over tasks can hide.

    Args:
        threshold: a task with a lower log-likelihood per target has failed.
        tasks: number of failed tasks, including those without a finite log-likelihood.
        not_finite: number of tasks without a finite log-likelihood.
        worst: the tasks with the lowest log-likelihood, lowest first.
    """

    threshold: float
    tasks: int
    not_finite: int
    worst: tuple[TaskScore, ...]


@dataclass(frozen=True)
class SetSummary:
    """Metrics of a model on one test set.

    Args:
        tasks: number of tasks.
        log_likelihood: mean log-likelihood per target.
        median_log_likelihood: median of the log-likelihood per target over tasks.
        gap: gap to the best possible predictor; None if that is not known.
        rmse, crps: root mean squared error of the predicted mean; continuous ranked probability score.
        coverage: fraction of targets inside the central intervals of 50, 90 and 95 % probability, by these names.
        calibration_error: mean absolute difference of `pit_below` from the nominal probabilities.
        pit_below: fraction of targets whose probability integral transform is at most 5 %, 10 %, ..., 95 %.
        by_context: metrics by number of context points, with bins such as "3-4".
        seconds: duration of the evaluation.
        fits: for a baseline that is fitted to each context: number of fits by outcome.
        groups: number of groups of observations that the tasks are made from; None: every task has its own.
        unit: name of the unit of log-likelihood, RMSE and CRPS; None: that of the task's outputs.
    """

    tasks: int
    log_likelihood: Estimate
    median_log_likelihood: float | None
    rmse: Estimate
    crps: Estimate
    coverage: dict[str, Estimate]
    calibration_error: float | None
    pit_below: tuple[float | None, ...]
    by_context: dict[str, BinSummary]
    failures: Failures
    gap: Gap | None = None
    seconds: float = 0.0
    fits: dict[str, int] | None = None
    groups: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        for name in self.by_context:
            if not re.fullmatch(r"\d{1,9}(-\d{1,9})?", name):
                raise ValueError(f"a bin of by_context must be named like 3-4, got {name!r}")


@dataclass(frozen=True)
class Machine:
    """The machine that the evaluation ran on."""

    processor: str
    device: str
    threads: int
    torch: str


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a run on the test sets of its experiment.

    Args:
        label: short description of the run.
        experiment, row, preset, task, model, changes: as in the run's config.
        seed: random seed of the training.
        step, steps: number of training steps of the weights, and the planned number.
        weights: checksum of the weights; None for a baseline, which has none.
        tasks: requested number of tasks of each test set; None: all.
        machine: the machine that the evaluation ran on.
        sets: metrics of each test set, by its name.
        commit: the git commit of the code that evaluated; None outside a git checkout.
    """

    label: str
    experiment: str | None
    row: str | None
    preset: str | None
    task: str
    model: str
    changes: tuple[str, ...]
    seed: int
    step: int
    steps: int
    weights: str | None
    tasks: int | None
    machine: Machine
    sets: dict[str, SetSummary]
    commit: str | None = None

    @property
    def is_finished(self) -> bool:
        """Whether training was finished."""
        return self.step >= self.steps

    @property
    def seconds(self) -> float:
        """Duration of the evaluation."""
        return sum(summary.seconds for summary in self.sets.values())

    @property
    def fits(self) -> dict[str, int]:
        """Number of fits of a baseline by outcome, over all test sets; empty for a trained model."""
        return dict(sum((Counter(summary.fits or {}) for summary in self.sets.values()), Counter[str]()))

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the number of the format and the version of shiftnp."""
        return {"format": FORMAT, "shiftnp": shiftnp.__version__, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: Any) -> Evaluation:
        """The evaluation that `to_json` wrote; a ValueError names the entry that is missing or of the wrong type."""
        found = data.get("format") if isinstance(data, dict) else None
        if isinstance(found, int) and found != FORMAT:
            raise ValueError(f"it is of format {found}, not {FORMAT}")
        return _schema.from_json(Evaluation, data)
