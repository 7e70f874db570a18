"""Fine-tuning of pretrained weights on many data sets of one kind, such as the days of a network of stations.

A model that is trained on fixed stations learns their geometry: it recognises a station by the others around it,
remembers how it deviates, and is overconfident at all other places. Therefore, in every training task a random part of
the stations is left out, all positions are jittered by a part of the distance to the nearest station, and the map is
stretched and reflected at random. Weights are validated on groups that are not used in training, both at stations that
are (known places) and at stations that are not (new places); those weights are kept that improve on the pretrained ones
most where they improve least. If none improve on both by more than a standard error, the pretrained weights stay.
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from rich.console import Console
from rich.progress import TextColumn
from torch import Tensor

from shiftnp._progress import progress
from shiftnp.batch import Batch
from shiftnp.models import NeuralProcess
from shiftnp.regressor.box import wrap
from shiftnp.regressor.calibration import Scores, scores, spread_factor
from shiftnp.regressor.groups import Groups, by_group, read_labels
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.passes import predict_rows, tensor
from shiftnp.regressor.scales import FLOOR, Fold, Scales, search, spread
from shiftnp.regressor.standardise import moments
from shiftnp.runs.config import Training
from shiftnp.runs.signals import stop_on_signal
from shiftnp.runs.step import loss, make_optimiser, update, update_average

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor

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
RATE = 3e-4
AVERAGE = 0.99
"""Decay of the moving average of the weights, which is what is validated and kept."""
EVERY, PATIENCE = 0.05, 0.5
"""Parts of the time between two validations, and without improvement after which training stops."""
PRINT_EVERY = 30.0
"""Seconds between progress lines if the output is not a terminal."""
ENOUGH_COVER = 0.85
"""Coverage of 90 % intervals at new places below which there is a warning."""


@dataclass(frozen=True)
class Gain:
    """Mean log-likelihood per observation of held-out groups, and by how much the fine-tuned weights improve it.

    Args:
        before: of the pretrained weights.
        gain, error: difference to that, with its standard error over groups.
    """

    before: float
    gain: float
    error: float

    @property
    def sure(self) -> float:
        """The gain minus its standard error."""
        return self.gain - self.error

    def __str__(self) -> str:
        return f"{self.gain:+.3f} ± {self.error:.3f}"


@dataclass(frozen=True)
class Tuning:
    """What fine-tuning has done.

    Args:
        kept: whether the fine-tuned weights are used; otherwise the pretrained ones are.
        steps, best: number of steps of the training, and of the weights with the best validation.
        minutes: duration of the training.
        ended: why it ended: "time", "Ctrl-C" or "no improvement".
        groups, stations: number of groups and stations that were trained on.
        held_out_groups, held_out_stations: number of those that were held out.
        known: gain at known places, for the weights with the best validation.
        new: gain at stations that were held out; None if there were too few to hold some out.
        coverage: fraction of observations at new places in their 90 % intervals; None if there are none.
    """

    kept: bool
    steps: int
    best: int
    minutes: float
    ended: str
    groups: int
    stations: int
    held_out_groups: int
    held_out_stations: int
    known: Gain
    new: Gain | None
    coverage: float | None

    def __str__(self) -> str:
        gains = f"log-likelihood at known places {self.known}" + (f", at new places {self.new}" if self.new else "")
        data = f"{self.groups} groups of {self.stations} stations"
        if self.kept:
            return f"fine-tuned: {self.best} of {self.steps} steps in {self.minutes:.1f} minutes on {data}; {gains}"
        return f"not fine-tuned, the pretrained weights stay: {self.steps} steps on {data} did not help ({gains})"


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


def check_groups(groups: Any, station: Any, minutes: Any, x: Float[np.ndarray, "n dx"]) -> tuple[Groups, Groups] | None:
    """Groups and stations of the rows, after checks; None without groups. Without labels of stations, rows with equal
    inputs are of one station."""
    if groups is None:
        if station is not None:
            raise ValueError("station needs groups as well, which name the data set of each row, such as its day.")
        return None
    if isinstance(minutes, bool) or not isinstance(minutes, int | float | np.number) or not 0 <= minutes < math.inf:
        raise ValueError(f"minutes must be a number of at least 0, got {minutes!r}.")
    labels = Groups.of(read_labels(groups, len(x), "groups"))
    if station is not None:
        return labels, Groups.of(read_labels(station, len(x), "station"))
    code = np.unique(x, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64) if len(x) else labels.code
    return labels, Groups((), code)


def fit_groups(
    model: Regressor, station: Int[np.ndarray, " n"], factors: Float[np.ndarray, " s"], minutes: float, start: float
) -> None:
    """The part of `Regressor.fit` that chooses scales, weights and spread, for many data sets.

    Args:
        station: station of each stored observation.
        start: when `fit` has begun, in `time.perf_counter`.
    """
    assert model._groups is not None
    box = model._box
    pool = Pool(box.coordinates(model._x), model._y, model._groups.code, station, box.wrapping, model.neighbours)
    rng = np.random.default_rng(model.seed)
    parts = hold_out(pool, rng)
    scales = search_scales(model._model, pool, parts, factors, rng)
    left = 60 * float(minutes) - (time.perf_counter() - start)
    found = tune(model._model, pool, parts, scales, left, model.calibrate, model.seed)
    model._model, model.tuning_, model.scales_ = found.model, found.tuning, scales
    model.spread_factors_, model.scores_ = found.judgement.spreads, found.judgement.scores
    if found.tuning.coverage is not None and found.tuning.coverage < ENOUGH_COVER:
        warnings.warn(
            f"90 % intervals cover {found.tuning.coverage:.0%} of the observations at stations that were held out: "
            "they are too narrow at new places.",
            stacklevel=3,
        )


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
    return [Scales(s.factors[:1], torch.ones(1, dtype=torch.float64)) for s in search(model, folds, pool.y, factors)]


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
        self.spacing = [station_spacing(pool, factor) for factor in self.factors]
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


def station_spacing(pool: Pool, factor: Float[np.ndarray, " dx"]) -> Float[np.ndarray, "n dx"]:
    """Distance of each observation's station to the nearest other one, along the inputs in which stations do not move;
    zero along others, such as time."""
    u = pool.u * factor
    order = list(by_group(pool.station))
    moves = np.zeros(u.shape[1])
    places = np.zeros((len(order), u.shape[1]))
    for i, (_, rows) in enumerate(order):
        d = wrap(u[rows] - u[rows[0]], pool.period * factor)
        moves = np.maximum(moves, np.ptp(d, axis=0))
        places[i] = u[rows[0]] + d.mean(0)
    fixed = (moves <= 1e-3 * np.ptp(u, axis=0)) & (np.ptp(u, axis=0) > 0)
    result = np.zeros_like(u)
    if len(order) == len(u) or not fixed.any():
        return result
    near = np.empty(len(order))
    for i in range(len(order)):
        d = (wrap(places - places[i], pool.period * factor)[:, fixed] ** 2).sum(1)
        near[i] = math.sqrt(d[d > 0].min()) if (d > 0).any() else 0.0
    for i, (_, rows) in enumerate(order):
        result[rows] = near[i] * fixed
    return result


# --- validation ------------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """Validation tasks of one output, padded: contexts with NaN, targets by `there`.

    Args:
        group: number of the group of each task.
    """

    output: int
    xc: Float[Tensor, "b nc dx"]
    yc: Float[Tensor, "b nc"]
    xt: Float[Tensor, "b nt dx"]
    yt: Float[Tensor, "b nt"]
    there: Bool[Tensor, "b nt"]
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
        task = torch.repeat_interleave(self.there.sum(1))
        sums = torch.zeros(len(self.there), dtype=values.dtype).index_add_(0, task, values)
        return sums / self.there.sum(1)


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
        for i, (context, targets) in enumerate(pairs):
            for x, y, rows in ((xc, yc, context), (xt, yt, targets)):
                x[i, : len(rows)] = wrap(pool.u[rows] - pool.u[targets[0]], pool.period) * scale.factors[0]
                y[i, : len(rows)] = pool.y[rows, o]
        there = torch.from_numpy(~np.isnan(yt))
        floor = torch.full((len(pairs),), FLOOR * spread(pool.y[:, o]), dtype=torch.float64)
        held.append(Held(o, tensor(xc), tensor(yc), tensor(xt), tensor(yt), there, floor))
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
        spreads: factor of the spread of each output.
        scores: scores at new places (at known places without held-out stations) of each output.
    """

    known: Float[Tensor, " g"]
    new: Float[Tensor, " g"] | None
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
        found = [scores(p, held.y) for held, p in sets[1] or sets[0]]
        return Judgement(torch.cat(known), torch.cat(new) if new else None, spreads, found)


def gain(before: Float[Tensor, " g"], after: Float[Tensor, " g"]) -> Gain:
    """The mean difference and its standard error over groups."""
    d = after - before
    error = float(d.std() / math.sqrt(len(d))) if len(d) > 1 else 0.0
    return Gain(float(before.mean()), float(d.mean()), error)


# --- fine-tuning -----------------------------------------------------------------------------------------------------


class Tuned(NamedTuple):
    """Result of `tune`: weights (the pretrained ones if these stay), their judgement, and what has been done."""

    model: NeuralProcess
    judgement: Judgement
    tuning: Tuning


def tune(
    model: NeuralProcess,
    pool: Pool,
    parts: Parts,
    scales: Sequence[Scales],
    seconds: float,
    calibrate: bool,
    seed: int,
) -> Tuned:
    """Fine-tunes weights until the time is over.

    Args:
        model: the pretrained model, which stays as it is.
        seconds: the time for that; learning rate and validations follow it.
    """
    rng = np.random.default_rng(seed)
    began, total = time.monotonic(), max(seconds, 1e-9)
    validate = Validator(pool, parts, scales, calibrate, rng)
    sampler = Sampler(pool, parts, scales, rng)
    ready = time.monotonic()
    first = validate(model)
    cost = time.monotonic() - ready  # of a validation; the last one has to end in time
    network = copy.deepcopy(model).requires_grad_(True).train()
    average = copy.deepcopy(model)
    training = Training(learning_rate=RATE, schedule="cosine", warmup=50, minutes=total / 60)
    optimiser = make_optimiser(network, training)

    best: tuple[float, int, dict[str, Tensor], Judgement] | None = None  # its score, step and weights
    attempt: tuple[float, int, Judgement] = (-math.inf, 0, first)
    step, checked, improved, ended = 0, 0.0, 0.0, "time"
    with stop_on_signal() as stop, shown_progress(total) as show:
        while True:
            part = (time.monotonic() - began) / total
            last = part + 1.3 * cost / total >= 1
            if step and (last or part >= checked + max(EVERY, 4 * cost / total)):
                judged, checked = validate(average), part
                value = min(g.sure for g in gains(first, judged) if g is not None)
                if value > attempt[0]:
                    attempt = value, step, judged
                if value > (best[0] if best else 0.0):
                    best = value, step, {k: v.clone() for k, v in average.state_dict().items()}, judged
                    improved = part
                show(part, step, gains(first, judged))
            if last or stop or part - improved > PATIENCE:
                ended = "time" if last else "Ctrl-C" if stop else "no improvement"
                break
            optimiser.zero_grad()
            value_of = loss(network, sampler.batch(network.dtype).to(next(network.parameters()).device))
            if not bool(value_of.isfinite()):
                continue
            value_of.backward()
            update(network, optimiser, training, step, part)
            update_average(average, network, AVERAGE, step)
            step += 1
            show(part, step, None)
    if best is not None:
        average.load_state_dict(best[2])
    judgement = first if best is None else best[3]
    known, new = gains(first, attempt[2] if best is None else best[3])
    stations, groups = (len(np.unique(c)) for c in (pool.station, pool.group))
    out_groups, out_stations = (
        len(np.unique(codes[out])) for codes, out in ((pool.group, parts.group), (pool.station, parts.station))
    )
    tuning = Tuning(
        best is not None, step, attempt[1] if best is None else best[1], (time.monotonic() - began) / 60, ended,
        groups - out_groups, stations - out_stations, out_groups, out_stations, known, new,
        None if judgement.new is None else float(np.mean([s.coverage for s in judgement.scores])),
    )  # fmt: skip
    return Tuned(model if best is None else average.eval().requires_grad_(False), judgement, tuning)


def gains(before: Judgement, after: Judgement) -> tuple[Gain, Gain | None]:
    """Gains at known and at new places."""
    new = None if before.new is None or after.new is None else gain(before.new, after.new)
    return gain(before.known, after.known), new


class shown_progress:
    """A progress bar over the time, with the latest gains; without a terminal, a line from time to time."""

    def __init__(self, total: float) -> None:
        self.total, self.console = total, Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
        self.bar = progress(TextColumn("{task.fields[now]}"), console=self.console)
        self.text, self.printed = "", time.monotonic()

    def __enter__(self) -> Callable[[float, int, Any], None]:
        self.bar.start()
        self.task = self.bar.add_task("fine-tuning (seconds)", total=round(self.total), now="")
        return self.show

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, part: float, step: int, found: tuple[Gain, Gain | None] | None) -> None:
        """Shows the step and, after a validation, its gains."""
        if found is not None:
            self.text = f"  known places {found[0]}" + (f", new {found[1]}" if found[1] else "")
        now = f"step {step}{self.text}"
        self.bar.update(self.task, completed=round(part * self.total), now=now)
        if not self.console.is_terminal and time.monotonic() - self.printed > PRINT_EVERY:
            self.printed = time.monotonic()
            self.console.print(f"fine-tuning: {now}, {max(0, round((1 - part) * self.total))} seconds left")
