"""Plots of predictions of one output: a curve with an uncertainty band for one input, coloured points for several."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch

TRUTH = "tab:purple"


def draw_prediction(
    ax: Axes,
    xc: Float[Tensor, "b nc 1"],
    yc: Float[Tensor, "b nc 1"],
    xt: Float[Tensor, "b nt 1"],
    prediction: Distribution,
    truth: Distribution | None = None,
    index: int = 0,
    colour: str | tuple[float, float, float] = "tab:blue",
    names: tuple[str, str] = ("prediction", "truth"),
) -> None:
    """Mean, band of two standard deviations, context and, if given, truth of task `index` of a batch.

    Args:
        names: names of `prediction` and `truth` in the legend.
    """
    order = xt[index, :, 0].argsort()

    def line(values: Tensor) -> Any:
        return values[index, order, 0].detach().cpu().numpy()

    x, mean, std = line(xt), line(prediction.mean), line(prediction.stddev)
    ax.fill_between(x, mean - 2 * std, mean + 2 * std, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, mean, color=colour, label=f"{names[0]}, ± 2 std")
    if truth is not None:
        mean, std = line(truth.mean), line(truth.stddev)
        ax.plot(x, mean, color=TRUTH, linestyle="--", linewidth=1.2, label=f"{names[1]}, ± 2 std")
        for edge in (mean - 2 * std, mean + 2 * std):
            ax.plot(x, edge, color=TRUTH, linestyle="--", linewidth=0.7)
    draw_context(ax, xc, yc, index)
    ax.set_xlim(x[0], x[-1])


def draw_context(ax: Axes, xc: Float[Tensor, "b nc 1"], yc: Float[Tensor, "b nc 1"], index: int = 0) -> None:
    """The context points of task `index` as black dots."""
    ax.plot(xc[index, :, 0].cpu(), yc[index, :, 0].cpu(), "k.", markersize=6, label="context")


def draw_task(
    figure: Figure,
    batch: Batch,
    prediction: Distribution | None = None,
    index: int = 0,
    truth: Distribution | None = None,
) -> None:
    """One task with one input: context, targets and, if given, a prediction and the exact posterior at the targets.

    Args:
        truth: the exact posterior.
    """
    exact = "exact posterior"
    ax = figure.subplots()
    ax.plot(batch.xt[index, :, 0], batch.yt[index, :, 0], ".", color="0.6", markersize=4, label="targets")
    if prediction is not None:
        draw_prediction(ax, batch.xc, batch.yc, batch.xt, prediction, truth, index, names=("prediction", exact))
    elif truth is not None:
        draw_prediction(ax, batch.xc, batch.yc, batch.xt, truth, index=index, colour=TRUTH, names=(exact, ""))
    else:
        draw_context(ax, batch.xc, batch.yc, index)
    ax.set(xlabel="x", ylabel="y")
    ax.legend(fontsize="small")


def draw_field(figure: Figure, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> None:
    """One task with several inputs, drawn over the first two: context, targets and, if given, mean and std."""
    panels = {"context": (batch.xc, batch.yc), "targets": (batch.xt, batch.yt)}
    if prediction is not None:
        panels |= {"mean": (batch.xt, prediction.mean), "std": (batch.xt, prediction.stddev)}
    limit = float(batch.yt[index].abs().max())
    axes = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0]
    for ax, (title, (x, y)) in zip(axes, panels.items(), strict=True):
        colours = {"cmap": "viridis"} if title == "std" else {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
        points = ax.scatter(*x[index, :, :2].T.cpu(), c=y[index, :, 0].detach().cpu(), s=12, **colours)
        ax.set(title=title, aspect="equal")
        figure.colorbar(points, ax=ax, shrink=0.7)
