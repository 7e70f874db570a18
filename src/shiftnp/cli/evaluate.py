"""The commands `shiftnp evaluate` and `shiftnp report`."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from shiftnp.cli.settings import UsageError, check_least, usage

if TYPE_CHECKING:
    from shiftnp.runs.results import Evaluation
    from shiftnp.runs.run import Run


@dataclass(frozen=True)
class Evaluate:
    """Evaluates runs on the test sets of their experiment: prints tables, writes evaluation.json in each run's folder.

    A run that cannot be evaluated is left out, and the exit code is 1; a test set that a run does not have is a wrong
    command line.
    """

    runs: Positional[tuple[Path, ...]]
    """Folders of runs."""
    sets: tuple[str, ...] = ()
    """Names of test sets. Default: all of the experiment."""
    tasks: int | None = None
    """Use only this many tasks of each test set. Default: all."""
    gap: bool = True
    """Compute the gap to the best possible prediction, if that is known."""
    device: str = "cpu"
    """Torch device of the models."""
    out: Path | None = None
    """Also write all results to this JSON file."""

    def run(self) -> None:
        """Runs the command."""
        from rich.console import Console

        from shiftnp._io import write_json
        from shiftnp._registry import choose
        from shiftnp._text import sentence
        from shiftnp.experiments import evaluation_sets
        from shiftnp.report.terminal import print_tables
        from shiftnp.runs.evaluate import evaluate
        from shiftnp.runs.run import Run

        if not self.runs:
            raise UsageError("name the folder of at least one run, such as `shiftnp evaluate runs/gp-1d/*`.")
        check_least("--tasks", self.tasks, 1)
        results: list[Evaluation] = []
        bad: list[Exception] = []
        for folder in self.runs:
            try:
                run = Run.open(folder)
                sets = evaluation_sets(run)
                for name in self.sets:
                    with usage():
                        choose(name, sets, f"test set of {run.config.label}")
                options: Any = {"gap": self.gap, "warn": say, "test_sets": sets}
                results.append(evaluate(run, self.sets or None, self.tasks, self.device, **options))
            except Exception as error:
                if len(self.runs) == 1:
                    raise
                bad.append(error)
                say(f"Left out {folder}: {sentence(error)}")
        if results:
            print_tables(results, Console())
        if self.out is not None:
            try:
                self.out.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.out, [result.to_json() for result in results])
            except OSError as error:
                raise OSError(f"{self.out} cannot be written ({error.strerror or error}).") from error
        if bad:
            kind = UsageError if all(isinstance(error, UsageError) for error in bad) else ValueError
            raise kind(f"{len(bad)} of {len(self.runs)} runs could not be evaluated: {sentence(bad[0])}")


@dataclass(frozen=True)
class Report:
    """Writes a report of an experiment's runs: the paper's table with our scores beside the paper's, and figures."""

    experiment: Positional[str]
    """Name of the experiment, see `shiftnp list`."""
    runs: Path = Path("runs")
    """Folder that contains the runs."""
    out: Path = Path("reports")
    """Folder for EXPERIMENT.html, EXPERIMENT.md and EXPERIMENT.json."""
    tasks: int | None = None
    """Number of tasks of each test set for runs that were not evaluated yet. Default: all."""

    def run(self) -> None:
        """Runs the command."""
        from shiftnp.cli.train import find_experiment
        from shiftnp.report import make_report
        from shiftnp.report.timing import make_timing_report, read_measurement
        from shiftnp.runs.run import find_runs

        check_least("--tasks", self.tasks, 1)
        with usage():
            experiment = find_experiment(self.experiment)
        name = experiment.name
        if experiment.bench is not None:
            found = sorted((self.runs / name).glob(f"*/{name}.json"), key=lambda path: path.stat().st_mtime)
            if not found:
                raise FileNotFoundError(f"There is no measurement in {self.runs}: `shiftnp train {name}` makes one.")
            pages = make_timing_report(experiment, read_measurement(found[-1]), self.out)
        else:
            found_runs, unreadable = find_runs(self.runs / name)
            for text in unreadable:
                say(f"Left out: {text}")
            runs = [run for run in found_runs if run.config.experiment == name]
            pages = make_report(experiment, runs, self.out, self.evaluation, where=self.runs, unreadable=unreadable)
        for page in pages:
            print(page.resolve())

    def evaluation(self, run: Run) -> Evaluation:
        """The evaluation in the run's folder, with missing test sets added, or a new one."""
        from shiftnp.experiments import evaluation_sets
        from shiftnp.runs.evaluate import evaluate, is_current, read_evaluation

        known, sets = None, evaluation_sets(run)
        with contextlib.suppress(ValueError, OSError):  # a file that cannot be read is overwritten
            known = read_evaluation(run)
        if known is None or not is_current(run, known):
            return evaluate(run, tasks=self.tasks, warn=say, test_sets=sets)
        missing = [name for name in sets if name not in known.sets]
        return evaluate(run, missing, known.tasks, warn=say, test_sets=sets) if missing else known


def say(text: str) -> None:
    """Prints a line to standard error, with control characters escaped."""
    from shiftnp._text import printable

    print(printable(text), file=sys.stderr, flush=True)
