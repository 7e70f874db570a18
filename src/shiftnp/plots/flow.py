"""Plots of a flow at one time: context, truth and prediction of the velocity, and the vorticity computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch

COLOURS = ("RdBu_r", "RdBu_r", "PuOr_r")  # of u, v and the vorticity, with white for zero


def draw_flow(
    figure: Figure, batch: Batch, prediction: Distribution | None = None, index: int = 0, spacing: float = 1.0
) -> None:
    """Draws the middle time of task `index`, whose inputs `(t, x, y)` lie on a grid.

    Rows are `u`, `v` and the vorticity `dv/dx - du/dy` by central differences. Columns are context, truth and, with a
    prediction, its mean and standard deviation. In the row of the vorticity, the first column shows the context points
    of all times, and the last the error of the mean, because marginal predictions do not determine a standard deviation
    of the vorticity. Mean and standard deviation are drawn at targets only, and the vorticity of the mean where all
    neighbours are targets, too: for a figure without gaps, predict at the context points as well. Unknown cells are
    grey.

    Args:
        spacing: distance between adjacent grid points along x and y, for the derivatives in the vorticity.
    """

    def pick(values: Tensor, mask: Tensor | None) -> Tensor:
        rows = values[index].detach().cpu()
        return rows if mask is None else rows[mask[index].cpu()]

    xc, yc = pick(batch.xc, batch.mask_c), pick(batch.yc, batch.mask_c)
    xt, yt = pick(batch.xt, batch.mask_t), pick(batch.yt, batch.mask_t)
    axes, indices = zip(*(torch.cat([xc, xt])[:, d].unique(return_inverse=True) for d in range(3)), strict=True)
    at_c, at_t = (tuple(i[rows] for i in indices) for rows in (slice(len(xc)), slice(len(xc), None)))
    middle = len(axes[0]) // 2

    def grid(context: Tensor | None, targets: Tensor | None) -> Any:
        """A field `[x, y, 2]` at the middle time, NaN where no value is given."""
        field = torch.full((*map(len, axes), 2), torch.nan)
        for cells, values in ((at_c, context), (at_t, targets)):
            if values is not None:
                field[cells] = values.float()
        return field[middle].numpy()

    def vorticity(field: Any) -> Any:
        if min(field.shape[:2]) < 2:
            return np.full(field.shape[:2], np.nan)
        return (np.gradient(field[..., 1], axis=0) - np.gradient(field[..., 0], axis=1)) / float(spacing)

    def components(field: Any) -> tuple[Any, Any, Any]:
        return field[..., 0], field[..., 1], vorticity(field)

    (left, right), (bottom, top) = _edges(axes[1]), _edges(axes[2])
    panels = figure.subplots(3, 2 if prediction is None else 4, sharex=True, sharey=True, squeeze=False)

    def show(ax: Axes, values: Any, colours: str, low: float, high: float) -> AxesImage:
        ax.set_facecolor("0.9")
        extent = (left, right, bottom, top)
        return ax.imshow(values.T, origin="lower", extent=extent, cmap=colours, vmin=low, vmax=high)

    truth = components(grid(yc, yt))
    limits = [_largest(values) for values in truth]
    columns = [truth]
    if prediction is not None:
        columns.append(components(grid(None, pick(prediction.mean, batch.mask_t))))
    for j, (title, column) in enumerate(zip(("truth", "mean"), columns, strict=False), start=1):
        panels[0, j].set_title(title)
        for i in range(3):
            shown = show(panels[i, j], column[i], COLOURS[i], -limits[i], limits[i])
            if column is columns[-1]:
                figure.colorbar(shown, ax=panels[i, j], fraction=0.05, pad=0.02)

    observed = grid(yc, None)
    for i in range(2):
        show(panels[i, 0], observed[..., i], COLOURS[i], -limits[i], limits[i])
    # Points of the time shown are black, others grey, lighter the farther away in time, and drawn below.
    distance = (at_c[0] - middle).abs()
    far = distance.argsort(descending=True)
    grey = (distance[far] > 0) * (0.5 + 0.8 * distance[far] / len(axes[0]))
    panels[2, 0].scatter(xc[far, 1], xc[far, 2], c=grey, cmap="gray", vmin=0, vmax=1, s=9, linewidths=0)
    panels[2, 0].set_aspect("equal")
    panels[2, 0].set_title("context at all times, black: now", fontsize="small")
    panels[0, 0].set_title(f"context at $t$ = {float(axes[0][middle]):.2g}")
    for i, name in enumerate(("velocity $u$", "velocity $v$", r"vorticity $\omega$")):
        panels[i, 0].set_ylabel(f"{name}\n$y$")
    for ax in panels[-1]:
        ax.set_xlabel("$x$")
    if prediction is None:
        return

    std = grid(None, pick(prediction.stddev, batch.mask_t))
    error = np.abs(columns[1][2] - truth[2])
    now = xc[at_c[0] == middle]
    for i, values in enumerate((std[..., 0], std[..., 1], error)):
        shown = show(panels[i, 3], values, "magma" if i == 2 else "viridis", 0.0, _largest(error if i == 2 else std))
        figure.colorbar(shown, ax=panels[i, 3], fraction=0.05, pad=0.02)
        if i < 2:
            panels[i, 3].plot(now[:, 1], now[:, 2], "k.", markersize=3)
    panels[0, 3].set_title("standard deviation")
    panels[2, 3].set_title("error of the mean", fontsize="small")


def _edges(axis: Tensor) -> tuple[float, float]:
    """Outer edges of the cells around equally spaced points."""
    half = float(axis[-1] - axis[0]) / max(len(axis) - 1, 1) / 2 or 0.5
    return float(axis[0]) - half, float(axis[-1]) + half


def _largest(values: Any) -> float:
    """The largest finite absolute value, for the colour scale."""
    known = np.abs(values[np.isfinite(values)])
    return float(known.max()) if len(known) else 1.0
