"""Fine-tuning of pretrained weights on many data sets of one kind, such as the days of a network of stations.

A model that is trained on fixed stations learns their geometry: it recognises a station by the others around it,
remembers how it deviates, and is overconfident at all other places. Therefore, in every training task a random part of
the stations is left out, all positions are jittered by a part of the distance to the nearest station, and the map is
stretched and reflected at random. Weights are validated on groups that are not used in training, both at stations that
are (known places) and at stations that are not (new places); those weights are kept that improve on the pretrained ones
most where they improve least. If none improve on both by more than two standard errors, the pretrained weights stay. At
new places that error is the larger one of those over groups and over stations, which are often few.
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
from jaxtyping import Float, Int
from rich.console import Console
from rich.progress import TextColumn
from torch import Tensor

from shiftnp._progress import progress
from shiftnp.models import NeuralProcess
from shiftnp.regressor.finetune_tasks import Judgement, Parts, Pool, Sampler, Validator, hold_out, search_scales
from shiftnp.regressor.groups import Groups, read_labels
from shiftnp.regressor.scales import Scales
from shiftnp.runs.config import Training
from shiftnp.runs.signals import stop_on_signal
from shiftnp.runs.step import loss, make_optimiser, update, update_average

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor

RATE = 3e-4
AVERAGE = 0.99
"""Decay of the moving average of the weights, which is what is validated and kept."""
SURE = 2.0
"""Standard errors by which weights must improve on the pretrained ones: they are the best of many validations."""
EVERY, PATIENCE = 0.05, 0.5
"""Parts of the time between two validations, and without improvement after which training stops."""
PRINT_EVERY = 30.0
"""Seconds between progress lines if the output is not a terminal."""
ENOUGH_COVER, COUNTED = 0.85, 50
"""Coverage of 90 % intervals at new places below which there is a warning, if it is of so many observations."""


@dataclass(frozen=True)
class Gain:
    """Mean log-likelihood per observation of held-out groups, and by how much the fine-tuned weights improve it.

    Args:
        before: of the pretrained weights.
        gain, error: difference to that, with its standard error over groups, or over stations if that is larger.
    """

    before: float
    gain: float
    error: float

    @property
    def sure(self) -> float:
        """The gain minus `SURE` standard errors."""
        return self.gain - SURE * self.error

    def __str__(self) -> str:
        return f"{self.gain:+.3f} ± {self.error:.3f}"


@dataclass(frozen=True)
class Tuning:
    """What fine-tuning has done.

    Args:
        kept: whether the fine-tuned weights are used; otherwise the pretrained ones are.
        steps, best: number of steps of the training, and of the weights with the best validation; 0: none was made.
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
        if not self.best:
            return f"not fine-tuned, the pretrained weights stay: training ended after {self.steps} steps, too early"
        return f"not fine-tuned, the pretrained weights stay: {self.steps} steps on {data} did not help ({gains})"


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
    cover, counted = found.tuning.coverage, sum(s.held_out for s in model.scores_)
    if cover is not None and cover < ENOUGH_COVER and counted >= COUNTED:
        warnings.warn(
            f"90 % intervals cover {cover:.0%} of the observations at stations that were held out: "
            "they are too narrow at new places.",
            stacklevel=3,
        )


def gain(*pairs: tuple[Float[Tensor, " _"], Float[Tensor, " _"]]) -> Gain:
    """The mean difference and its standard error.

    Args:
        pairs: log-likelihoods before and after, of each group; then of each station. The error is the largest one.
    """
    errors = [float(d.std() / math.sqrt(len(d))) for d in (after - before for before, after in pairs) if len(d) > 1]
    before, after = pairs[0]
    return Gain(float(before.mean()), float((after - before).mean()), max(errors, default=0.0))


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
    known = gain((before.known, after.known))
    if before.new is None or after.new is None or before.stations is None or after.stations is None:
        return known, None
    return known, gain((before.new, after.new), (before.stations, after.stations))


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
