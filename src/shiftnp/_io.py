"""Writing files so that nothing is lost: aside first, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, data: bytes | str) -> None:
    """Writes a file aside and renames it. What was there before stays if anything fails."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """The same for plain data, as indented JSON."""
    write(path, json.dumps(data, indent=2) + "\n")
