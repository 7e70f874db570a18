"""Calibration plots: coverage of central intervals against nominal coverage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from shiftnp.metrics import COVERAGE
from shiftnp.plots.scores import Series, legend
from shiftnp.plots.style import literal


def draw_calibration(panels: Mapping[str, Sequence[Series]]) -> Figure:
    """Coverage minus nominal coverage, in percentage points, for each model and each interval of `COVERAGE`.

    Args:
        panels: coverage of the intervals of `COVERAGE`, in per cent, for each test set.
    """
    nominal = [100 * level for level in COVERAGE.values()]
    figure = Figure(figsize=(4.0 * len(panels) + 2.0, 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0].tolist()
    for ax, (title, series) in zip(axes, panels.items(), strict=True):
        ax.axhline(0, color="0.5", linewidth=1)
        for i, one in enumerate(series):
            if not any(math.isfinite(v) for v in one.values):
                continue
            shift = 0.7 * ((i + 0.5) / len(series) - 0.5)
            colour, _, marker, fill = one.style
            ax.errorbar(
                [j + shift for j in range(len(nominal))],
                [value - level for value, level in zip(one.values, nominal, strict=True)],
                yerr=one.errors,
                fmt=marker,
                color=colour,
                markerfacecolor=fill,
                markersize=5,
                label=one.label,
            )
        for between in range(1, len(nominal)):
            ax.axvline(between - 0.5, color="0.9", linewidth=1)
        ax.set_xticks(range(len(nominal)), [f"{name} %" for name in COVERAGE])
        ax.set(title=title, xlabel="nominal coverage", xlim=(-0.5, len(nominal) - 0.5))
        ax.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("achieved - nominal\n(percentage points)")
    legend(figure, axes)
    return literal(figure)
