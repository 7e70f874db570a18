"""Draws the pictures of docs/explain from the trained runs in results/: `python docs/_site/pictures.py`."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor
from torch.distributions import Distribution

from shiftnp import Run
from shiftnp.experiments import EXPERIMENTS
from shiftnp.models import TETNP
from shiftnp.tasks import GPTask
from shiftnp.tasks.gp_posterior import BayesOptimal, GPOracle

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "results/runs/gp-1d"
OUT = ROOT / "docs/explain"


def band(
    ax: Axes, x: Tensor, prediction: Distribution, colour: str, label: str | None = None, fill: bool = True
) -> None:
    """The mean and the 90 % interval of a Gaussian, filled or as two thin lines."""
    mean, std = prediction.mean[0, :, 0], prediction.stddev[0, :, 0]
    low, high = mean - 1.645 * std, mean + 1.645 * std
    if fill:
        ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    else:
        ax.plot(x, torch.stack([low, high], 1), color=colour, linewidth=0.8, linestyle="--")
    ax.plot(x, mean, color=colour, label=label)


@torch.no_grad()
def neural_process() -> None:
    """Above data sets of the training, below a new one that is predicted from more and more of its points."""
    model = Run.open(RUNS / "te-tnp-rotary-laptop-seed0").model()
    figure, axes = plt.subplots(2, 4, figsize=(12, 5), layout="constrained", sharey=True)
    batch = GPTask(points=(12, 12)).sample(4, torch.Generator().manual_seed(11))
    for i, ax in enumerate(axes[0]):
        ax.plot(batch.xt[i], batch.yt[i], ".", color="tab:orange", markersize=4, label="targets")
        ax.plot(batch.xc[i], batch.yc[i], "k.", markersize=8, label="context")
        ax.set(title=f"training: data set {i + 1} of many", ylim=(-3.2, 3.2))
    axes[0, 0].legend(loc="lower left", fontsize="small")
    new = GPTask(kernels=("se",), length=(0.6, 0.6), points=(40, 40)).sample(1, torch.Generator().manual_seed(8))
    x = torch.linspace(-3, 3, 240)
    for ax, count in zip(axes[1], (0, 2, 6, 40), strict=True):
        band(ax, x, model(new.xc[:, :count], new.yc[:, :count], x.reshape(1, -1, 1)), "tab:blue")
        ax.plot(new.xt[0], new.yt[0], ".", color="tab:orange", markersize=2)
        ax.plot(new.xc[0, :count], new.yc[0, :count], "k.", markersize=8)
        ax.set(title=f"a new data set: {count} context points")
    figure.savefig(OUT / "neural-process.png", dpi=100)
    plt.close(figure)


@torch.no_grad()
def kernel() -> None:
    """How much the heads of a trained TE-TNP attend to a key, by its displacement, for two scores of their content."""
    model = Run.open(RUNS / "te-tnp-laptop-seed0").model()
    assert isinstance(model, TETNP)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained", sharey=True)
    d = torch.linspace(-4, 4, 400)
    for layer, ax in enumerate(axes):
        attention = model.stack.context[layer].attention
        heads = attention.rho.layers[-1].out_features
        logits = attention.rho(torch.cat([torch.zeros(len(d), heads), d[:, None]], -1))
        for head, values in enumerate((logits - logits.amax(0)).exp().T):
            ax.plot(d, values, label=f"head {head + 1}")
        ax.set(title=f"layer {layer + 1}", xlabel="displacement of query and key")
    axes[0].set_ylabel("attention, relative to its peak")
    axes[0].legend(fontsize="small")
    figure.savefig(OUT / "kernel.png", dpi=100)
    plt.close(figure)


@torch.no_grad()
def ceiling() -> None:
    """Left one data set under three predictors, right the gaps of trained models to the ceiling."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained", width_ratios=(1.4, 1))
    task = GPTask(points=(7, 7))
    batch, truth = task.sample_with_truth(1, torch.Generator().manual_seed(21))
    x = torch.linspace(-3, 3, 240)
    at = x.reshape(1, -1, 1)
    best = BayesOptimal(task, gaussian=True)
    band(left, x, GPOracle(task, truth)(batch.xc, batch.yc, at), "tab:green", "knows kernel and length-scale", False)
    band(left, x, best(batch.xc, batch.yc, at), "black", "the best possible Gaussian")
    trained = Run.open(RUNS / "te-tnp-rotary-laptop-seed0").model()
    band(left, x, trained(batch.xc, batch.yc, at), "tab:blue", "a trained TE-TNP, rotary kernel", False)
    left.plot(batch.xc[0], batch.yc[0], "k.", markersize=9)
    left.legend(fontsize="small", loc="lower center")
    left.set(title="seven points do not determine the kernel")
    runs = json.loads((ROOT / "results/gp-1d/gp-1d.json").read_text())["runs"]
    found = defaultdict(list)  # by row, one for each seed
    for run in (run["evaluation"] for run in runs if not run["evaluation"]["changes"]):
        found[run["row"]].append(run["sets"]["delta-0.0"]["gap"]["mean"])
    titles = {row.name: row.title.removesuffix(", period search") for row in EXPERIMENTS["gp-1d"].rows}
    gaps = sorted(((fmean(values), titles[row]) for row, values in found.items()), reverse=True)
    right.barh([title for _, title in gaps], [gap for gap, _ in gaps])
    right.set(title="gap to the ceiling, nats per target")
    figure.savefig(OUT / "ceiling.png", dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("agg")
    neural_process()
    kernel()
    ceiling()
