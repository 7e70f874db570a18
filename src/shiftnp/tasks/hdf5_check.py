"""Checks HDF5 files in a subprocess, because a damaged file can block or crash the process that opens it.

The HDF5 library can loop forever on a file with a few wrong bytes, and neither a signal nor a thread can stop it. So a
subprocess, which can be killed, first reads the structure of a file (groups, attributes, coordinates, index of chunks;
no fields). It takes about half a second for all files together, once for each file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

SECONDS = 60.0
"""Timeout in seconds for the first file; each further file adds two seconds."""

LONGEST = 10**8
"""Largest number of values along an axis; xarray reads axes when it opens a file."""

_checked: set[tuple[str, int, int]] = set()  # path, size and modification time


def check_hdf5(paths: Iterable[Path]) -> None:
    """Raises a ValueError for files that the HDF5 library cannot open, or on which it hangs or crashes."""
    new = {key: path for path in paths if (key := _key(path)) not in _checked}
    if not new or not sys.executable:
        return
    command = [sys.executable, "-P", __file__]
    names = b"\0".join(os.fsencode(path.absolute()) for path in new.values())
    limit = SECONDS + 2 * (len(new) - 1)
    files = list(new.values())
    try:
        reply = subprocess.run(command, input=names, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        path = files[len((error.stdout or b"").splitlines())]
        raise ValueError(
            f"{path} is damaged or very slow to read (opening it took more than {limit:g} seconds): get it again, or "
            "copy it to a local disk."
        ) from None
    # One line for each file that was read: empty, or the reason why it cannot be opened.
    lines = reply.stdout.decode(errors="replace").splitlines()
    for path, fault in zip(files, lines, strict=False):
        if fault:
            raise ValueError(f"{path} is damaged or not a NetCDF 4 file ({fault}): get it again or convert it.")
    if reply.returncode < 0:  # killed by a signal
        raise ValueError(f"{files[len(lines)]} is damaged (it crashes the HDF5 library): get it again.")
    _checked.update(new)


def _key(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path.absolute()), status.st_size, status.st_mtime_ns


def walk(path: str) -> str:
    """Reads everything in a file except its fields; returns the reason why it cannot be opened, or an empty string."""
    h5netcdf, h5py = import_module("h5netcdf"), import_module("h5py")

    def visit(_: str, item: Any) -> None:
        with suppress(Exception):
            dict(item.attrs)
        with suppress(Exception):
            if isinstance(item, h5py.Dataset) and item.size:
                item[(0,) * item.ndim]
                if item.chunks:
                    item.id.get_num_chunks()

    try:
        with h5py.File(path) as file:
            visit("/", file)
            with suppress(Exception):
                file.visititems(visit)
        with h5netcdf.File(path) as file:
            for name, variable in file.variables.items():
                if len(variable.shape) == 1 and variable.shape[0] > LONGEST:
                    return f"{name} has {variable.shape[0]} values"
                with suppress(Exception):
                    dict(variable.attrs)
                    if len(variable.shape) == 1:
                        variable[...]
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        return "".join(c for c in text if c.isprintable())[:150]
    return ""


if __name__ == "__main__":
    for name in sys.stdin.buffer.read().split(b"\0"):
        print(walk(os.fsdecode(name)), flush=True)
