"""Settings of the C library's memory allocator for training.

A training step allocates and frees the same large tensors again and again. By default glibc gives such memory back to
the kernel at once, which has to clear every page when it is next used: a quarter of the time of an RCNP's step.
"""

from __future__ import annotations

import ctypes
import os
import sys

OPTIONS = {-3: 2**30, -1: 2**31 - 1, -2: 2**26}
"""Bytes for M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD of glibc's `mallopt`."""


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for the next allocation, unless the user has set MALLOC_ variables for it; returns
    whether it does. Other C libraries are left as they are. The process keeps its peak of memory until it ends."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, value) == 1 for option, value in OPTIONS.items())
