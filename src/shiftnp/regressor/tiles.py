"""Which observations a prediction uses: all of them, or with many observations the nearest ones.

A few anchors are spread over the data. Each has as context the observations nearest to it; along a periodic input,
their nearest images and, around half a turn away, the images on both sides. A target is predicted from the anchors near
it, with weights that change continuously and vanish where an anchor enters or leaves. Predictions are hence continuous,
also across the seam of a periodic input, and each depends on its own target only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Float, Int

from shiftnp.regressor.box import wrap

SECTORS = 4
"""Anchors around a periodic input, at least."""
SHARE = 2
"""With more observations than a context has room for, an anchor for each such part of a context."""
BLEND = 0.5
"""An anchor has an influence up to this fraction beyond the distance of the nearest one."""
CHUNK, DISTANCES = 4096, 1 << 22
"""Targets, and distances between targets and anchors, that are in memory at once."""


@dataclass(frozen=True, eq=False)
class Tiles:
    """Anchors and their contexts.

    Args:
        u: coordinates of the observations.
        metric: factor of each coordinate in distances.
        period: period of each coordinate; infinite: none.
        most: number of observations in a context, at most.
        anchors: coordinates of the anchors.
    """

    u: Float[np.ndarray, "n dx"]
    metric: Float[np.ndarray, " dx"]
    period: Float[np.ndarray, " dx"]
    most: int
    anchors: Float[np.ndarray, "a dx"]

    @staticmethod
    def make(
        u: Float[np.ndarray, "n dx"],
        metric: Float[np.ndarray, " dx"],
        period: Float[np.ndarray, " dx"],
        most: int,
    ) -> Tiles:
        """One anchor in the centre if a single context has room for all observations, else one for each of the groups
        into which the data are split, along the longer side and in the middle, again and again."""
        v, turn, leaf = u * metric, period * metric, most // SHARE
        periodic = np.flatnonzero(np.isfinite(turn))
        anchors = []
        for sector in product(range(SECTORS), repeat=len(periodic)):
            middle = np.zeros(u.shape[1])
            middle[periodic] = ((np.array(sector) + 0.5) / SECTORS - 0.5) * turn[periodic]
            if len(u) <= most:
                anchors.append(middle)
                continue
            off = np.abs(wrap(v - middle, turn))[:, periodic]
            members = np.flatnonzero((off <= turn[periodic] / SECTORS / 2).all(1))
            if len(members) <= leaf:  # in the middle of the sector, so that anchors surround the circle
                centre = v[members].mean(0) if len(members) else v.mean(0)
                centre[periodic] = middle[periodic]
                anchors.append(centre)
            else:
                anchors += [v[rows].mean(0) for rows in split(v, members, -(-len(members) // leaf))]
        return Tiles(u, metric, period, most, np.array(anchors) / metric)

    def context(self, anchor: int) -> tuple[Int[np.ndarray, " c"], Float[np.ndarray, "c dx"]]:
        """Indices of the observations in the context of an anchor, in ascending order, and their coordinates relative
        to it. Images of one observation have the same index."""
        rows, d = np.arange(len(self.u)), wrap(self.u - self.anchors[anchor], self.period)
        for j in np.flatnonzero(np.isfinite(self.period)):
            p = self.period[j]
            far = np.abs(d[:, j]) > p / 4  # these are also within 3/4 of a turn on the other side
            other = d[far].copy()
            other[:, j] -= np.copysign(p, other[:, j])
            rows, d = np.concatenate([rows, rows[far]]), np.concatenate([d, other])
        if len(rows) > self.most:
            near = np.argpartition(((d * self.metric) ** 2).sum(1), self.most - 1)[: self.most]
            rows, d = rows[near], d[near]
        order = np.argsort(rows, kind="stable")
        return rows[order], d[order]

    def nearby(self, anchor: int, count: int) -> Int[np.ndarray, " c"]:
        """Indices of the observations nearest to an anchor, in ascending order."""
        d = self.relative(anchor, self.u) * self.metric
        return np.sort(np.argpartition((d**2).sum(1), count - 1)[:count])

    def relative(self, anchor: int, u: Float[np.ndarray, "m dx"]) -> Float[np.ndarray, "m dx"]:
        """Coordinates of targets relative to an anchor."""
        return wrap(u - self.anchors[anchor], self.period)

    def distances(self, u: Float[np.ndarray, "m dx"]) -> Float[np.ndarray, "m a"]:
        """Distances between targets and anchors."""
        squared = np.zeros((len(u), len(self.anchors)))
        for j in range(u.shape[1]):
            d = wrap((u[:, None, j] - self.anchors[None, :, j])[..., None], self.period[j : j + 1])[..., 0]
            squared += (d * self.metric[j]) ** 2
        return np.sqrt(squared)

    def nearest(self, u: Float[np.ndarray, "m dx"]) -> Int[np.ndarray, " m"]:
        """The nearest anchor of each target."""
        if len(self.anchors) == 1:
            return np.zeros(len(u), int)
        parts = [self.distances(u[i : i + self.chunk]).argmin(1) for i in range(0, len(u), self.chunk)]
        return np.concatenate(parts) if parts else np.zeros(0, int)

    def weights(self, u: Float[np.ndarray, "m dx"]) -> Float[np.ndarray, "m a"]:
        """Weights of the anchors at each target: continuous, zero for most, with sum one."""
        if len(self.anchors) == 1:
            return np.ones((len(u), 1))
        d = self.distances(u)
        first = d.min(1, keepdims=True)
        reach = BLEND * np.minimum(first, self.spacing)  # the bound matters far outside of the data
        w = np.maximum(first + reach - d, 0.0)
        w[np.arange(len(u)), d.argmin(1)] += 1e-12 * self.spacing  # at an anchor itself all others are zero
        return w / w.sum(1, keepdims=True)

    @cached_property
    def spacing(self) -> float:
        """Typical distance between neighbouring anchors, from some of them if they are many."""
        some = np.arange(0, len(self.anchors), -(-len(self.anchors) // 512))
        d = self.distances(self.anchors[some])
        d[np.arange(len(some)), some] = np.inf
        return float(np.median(d.min(1)))

    @property
    def chunk(self) -> int:
        """Number of targets whose distances to all anchors fit into memory."""
        return max(64, min(CHUNK, DISTANCES // len(self.anchors)))


def split(v: Float[np.ndarray, "n dx"], rows: Int[np.ndarray, " m"], parts: int) -> list[Int[np.ndarray, " k"]]:
    """Rows in `parts` groups of nearly equal size, neighbours together."""
    if parts == 1:
        return [rows]
    widest = int(np.ptp(v[rows], axis=0).argmax())
    rows = rows[np.argsort(v[rows, widest], kind="stable")]
    left = parts // 2
    cut = len(rows) * left // parts
    return split(v, rows[:cut], left) + split(v, rows[cut:], parts - left)
