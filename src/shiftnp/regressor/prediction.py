"""Predictions at any number of targets in bounded memory, from the observations around each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from shiftnp.models import NeuralProcess
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.passes import predict_rows, tensor
from shiftnp.regressor.scales import Scales, spread
from shiftnp.regressor.tiles import CHUNK, Tiles

FLOOR = 0.01
"""Lower bound of the standard deviation of a context of neighbours, as a fraction of that of all data."""


def predict_blocks(
    model: NeuralProcess,
    tiles: Tiles,
    y: Float[np.ndarray, "n k"],
    scales: Sequence[Scales],
    u: Float[np.ndarray, "m dx"],
    variants: int = 1,
) -> Iterator[tuple[Int[np.ndarray, " r"], Mixture]]:
    """Blocks of targets, neighbours together: their indices and predictions `[k, r]`.

    An output without any observation has mean 0 and standard deviation 1.

    Args:
        y: outputs of the observations of `tiles`; NaN where there is none.
        scales: scales of every output.
        u: coordinates of the targets.
        variants: see `predict_rows`.
    """
    order = np.argsort(tiles.nearest(u), kind="stable")
    size = max(64, min(tiles.chunk, 2 * CHUNK // y.shape[1]))
    for i in range(0, len(order), size):
        rows = order[i : i + size]
        yield rows, _predict_block(model, tiles, y, scales, u[rows], variants)


def _predict_block(
    model: NeuralProcess,
    tiles: Tiles,
    y: Float[np.ndarray, "n k"],
    scales: Sequence[Scales],
    u: Float[np.ndarray, "m dx"],
    variants: int,
) -> Mixture:
    outputs, targets = y.shape[1], len(u)
    known = ~np.isnan(y).all(0) if len(y) else np.zeros(outputs, bool)
    rows = [(o, s) for o in range(outputs) for s in range(len(scales[o].factors)) if known[o]]
    if not rows:
        one = torch.ones(outputs, targets, 1, dtype=torch.float64)
        return Mixture(one, torch.zeros_like(one), one)
    factor = tensor(np.array([scales[o].factors[s] for o, s in rows]))[:, None]
    alone = len(tiles.anchors) == 1
    floor = tensor(np.array([0.0 if alone else FLOOR * spread(y[:, o]) for o, _ in rows]))

    weights = tiles.weights(u)
    taken = np.zeros(targets, int)
    slots = int((weights > 0).sum(1).max())
    most = max(len(s.factors) for s in scales)
    result: Mixture | None = None
    for anchor in map(int, np.flatnonzero((weights > 0).any(0))):
        here = np.flatnonzero(weights[:, anchor] > 0)
        context, xc = tiles.context(anchor)
        part = predict_rows(
            model,
            tensor(xc)[None] * factor,
            tensor(np.stack([y[context, o] for o, _ in rows])),
            tensor(tiles.relative(anchor, u[here]))[None] * factor,
            floor,
            variants,
        )
        if result is None:  # padding has weight zero, mean zero and standard deviation one
            shape = (outputs, targets, slots, most, part.weight.shape[-1])
            empty = torch.zeros(shape, dtype=torch.float64)
            result = Mixture(empty, empty.clone(), torch.ones_like(empty))
        at, slot = torch.from_numpy(here), torch.from_numpy(taken[here])
        share = tensor(weights[here, anchor])[:, None]
        for row, (o, s) in enumerate(rows):
            result.weight[o, at, slot, s] = part.weight[row] * share * scales[o].weights[s]
            result.means[o, at, slot, s] = part.means[row]
            result.stds[o, at, slot, s] = part.stds[row]
        taken[here] += 1
    assert result is not None
    result = Mixture(*(part.flatten(2) for part in result))
    result.weight[torch.from_numpy(~known), :, 0] = 1.0
    return result
