"""Parsing of settings on the command line, name=value."""

from __future__ import annotations

import ast
import contextlib
import json
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shiftnp._registry import UnknownName

UNREADABLE = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


NEEDED = {"table": {"path": "stations.csv", "inputs": "lon,lat", "outputs": "temperature"}}
"""Settings that a task cannot do without, with examples."""


class UsageError(ValueError):
    """An invalid command line; the exit code is 2."""


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """Context manager that converts errors in names and values of settings to `UsageError`."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


@contextlib.contextmanager
def known_names() -> Iterator[None]:
    """Context manager that converts errors in names only, such as that of a column, to `UsageError`."""
    try:
        yield
    except UnknownName as error:
        raise UsageError(str(error)) from error


def check_least(option: str, value: int | None, least: int) -> None:
    """Raises a UsageError if a number is given that is too small."""
    if value is not None and value < least:
        raise UsageError(f"{option} must be {least} or more, got {value}.")


def check_needed(task: str, settings: Iterable[str], prefix: str = "task.") -> None:
    """Raises a UsageError if a setting is missing that the task cannot do without.

    Args:
        settings: settings as name=value or task.name=value.
        prefix: prefix of the settings of a task in the command.
    """
    given = {text.removeprefix("task.").partition("=")[0] for text in settings}
    missing = {f"{prefix}{name}": value for name, value in NEEDED.get(task, {}).items() if name not in given}
    if missing:
        example = " ".join(f"{name}={value}" for name, value in missing.items())
        raise UsageError(
            f"{task} needs {', '.join(missing)}, such as {example}; `shiftnp list {task}` explains all settings."
        )


def parse_setting(text: str, task: Any = None) -> tuple[str, Any]:
    """Name and value of a setting `name=value`, or `task.name=value` for a setting of the task.

    The value is a Python or JSON literal, words or numbers separated by commas, or otherwise a string.

    Args:
        task: the class of the task, whose attributes name the settings that are paths or sequences of names.
    """
    name, equals, written = text.partition("=")
    if not equals or not name.removeprefix("task.").strip():
        raise ValueError(f"A setting has the form name=value, got {text!r}.")
    if name.startswith("task."):
        if name.removeprefix("task.") in getattr(task, "path_settings", ()):
            return name, parse_path(name, written)
        if name.removeprefix("task.") in getattr(task, "sequence_settings", ()):
            return name, parse_names(written)
    return name, parse_value(written)


def parse_value(text: str) -> Any:
    """Plain data: a number, a boolean, None, a string, or tuples and dictionaries of these."""
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(*UNREADABLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, about the text
            parsed = plain(read(text))
            json.dumps(parsed)  # config.json must be able to store it
            return parsed
    return tuple(part.strip() for part in text.strip("[]()").split(",")) if "," in text else text


def plain(value: Any) -> Any:
    """The value with lists converted to tuples. TypeError: JSON cannot represent it, such as a set."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} is not plain data.")


def parse_names(text: str) -> tuple[str, ...]:
    """Names separated by commas, with or without quotes and brackets; numbers are names, too."""
    value = parse_value(text)
    if isinstance(value, tuple) and all(isinstance(entry, str) for entry in value):
        return value
    if isinstance(value, str):
        return (value,)
    return tuple(part.strip().strip("'\"") for part in text.strip("[]() ").split(",") if part.strip())


def parse_path(name: str, text: str) -> str | None:
    """The absolute path, so that a run finds its files from any folder."""
    if text in ("None", "null"):
        return None
    try:
        if not text.strip():
            raise ValueError("it is empty")
        return str(Path(text).expanduser().absolute())
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be a path, got {text!r} ({error}).") from error
