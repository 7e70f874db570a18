"""Settings written as name=value."""

from __future__ import annotations

import ast
import json
from typing import Any

SEVERAL = ("inputs", "outputs", "block", "kernels")
"""Settings that are always several words, even where one is given."""


def parse_setting(text: str) -> tuple[str, Any]:
    """`name=value`, the value written as in Python or JSON; several words or numbers with commas between them; else a
    string."""
    name, equals, written = text.partition("=")
    if not equals:
        raise ValueError(f"A setting has the form name=value, got {text!r}.")
    value = parse_value(written)
    return name, (value,) if isinstance(value, str) and name.removeprefix("task.") in SEVERAL else value


def parse_value(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            parsed = read(text)
        except (ValueError, SyntaxError):
            continue
        return tuple(parsed) if isinstance(parsed, list) else parsed
    return tuple(part.strip() for part in text.strip("[]()").split(",")) if "," in text else text
