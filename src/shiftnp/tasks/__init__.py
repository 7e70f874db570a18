"""Where batches come from. Adding a task is one file and one line here."""

from collections.abc import Callable
from functools import partial

from shiftnp.tasks.base import Stream, Task, TestSet
from shiftnp.tasks.gp import GPTask

TASKS: dict[str, Callable[..., Task]] = {
    "gp-1d": GPTask,
    "gp-1d-bimodal": partial(GPTask, bimodal=True),
}

__all__ = ["TASKS", "GPTask", "Stream", "Task", "TestSet"]
