"""What a task is: something that makes batches."""

from __future__ import annotations

from typing import Protocol

import torch

from shiftnp.batch import Batch


class Task(Protocol):
    """A distribution over small data sets, each split into context and targets."""

    dx: int
    dy: int

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` new data sets; the generator alone decides which."""
        ...
