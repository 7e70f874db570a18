"""The tables of a report: measured results beside those of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean, stdev

from shiftnp.experiments.base import Column, Experiment, Figures
from shiftnp.metrics import COVERAGE
from shiftnp.report.lines import Line, Model, over_seeds
from shiftnp.report.page import Cell, Table
from shiftnp.runs.results import FAILED, Estimate, Evaluation, SetSummary

NOT_RUN = Cell("not run", quiet=True)
NONE = "n/a"
"""Text of a cell without a finite number."""
UNTRAINED = "none"
"""Text for the steps of a baseline, which is not trained."""
PAPER = "paper (other test tasks)"
"""Title of the columns with the paper's scores, which are on other test tasks than ours."""
Measured = tuple[float, float]
"""A finite number and its standard error, which is NaN if it is not known."""
ABOUT = [("", "model"), ("", "steps"), ("", "seeds")]


def score_table(experiment: Experiment, lines: Sequence[Line]) -> Table:
    """Our scores and the paper's, if it has any. Bold: the best of ours, and all within the sum of both errors of it. A
    score on fewer tasks than the others is marked and never bold."""
    columns, beside, models = experiment.columns, experiment.has_paper_results, over_seeds(lines)
    rows, parts = [about(model) for model in models], dict[str, None]()
    for j, column in enumerate(columns):
        summaries = [model.summaries(column) for model in models]
        tasks = [min((s.tasks for s in of_seeds), default=0) for of_seeds in summaries]
        ours = [over_values([measured(s.log_likelihood) for s in of_seeds]) for of_seeds in summaries]
        whole = [None if n < max(tasks) else value for n, value in zip(tasks, ours, strict=True)]
        for i, (model, n, bold) in enumerate(zip(models, tasks, best(whole), strict=True)):
            figures = model.row.paper[j] if j < len(model.row.paper) else None
            cell = Cell(show(ours[i], 3), bold) if n else NOT_RUN
            if 0 < n < max(tasks):
                cell = Cell(f"{cell.text} ‡")
                parts[f"{count(n)} of {count(max(tasks))} tasks"] = None
            rows[i] += [cell, Cell(show(figures) if figures else "", quiet=True)] if beside else [cell]
    head = ABOUT + [(column.title, who) for column in columns for who in (("ours", PAPER) if beside else ("ours",))]
    unit = f"{experiment.unit[:1].upper()}{experiment.unit[1:]}"
    notes = [
        f"{unit}; higher is better. {errors(models)} Bold: the best of ours, and all whose intervals (±) overlap with"
        " its own."
    ]
    if beside:
        notes[0] += " The paper's scores are of other test tasks, so that they are a rough guide only."
    if parts:
        notes.append(f"‡ On {' or '.join(parts)}, so that it compares with the others only roughly; never bold.")
    notes += footnotes(lines)
    if any(cell.text == NONE for row in rows for cell in row):
        notes.append(f"{NONE}: no finite number.")
    return Table(head, rows, notes)


def about(model: Model) -> list[Cell]:
    """The first cells of a line: model, steps and seeds."""
    evaluations = [e for line in model.lines for e in line.evaluations.values()]
    steps = dict.fromkeys(steps_of(e) for e in evaluations)
    return [Cell(model.first.title), Cell(" / ".join(steps)), Cell(model.seeds)]


def errors(models: Sequence[Model]) -> str:
    """What ± means in a table."""
    if not any(len(model.lines) > 1 for model in models):
        return "± is the standard error over test tasks."
    return (
        "Of several seeds of initial weights and training data: mean ± standard deviation over seeds; of one seed: mean"
        " ± standard error over test tasks."
    )


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
    models = over_seeds([line for line in lines if line.evaluations])
    for model in models:
        gaps = [[measured(s.gap) for s in model.summaries(c)] for c in columns]
        rows.append([*about(model), *(Cell(show(over_values(g), 3)) if g else NOT_RUN for g in gaps)])
    reached = [show(ceiling(lines, c), 3) for c in columns]
    rows.append([Cell("best possible", quiet=True), Cell(), Cell(), *(Cell(text, quiet=True) for text in reached)])
    note = (
        "Log-likelihood per target of the best possible prediction less that of the model, on the same test tasks;"
        f" lower is better, and 0 cannot be beaten. {errors(models)} For good models the standard error is far smaller"
        " than that of the score, because some tasks are harder than others and that cancels. Last line: the score of"
        " the best possible prediction."
    )
    return Table(ABOUT + [("", column.title) for column in columns], rows, [note, *_see_scores(lines)])


def seed_table(experiment: Experiment, lines: Sequence[Line]) -> Table | None:
    """The score of each seed of the models that were trained several times; None if there are none."""
    several = [model for model in over_seeds(lines) if len(model.lines) > 1]
    if not several:
        return None
    rows = []
    for line in (line for model in several for line in model.lines):
        summaries = [line.summary(column) for column in experiment.columns]
        cells = [NOT_RUN if s is None else Cell(show(measured(s.log_likelihood), 3)) for s in summaries]
        rows.append([*about(Model(line.label, [line])), *cells])
    head = ABOUT[:2] + [("", "seed")] + [("", column.title) for column in experiment.columns]
    note = f"{experiment.unit[:1].upper()}{experiment.unit[1:]}, mean ± standard error over test tasks."
    return Table(head, rows, [note, *_see_scores([line for model in several for line in model.lines])])


def measure_table(lines: Sequence[Line], columns: Sequence[Column]) -> Table:
    """Errors and calibration on some of the test sets."""
    rows = []
    models = over_seeds(lines)
    for model in models:
        for column in columns:
            summaries = model.summaries(column)
            if not summaries:
                continue

            def shown(metric: Callable[[SetSummary], Estimate | float | None], of: list[SetSummary] = summaries) -> str:
                return show(over_values([measured(metric(s)) for s in of]), 3)

            covered = [over_values([measured(s.coverage.get(level)) for s in summaries]) for level in COVERAGE]
            cells = [shown(lambda s: s.rmse), shown(lambda s: s.crps)]
            cells += [NONE if value is None else f"{100 * value[0]:.1f} %" for value in covered]
            cells.append(shown(lambda s: s.calibration_error))
            cells.append(f"{sum(s.failures.tasks for s in summaries)} of {sum(s.tasks for s in summaries)}")
            rows.append([Cell(model.label), Cell(column.title), *map(Cell, cells)])
    head = [("", "model"), ("", "test set"), ("", "RMSE"), ("", "CRPS")]
    head += [("coverage of central intervals", f"{level} %") for level in COVERAGE]
    head += [("", "calibration error"), ("", "failed tasks")]
    levels = " or ".join([", ".join([*COVERAGE][:-1]), [*COVERAGE][-1]])
    note = (
        f"RMSE, CRPS (continuous ranked probability score) and calibration error: lower is better. {errors(models)}"
        f" Coverage: share of targets inside the central interval that should hold {levels} % of them. Failed tasks:"
        f" those with a log-likelihood per target below {FAILED:g}."
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


def over_values(values: Sequence[Measured | None]) -> Measured | None:
    """Of several seeds their mean and standard deviation, of one its value and standard error; None if the value of a
    seed is not finite."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    each = [value for value, _ in known]
    return known[0] if len(known) == 1 else (mean(each), stdev(each))


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
