"""The tables of a report: measured results beside those of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev

from shiftnp.experiments.base import Column, Experiment, Figures
from shiftnp.metrics import COVERAGE
from shiftnp.report.lines import Line
from shiftnp.report.page import Cell, Table
from shiftnp.runs.results import FAILED, Estimate, Evaluation

NOT_RUN = Cell("not run", quiet=True)
NONE = "n/a"
"""Text of a cell without a finite number."""
UNTRAINED = "none"
"""Text for the steps of a baseline, which is not trained."""
PAPER = "paper (other test tasks)"
"""Title of the columns with the paper's scores, which are on other test tasks than ours."""
Measured = tuple[float, float]
"""A finite number and its standard error, which is NaN if it is not known."""
ABOUT = [("", "model"), ("", "steps"), ("", "seed")]


def score_table(experiment: Experiment, lines: Sequence[Line]) -> Table:
    """Our scores and the paper's, if it has any. Bold: the best of ours, and all within the sum of both standard errors
    of it. A score on fewer tasks than the others is marked and never bold."""
    columns, beside = experiment.columns, experiment.has_paper_results
    rows, parts = [about(line) for line in lines], dict[str, None]()
    for j, column in enumerate(columns):
        summaries = [line.summary(column) for line in lines]
        most = max((s.tasks for s in summaries if s is not None), default=0)
        ours = [None if s is None else measured(s.log_likelihood) for s in summaries]
        whole = [None if s is None or s.tasks < most else value for s, value in zip(summaries, ours, strict=True)]
        for i, (line, summary, bold) in enumerate(zip(lines, summaries, best(whole), strict=True)):
            figures = line.row.paper[j] if j < len(line.row.paper) else None
            cell = NOT_RUN if summary is None else Cell(show(ours[i]), bold)
            if summary is not None and summary.tasks < most:
                cell = Cell(f"{cell.text} ‡")
                parts[f"{count(summary.tasks)} of {count(most)} tasks"] = None
            rows[i] += [cell, Cell(show(figures) if figures else "", quiet=True)] if beside else [cell]
    head = ABOUT + [(column.title, who) for column in columns for who in (("ours", PAPER) if beside else ("ours",))]
    unit = f"{experiment.unit[:1].upper()}{experiment.unit[1:]}"
    notes = [
        f"{unit}, mean ± standard error over test tasks; higher is better. Bold: the best of ours, and all that are"
        " within the sum of both standard errors of it."
    ]
    if beside:
        notes[0] += " The paper's scores are of other test tasks, so that they are a rough guide only."
    if parts:
        notes.append(f"‡ On {' or '.join(parts)}, so that it compares with the others only roughly; never bold.")
    notes += footnotes(lines)
    if any(cell.text == NONE for row in rows for cell in row):
        notes.append(f"{NONE}: no finite number.")
    return Table(head, rows, notes)


def about(line: Line) -> list[Cell]:
    """The first cells of a line: model, steps and seed."""
    if not line.evaluations:
        return [Cell(line.title), Cell(), Cell()]
    steps = dict.fromkeys(steps_of(e) for e in line.evaluations.values())
    return [Cell(line.title), Cell(" / ".join(steps)), Cell(str(line.first.seed))]


def footnotes(lines: Sequence[Line]) -> list[str]:
    """Footnotes for the marks in the first columns: settings, unfinished runs, baselines."""
    settings = {line.mark: line.settings for line in lines if line.mark}
    notes = [f"[{mark}] {settings[mark]}." for mark in sorted(settings)]
    if any(not line.is_finished for line in lines):
        notes.append("† Training is not finished: these figures are not final.")
    if any(e.steps == 0 for line in lines for e in line.evaluations.values()):
        notes.append('Steps "none": not trained, but fitted to each context.')
    return notes


def gap_table(experiment: Experiment, lines: Sequence[Line]) -> Table | None:
    """Gaps of the models to the best possible prediction; None if that is not known."""
    columns = [c for c in experiment.columns if any((s := line.summary(c)) and s.gap for line in lines)]
    if not columns:
        return None
    rows = []
    for line in lines:
        if line.evaluations:
            summaries = [line.summary(c) for c in columns]
            cells = [NOT_RUN if s is None else Cell(show(measured(s.gap), 3)) for s in summaries]
            rows.append([*about(line), *cells])
    reached = [show(ceiling(lines, c), 3) for c in columns]
    rows.append([Cell("best possible", quiet=True), Cell(), Cell(), *(Cell(text, quiet=True) for text in reached)])
    note = (
        "Log-likelihood per target of the best possible prediction less that of the model, on the same test tasks, mean"
        " ± standard error; lower is better, and 0 cannot be beaten. For good models its standard error is far smaller"
        " than that of the score, because some tasks are harder than others and that cancels. Last line: the score of"
        " the best possible prediction."
    )
    return Table(ABOUT + [("", column.title) for column in columns], rows, [note, *_see_scores(lines)])


def seed_table(experiment: Experiment, lines: Sequence[Line]) -> Table | None:
    """Mean and spread over seeds of the rows that were trained several times; None if there are none."""
    groups: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        if line.evaluations and line.is_finished:
            groups.setdefault((line.row.name, line.mark), []).append(line)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return None
    columns = experiment.columns
    rows = []
    for group in several:
        row = [Cell(group[0].title), Cell(str(len(group)))]
        for column in columns:
            found = [s for line in group if (s := line.summary(column)) is not None]
            for values in ([measured(s.log_likelihood) for s in found], [measured(s.gap) for s in found]):
                row.append(Cell(_over_seeds([v[0] for v in values if v is not None])))
        rows.append(row)
    if all(cell.text == "" for row in rows for cell in row[3::2]):  # no gap is known
        rows = [[*row[:2], *row[2::2]] for row in rows]
        head = [("", "model"), ("", "seeds"), *(("", column.title) for column in columns)]
    else:
        kinds = ("score", "gap")
        head = [("", "model"), ("", "seeds"), *((column.title, kind) for column in columns for kind in kinds)]
    note = "Mean ± standard deviation over seeds of initial weights and training data; the test tasks are the same."
    return Table(head, rows, [note, *_see_scores([line for group in several for line in group])])


def _over_seeds(values: Sequence[float]) -> str:
    """Mean and standard deviation of at least two values; of one the value, of none nothing."""
    if not values:
        return ""
    return show((mean(values), stdev(values) if len(values) > 1 else math.nan), 3)


def measure_table(lines: Sequence[Line], columns: Sequence[Column]) -> Table:
    """Errors and calibration on some of the test sets."""
    rows = []
    for line in lines:
        for column in columns:
            summary = line.summary(column)
            if summary is None:
                continue
            covered = [measured(summary.coverage.get(level)) for level in COVERAGE]
            shown = [show(measured(summary.rmse), 3), show(measured(summary.crps), 3)]
            shown += [NONE if value is None else f"{100 * value[0]:.1f} %" for value in covered]
            shown.append(show(measured(summary.calibration_error), 3))
            shown.append(f"{summary.failures.tasks} of {summary.tasks}")
            rows.append([Cell(line.label), Cell(column.title), *map(Cell, shown)])
    head = [("", "model"), ("", "test set"), ("", "RMSE"), ("", "CRPS")]
    head += [("coverage of central intervals", f"{level} %") for level in COVERAGE]
    head += [("", "calibration error"), ("", "failed tasks")]
    levels = " or ".join([", ".join([*COVERAGE][:-1]), [*COVERAGE][-1]])
    note = (
        "RMSE, CRPS (continuous ranked probability score) and calibration error: lower is better. Coverage: share of"
        f" targets inside the central interval that should hold {levels} % of them. Failed tasks: those with a"
        f" log-likelihood per target below {FAILED:g}."
    )
    return Table(head, rows, [note, *_see_scores(lines)])


def _see_scores(lines: Sequence[Line]) -> list[str]:
    marks = sorted({line.mark for line in lines if line.mark})
    named = ", ".join(f"[{mark}]" for mark in marks)
    return [f"{named}: settings, see below the table of scores."] if marks else []


# --- numbers ----------------------------------------------------------------------------------------------------------


def measured(entry: Estimate | float | None) -> Measured | None:
    """A metric of an evaluation and its standard error; None if it is not a finite number."""
    value, error = (entry.mean, entry.standard_error) if isinstance(entry, Estimate) else (entry, None)
    if value is None or not math.isfinite(value):
        return None
    return float(value), math.nan if error is None else float(error)


def best(values: Sequence[Measured | None]) -> list[bool]:
    """Which values are bold: all within the sum of both standard errors of the highest, as in the paper's tables."""
    known = [v for v in values if v is not None]
    if not known:
        return [False] * len(values)
    top, error = max(known, key=lambda v: v[0])

    def sure(e: float) -> float:
        return 0.0 if math.isnan(e) else e

    return [v is not None and top - v[0] <= sure(error) + sure(v[1]) + 1e-12 for v in values]


def ceiling(lines: Sequence[Line], column: Column) -> Measured | None:
    """Score of the best possible prediction on a test set, from the evaluation with the most tasks."""
    known = [s for line in lines if (s := line.summary(column)) is not None and s.gap is not None]
    most = max(known, key=lambda s: s.tasks, default=None)
    return None if most is None or most.gap is None else measured(most.gap.ceiling)


def show(value: Figures | Measured, digits: int = 2) -> str:
    """A value with its standard error, such as `-0.52 ± 0.01`."""
    if value is None:
        return NONE
    error = "" if math.isnan(value[1]) else f" ± {_round(value[1], digits)}"
    return _round(value[0], digits) + error


def _round(value: float, digits: int) -> str:
    return f"{value:.3g}" if abs(value) >= 1000 else f"{value:z.{digits}f}"


def steps_of(evaluation: Evaluation) -> str:
    """The number of training steps of a run as text."""
    if evaluation.steps == 0:
        return UNTRAINED
    return (
        count(evaluation.step) if evaluation.is_finished else f"{count(evaluation.step)} of {count(evaluation.steps)}"
    )


def count(n: int) -> str:
    """An integer as text, with thousands separators from 10,000 on."""
    return f"{n:,}" if n >= 10_000 else str(n)
