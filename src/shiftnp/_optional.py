"""Packages that only some tasks need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(name: str, what: str, extra: str = "geo") -> Any:
    """The package `name`, or one sentence that says how to get it; `what` is what cannot be done without."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {name}: pip install 'shiftnp[{extra}]'.") from error
