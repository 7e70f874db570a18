"""The figures of a report, from the lines of its tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from shiftnp._text import sentence
from shiftnp.baselines import BASELINES
from shiftnp.experiments.base import Column, Experiment
from shiftnp.metrics import COVERAGE
from shiftnp.plots.calibration import draw_calibration
from shiftnp.plots.learning import Curve, draw_learning
from shiftnp.plots.scores import Series, draw_bins, draw_dots, draw_sweep
from shiftnp.report.lines import Line, Model, over_seeds
from shiftnp.report.page import Block, Heading, Paragraph, Picture
from shiftnp.report.tables import PAPER, Measured, ceiling, measured, over_values

SHOWN = (*BASELINES, "cnp", "tnp", "convcnp", "te-tnp", "te-pt-tnp")
"""Models whose predictions are drawn if there are many: those in the paper's figures. The main row comes first."""
MOST = 5  # largest number of models in one figure
ALONE = 3  # largest number of figures with one model each


def sweep(columns: Sequence[Column]) -> tuple[str, list[float]] | None:
    """Name and values of the swept parameter, if test sets are named like `delta-0.0`, `delta-0.2`, ...; else None."""
    parts = [re.fullmatch(r"(.+?)-(\d+(?:\.\d+)?)", column.test_set) for column in columns]
    names = {part[1] if part else None for part in parts} | {column.task for column in columns[1:]} - {columns[0].task}
    if len(columns) < 3 or len(names) > 1 or None in names:
        return None
    return str(next(iter(names))), [float(part[2]) for part in parts if part]


def _series(models: Sequence[Model], values: Callable[[Line], Sequence[Measured | None]]) -> list[Series]:
    """The values of each model as a series in its style: of one seed with their standard errors, of several their mean
    and standard deviation."""
    found = []
    for model in models:
        columns = zip(*map(values, model.lines), strict=True)
        pairs = [over_values([v for v in column if v is not None]) or (math.nan, math.nan) for column in columns]
        # An unknown standard error is drawn as zero.
        errors = [0.0 if math.isnan(error) else float(error) for _, error in pairs]
        found.append(Series(model.label, model.lines[0].style, [float(value) for value, _ in pairs], errors))
    return found


def _not_empty(panels: Mapping[str, Sequence[Series]]) -> dict[str, Sequence[Series]]:
    """The panels with at least one finite value."""
    return {name: some for name, some in panels.items() if any(math.isfinite(v) for one in some for v in one.values)}


def score_picture(experiment: Experiment, lines: Sequence[Line]) -> Picture:
    """Our scores and the paper's: curves over a sweep of test sets, else dots."""
    columns = experiment.columns
    swept = sweep(columns)

    def values(line: Line) -> list[Measured | None]:
        summaries = [line.summary(column) for column in columns]
        return [None if summary is None else measured(summary.log_likelihood) for summary in summaries]

    models = over_seeds(lines)
    ours = _series(models, values)
    spread = "standard errors" + (", or standard deviations over seeds" if len(models) < len(lines) else "")
    alt = f"{experiment.unit} of each model on each test set"
    if swept is None:
        empty = (None,) * len(columns)
        paper = [[figures and figures[0] for figures in (model.row.paper or empty)] for model in models]
        figure = draw_dots([c.title for c in columns], ours, paper, experiment.unit)
        theirs = " Grey bars: the paper's, on other test tasks." if experiment.has_paper_results else ""
        return Picture("scores", figure, alt, f"Dots: ours, with {spread}.{theirs}")
    name, x = swept
    label = "shift Δ of the test inputs" if name == "delta" else name
    panels = {"ours": ours}
    # A row with several models has one curve in the paper, drawn in the style of the first of them.
    first = {model.row.name: model.label for model in reversed(models) if any(model.row.paper)}
    printed = _series([Model(m.label, m.lines[:1]) for m in models], lambda line: line.row.paper or [None] * len(x))
    if first:
        panels[PAPER] = [one for one in printed if one.label in first.values()]
    reached = [ceiling(lines, c) for c in columns]
    top = [v[0] if v else math.nan for v in reached] if any(reached) else None
    figure = draw_sweep(x, panels, label, experiment.unit, top)
    caption = f"With {spread}. Solid lines: translation-equivariant models; dashed lines: others."
    if top is not None:
        caption += " Grey: the best possible prediction on our test tasks."
    return Picture("scores", figure, alt, caption)


def context_pictures(experiment: Experiment, done: Sequence[Line], columns: Sequence[Column]) -> list[Block]:
    """The gap by number of context points or, if it is not known, the score."""
    summaries = [s for line in done for c in columns if (s := line.summary(c)) is not None]
    gap = any(s.gap and measured(s.gap) for s in summaries)
    names = sorted({name for s in summaries for name in s.by_context}, key=lambda name: int(name.split("-")[0]))
    if len(names) < 2:
        return []

    def values(line: Line, column: Column) -> list[Measured | None]:
        summary = line.summary(column)
        bins = [None if summary is None else summary.by_context.get(name) for name in names]
        return [None if b is None else measured(b.gap if gap else b.log_likelihood) for b in bins]

    panels = _not_empty({c.title: _series(over_seeds(done), lambda line, c=c: values(line, c)) for c in columns})  # type: ignore[misc]
    if not panels:
        return []
    ylabel = "gap to the best possible" if gap else experiment.unit
    figure = draw_bins(
        names,
        panels,
        "number of context points",
        ylabel,
        share=len({c.task for c in columns if c.title in panels}) == 1,
        lower_is_better=gap,
    )
    caption = "Lower is better." if gap else "Higher is better."
    alt = f"{ylabel} against the number of context points"
    return [Heading("By number of context points"), Picture("context-size", figure, alt, caption)]


def learning_pictures(experiment: Experiment, done: Sequence[Line]) -> list[Block]:
    """Validation scores while training, for each task."""
    blocks: list[Block] = []
    for task in experiment.tasks:
        curves, missing, bad = [], [], []
        trained = [line for line in done if task in line.runs and not line.runs[task].is_baseline]
        for label, line in ((model.label, line) for model in over_seeds(trained) for line in model.lines):
            try:
                curve = Curve.read(label, line.style, line.runs[task].metrics())
            except Exception as error:  # a damaged metrics.jsonl affects one curve only
                bad.append(f"{line.label} ({sentence(error)})")
                continue
            if curve is None:
                missing.append(line.label)
            else:
                curves.append(curve)
        without = f"Not validated yet: {', '.join(missing)}." if missing else ""
        if curves:
            alt = f"validation log-likelihood on {task} against steps and against time"
            figure = draw_learning(curves, f"validation {experiment.unit}")
            caption = (
                f"On the validation set of {task}, while training, a curve for each seed. Time is that of a step, in"
                f" the median over the run, times the number of steps: pauses do not count. {without}"
            ).strip()
            blocks.append(Picture(f"learning-{task}", figure, alt, caption))
        elif missing:
            blocks.append(Paragraph(f"There is no learning curve on {task}. {without}"))
        if bad:
            blocks.append(Paragraph(f"Learning curves could not be drawn for {'; '.join(bad)}."))
    return [Heading("Learning curves"), *blocks] if blocks else []


def prediction_pictures(experiment: Experiment, done: Sequence[Line]) -> list[Block]:
    """Predictions of a few models for the same data sets, for each task."""
    blocks: list[Block] = []
    for task in experiment.tasks:
        models = {}
        try:
            lines = _to_show(experiment, [line for line in done if task in line.runs], task)
            if not lines:
                continue
            known = experiment.test_sets(lines[0].runs[task].task)
            sets = {c.title: known[c.test_set] for c in experiment.columns if c.task == task and c.test_set in known}
            for line in lines:
                try:
                    models[line.label] = line.runs[task].model()
                except Exception as error:  # a damaged run affects its own figure only
                    blocks.append(
                        Paragraph(f"Predictions on {task} could not be drawn for {line.label}: {sentence(error)}")
                    )
            if not models:
                continue
            looks = {line.label: line.style for line in lines}
            pictures = lines[0].runs[task].task.comparison(models, sets, looks) if sets else []
        except Exception as error:  # for instance, data that are not on this machine
            blocks.append(Paragraph(f"Predictions on {task} could not be drawn: {sentence(error)}"))
            continue
        for i, picture in enumerate(pictures):
            name = f"predictions-{task}" + (f"-{i + 1}" if len(pictures) > 1 else "")
            alt = f"predictions on {task}: {', '.join(models)}"
            blocks.append(Picture(name, picture.figure, alt, picture.caption, picture.drawn))
    return [Heading("Predictions"), *blocks] if blocks else []


def _to_show(experiment: Experiment, lines: Sequence[Line], task: str) -> list[Line]:
    """A few lines in their order: the main row first, then other models, then other rows of the same models."""

    def rank(line: Line) -> tuple[bool, int, int]:
        model = line.row.model
        position = SHOWN.index(model) if model in SHOWN else len(SHOWN)
        return line.row.name != experiment.main, position, -line.evaluations[task].step

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
    """Coverage minus nominal coverage of central intervals."""

    def covered(line: Line, column: Column) -> list[Measured | None]:
        summary = line.summary(column)
        values = [None if summary is None else measured(summary.coverage.get(name)) for name in COVERAGE]
        return [v and (100 * v[0], 100 * v[1]) for v in values]

    panels = _not_empty({c.title: _series(over_seeds(done), lambda line, c=c: covered(line, c)) for c in columns})  # type: ignore[misc]
    if not panels:
        return []
    caption = "Above zero: intervals are too wide (underconfident). Below zero: too narrow (overconfident)."
    return [Picture("calibration", draw_calibration(panels), "coverage achieved less nominal coverage", caption)]
