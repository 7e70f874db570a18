"""Stations: places that are observed again and again. A model that is trained on a few of them recognises each by the
others around it, and is overconfident at all other places."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float, Int

REPEATED = 5
"""Mean number of observations of a place, in different groups, from which on places count as fixed."""
MANY = 2000
"""Number of places that are too many to be remembered."""


def spacing(x: Float[np.ndarray, "n dx"], station: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n dx"]:
    """Distance of each row's station to the nearest other one, along the inputs in which stations do not move; zero
    along the others, such as time."""
    found, first, code, count = np.unique(station, return_index=True, return_inverse=True, return_counts=True)
    code = code.reshape(-1)
    range_of = np.ptp(x, axis=0) if len(x) else np.zeros(x.shape[1])
    fixed = (np.abs(x - x[first][code]) <= 1e-3 * range_of).all(0) & (range_of > 0)
    if len(found) < 2 or count.max() == 1 or not fixed.any():
        return np.zeros_like(x)
    places = x[first][:, fixed]
    near = np.zeros(len(found))
    for i, place in enumerate(places):
        d = ((places - place) ** 2).sum(1)
        near[i] = np.sqrt(d[d > 0].min(initial=np.inf))
    near = np.where(np.isfinite(near), near, 0.0)
    return near[code][:, None] * fixed


def warn_of_fixed_places(x: Float[np.ndarray, "n dx"], where: str) -> None:
    """Warns if the rows of many groups are at few places.

    Args:
        where: name of the table.
    """
    places = len(np.unique(x, axis=0))
    if places <= MANY and len(x) >= REPEATED * places:
        warnings.warn(
            f"{where} has {len(x)} training rows at only {places} places, which a model learns by heart: its intervals "
            "will be too narrow elsewhere. Name the column of the stations by `station` (task.station=COLUMN), so that "
            "they are dropped and jittered in training and scored at new places.",
            stacklevel=4,
        )
