"""Tasks of fine-tuning: what is held out, the scales of the inputs, training tasks and validation tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shiftnp.batch import Batch
from shiftnp.models import NeuralProcess
from shiftnp.regressor.box import wrap
from shiftnp.regressor.calibration import Scores, scores, spread_factor
from shiftnp.regressor.folds import Fold
from shiftnp.regressor.groups import by_group
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.passes import predict_rows, tensor
from shiftnp.regressor.scales import FLOOR, Scales, search, spread
from shiftnp.regressor.standardise import moments
from shiftnp.tasks.stations import spacing

HELD_OUT = 0.2
"""Part of the groups, and of the stations, that is held out for validation."""
FEWEST = 5
"""Smallest number of groups, and of stations if some are to be held out."""
CHECKED = 48
"""Number of held-out groups in a validation, at most."""
FOLDS = 48
"""Number of groups on which the scales of the inputs are chosen, at most."""
DROP = 0.5
"""Largest part of the stations that is left out of a training task."""
CONTEXT = (0.1, 0.9)
"""Smallest and largest part of a training task's observations that are context."""
JITTER = 0.3
"""Standard deviation of the jitter of positions, as a part of the distance to the nearest station."""
STRETCH = 0.15
"""Standard deviation of the logarithm of the random factor of each input."""
TASKS, TARGETS = 8, 64
"""Data sets of a training step, and targets of each, at most."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Observations of many data sets.

    Args:
        u: coordinates of the observations.
        y: their outputs; NaN where there is none.
        group, station: data set and station of each observation, as numbers.
        period: period of each coordinate; infinite: none.
        most: number of observations in a context, at most.
    """

    u: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, "n k"]
    group: Int[np.ndarray, " n"]
    station: Int[np.ndarray, " n"]
    period: Float[np.ndarray, " dx"]
    most: int


class Parts(NamedTuple):
    """Which observations are of held-out groups and of held-out stations."""

    group: Bool[np.ndarray, " n"]
    station: Bool[np.ndarray, " n"]


def hold_out(pool: Pool, rng: np.random.Generator) -> Parts:
    """Holds out groups and stations at random; no stations if they are too few, or if none is seen twice."""

    def some(codes: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        every = rng.permutation(np.unique(codes))
        return np.isin(codes, every[: max(2, round(HELD_OUT * len(every)))])

    groups = len(np.unique(pool.group))
    if groups < FEWEST:
        raise ValueError(
            f"groups has {groups} different labels, and fine-tuning needs at least {FEWEST} data sets: leave out "
            "`groups` to predict from one."
        )
    stations = len(np.unique(pool.station))
    repeated = FEWEST <= stations <= len(pool.station) / 2
    return Parts(some(pool.group), some(pool.station) if repeated else np.zeros(len(pool.u), bool))


# --- scales ----------------------------------------------------------------------------------------------------------


def search_scales(
    model: NeuralProcess, pool: Pool, parts: Parts, factors: Float[np.ndarray, " s"], rng: np.random.Generator
) -> list[Scales]:
    """One scale of the inputs for each output and all groups: the best for held-out observations of some groups."""
    folds: list[Fold] = []
    groups = list(by_group(pool.group))
    for i in rng.permutation(len(groups))[: 4 * FOLDS]:
        rows = groups[i][1]
        rows = rows[~parts.group[rows] & ~parts.station[rows]]
        if len(rows) < 2 or len(folds) == FOLDS:
            continue
        rows = nearest(pool, rows, np.ones(pool.u.shape[1]), rng)
        out = rng.permutation(len(rows)) < max(1, len(rows) // 6)
        x = wrap(pool.u[rows] - pool.u[rows[0]], pool.period)
        folds.append(Fold(rows[~out], x[~out], rows[out], x[out]))
    found = search(model, folds, pool.y, factors, trend=False)
    return [Scales(s.factors[:1], torch.ones(1, dtype=torch.float64)) for s in found]


def nearest(
    pool: Pool, rows: Int[np.ndarray, " n"], factor: Float[np.ndarray, " dx"], rng: np.random.Generator
) -> Int[np.ndarray, " m"]:
    """Rows in random order: all of them, or the nearest ones to a random one of them if they do not fit a context."""
    rows = rng.permutation(rows)
    if len(rows) <= pool.most:
        return rows
    d = (wrap(pool.u[rows] - pool.u[rows[0]], pool.period) * factor) ** 2
    return rng.permutation(rows[np.argpartition(d.sum(1), pool.most - 1)[: pool.most]])


# --- training tasks --------------------------------------------------------------------------------------------------


class Sampler:
    """Draws training tasks: data sets of training groups at training stations, with stations left out and moved."""

    def __init__(self, pool: Pool, parts: Parts, scales: Sequence[Scales], rng: np.random.Generator) -> None:
        self.pool, self.rng = pool, rng
        self.factors = [scale.factors[0] for scale in scales]
        self.floors = [FLOOR * spread(pool.y[:, o]) for o in range(pool.y.shape[1])]
        self.spacing = [spacing(pool.u * factor, pool.station) for factor in self.factors]
        free = ~parts.group & ~parts.station
        self.sets = [
            (o, rows[free[rows] & ~np.isnan(pool.y[rows, o])])
            for _, rows in by_group(pool.group)
            for o in range(pool.y.shape[1])
        ]
        self.sets = [(o, rows) for o, rows in self.sets if len(np.unique(pool.station[rows])) > 1]
        if not self.sets:
            raise ValueError("No group has two observations to train on: choose other `groups`.")

    def batch(self, dtype: torch.dtype) -> Batch:
        """Tasks of one training step."""
        tasks = [self.task(*self.sets[i]) for i in self.rng.integers(len(self.sets), size=TASKS)]
        return Batch.collate(tasks).to(dtype)

    def task(self, o: int, rows: Int[np.ndarray, " n"]) -> Batch:
        """One task, standardised by its context as for a prediction."""
        pool, rng = self.pool, self.rng
        stations = rng.permutation(np.unique(pool.station[rows]))
        kept = stations[: max(2, round(len(stations) * (1 - DROP * rng.random())))]
        rows = nearest(pool, rows[np.isin(pool.station[rows], kept)], self.factors[o], rng)
        context = min(len(rows) - 1, max(1, round(len(rows) * rng.uniform(*CONTEXT))))
        factor = self.factors[o] * np.exp(STRETCH * rng.normal(size=pool.u.shape[1]))
        x = wrap(pool.u[rows] - pool.u[rows[0]], pool.period) * factor * rng.choice((-1.0, 1.0), pool.u.shape[1])
        x += JITTER * self.spacing[o][rows] * rng.normal(size=x.shape)
        y = tensor(pool.y[rows, o])
        mean, std = moments(y[:context], self.floors[o])
        z = ((y - mean) / std)[None, :, None]
        at = tensor(x)[None]
        last = context + TARGETS
        return Batch(at[:, :context], z[:, :context], at[:, context:last], z[:, context:last])


# --- validation ------------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """Validation tasks of one output, padded: contexts with NaN, targets by `there`.

    Args:
        station: number of the station of each target.
    """

    output: int
    xc: Float[Tensor, "b nc dx"]
    yc: Float[Tensor, "b nc"]
    xt: Float[Tensor, "b nt dx"]
    yt: Float[Tensor, "b nt"]
    there: Bool[Tensor, "b nt"]
    station: Int[Tensor, "b nt"]
    floor: Float[Tensor, " b"]

    def predict(self, model: NeuralProcess) -> Mixture:
        """Predictions of all targets, one task after the other, in the units of the outputs."""
        every = predict_rows(model, self.xc, self.yc, self.xt, self.floor)
        return Mixture(*(part[self.there] for part in every))

    @property
    def y(self) -> Float[Tensor, " h"]:
        """Outputs of all targets."""
        return self.yt[self.there]

    def by_task(self, values: Float[Tensor, " h"]) -> Float[Tensor, " b"]:
        """Mean of values of the targets of each task."""
        return means(values, torch.repeat_interleave(self.there.sum(1)))

    def by_station(self, values: Float[Tensor, " h"]) -> Float[Tensor, " s"]:
        """Mean of values of the targets of each station."""
        return means(values, self.station[self.there].unique(return_inverse=True)[1])


def means(values: Float[Tensor, " h"], part: Int[Tensor, " h"]) -> Float[Tensor, " p"]:
    """Mean of the values of each part; parts are numbered from 0 and none is empty."""
    count = part.bincount()
    return torch.zeros(len(count), dtype=values.dtype).index_add_(0, part, values) / count


def validation_tasks(
    pool: Pool, parts: Parts, scales: Sequence[Scales], new: bool, rng: np.random.Generator
) -> list[Held]:
    """Tasks of held-out groups, for each output: contexts at training stations, targets at held-out stations (`new`)
    or at other training stations."""
    held = []
    groups = [rows for _, rows in by_group(pool.group) if parts.group[rows].all()]
    groups = [groups[i] for i in rng.permutation(len(groups))[:CHECKED]]
    for o, scale in enumerate(scales):
        pairs = []
        for rows in groups:
            rows = rng.permutation(rows[~np.isnan(pool.y[rows, o])])
            known = rows[~parts.station[rows]]
            if new:
                context, targets = known, rows[parts.station[rows]]
            else:
                stations = rng.permutation(np.unique(pool.station[known]))
                out = np.isin(pool.station[known], stations[: max(1, round(HELD_OUT * len(stations)))])
                context, targets = known[~out], known[out]
            if len(context) and len(targets):
                pairs.append(near_target(pool, context, targets[:TARGETS], scale.factors[0]))
        if not pairs:
            continue
        nc, nt = (max(len(pair[i]) for pair in pairs) for i in (0, 1))
        dx = pool.u.shape[1]
        xc, yc = np.zeros((len(pairs), nc, dx)), np.full((len(pairs), nc), np.nan)
        xt, yt = np.zeros((len(pairs), nt, dx)), np.full((len(pairs), nt), np.nan)
        station = np.zeros((len(pairs), nt), np.int64)
        for i, (context, targets) in enumerate(pairs):
            station[i, : len(targets)] = pool.station[targets]
            for x, y, rows in ((xc, yc, context), (xt, yt, targets)):
                x[i, : len(rows)] = wrap(pool.u[rows] - pool.u[targets[0]], pool.period) * scale.factors[0]
                y[i, : len(rows)] = pool.y[rows, o]
        there = torch.from_numpy(~np.isnan(yt))
        floor = torch.full((len(pairs),), FLOOR * spread(pool.y[:, o]), dtype=torch.float64)
        codes = torch.from_numpy(station)
        held.append(Held(o, tensor(xc), tensor(yc), tensor(xt), tensor(yt), there, codes, floor))
    return held


def near_target(
    pool: Pool, context: Int[np.ndarray, " c"], targets: Int[np.ndarray, " t"], factor: Float[np.ndarray, " dx"]
) -> tuple[Int[np.ndarray, " d"], Int[np.ndarray, " s"]]:
    """The observations nearest to a target, if they do not all fit a context, and the targets near that one."""
    if len(context) <= pool.most:
        return context, targets
    d = [(((wrap(pool.u[r] - pool.u[targets[0]], pool.period)) * factor) ** 2).sum(1) for r in (context, targets)]
    near = np.argpartition(d[0], pool.most - 1)[: pool.most]
    return context[near], targets[d[1] <= d[0][near].max() / 4]


class Judgement(NamedTuple):
    """Scores of weights on held-out groups.

    Args:
        known, new: mean log-likelihood of each task, over outputs one after the other; `new` is None without held-out
            stations.
        stations: the same of each held-out station.
        spreads: factor of the spread of each output.
        scores: scores at new places (at known places without held-out stations) of each output.
    """

    known: Float[Tensor, " g"]
    new: Float[Tensor, " g"] | None
    stations: Float[Tensor, " s"] | None
    spreads: list[float]
    scores: list[Scores]


class Validator:
    """Judges weights on held-out groups, at known and at new places. The factor of the spread is the larger one of
    those that are best at known and at new places: too wide is better than too narrow."""

    def __init__(
        self, pool: Pool, parts: Parts, scales: Sequence[Scales], calibrate: bool, rng: np.random.Generator
    ) -> None:
        self.known = validation_tasks(pool, parts, scales, False, rng)
        self.new = validation_tasks(pool, parts, scales, True, rng)
        self.outputs, self.calibrate = pool.y.shape[1], calibrate
        if not self.known:
            raise ValueError("No held-out group has two stations to validate on: choose other `groups`.")

    def __call__(self, model: NeuralProcess) -> Judgement:
        sets = [[(held, held.predict(model)) for held in tasks] for tasks in (self.known, self.new)]
        spreads = [1.0] * self.outputs
        if self.calibrate:
            for o in range(self.outputs):
                best = [spread_factor(p, held.y) for tasks in sets for held, p in tasks if held.output == o]
                spreads[o] = max(best, default=1.0)
        sets = [[(h, p.spread(torch.full_like(h.y, spreads[h.output]))) for h, p in tasks] for tasks in sets]
        known, new = ([held.by_task(p.log_prob(held.y)) for held, p in tasks] for tasks in sets)
        stations = [held.by_station(p.log_prob(held.y)) for held, p in sets[1]]
        found = [scores(p, held.y) for held, p in sets[1] or sets[0]]
        at_new, by_station = (torch.cat(values) if values else None for values in (new, stations))
        return Judgement(torch.cat(known), at_new, by_station, spreads, found)
