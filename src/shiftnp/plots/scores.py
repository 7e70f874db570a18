"""Scores of several models: along a sweep of test sets, side by side, or by the number of context points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shiftnp.plots.style import Style
from shiftnp.typing import Real

DEPTH = 5  # nats below the best; what is worse has failed, and would flatten all others


class Series(NamedTuple):
    """Scores of one model, and their standard errors; NaN where there is none."""

    label: str
    style: Style
    values: Sequence[Real]
    errors: Sequence[Real]


def draw_sweep(
    x: Sequence[Real],
    panels: Mapping[str, Sequence[Series]],
    xlabel: str,
    ylabel: str,
    ceiling: Sequence[Real] | None = None,
) -> Figure:
    """Scores against what is swept over, one line a model, one panel for whose scores they are.

    Args:
        ceiling: what can be reached, for the first panel.
    """
    figure = Figure(figsize=(4.4 * len(panels) + 2.0, 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0].tolist()
    for ax, (title, series) in zip(axes, panels.items(), strict=True):
        for one in series:
            _line(ax, x, one)
        ax.set(title=title, xlabel=xlabel, xticks=x)
        ax.grid(alpha=0.3)
    if ceiling is not None:
        axes[0].plot(x, ceiling, color="0.5", linewidth=3, alpha=0.6, zorder=1, label="ceiling")
    axes[0].set_ylabel(ylabel)
    every = [v for series in panels.values() for one in series for v in one.values]
    axes[0].set_ylim(_scale([*every, *(ceiling or ())]))
    _legend(figure, axes)
    return figure


def draw_bins(
    bins: Sequence[str],
    panels: Mapping[str, Sequence[Series]],
    xlabel: str,
    ylabel: str,
    share: bool = True,
    lower_is_better: bool = False,
) -> Figure:
    """Scores against bins of even width on paper, for instance of the number of context points.

    Args:
        share: one scale for all panels.
    """
    figure = Figure(figsize=(4.4 * len(panels) + 2.0, 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=share, squeeze=False)[0].tolist()
    x = list(range(len(bins)))
    for ax, (title, series) in zip(axes, panels.items(), strict=True):
        for one in series:
            _line(ax, x, one)
        ax.set(title=title, xlabel=xlabel)
        ax.set_xticks(x, bins, rotation=30 if max(map(len, bins), default=0) * len(bins) > 40 else 0)
        ax.grid(alpha=0.3)
        shown = panels.values() if share else [series]
        ax.set_ylim(_scale([v for some in shown for one in some for v in one.values], lower_is_better))
    axes[0].set_ylabel(ylabel)
    _legend(figure, axes)
    return figure


def draw_dots(
    columns: Sequence[str], ours: Sequence[Series], paper: Sequence[Sequence[Real | None]], xlabel: str
) -> Figure:
    """A panel for each test set, a line for each model: our score with its error, and the paper's as a grey bar.

    Args:
        ours: values for each of `columns`.
        paper: the paper's scores, for each of `ours` and each of `columns`.
    """
    figure = Figure(figsize=(3.2 * len(columns) + 2.2, 0.36 * len(ours) + 1.5), layout="constrained")
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0].tolist()
    for j, (ax, title) in enumerate(zip(axes, columns, strict=True)):
        for i, (one, theirs) in enumerate(zip(ours, paper, strict=True)):
            if theirs[j] is not None:
                ax.plot(theirs[j], i, "|", color="0.55", markersize=13, markeredgewidth=2.5, label="the paper's")
            if math.isfinite(one.values[j]):
                colour, _, marker, fill = one.style
                ax.errorbar(
                    one.values[j], i, xerr=one.errors[j], fmt=marker, color=colour, markerfacecolor=fill, label="ours"
                )
        ax.set(title=title, xlabel=xlabel)
        ax.grid(axis="x", alpha=0.3)
        ax.set_xlim(_scale([*(one.values[j] for one in ours), *(p[j] for p in paper)]))
    axes[0].set_yticks(range(len(ours)), [one.label for one in ours])
    axes[0].set_ylim(len(ours) - 0.4, -0.6)
    return figure


def _line(ax: Axes, x: Sequence[Real], one: Series) -> None:
    if not any(math.isfinite(v) for v in one.values):
        return
    colour, line, marker, fill = one.style
    ax.errorbar(
        x,
        one.values,
        yerr=one.errors,
        color=colour,
        linestyle=line,
        marker=marker,
        markersize=5,
        markerfacecolor=fill,
        linewidth=1.5,
        elinewidth=1,
        label=one.label,
    )


def _scale(values: Sequence[Real | None], lower_is_better: bool = False) -> tuple[float, float] | tuple[None, None]:
    """The ends of an axis. What is far worse than the best is left out of the picture."""
    finite = [float(v) for v in values if v is not None and math.isfinite(v)]
    if not finite:
        return None, None
    low, high = min(finite), max(finite)
    if lower_is_better:
        high = min(high, low + DEPTH)
    else:
        low = max(low, high - DEPTH)
    edge = 0.08 * (high - low) or 0.1
    return low - edge, high + edge


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One for all panels, beside them."""
    shown = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if shown:
        figure.legend(list(shown.values()), list(shown), loc="outside right upper", fontsize="small", frameon=False)
