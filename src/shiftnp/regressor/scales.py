"""The search for input scales: what a pretrained model cannot know is how fast the function varies along each input.

Candidate factors of the coordinates are scored by the cross-validated log-likelihood, all folds and candidates in a few
batched passes: first common factors, then factors of each input around the best. These passes hold out some of the
observations; the best candidates are then scored on the other folds as well and weighted by their likelihood, and
predictions are the mixture of those that matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.models import NeuralProcess
from shiftnp.regressor.mixture import Mixture, combine
from shiftnp.regressor.passes import predict_rows, tensor
from shiftnp.regressor.tiles import Tiles

ENOUGH = 256
"""Number of held-out observations after which no more folds are evaluated; twice as many if they surround several
anchors, which may differ."""
FEW, THIN = 64, 256
"""Number of held-out observations on which all candidates are compared, at least (twice as many with more than `MANY`
observations), and of those to predict from, at most."""
PARTS = 4
"""Parts of the observations around an anchor, at least, of which one is held out."""
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


class Fold(NamedTuple):
    """Observations to predict from and held-out ones, with coordinates relative to an anchor."""

    context: Int[np.ndarray, " c"]
    xc: Float[np.ndarray, "c dx"]
    held_out: Int[np.ndarray, " h"]
    xt: Float[np.ndarray, "h dx"]

    def thin(self, most: int) -> Fold:
        """The fold with at most so many observations to predict from, a random choice."""
        if len(self.context) <= most:
            return self
        keep = np.sort(np.random.default_rng(0).permutation(len(self.context))[:most])
        return self._replace(context=self.context[keep], xc=self.xc[keep])


def make_folds(tiles: Tiles, parts: int, rng: np.random.Generator) -> list[Fold]:
    """Folds of the observations around each anchor, in random order, until enough are held out.

    Observations at one place are held out together. None if there are fewer than two places.
    """
    n = len(tiles.u)
    place = np.unique(tiles.u, axis=0, return_inverse=True)[1].reshape(-1) if n else np.zeros(0, int)
    if place.size == 0 or place.max() == 0:
        return []
    anchors, nearest, own = len(tiles.anchors), tiles.nearest(tiles.u), n <= tiles.most
    most = parts if own and anchors > 1 else n
    parts = parts if anchors == 1 else max(PARTS, -(-parts // anchors))
    held_out = []
    for anchor in rng.permutation(anchors)[: -(-ENOUGH // PARTS)]:
        # With many observations from half of the context, of which the anchor's own are a quarter.
        members = np.flatnonzero(nearest == anchor) if own else tiles.nearby(int(anchor), tiles.most // 2)
        places = rng.permutation(np.unique(place[members]))
        for part in np.array_split(places, min(parts, len(places))) if len(places) else []:
            held_out.append((int(anchor), members[np.isin(place[members], part)]))
    folds: list[Fold] = []
    for i in rng.permutation(len(held_out)):
        anchor, rows = held_out[i]
        context, xc = tiles.context(anchor)
        keep = ~np.isin(context, rows)
        folds.append(Fold(context[keep], xc[keep], rows, tiles.relative(anchor, tiles.u[rows])))
        if len(folds) == most or sum(len(f.held_out) for f in folds) >= (ENOUGH if own else 2 * ENOUGH):
            break
    return folds


@dataclass
class Scales:
    """Candidates of one output: factors, predictions of the held-out observations, and weights."""

    factors: Float[np.ndarray, "s dx"]
    weights: Float[Tensor, " s"]
    held_out: Mixture | None = field(default=None, repr=False)  # [h], of the weighted candidates
    y: Float[Tensor, " h"] | None = field(default=None, repr=False)

    def plain(self) -> Scales:
        """Factors and weights alone."""
        return Scales(self.factors, self.weights)

    @property
    def typical(self) -> Float[np.ndarray, " dx"]:
        """Weighted geometric mean of the factors."""
        return np.exp((self.weights.numpy()[:, None] * np.log(self.factors)).sum(0))


class _Scored(NamedTuple):
    """Scored candidates of one output, with predictions `[s, h]` of all held-out observations."""

    factors: Float[np.ndarray, "s dx"]
    prediction: Mixture
    score: Float[Tensor, " s"]

    def join(self, other: _Scored) -> _Scored:
        """These candidates and others, scored on the same observations."""
        prediction = Mixture(*(torch.cat(pair) for pair in zip(self.prediction, other.prediction, strict=True)))
        return _Scored(np.concatenate([self.factors, other.factors]), prediction, torch.cat([self.score, other.score]))

    def extend(self, other: _Scored) -> _Scored:
        """The same candidates, scored on further observations as well."""
        prediction = Mixture(*(torch.cat(pair, 1) for pair in zip(self.prediction, other.prediction, strict=True)))
        return _Scored(self.factors, prediction, self.score + other.score)

    def top(self, n: int) -> _Scored:
        """The `n` best candidates."""
        order = self.score.argsort(descending=True, stable=True)[:n]
        return _Scored(self.factors[order.numpy()], Mixture(*(p[order] for p in self.prediction)), self.score[order])

    @property
    def best(self) -> Float[np.ndarray, " dx"]:
        return self.factors[int(self.score.argmax())]


def search(
    model: NeuralProcess,
    folds: Sequence[Fold],
    y: Float[np.ndarray, "n k"],
    factors: Float[np.ndarray, " s"],
    variants: int = 1,
) -> list[Scales]:
    """Scores candidates for each output and weights them.

    Args:
        y: outputs; NaN where an observation has none.
        factors: common factors of all inputs to try first, in ascending order.
        variants: variants of each data set in the scores of the best candidates, see `predict_rows`.
    """
    dx, outputs = model.dx, y.shape[1]
    common = np.repeat(factors[:, None], dx, axis=1)
    if not folds:
        return [Scales(common[[len(common) // 2]], torch.ones(1, dtype=torch.float64)) for _ in range(outputs)]
    held_out = np.cumsum([len(fold.held_out) for fold in folds])
    few = FEW if len(y) <= MANY else 2 * FEW
    first = [fold.thin(THIN) for fold in folds[: int((held_out < few).sum()) + 1]]

    def add(found: list[_Scored], candidates: list[Float[np.ndarray, "_ dx"]]) -> list[_Scored]:
        return [f.join(m) for f, m in zip(found, score(model, first, y, candidates), strict=True)]

    found = score(model, first, y, [common] * outputs)
    if len(factors) > 1:
        ways = [outwards(f) for f in found]
        if any(ways):
            steps = STEP ** np.arange(1, 4)[:, None] * np.ones(dx)
            found = add(found, [f.best * (steps**w if w else steps[:0]) for f, w in zip(found, ways, strict=True)])
        along = STEP ** np.concatenate([np.eye(dx), -np.eye(dx)])
        if dx == 1:
            found = add(found, [f.best * along**0.5 for f in found])
        else:
            before = found
            found = add(found, [f.best * along**2 for f in found])
            centres = [ahead(f, m.factors[-2 * dx :], m.score[-2 * dx :]) for f, m in zip(before, found, strict=True)]
            around = [new(np.concatenate([c[None], c * along]), f.factors) for c, f in zip(centres, found, strict=True)]
            found = add(found, around)
    found = [f.top(MOST) for f in found]
    if variants > 1 or any(a is not b for a, b in zip(first, folds, strict=False)):
        found = score(model, folds, y, [f.factors for f in found], variants)
    elif rest := folds[len(first) :]:  # the first ones have been scored already
        others = score(model, rest, y, [f.factors for f in found])
        found = [f.extend(m) for f, m in zip(found, others, strict=True)]
    if len(y) > MANY:
        found = [f.top(1) for f in found]
    return [weigh(f, held_out_outputs(folds, y[:, o])) for o, f in enumerate(found)]


def outwards(found: _Scored) -> int:
    """1 if the best common factor is the largest, -1 if it is the smallest, else 0."""
    best, known = found.best[0], found.factors[:, 0]
    return int(best == known.max()) - int(best == known.min())


def ahead(found: _Scored, steps: Float[np.ndarray, "t dx"], scores: Float[Tensor, " t"]) -> Float[np.ndarray, " dx"]:
    """The best candidate with those steps along single inputs taken together that improve on it.

    Args:
        steps, scores: the best candidate with a step up along each input, then with a step down, and their scores.
    """
    centre, dx = found.best.copy(), len(found.best)
    for j in range(dx):
        i = max((j, j + dx), key=lambda i: float(scores[i]))
        if scores[i] > found.score.max():
            centre[j] = steps[i, j]
    return centre


def new(candidates: Float[np.ndarray, "s dx"], known: Float[np.ndarray, "t dx"]) -> Float[np.ndarray, "r dx"]:
    """Candidates that are not known yet, at least one."""
    fresh = [c for c in candidates if not np.isclose(known, c, rtol=1e-6).all(1).any()]
    return np.array(fresh) if fresh else candidates[:1] * 1.01


def held_out_outputs(folds: Sequence[Fold], y: Float[np.ndarray, " n"]) -> Float[Tensor, " h"]:
    """Outputs of the held-out observations, fold after fold."""
    return tensor(np.concatenate([y[fold.held_out] for fold in folds]))


def score(
    model: NeuralProcess,
    folds: Sequence[Fold],
    y: Float[np.ndarray, "n k"],
    candidates: Sequence[Float[np.ndarray, "_ dx"]],
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
    factor = tensor(np.array([c for _, c in rows]))[:, None, None]
    output = torch.tensor([o for o, _ in rows])
    floors = tensor(np.array([FLOOR * spread(y[:, o]) for o in range(y.shape[1])]))
    prediction = predict_rows(
        model,
        (tensor(xc) * factor).flatten(0, 1),
        tensor(yc)[output].flatten(0, 1),
        (tensor(xt) * factor).flatten(0, 1),
        floors[output].repeat_interleave(len(folds)),
        variants,
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
    return Scales(found.factors[order.numpy()], weights, Mixture(*(part[there] for part in joint)), y[there])
