"""Opens HDF5 files in another process first, because a damaged one can keep or crash the process that opens it.

The HDF5 library has been seen to loop forever on a file with a few wrong bytes, where neither a signal nor a thread can
stop it. So the structure of a file (groups, attributes, dimensions, index of chunks; no field) is first walked by a
process that can be killed. It takes about half a second, for many files together, and each file once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

SECONDS = 60.0
"""How long the first file may take; each further one may take two seconds more."""

_checked: set[tuple[str, int, int]] = set()  # path, size and time of change


def check_hdf5(paths: Iterable[Path]) -> None:
    """Refuses files that the HDF5 library cannot open in time or without a crash. Other faults are not looked for."""
    new = {key: path for path in paths if (key := _key(path)) not in _checked}
    if not new or not sys.executable:
        return
    command = [sys.executable, "-P", __file__]
    names = "\0".join(str(path.absolute()) for path in new.values())
    limit = SECONDS + 2 * (len(new) - 1)
    try:
        reply = subprocess.run(command, input=names.encode(), capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        path = _last(error.stdout, new)
        raise ValueError(
            f"{path} is damaged or very slow to read (opening it took more than {limit:g} seconds): get it again, or "
            "copy it to a local disk."
        ) from None
    if reply.returncode < 0:  # killed by a signal
        path = _last(reply.stdout, new)
        raise ValueError(f"{path} is damaged (it crashes the HDF5 library): get it again.")
    _checked.update(new)


def _key(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path.absolute()), status.st_size, status.st_mtime_ns


def _last(output: bytes | None, paths: dict[tuple[str, int, int], Path]) -> Path:
    """The file that the other process opened last: it writes a dot before each."""
    return list(paths.values())[max(0, len(output or b"") - 1)]


def walk(path: str) -> None:
    """Reads all of a file but its fields. Errors are left to whoever reads the file in earnest."""
    h5netcdf, h5py = import_module("h5netcdf"), import_module("h5py")

    def visit(_: str, item: Any) -> None:
        with suppress(Exception):
            dict(item.attrs)
        with suppress(Exception):
            if isinstance(item, h5py.Dataset) and item.size:
                item[(0,) * item.ndim]
                if item.chunks:
                    item.id.get_num_chunks()

    with suppress(Exception), h5py.File(path) as file:
        visit("/", file)
        file.visititems(visit)
    with suppress(Exception), h5netcdf.File(path) as file:
        for variable in file.variables.values():
            with suppress(Exception):
                assert dict(variable.attrs) is not None
                if len(variable.dimensions) == 1:
                    variable[...]


if __name__ == "__main__":
    for name in sys.stdin.buffer.read().decode().split("\0"):
        sys.stdout.write(".")
        sys.stdout.flush()
        walk(name)
