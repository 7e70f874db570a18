"""In which order and in how many steps joint samples are drawn.

It implements parts of `NeuralProcess.sample`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

MOST_FUNCTIONS = 64
"""Functions sampled at once by default."""
MOST_TOKENS = 1 << 15
"""Context points and targets of all functions that are sampled at once by default."""


def default_chunk(points: int) -> int:
    """The number of functions to sample at once, for that many context points and targets of each."""
    return max(1, min(MOST_FUNCTIONS, MOST_TOKENS // max(1, points)))


def sizes(targets: int, steps: int) -> list[int]:
    """Numbers of targets in each step, about in proportion to 1, 3, 5, ...: the fewer are known, the more strongly the
    others depend on each other. If there are fewer targets than steps, each has its own."""
    steps = min(steps, targets)
    ends = [0]
    for i in range(1, steps + 1):
        ends.append(max(ends[-1] + 1, min(targets - (steps - i), round(targets * (i / steps) ** 2))))
    return [end - start for start, end in pairwise(ends)]


def spread(
    x: Float[Tensor, "rows nt dx"],
    difference: Callable[[Tensor, Tensor], Tensor],
    generator: torch.Generator | None = None,
) -> Int[Tensor, "rows nt"]:
    """Farthest-point order: a random point first, then each time the one farthest from all points before it.

    Args:
        difference: displacement of points from another point, see `NeuralProcess.difference`.
    """
    rows, nt, _ = x.shape
    if nt == 0:
        return torch.empty(rows, 0, dtype=torch.long, device=x.device)
    last = torch.randint(nt, (rows, 1), generator=generator, device=x.device)
    order, nearest = [last], torch.full((rows, nt), torch.inf, dtype=x.dtype, device=x.device)
    for _ in range(nt - 1):
        at = x.take_along_dim(last[..., None], 1)
        nearest = torch.minimum(nearest, torch.linalg.vector_norm(difference(x, at), dim=-1))
        nearest.scatter_(1, last, -1.0)  # never again, even if others are at the same place
        last = nearest.argmax(1, keepdim=True)
        order.append(last)
    return torch.cat(order, 1)


def shared(
    decode: Callable[[Tensor], Tensor],
    xt: Float[Tensor, "b nt dx"],
    at: Float[Tensor, "rows k dx"],
    tasks: Int[Tensor, " rows"],
) -> Float[Tensor, "rows k d"]:
    """Predictions at the targets `at` of many functions from the contexts of their tasks, each encoded once.

    Args:
        decode: predicts at targets `[b, n, dx]` of all tasks.
        xt: all targets; some pad tasks with fewer functions than others.
        tasks: the task of each function; they follow each other cyclically.
    """
    b, (rows, k, dx) = len(xt), at.shape
    slot = torch.arange(rows, device=at.device) // b  # two functions of a task are `b` rows apart
    grid = xt[:, :1].repeat(1, (-(-rows // b)) * k, 1).view(b, -1, k, dx)
    grid[tasks, slot] = at
    return decode(grid.flatten(1, 2)).unflatten(1, (-1, k))[tasks, slot]
