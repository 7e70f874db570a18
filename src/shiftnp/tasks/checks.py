"""Validation of the arguments of tasks. Each function raises a ValueError that names the argument."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


def _got(value: Any) -> str:
    text = repr(value)
    return f"got {text if len(text) <= 60 and text.isprintable() else '...'} ({type(value).__name__})"


def path_or_none(name: str, value: Any) -> str | None:
    """Checks a path; returns it as text, which can be written as JSON."""
    if value is None:
        return None
    if hasattr(value, "columns"):
        raise ValueError(f"{name} must name a file, got a {type(value).__name__}: pass it as frame=...")
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise ValueError(f"{name} must be the name of a file or folder, as text or pathlib.Path, {_got(value)}.")
    text = os.fspath(value)
    if not text or "\0" in text:
        raise ValueError(f"{name} must be the name of a file or folder, {_got(value)}.")
    return str(text)


def text_or_none(name: str, value: Any) -> None:
    """Checks that a value is a string or None."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be text, {_got(value)}.")


def flag(name: str, value: Any) -> None:
    """Checks that a value is a boolean."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, {_got(value)}.")


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Checks that a value is one of the given strings."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, {_got(value)}.")


def whole(name: str, value: Any, least: int = 0, optional: bool = False) -> None:
    """Checks that a value is an integer of at least `least`, or None if it is `optional`."""
    if value is None and optional:
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        other = " or None" if optional else ""
        raise ValueError(f"{name} must be a whole number of at least {least}{other}, {_got(value)}.")


def number(name: str, value: Any) -> None:
    """Checks that a value is a finite number."""
    if not _is_number(value):
        raise ValueError(f"{name} must be a number, {_got(value)}.")


def numbers(name: str, value: Any, length: int | None = None, single: bool = False) -> tuple[float, ...]:
    """Checks a sequence of finite numbers; returns it as a tuple.

    Args:
        length: number of entries (None: any).
        single: whether a number alone stands for a sequence of one.
    """
    value = (value,) if single and _is_number(value) else value
    kind = "numbers" if length is None else f"{length} numbers"
    if not isinstance(value, list | tuple) or not all(map(_is_number, value)):
        raise ValueError(f"{name} must be {kind}, {_got(value)}.")
    if length is not None and len(value) != length:
        raise ValueError(f"{name} must have {length} entries, got {tuple(value)}.")
    return tuple(value)


def whole_numbers(name: str, value: Any, length: int, least: int = 1, optional: bool = False) -> tuple[Any, ...]:
    """Checks a sequence of integers of at least `least`, or None if `optional`; returns it as a tuple."""
    if not isinstance(value, list | tuple) or len(value) != length:
        raise ValueError(f"{name} must have {length} entries, {_got(value)}.")
    for entry in value:
        whole(f"each entry of {name}", entry, least, optional)
    return tuple(value)


def names(name: str, value: Any) -> tuple[str, ...]:
    """Checks a sequence of column names; returns it as a tuple."""
    if isinstance(value, str):
        raise ValueError(f"{name} must be a list of columns, got the string {value!r}.")
    if not isinstance(value, Sequence) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f"{name} must be a list of names of columns, as text, {_got(value)}.")
    if len(set(value)) < len(value):
        raise ValueError(f"{name} must name each column once, got {', '.join(value)}.")
    return tuple(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and abs(float(value)) < float("inf")
