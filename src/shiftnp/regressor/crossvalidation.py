"""Cross-validation of the pretrained model beside other methods, with random folds and with blocks of neighbours."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from shiftnp.metrics import COVERAGE
from shiftnp.regressor.distribution import distribution
from shiftnp.regressor.estimator import Regressor
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.tiles import split

PRETRAINED, GP, DISTANCE, NEAREST = "pretrained", "fitted GP", "inverse distance", "nearest neighbour"
RANDOM, BLOCKS = "random folds", "blocks"
LEAST = 10
"""Smallest number of observations that can be checked."""
MOST = 2000
"""Number of held-out observations that are predicted in each cross-validation, at most."""
SUSPICIOUS = 4.0
"""Standard deviations from the prediction without it at which an observation is suspicious."""
HONEST = (0.87, 0.93)
"""Coverage of 90 % intervals beyond which they are too narrow or too wide, unless chance explains it (two standard
errors)."""

Method = Callable[
    [Float[np.ndarray, "n dx"], Float[np.ndarray, " n"], Float[np.ndarray, "h dx"], Float[np.ndarray, " h"]],
    Float[np.ndarray, "5 h"],
]
"""Maps observations, held-out inputs and held-out outputs to `statistics` of the latter."""


class Fold(NamedTuple):
    """Indices of observations to predict from and of held-out ones."""

    train: Int[np.ndarray, " n"]
    test: Int[np.ndarray, " h"]


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of a method at held-out observations, one number for each.

    Args:
        rows: indices of the observations.
        mean, std: predictions.
        log_density, crps, pit: log density at the observation, continuous ranked probability score, and probability of
            a smaller value.
        seconds: duration of all fits and predictions.
    """

    rows: Int[np.ndarray, " h"]
    mean: Float[np.ndarray, " h"]
    std: Float[np.ndarray, " h"]
    log_density: Float[np.ndarray, " h"]
    crps: Float[np.ndarray, " h"]
    pit: Float[np.ndarray, " h"]
    seconds: float

    @property
    def coverage(self) -> dict[str, float]:
        """Fraction of the observations within central intervals, by their names in per cent."""
        return {name: float((np.abs(self.pit - 0.5) <= level / 2).mean()) for name, level in COVERAGE.items()}

    def summary(self) -> dict[str, float]:
        """Mean scores."""
        covers = {f"coverage {name} %": value for name, value in self.coverage.items()}
        means = {"log-likelihood": float(self.log_density.mean()), "crps": float(self.crps.mean())}
        return {**means, **covers, "seconds": self.seconds}


Results = Mapping[str, Mapping[str, Scored]]
"""Scores by cross-validation (`RANDOM`, `BLOCKS`) and method."""


def random_folds(x: Float[np.ndarray, "n dx"], parts: int, rng: np.random.Generator) -> list[Fold]:
    """Random parts; observations at one place are held out together."""
    place = np.unique(x, axis=0, return_inverse=True)[1].reshape(-1)
    groups = np.array_split(rng.permutation(place.max() + 1), min(parts, place.max() + 1))
    return _folds([np.flatnonzero(np.isin(place, group)) for group in groups], len(x), rng)


def block_folds(u: Float[np.ndarray, "n dx"], parts: int, rng: np.random.Generator) -> list[Fold]:
    """Blocks of neighbours, as if a region or a period had no data.

    Args:
        u: coordinates in which distances are measured.
    """
    return _folds(split(u, np.arange(len(u)), min(parts, len(u))), len(u), rng)


def _folds(groups: Sequence[Int[np.ndarray, " _"]], n: int, rng: np.random.Generator) -> list[Fold]:
    most = -(-MOST // len(groups))
    folds = []
    for group in groups:
        test = np.sort(rng.permutation(group)[:most])
        folds.append(Fold(np.setdiff1d(np.arange(n), group), test))
    return [fold for fold in folds if len(fold.train)]


def cross_validate(
    x: Float[np.ndarray, "n dx"],
    y: Float[np.ndarray, " n"],
    folds: Sequence[Fold],
    method: Method,
    advance: Callable[[], object] = lambda: None,
) -> Scored:
    """Fits a method to each fold and scores the held-out observations."""
    start = time.perf_counter()
    parts = []
    for fold in folds:
        parts.append(method(x[fold.train], y[fold.train], x[fold.test], y[fold.test]))
        advance()
    seconds = time.perf_counter() - start
    mean, std, log_density, crps, pit = np.concatenate(parts, 1)
    return Scored(np.concatenate([fold.test for fold in folds]), mean, std, log_density, crps, pit, seconds)


def statistics(prediction: Mixture, y: Float[np.ndarray, " h"]) -> Float[np.ndarray, "5 h"]:
    """Mean, standard deviation, log density, CRPS and PIT at the observations."""
    truth = torch.from_numpy(np.ascontiguousarray(y))
    found = (
        prediction.mean,
        prediction.half_width,
        prediction.log_prob(truth),
        prediction.crps(truth),
        prediction.cdf(truth),
    )
    return torch.stack(found).numpy()


def pretrained_method(period: Sequence[float | None], **arguments: object) -> Method:
    """The pretrained model, fitted to each fold anew.

    Args:
        period: period of each input; None: it does not wrap.
        arguments: of `Regressor`.
    """
    periods = {j: p for j, p in enumerate(period) if p is not None}

    def method(x: np.ndarray, y: np.ndarray, xt: np.ndarray, yt: np.ndarray) -> np.ndarray:
        model = Regressor(period=periods or None, **arguments).fit(x, y)  # type: ignore[arg-type]
        return statistics(distribution(model, xt), yt)

    return method


# --- conclusions -----------------------------------------------------------------------------------------------------


class Suspicious(NamedTuple):
    """An observation far from its prediction by the others."""

    row: int
    value: float
    mean: float
    std: float

    @property
    def residual(self) -> float:
        """Distance from the prediction in its standard deviations."""
        return (self.value - self.mean) / self.std


def suspicious(scored: Scored, y: Float[np.ndarray, " n"], most: int = 5) -> list[Suspicious]:
    """Observations at least `SUSPICIOUS` standard deviations from their prediction, the farthest first."""
    z = np.abs(y[scored.rows] - scored.mean) / scored.std
    order = [i for i in np.argsort(-z, kind="stable") if z[i] >= SUSPICIOUS][:most]
    return [
        Suspicious(int(scored.rows[i]), *(float(v[i]) for v in (y[scored.rows], scored.mean, scored.std)))
        for i in order
    ]


def verdict(results: Results) -> str:
    """One sentence: how the pretrained model compares with the best other method, and whether its intervals hold."""
    parts = []
    for name, methods in results.items():
        mine = methods[PRETRAINED]
        others = {method: scored for method, scored in methods.items() if method != PRETRAINED}
        best = min(others, key=lambda method: float(others[method].crps.mean()))
        difference = mine.crps - others[best].crps  # of the same observations
        change = float(difference.mean()) / float(others[best].crps.mean())
        error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) / float(others[best].crps.mean())
        if abs(change) <= 2 * error:
            parts.append(f"level with {in_words(best)} in {name} (CRPS {100 * change:+.0f} %)")
        else:
            how = "better" if change < 0 else "worse"
            parts.append(f"{abs(100 * change):.0f} % {how} in CRPS than {in_words(best)} in {name}")
    covers = [(methods[PRETRAINED].coverage["90"], len(methods[PRETRAINED].rows)) for methods in results.values()]
    ends = dict.fromkeys(f"{100 * end(c for c, _ in covers):.0f}" for end in (min, max))
    low, high = HONEST
    narrow = any(c < low and c < 0.9 - 2 * math.sqrt(0.09 / n) for c, n in covers)
    wide = any(c > high and c > 0.9 + 2 * math.sqrt(0.09 / n) for c, n in covers)
    how = "too narrow" if narrow else "wider than necessary" if wide else "as they should"
    return f"The pretrained model is {' and '.join(parts)}; its 90 % intervals cover {' to '.join(ends)} % ({how})."


def in_words(method: str) -> str:
    """The name of a method in a sentence."""
    return f"the {method}" if method in (GP, NEAREST) else method
