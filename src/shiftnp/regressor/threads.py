"""Several forward passes at a time, one on each core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")


def in_threads(f: Callable[[A], B], items: Sequence[A], device: torch.device) -> list[B]:
    """`f` of all items, without gradients, on as many threads as torch has.

    Most operations of a pass are too small to be shared by several cores, so that each core gets passes of its own. On
    other devices than a CPU, one item after the other.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(items))
    if workers <= 1 or device.type != "cpu":
        with torch.no_grad():
            return [f(item) for item in items]

    def run(item: A) -> B:
        with torch.no_grad():  # a setting of the thread
            return f(item)

    # The number of threads of torch is a setting of each thread, and the last one set is that of threads to come.
    with ThreadPoolExecutor(workers, "shiftnp", torch.set_num_threads, (1,)) as pool:
        try:
            return list(pool.map(run, items))
        finally:
            torch.set_num_threads(threads)
