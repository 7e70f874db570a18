"""Plot styles of the models, the same in all figures of a report. A model without a colour gets one of `OTHERS`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

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
OTHERS = ("navy", "goldenrod", "darkgreen", "crimson", "saddlebrown", "black")
"""Colours of models that are not in `COLOURS`, in the order in which they appear."""
MARKERS = "osD^vP"


class Style(NamedTuple):
    """Plot style of a model. Equivariant models have solid lines and filled markers, others dashed lines and open
    markers."""

    colour: tuple[float, float, float]
    line: str = "-"
    marker: str = "o"
    fill: tuple[float, float, float] = (1.0, 1.0, 1.0)


BLACK = Style((0.0, 0.0, 0.0))


def styles(models: Sequence[str]) -> list[Style]:
    """A style for each of these model names. Repeated names have different markers and the same hue, increasingly
    lighter; if there is one name only, each has a hue of its own."""
    from shiftnp.models import MODELS

    total, seen = Counter(models), Counter[str]()
    unknown = [name for name in total if name not in COLOURS]
    hues = COLOURS | {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(unknown)}
    found = []
    for model in models:
        if len(total) == 1 and seen[model]:
            colour, light = to_rgb(OTHERS[(seen[model] - (model in COLOURS)) % len(OTHERS)]), 0.0
        else:
            colour, light = to_rgb(hues[model]), 0.6 * seen[model] / max(total[model] - 1, 1)
        red, green, blue = (c + (1 - c) * light for c in colour)
        colour, marker = (red, green, blue), MARKERS[seen[model] % len(MARKERS)]
        equivariant = model in MODELS and MODELS[model].is_equivariant
        found.append(Style(colour, "-", marker, colour) if equivariant else Style(colour, "--", marker))
        seen[model] += 1
    return found


def literal(figure: Figure) -> Figure:
    """The figure with mathtext turned off, since `$` in a user's label or column name is not a formula."""
    for text in figure.findobj(Text):
        if isinstance(text, Text):
            text.set_parse_math(False)
    return figure
