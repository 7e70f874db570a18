"""Plots of image completion: context, truth and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch

UNSEEN = (0.27, 0.37, 0.55)
"""Colour of unobserved pixels: not grey, and not at the end of any colour map used here."""


def draw_completions(
    figure: Figure,
    batch: Batch,
    side: int,
    pitch: float,
    prediction: Distribution | None = None,
    indices: Sequence[int] = (0,),
) -> None:
    """A row for each of some tasks of a batch: context, truth and, if given, mean and std of a prediction.

    In the panel of the mean, context pixels have their observed values; their std is zero. The std of an RGB pixel is
    the mean over its channels; all rows share one colour scale.

    Args:
        side: side of the canvas, in pixels.
        pitch: distance between adjacent pixels in units of the inputs, which are zero in the middle of the canvas.
        prediction: prediction at the targets of the batch.
        indices: indices of the tasks.
    """
    titles = ["context", "truth"] + (["context and mean", "std"] if prediction is not None else [])
    rows = figure.subplots(len(indices), len(titles), squeeze=False)
    spreads = []
    for axes, i in zip(rows, indices, strict=True):
        canvas = np.full((side, side, batch.yc.shape[-1]), np.nan)
        context, target = pixels(batch.xc, batch.mask_c, i, side, pitch), pixels(batch.xt, batch.mask_t, i, side, pitch)
        pictures = [put(canvas, context, batch.yc, batch.mask_c, i)]
        pictures.append(put(pictures[0], target, batch.yt, batch.mask_t, i))
        if prediction is not None:
            pictures.append(put(pictures[0], target, prediction.mean, batch.mask_t, i))
            zeros = put(canvas, context, batch.yc * 0, batch.mask_c, i)
            spreads.append(put(zeros, target, prediction.stddev, batch.mask_t, i).mean(-1))
        for ax, picture in zip(axes, pictures, strict=False):
            show_image(ax, paint(picture))
    for ax, title in zip(rows[0], titles, strict=True):
        ax.set_title(title)
    if spreads:
        largest = max(float(np.nanmax(spread)) for spread in spreads)
        for ax, spread in zip(rows[:, -1], spreads, strict=True):
            shown = show_image(ax, spread, cmap="magma", vmin=0, vmax=largest)
        figure.colorbar(shown, ax=rows[:, -1].tolist(), shrink=0.8)


def show_image(ax: Axes, picture: Float[np.ndarray, "side side *rgb"], **colours: Any) -> AxesImage:
    """Draws an image without interpolation, ticks and frame."""
    ax.set(xticks=[], yticks=[])
    ax.set_facecolor(UNSEEN)
    ax.spines[:].set_visible(False)
    return ax.imshow(picture, interpolation="nearest", **colours)


def pixels(
    x: Float[Tensor, "b n 2"], mask: Bool[Tensor, "b n"] | None, index: int, side: int, pitch: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the inputs of task `index`."""
    points = x[index] if mask is None else x[index, mask[index]]
    index_2d = (points.detach().cpu().double() / pitch + (side - 1) / 2).round().long().numpy()
    if index_2d.size and not (index_2d.min() >= 0 and index_2d.max() < side):
        raise ValueError(f"inputs must lie on a canvas of {side} pixels {pitch:.4g} apart: draw before you shift.")
    return index_2d[:, 0], index_2d[:, 1]


def put(
    picture: Float[np.ndarray, "side side c"],
    place: tuple[np.ndarray, np.ndarray],
    values: Float[Tensor, "b n c"],
    mask: Bool[Tensor, "b n"] | None,
    index: int,
) -> Float[np.ndarray, "side side c"]:
    """A copy of the image with the values of task `index` at the pixels `place`."""
    out = picture.copy()
    out[place] = (values[index] if mask is None else values[index, mask[index]]).detach().cpu().numpy()
    return out


def paint(picture: Float[np.ndarray, "side side c"]) -> Float[np.ndarray, "side side 3"]:
    """A grey or RGB image in [0, 1] as RGB, with the colour `UNSEEN` for unobserved pixels."""
    known = ~np.isnan(picture).any(-1, keepdims=True)
    return np.where(known, np.clip(np.nan_to_num(picture), 0, 1), UNSEEN)
