"""Signal handling of the training process: a clean stop on Ctrl-C and SIGTERM."""

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
    """Context manager that turns Ctrl-C and SIGTERM into a request, which the training loop checks between two steps.

    A step interrupted halfway would leave weights that differ from those of an uninterrupted run.
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
    """Makes a DataLoader worker ignore Ctrl-C and SIGTERM; the training process stops its workers itself."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
