"""Plots of scattered data: maps of a climate field at one time, and tables of observations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.plots.style import literal
from shiftnp.scaling import Scaling

NOTHING = "0.9"  # grey for missing data
SPREAD = "standard deviation"  # the panel with its own colour scale


class Points(NamedTuple):
    """One panel: inputs and one output, in original units."""

    title: str
    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, " n"]


def draw_maps(
    figure: Figure,
    batch: Batch,
    scaling: Scaling,
    time: float,
    prediction: Distribution | None = None,
    index: int = 0,
) -> None:
    """Context, truth and, if given, mean and standard deviation of task `index` at one time.

    Args:
        scaling: standardisation of the batch; inputs are latitude, longitude, time and elevation.
        time: the time shown, in the unit of the third input.
    """
    panels = [
        Points(p.title, p.x[near], p.y[near])
        for p in _panels(batch, scaling, prediction, index)
        for near in [np.abs(p.x[:, 2] - time) < 1e-4 + 1e-6 * scaling.x_std[2]]  # float32 rounds times
    ]
    everywhere = np.concatenate([p.x for p in panels]).round(3)
    lat, lon = np.unique(everywhere[:, 0]), np.unique(everywhere[:, 1])
    half = [float(np.diff(v).min()) / 2 if len(v) > 1 else 0.5 for v in (lat, lon)]
    extent = (lon[0] - half[1], lon[-1] + half[1], lat[0] - half[0], lat[-1] + half[0])
    coast = coastline(extent)
    images = []
    for ax, p, limits, colours in _axes(figure, panels):
        field = np.full((len(lat), len(lon)), np.nan)
        x = p.x.round(3)
        field[np.searchsorted(lat, x[:, 0]), np.searchsorted(lon, x[:, 1])] = p.y
        low, high = limits
        images.append(ax.pcolormesh(lon, lat, field, shading="nearest", cmap=colours, vmin=low, vmax=high))
        ax.add_collection(LineCollection(coast, colors="black", linewidths=0.8), autolim=False)
        ax.set(xlim=extent[:2], ylim=extent[2:], xlabel="longitude", title=p.title)
        ax.set_aspect(1 / np.cos(np.radians(lat.mean())))
    figure.axes[0].set_ylabel("latitude")
    _colour_bars(figure, images, "°C")


def draw_table(
    figure: Figure, batch: Batch, scaling: Scaling, prediction: Distribution | None = None, index: int = 0
) -> None:
    """First output of task `index`: a curve over one input, or coloured points over the first two of several."""
    panels = _panels(batch, scaling, prediction, index)
    if batch.xc.shape[-1] == 1:
        _draw_curve(figure.subplots(), panels, scaling)
        literal(figure)
        return
    everywhere = np.concatenate([p.x for p in panels])
    images = []
    for ax, p, limits, colours in _axes(figure, panels):
        images.append(ax.scatter(p.x[:, 0], p.x[:, 1], c=p.y, s=12, cmap=colours, vmin=limits[0], vmax=limits[1]))
        for axis, values in (("x", everywhere[:, 0]), ("y", everywhere[:, 1])):
            low, high = float(values.min()), float(values.max())
            edge = 0.05 * (high - low) or 1.0
            ax.set(**{f"{axis}lim": (low - edge, high + edge)})
        ax.set(xlabel=scaling.inputs[0], title=p.title)
    figure.axes[0].set_ylabel(scaling.inputs[1])
    _colour_bars(figure, images, scaling.outputs[0])
    literal(figure)


def _draw_curve(ax: Axes, panels: list[Points], scaling: Scaling) -> None:
    context, truth, *prediction = panels
    ax.plot(truth.x[:, 0], truth.y, ".", color="0.6", markersize=5, label="truth")
    if prediction:
        mean, std = prediction
        order = np.argsort(mean.x[:, 0], kind="stable")
        x, middle, spread = mean.x[order, 0], mean.y[order], 2 * std.y[order]
        ax.fill_between(x, middle - spread, middle + spread, color="tab:blue", alpha=0.2, linewidth=0)
        ax.plot(x, middle, color="tab:blue", label="prediction, ± 2 std")
    ax.plot(context.x[:, 0], context.y, "k.", markersize=7, label="context")
    ax.set(xlabel=scaling.inputs[0], ylabel=scaling.outputs[0])
    ax.legend(fontsize="small")


def _panels(batch: Batch, scaling: Scaling, prediction: Distribution | None, index: int) -> list[Points]:
    """The panels of task `index`: context, truth (context and targets) and, if given, mean and standard deviation."""

    def points(title: str, x: Tensor, y: Tensor, mask: Bool[Tensor, "b n"] | None) -> Points:
        keep = slice(None) if mask is None else mask[index].cpu().numpy()
        inputs = scaling.undo_x(x[index]).detach().cpu().numpy()
        return Points(title, inputs[keep], y[index, :, 0].detach().cpu().numpy()[keep])

    context = points("context", batch.xc, scaling.undo_y(batch.yc), batch.mask_c)
    target = points("truth", batch.xt, scaling.undo_y(batch.yt), batch.mask_t)
    truth = Points("truth", np.concatenate([context.x, target.x]), np.concatenate([context.y, target.y]))
    if prediction is None:
        return [context, truth]
    mean, std = scaling.undo_y(prediction.mean), scaling.undo_std(prediction.stddev)
    return [
        context,
        truth,
        points("mean at targets", batch.xt, mean, batch.mask_t),
        points(SPREAD, batch.xt, std, batch.mask_t),
    ]


def _axes(figure: Figure, panels: list[Points]) -> Iterator[tuple[Axes, Points, tuple[float, float], str]]:
    """Axes side by side with their panel, colour limits and colour map: one scale for values, one for std."""
    values = np.concatenate([p.y[np.isfinite(p.y)] for p in panels[:3]])
    limits = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    grid = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0]
    for ax, p in zip(grid, panels, strict=True):
        ax.set_facecolor(NOTHING)
        if p.title == SPREAD:
            yield ax, p, (0.0, float(np.max(p.y, initial=1e-9))), "viridis"
        else:
            yield ax, p, limits, "plasma"


def _colour_bars(figure: Figure, images: Sequence[ScalarMappable], label: str) -> None:
    """Adds a colour bar for the panels of values and one for the panel of standard deviations."""
    axes = list(figure.axes)
    values = min(len(images), 3)
    figure.colorbar(images[values - 1], ax=axes[:values], label=label, pad=0.02)
    if len(images) > values:
        figure.colorbar(images[-1], ax=axes[-1], label=label)


def coastline(extent: tuple[float, float, float, float]) -> list[Float[np.ndarray, "n 2"]]:
    """Coastlines in (west, east, south, north), if cartopy and its data are installed; else none."""
    path = _coast_file()
    if path is None:
        return []
    from importlib import import_module

    reader, shapely = import_module("cartopy.io.shapereader"), import_module("shapely")
    west, east, south, north = extent
    lines: list[Float[np.ndarray, "n 2"]] = []
    for shape in reader.Reader(str(path)).geometries():
        inside = shapely.clip_by_rect(shape, west, south, east, north)
        for part in getattr(inside, "geoms", [inside]):
            if not part.is_empty:
                lines.append(np.asarray(part.coords, np.float64)[:, :2])
    return lines


def _coast_file() -> Path | None:
    """The finest coastline file of cartopy, without downloading any."""
    try:
        import cartopy
    except ImportError:
        return None
    downloader = cartopy.config["downloaders"][("shapefiles", "natural_earth")]
    for resolution in ("10m", "50m", "110m"):
        what = {"config": cartopy.config, "category": "physical", "name": "coastline", "resolution": resolution}
        for path in (downloader.target_path(what), downloader.pre_downloaded_path(what)):
            if path is not None and Path(path).exists():
                return Path(path)
    return None
