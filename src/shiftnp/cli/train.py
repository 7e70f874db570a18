"""`shiftnp train`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from shiftnp._registry import choose
from shiftnp.cli.bench import Bench
from shiftnp.cli.settings import parse_setting
from shiftnp.runs.config import Precision, Schedule, Training

Text = Annotated[str | None, arg(metavar="NAME")]
Folder = Annotated[Path | None, arg(metavar="DIR")]
Whole = Annotated[int | None, arg(metavar="N")]
Number = Annotated[float | None, arg(metavar="NUMBER")]


@dataclass(frozen=True)
class Train:
    """Trains a model of an experiment, or all of them. Ctrl-C saves; --resume goes on.

    For instance: shiftnp train gp-1d --model te-tnp --steps 500 dz=64
    """

    experiment: Positional[Annotated[str | None, arg(metavar="[EXPERIMENT]")]] = None
    """Name of the experiment, see `shiftnp list`. A task of one's own will do: table task.path=stations.csv
    task.inputs=lon,lat task.outputs=temperature."""
    settings: Positional[Annotated[tuple[str, ...], arg(metavar="[NAME=VALUE ...]")]] = ()
    """Arguments of the model as name=value (dz=64 layers=3), and of the task as task.name=value (task.noise=0.1,
    task.path=DIR), all in one place."""
    model: Text = None
    """Which model, see `shiftnp list`; `all`: one after the other, going on with what was begun. Default: the paper's
    own model."""
    task: Text = None
    """Which task, in experiments with several. Default: the first (with --model all: all of them)."""
    preset: Literal["laptop", "paper"] = "laptop"
    """laptop: meant for 20 to 40 minutes a model on two cores; paper: the paper's settings, days on a GPU."""
    out: Folder = None
    """Folder of the run. Default: runs/EXPERIMENT/MODEL-PRESET-seedN."""
    resume: Folder = None
    """Folder of a run to go on with. With --steps it is trained for longer."""

    steps: Whole = None
    """Training steps. This and what follows: default from the preset."""
    batch_size: Whole = None
    """Tasks in a batch, shared out among all devices."""
    learning_rate: Number = None
    """Of AdamW."""
    weight_decay: Number = None
    """Of AdamW."""
    clip: Number = None
    """Largest gradient, entry by entry."""
    schedule: Schedule | None = None
    """Of the learning rate."""
    warmup: Whole = None
    """Steps over which the learning rate rises."""
    ema: Number = None
    """Decay of a moving average of the weights, for instance 0.999."""
    precision: Precision | None = None
    """bf16: products in bfloat16 where that is safe; bf16-pairs: only those of the paper's networks of pairs."""
    seed: Whole = None
    """Decides initial weights and data."""
    log_every: Whole = None
    """Steps between entries of the loss."""
    valid_every: Whole = None
    """Steps between validations."""
    valid_tasks: Whole = None
    """Tasks to validate on."""
    patience: Whole = None
    """Steps in a row without a finite loss after which the run gives up."""

    devices: Whole = None
    """Devices of each node, a process each. Default: 1, or what torchrun has started."""
    nodes: Whole = None
    """Nodes. Default: 1, or what torchrun has started."""
    workers: int = 0
    """Processes that make batches ahead of time."""
    save_every: float = 60.0
    """Seconds between checkpoints: what a crash may cost."""
    gap: bool = True
    """Work out what can be reached on the validation tasks, where that is known, and show the gap to it."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run's folder."""

    def run(self) -> None:
        from shiftnp.runs.run import Run

        asked = {entry.name: getattr(self, entry.name) for entry in fields(Training)}
        changes = {name: value for name, value in asked.items() if value is not None}
        if self.resume is not None:
            if self.experiment or self.settings or self.model or self.task or self.out or changes.keys() - {"steps"}:
                raise ValueError("a run that goes on keeps its settings: give --resume alone, or with --steps.")
            self.train([(self.resume, None)], changes.get("steps"))
            return
        if self.experiment is None:
            raise ValueError("name an experiment (`shiftnp list` shows them), or a run with --resume.")
        experiment = find_experiment(self.experiment, tasks_too=True)
        if experiment.name == "timing":
            Bench("train", self.preset, out=self.out or Path("runs/timing") / self.preset / "timing.json").run()
            return
        settings = {name: absolute(name, value) for name, value in map(parse_setting, self.settings)}
        every = self.model == "all"
        if every and self.out is not None:
            raise ValueError("--out names the folder of one run: leave it out with --model all.")
        rows = [row.name for row in experiment.rows] if every else [self.model]
        tasks = list(experiment.tasks) if every and self.task is None else [self.task]
        plan: list[tuple[Path, Any]] = []
        for task in tasks:
            for row in rows:
                config = experiment.configure(row, task, self.preset, changes, settings, lenient=every)
                folder = self.out or Path("runs") / experiment.name / folder_name(config, len(experiment.tasks) > 1)
                begun = every and (folder / "config.json").exists()
                if begun and Run.open(folder).config != config:
                    raise ValueError(f"{folder} holds a run with other settings: move it away, or train elsewhere.")
                plan.append((folder, None if begun else config))
        self.train(plan)

    def train(self, plan: list[tuple[Path, Any]], steps: int | None = None) -> None:
        """Trains what is to be trained: in each folder a new run with a config, or, without one, the run it holds."""
        from shiftnp.runs.run import Run
        from shiftnp.runs.train import make_fabric, train

        fabric = make_fabric(self.devices, self.nodes)
        for folder, config in plan:
            if config is not None and fabric.is_global_zero:
                Run.create(folder, config)
            fabric.barrier()
            run = Run.open(folder)
            if steps is not None:
                if fabric.is_global_zero:
                    run.extend(steps)
                fabric.barrier()
                run = Run.open(folder)
            if fabric.is_global_zero:
                print(f"{run.config.label} on {run.config.task}: {folder}", flush=True)
            if run.is_baseline:
                fabric.print("There is nothing to train: it is fitted to each context by `shiftnp evaluate`.")
            elif run.is_finished:
                fabric.print(f"Finished already, after {run.step} steps.")
            elif not train(run, fabric, self.workers, self.gap, self.save_every, self.tensorboard):
                sys.exit(130)


def find_experiment(name: str, tasks_too: bool = False) -> Any:
    """The experiment of that name; with `tasks_too`, a task of that name makes an experiment as well."""
    from shiftnp.experiments import EXPERIMENTS
    from shiftnp.experiments.base import on_task
    from shiftnp.tasks import TASKS

    if tasks_too and name in TASKS and name not in EXPERIMENTS:
        return on_task(name)
    return choose(name, EXPERIMENTS, "experiment")


def absolute(name: str, value: Any) -> Any:
    """Files by their full names, so that a run finds them from anywhere."""
    is_path = name in ("task.path", "task.elevation") and isinstance(value, str)  # the task refuses other types
    return str(Path(value).expanduser().absolute()) if is_path else value


def folder_name(config: Any, with_task: bool) -> str:
    """Such as te-tnp-laptop-seed0, with all that was set otherwise than in the preset."""
    changes = [re.sub(r"=.*/", "=", change) for change in config.changes]  # of a path, its last part
    parts = [config.task] * with_task + [config.row, config.preset, f"seed{config.training.seed}", *changes]
    return re.sub(r"[^\w=.,+-]+", "_", "-".join(parts))
