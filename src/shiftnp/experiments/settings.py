"""Settings on the command line: `dz=64` of the model, `kernel.band=0.2,26` of its kernel, `task.noise=0.1`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from shiftnp._arguments import check_arguments, check_type, parameters, type_hints
from shiftnp._registry import choose
from shiftnp.baselines import BASELINES
from shiftnp.models import MODELS
from shiftnp.tasks import TASKS


class Settings(NamedTuple):
    """Settings of model, kernel and task, with names without prefix."""

    model: dict[str, Any]
    kernel: dict[str, Any]
    task: dict[str, Any]


def split(settings: Mapping[str, Any]) -> Settings:
    """Splits settings by prefix: those of the model, of its kernel (`kernel.NAME`) and of the task (`task.NAME`)."""
    found = Settings({}, {}, {})
    for name, value in settings.items():
        prefix, dot, rest = name.partition(".")
        if dot and prefix in ("kernel", "task"):
            getattr(found, prefix)[rest] = value
        else:
            found.model[name] = value
    return found


def argument_of(setting: str) -> str:
    """The argument of the model that a setting changes: `kernel` for the settings of the kernel."""
    return "kernel" if setting.startswith("kernel.") else setting


def model_parameters(model: str) -> list[str]:
    """The names of the settings of a model or baseline."""
    made = BASELINES[model] if model in BASELINES else MODELS[model]
    return [name for name in parameters(made) if name not in ("dx", "dy")]


def check_settings(given: Settings, model: str, task: str) -> None:
    """Raises a ValueError for names that model and task do not have, and for values of a wrong type."""
    known, of_task = model_parameters(model), parameters(TASKS[task])
    for name, value in given.model.items():
        if name in of_task and name not in known:
            raise ValueError(f"{name} is a setting of the task {task}: write task.{name}={written(value)}.")
        choose(name, dict.fromkeys(known), f"setting of {model}")
    if given.kernel:
        choose("kernel", dict.fromkeys(known), f"setting of {model}")
    check_arguments(BASELINES[model] if model in BASELINES else MODELS[model], given.model, model)
    check_arguments(TASKS[task], given.task, f"the task {task}", "task.")


def merge_kernel(kernel: str | Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel with some of its arguments replaced, as an object with its name: `{"name": "rotary", "band": ...}`."""
    from shiftnp.kernels import KERNELS

    merged: dict[str, Any] = {"name": kernel} if isinstance(kernel, str) else dict(kernel)
    name = merged.get("name")
    if not isinstance(name, str):
        raise ValueError(f"kernel must have a name, one of {', '.join(KERNELS)}, got {written(kernel)}.")
    cls = choose(name, KERNELS, "kernel")
    known, hints = {field.name: field for field in fields(cls)}, type_hints(cls)
    for argument, value in arguments.items():
        choose(argument, known, f"argument of the kernel {name}")
        check_type(f"kernel.{argument}", value, hints.get(argument, Any))
    return merged | dict(arguments)


def default_kernel(model: str) -> Any:
    """The default kernel of a model."""
    return parameters(MODELS[model])["kernel"].default


def written(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, Mapping):
        return json.dumps(value)
    return ",".join(map(written, value)) if isinstance(value, tuple) else str(value)
