"""Workaround for CPUs that report AMX without its tile configuration, as some virtual machines do.

CPUID leaf 0x1D describes the tiles. If a hypervisor hides that leaf, oneDNN (torch's matrix-multiplication library)
uses AMX without a configuration, and the first bfloat16 matrix product ends the process with an illegal instruction.
The workaround limits oneDNN to AVX-512, before its first matrix product: `import shiftnp` does it. Results in float32
do not depend on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
TILE_LEAF = 0x1D
VARIABLE = "ONEDNN_MAX_CPU_ISA"
LIMIT = "AVX512_CORE_FP16"


def first_core(path: Path = CPUINFO) -> dict[str, str]:
    """The fields of /proc/cpuinfo for the first core, by name; empty on systems other than Linux."""
    found: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:  # an empty line ends the first core
                    break
                found[name.strip()] = value.strip()
    except OSError:
        pass
    return found


def has_amx(core: dict[str, str]) -> bool:
    """Whether the CPU flags include AMX tiles."""
    return "amx_tile" in core.get("flags", "").split()


def hides_tiles(core: dict[str, str]) -> bool:
    """Whether the CPU has AMX, and its highest CPUID leaf is below the one that describes the tiles."""
    level = core.get("cpuid level", "")
    return has_amx(core) and level.isdecimal() and int(level) < TILE_LEAF


def limit_onednn(core: dict[str, str], environment: MutableMapping[str, str]) -> bool:
    """Disables AMX in oneDNN if the tiles are hidden and the user has set no limit; returns whether it did."""
    if not hides_tiles(core) or VARIABLE in environment:
        return False
    environment[VARIABLE] = LIMIT
    return True


CORE = first_core()
TOO_LATE = limit_onednn(CORE, os.environ) and "torch" in sys.modules
"""Whether oneDNN may have been initialised before the limit was set: bfloat16 products are then unsafe."""
