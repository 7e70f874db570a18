"""The same data sets, as several models see them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.plots.curves import draw_prediction
from shiftnp.plots.images import UNSEEN, paint, pixels, put
from shiftnp.plots.style import BLACK, Style
from shiftnp.tasks import ClimateTask, GPTask, ImageTask, KolmogorovTask, Task, TestSet
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPOracle

Predictor = Callable[..., Distribution]
"""A model, or what calls like one."""


class Comparison(NamedTuple):
    """A picture, and what it shows."""

    figure: Figure
    caption: str
    drawn: bool  # lines, not pixels


class Scene(NamedTuple):
    """One data set on a line: its title, what it is drawn from and how far it is moved."""

    title: str
    task: GPTask
    move: float = 0


def is_side_by_side(task: Task) -> bool:
    """Whether one picture shows all models; else each has its own."""
    return isinstance(task, ImageTask) or (isinstance(task, GPTask) and task.dx == 1)


@torch.no_grad()
def compare(
    models: Mapping[str, Predictor], test_sets: Mapping[str, TestSet], looks: Mapping[str, Style] | None = None
) -> list[Comparison]:
    """Predictions of models for the same data sets, in pictures that fit the task.

    Args:
        models: by the names they have in the picture.
        test_sets: by their titles. Curves are drawn for all of them, other pictures for the last alone.
        looks: of the models, for their colours.
    """
    title, last = list(test_sets.items())[-1]
    tasks = {name: t.task for name, t in test_sets.items() if isinstance(t.task, GPTask) and t.task.dx == 1}
    if tasks:
        still = {name: replace(task, shift=0.0) for name, task in tasks.items()}
        one = next(iter(still.values()))
        if all(task == one for task in still.values()):  # they differ in the shift, and so do the paper's two
            return [draw_scenes([Scene("Δ = 0", one), Scene("Δ = 2", one, 2)], models, looks)]
        return [draw_scenes([Scene(*scene) for scene in still.items()], models, looks)]
    if isinstance(last.task, ImageTask):
        return [draw_strips(last.task, models, some(last, 3))]
    batch = some(last, 1)[0]
    return [draw_each(last.task, title, name, model, batch) for name, model in models.items()]


def draw_scenes(
    scenes: Sequence[Scene], models: Mapping[str, Predictor], looks: Mapping[str, Style] | None = None
) -> Comparison:
    """Curves of all models for a few data sets (like the paper's figure "synthetic-1d")."""
    figure = Figure(figsize=(2.5 * len(models) + 0.6, 2.0 * len(scenes) + 0.6), layout="constrained")
    axes = figure.subplots(len(scenes), len(models), sharey=True, squeeze=False)
    for row, scene in zip(axes, scenes, strict=True):
        low, high = scene.task.points
        task = replace(scene.task, points=(min(max(low, 12), high),) * 2)
        batch, truth = task.sample_with_truth(1, generator_for(3, 0))
        left, right = (-4, 4) if task.bimodal else task.target
        xt = torch.linspace(left, right, 300)[None, :, None]
        exact = GPOracle(task, truth)(batch.xc, batch.yc, xt)
        for ax, (name, model) in zip(row, models.items(), strict=True):
            xc, x = batch.xc + scene.move, xt + scene.move
            colour = (looks or {}).get(name, BLACK).colour
            draw_prediction(ax, xc, batch.yc, x, model(xc, batch.yc, x), exact, colour=colour)
            ax.set_ylim(-3.5, 3.5)
        row[0].set_ylabel(scene.title)
    for ax, name in zip(axes[0], models, strict=True):
        ax.set_title(textwrap.fill(name, 22), fontsize="medium", parse_math=False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles[0] = Line2D([], [], color="0.5")  # of each model, in its own colour
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    caption = "The same data sets for all models. The truth knows kernel and length-scale."
    if any(scene.move for scene in scenes):
        caption += " Above: where the models were trained. Below: the same data, moved."
    return Comparison(figure, caption, drawn=True)


def draw_strips(task: ImageTask, models: Mapping[str, Predictor], batches: Sequence[Batch]) -> Comparison:
    """Images: context, truth, and the context completed by the mean of each model. Each batch has one task."""
    titles = ["context", "truth", *models]
    figure = Figure(figsize=(1.6 * len(titles), 1.65 * len(batches) + 0.4), layout="constrained")
    rows = figure.subplots(len(batches), len(titles), squeeze=False)
    for axes, batch in zip(rows, batches, strict=True):
        context = pixels(batch.xc, batch.mask_c, 0, task.side, task.pitch)
        target = pixels(batch.xt, batch.mask_t, 0, task.side, task.pitch)
        seen = put(np.full((task.side, task.side, task.dy), np.nan), context, batch.yc, batch.mask_c, 0)
        means = [model(batch.xc, batch.yc, batch.xt, batch.mask_c).mean for model in models.values()]
        pictures = [seen, *(put(seen, target, values, batch.mask_t, 0) for values in (batch.yt, *means))]
        for ax, picture in zip(axes, pictures, strict=True):
            ax.imshow(paint(picture), interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.set_facecolor(UNSEEN)
            ax.spines[:].set_visible(False)
        axes[0].set_ylabel(f"{len(context[0])} pixels", fontsize="small")
    for ax, title in zip(rows[0], titles, strict=True):
        ax.set_title(textwrap.fill(title, 16), fontsize="small", parse_math=False)
    caption = "Test images: the context, what there is, and for each model the pixels of the context together with the"
    return Comparison(figure, caption + " predicted mean of all others.", drawn=False)


def draw_each(task: Task, title: str, name: str, model: Predictor, batch: Batch) -> Comparison:
    """The task's own picture, for one model. The batch has one task."""
    caption = f"{name} on a test data set ({title}) with {len(_there(batch.xc, batch.mask_c))} context points"
    if isinstance(task, ClimateTask):
        now = _there(batch.xt, batch.mask_t)[:, 2].median()  # as it is drawn
        caption += f" at several times. Shown is one of these, to which {_at(batch, 2, now)} of the points belong."
    elif isinstance(task, KolmogorovTask):
        batch = _with_context(batch)
        times = _there(batch.xt, batch.mask_t)[:, 0].unique()
        caption += (
            f" at several times. Shown is the middle one, to which {_at(batch, 0, times[len(times) // 2])} of the"
        )
        caption += " points belong. Mean and standard deviation are those predicted for all points of the grid, also"
        caption += " where the context is, and the vorticity of the mean follows from them."
    else:
        caption += "."
    figure = task.draw(batch, model(batch.xc, batch.yc, batch.xt, batch.mask_c))
    above = figure.get_suptitle()
    figure.suptitle(f"{name}: {above}" if above else name, parse_math=False)
    if isinstance(task, ClimateTask) and above:
        caption = caption.replace("one of these,", f"one of these, {above},")
    return Comparison(figure, caption, drawn=False)


def _there(x: Tensor, mask: Tensor | None) -> Tensor:
    """The points of the first task of a batch."""
    return x[0] if mask is None else x[0, mask[0]]


def _at(batch: Batch, axis: int, value: Tensor) -> int:
    """How many context points of the first task have this value of an input."""
    return int(((_there(batch.xc, batch.mask_c)[:, axis] - value).abs() < 1e-5).sum())


def _with_context(batch: Batch) -> Batch:
    """The same batch with its context points among the targets."""
    xt, yt = torch.cat([batch.xt, batch.xc], 1), torch.cat([batch.yt, batch.yc], 1)
    if batch.mask_c is None and batch.mask_t is None:
        return replace(batch, xt=xt, yt=yt)
    masks = ((batch.mask_t, batch.xt), (batch.mask_c, batch.xc))
    every = [torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask for mask, x in masks]
    return replace(batch, xt=xt, yt=yt, mask_t=torch.cat(every, 1))


def some(test_set: TestSet, count: int) -> list[Batch]:
    """A few tasks of a test set, each a batch of its own, from fewer to more context points; one: of middle size."""
    found = sorted(islice(test_set, 5), key=lambda batch: batch.xc.shape[1])
    places = np.linspace(0, len(found) - 1, count) if count > 1 else [(len(found) - 1) / 2]
    chosen = [found[round(float(place))] for place in places]
    return [replace(batch, **{k: v[:1] for k, v in vars(batch).items() if v is not None}) for batch in chosen]
