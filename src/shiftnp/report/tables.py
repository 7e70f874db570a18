"""The tables of a report: what was measured beside what the paper printed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shiftnp.experiments.base import Column, Experiment, Figures, Row
from shiftnp.metrics import COVERAGE
from shiftnp.plots.style import BLACK, Style, styles
from shiftnp.report.page import Cell, Table
from shiftnp.runs.run import Run

NOT_RUN = Cell("not run", quiet=True)
NONE = "n/a"
"""Where an evaluation has no finite number."""
Measured = tuple[float, float]
"""A finite number and its standard error, which is NaN where it is not known."""


@dataclass(frozen=True)
class Line:
    """One line of a table: a row of the paper, and runs of it that differ in nothing but what they are trained on.

    Args:
        label, style: a name that no other line has, and its look in all pictures.
        runs, evaluations: by the name of their task; none where the paper's row was not run.
    """

    row: Row
    label: str = ""
    style: Style = BLACK
    runs: Mapping[str, Run] = field(default_factory=dict)
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def summary(self, column: Column) -> Mapping[str, Any] | None:
        """The figures of one test set; None if it was not evaluated."""
        evaluation = self.evaluations.get(column.task)
        found: Mapping[str, Any] | None = None if evaluation is None else evaluation["sets"].get(column.test_set)
        return found

    def value(self, column: Column, *path: str) -> Measured | None:
        """One figure of a test set, for instance `"coverage", "90"`."""
        entry: Any = self.summary(column)
        for name in path:
            entry = entry.get(name) if isinstance(entry, Mapping) else None
        return measured(entry)

    @property
    def any(self) -> Mapping[str, Any]:
        """An evaluation, for what all have in common."""
        return next(iter(self.evaluations.values()), {})

    @property
    def is_finished(self) -> bool:
        return all(e["step"] >= e["steps"] for e in self.evaluations.values())

    def about(self) -> list[Cell]:
        """The first cells of a table: model, preset, steps and seed."""
        title = self.row.title + ("" if self.is_finished else " †")
        if not self.runs:
            return [Cell(title), Cell(), Cell(), Cell()]
        preset = ", ".join([str(self.any.get("preset") or "own"), *self.any.get("changes", ())])
        steps = [steps_of(e) for e in self.evaluations.values()]
        return [Cell(title), Cell(preset), Cell(" / ".join(dict.fromkeys(steps))), Cell(str(self.any.get("seed", "")))]


ABOUT = [("", "model"), ("", "preset"), ("", "steps"), ("", "seed")]


def gather(experiment: Experiment, runs: Sequence[Run], evaluations: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Lines in the order of the paper's rows, then those of other models; rows without a run are there too."""
    lines: list[Line] = []
    keys: list[tuple[Any, ...]] = []
    for run, evaluation in zip(runs, evaluations, strict=True):
        c = run.config
        key = (c.row or c.model, c.preset, c.changes, c.training.seed)
        same = [i for i, k in enumerate(keys) if k == key and c.task not in lines[i].runs]
        if same:
            old = lines[same[0]]
            both = {**old.runs, c.task: run}, {**old.evaluations, c.task: evaluation}
            lines[same[0]] = replace(old, runs=both[0], evaluations=both[1])
        else:
            keys.append(key)
            lines.append(Line(_row(experiment, run), runs={c.task: run}, evaluations={c.task: evaluation}))
    order = {row.name: i for i, row in enumerate(experiment.rows)}
    missing = [Line(row, row.title) for row in experiment.rows if row.name not in {line.row.name for line in lines}]
    lines = sorted(lines + missing, key=lambda line: (order.get(line.row.name, len(order)), line.row.name))
    return _labelled(lines)


def _row(experiment: Experiment, run: Run) -> Row:
    name = run.config.row or run.config.model
    try:
        return experiment.row(name)
    except ValueError:  # a row that the experiment no longer has
        return Row(name, name, run.config.model)


def _labelled(lines: Sequence[Line]) -> list[Line]:
    """Gives lines a look, and those of the same row names that say in what they differ."""
    names: list[str] = []
    for line in lines:
        others = [o.any for o in lines if o.row.name == line.row.name]
        parts = [line.row.title]
        for name, text in (("preset", "{}"), ("changes", "{}"), ("seed", "seed {}")):
            if any(o.get(name) != line.any.get(name) for o in others):
                value = line.any.get(name)
                parts.append(text.format(", ".join(value) if isinstance(value, (list, tuple)) else value))
        names.append(", ".join(filter(None, parts)) + ("" if line.is_finished else " †"))
    seen, total = Counter[str](), Counter(names)
    labels = []
    for name in names:  # the same run twice, in two folders
        seen[name] += 1
        labels.append(f"{name} ({seen[name]})" if total[name] > 1 else name)
    looks = styles([line.row.model for line in lines])
    return [replace(o, label=name, style=look) for o, name, look in zip(lines, labels, looks, strict=True)]


# --- tables -----------------------------------------------------------------------------------------------------------


def score_table(experiment: Experiment, lines: Sequence[Line]) -> Table:
    """Our scores beside the paper's. Bold: the best of ours, and all within the sum of both standard errors of it."""
    columns = experiment.columns
    rows = [line.about() for line in lines]
    for j, column in enumerate(columns):
        ours = [line.value(column, "log_likelihood") for line in lines]
        for i, (line, bold) in enumerate(zip(lines, best(ours), strict=True)):
            figures = line.row.paper[j] if j < len(line.row.paper) else None
            cell = NOT_RUN if line.summary(column) is None else Cell(show(ours[i]), bold)
            rows[i] += [cell, Cell(show(figures) if figures else "", quiet=True)]
    head = ABOUT + [(column.title, who) for column in columns for who in ("ours", "paper")]
    notes = [f"{experiment.unit[:1].upper()}{experiment.unit[1:]}, mean ± standard error; higher is better. Bold: the"]
    notes[0] += " best of ours, and all that are within the sum of both standard errors of it."
    unfinished = [
        f"{line.row.title} on {task} {steps_of(e)}"
        for line in lines
        for task, e in line.evaluations.items()
        if e["step"] < e["steps"]
    ]
    if unfinished:
        notes.append(f"† not finished: {'; '.join(unfinished)}.")
    if any(cell.text == NONE for row in rows for cell in row):
        notes.append(f"{NONE}: no finite number.")
    return Table(head, rows, notes)


def gap_table(experiment: Experiment, lines: Sequence[Line]) -> Table | None:
    """How far below the best possible prediction models are; None where it is not known."""
    columns = [c for c in experiment.columns if any(line.value(c, "gap") for line in lines)]
    if not columns:
        return None
    rows = []
    for line in lines:
        if line.runs:
            rows.append([*line.about(), *(Cell(show(line.value(c, "gap"), 3)) for c in columns)])
    reached = [show(ceiling(lines, c), 3) for c in columns]
    rows.append([Cell("ceiling", quiet=True), Cell(), Cell(), Cell(), *(Cell(text, quiet=True) for text in reached)])
    note = "How far below the best possible prediction for the same tasks the score is, ± standard error; lower is"
    note += " better, and 0 cannot be beaten. It has far less noise than the score. Last line: the ceiling itself."
    return Table(ABOUT + [("", column.title) for column in columns], rows, [note])


def measure_table(experiment: Experiment, lines: Sequence[Line], columns: Sequence[Column]) -> Table:
    """Errors and calibration on some of the test sets."""
    paths = {
        "RMSE": ("rmse",),
        "CRPS": ("crps",),
        **{f"{name} %": ("coverage", name) for name in COVERAGE},
        "calibration error": ("calibration_error",),
    }
    rows = []
    for line in lines:
        for column in columns:
            summary = line.summary(column)
            if summary is None:
                continue
            shown = []
            for path in paths.values():
                value = line.value(column, *path)
                if path[0] == "coverage":
                    shown.append(Cell(f"{100 * value[0]:.1f} %" if value else NONE))
                else:
                    shown.append(Cell(show(value, 3)))
            bad = (summary.get("extremes") or {}).get("tasks")
            shown.append(Cell(NONE if bad is None else f"{bad} of {summary.get('tasks', NONE)}"))
            rows.append([Cell(line.label), Cell(column.title), *shown])
    group = {"coverage": "coverage of intervals"}
    named = [(group.get(path[0], ""), name) for name, path in paths.items()]
    head = [("", "model"), ("", "test set"), *named, ("", "failed tasks")]
    note = "RMSE, CRPS and calibration error: lower is better. Coverage: how many targets lie in the central interval"
    note += f" that should hold {', '.join(COVERAGE)} % of them. Failed tasks: those with a score below -10."
    return Table(head, rows, [note])


# --- numbers ----------------------------------------------------------------------------------------------------------


def measured(entry: Any) -> Measured | None:
    """A figure of an evaluation; None where it has none, or none that is finite."""
    error = None
    if isinstance(entry, Mapping):
        error = entry.get("standard_error")
        entry = entry.get("mean", entry.get("value"))
    if entry is None or not math.isfinite(entry):
        return None
    return float(entry), math.nan if error is None else float(error)


def best(values: Sequence[Measured | None]) -> list[bool]:
    """Which are the highest: all within the sum of both standard errors of the best, as in the paper's tables."""
    known = [v for v in values if v is not None]
    if not known:
        return [False] * len(values)
    top, error = max(known, key=lambda v: v[0])

    def sure(e: float) -> float:
        return 0.0 if math.isnan(e) else e

    return [v is not None and top - v[0] <= sure(error) + sure(v[1]) + 1e-12 for v in values]


def ceiling(lines: Sequence[Line], column: Column) -> Measured | None:
    """What can be reached on a test set, from the evaluation with the most tasks."""
    known = [s for line in lines if (s := line.summary(column)) is not None and s.get("gap")]
    most = max(known, key=lambda s: s.get("tasks") or 0, default=None)
    return None if most is None else measured(most["gap"].get("ceiling"))


def show(value: Figures | Measured, digits: int = 2) -> str:
    """`-0.52 ± 0.01`."""
    if value is None:
        return NONE
    error = "" if math.isnan(value[1]) else f" ± {_round(value[1], digits)}"
    return _round(value[0], digits) + error


def _round(value: float, digits: int) -> str:
    return f"{value:.3g}" if abs(value) >= 1000 else f"{value:z.{digits}f}"


def steps_of(evaluation: Mapping[str, Any]) -> str:
    """How long a run was trained, in words."""
    step, steps = evaluation["step"], evaluation["steps"]
    if steps == 0:
        return "fitted to each context"
    return count(step) if step >= steps else f"after {count(step)} of {count(steps)} steps"


def count(n: int) -> str:
    return f"{n:,}" if n >= 10_000 else str(n)
