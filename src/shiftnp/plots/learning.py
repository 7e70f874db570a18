"""Learning curves: scores on the validation set, against steps and against time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from shiftnp.plots.scores import legend
from shiftnp.plots.style import Style, literal

UNITS = ((2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


class Curve(NamedTuple):
    """Validation scores of one run. Curves with the same label share an entry of the legend."""

    label: str
    style: Style
    steps: Sequence[int]
    scores: Sequence[float]
    seconds: Sequence[float]
    ceiling: float | None = None

    @staticmethod
    def read(label: str, style: Style, entries: Iterable[Mapping[str, Any]]) -> Curve | None:
        """The curve in the entries of `metrics.jsonl`, the last entry of each step; None without any score.

        Wall-clock time includes whatever paused the run, so `seconds` has the median time of a step, over the intervals
        between validations, times the number of steps.
        """
        found = {int(e["step"]): e for e in entries if e.get("valid") is not None}
        steps = sorted(found)
        if not steps:
            return None
        last = found[steps[-1]]
        ceiling = None if last.get("gap") is None else float(last["valid"]) + float(last["gap"])
        times = {k: float(found[k]["seconds"]) for k in steps if found[k].get("seconds") is not None}
        paces = [(t - s) / (k - j) for (j, s), (k, t) in pairwise(({0: 0.0} | times).items())]
        pace = median(paces) if paces else math.nan
        scores = [float(found[k]["valid"]) for k in steps]
        return Curve(label, style, steps, scores, [k * pace for k in steps], ceiling)


def draw_learning(curves: Sequence[Curve], ylabel: str) -> Figure:
    """All curves against steps (left) and against training time (right)."""
    figure = Figure(figsize=(10.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    longest = max((s for c in curves for s in c.seconds if math.isfinite(s)), default=0.0)
    _, second, unit = next(u for u in UNITS if longest >= u[0])
    for curve in curves:
        colour, line, marker, fill = curve.style
        dots = {"marker": marker, "markersize": 4, "markerfacecolor": fill} if len(curve.steps) < 25 else {}
        look: dict[str, Any] = {"color": colour, "linestyle": line, "label": curve.label, "linewidth": 1.5, **dots}
        left.plot(curve.steps, curve.scores, **look)
        right.plot([s / second for s in curve.seconds], curve.scores, **look)
    ceilings = [c.ceiling for c in curves if c.ceiling is not None]
    for ax in (left, right):
        if ceilings and max(ceilings) - min(ceilings) < 1e-3:  # else they were validated on different tasks
            ax.axhline(ceilings[0], color="0.5", linewidth=3, alpha=0.6, zorder=1, label="best possible")
        ax.grid(alpha=0.3)
        ax.set_xlim(left=-0.03 * ax.get_xlim()[1])  # the first point is at zero
    left.set(xlabel="step", ylabel=ylabel)
    right.set(xlabel=f"training time ({unit})")
    _limit_to_later_half(left, curves, ceilings)
    legend(figure, [left])
    return literal(figure)


def _limit_to_later_half(ax: Any, curves: Sequence[Curve], ceilings: Sequence[float]) -> None:
    """Limits the y axis to the later half of every curve, since first scores are often far below."""
    later = [s for c in curves for s in c.scores[len(c.scores) // 2 :] if math.isfinite(s)]
    if not later:
        return
    low, high = min(later), max(later + list(ceilings) + [s for c in curves for s in c.scores if math.isfinite(s)])
    edge = 0.08 * (high - low) or 0.1
    ax.set_ylim(low - 4 * edge, high + edge)
