"""One look for a model in all pictures of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.colors import to_rgb

from shiftnp.models import MODELS

COLOURS = {
    "cnp": "tab:brown",
    "rcnp": "tab:olive",
    "convcnp": "tab:green",
    "anp": "tab:pink",
    "tnp": "tab:orange",
    "pt-tnp": "tab:red",
    "te-tnp": "tab:blue",
    "te-pt-tnp": "#0a9bb0",  # not the purple of the truth
    "gp": "0.35",
    "multi-task-gp": "0.35",
}
MARKERS = "osD^vP"


class Style(NamedTuple):
    """Equivariant models have solid lines and filled markers, others dashed lines and open ones."""

    colour: tuple[float, float, float]
    line: str = "-"
    marker: str = "o"
    fill: tuple[float, float, float] = (1.0, 1.0, 1.0)


BLACK = Style((0.0, 0.0, 0.0))


def styles(models: Sequence[str]) -> list[Style]:
    """A style for each of these models; those of one name have the same hue, ever lighter."""
    total, seen = Counter(models), Counter[str]()
    found = []
    for model in models:
        light = 0.5 * seen[model] / max(total[model] - 1, 1)
        red, green, blue = (c + (1 - c) * light for c in to_rgb(COLOURS.get(model, "black")))
        colour, marker = (red, green, blue), MARKERS[seen[model] % len(MARKERS)]
        equivariant = model in MODELS and MODELS[model].is_equivariant
        found.append(Style(colour, "-", marker, colour) if equivariant else Style(colour, "--", marker))
        seen[model] += 1
    return found
