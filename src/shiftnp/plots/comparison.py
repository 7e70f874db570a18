"""Figures that compare predictions of several models on the same data sets: curves, or strips of images."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.plots.curves import draw_prediction
from shiftnp.plots.images import paint, pixels, put, show_image
from shiftnp.plots.style import BLACK, Style, literal

Predictor = Callable[..., Distribution]
"""A model, or a callable with the same signature: `predict(xc, yc, xt, mask)`."""


class Comparison(NamedTuple):
    """A figure and its caption."""

    figure: Figure
    caption: str
    drawn: bool  # a vector graphic, not a raster image


class Scene(NamedTuple):
    """One data set with one input, and the exact posterior at the targets at which predictions are drawn."""

    title: str
    xc: Float[Tensor, "1 nc 1"]
    yc: Float[Tensor, "1 nc 1"]
    xt: Float[Tensor, "1 nt 1"]
    exact: Distribution


def draw_scenes(
    scenes: Sequence[Scene], models: Mapping[str, Predictor], looks: Mapping[str, Style] | None = None
) -> Figure:
    """Curves of all models on a few data sets (like the paper's figure "synthetic-1d"): one row per data set, one
    column per model."""
    figure = Figure(figsize=(2.5 * len(models) + 0.6, 2.0 * len(scenes) + 0.6), layout="constrained")
    axes = figure.subplots(len(scenes), len(models), sharey=True, squeeze=False)
    for row, (title, xc, yc, xt, exact) in zip(axes, scenes, strict=True):
        for ax, (name, model) in zip(row, models.items(), strict=True):
            colour = (looks or {}).get(name, BLACK).colour
            draw_prediction(ax, xc, yc, xt, model(xc, yc, xt), exact, colour=colour)
            ax.set_ylim(-3.5, 3.5)
        row[0].set_ylabel(title)
    for ax, name in zip(axes[0], models, strict=True):
        ax.set_title(textwrap.fill(name, 22), fontsize="medium", parse_math=False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles[0] = Line2D([], [], color="0.5")  # each model has its own colour
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    return literal(figure)


def draw_strips(models: Mapping[str, Predictor], batches: Sequence[Batch], side: int, pitch: float) -> Figure:
    """Images: context, truth, and the context completed by the mean of each model.

    Args:
        batches: batches of one image each; each is a row of the figure.
        side, pitch: number of pixels along a side of the canvas, and their distance in units of the inputs.
    """
    titles = ["context", "truth", *models]
    figure = Figure(figsize=(1.6 * len(titles), 1.65 * len(batches) + 0.4), layout="constrained")
    rows = figure.subplots(len(batches), len(titles), squeeze=False)
    for axes, batch in zip(rows, batches, strict=True):
        context = pixels(batch.xc, batch.mask_c, 0, side, pitch)
        target = pixels(batch.xt, batch.mask_t, 0, side, pitch)
        known = put(np.full((side, side, batch.yc.shape[-1]), np.nan), context, batch.yc, batch.mask_c, 0)
        means = [model(batch.xc, batch.yc, batch.xt, batch.mask_c).mean for model in models.values()]
        pictures = [known, *(put(known, target, values, batch.mask_t, 0) for values in (batch.yt, *means))]
        for ax, picture in zip(axes, pictures, strict=True):
            show_image(ax, paint(picture))
        axes[0].set_ylabel(f"{len(context[0])} pixels", fontsize="small")
    for ax, title in zip(rows[0], titles, strict=True):
        ax.set_title(textwrap.fill(title, 16), fontsize="small")
    return literal(figure)
