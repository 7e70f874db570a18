"""What a task is: something that makes batches, and names the test sets on which everyone is compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.distributions import Distribution
from torch.utils.data import IterableDataset, get_worker_info

from shiftnp.batch import Batch


class Task(ABC):
    """A distribution over small data sets, each split into context and targets. Subclasses are frozen dataclasses."""

    dx: int
    dy: int

    @abstractmethod
    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` new data sets, in float32 on the CPU; the generator alone decides which."""

    @abstractmethod
    def test_sets(self) -> dict[str, TestSet]:
        """The data sets on which results are reported, by name."""

    @abstractmethod
    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """A picture of task `index` of a batch and, if given, of a prediction at its targets."""


@dataclass(frozen=True)
class TestSet:
    """`tasks` data sets in batches of `batch_size`, the same on every machine.

    Args:
        task: what they are drawn from.
        seed: which they are. Test sets of the same seed differ in the task's settings alone.
    """

    __test__ = False  # not a test, whatever pytest thinks of the name

    task: Task
    seed: int
    tasks: int
    batch_size: int = 16

    def __len__(self) -> int:
        return -(-self.tasks // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for i in range(len(self)):
            size = min(self.batch_size, self.tasks - i * self.batch_size)
            yield self.task.sample(size, generator_for(self.seed, i))


TRAINING = 1  # sets the batches of a stream apart from those of every test set, whatever the seeds


def generator_for(seed: int, index: int, *purpose: int) -> torch.Generator:
    """The generator of batch `index`: independent of all others, and found without making those before it."""
    state = np.random.SeedSequence((seed, index), spawn_key=purpose).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


class Stream(IterableDataset[Batch]):
    """An endless sequence of training batches, fixed by the seed.

    Batch `i` is the same whoever makes it, with any number of loader workers; process `rank` of `world` gets its share
    of the tasks of every batch, so that together they train on what one process would.

    Args:
        batch_size: tasks in a batch, those of all processes together.
        start: index of the first batch, to go on where a run stopped.
    """

    def __init__(self, task: Task, batch_size: int, seed: int, rank: int = 0, world: int = 1, start: int = 0) -> None:
        if batch_size % world:
            raise ValueError(f"batch_size must be a multiple of the {world} processes, got {batch_size}.")
        self.task, self.batch_size, self.seed = task, batch_size, seed
        self.rank, self.world, self.start = rank, world, start

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        index, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        index += self.start
        while True:
            batch = self.task.sample(self.batch_size, generator_for(self.seed, index, TRAINING))
            yield batch if self.world == 1 else batch.share(self.rank, self.world)
            index += step
