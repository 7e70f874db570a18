"""Whether bfloat16 matrix products are faster than float32 ones: measured, because CPU flags do not tell.

Without bfloat16 instructions matrix products are emulated and tens of times slower; with them they may be twice as fast
or, on some CPUs, still slower than float32.
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
NARROW = 16
"""Inputs and outputs of a pairwise MLP, about."""
REPEATS = 5
GAIN = 1.1
"""Minimum speed-up of bfloat16, so that timing noise does not decide between equal times."""
TRIAL = "import torch; a = torch.ones(256, 256, dtype=torch.bfloat16); a @ a"


def bf16_pays(device: torch.device, width: int, rows: int | None = None) -> bool:
    """Whether an MLP of that width, applied to so many rows, is faster in bfloat16 than in float32 on that device.

    On a CPU this is measured once per process and power of two of the width and of the rows, in a few milliseconds.

    Args:
        rows: None: as many as a tile of attention has.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return True
    width = min(512, max(16, 1 << (width - 1).bit_length()))
    most = ENTRIES // width
    return measured(width, most if rows is None else min(most, max(FEW_ROWS, 1 << (rows - 1).bit_length())))


@cache
def measured(width: int, rows: int) -> bool:
    """Whether bfloat16 is faster on this CPU. A few rows are timed first: emulated, all rows would take seconds."""
    return runs() and gain(width, FEW_ROWS) > 0.1 and gain(width, rows) > GAIN


@cache
def runs() -> bool:
    """Whether a bfloat16 matrix product is safe. With AMX a subprocess tries it first, since it may crash (`_cpu`)."""
    if not _cpu.has_amx(_cpu.CORE):
        return True
    return not _cpu.TOO_LATE and subprocess.run([sys.executable, "-c", TRIAL], capture_output=True).returncode == 0


def gain(width: int, rows: int) -> float:
    """Speed-up in bfloat16 over float32 of a hidden layer with `width` units, applied to so many rows: matrix product,
    ReLU, and the conversion of an MLP's inputs and outputs, which are float32 and narrow.

    On one thread, as tiles run; and CPU time, because wall-clock time depends on the load of the machine.
    """
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    narrow, before = torch.ones(rows, NARROW), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # Autocast would run both products in the same dtype.
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            operands = {dtype: operands_of(width, rows, dtype) for dtype in best}
            for i in range(REPEATS + 1):
                for dtype, (a, b, out) in operands.items():
                    start = time.process_time()
                    narrow.to(dtype).float()
                    torch.mm(a, b, out=out).relu_()
                    if i > 0:  # the first product is a warm-up
                        best[dtype] = min(best[dtype], time.process_time() - start)
    finally:
        torch.set_num_threads(before)
    return best[torch.float32] / max(best[torch.bfloat16], 1e-9)


def operands_of(width: int, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of a matrix product to time, and an output buffer."""
    a = torch.ones(rows, width, dtype=dtype)
    return a, torch.ones(width, width, dtype=dtype), torch.empty_like(a)
