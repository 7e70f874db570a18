"""Checks the metadata of a Zarr store before zarr reads it.

With damaged metadata, zarr prints tracebacks of its background tasks beside its error, and reserves memory for whatever
length an axis claims to have.
"""

from __future__ import annotations

import json
from pathlib import Path

from shiftnp.tasks.reading import reading

METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs")
LONGEST = 10**8
"""No axis of a climate file has more values; xarray reads axes as soon as it opens a store."""


def check_zarr(path: Path) -> None:
    """Refuses a store whose metadata are missing, are not JSON, or claim an axis of absurd length."""
    with reading(path, "a Zarr store"):
        arrays = [entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    for folder in (path, *arrays):
        found = [folder / name for name in METADATA if (folder / name).exists()]
        if not found and any(entry.is_file() for entry in folder.rglob("*")):
            raise ValueError(f"{folder} has no zarr.json or .zarray: get the Zarr store {path.name} again.")
        for file in found:
            with reading(file, "the metadata of a Zarr store"):
                metadata = json.loads(file.read_bytes())
                shape = metadata.get("shape", [])
                if len(shape) == 1 and shape[0] > LONGEST:
                    raise ValueError(f"an axis of {shape[0]} values")
