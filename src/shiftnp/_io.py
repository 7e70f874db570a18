"""Atomic writes of files and folders: beside the place where they belong, and then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
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
    """A path beside a file or folder to write to, which takes its place at the end, in a folder that is made if
    necessary. If anything fails it is removed, and what was there before stays as it is."""
    new, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(new)
        yield new
        if path.is_dir():  # a folder cannot be replaced
            path.rename(old)
        new.replace(path)
    except BaseException as error:
        if old.exists() and not path.exists():
            with contextlib.suppress(OSError):
                old.rename(path)
        if isinstance(error, OSError):
            raise OSError(f"{path} cannot be written ({error.strerror or error}).") from error
        raise
    finally:
        _remove(new)
    _remove(old)


def check_writable(path: Path) -> None:
    """Raises an OSError if a file cannot be written there, because it is a folder, or its folder is a file, or is
    protected, or cannot be made. Nothing is left behind."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file.")
    try:
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        if not parent.is_dir():
            raise NotADirectoryError(f"{path} cannot be written, because {parent} is a file.")
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(f"{path} cannot be written ({error.strerror}): name another folder.") from error


def _remove(path: Path) -> None:
    for _ in range(10):  # another thread may still write to a folder
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if not path.exists():
            return
        time.sleep(0.05)
