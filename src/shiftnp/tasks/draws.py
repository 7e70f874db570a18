"""Random numbers of single data sets, all from one torch.Generator and in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

T = TypeVar("T")


class Draws:
    """Random numbers from a generator: Python numbers for parameters, float64 tensors for points."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A number from `U(low, high)`."""
        return low + (high - low) * float(self.rand())

    def log_uniform(self, low: float, high: float) -> float:
        """A number whose logarithm is uniform."""
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def chance(self, share: float) -> bool:
        """True with probability `share`."""
        return self.uniform() < share

    def whole(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included, with equal probability."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, with equal probability."""
        return options[self.whole(0, len(options) - 1)]

    def rand(self, *shape: int) -> Float[Tensor, "..."]:
        """A tensor of numbers from `U(0, 1)`."""
        return torch.rand(shape, generator=self.generator, dtype=torch.float64)

    def randn(self, *shape: int) -> Float[Tensor, "..."]:
        """A tensor of standard normal numbers."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def shares(self, count: int) -> Float[Tensor, " n"]:
        """Positive numbers with sum one, uniform over all such (a flat Dirichlet distribution)."""
        parts = -torch.log1p(-self.rand(count)).clamp(min=1e-9)
        return parts / parts.sum()

    def subset(self, total: int, count: int) -> Int[Tensor, " k"]:
        """`count` different numbers below `total`, in random order."""
        return torch.randperm(total, generator=self.generator)[:count]
