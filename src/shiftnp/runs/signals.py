"""Signals that ask a training process to stop."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class StopRequest:
    """Whether a signal has asked the process to stop."""

    def __init__(self) -> None:
        self.received = False

    def __bool__(self) -> bool:
        return self.received

    def handle(self, number: int, frame: Any) -> None:
        """The signal handler. A second Ctrl-C interrupts at once."""
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = True


@contextlib.contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turns Ctrl-C and SIGTERM into a request that the training loop answers between two steps.

    A step cut in two would leave weights that no uninterrupted run ever has.
    """
    request = StopRequest()
    try:
        before = {number: signal.signal(number, request.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread can set signal handlers
        yield request
        return
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_signals(worker: int) -> None:
    """For loader workers: Ctrl-C reaches every process of a terminal, and the training process stops its workers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
