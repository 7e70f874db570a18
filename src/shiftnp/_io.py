"""Atomic writes of files and folders: beside the place where they belong, and then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write(path: Path, data: bytes | str) -> None:
    """Writes a file atomically. An existing file stays as it is if anything fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Writes plain data as indented JSON, atomically."""
    write(path, json.dumps(data, indent=2) + "\n")


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A path beside a file or folder to write to, which takes its place at the end. An existing one stays as it is if
    anything fails."""
    new, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        _remove(new)
        yield new
        if path.is_dir():
            path.rename(old)
        new.replace(path)
    except BaseException:
        if old.exists() and not path.exists():
            with contextlib.suppress(OSError):
                old.rename(path)
        raise
    finally:
        _remove(new)
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
