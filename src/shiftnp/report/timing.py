"""The report of training times, from a measurement of `shiftnp bench train`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftnp import _schema
from shiftnp.experiments.base import Experiment
from shiftnp.plots.timing import draw_times
from shiftnp.report.page import Block, Cell, Heading, Items, Paragraph, Picture, Table, write_page
from shiftnp.report.tables import NONE, NOT_RUN


@dataclass(frozen=True)
class StepTime:
    """Seconds of a training step of one model, and their ratio to the TNP's; None if nothing was measured."""

    title: str
    steps: int
    median: float | None
    quartiles: tuple[float | None, ...]
    ratio: float | None


@dataclass(frozen=True)
class Measurement:
    """The result of `shiftnp.bench.train.measure`, which `shiftnp train timing` writes as JSON."""

    preset: str
    seed: int
    repeats: int
    finished: bool
    batch_size: int
    precision: str
    machine: dict[str, Any]
    models: dict[str, StepTime]


def read_measurement(path: Path) -> Measurement:
    """The measurement in a JSON file."""
    try:
        return _schema.from_json(Measurement, json.loads(path.read_text()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): measure again with `shiftnp train timing`.") from error


def make_timing_report(experiment: Experiment, result: Measurement, out: Path) -> tuple[Path, Path]:
    """Writes the report of training times, HTML and Markdown, into the folder `out` and returns both paths."""
    paper = {row.name: row.paper[0][0] if row.paper and row.paper[0] else None for row in experiment.rows}
    titles = {row.name: row.title for row in experiment.rows} | {n: m.title for n, m in result.models.items()}
    rows, ratios = [], {}
    for name, title in titles.items():
        m, printed = result.models.get(name), paper.get(name)
        cells = [Cell(), Cell(), Cell(), NOT_RUN]
        if m is not None and m.median is not None:
            ratio = NONE if m.ratio is None else f"{m.ratio:.2f}"
            texts = (_seconds(m.median), " to ".join(map(_seconds, m.quartiles)), str(m.steps), ratio)
            cells = [Cell(text) for text in texts]
        rows.append([Cell(title), *cells, Cell("" if printed is None else f"{printed:.2f}", quiet=True)])
        ratios[title] = (None if m is None else m.ratio, printed)
    group = "time relative to TNP"
    head = [("", "model"), ("", "median"), ("", "quartiles"), ("", "steps"), (group, "ours"), (group, "paper")]
    about = (
        f"Ours: preset {result.preset}, seed {result.seed}, {result.repeats} training steps of each model, batches of"
        f" {result.batch_size} tasks, {result.precision}."
    )
    if not result.finished:
        about += " The measurement was cut short."
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    theirs = "The paper's figures: hours for its first 200 epochs on a GPU, as printed there, divided by the TNP's."
    picture = Picture("times", draw_times(ratios, "training time, relative to TNP"), "training times relative to TNP")
    blocks: list[Block] = [
        Paragraph(experiment.about),
        Heading("What was run"),
        Items([about, f"Machine: {machine}.", theirs]),
        Heading("Times"),
        Table(head, rows, ["Seconds of a training step; median and quartiles over steps."]),
        picture,
    ]
    return write_page(out, experiment.name, experiment.title, blocks)


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f} s"
