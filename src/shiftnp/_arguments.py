"""Validation of arguments from the command line or a config file against signatures and type annotations."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from shiftnp._registry import choose

LISTS = (tuple, list, Sequence)
LARGEST = 2**31
"""Upper bound of integer arguments. Only a damaged file holds larger ones, such as an impossible number of layers."""
UNSUITABLE = (TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, RuntimeError, MemoryError)
"""Exceptions that a constructor may raise if an argument has the right type and an invalid value."""


def parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The arguments of a class or function, by name."""
    return inspect.signature(make).parameters


def check_arguments(make: Callable[..., Any], arguments: Mapping[str, Any], what: str, prefix: str = "") -> None:
    """Raises a ValueError for arguments that `make` does not have, or whose type is not that of the annotation.

    Args:
        what: description of `make` for the error message, such as "the task gp-1d".
        prefix: prefix of the argument names on the command line, such as "task.".
    """
    known, annotations = parameters(make), type_hints(make)
    for name, value in arguments.items():
        choose(name, known, f"setting of {what}")
        check_type(prefix + name, value, annotations.get(name, Any))
        if annotations.get(name) is int and abs(value) >= LARGEST:
            raise ValueError(f"{prefix}{name} must be below {LARGEST:,}, got {value}.")


def build(make: Callable[..., Any], arguments: Mapping[str, Any], what: str, **more: Any) -> Any:
    """`make(**arguments, **more)` with checked arguments; raises a ValueError for any invalid one."""
    check_arguments(make, arguments, what)
    try:
        return make(**more, **arguments)
    except UNSUITABLE as error:
        written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise ValueError(f"{what} cannot be made with {written} ({first_line(error)}).") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without the full stop, for use inside another message."""
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".:")


# --- types -----------------------------------------------------------------------------------------------------------


def type_hints(make: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the arguments of a class, function or `functools.partial`; none where they cannot be read."""
    make = getattr(make, "func", make)
    try:
        if inspect.isclass(make) and "__dataclass_fields__" not in make.__dict__:
            return get_type_hints(make.__init__)
        return get_type_hints(make)
    except (NameError, TypeError):
        return {}


def check_type(name: str, value: Any, hint: Any) -> None:
    """Raises a ValueError unless the value matches the annotation."""
    if not fits(value, hint):
        got = repr(value)
        raise ValueError(f"{name} must be {describe(hint)}, got {got if len(got) < 200 else got[:200] + '...'}.")


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value matches an annotation.

    Lists and tuples are interchangeable; an int matches float, a bool does not, nor does NaN. Annotations that are
    neither plain data nor classes match every value.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, inner[0])
    if origin in (Union, types.UnionType):
        return any(fits(value, option) for option in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin in LISTS or hint in LISTS:
        if not isinstance(value, tuple | list):
            return False
        if origin is not tuple or Ellipsis in inner:
            return all(fits(entry, inner[0]) for entry in value) if inner else True
        return len(value) == len(inner) and all(map(fits, value, inner))
    if origin in (dict, Mapping) or hint is dict:
        key, entry = inner or (Any, Any)
        return isinstance(value, dict) and all(fits(k, key) and fits(v, entry) for k, v in value.items())
    if hint in (None, type(None)):
        return value is None
    if hint in (bool, str):
        return isinstance(value, hint)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return _is_number(value)
    if hint is Path:
        return isinstance(value, str | Path)
    try:
        return isinstance(value, hint) if isinstance(hint, type) else True
    except TypeError:  # a protocol, or the like
        return True


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(float(value))
    except OverflowError:  # an integer beyond the range of float
        return False


NAMES: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "words"),
    Path: ("a path", "paths"),
}


def describe(hint: Any, several: bool = False) -> str:
    """An annotation in words, for error messages."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in NAMES:
        return NAMES[hint][several]
    if hint in (None, type(None)):
        return "None"
    if origin is Annotated:
        return describe(inner[0], several)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe(option, several) for option in inner))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin is tuple and Ellipsis not in inner and len(set(inner)) == 1:
        return f"{len(inner)} {describe(inner[0], several=True)}"
    if origin in LISTS:
        return f"a list of {describe(inner[0], several=True)}"
    if origin in (dict, Mapping) or hint is dict:
        return "an object with names and values"
    return f"a {hint.__name__}" if isinstance(hint, type) else str(hint)
