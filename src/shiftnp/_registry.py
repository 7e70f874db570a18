"""Registries of named entries; an unknown name raises an error that suggests the closest one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")


class UnknownName(KeyError, ValueError):
    """Raised for an unknown name. Unlike a plain KeyError, its message is printed without quotes."""

    def __str__(self) -> str:
        return str(self.args[0])


class Registry(dict[str, T]):
    """Entries by name. An unknown name raises an `UnknownName` that suggests the closest one.

    Args:
        what: the noun for an entry in that message, e.g. "model".
        entries: the entries by name.
    """

    def __init__(self, what: str, entries: Mapping[str, T]) -> None:
        super().__init__(entries)
        self.what = what

    def __missing__(self, name: object) -> T:
        raise UnknownName(unknown(name, self, self.what))


def choose(name: str, among: Mapping[str, Any], what: str) -> Any:
    """The entry of that name; an unknown name raises an `UnknownName` that suggests the closest one."""
    if name not in among:
        raise UnknownName(unknown(name, among, what))
    return among[name]


def unknown(name: object, among: Iterable[str], what: str) -> str:
    """The error message for an unknown name, with the closest name or, if none is close, all of them."""
    by_lower = {known.lower(): known for known in among}
    close = get_close_matches(str(name).lower(), by_lower, n=1)
    known = f"there are {', '.join(by_lower.values())}." if by_lower else "there are none."
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else known
    return f"There is no {what} named {name!r}: {hint}"
