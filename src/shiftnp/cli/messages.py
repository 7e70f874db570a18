"""Warnings of commands, one line each."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from shiftnp.cli.evaluate import say


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Context manager that prints warnings as one line each, without the file and line of code that gave them."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        say(f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
