"""The command `shiftnp train`."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_type_hints

from tyro.conf import Positional, arg

from shiftnp._memory import keep_freed_memory
from shiftnp._registry import choose
from shiftnp._text import printable
from shiftnp.cli.bench import Bench
from shiftnp.cli.settings import UsageError, check_least, check_needed, known_names, parse_setting, usage
from shiftnp.runs.config import Training

Text = Annotated[str | None, arg(metavar="NAME")]
Folder = Annotated[Path | None, arg(metavar="DIR")]
Whole = Annotated[int | None, arg(metavar="N")]
LONGEST_NAME = 60
"""Largest length of a run's folder name; in a longer one, a hash replaces the changes."""

if TYPE_CHECKING:
    TrainingOptions = dict[str, Any]
else:
    # Only the entries of Training that are given on the command line, so that None can be given as a value.
    _preset = arg(help_behavior_hint="(default: the preset's)")
    _entries = {name: Annotated[hint, _preset] for name, hint in get_type_hints(Training).items()}
    TrainingOptions = TypedDict("TrainingOptions", _entries, total=False)
    TrainingOptions.__doc__ = Training.__doc__  # where the help texts are


@dataclass(frozen=True)
class Train:
    """Trains a model of an experiment, or all of them. Ctrl-C saves a checkpoint; --resume continues from it.

    For instance: shiftnp train gp-1d --model te-tnp --steps 500 dz=64
    """

    experiment: Positional[Annotated[str | None, arg(metavar="[EXPERIMENT]")]] = None
    """Name of an experiment or of a task, see `shiftnp list`. For data of your own: table task.path=stations.csv
    task.inputs=lon,lat task.outputs=temperature."""
    settings: Positional[Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]")]] = ()
    """Arguments of the model as name=value (dz=64 layers=3), of its kernel as kernel.name=value (kernel=rotary
    kernel.frequencies=32), and of the task as task.name=value (task.noise=0.1 task.path=DIR). `shiftnp list NAME`
    explains those of a model or task, such as `shiftnp list table`."""
    model: Text = None
    """Which model, see `shiftnp list`; `all`: one after the other, resuming runs that exist. Default: the paper's own
    model."""
    task: Text = None
    """Which task, in experiments with several. Default: the first (with --model all: all of them)."""
    preset: Literal["laptop", "paper"] = "laptop"
    """laptop: 1 to 60 minutes a model on one core of a recent processor, about three times that on an older one, or
    hours of pretraining; paper: the paper's settings, days on a GPU."""
    out: Folder = None
    """Folder of the run. Default: runs/EXPERIMENT/MODEL-PRESET-seedN, followed by the changes or a hash of them."""
    resume: Folder = None
    """Folder of a run to resume. --steps changes the total number of steps."""

    training: Annotated[TrainingOptions, arg(name="")] = field(default_factory=lambda: TrainingOptions())
    """Training hyperparameters."""

    devices: Whole = None
    """Number of devices of each node, with one process each. Default: 1, or as started by torchrun."""
    nodes: Whole = None
    """Number of nodes. Default: 1, or as started by torchrun."""
    workers: int = 0
    """Number of DataLoader worker processes."""
    save_every: float = 60.0
    """Seconds between checkpoints: the training time that a crash can lose."""
    gap: bool = True
    """Compute the best possible log-likelihood on the validation tasks, if it is known, and show the gap to it."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run's folder."""

    def run(self) -> None:
        """Runs the command."""
        changes = dict(self.training)
        check_least("--steps", changes.get("steps"), 1)
        if self.resume is not None:
            if self.experiment or self.settings or self.model or self.task or self.out or changes.keys() - {"steps"}:
                raise UsageError("a resumed run keeps its settings: give --resume only, or with --steps.")
            self.train([(self.resume, None)], changes.get("steps"))
            return
        if self.experiment is None:
            raise UsageError("name an experiment or a task (`shiftnp list` shows them), or a run with --resume.")
        with usage():
            experiment = find_experiment(self.experiment, tasks_too=True)
        if experiment.bench is not None:
            if self.settings or self.model or self.task or changes:
                raise UsageError(f"{experiment.name} is measured, not trained: give --preset and --out only.")
            name = experiment.name
            Bench(experiment.bench, self.preset, out=self.out or Path("runs", name, self.preset, f"{name}.json")).run()
            return
        self.train(self.plan(experiment, changes))

    def plan(self, experiment: Any, changes: dict[str, Any]) -> list[tuple[Path, Any]]:
        """The folders of all runs to train, each with the config of a new run, or None for one that exists."""
        from shiftnp.runs.run import Run
        from shiftnp.tasks import task_class

        every = self.model == "all"
        if every and self.out is not None:
            raise UsageError("--out names the folder of one run: leave it out with --model all.")
        rows = [row.name for row in experiment.rows] if every else [self.model]
        tasks = list(experiment.tasks) if every and self.task is None else [self.task]
        plan: list[tuple[Path, Any]] = []
        for task in tasks:
            check_needed(task or experiment.tasks[0], self.settings)
            for row in rows:
                with usage():
                    cls = task_class(task or experiment.tasks[0])
                    settings = dict(parse_setting(text, cls) for text in self.settings)
                    config = experiment.configure(row, task, self.preset, changes, settings, lenient=every)
                folder = self.out or Path("runs") / experiment.name / folder_name(config, len(experiment.tasks) > 1)
                begun = every and (folder / "config.json").exists()
                if begun and Run.open(folder).config != config:
                    raise ValueError(f"{folder} holds a run with other settings: move it away, or train elsewhere.")
                with usage():
                    Run(folder, config).check()
                plan.append((folder, None if begun else config))
        return plan

    def train(self, plan: list[tuple[Path, Any]], steps: int | None = None) -> None:
        """Trains the planned runs: a new run for each config, or, if it is None, the existing run in the folder."""
        from shiftnp.runs.run import removed_on_failure
        from shiftnp.runs.train import make_fabric

        keep_freed_memory()
        fabric = make_fabric(self.devices, self.nodes)
        for folder, config in plan:
            with contextlib.ExitStack() as stack:
                if config is not None and fabric.is_global_zero:  # a new run
                    stack.enter_context(known_names())
                    stack.enter_context(removed_on_failure(folder))
                finished = self.train_one(folder, config, steps, fabric)
            if not finished:
                sys.exit(130)

    def train_one(self, folder: Path, config: Any, steps: int | None, fabric: Any) -> bool:
        """Trains one of the planned runs; returns whether it is finished, and not stopped."""
        from shiftnp.runs.run import Run
        from shiftnp.runs.train import train

        if fabric.is_global_zero:
            run = Run.open(folder) if config is None else Run.create(folder, config)
            run = run if steps is None else run.extend(steps)
            print(f"{run.config.label} on {printable(run.config.task)}: {folder}", flush=True)
        fabric.barrier()
        if not fabric.is_global_zero:
            run = Run.open(folder)
        if run.is_baseline:
            fabric.print("There is nothing to train: it is fitted to each context by `shiftnp evaluate`.")
        elif run.is_finished:
            fabric.print(f"Finished already, after {run.step} steps.")
        else:
            return train(run, fabric, self.workers, self.gap, self.save_every, self.tensorboard)
        return True


def find_experiment(name: str, tasks_too: bool = False) -> Any:
    """The experiment of that name; with `tasks_too`, also an experiment on the task of that name."""
    from shiftnp.experiments import EXPERIMENTS
    from shiftnp.experiments.base import on_task
    from shiftnp.tasks import TASKS

    if not tasks_too:
        return choose(name, EXPERIMENTS, "experiment")
    choose(name, {**EXPERIMENTS, **TASKS}, "experiment or task")
    return EXPERIMENTS[name] if name in EXPERIMENTS else on_task(name)


def folder_name(config: Any, with_task: bool) -> str:
    """Folder name of a run, such as te-tnp-laptop-seed0-dz=64; with a hash of the changes if it would be too long."""
    changes = [re.sub(r"=.*/", "=", change) for change in config.changes]  # only the last part of a path
    parts = [config.task] * with_task + [config.row, config.preset, f"seed{config.training.seed}"]
    name = "-".join([*parts, *changes])
    if len(name) > LONGEST_NAME:
        name = "-".join([*parts, hashlib.sha256("\n".join(config.changes).encode()).hexdigest()[:6]])
    return re.sub(r"[^\w=.,+-]+", "_", name)
