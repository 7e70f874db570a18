"""Tasks: distributions over data sets to train and test on. A new task is one file and one line here, see `Task`."""

from collections.abc import Callable
from functools import partial

from shiftnp._registry import Registry
from shiftnp.tasks.base import Stream, Task, TestSet
from shiftnp.tasks.climate import ClimateTask
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.images import ImageTask
from shiftnp.tasks.kolmogorov import KolmogorovTask
from shiftnp.tasks.prior import PriorTask
from shiftnp.tasks.table import TableTask

TASKS: Registry[Callable[..., Task]] = Registry(
    "task",
    {
        "gp-1d": GPTask,
        "gp-1d-bimodal": partial(GPTask, bimodal=True),
        "mnist": partial(ImageTask, dataset="mnist"),
        "t-mnist": partial(ImageTask, dataset="mnist", translated=True),
        "cifar10": partial(ImageTask, dataset="cifar10"),
        "t-cifar10": partial(ImageTask, dataset="cifar10", translated=True),
        "kolmogorov": KolmogorovTask,
        "climate": ClimateTask,
        "prior-1d": partial(PriorTask, dx=1, periodic=0.3),  # time series have seasons
        "prior-2d": partial(PriorTask, dx=2),
        "prior-3d": partial(PriorTask, dx=3),
        "table": TableTask,
    },
)

__all__ = [
    "TASKS",
    "ClimateTask",
    "GPTask",
    "ImageTask",
    "KolmogorovTask",
    "PriorTask",
    "Stream",
    "TableTask",
    "Task",
    "TestSet",
    "task_class",
]


def task_class(name: str) -> type[Task]:
    """The class of the task of that name, for its class attributes such as `path_settings`."""
    make = TASKS[name]
    while isinstance(make, partial):
        make = make.func
    assert isinstance(make, type)
    return make
