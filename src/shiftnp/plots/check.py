"""Plots of a cross-validation: scores of several methods, PIT histograms and coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shiftnp.plots.style import COLOURS, OTHERS, literal

BINS = 10
LOOKS = ((COLOURS["te-tnp"], "o"), (OTHERS[1], "s"))
"""Colour and marker of each cross-validation."""
Values = tuple[float, float]
"""A score and its standard error."""


def draw_check(
    scores: Mapping[str, Mapping[str, Values]], pits: Mapping[str, Float[np.ndarray, " n"]], unit: str
) -> Figure:
    """CRPS of all methods, and PIT histograms and coverage of the pretrained model.

    Args:
        scores: CRPS by cross-validation and method.
        pits: PIT of the held-out observations by cross-validation.
        unit: the output and its unit.
    """
    figure = Figure(figsize=(11.5, 3.6), layout="constrained")
    axes = figure.subplots(1, 2 + len(pits), width_ratios=[1.5] + [1.0] * (len(pits) + 1))
    _draw_scores(axes[0], scores, unit)
    for ax, (name, pit) in zip(axes[1:], pits.items(), strict=False):
        _draw_pit(ax, pit, name)
    _draw_coverage(axes[-1], pits)
    return literal(figure)


def draw_scores(scores: Mapping[str, Mapping[str, Values]], unit: str) -> Figure:
    """CRPS of all methods in each cross-validation."""
    methods = next(iter(scores.values()))
    figure = Figure(figsize=(5.2, 1.6 + 0.4 * len(methods)), layout="constrained")
    _draw_scores(figure.subplots(), scores, unit)
    return literal(figure)


def draw_pits(pits: Mapping[str, Float[np.ndarray, " n"]]) -> Figure:
    """PIT histograms, one below the other."""
    figure = Figure(figsize=(5.2, 2.6 * len(pits)), layout="constrained")
    for ax, (name, pit) in zip(figure.subplots(len(pits), 1, squeeze=False)[:, 0], pits.items(), strict=True):
        _draw_pit(ax, pit, name)
    return literal(figure)


def draw_coverage(pits: Mapping[str, Float[np.ndarray, " n"]]) -> Figure:
    """Coverage of central intervals against their probability."""
    figure = Figure(figsize=(5.2, 4.2), layout="constrained")
    _draw_coverage(figure.subplots(), pits)
    return literal(figure)


def _draw_scores(ax: Axes, scores: Mapping[str, Mapping[str, Values]], unit: str) -> None:
    names: Sequence[str] = list(next(iter(scores.values())))
    for k, ((name, values), (colour, marker)) in enumerate(zip(scores.items(), LOOKS, strict=False)):
        for i, method in enumerate(names):
            value, error = values[method]
            y = i + 0.24 * (k - 0.5 * (len(scores) - 1))
            label = name if i == 0 else None
            ax.errorbar(value, y, xerr=error, fmt=marker, color=colour, markersize=5, label=label)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set(xlabel=f"CRPS of {unit} (smaller is better)")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(fontsize="small")


def _draw_pit(ax: Axes, pit: Float[np.ndarray, " n"], title: str) -> None:
    """A histogram, flat if predictions are calibrated; grey: where 95 % of the bars would then be."""
    counts, edges = np.histogram(pit, BINS, (0, 1))
    expected = len(pit) / BINS
    spread = 1.96 * (expected * (1 - 1 / BINS)) ** 0.5
    ax.axhspan(max(expected - spread, 0), expected + spread, color="0.88", zorder=0)
    ax.bar(edges[:-1], counts, np.diff(edges), align="edge", color=LOOKS[0][0], edgecolor="white")
    ax.axhline(expected, color="0.4", linewidth=1)
    ax.set(title=f"PIT, {title}", xlabel="probability of a smaller value", ylabel="observations", xlim=(0, 1))
    ax.title.set_fontsize("medium")


def _draw_coverage(ax: Axes, pits: Mapping[str, Float[np.ndarray, " n"]]) -> None:
    levels = np.linspace(0, 1, 101)
    ax.plot([0, 100], [0, 100], color="0.6", linewidth=1)
    for (name, pit), (colour, _) in zip(pits.items(), LOOKS, strict=False):
        inside = [100 * float((np.abs(pit - 0.5) <= level / 2).mean()) for level in levels]
        ax.plot(100 * levels, inside, color=colour, label=name)
    ax.set(xlabel="nominal coverage (%)", ylabel="achieved coverage (%)", xlim=(0, 100), ylim=(0, 100))
    ax.set_aspect("equal")
    ax.grid(alpha=0.3)
    ax.legend(fontsize="small")
