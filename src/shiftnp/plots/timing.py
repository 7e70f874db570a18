"""Bar chart of the training times of models, relative to one of them."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from shiftnp.plots.style import literal


def draw_times(ratios: Mapping[str, tuple[float | None, float | None]], xlabel: str) -> Figure:
    """Two bars for each model, our ratio and the paper's; no bar if it is not known."""
    figure = Figure(figsize=(7.5, 0.5 * len(ratios) + 1.2), layout="constrained")
    ax = figure.subplots()
    ax.axvline(1, color="0.7", linewidth=1, zorder=0)
    for j, (label, colour) in enumerate((("ours", "tab:blue"), ("the paper's", "0.75"))):
        known = [(i, float(v)) for i, pair in enumerate(ratios.values()) if (v := pair[j]) is not None]
        bars = ax.barh([i + 0.36 * (j - 0.5) for i, _ in known], [v for _, v in known], 0.34, color=colour, label=label)
        ax.bar_label(bars, fmt="%.2f", padding=3, fontsize="small")
    ax.set_yticks(range(len(ratios)), list(ratios), parse_math=False)
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set_xlabel(xlabel)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    return literal(figure)
