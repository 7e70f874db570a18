"""Imports of optional dependencies."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_optional(name: str, what: str, extra: str = "geo") -> Any:
    """Imports the package `name`, or raises an ImportError that says how to install it.

    Args:
        what: the feature that needs the package, for the message.
        extra: the extra of shiftnp that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {name}: pip install 'shiftnp[{extra}]'.") from error
