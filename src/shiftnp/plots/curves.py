"""One-dimensional predictions: a mean, a band of two standard deviations, the data and, where known, the truth."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor
from torch.distributions import Distribution


def draw_prediction(
    ax: Axes,
    xc: Float[Tensor, "b nc 1"],
    yc: Float[Tensor, "b nc 1"],
    xt: Float[Tensor, "b nt 1"],
    prediction: Distribution,
    truth: Distribution | None = None,
    index: int = 0,
    colour: str = "tab:blue",
) -> None:
    """Draws task `index` of a batch into `ax`; its targets must be sorted."""

    def line(values: Tensor) -> Any:
        return values[index, :, 0].detach().cpu().numpy()

    x, mean, std = line(xt), line(prediction.mean), line(prediction.stddev)
    ax.fill_between(x, mean - 2 * std, mean + 2 * std, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, mean, color=colour, label="prediction, ± 2 std")
    if truth is not None:
        mean, std = line(truth.mean), line(truth.stddev)
        ax.plot(x, mean, color="tab:purple", linestyle="--", linewidth=1.2, label="truth, ± 2 std")
        for edge in (mean - 2 * std, mean + 2 * std):
            ax.plot(x, edge, color="tab:purple", linestyle="--", linewidth=0.7)
    ax.plot(line(xc), line(yc), "k.", markersize=6, label="context")
    ax.set_xlim(x[0], x[-1])
