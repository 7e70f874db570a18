"""What an experiment of the paper is: models (rows), test sets (columns), presets and the paper's figures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from shiftnp._registry import choose
from shiftnp.baselines import BASELINES
from shiftnp.models import MODELS
from shiftnp.runs.config import RunConfig, Training
from shiftnp.tasks import TASKS, Task, TestSet

PresetName = Literal["laptop", "paper"]
Figures = tuple[float, float] | None
"""Mean and standard error of one entry of the paper's table, or None where it has none."""


WATCHING = ("seed", "log_every", "valid_every", "valid_tasks", "patience")
"""Entries of `Training` that make no other experiment of it: tables tell the seed, and the rest is for onlookers."""


class Column(NamedTuple):
    """One column of the table: a test set, of models trained on `task`."""

    title: str
    task: str
    test_set: str


@dataclass(frozen=True)
class Row:
    """One model of the table.

    Args:
        name: what `--model` calls it.
        title: what the paper calls it.
        model: name in `MODELS`, or in `BASELINES` for what is fitted to each context and not trained.
        settings: arguments that make it this row, or a function that tells them from the task.
        paper: the paper's figures, one for each column.
        paper_batch: batch size of the paper where it is not that of the other rows; the preset `paper` has it.
    """

    name: str
    title: str
    model: str
    settings: Mapping[str, Any] | Callable[[Task], Mapping[str, Any]] = field(default_factory=dict)
    paper: tuple[Figures, ...] = ()
    paper_batch: int | None = None


@dataclass(frozen=True)
class Preset:
    """A size of the experiment, the same for all its models.

    Args:
        model: arguments of every model that has such arguments, for instance `dz`.
        task: arguments of the training task. Test sets have them too, as far as the task's `test_sets` keeps them.
    """

    training: Training
    model: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)


def own_test_sets(task: Task) -> dict[str, TestSet]:
    """All test sets of a task but that for validation."""
    return {name: test_set for name, test_set in task.test_sets().items() if name != "valid"}


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    Args:
        name: what the command line calls it.
        title, about: what it is, for the report: one line, and a few sentences.
        tasks: names in `TASKS` of what models are trained on; more than one are trained on separately.
        rows: the models, in the order of the paper's table.
        main: name of the row that is trained unless another is asked for.
        columns: the test sets that make the table.
        presets: "laptop" and "paper".
        test_sets: the test sets of a task; by default those it names itself, without `valid`.
        unit: what the paper's figures are, for the report.
        measure: gives the result for a preset, as plain data, in an experiment that is measured and not trained.
    """

    name: str
    title: str
    about: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    main: str
    columns: tuple[Column, ...]
    presets: Mapping[str, Preset]
    test_sets: Callable[[Task], dict[str, TestSet]] = own_test_sets
    unit: str = "log-likelihood per target"
    measure: Callable[[PresetName], dict[str, Any]] | None = None

    def row(self, name: str) -> Row:
        """The row of that name. Any other model or baseline makes a row of its own, without figures of the paper."""
        rows = {row.name: row for row in self.rows}
        others = {m: Row(m, m.upper(), m, paper=(None,) * len(self.columns)) for m in (*MODELS, *BASELINES)}
        found: Row = choose(name, others | rows, f"model in {self.name}")
        return found

    def configure(
        self,
        row: str | None = None,
        task: str | None = None,
        preset: PresetName = "laptop",
        training: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        lenient: bool = False,
    ) -> RunConfig:
        """What `shiftnp train` runs.

        Args:
            row, task: which model (None: `main`) on which of the experiment's tasks (None: the first).
            training: entries of `Training` to use instead of the preset's.
            settings: arguments of the model, or, with names that begin with "task.", of the task.
            lenient: leave out settings that this row's model does not have, but others of the experiment do.
        """
        chosen, size = self.row(row or self.main), choose(preset, self.presets, f"preset of {self.name}")
        name = choose(task or self.tasks[0], {t: t for t in self.tasks}, f"task in {self.name}")
        settings = dict(settings or {})
        training = {k: v for k, v in (training or {}).items() if v != getattr(size.training, k)}
        known, known_task = _parameters(chosen.model), inspect.signature(TASKS[name]).parameters
        others = {k for r in self.rows for k in _parameters(r.model)} if lenient else set()
        settings = {k: v for k, v in settings.items() if k in known or k not in others}
        for setting in settings:
            if setting.startswith("task."):
                choose(setting.removeprefix("task."), known_task, f"setting of the task {name}")
            elif setting in known_task and setting not in known:
                raise ValueError(
                    f"{setting} is a setting of the task {name}: write task.{setting}={settings[setting]}."
                )
            else:
                choose(setting, {k: k for k in known if k not in ("dx", "dy")}, f"setting of {chosen.model}")
        task_settings = dict(size.task)
        task_settings |= {k.removeprefix("task."): v for k, v in settings.items() if k.startswith("task.")}
        model_settings = {k: v for k, v in size.model.items() if k in known}
        model_settings |= (
            chosen.settings(TASKS[name](**task_settings)) if callable(chosen.settings) else chosen.settings
        )
        model_settings |= {k: v for k, v in settings.items() if not k.startswith("task.")}
        planned, warmup = size.training, size.training.warmup
        if "steps" in training and "warmup" not in training and planned.steps:
            # A shorter run warms up for the same share of its steps.
            planned = replace(planned, warmup=round(warmup * min(1, training["steps"] / planned.steps)))
        of_row = {"batch_size": chosen.paper_batch} if preset == "paper" and chosen.paper_batch is not None else {}
        # A baseline is fitted to each context anew: there is nothing to train.
        of_baseline = {"steps": 0} if chosen.model in BASELINES else {}
        return RunConfig(
            model=chosen.model,
            task=name,
            training=replace(planned, **(of_row | training | of_baseline)),
            model_settings=model_settings,
            task_settings=task_settings,
            experiment=self.name,
            row=chosen.name,
            preset=preset,
            changes=tuple(f"{k}={_written(v)}" for k, v in (training | settings).items() if k not in WATCHING),
        )


def _parameters(model: str) -> Mapping[str, Any]:
    return inspect.signature(BASELINES[model] if model in BASELINES else MODELS[model]).parameters


def _written(value: Any) -> str:
    """A setting as one would type it."""
    return ",".join(map(_written, value)) if isinstance(value, tuple) else str(value)


def on_task(name: str) -> Experiment:
    """An experiment of one's own: any model on any task, for instance `table`. It has no table to report."""
    rows = tuple(Row(model, model.upper(), model) for model in MODELS)
    presets = {
        # A start for data of one's own; no figure rests on it.
        "laptop": Preset(Training(steps=2000, schedule="cosine", warmup=100, valid_every=250, valid_tasks=64)),
        "paper": Preset(Training()),
    }
    about = f"Any model on the task {name}."
    return Experiment(name, f"The task {name}", about, (name,), rows, "te-tnp", (), presets)
