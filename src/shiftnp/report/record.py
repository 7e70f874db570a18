"""The results of an experiment as plain data: how each run was made, and all its scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftnp.experiments.base import Experiment
from shiftnp.runs.results import Evaluation
from shiftnp.runs.run import Run


def record(experiment: Experiment, runs: Sequence[Run], evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """What `shiftnp report` writes to `EXPERIMENT.json`."""
    return {
        "what": f"{experiment.title}: {experiment.unit}",
        "command": f"shiftnp report {experiment.name}",
        "runs": [
            {
                "command": run.config.command,
                "minutes of training": _minutes(run),
                "parameters": _parameters(run),
                "model settings": run.config.model_settings,
                "task settings": run.config.task_settings,
                "validation": [row for row in run.metrics() if "valid" in row],
                "evaluation": evaluation.to_json(),
            }
            for run, evaluation in zip(runs, evaluations, strict=True)
        ],
    }


def _minutes(run: Run) -> float | None:
    """Wall time of the training; None for a baseline, which has none."""
    seconds = [row["seconds"] for row in run.metrics() if "seconds" in row]
    return round(seconds[-1] / 60, 1) if seconds else None


def _parameters(run: Run) -> int | None:
    """Number of parameters of the model; None for a baseline."""
    return None if run.is_baseline else sum(p.numel() for p in run.new_model().parameters())
