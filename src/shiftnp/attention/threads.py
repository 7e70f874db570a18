"""Threads that each run whole tiles or chunks on one core.

Torch divides every operation among its threads. On tiles that fit the cache of one core operations are short, and
threads that wait for each other after each of them cost up to half of the time. Here a thread runs all operations of a
tile alone, while another thread works on another tile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier, Event, Lock, local
from typing import TypeVar

import torch

T = TypeVar("T")
_current = local()


class Pools:
    """A pool of threads for each number of them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets all threads, which do not survive a fork: a child process makes its own."""
        self.pools: dict[int, ThreadPoolExecutor] = {}
        self.lock = Lock()

    def __call__(self, threads: int) -> ThreadPoolExecutor:
        with self.lock:
            if threads not in self.pools:
                self.pools[threads] = _start_pool(threads)
            return self.pools[threads]


_pools = Pools()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_pools.reset)


def count(device: torch.device, pieces: int) -> int:
    """Number of threads for so many pieces of work on that device: torch's own number at most, and one on a GPU, which
    has threads of its own, and inside of such a thread."""
    if device.type != "cpu" or getattr(_current, "is_ours", False):
        return 1
    return max(1, min(torch.get_num_threads(), pieces))


def each(function: Callable[[T], None], pieces: Sequence[T], device: torch.device) -> None:
    """Calls the function with each piece of work on that device; threads take one piece after the other.

    After an exception, Ctrl-C for instance, no thread takes another piece.
    """
    remaining, stopped = iter(pieces), Event()

    def work() -> None:
        for piece in remaining:
            if stopped.is_set():
                return
            function(piece)

    try:
        run([work] * count(device, len(pieces)))
    except BaseException:
        stopped.set()
        raise


def run(functions: Sequence[Callable[[], None]]) -> None:
    """Runs each function in a thread of its own, with the caller's modes of gradients, inference and autocast."""
    if len(functions) == 1:
        functions[0]()
        return
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def in_modes(function: Callable[[], None]) -> None:
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(gradients),
            torch.autocast("cpu", dtype, enabled=autocast),
        ):
            function()

    pool = _pools(torch.get_num_threads())
    for done in [pool.submit(copy_context().run, in_modes, function) for function in functions]:
        done.result()


def _start_pool(threads: int) -> ThreadPoolExecutor:
    pool, started = ThreadPoolExecutor(threads, "shiftnp", _start), Barrier(threads + 1)
    for _ in range(threads):  # each thread takes one of these, so that all of them start now
        pool.submit(started.wait)
    started.wait()
    torch.set_num_threads(threads)  # `_start` has set it to one for threads to come, too
    return pool


def _start() -> None:
    _current.is_ours = True
    torch.get_num_threads()  # before, as torch's first use of this thread sets the number of its threads again
    torch.set_num_threads(1)
