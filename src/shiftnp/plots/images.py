"""Image completion: context, truth and prediction."""

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
"""Colour of pixels that are not known: no grey, and not the end of any colour map used here."""


def draw_completions(
    figure: Figure,
    batch: Batch,
    side: int,
    pitch: float,
    prediction: Distribution | None = None,
    indices: Sequence[int] = (0,),
) -> None:
    """A row for each of some tasks of a batch: context, truth and, if given, mean and std of a prediction.

    Pixels of the context keep their values in the mean and have no std. The std of a colour is the mean of its
    channels'; all rows share one scale.

    Args:
        side: of the canvas, in pixels.
        pitch: distance of neighbouring pixels in the inputs, which are zero in the middle of the canvas.
        prediction: at the targets of the batch.
        indices: which tasks.
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
            nothing = put(canvas, context, batch.yc * 0, batch.mask_c, i)
            spreads.append(put(nothing, target, prediction.stddev, batch.mask_t, i).mean(-1))
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
    """Shows a picture pixel by pixel, without ticks and frame."""
    ax.set(xticks=[], yticks=[])
    ax.set_facecolor(UNSEEN)
    ax.spines[:].set_visible(False)
    return ax.imshow(picture, interpolation="nearest", **colours)


def pixels(
    x: Float[Tensor, "b n 2"], mask: Bool[Tensor, "b n"] | None, index: int, side: int, pitch: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the inputs of task `index`."""
    points = x[index] if mask is None else x[index, mask[index]]
    place = (points.detach().cpu().double() / pitch + (side - 1) / 2).round().long().numpy()
    if place.size and not (place.min() >= 0 and place.max() < side):
        raise ValueError(f"inputs must lie on a canvas of {side} pixels {pitch:.4g} apart: draw before you shift.")
    return place[:, 0], place[:, 1]


def put(
    picture: Float[np.ndarray, "side side c"],
    place: tuple[np.ndarray, np.ndarray],
    values: Float[Tensor, "b n c"],
    mask: Bool[Tensor, "b n"] | None,
    index: int,
) -> Float[np.ndarray, "side side c"]:
    """A copy of the picture with the values of task `index` at their places."""
    out = picture.copy()
    out[place] = (values[index] if mask is None else values[index, mask[index]]).detach().cpu().numpy()
    return out


def paint(picture: Float[np.ndarray, "side side c"]) -> Float[np.ndarray, "side side 3"]:
    """Grey or RGB in [0, 1] as RGB, and a colour of their own for pixels that are not known."""
    known = ~np.isnan(picture).any(-1, keepdims=True)
    return np.where(known, np.clip(np.nan_to_num(picture), 0, 1), UNSEEN)
