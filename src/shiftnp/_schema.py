"""Dataclasses from JSON data, validated against the types of their fields."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from shiftnp._arguments import describe, fits

T = TypeVar("T")


def from_json(cls: type[T], data: Any, where: str = "") -> T:
    """An instance of a dataclass from the data that `json.loads` gives.

    Fields may be int, float, str, bool, `Any`, dataclasses, `tuple[X, ...]`, `dict[str, X]` and `X | None`. Other
    entries are ignored; fields with a default may be missing.

    Args:
        where: name of the entry that `data` is, for error messages.

    Raises:
        ValueError: an entry is missing or of another type; the message names it.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where or 'the content'} must be an object, got {reprlib.repr(data)}")
    hints, values = get_type_hints(cls), {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = f"{where}.{field.name}" if where else field.name
        if field.name in data:
            values[field.name] = _read(hints[field.name], data[field.name], name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{name} is missing")
    return cls(**values)


def _read(kind: Any, value: Any, name: str) -> Any:
    """The value of one entry, converted to the type `kind`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType and NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return None if value is None else _read(inner, value, name)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return from_json(kind, value, name)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list, got {reprlib.repr(value)}")
        return tuple(_read(arguments[0], item, f"{name}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be an object, got {reprlib.repr(value)}")
        return {key: _read(arguments[1], item, f"{name}.{key}") for key, item in value.items()}
    if not fits(value, kind) or (kind is float and not math.isfinite(value)):
        kinds = "a finite number" if kind is float else describe(kind)
        raise ValueError(f"{name} must be {kinds}, got {reprlib.repr(value)}")
    return float(value) if kind is float else value
