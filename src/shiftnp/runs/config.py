"""The configuration of a run, as stored in its `config.json`. This module does not import torch."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from shiftnp._arguments import check_type
from shiftnp._text import printable

Schedule = Literal["constant", "cosine", "cosine-squared"]
Optimiser = Literal["adamw", "muon"]
Precision = Literal["float32", "bf16", "bf16-pairs"]
Keep = Literal["last", "best"]

LEAST = {"steps": 0, "batch_size": 1, "warmup": 0, "seed": 0}
LEAST |= dict.fromkeys(("log_every", "valid_every", "valid_tasks", "patience"), 1)
"""Smallest value of every integer in `Training`."""
WARMUP = 0.05
"""Part of the time at the end of which the warm-up of a timed training is over, if its steps are not."""


@dataclass(frozen=True)
class Training:
    """Training hyperparameters. The defaults are the paper's.

    Each entry is an option of `shiftnp train`, with the help text below.

    Args:
        steps: Number of training steps, one batch each.
        minutes: Minutes of training instead of a number of steps; schedule and validations follow the clock.
        batch_size: Tasks in a batch, split among all devices.
        optimiser: adamw, or muon: Muon for hidden matrices, AdamW for the other parameters. Muon needs fewer steps.
        learning_rate: Learning rate of the optimiser.
        weight_decay: Weight decay of the optimiser, relative to the learning rate.
        clip: Gradients are clipped to this absolute value, entry by entry; None: no clipping.
        schedule: Learning-rate schedule: constant, cosine decay to zero at the last step, or cosine-squared, the square
            of that decay, which falls earlier: the last fifth of the steps has less than a hundredth of the rate.
        warmup: Steps of linear learning-rate warm-up.
        ema: Decay of an exponential moving average (EMA) of the weights, for instance 0.999, which is then validated
            and saved; None: no EMA.
        precision: bf16: bfloat16 autocast; bf16-pairs: bfloat16 matrix products in the pairwise MLPs only, nearly all
            of the work of the MLP kernel. Weights stay float32.
        keep: Which weights are saved: the last ones, or those that were best in validation (with several validation
            sets, on the one that has gained least).
        init: Initial weights: 1d, 2d or 3d, those in the package, or the folder of a run or of pretrained weights, of a
            model of the same kind and size. With a rotary kernel it may have fewer inputs. None: random.
        seed: Random seed of the initial weights and of the data.
        log_every: Steps between two entries of the loss in metrics.jsonl.
        valid_every: Steps between two validations.
        valid_tasks: Number of tasks of the validation set to use.
        patience: Consecutive steps without a finite loss and gradient after which training stops.
    """

    steps: int = 500_000
    minutes: float | None = None
    batch_size: int = 16
    optimiser: Optimiser = "adamw"
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    clip: float | None = 0.5
    schedule: Schedule = "constant"
    warmup: int = 0
    ema: float | None = None
    precision: Precision = "float32"
    keep: Keep = "last"
    init: str | None = None
    seed: int = 0
    log_every: int = 20
    valid_every: int = 1000
    valid_tasks: int = 256
    patience: int = 20

    def __post_init__(self) -> None:
        _check_entries(type(self), vars(self))
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {getattr(self, name)}.")
            if getattr(self, name) >= 2**63:
                raise ValueError(f"{name} must be below 2^63, got {getattr(self, name)}.")
        for name in ("learning_rate", "weight_decay", "clip", "minutes"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf or (value == 0 and name == "weight_decay")):
                raise ValueError(f"{name} must be a positive number, got {value!r}.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema must be a decay between 0 and 1, for instance 0.999, got {self.ema!r}.")

    def part(self, step: int, seconds: float) -> float:
        """Which part of the training is over after so many steps and seconds; it is finished from 1 on."""
        if self.minutes is not None:
            return seconds / (60 * float(self.minutes))
        return step / self.steps if self.steps else 1.0

    def rate(self, step: int, part: float | None = None) -> float:
        """Learning rate of step 0, 1, ...

        Args:
            part: which part of the training is over; None: that of `steps`.
        """
        part = min(self.part(step, 0.0) if part is None else part, 1.0)
        warmup = (step + 1) / (self.warmup + 1)
        warmup = min(1.0, warmup if self.minutes is None else max(warmup, part / WARMUP))
        power = {"constant": 0, "cosine": 1, "cosine-squared": 2}[self.schedule]
        decay = (0.5 * (1 + math.cos(math.pi * part))) ** power
        return float(self.learning_rate) * warmup * decay


@dataclass(frozen=True)
class RunConfig:
    """Configuration of a run: model, task and training.

    Args:
        model, model_settings: name in `MODELS` or `BASELINES`, and its arguments without `dx` and `dy`.
        task, task_settings: name in `TASKS`, and its arguments.
        experiment, row, preset: the experiment that the run is part of, the row of its table, and the preset.
        changes: settings that differ from the preset, as `name=value`.
    """

    model: str
    task: str
    training: Training = field(default_factory=Training)
    model_settings: dict[str, Any] = field(default_factory=dict)
    task_settings: dict[str, Any] = field(default_factory=dict)
    experiment: str | None = None
    row: str | None = None
    preset: str | None = None
    changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_entries(type(self), vars(self))

    @property
    def label(self) -> str:
        """Short description of the run, for tables: row or model, preset and changes."""
        about = ", ".join(filter(None, [self.preset, *self.changes]))
        return printable(f"{self.row or self.model} ({about})" if about else (self.row or self.model))

    @property
    def command(self) -> str | None:
        """The command that starts the same run; None if it is not one of an experiment."""
        if self.experiment is None or self.row is None or self.preset is None:
            return None
        names = {entry.name for entry in dataclasses.fields(Training)}
        changes = (change.partition("=") for change in self.changes)
        changed = [f"--{k.replace('_', '-')} {v}" if k in names else shlex.quote(f"{k}={v}") for k, _, v in changes]
        task = [] if self.task == self.experiment else [f"--task {self.task}"]
        options = [f"--model {self.row}", *task, f"--preset {self.preset}", f"--seed {self.training.seed}", *changed]
        return f"shiftnp train {self.experiment} {' '.join(options)}"

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain data."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> RunConfig:
        """The config that `to_json` wrote. ValueError: an entry is missing, unknown or of a wrong type."""
        training = data.get("training")
        if not isinstance(training, dict):
            raise ValueError(f"training must be an object with names and values, got {training!r}.")
        if missing := {"model", "task"} - data.keys():
            raise ValueError(f"it has no entry {min(missing)!r}.")
        _check_entries(Training, training)
        _check_entries(RunConfig, {**data, "training": Training(**training)})
        return RunConfig(**_tuples({**data, "training": Training(**training)}))


def _check_entries(kind: type[Training] | type[RunConfig], entries: Mapping[str, Any]) -> None:
    """Raises a ValueError for entries that the class does not have, or of a wrong type."""
    hints = get_type_hints(kind)
    for name, value in entries.items():
        if name not in hints:
            raise ValueError(f"it has an unknown entry, {name!r}.")
        check_type(name, value, hints[name])


def _tuples(value: Any) -> Any:
    """The value with lists converted to tuples, which JSON does not have."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
