"""The search for input scales: what a pretrained model cannot know is how fast the function varies along each input,
and whether it varies around a level or around a trend.

A candidate has a factor for each coordinate and the degree of a trend, see `trend.py`. Candidates are scored by the
cross-validated log-likelihood, all folds and candidates in a few batched passes: first common factors, then factors of
each input around the best, then other degrees. These passes hold out some of the observations; the best candidates are
then scored on the other folds as well and weighted by their likelihood, and predictions are the mixture of those that
matter.

In arrays a candidate is a row: the factor of each input, then the degree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.models import NeuralProcess
from shiftnp.regressor.folds import Fold
from shiftnp.regressor.mixture import Mixture, combine
from shiftnp.regressor.passes import predict_rows, tensor
from shiftnp.regressor.process import Process
from shiftnp.regressor.regular import Bound
from shiftnp.regressor.trend import explained

FEW, THIN = 64, 224
"""Number of held-out observations on which all candidates are compared, at least, and of those to predict from, at
most."""
STEP = 3 ** (1 / 3)
"""Ratio of neighbouring candidates, beyond the common factors and along single inputs."""
FLOOR = 0.05
"""Lower bound of the standard deviation of a fold, as a fraction of that of all data: a fold of a few observations may
have equal ones by chance."""
TEMPERATURE = 2.0
"""Divides the log-likelihoods before candidates are weighted."""
LEAST, MOST = 1e-2, 3
"""Candidates of a smaller weight, or beyond that number, are dropped."""
MANY = 512
"""Number of observations beyond which the best candidate is used alone: likelihoods are then far apart."""
MOSTLY = 0.5
"""If a trend explains this fraction of the variance, all candidates are first compared with the trend removed."""


@dataclass
class Scales:
    """Candidates of one output: factors, degrees of trends, weights, and predictions of the held-out observations.

    A Gaussian process may have a share of the predictions, see `stacking.py`; weights are then those of the rest. There
    may be a lower bound of standard deviations, see `regular.py`.
    """

    factors: Float[np.ndarray, "s dx"]
    weights: Float[Tensor, " s"]
    degrees: Int[np.ndarray, " s"] = field(default_factory=lambda: np.zeros(1, int))
    process: Process | None = None
    share: float = 0.0
    bound: Bound | None = None
    held_out: Mixture | None = field(default=None, repr=False)  # [h], of the weighted candidates
    y: Float[Tensor, " h"] | None = field(default=None, repr=False)

    def plain(self) -> Scales:
        """The candidates alone, without held-out observations."""
        return replace(self, held_out=None, y=None)

    @property
    def typical(self) -> Float[np.ndarray, " dx"]:
        """Weighted geometric mean of the factors."""
        return np.exp((self.weights.numpy()[:, None] * np.log(self.factors)).sum(0))

    @property
    def trend(self) -> int:
        """The degree of the trend with the largest weight."""
        return int(np.bincount(self.degrees, self.weights.numpy()).argmax())


class _Scored(NamedTuple):
    """Scored candidates of one output, with predictions `[s, h]` of all held-out observations."""

    candidates: Float[np.ndarray, "s p"]
    prediction: Mixture
    score: Float[Tensor, " s"]

    def join(self, other: _Scored) -> _Scored:
        """These candidates and others, scored on the same observations."""
        prediction = Mixture(*(torch.cat(pair) for pair in zip(self.prediction, other.prediction, strict=True)))
        candidates = np.concatenate([self.candidates, other.candidates])
        return _Scored(candidates, prediction, torch.cat([self.score, other.score]))

    def extend(self, other: _Scored) -> _Scored:
        """The same candidates, scored on further observations as well."""
        prediction = Mixture(*(torch.cat(pair, 1) for pair in zip(self.prediction, other.prediction, strict=True)))
        return _Scored(self.candidates, prediction, self.score + other.score)

    def top(self, n: int) -> _Scored:
        """The `n` best candidates."""
        order = self.score.argsort(descending=True, stable=True)[:n]
        return _Scored(self.candidates[order.numpy()], Mixture(*(p[order] for p in self.prediction)), self.score[order])

    @property
    def best(self) -> Float[np.ndarray, " p"]:
        return self.candidates[int(self.score.argmax())]


def search(
    model: NeuralProcess,
    folds: Sequence[Fold],
    y: Float[np.ndarray, "n k"],
    factors: Float[np.ndarray, " s"],
    variants: int = 1,
    trend: bool = True,
) -> list[Scales]:
    """Scores candidates for each output and weights them.

    Args:
        y: outputs; NaN where an observation has none.
        factors: common factors of all inputs to try first, in ascending order.
        variants: variants of each data set in the scores of the best candidates, see `predict_rows`.
        trend: whether a trend may be removed; without a search of factors there is none.
    """
    dx, outputs = model.dx, y.shape[1]
    if not folds:
        middle = np.full((1, dx), factors[len(factors) // 2])
        return [Scales(middle, torch.ones(1, dtype=torch.float64)) for _ in range(outputs)]
    held_out = np.cumsum([len(fold.held_out) for fold in folds])
    first = [fold.thin(THIN) for fold in folds[: int((held_out < FEW).sum()) + 1]]

    def add(found: list[_Scored], candidates: list[Float[np.ndarray, "_ p"]]) -> list[_Scored]:
        return [f.join(m) for f, m in zip(found, score(model, first, y, candidates), strict=True)]

    trend = trend and len(factors) > 1
    start = [2.0 if trend and explained_share(first, y[:, o]) >= MOSTLY else 0.0 for o in range(outputs)]
    found = score(model, first, y, [np.array([[f] * dx + [degree] for f in factors]) for degree in start])
    if len(factors) > 1:
        ways = [outwards(f) for f in found]
        if any(ways):
            outer = STEP ** (np.arange(1, 4)[:, None] * ([1] * dx + [0]))
            found = add(found, [f.best * (outer**w if w else outer[:0]) for f, w in zip(found, ways, strict=True)])
        along = STEP ** np.concatenate([np.eye(dx, dx + 1), -np.eye(dx, dx + 1)])
        if dx == 1:
            found = add(found, [f.best * along**0.5 for f in found])
        else:
            before = found
            found = add(found, [f.best * along**2 for f in found])
            steps = [m.candidates[-2 * dx :] for m in found]
            centres = [ahead(f, c, m.score[-2 * dx :]) for f, c, m in zip(before, steps, found, strict=True)]
            around = [
                new(np.concatenate([c[None], c * along]), f.candidates) for c, f in zip(centres, found, strict=True)
            ]
            found = add(found, around)
    if trend and (any(start) or len(y) <= MANY):
        found = add(found, [other_degrees(f.best) for f in found])
    found = [f.top(MOST if len(y) <= MANY else 1) for f in found]
    if variants > 1 or any(a is not b for a, b in zip(first, folds, strict=False)):
        found = score(model, folds, y, [f.candidates for f in found], variants)
    elif rest := folds[len(first) :]:  # the first ones have been scored already
        others = score(model, rest, y, [f.candidates for f in found])
        found = [f.extend(m) for f, m in zip(found, others, strict=True)]
    return [weigh(f, held_out_outputs(folds, y[:, o])) for o, f in enumerate(found)]


def explained_share(folds: Sequence[Fold], y: Float[np.ndarray, " n"]) -> float:
    """The fraction of the variance that a quadratic trend explains, on average over folds."""
    shares = [explained(tensor(fold.xc), tensor(y[fold.context])) for fold in folds]
    return float(np.mean(shares))


def other_degrees(candidate: Float[np.ndarray, " p"]) -> Float[np.ndarray, "2 p"]:
    """The candidate with the other degrees of a trend."""
    return np.array([[*candidate[:-1], degree] for degree in range(3) if degree != candidate[-1]])


def outwards(found: _Scored) -> int:
    """1 if the best common factor is the largest, -1 if it is the smallest, else 0."""
    best, known = found.best[0], found.candidates[:, 0]
    return int(best == known.max()) - int(best == known.min())


def ahead(found: _Scored, steps: Float[np.ndarray, "t p"], scores: Float[Tensor, " t"]) -> Float[np.ndarray, " p"]:
    """The best candidate with those steps along single inputs taken together that improve on it.

    Args:
        steps, scores: the best candidate with a step up along each input, then with a step down, and their scores.
    """
    centre, dx = found.best.copy(), len(found.best) - 1
    for j in range(dx):
        i = max((j, j + dx), key=lambda i: float(scores[i]))
        if scores[i] > found.score.max():
            centre[j] = steps[i, j]
    return centre


def new(candidates: Float[np.ndarray, "s p"], known: Float[np.ndarray, "t p"]) -> Float[np.ndarray, "r p"]:
    """Candidates that are not known yet, at least one."""
    fresh = [c for c in candidates if not np.isclose(known, c, rtol=1e-6).all(1).any()]
    return np.array(fresh) if fresh else candidates[:1] * ([1.01] * (candidates.shape[1] - 1) + [1])


def held_out_outputs(folds: Sequence[Fold], y: Float[np.ndarray, " n"]) -> Float[Tensor, " h"]:
    """Outputs of the held-out observations, fold after fold."""
    return tensor(np.concatenate([y[fold.held_out] for fold in folds]))


def score(
    model: NeuralProcess,
    folds: Sequence[Fold],
    y: Float[np.ndarray, "n k"],
    candidates: Sequence[Float[np.ndarray, "_ p"]],
    variants: int = 1,
) -> list[_Scored]:
    """Predicts all held-out observations with all candidates of every output, in one batch of rows, one for each
    output, candidate and fold."""
    nc, nt = max(len(f.context) for f in folds), max(len(f.held_out) for f in folds)
    xc, xt = np.zeros((len(folds), nc, model.dx)), np.zeros((len(folds), nt, model.dx))
    yc = np.full((y.shape[1], len(folds), nc), np.nan)
    there = np.zeros((len(folds), nt), bool)
    for i, fold in enumerate(folds):
        xc[i, : len(fold.xc)], xt[i, : len(fold.xt)] = fold.xc, fold.xt
        yc[:, i, : len(fold.context)], there[i, : len(fold.xt)] = y[fold.context].T, True
    rows = [(o, c) for o, some in enumerate(candidates) for c in some]
    factor = tensor(np.array([c[:-1] for _, c in rows]))[:, None, None]
    degree = torch.tensor([int(c[-1]) for _, c in rows])
    output = torch.tensor([o for o, _ in rows])
    floors = tensor(np.array([FLOOR * spread(y[:, o]) for o in range(y.shape[1])]))
    prediction = predict_rows(
        model,
        (tensor(xc) * factor).flatten(0, 1),
        tensor(yc)[output].flatten(0, 1),
        (tensor(xt) * factor).flatten(0, 1),
        floors[output].repeat_interleave(len(folds)),
        variants,
        degree.repeat_interleave(len(folds)),
    )
    present = torch.from_numpy(there)
    each = Mixture(*(part.unflatten(0, (len(rows), len(folds)))[:, present] for part in prediction))  # [rows, h, c]
    result = []
    for o, some in enumerate(candidates):
        mine = Mixture(*(part[output == o] for part in each))
        truth = held_out_outputs(folds, y[:, o])
        density = mine.log_prob(truth.nan_to_num().expand(len(some), -1))
        result.append(_Scored(some, mine, density.where(~truth.isnan(), 0.0).sum(-1)))
    return result


def spread(y: Float[np.ndarray, " n"]) -> float:
    """Standard deviation of the outputs that are there; 0 if there are none."""
    there = y[~np.isnan(y)]
    return float(there.std()) if len(there) else 0.0


def weigh(found: _Scored, y: Float[Tensor, " h"]) -> Scales:
    """Weights of the candidates, without those that hardly matter, and their joint prediction of held-out outputs."""
    weights = torch.softmax(found.score / TEMPERATURE, 0)
    order = weights.argsort(descending=True, stable=True)
    order = order[weights[order] >= LEAST]
    weights = weights[order] / weights[order].sum()
    parts = Mixture(*(part[order].transpose(0, 1) for part in found.prediction))  # [h, s, c]
    there = ~y.isnan()
    joint = combine(parts, weights.expand(len(y), -1))
    kept = found.candidates[order.numpy()]
    held_out = Mixture(*(part[there] for part in joint))
    return Scales(kept[:, :-1], weights, kept[:, -1].astype(int), held_out=held_out, y=y[there])
