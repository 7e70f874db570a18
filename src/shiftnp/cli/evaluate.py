"""`shiftnp evaluate` and `shiftnp report`."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional


@dataclass(frozen=True)
class Evaluate:
    """Measures runs on the test sets of their experiment: a table, and evaluation.json in each run's folder."""

    runs: Positional[tuple[Path, ...]]
    """Folders of runs."""
    sets: tuple[str, ...] = ()
    """Names of test sets. Default: all of the experiment."""
    tasks: int | None = None
    """Use the first so many tasks of each test set only. Default: all."""
    gap: bool = True
    """Work out what can be reached, where that is known, and the gap to it."""
    device: str = "cpu"
    """Where to predict."""
    out: Path | None = None
    """Write all results to this JSON file, too."""

    def run(self) -> None:
        from rich.console import Console

        from shiftnp._io import write_json
        from shiftnp.report.terminal import print_tables
        from shiftnp.runs.evaluate import evaluate
        from shiftnp.runs.run import Run

        if not self.runs:
            raise ValueError("name the folder of at least one run.")
        opened = [Run.open(folder) for folder in self.runs]
        results = [evaluate(run, self.sets or None, self.tasks, self.device, gap=self.gap) for run in opened]
        print_tables(results, Console())
        if self.out is not None:
            write_json(self.out, results)


@dataclass(frozen=True)
class Report:
    """Makes a page of an experiment's runs: the paper's table, ours beside the paper's figures, and its pictures."""

    experiment: Positional[str]
    """Name of the experiment, see `shiftnp list`."""
    runs: Path = Path("runs")
    """Folder in which the runs are."""
    out: Path = Path("reports")
    """Folder for EXPERIMENT.html and EXPERIMENT.md."""
    tasks: int | None = None
    """Runs that were not evaluated yet are evaluated on the first so many tasks of each test set. Default: all."""

    def run(self) -> None:
        from shiftnp.cli.train import find_experiment
        from shiftnp.report import make_report, make_timing_report
        from shiftnp.runs.evaluate import evaluate, is_current, read_evaluation, sets_of
        from shiftnp.runs.run import Run, find_runs

        experiment = find_experiment(self.experiment)
        if experiment.name == "timing":
            found = sorted((self.runs / "timing").glob("*/timing.json"), key=lambda path: path.stat().st_mtime)
            if not found:
                raise FileNotFoundError(f"There is no measurement in {self.runs}: `shiftnp train timing` makes one.")
            pages = make_timing_report(experiment, json.loads(found[-1].read_text()), self.out)
        else:

            def evaluated(run: Run) -> Any:
                known = None
                with contextlib.suppress(ValueError):  # what cannot be read is made anew
                    known = read_evaluation(run)
                if known is None or not is_current(run, known):
                    return evaluate(run, tasks=self.tasks)
                missing = [name for name in sets_of(run) if name not in known["sets"]]
                return evaluate(run, missing, known["tasks"]) if missing else known

            found_runs, unreadable = find_runs(self.runs / experiment.name)
            for sentence in unreadable:
                print(f"Left out: {sentence}", file=sys.stderr)
            runs = [run for run in found_runs if run.config.experiment == experiment.name]
            pages = make_report(experiment, runs, self.out, evaluated, where=self.runs)
        for page in pages:
            print(page.resolve())
