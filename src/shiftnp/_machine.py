"""The hardware and software that benchmarks run on, and the memory that they use."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """CPU, threads and versions, to be stored with every measurement."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def processor() -> str:
    """The CPU: its model name, with family and model, because virtual machines shorten the name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    entries = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    if "model name" not in entries:
        return platform.processor() or platform.machine()
    numbers = [f"{key.removeprefix('cpu ')} {entries[key]}" for key in ("cpu family", "model") if key in entries]
    return ", ".join(filter(None, [entries["model name"], " ".join(numbers)]))


@cache
def commit() -> str | None:
    """The git commit of this code, followed by "-dirty" if files differ from it; None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def peak_megabytes() -> float:
    """Peak resident memory of this process (VmHWM). Without /proc it is `ru_maxrss`, which includes the peak of the
    parent process."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)
