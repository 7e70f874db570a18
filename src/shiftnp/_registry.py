"""Choosing by name, with help where a name is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any


def choose(name: str, among: Mapping[str, Any], what: str) -> Any:
    """The entry of that name, or a sentence with the nearest ones."""
    if name not in among:
        close = get_close_matches(name, among, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(among)}."
        raise ValueError(f"There is no {what} named {name!r}: {hint}")
    return among[name]
