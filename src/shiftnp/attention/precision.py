"""Where bfloat16 is faster than float32: measured, because a processor's flags do not tell.

Without instructions for bfloat16 its products are emulated and tens of times slower; with them they may be twice as
fast or, on some processors, still slower than float32.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache

import torch
from torch import Tensor

from shiftnp import _cpu

ENTRIES = 1 << 19
"""Size of the measured activations: 4,096 rows at a width of 128."""
FEW_ROWS = 64
REPEATS = 5
GAIN = 1.1
"""bfloat16 has to be faster by this factor, so that noise does not decide where both are the same."""
TRIAL = "import torch; a = torch.ones(256, 256, dtype=torch.bfloat16); a @ a"


def bf16_pays(device: torch.device, width: int) -> bool:
    """Whether products with a `[width, width]` matrix are faster in bfloat16 than in float32 on that device.

    Measured once per process and power of two of the width, in a few milliseconds.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return True
    return measured(min(512, max(16, 1 << (width - 1).bit_length())))


@cache
def measured(width: int) -> bool:
    """The same for this processor. A few rows come first: emulated, all of them would take seconds."""
    return runs() and gain(width, FEW_ROWS) > 0.1 and gain(width, ENTRIES // width) > GAIN


@cache
def runs() -> bool:
    """Whether a bfloat16 product can be tried. With AMX another process tries it first, which may not survive it."""
    if not _cpu.has_amx(_cpu.CORE):
        return True
    return not _cpu.TOO_LATE and subprocess.run([sys.executable, "-c", TRIAL], capture_output=True).returncode == 0


def gain(width: int, rows: int) -> float:
    """How many times faster than in float32 a product `[rows, width] @ [width, width]` is in bfloat16.

    The processor's time is measured, because the clock's depends on what else runs on the machine.
    """
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    # Autocast would turn both products into the same one.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        operands = {dtype: operands_of(width, rows, dtype) for dtype in best}
        for i in range(REPEATS + 1):
            for dtype, (a, b, out) in operands.items():
                start = time.process_time()
                torch.mm(a, b, out=out)
                if i > 0:  # the first product pays for what is set up once
                    best[dtype] = min(best[dtype], time.process_time() - start)
    return best[torch.float32] / max(best[torch.bfloat16], 1e-9)


def operands_of(width: int, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    a = torch.ones(rows, width, dtype=dtype)
    return a, torch.ones(width, width, dtype=dtype), torch.empty_like(a)
