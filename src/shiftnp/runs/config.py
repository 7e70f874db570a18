"""Everything that decides a run, as plain data that goes into its `config.json`."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Schedule = Literal["constant", "cosine"]
Precision = Literal["float32", "bf16", "bf16-pairs"]


@dataclass(frozen=True)
class Training:
    """How a model is trained. The defaults are the paper's.

    Args:
        steps: number of batches.
        batch_size: tasks in a batch, shared out among all devices.
        learning_rate, weight_decay: of AdamW.
        clip: gradients are cut off at this value, entry by entry; None: not at all.
        schedule: of the learning rate: "constant", or "cosine" down to zero at the last step.
        warmup: steps over which the learning rate rises from zero.
        ema: decay of the moving average of the weights that is validated and kept; None: the weights themselves.
        precision: "bf16" runs products in bfloat16 where torch deems it safe, "bf16-pairs" only those in the networks
            of pairs, which are nearly all of the work of the paper's kernel; weights stay float32.
        seed: decides initial weights and data.
        log_every: steps between two entries of the loss in `metrics.jsonl`.
        valid_every: steps between two validations.
        valid_tasks: how many tasks of the validation set are used.
        patience: after so many steps in a row without a finite loss and gradient the run gives up.
    """

    steps: int = 500_000
    batch_size: int = 16
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    clip: float | None = 0.5
    schedule: Schedule = "constant"
    warmup: int = 0
    ema: float | None = None
    precision: Precision = "float32"
    seed: int = 0
    log_every: int = 20
    valid_every: int = 1000
    valid_tasks: int = 256
    patience: int = 20

    def __post_init__(self) -> None:
        for name, least in (
            ("steps", 0),
            ("batch_size", 1),
            ("warmup", 0),
            ("seed", 0),
            ("log_every", 1),
            ("valid_every", 1),
            ("valid_tasks", 1),
            ("patience", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
        for name, zero_too in (("learning_rate", False), ("weight_decay", True), ("clip", False)):
            value = getattr(self, name)
            if value is None and name == "clip":
                continue
            if not 0 <= value < math.inf or (value == 0 and not zero_too):
                raise ValueError(f"{name} must be a positive number, got {value!r}.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema must be a decay between 0 and 1, for instance 0.999, got {self.ema!r}.")
        for name, choices in (("schedule", Schedule), ("precision", Precision)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {getattr(self, name)!r}.")

    def rate(self, step: int) -> float:
        """Learning rate of step 0, 1, ..."""
        rise = min(1.0, (step + 1) / (self.warmup + 1))
        fall = 1.0 if self.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return float(self.learning_rate) * rise * fall


@dataclass(frozen=True)
class RunConfig:
    """One run: which model is trained on which task, and how.

    Args:
        model, model_settings: name in `MODELS` or `BASELINES`, and its arguments without `dx` and `dy`.
        task, task_settings: name in `TASKS`, and its arguments.
        experiment, row, preset: what the run is part of: experiment, row of its table and preset.
        changes: what was set otherwise than in the preset, as `name=value`.
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

    @property
    def label(self) -> str:
        """The run in a few words, for tables: what it is, and what was set otherwise."""
        about = ", ".join(filter(None, [self.preset, *self.changes]))
        return f"{self.row or self.model} ({about})" if about else (self.row or self.model)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> RunConfig:
        """The config that `to_json` wrote; an unknown entry raises TypeError, which says which."""
        return RunConfig(**_tuples({**data, "training": Training(**data["training"])}))


def _tuples(value: Any) -> Any:
    """With tuples for lists, which is all that JSON knows."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
