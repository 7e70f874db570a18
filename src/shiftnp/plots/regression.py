"""Plots of predictions for one data set: a curve with bands for one input, maps for two, slices for three."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure, SubFigure

from shiftnp.plots.maps import NOTHING, coastline
from shiftnp.plots.style import COLOURS, literal

SEEN, MEAN, STD = "observations", "mean", "standard deviation"
SLICES = 4
MANY = 3000
"""Number of observations beyond which they are not drawn over maps."""
COLOUR = COLOURS["te-tnp"]
EAST = re.compile(r"lon(gitude)?|x|easting|east|e|(grid_)?longitude", re.IGNORECASE)
NORTH = re.compile(r"lat(itude)?|y|northing|north|n|(grid_)?latitude", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Prediction:
    """One output: observations and predictions, in the units of the data; inputs are numbers or datetime64.

    Args:
        names: names of the inputs.
        output: name of the output, with its unit.
        x, y: inputs of the observations, by name, and their values.
        at: inputs of the targets, by name.
        mean, std, low, high: predictions at the targets, with the ends of 90 % intervals.
        inner: ends of 50 % intervals.
        dims: for a grid its dimensions, which are inputs; `at` is then in the order of its cells.
        known: for the grid of a field its values, NaN in holes.
    """

    names: tuple[str, ...]
    output: str
    x: Mapping[str, np.ndarray]
    y: Float[np.ndarray, " n"]
    at: Mapping[str, np.ndarray]
    mean: Float[np.ndarray, " m"]
    std: Float[np.ndarray, " m"]
    low: Float[np.ndarray, " m"]
    high: Float[np.ndarray, " m"]
    dims: tuple[str, ...] = ()
    known: Float[np.ndarray, " m"] | None = None
    inner: tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]] | None = None

    @property
    def panels(self) -> list[str]:
        """What is drawn: of one input everything in one panel, else maps."""
        if len(self.shown) == 1:
            return [MEAN]
        return [SEEN, MEAN, STD] if self.known is not None else [MEAN, STD]

    @property
    def shown(self) -> tuple[str, ...]:
        """The inputs along which predictions are drawn: first the horizontal one, last the one that is sliced."""
        names = list(self.dims or self.names)
        dated = [name for name in names if self.at[name].dtype.kind == "M"]
        if len(names) == 3:
            plane = [n for n in names if EAST.fullmatch(core(n)) or NORTH.fullmatch(core(n))]
            last = dated[0] if dated else next((n for n in names if n not in plane), names[2])
            names.remove(last)
            return (*ordered(names, []), last) if self.dims else ordered(names, [])
        return ordered(names, dated) if len(names) == 2 else tuple(names)


def core(name: str) -> str:
    """The name of an input without its unit: x of x_km."""
    return re.split(r"[_ (\[]", name)[0]


def ordered(names: Sequence[str], dated: Sequence[str]) -> tuple[str, ...]:
    """Two inputs, the horizontal one first: dates, or what points east."""
    first, second = names
    if second in dated or (first not in dated and EAST.fullmatch(core(second)) and NORTH.fullmatch(core(first))):
        return second, first
    return first, second


def draw_predictions(predictions: Sequence[Prediction], panels: Sequence[str] = ()) -> Figure:
    """A figure of one or several outputs, one below the other.

    Args:
        panels: which of `Prediction.panels`; none: all of them.
    """
    sizes = [size(p, panels or p.panels) for p in predictions]
    figure = Figure(figsize=(max(w for w, _ in sizes), sum(h for _, h in sizes)), layout="constrained")
    parts = figure.subfigures(len(predictions), 1, squeeze=False, height_ratios=[h for _, h in sizes])[:, 0]
    for part, p in zip(parts, predictions, strict=True):
        if len(p.shown) == 1:
            _draw_curve(part.subplots(), p)
        else:
            _draw_panels(part, p, [name for name in panels or p.panels if name in p.panels])
    return literal(figure)


def size(p: Prediction, panels: Sequence[str]) -> tuple[float, float]:
    """Width and height of a figure in inches."""
    if len(p.shown) == 1:
        return 8.0, 4.0
    ratio = float(np.clip(_ratio(p), 0.4, 2.5))
    area = 16.0 if len(p.shown) == 2 else 5.0  # of one map, in square inches
    wide, tall = (area * ratio) ** 0.5, (area / ratio) ** 0.5
    if len(p.shown) == 2:
        return (wide + 1.5) * len(panels), tall + 0.7
    count = len(_slices(p))
    columns = count if len(panels) > 1 else min(count, 2)
    return 1.6 + (wide + 0.1) * columns, (tall + 0.5) * len(panels) * -(-count // columns) + 0.3


# --- one input -------------------------------------------------------------------------------------------------------


def _draw_curve(ax: Axes, p: Prediction) -> None:
    name = p.shown[0]
    order = np.argsort(p.at[name], kind="stable")
    x = p.at[name][order]
    mean, low, high = (v[order] for v in (p.mean, p.low, p.high))
    if p.dims or len(x) > 60:
        ax.fill_between(x, low, high, color=COLOUR, alpha=0.18, linewidth=0, label="90 % interval")
        if p.inner is not None:
            lower, upper = (v[order] for v in p.inner)
            ax.fill_between(x, lower, upper, color=COLOUR, alpha=0.25, linewidth=0, label="50 % interval")
        ax.plot(x, mean, color=COLOUR, linewidth=1.3, label="mean")
    else:
        errors = np.maximum([mean - low, high - mean], 0)
        ax.errorbar(x, mean, errors, fmt="o", color=COLOUR, markersize=4, label="mean, 90 % interval")
    dots = float(np.clip(120 / max(len(p.y), 1) ** 0.5, 2, 7))
    ax.plot(p.x[name], p.y, "k.", markersize=dots, label="observations")
    reach = np.concatenate([p.y, low, high])
    reach = reach[np.isfinite(reach)]
    if len(reach):
        bottom, top = np.quantile(reach, (0.0, 1.0))
        edge = 0.05 * (top - bottom) or 1.0
        ax.set_ylim(bottom - edge, top + edge)
    ax.set(xlabel=name, ylabel=p.output)
    ax.margins(x=0.01)
    _dates(ax, p.at[name], "x")
    ax.grid(alpha=0.25)
    ax.legend(fontsize="small")


# --- maps ------------------------------------------------------------------------------------------------------------


def _draw_panels(figure: Figure | SubFigure, p: Prediction, panels: Sequence[str]) -> None:
    """Panels side by side for two inputs; for three a row of slices for each panel."""
    if len(p.shown) == 2:
        axes = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)
        for ax, panel in zip(axes[0], panels, strict=True):
            image = _draw_map(ax, p, panel, None)
            ax.set(title=panel, xlabel=p.shown[0])
            figure.colorbar(image, ax=ax, label=p.output)
        axes[0, 0].set_ylabel(p.shown[1])
        return
    slices = _slices(p)
    columns = len(slices) if len(panels) > 1 else min(len(slices), 2)
    rows = len(panels) * -(-len(slices) // columns)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for ax in axes.flat[len(panels) * len(slices) :]:
        ax.set_visible(False)
    each = axes.reshape(-1)[: len(panels) * len(slices)].reshape(len(panels), len(slices))
    for line, panel in zip(each, panels, strict=True):
        for ax, value in zip(line, slices, strict=True):
            image = _draw_map(ax, p, panel, value)
            ax.set_title(
                f"{panel}\n{p.shown[2]} = {show(value)}" if len(panels) == 1 else f"{p.shown[2]} = {show(value)}"
            )
            ax.title.set_fontsize("small")
        figure.colorbar(image, ax=list(line), label=f"{panel}, {p.output}" if len(panels) > 1 else p.output)
    for ax in axes[-1]:
        ax.set_xlabel(p.shown[0])
    for ax in axes[:, 0]:
        ax.set_ylabel(p.shown[1])


def _draw_map(ax: Axes, p: Prediction, panel: str, at: Any) -> Any:
    """One map: of all targets, or of those in a slice of the third input."""
    across, up = p.shown[:2]
    values = {SEEN: p.known, MEAN: p.mean, STD: p.std}[panel]
    assert values is not None
    low, high = _limits(p, panel)
    style: dict[str, Any] = {"cmap": "viridis" if panel == STD else "plasma", "vmin": low, "vmax": high}
    mine = np.ones(len(values), bool) if at is None else p.at[p.shown[2]] == at
    ax.set_facecolor(NOTHING)
    if p.dims:
        columns, i = np.unique(p.at[across][mine], return_inverse=True)
        rows, j = np.unique(p.at[up][mine], return_inverse=True)
        field = np.full((len(rows), len(columns)), np.nan)
        field[j, i] = values[mine]
        image: Any = ax.pcolormesh(columns, rows, field, shading="nearest", rasterized=True, **style)
    else:
        ax.plot(p.x[across], p.x[up], ".", color="0.6", markersize=2, zorder=1)
        image = ax.scatter(p.at[across][mine], p.at[up][mine], c=values[mine], s=_dot(int(mine.sum())), **style)
    near = _near(p, at)
    if p.known is None and near.sum() <= MANY and p.dims:
        x, y, s = p.x[across][near], p.x[up][near], _dot(int(near.sum()))
        if panel == MEAN:
            ax.scatter(x, y, c=p.y[near], s=s, edgecolors="white", linewidths=0.4, **style)
        else:
            ax.plot(x, y, ".", color="white", markersize=max(0.9 * s**0.5, 2.0), markeredgewidth=0, alpha=0.8)
    _frame(ax, p)
    return image


def _frame(ax: Axes, p: Prediction) -> None:
    """Aspect, dates and coastlines."""
    across, up = p.shown[:2]
    for name, side in ((across, "x"), (up, "y")):
        _dates(ax, p.at[name], side)
    if not is_plane(p):
        return
    if is_globe(p):
        (west, east), (south, north) = ((float(v.min()), float(v.max())) for v in (p.at[across], p.at[up]))
        ax.set_aspect(1 / max(np.cos(np.radians((south + north) / 2)), 0.1))
        if west >= -180 and east <= 180:
            lines = coastline((west, east, south, north))
            ax.add_collection(LineCollection(lines, colors="black", linewidths=0.7), autolim=False)
    else:
        ax.set_aspect("equal")


def is_plane(p: Prediction) -> bool:
    """Whether the map's axes are two coordinates of one kind, which have one scale."""
    across, up = p.shown[:2]
    numbers = all(p.at[name].dtype.kind != "M" for name in (across, up))
    same_unit = across[len(core(across)) :] == up[len(core(up)) :]
    return bool(numbers and EAST.fullmatch(core(across)) and NORTH.fullmatch(core(up)) and same_unit)


def is_globe(p: Prediction) -> bool:
    """Whether the map's axes are longitude and latitude."""
    across, up = p.shown[:2]
    return (
        core(across).lower().startswith("lon")
        and core(up).lower().startswith("lat")
        and (float(np.abs(p.at[up]).max(initial=0)) <= 90)
    )


def _ratio(p: Prediction) -> float:
    """Width of a map over its height."""
    if not is_plane(p):
        return 1.2
    across, up = (float(np.ptp(p.at[name])) or 1.0 for name in p.shown[:2])
    return across / up * (np.cos(np.radians(float(p.at[p.shown[1]].mean()))) if is_globe(p) else 1.0)


def _limits(p: Prediction, panel: str) -> tuple[float, float]:
    """Colour limits: one scale for observations and mean, in which a few outliers have no influence."""
    if panel == STD:
        spread = p.std[np.isfinite(p.std)]
        return 0.0, float(np.max(spread, initial=1e-9))
    mean = p.mean[np.isfinite(p.mean)]
    ends = np.concatenate([np.quantile(p.y, (0.01, 0.99)) if len(p.y) else [0.0, 1.0], [mean.min(), mean.max()]])
    return float(ends.min()), float(ends.max())


def _slices(p: Prediction) -> np.ndarray:
    """Values of the third input at which maps are drawn."""
    values = np.unique(p.at[p.shown[2]])
    pick = ((np.arange(min(SLICES, len(values))) + 0.5) * len(values) / min(SLICES, len(values))).astype(int)
    return values[pick]


def _near(p: Prediction, at: Any) -> np.ndarray:
    """Mask of the observations that belong to a slice."""
    if at is None:
        return np.ones(len(p.y), bool)
    values, slices = p.x[p.shown[2]], _slices(p)
    nearest: np.ndarray = np.abs(values[:, None] - slices).argmin(1)
    return slices[nearest] == at


def _dot(count: int) -> float:
    return float(np.clip(5000 / max(count, 1), 4, 30))


def _dates(ax: Axes, values: np.ndarray, side: str) -> None:
    """Dates along an axis in few words."""
    if values.dtype.kind == "M":
        axis = ax.xaxis if side == "x" else ax.yaxis
        locator = AutoDateLocator()
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))


def show(value: Any) -> str:
    """A value of an input for a title: a date without seconds, or a number."""
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[m]")).replace("T00:00", "").replace("T", " ")
    return f"{float(value):.6g}"
