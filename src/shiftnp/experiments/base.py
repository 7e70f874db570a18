"""Experiments: models (rows), test sets (columns), presets and the paper's results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

from shiftnp._registry import choose
from shiftnp.baselines import BASELINES
from shiftnp.experiments.settings import (
    argument_of,
    check_settings,
    default_kernel,
    merge_kernel,
    model_parameters,
    split,
    written,
)
from shiftnp.models import MODELS
from shiftnp.runs.config import RunConfig, Training
from shiftnp.tasks import TASKS, Task, TestSet
from shiftnp.tasks.base import reported_test_sets

PresetName = Literal["laptop", "paper"]
Figures = tuple[float, float] | None
"""Mean and standard error of one entry of the paper's table; None: the entry is empty."""


NOT_CHANGES = ("seed", "log_every", "valid_every", "valid_tasks", "patience")
"""Entries of `Training` that do not count as changes of the preset: the seed, which tables show, and monitoring."""


class Column(NamedTuple):
    """One column of the table: a test set for models trained on `task`."""

    title: str
    task: str
    test_set: str


@dataclass(frozen=True)
class Row:
    """One model of the table.

    Args:
        name: its name on the command line (`--model`).
        title: its name in the paper.
        model: name in `MODELS`, or in `BASELINES` for a model that is fitted to each context and not trained.
        settings: arguments of the model in this row, or a function that returns them for a task.
        paper: the paper's results, one for each column.
        paper_batch: batch size in the preset `paper`, if it differs from that of the other rows.
        laptop: entries of `Training` in the preset `laptop` that differ from those of the other rows.
    """

    name: str
    title: str
    model: str
    settings: Mapping[str, Any] | Callable[[Task], Mapping[str, Any]] = field(default_factory=dict)
    paper: tuple[Figures, ...] = ()
    paper_batch: int | None = None
    laptop: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """The settings of an experiment, the same for all its models.

    Args:
        training: training hyperparameters.
        model: arguments of the models, for instance `dz`; each model uses those that it has.
        task: arguments of the training task, and of its test sets unless the task's `test_sets` replaces them.
        models: further arguments of single models, by their name in `MODELS`.
    """

    training: Training
    model: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, or one like it.

    Args:
        name: its name on the command line.
        title, about: for the report, one line and a few sentences.
        tasks: names in `TASKS` of the training tasks; a model is trained on one of them.
        rows: the models, in the order of the paper's table.
        main: name of the row that is trained by default.
        columns: the test sets of the table.
        presets: "laptop" and, if the experiment is one of the paper, "paper".
        test_sets: function that returns the test sets of a task; by default all of the task's own except `valid`.
        unit: name of the metric in the paper's table, for the report.
        bench: name of the `shiftnp bench` that measures the experiment, if it is measured and not trained.
    """

    name: str
    title: str
    about: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    main: str
    columns: tuple[Column, ...]
    presets: Mapping[str, Preset]
    test_sets: Callable[[Task], dict[str, TestSet]] = reported_test_sets
    unit: str = "log-likelihood per target"
    bench: Literal["train"] | None = None

    @property
    def has_paper_results(self) -> bool:
        """Whether the paper has results of this experiment."""
        return any(figures for row in self.rows for figures in row.paper)

    def row(self, name: str) -> Row:
        """The row of that name, or, for any other model or baseline, a row without results of the paper."""
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
        """The configuration of the run that `shiftnp train` starts.

        Args:
            row, task: which model (None: `main`) on which of the experiment's tasks (None: the first).
            training: entries of `Training` to use instead of the preset's.
            settings: arguments of the model, of its kernel (names with the prefix "kernel.") and of the task (names
                with the prefix "task.").
            lenient: ignore settings that this row's model does not have, but others of the experiment do.
        """
        chosen, size = self.row(row or self.main), choose(preset, self.presets, f"preset of {self.name}")
        name = choose(task or self.tasks[0], {t: t for t in self.tasks}, f"task in {self.name}")
        known = model_parameters(chosen.model)
        settings = dict(settings or {})
        if lenient:
            others = {k for r in self.rows for k in model_parameters(r.model)} - set(known)
            settings = {k: v for k, v in settings.items() if argument_of(k) not in others}
        given = split(settings)
        check_settings(given, chosen.model, name)

        task_settings = {**size.task, **given.task}
        of_row = chosen.settings(TASKS[name](**task_settings)) if callable(chosen.settings) else chosen.settings
        of_preset = {k: v for k, v in size.model.items() if k in known} | dict(size.models.get(chosen.model, {}))
        model_settings = {**of_preset, **of_row, **given.model}
        if given.kernel:
            kernel = model_settings.get("kernel", default_kernel(chosen.model))
            model_settings["kernel"] = merge_kernel(kernel, given.kernel)

        entries, changed = self._training(chosen, size, preset, training or {})
        return RunConfig(
            model=chosen.model,
            task=name,
            training=entries,
            model_settings=model_settings,
            task_settings=task_settings,
            experiment=self.name,
            row=chosen.name,
            preset=preset,
            changes=tuple(f"{k}={written(v)}" for k, v in (changed | settings).items() if k not in NOT_CHANGES),
        )

    @staticmethod
    def _training(row: Row, size: Preset, preset: str, given: Mapping[str, Any]) -> tuple[Training, dict[str, Any]]:
        """The training of a row, and which of the given entries differ from the preset."""
        for name in given:
            choose(name, {entry.name: entry for entry in fields(Training)}, "training option")
        planned = size.training
        if preset == "paper" and row.paper_batch is not None:
            planned = replace(planned, batch_size=row.paper_batch)
        if preset == "laptop":
            planned = replace(planned, **row.laptop)
        changed = {name: value for name, value in given.items() if value != getattr(planned, name)}
        training = replace(planned, **changed)
        if "steps" in changed and "warmup" not in given and planned.steps:
            # A shorter run warms up for the same fraction of its steps.
            training = replace(training, warmup=round(planned.warmup * min(1, training.steps / planned.steps)))
        if row.model in BASELINES:  # fitted to each context, not trained
            training = replace(training, steps=0)
        return training, changed


def on_task(name: str) -> Experiment:
    """An experiment with any model on one task, for instance `table`. It has no table in the paper."""
    rows = tuple(Row(model, model.upper(), model) for model in MODELS)
    # A first guess for the user's own data, not tuned on any.
    training = Training(steps=2000, schedule="cosine", warmup=100, valid_every=250, valid_tasks=64)
    models: dict[str, Any] = {}
    if name == "table":  # little data, of which later weights may know too much, and no time for the MLP kernel
        training = replace(training, keep="best")
        models = {m: {"kernel": "rotary"} for m in ("te-tnp", "te-pt-tnp")}
    presets = {"laptop": Preset(training, models=models), "paper": Preset(Training())}
    about = f"Any model on the task {name}."
    return Experiment(name, f"The task {name}", about, (name,), rows, "te-tnp", (), presets)
