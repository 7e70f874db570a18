"""Plots of the scores of several models: over a sweep of test sets, per test set, or by number of context points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shiftnp.plots.style import Style, literal

DEPTH = 5  # nats below the best; worse scores are marked at the edge, as they would compress the scale of the others


class Series(NamedTuple):
    """Scores of one model and their standard errors; NaN for missing ones."""

    label: str
    style: Style
    values: Sequence[float]
    errors: Sequence[float]


def draw_sweep(
    x: Sequence[float],
    panels: Mapping[str, Sequence[Series]],
    xlabel: str,
    ylabel: str,
    ceiling: Sequence[float] | None = None,
) -> Figure:
    """Scores against a swept parameter, one line per model.

    Args:
        panels: scores by the title of their panel, for instance ours and the paper's.
        ceiling: the best possible score, for the first panel.
    """
    figure = Figure(figsize=(4.4 * len(panels) + 2.0, 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0].tolist()
    for ax, (title, series) in zip(axes, panels.items(), strict=True):
        for one in series:
            _line(ax, x, one)
        ax.set(title=title, xlabel=xlabel, xticks=x)
        ax.grid(alpha=0.3)
    if ceiling is not None:
        axes[0].plot(x, ceiling, color="0.5", linewidth=3, alpha=0.6, zorder=1, label="best possible")
    axes[0].set_ylabel(ylabel)
    limits = _scale([one for series in panels.values() for one in series], ceiling or ())
    axes[0].set_ylim(limits)
    for ax, series in zip(axes, panels.values(), strict=True):
        _mark_outside(ax, x, series, limits)
    legend(figure, axes)
    return literal(figure)


def draw_bins(
    bins: Sequence[str],
    panels: Mapping[str, Sequence[Series]],
    xlabel: str,
    ylabel: str,
    share: bool = True,
    lower_is_better: bool = False,
) -> Figure:
    """Scores against bins, for instance of the number of context points, drawn evenly spaced.

    Args:
        share: whether all panels share one y axis.
    """
    figure = Figure(figsize=(4.4 * len(panels) + 2.0, 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=share, squeeze=False)[0].tolist()
    x = list(range(len(bins)))
    for ax, (title, series) in zip(axes, panels.items(), strict=True):
        for one in series:
            _line(ax, x, one)
        ax.set(title=title, xlabel=xlabel)
        ax.set_xticks(x, bins, rotation=30 if max(map(len, bins), default=0) * len(bins) > 40 else 0)
        ax.set_xlim(-0.5, len(bins) - 0.5)
        ax.grid(alpha=0.3)
        shown = panels.values() if share else [series]
        limits = _scale([one for some in shown for one in some], lower_is_better=lower_is_better)
        ax.set_ylim(limits)
        _mark_outside(ax, x, series, limits)
    axes[0].set_ylabel(ylabel)
    legend(figure, axes)
    return literal(figure)


def draw_dots(
    columns: Sequence[str], ours: Sequence[Series], paper: Sequence[Sequence[float | None]], xlabel: str
) -> Figure:
    """A panel for each test set, a row for each model: our score with its standard error, the paper's as a grey bar.

    A score beyond the limits of the axis is an arrow at its end, with the number.

    Args:
        ours: our scores, with one value for each of `columns`.
        paper: the paper's scores, for each of `ours` and each of `columns`.
    """
    figure = Figure(figsize=(3.2 * len(columns) + 2.2, 0.36 * len(ours) + 1.5), layout="constrained")
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0].tolist()
    for j, (ax, title) in enumerate(zip(axes, columns, strict=True)):
        column = [Series(one.label, one.style, one.values[j : j + 1], one.errors[j : j + 1]) for one in ours]
        limits = _scale(column, [p[j] for p in paper], room=0.35)
        for i, (one, theirs) in enumerate(zip(ours, paper, strict=True)):
            score, printed = one.values[j], theirs[j]
            outside = [v for v in (score, printed) if v is not None and math.isfinite(v) and not _is_within(v, limits)]
            shift = 5 if len(outside) == 2 else 0
            if printed is not None and _is_within(printed, limits):
                ax.plot(printed, i, "|", color="0.55", markersize=13, markeredgewidth=2.5)
            elif printed is not None:
                _arrow(ax, i, printed, "0.45", shift)
            if _is_within(score, limits):
                colour, _, marker, fill = one.style
                ax.errorbar(score, i, xerr=one.errors[j], fmt=marker, color=colour, markerfacecolor=fill)
            elif math.isfinite(score):
                _arrow(ax, i, score, one.style.colour, -shift)
        ax.set(title=title, xlabel=xlabel)
        ax.grid(axis="x", alpha=0.3)
        ax.set_xlim(limits)
    axes[0].set_yticks(range(len(ours)), [one.label for one in ours], parse_math=False)
    axes[0].set_ylim(len(ours) - 0.4, -0.6)
    return literal(figure)


def _line(ax: Axes, x: Sequence[float], one: Series) -> None:
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


Limits = tuple[float, float] | tuple[None, None]


def _scale(
    series: Sequence[Series], others: Sequence[float | None] = (), lower_is_better: bool = False, room: float = 0.15
) -> Limits:
    """Limits of an axis with room for error bars. Scores far worse than the best are outside.

    Args:
        others: more values, without errors.
        room: space for marks of scores outside the limits, as a fraction of the axis.
    """
    pairs = [(float(v), float(e)) for one in series for v, e in zip(one.values, one.errors, strict=True)]
    pairs = [(v, e) for v, e in [*pairs, *((float(v), 0.0) for v in others if v is not None)] if math.isfinite(v)]
    if not pairs:
        return None, None
    values = [v for v, _ in pairs]
    worst, best = (min(values) + DEPTH, min(values)) if lower_is_better else (max(values) - DEPTH, max(values))
    inside = [(v, min(e, DEPTH / 2)) for v, e in pairs if abs(v - best) <= abs(worst - best)]
    low, high = min(v - e for v, e in inside), max(v + e for v, e in inside)
    edge = 0.08 * (high - low) or 0.1
    beyond = room * (high - low) if len(inside) < len(pairs) else 0.0
    return (low - edge, high + edge + beyond) if lower_is_better else (low - edge - beyond, high + edge)


def _is_within(value: float, limits: Limits) -> bool:
    low, high = limits
    return low is not None and high is not None and low <= value <= high


def _arrow(ax: Axes, y: int, value: float, colour: str | tuple[float, float, float], above: int) -> None:
    """An arrow at the left side of a panel, with the score that lies outside."""
    ax.annotate(
        f"{value:.2f}" if abs(value) < 1000 else f"{value:.1e}",
        (0, y),
        (20, above),
        xycoords=ax.get_yaxis_transform(),
        textcoords="offset points",
        va="center",
        fontsize="small",
        color=colour,
        arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 1, "shrinkB": 1},
    )


def _mark_outside(ax: Axes, x: Sequence[float], series: Sequence[Series], limits: Limits) -> None:
    """Triangles at the edge for scores outside the limits, with their numbers, stacked if there are several."""
    low, high = limits
    if low is None or high is None:
        return
    stacked = Counter[tuple[float, bool]]()
    for one in series:
        for position, value in zip(x, one.values, strict=True):
            if math.isfinite(value) and not low <= value <= high:
                below = value < low
                side = 1 if below else -1
                number = stacked[float(position), below]
                stacked[float(position), below] += 1
                at = 0.02 if below else 0.98
                mark = "v" if below else "^"
                ax.plot(position, at, mark, color=one.style.colour, markersize=5, transform=ax.get_xaxis_transform())
                ax.annotate(
                    f"{value:.1f}" if abs(value) < 1000 else f"{value:.1e}",
                    (float(position), at),
                    (0, side * (5 + 9 * number)),
                    xycoords=ax.get_xaxis_transform(),
                    textcoords="offset points",
                    ha="center",
                    va="bottom" if below else "top",
                    fontsize="x-small",
                    color=one.style.colour,
                )


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, beside them."""
    shown = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if shown:
        drawn = figure.legend(
            list(shown.values()), list(shown), loc="outside right upper", fontsize="small", frameon=False
        )
        for text in drawn.get_texts():
            text.set_parse_math(False)  # a `$` in a label is not mathtext
