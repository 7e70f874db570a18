"""Where batches come from. Adding a task is one file and one line here."""

from shiftnp.tasks.base import Task
from shiftnp.tasks.gp import GPTask

TASKS: dict[str, type[Task]] = {
    "gp-1d": GPTask,
}

__all__ = ["TASKS", "GPTask", "Task"]
