"""The report of an experiment: the paper's table and figures from evaluated runs (`shiftnp report EXPERIMENT`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from shiftnp._io import write_json
from shiftnp._text import printable, sentence
from shiftnp.experiments.base import Experiment
from shiftnp.report.lines import Line, gather
from shiftnp.report.page import Block, Heading, Items, Paragraph, write_page
from shiftnp.report.pictures import (
    calibration_picture,
    context_pictures,
    learning_pictures,
    prediction_pictures,
    score_picture,
    sweep,
)
from shiftnp.report.record import record
from shiftnp.report.tables import count, gap_table, measure_table, score_table, seed_table
from shiftnp.runs.results import Evaluation
from shiftnp.runs.run import Run


def make_report(
    experiment: Experiment,
    runs: Sequence[Run],
    out: Path,
    evaluate: Callable[[Run], Evaluation],
    quiet: bool = False,
    where: Path | str = "runs",
    unreadable: Sequence[str] = (),
) -> tuple[Path, Path]:
    """Writes the report of an experiment into the folder `out`, and returns the paths of `NAME.html` and `NAME.md`.

    `NAME.json` beside them has the command, the settings and all scores of each run.

    Args:
        runs: runs of the experiment. Those without weights and those that cannot be evaluated are left out, and the
            report lists them.
        evaluate: function that returns the evaluation of a run, as `shiftnp.runs.evaluate.evaluate` does.
        quiet: print nothing.
        where: the folder that was searched for runs, for the message if there are none.
        unreadable: error messages of runs that could not be opened, for the report.
    """
    console = Console(quiet=quiet, soft_wrap=True, markup=False, highlight=False)
    usable = [run for run in runs if run.is_baseline or (run.folder / "model.safetensors").is_file()]
    if not usable:
        what = "no run" if not runs else f"no run with weights, only {len(runs)} that just began,"
        raise FileNotFoundError(
            f"There is {what} of {experiment.name} in {where}: `shiftnp train {experiment.name}` makes one."
        )
    good: list[Run] = []
    evaluations: list[Evaluation] = []
    bad = [printable(text) for text in unreadable]
    for i, run in enumerate(usable, 1):
        try:
            label = printable(run.config.label)
            console.print(f"{i} of {len(usable)}: {label}, seed {run.config.training.seed}")
            evaluations.append(evaluate(run))
            good.append(run)
        except Exception as error:  # a failure of one run must not prevent the report of all others
            bad.append(printable(f"{run.folder}: {sentence(error)}"))
            console.print(f"Left out: {bad[-1]}")
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
        blocks += [Heading("Gap to the best possible prediction"), gaps]
    seeds = seed_table(experiment, lines)
    if seeds is not None:
        blocks += [Heading("Each seed"), seeds]
    blocks += context_pictures(experiment, done, ends)
    blocks += learning_pictures(experiment, done)
    console.print("Drawing predictions.")
    blocks += prediction_pictures(experiment, done)
    blocks += [Heading("Errors and calibration"), measure_table(done, ends)]
    blocks += calibration_picture(done, ends)
    paths = write_page(out, experiment.name, experiment.title, blocks)
    write_json(out / f"{experiment.name}.json", record(experiment, good, evaluations))
    return paths


def _statement(experiment: Experiment, done: Sequence[Line]) -> Items:
    """How our results and those of the paper were obtained."""
    evaluations = [e for line in done for e in line.evaluations.values()]

    def distinct(values: Sequence[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    steps = distinct([count(e.step) for e in evaluations if e.steps]) or "no"
    sizes = sorted({summary.tasks for e in evaluations for summary in e.sets.values()})
    ours = f"Ours: {len(evaluations)} run{'s' * (len(evaluations) != 1)}, preset"
    ours += f" {distinct([e.preset for e in evaluations if e.preset]) or 'none'}"
    if any(e.changes for e in evaluations):
        ours += " with changed settings, see the numbers in brackets below the table of scores"
    seeds = distinct([e.seed for e in evaluations])
    ours += f"; {steps} training steps; seed{'s' * (',' in seeds)} {seeds}."
    if sizes:
        ours += f" Evaluated on {' or '.join(map(count, sizes))} tasks of each test set."
    machines = [
        f"{m.processor}, device {m.device}, {m.threads} thread{'s' * (m.threads != 1)}, torch {m.torch}"
        for m in dict.fromkeys(e.machine for e in evaluations)
    ]
    tasks = {name: run for line in done for name, run in line.runs.items()}
    sources = [f"Data of {name}: {text}" for name, run in tasks.items() if (text := _data(run)) is not None]
    items = [ours, *sources, *(f"Machine of the evaluation: {machine}." for machine in machines)]
    if "paper" in experiment.presets and experiment.has_paper_results:
        training = experiment.presets["paper"].training
        items.append(
            "The paper's figures are copied from the paper (Ashman et al., 2024), on other test tasks and after"
            f" {count(training.steps)} training steps on a GPU. They were not measured here."
        )
    return Items(items)


def _data(run: Run) -> str | None:
    """Which data a run used; None: it generates them, or its files are not here."""
    with contextlib.suppress(OSError, ValueError):
        return run.task.data
    return None
