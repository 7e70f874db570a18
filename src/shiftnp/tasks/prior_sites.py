"""Where the observations of a data set are: arrangements of `n` points in the unit cube, in random order."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.tasks.draws import Draws

Sites = Float[Tensor, "n dx"]


def uniform(n: int, dx: int, draws: Draws) -> Sites:
    """Independent and uniform."""
    return draws.rand(n, dx)


def clusters(n: int, dx: int, draws: Draws) -> Sites:
    """One to eight Gaussian clusters of unequal size, and up to half of the points uniform."""
    count = draws.whole(1, 8)
    edges = draws.shares(count).cumsum(0)
    of = torch.searchsorted(edges, draws.rand(n)).clamp(max=count - 1)
    near = fold(draws.rand(count, dx)[of] + draws.log_uniform(0.02, 0.2) * draws.randn(n, dx))
    apart = draws.rand(n, 1) < draws.uniform(0, 0.5)
    return torch.where(apart, draws.rand(n, dx), near)


def track(n: int, dx: int, draws: Draws) -> Sites:
    """Along a smooth closed or open curve, or along two to eight parallel lines."""
    if draws.chance(0.5):
        count = draws.whole(2, 8)
        lines = draws.rand(count)[torch.randint(count, (n, 1), generator=draws.generator)]
        x = torch.cat([lines, draws.rand(n, dx - 1)], 1).roll(draws.whole(0, dx - 1), 1)
    else:
        waves = draws.uniform(0.3, 1.0) * torch.arange(1, 4, dtype=torch.float64)
        size, phase = draws.randn(3, dx) / waves[:, None], 2 * math.pi * draws.rand(3, dx)

        def curve(t: Float[Tensor, " m"]) -> Float[Tensor, "m dx"]:
            angle = 2 * math.pi * t[:, None, None] * waves[:, None] + phase
            return (size * angle.sin()).sum(1)

        whole = curve(torch.linspace(0, 1, 128, dtype=torch.float64))
        low, high = whole.amin(0), whole.amax(0)
        x = (curve(draws.rand(n)) - low) / (high - low)
    return fold(x + 0.005 * draws.randn(n, dx))


def grid(n: int, dx: int, draws: Draws) -> Sites:
    """A random part of a regular grid, in half of the cases with jitter of up to half a cell."""
    side = math.ceil((n * draws.uniform(1.0, 1.5)) ** (1 / dx))
    side += side**dx < n  # the root may be rounded down
    cells = draws.subset(side**dx, n)
    index = cells[:, None] // side ** torch.arange(dx) % side
    jitter = draws.uniform(0, 1) if draws.chance(0.5) else 0.0
    return (index + 0.5 + jitter * (draws.rand(n, dx) - 0.5)) / side


def stations(n: int, dx: int, draws: Draws) -> Sites:
    """Fixed places that are observed at the same regular times, some of them missing; one of the inputs is time."""
    count = max(1, round(n ** draws.uniform(0.25, 0.75)))
    times = math.ceil(n * draws.uniform(1.0, 1.5) / count)
    cells = draws.subset(count * times, n)
    places = draws.pick((uniform, clusters))(count, dx - 1, draws)
    time = (cells // count + 0.5) / times
    return torch.cat([places[cells % count], time[:, None]], 1).roll(draws.whole(0, dx - 1), 1)


ARRANGEMENTS = {"uniform": uniform, "clusters": clusters, "track": track, "grid": grid, "stations": stations}


def with_gaps(x: Sites, draws: Draws) -> Sites:
    """The points with one to three gaps along one input, which cover 10 to 60 % of it. The others are compressed."""
    along, count, total = draws.whole(0, x.shape[1] - 1), draws.whole(1, 3), draws.uniform(0.1, 0.6)
    starts, sizes = (1 - total) * draws.rand(count), total * draws.shares(count)
    x = x.clone()
    left = (1 - total) * x[:, along]
    x[:, along] = left + ((left[:, None] > starts) * sizes).sum(1)
    return x


def fold(x: Sites) -> Sites:
    """Points outside the unit cube reflected into it."""
    return 1 - (x.remainder(2) - 1).abs()
