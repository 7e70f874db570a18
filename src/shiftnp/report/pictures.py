"""The figures of a report, from the lines of its tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from shiftnp.baselines import BASELINES
from shiftnp.experiments.base import Column, Experiment
from shiftnp.metrics import COVERAGE
from shiftnp.plots.calibration import draw_calibration
from shiftnp.plots.learning import Curve, draw_learning
from shiftnp.plots.scores import Series, draw_bins, draw_dots, draw_sweep
from shiftnp.report.page import Block, Heading, Paragraph, Picture
from shiftnp.report.tables import Line, Measured, ceiling

SHOWN = (*BASELINES, "cnp", "tnp", "convcnp", "te-tnp", "te-pt-tnp")
"""Models whose predictions are drawn after those of the main row, the paper's choice."""
MOST = 5  # predictions beside each other,
ALONE = 3  # and pictures of one model each


def sweep(columns: Sequence[Column]) -> tuple[str, list[float]] | None:
    """What is swept over and its values, if test sets are named like `delta-0.0`, `delta-0.2`, ...; else None."""
    parts = [re.fullmatch(r"(.+?)-(\d+(?:\.\d+)?)", column.test_set) for column in columns]
    names = {part[1] if part else None for part in parts} | {column.task for column in columns[1:]} - {columns[0].task}
    if len(columns) < 3 or len(names) > 1 or None in names:
        return None
    return str(next(iter(names))), [float(part[2]) for part in parts if part]


def _series(lines: Sequence[Line], values: Callable[[Line], Sequence[Measured | None]]) -> list[Series]:
    """What is known of each line, in the style of its model."""
    found = []
    for line in lines:
        pairs = [v or (math.nan, math.nan) for v in values(line)]
        # An unknown error is drawn as none.
        errors = [0.0 if math.isnan(error) else float(error) for _, error in pairs]
        found.append(Series(line.label, line.style, [float(value) for value, _ in pairs], errors))
    return found


def _not_empty(panels: Mapping[str, Sequence[Series]]) -> dict[str, Sequence[Series]]:
    """Those that have anything to show."""
    return {name: some for name, some in panels.items() if any(math.isfinite(v) for one in some for v in one.values)}


def score_picture(experiment: Experiment, lines: Sequence[Line]) -> Picture:
    columns = experiment.columns
    swept = sweep(columns)
    ours = _series(lines, lambda line: [line.value(c, "log_likelihood") for c in columns])
    alt = f"{experiment.unit} of each model on each test set"
    if swept is None:
        empty = (None,) * len(columns)
        paper = [[figures and figures[0] for figures in (line.row.paper or empty)] for line in lines]
        figure = draw_dots([c.title for c in columns], ours, paper, experiment.unit)
        return Picture("scores", figure, alt, "Dots: ours, with standard errors. Grey bars: the paper's.")
    name, x = swept
    label = "shift Δ of the test inputs" if name == "delta" else name
    panels = {"ours": ours}
    # A row of several lines has one curve in the paper, which looks like the first of them.
    first = {line.row.name: line.label for line in reversed(lines) if any(line.row.paper)}
    theirs = _series(lines, lambda line: line.row.paper or [None] * len(x))
    if first:
        panels["the paper's"] = [one for one in theirs if one.label in first.values()]
    reached = [ceiling(lines, c) for c in columns]
    top = [v[0] if v else math.nan for v in reached] if any(reached) else None
    figure = draw_sweep(x, panels, label, experiment.unit, top)
    caption = "Solid lines: translation-equivariant models; dashed lines: others."
    if top is not None:
        caption += " Grey: what the best possible prediction reaches on our test tasks."
    return Picture("scores", figure, alt, caption)


def context_pictures(experiment: Experiment, done: Sequence[Line], columns: Sequence[Column]) -> list[Block]:
    """By number of context points: the gap where it is known, else the score."""
    what = "gap" if any(line.value(c, "gap") for line in done for c in columns) else "log_likelihood"
    bins: dict[str, int] = {}
    for line in done:
        for column in columns:
            for name in (line.summary(column) or {}).get("by_context") or {}:
                bins[name] = int(re.split(r"\D+", name)[0])
    names = sorted(bins, key=lambda name: bins[name])
    if len(names) < 2:
        return []
    panels = _not_empty(
        {
            column.title: _series(done, lambda line, c=column: [line.value(c, "by_context", n, what) for n in names])  # type: ignore[misc]
            for column in columns
        }
    )
    if not panels:
        return []
    ylabel = "gap to the ceiling" if what == "gap" else experiment.unit
    figure = draw_bins(
        names,
        panels,
        "number of context points",
        ylabel,
        share=len({c.task for c in columns if c.title in panels}) == 1,
        lower_is_better=what == "gap",
    )
    caption = "Lower is better." if what == "gap" else "Higher is better."
    alt = f"{ylabel} against the number of context points"
    return [Heading("By number of context points"), Picture("context-size", figure, alt, caption)]


def learning_pictures(experiment: Experiment, done: Sequence[Line]) -> list[Block]:
    blocks: list[Block] = []
    for task in experiment.tasks:
        trained = [line for line in done if task in line.runs and not line.runs[task].is_baseline]
        each = {line.label: Curve.read(line.label, line.style, line.runs[task].metrics()) for line in trained}
        curves = [curve for curve in each.values() if curve is not None]
        missing = [label for label, curve in each.items() if curve is None]
        without = f"Without any validation yet: {', '.join(missing)}." if missing else ""
        if curves:
            alt = f"validation log-likelihood on {task} against steps and against time"
            figure = draw_learning(curves, f"validation {experiment.unit}")
            caption = f"On the validation set of {task}, while training. {without}".strip()
            blocks.append(Picture(f"learning-{task}", figure, alt, caption))
        elif missing:
            blocks.append(Paragraph(f"There is no learning curve on {task}. {without}"))
    return [Heading("Learning curves"), *blocks] if blocks else []


def prediction_pictures(experiment: Experiment, done: Sequence[Line]) -> list[Block]:
    blocks: list[Block] = []
    for task in experiment.tasks:
        lines = _to_show(experiment, [line for line in done if task in line.runs], task)
        if not lines:
            continue
        try:
            known = experiment.test_sets(lines[0].runs[task].task)
            sets = {c.title: known[c.test_set] for c in experiment.columns if c.task == task and c.test_set in known}
            models = {}
            for line in lines:
                try:
                    models[line.label] = line.runs[task].model()
                except (OSError, ImportError, ValueError) as error:
                    blocks.append(Paragraph(f"Predictions on {task} could not be drawn for {line.label}: {error}"))
            if not models:
                continue
            looks = {line.label: line.style for line in lines}
            pictures = lines[0].runs[task].task.comparison(models, sets, looks) if sets else []
        except (OSError, ImportError, ValueError) as error:  # data that are not on this machine, for instance
            blocks.append(Paragraph(f"Predictions on {task} could not be drawn: {error}"))
            continue
        for i, picture in enumerate(pictures):
            name = f"predictions-{task}" + (f"-{i + 1}" if len(pictures) > 1 else "")
            alt = f"predictions on {task}: {', '.join(models)}"
            blocks.append(Picture(name, picture.figure, alt, picture.caption, picture.drawn))
    return [Heading("Predictions"), *blocks] if blocks else []


def _to_show(experiment: Experiment, lines: Sequence[Line], task: str) -> list[Line]:
    """A few lines in their order: that of the main row, else other models, else other rows of the same models."""

    def rank(line: Line) -> tuple[bool, int, int]:
        model = line.row.model
        place = SHOWN.index(model) if model in SHOWN else len(SHOWN)
        return line.row.name != experiment.main, place, -int(line.evaluations[task]["step"])

    ranked = sorted(lines, key=rank)
    first = ranked[0].runs[task].task if ranked else None
    models: dict[str, Line] = {}
    rows: dict[str, Line] = {}
    for line in ranked:
        own = line.runs[task].task
        if first is not None and (own.dx, own.dy) == (first.dx, first.dy):
            models.setdefault(line.row.model, line)
            rows.setdefault(line.row.name, line)
    most = MOST if first is None or first.is_side_by_side else ALONE
    chosen = list(dict.fromkeys(line.label for line in (*models.values(), *rows.values())))[:most]
    return [line for line in lines if line.label in chosen]


def calibration_picture(done: Sequence[Line], columns: Sequence[Column]) -> list[Block]:
    def covered(line: Line, column: Column) -> list[Measured | None]:
        values = [line.value(column, "coverage", name) for name in COVERAGE]
        return [v and (100 * v[0], 100 * v[1]) for v in values]

    panels = _not_empty({c.title: _series(done, lambda line, c=c: covered(line, c)) for c in columns})  # type: ignore[misc]
    if not panels:
        return []
    caption = "Above zero: intervals too wide, a cautious model. Below: too narrow, an overconfident one."
    return [Picture("calibration", draw_calibration(panels), "coverage achieved less nominal coverage", caption)]
