"""A broad prior over functions and data sets, for pretrained models."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.scaling import standardise_by_context
from shiftnp.tasks import checks
from shiftnp.tasks.base import Task, TestSet
from shiftnp.tasks.draws import Draws
from shiftnp.tasks.prior_functions import (
    HELD_OUT_KERNELS,
    PERIODIC,
    STATIONARY,
    GaussianFunction,
    InputWarp,
    Points,
    Term,
    Values,
    oscillations,
    step_function,
)
from shiftnp.tasks.prior_sites import ARRANGEMENTS, with_gaps

Functions = Literal["prior", "gamma-exponential", "wendland", "steps", "oscillations"]

SHARES = (
    *("few", "beyond", "rotated", "directed", "periodic", "sums", "products", "trends", "warped", "skewed"),
    *("unequal", "outliers", "clusters", "grids", "tracks", "stations", "gaps"),
)
"""Settings of `PriorTask` that are probabilities."""
FEW = 8
"""Largest number of context points that counts as few, see `PriorTask.few`."""


@dataclass(frozen=True)
class Truth:
    """How one data set was made; None and False: without that ingredient.

    Args:
        sites: name of the arrangement of its sites.
        gaps: whether the sites have gaps.
        sides: sides of the box, one per input.
        function: the Gaussian process; None for other functions.
        warp: warp of the inputs.
        trend: standard deviation of the linear trend, relative to the function's.
        noise: variance of the noise, relative to the function's.
        unequal: whether the noise differs from point to point.
        skewed: whether the outputs are warped.
        outliers: share of the points that are outliers.
    """

    sites: str
    gaps: bool
    sides: tuple[float, ...]
    function: GaussianFunction | None
    warp: InputWarp | None
    trend: float | None
    noise: float
    unequal: bool
    skewed: bool
    outliers: float | None


@dataclass(frozen=True)
class PriorTask(Task):
    """Data sets as scientists have them: many kinds of functions, sites and noise, standardised as in a prediction.

    The function of a data set is a sample of a Gaussian process whose kernel is drawn from squared exponential, Matern
    1/2, 3/2, 5/2, rational quadratic, periodic and locally periodic, or is a sum or product of two of them, with
    length-scales that are anisotropic and rotated. It is scaled to mean zero and variance one over its sites. Then
    come, each in a share of the data sets, a linear trend, warps of inputs and outputs, unequal noise and outliers.
    Outputs are standardised by `shiftnp.scaling.standardise_by_context`. All shares are probabilities, independent of
    each other unless stated.

    Lengths are in units of the model's input, in which the box of a data set is between `width[0]` and `width[1]` wide:
    a user's data have to be scaled into that range. The number of context points is drawn once per batch.

    Args:
        dx: number of inputs, one to three.
        points: smallest and largest number of context points; log-uniform from 8 upwards.
        few: share of batches with fewer than or equal to 8 context points, uniform, if `points` allows.
        targets: number of targets.
        beyond: share of the targets that are uniform over the enlarged box; the others are sites like the context.
        margin: by which share of its side the box is enlarged on each side for these targets.
        width: range of the largest side of the box, log-uniform.
        aspect: largest ratio of the sides of the box, log-uniform.
        length: range of length-scales, log-uniform.
        ratio: length-scales along the axes of a kernel differ from that by a factor of up to `ratio`, log-uniform.
        rotated: share of kernels whose axes are rotated, with several inputs; the others have those of the inputs.
        directed: share of kernels that vary along one of their axes only, with several inputs.
        periodic: share of kernels that are periodic or locally periodic, half each, along one of their axes.
        period: range of periods, log-uniform.
        sums, products: share of functions with a sum or product of two kernels.
        trends: share of data sets with a linear trend.
        trend: range of the standard deviation of a trend relative to the function's, log-uniform.
        warped: share of data sets with a monotone warp of each input, which makes functions non-stationary.
        skewed: share of data sets whose outputs, with noise, are warped by a sinh-arcsinh function.
        noise: range of the noise variance relative to the function's, log-uniform.
        unequal: share of data sets whose noise differs from point to point, partly smoothly with the inputs.
        outliers: share of data sets in which 1 to 10 % of the points are outliers.
        clusters, grids, tracks, stations: share of data sets with such sites, see `prior_sites`; the remaining ones are
            uniform. Tracks need at least two inputs, and stations, observed at several times, three.
        gaps: share of data sets whose sites have gaps along one input.
        limit: targets are clipped to this many standard deviations of the context, which matters for two or three
            context points that happen to be almost equal.
        functions: "prior", or functions that are not in it, for tests.
    """

    dx: int = 1
    points: tuple[int, int] = (0, 512)
    few: float = 0.1
    targets: int = 64
    beyond: float = 0.35
    margin: float = 0.1
    width: tuple[float, float] = (1.0, 10.0)
    aspect: float = 3.0
    length: tuple[float, float] = (0.12, 4.0)
    ratio: float = 3.0
    rotated: float = 0.5
    directed: float = 0.1
    periodic: float = 0.1
    period: tuple[float, float] = (0.25, 4.0)
    sums: float = 0.4
    products: float = 0.15
    trends: float = 0.3
    trend: tuple[float, float] = (0.3, 5.0)
    warped: float = 0.2
    skewed: float = 0.3
    noise: tuple[float, float] = (1e-4, 1.5)
    unequal: float = 0.2
    outliers: float = 0.15
    clusters: float = 0.3
    grids: float = 0.15
    tracks: float = 0.1
    stations: float = 0.25
    gaps: float = 0.2
    limit: float = 20.0
    functions: Functions = "prior"

    dy = 1

    def __post_init__(self) -> None:
        checks.whole("dx", self.dx, least=1)
        if self.dx > 3:
            raise ValueError(f"dx must be 1, 2 or 3, got {self.dx}.")
        checks.whole("targets", self.targets, least=1)
        checks.one_of("functions", self.functions, get_args(Functions))
        points = checks.whole_numbers("points", self.points, 2, least=0)
        if points[0] > points[1]:
            raise ValueError(f"points must be a range, the smaller number first, got {points}.")
        object.__setattr__(self, "points", points)
        for name in ("width", "length", "period", "trend", "noise"):
            low, high = map(float, checks.numbers(name, getattr(self, name), 2))
            if not 0 < low <= high:
                raise ValueError(f"{name} must be a range of positive numbers, got {getattr(self, name)!r}.")
            object.__setattr__(self, name, (low, high))
        for name in SHARES:
            checks.number(name, getattr(self, name))
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a share between 0 and 1, got {getattr(self, name)!r}.")
        for name, least in (("margin", 0.0), ("aspect", 1.0), ("ratio", 1.0), ("limit", 1.0)):
            checks.number(name, getattr(self, name))
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least:g}, got {getattr(self, name)!r}.")
        for together in (("sums", "products"), ("clusters", "grids", "tracks", "stations")):
            if sum(getattr(self, name) for name in together) > 1 + 1e-9:
                raise ValueError(f"{', '.join(together)} must have a sum of at most 1.")

    # --- sampling ----------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` data sets, each with a function, sites and noise of its own."""
        return self.sample_with_truth(batch_size, generator)[0]

    def sample_with_truth(self, batch_size: int, generator: torch.Generator) -> tuple[Batch, list[Truth]]:
        """A batch, with how each data set was made."""
        draws = Draws(generator)
        nc = self._context_points(draws)
        inputs, outputs, truth = zip(*(self._data_set(nc, draws) for _ in range(batch_size)), strict=True)
        x, y = torch.stack(inputs), torch.stack(outputs)
        y = standardise_by_context(y[:, :nc]).apply(y).clamp(-self.limit, self.limit)
        x, y = x.float(), y.float()
        return Batch(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:]), list(truth)

    def _context_points(self, draws: Draws) -> int:
        """Number of context points of a batch."""
        low, high = self.points
        if low <= FEW and (high <= FEW or not draws.chance(1 - self.few)):
            return draws.whole(low, min(FEW, high))
        return min(high, int(draws.log_uniform(max(low, FEW), high + 1)))

    def _data_set(self, nc: int, draws: Draws) -> tuple[Float[Tensor, "n dx"], Float[Tensor, "n 1"], Truth]:
        """Inputs and outputs of one data set, the context first, with how it was made."""
        u, sites, gaps = self._sites(nc, draws)
        largest = draws.log_uniform(*self.width)
        shrink = [1.0, *(draws.log_uniform(1 / self.aspect, 1) for _ in range(self.dx - 1))]
        start = draws.whole(0, self.dx - 1)
        sides = tuple(max(self.width[0], largest * s) for s in shrink[start:] + shrink[:start])
        scale = torch.tensor(sides, dtype=u.dtype)

        warp = InputWarp.draw(self.dx, draws) if draws.chance(self.warped) else None
        at = u if warp is None else warp(u)
        function = None
        if self.functions == "steps":
            f = step_function(at, draws)
        elif self.functions == "oscillations":
            f = oscillations(at, draws)
        else:
            function = self._function(draws)
            f = function.sample(at * scale, draws)

        noise, trend = draws.log_uniform(*self.noise), None
        f = standardised(f)
        if draws.chance(self.trends):
            trend = draws.log_uniform(*self.trend)
            direction = torch.nn.functional.normalize(draws.randn(self.dx), dim=0)
            f = f + math.sqrt(12) * trend * (u @ direction)  # a uniform input has the variance 1/12
        unequal = draws.chance(self.unequal)
        error = draws.randn(len(u)) * (noise_profile(u, draws) if unequal else 1.0)
        y = standardised(f + math.sqrt(noise) * error)
        skewed = draws.chance(self.skewed)
        if skewed:
            y = standardised(torch.sinh((torch.asinh(y) + draws.uniform(-1, 1)) * draws.uniform(0.8, 1.3)))
        outliers = None
        if draws.chance(self.outliers):
            outliers = draws.log_uniform(0.01, 0.1)
            y = y + (draws.rand(len(u)) < outliers) * draws.log_uniform(2, 8) * draws.randn(len(u))
        truth = Truth(sites, gaps, sides, function, warp, trend, noise, unequal, skewed, outliers)
        return u * scale, y[:, None], truth

    def _sites(self, nc: int, draws: Draws) -> tuple[Points, str, bool]:
        """Context and targets in the unit cube around zero, with their arrangement and whether there are gaps."""
        shares = {"clusters": self.clusters, "grid": self.grids}
        if self.dx > 1:
            shares["track"] = self.tracks
        if self.dx > 2:
            shares["stations"] = self.stations
        level, chosen = draws.uniform(), "uniform"
        for name, share in shares.items():
            if 0 <= level < share:
                chosen = name
            level -= share
        beyond = round(self.beyond * self.targets)
        like_context = nc + self.targets - beyond
        x = ARRANGEMENTS[chosen](like_context, self.dx, draws)
        gaps = draws.chance(self.gaps)
        if gaps:
            x = with_gaps(x, draws)
        elsewhere = (1 + 2 * self.margin) * (draws.rand(beyond, self.dx) - 0.5)
        return torch.cat([x - 0.5, elsewhere]), chosen, gaps

    def _function(self, draws: Draws) -> GaussianFunction:
        """A random Gaussian process of the prior, or one with a kernel that is held out of it."""
        if self.functions in HELD_OUT_KERNELS:
            return GaussianFunction((self._term(self.functions, draws),))
        level = draws.uniform()
        if level >= self.sums + self.products:
            return GaussianFunction((self._random_term(draws),))
        terms = (self._random_term(draws), self._random_term(draws))
        if level < self.sums:
            return GaussianFunction(terms, "sum", draws.uniform(0.1, 0.9))
        return GaussianFunction(terms, "product")

    def _random_term(self, draws: Draws) -> Term:
        return self._term(draws.pick(PERIODIC if draws.chance(self.periodic) else STATIONARY), draws)

    def _term(self, kind: str, draws: Draws) -> Term:
        """A kernel with random length-scales, axes and period."""
        axes = torch.eye(self.dx, dtype=torch.float64)
        if self.dx > 1:
            axes = torch.linalg.qr(draws.randn(self.dx, self.dx))[0] if draws.chance(self.rotated) else axes
            axes = axes.roll(draws.whole(0, self.dx - 1), 0)
        length, period = draws.log_uniform(*self.length), draws.log_uniform(*self.period)
        if kind == "locally-periodic":
            length = period * draws.log_uniform(1, 8)
        if kind == "wendland":  # it is zero from one length-scale on, so make this about as long as others reach
            length *= 3
        metric = axes / length
        if self.dx > 1:
            if draws.chance(self.directed):
                metric = metric[:1]
            else:
                metric = metric * self.ratio ** (2 * draws.rand(self.dx, 1) - 1)
        shape = draws.log_uniform(0.3, 5) if kind == "rational-quadratic" else draws.log_uniform(0.5, 2)
        return Term(kind, metric, axes[0] / period, shape)

    # --- tests and figures -------------------------------------------------------------------------------------------

    def test_sets(self) -> dict[str, TestSet]:
        """`valid`, of the prior, and four sets of functions that are not in it: Gaussian processes with kernels
        `gamma-exponential` (exponent 1.3) and `wendland` (compact support), step functions and damped oscillations,
        all without trend, warps, unequal noise, outliers and, unless `points` has no others, few context points."""
        plain = replace(self, few=0.0, trends=0.0, warped=0.0, skewed=0.0, unequal=0.0, outliers=0.0)
        others: list[Functions] = [name for name in get_args(Functions) if name != "prior"]
        held_out: dict[str, TestSet] = {
            name: TestSet(replace(plain, functions=name), seed=3 + i, tasks=256, batch_size=8)
            for i, name in enumerate(others)
        }
        return {"valid": TestSet(replace(self, functions="prior"), seed=2, tasks=256, batch_size=8), **held_out}

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """A curve over one input, or coloured points over the first two of several."""
        from shiftnp.plots.curves import draw_field, draw_task

        figure = Figure(figsize=(7, 3.5) if self.dx == 1 else (9, 3), layout="constrained")
        (draw_task if self.dx == 1 else draw_field)(figure, batch, prediction, index)
        return figure


def standardised(y: Values) -> Values:
    """Values with mean zero and variance one over all points of a data set; a constant becomes zero."""
    y = y - y.mean()
    return y / y.square().mean().sqrt().clamp(min=1e-6)


def noise_profile(u: Points, draws: Draws) -> Values:
    """Standard deviations of unequal noise, of mean square one: their logarithm is a wave across the unit cube plus
    independent normal numbers."""
    phase = 2 * math.pi * (u @ draws.randn(u.shape[1]) + draws.uniform())
    log_std = draws.uniform(0, 1.2) * phase.sin() + draws.uniform(0, 0.6) * draws.randn(len(u))
    return log_std.exp() / (2 * log_std).exp().mean().sqrt()
