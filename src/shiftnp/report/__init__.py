"""From finished runs to the paper's table and figures: `shiftnp report EXPERIMENT`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from shiftnp.experiments.base import Experiment
from shiftnp.plots.timing import draw_times
from shiftnp.report.page import Block, Cell, Heading, Items, Paragraph, Picture, Table, write_page
from shiftnp.report.pictures import (
    calibration_picture,
    context_pictures,
    learning_pictures,
    prediction_pictures,
    score_picture,
    sweep,
)
from shiftnp.report.tables import NONE, NOT_RUN, Line, count, gap_table, gather, measure_table, score_table
from shiftnp.runs.run import Run


def make_report(
    experiment: Experiment,
    runs: Sequence[Run],
    out: Path,
    evaluate: Callable[[Run], Mapping[str, Any]],
    quiet: bool = False,
    where: Path | str = "runs",
) -> tuple[Path, Path]:
    """Writes the report of an experiment, `NAME.html` and `NAME.md`, into the folder `out`, and returns both paths.

    Args:
        runs: of the experiment; those without weights or that cannot be evaluated are left out, and the report says
            so.
        evaluate: gives the evaluation of a run, as `shiftnp.runs.evaluate.evaluate` does.
        quiet: tell nothing of what is being done.
        where: the folder that runs were looked for in, for the message if there are none.
    """
    console = Console(quiet=quiet, soft_wrap=True)
    usable = [run for run in runs if run.is_baseline or (run.folder / "model.safetensors").is_file()]
    if not usable:
        what = "no run" if not runs else f"no run with weights, only {len(runs)} that just began,"
        raise FileNotFoundError(
            f"There is {what} of {experiment.name} in {where}: `shiftnp train {experiment.name}` makes one."
        )
    good: list[Run] = []
    evaluations: list[Mapping[str, Any]] = []
    bad: list[str] = []
    for i, run in enumerate(usable, 1):
        console.print(f"{i} of {len(usable)}: {run.config.label}, seed {run.config.training.seed}", markup=False)
        try:
            evaluations.append(evaluate(run))
            good.append(run)
        except (ValueError, OSError, ImportError) as error:  # a damaged file, or data that are not on this machine
            bad.append(f"{run.folder}: {error}")
            console.print(f"Left out: {error}", markup=False)
    if not good:
        raise ValueError(f"No run of {experiment.name} in {where} can be evaluated. {' '.join(bad)}")
    lines = gather(experiment, good, evaluations)
    done = [line for line in lines if line.runs]
    ends = (
        list(experiment.columns)
        if sweep(experiment.columns) is None
        else [experiment.columns[0], experiment.columns[-1]]
    )

    blocks: list[Block] = [Paragraph(experiment.about), Heading("What was run"), _statement(experiment, done)]
    left_out = [run.folder for run in runs if run not in usable]
    if left_out:
        blocks.append(Paragraph(f"Left out, because they have no weights yet: {', '.join(map(str, left_out))}."))
    if bad:
        blocks += [Paragraph("Left out, because they cannot be evaluated:"), Items(bad)]
    blocks += [Heading("Scores"), score_table(experiment, lines), score_picture(experiment, lines)]
    gaps = gap_table(experiment, lines)
    if gaps is not None:
        blocks += [Heading("Gap to the ceiling"), gaps]
    blocks += context_pictures(experiment, done, ends)
    blocks += learning_pictures(experiment, done)
    console.print("Drawing predictions.")
    blocks += prediction_pictures(experiment, done)
    blocks += [Heading("Errors and calibration"), measure_table(experiment, done, ends)]
    blocks += calibration_picture(done, ends)
    return write_page(out, experiment.name, experiment.title, blocks)


def make_timing_report(experiment: Experiment, result: Mapping[str, Any], out: Path) -> tuple[Path, Path]:
    """Writes the report of training times into the folder `out` and returns both paths.

    Args:
        result: what `shiftnp.bench.train.measure` gives, and `shiftnp train timing` keeps in `timing.json`.
    """
    models: Mapping[str, Mapping[str, Any]] = result["models"]
    paper = {row.name: row.paper[0][0] if row.paper and row.paper[0] else None for row in experiment.rows}
    titles = {row.name: row.title for row in experiment.rows} | {n: str(m["title"]) for n, m in models.items()}
    rows = []
    for name, title in titles.items():
        m = models.get(name, {})
        ours = [_seconds(m.get("median")), " to ".join(_seconds(q) for q in m.get("quartiles") or [None])]
        ratio = m.get("ratio")
        ours += [str(m.get("steps", "")), NONE if ratio is None else f"{ratio:.2f}"]
        theirs = paper.get(name, m.get("paper_ratio"))
        cells = [Cell(text) for text in ours] if m.get("median") is not None else [Cell(), Cell(), Cell(), NOT_RUN]
        rows.append([Cell(title), *cells, Cell("" if theirs is None else f"{theirs:.2f}", quiet=True)])
    group = "time relative to TNP"
    head = [("", "model"), ("", "median"), ("", "quartiles"), ("", "steps"), (group, "ours"), (group, "paper")]
    about = (
        f"Ours: preset {result.get('preset')}, seed {result.get('seed')}, {result.get('repeats')} steps of each model"
    )
    about += f", batches of {result.get('batch_size')} tasks, {result.get('precision')}."
    if not result.get("finished", True):
        about += " The measurement was cut short."
    items = [about, f"Machine: {_machine(result)}."]
    items.append(
        "The paper's figures: hours for its first 200 epochs on a GPU, as printed there, divided by the TNP's."
    )
    known = {titles[name]: (models.get(name, {}).get("ratio"), paper.get(name)) for name in titles}
    picture = Picture("times", draw_times(known, "training time, relative to TNP"), "training times relative to TNP")
    blocks: list[Block] = [Paragraph(experiment.about), Heading("What was run"), Items(items), Heading("Times")]
    return write_page(out, experiment.name, experiment.title, [*blocks, Table(head, rows), picture])


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f} s"


def _machine(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in (result.get("machine") or {}).items())


def _statement(experiment: Experiment, done: Sequence[Line]) -> Items:
    """What our figures are, and what the paper's are."""

    def all_of(name: str) -> str:
        values = [e.get(name) for line in done for e in line.evaluations.values()]
        return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))

    evaluations = [e for line in done for e in line.evaluations.values()]
    trained = [e for e in evaluations if e["steps"]]
    steps = ", ".join(dict.fromkeys(count(e["step"]) for e in trained)) or "no"
    sizes = sorted({s["tasks"] for e in evaluations for s in e["sets"].values() if s.get("tasks")})
    changes = list(dict.fromkeys(change for e in evaluations for change in e.get("changes", ())))
    ours = f"Ours: {len(evaluations)} run{'s' * (len(evaluations) != 1)}, preset {all_of('preset') or 'none'}"
    ours += f" (changed: {', '.join(changes)})" if changes else " (nothing changed)"
    ours += f", {steps} training steps, seed {all_of('seed')}."
    if sizes:
        ours += f" Evaluated on {' or '.join(map(count, sizes))} tasks of each test set."
    machines = [_machine(e) for e in evaluations]
    items = [ours]
    items += [f"Machine of the evaluation: {machine}." for machine in dict.fromkeys(machines) if machine]
    if "paper" in experiment.presets and any(figures for row in experiment.rows for figures in row.paper):
        training = experiment.presets["paper"].training
        items.append(
            f"The paper's figures: as printed there, not measured here. The paper trained for {count(training.steps)}"
            " steps on a GPU; ours hold for the budget above."
        )
    return Items(items)
