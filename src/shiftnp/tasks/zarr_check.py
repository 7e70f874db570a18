"""Checks a Zarr store: opens its arrays one by one before xarray opens them all.

If several arrays are damaged, zarr prints tracebacks of its background tasks in addition to its error; opened one by
one, the first damaged array raises. Also, xarray reads every axis when it opens a store, whatever its length.
"""

from __future__ import annotations

from pathlib import Path

from shiftnp._optional import import_optional
from shiftnp.tasks.reading import reading

LONGEST = 10**8
"""Largest number of values along an axis."""


def check_zarr(path: Path) -> None:
    """Raises a ValueError if the metadata of an array are damaged or missing, or declare an axis of absurd length."""
    zarr = import_optional("zarr", f"Reading {path.name}")
    with reading(path, "a Zarr store"):
        folders = [entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
        arrays = [folder for folder in folders if any(entry.is_file() for entry in folder.rglob("*"))]
        zarr.open(path, mode="r")
    for folder in arrays:
        with reading(folder, "an array of a Zarr store"):
            array = zarr.open(folder, mode="r")
            if getattr(array, "ndim", 0) == 1 and array.size > LONGEST:
                raise ValueError(f"an axis of {array.size} values")
