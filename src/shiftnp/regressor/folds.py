"""Folds of the cross-validation that chooses scales, trend and spread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from shiftnp.regressor.tiles import Tiles

ENOUGH = 256
"""Number of held-out observations after which no more folds are evaluated."""
PARTS = 4
"""Parts of the observations around an anchor, at least, of which one is held out."""


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
        # With many observations from most of the context, of which the anchor's own are a part.
        members = np.flatnonzero(nearest == anchor) if own else tiles.nearby(int(anchor), 3 * tiles.most // 4)
        places = rng.permutation(np.unique(place[members]))
        for part in np.array_split(places, min(parts, len(places))) if len(places) else []:
            held_out.append((int(anchor), members[np.isin(place[members], part)]))
    folds: list[Fold] = []
    for i in rng.permutation(len(held_out)):
        anchor, rows = held_out[i]
        context, xc = tiles.context(anchor)
        keep = ~np.isin(context, rows)
        folds.append(Fold(context[keep], xc[keep], rows, tiles.relative(anchor, tiles.u[rows])))
        if len(folds) == most or sum(len(f.held_out) for f in folds) >= ENOUGH:
            break
    return folds
