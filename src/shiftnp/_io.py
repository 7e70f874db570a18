"""Atomic writes: to a temporary file or folder beside the final one, which is then renamed."""

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
    """A path to write a file or folder to, renamed to `path` at the end, in a folder that is made if necessary. If
    anything fails it is removed, and what was there before stays as it is."""
    new, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield new
        if path.is_dir():  # os.replace does not replace a folder
            path.rename(old)
        try:
            os.replace(new, path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror or error}).") from error
    finally:
        for left in (new, old):
            with contextlib.suppress(OSError):
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
