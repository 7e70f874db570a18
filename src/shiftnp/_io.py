"""Atomic file writes: to a temporary file in the same folder, which is then renamed."""

from __future__ import annotations

import contextlib
import json
import os
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
