"""Processors that announce AMX and do not describe its tiles, as some virtual machines do.

The tiles are described in CPUID leaf 0x1D. If a hypervisor hides that leaf, oneDNN (torch's library of products) uses
AMX without a configuration, and the first bfloat16 product ends the process with an illegal instruction. The remedy is
to limit oneDNN to AVX-512, which has to happen before its first product: `import shiftnp` does it. Results in float32
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
    """What Linux tells about the first core, by name; empty on other systems."""
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
    return "amx_tile" in core.get("flags", "").split()


def hides_tiles(core: dict[str, str]) -> bool:
    """Whether the processor has AMX, and its highest CPUID leaf is below the one that describes the tiles."""
    level = core.get("cpuid level", "")
    return has_amx(core) and level.isdecimal() and int(level) < TILE_LEAF


def limit_onednn(core: dict[str, str], environment: MutableMapping[str, str]) -> bool:
    """Keeps oneDNN from AMX where the tiles are hidden, unless the user has set a limit; returns whether it did."""
    if not hides_tiles(core) or VARIABLE in environment:
        return False
    environment[VARIABLE] = LIMIT
    return True


CORE = first_core()
TOO_LATE = limit_onednn(CORE, os.environ) and "torch" in sys.modules
"""Whether oneDNN may have been in use before it was limited: then a bfloat16 product must not be tried."""
