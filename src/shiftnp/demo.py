"""Demonstration of translation equivariance in a minute: `python -m shiftnp.demo`.

Trains a small TNP and a small TE-TNP on the same samples of Gaussian processes near zero, then draws the predictions of
both for one data set in the training range and for the same data set shifted.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import TextColumn

from shiftnp._progress import progress
from shiftnp.models import TETNP, TNP, NeuralProcess
from shiftnp.plots.curves import draw_prediction
from shiftnp.runs.config import Training
from shiftnp.runs.step import make_optimiser, train_step
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_posterior import GPOracle

# Small enough that both models train within a minute on two cores.
TASK = GPTask(kernels=("se",), length=(0.4, 1.0), noise=0.1, points=(3, 24), targets=48)
SIZE: dict[str, Any] = {"dz": 32, "heads": 4, "head_dim": 8, "layers": 3}
SHIFT = 4.0


def train(models: dict[str, NeuralProcess], steps: int, generator: torch.Generator, console: Console) -> None:
    """Trains all models on the same batches; Ctrl-C ends training early."""
    training = Training(steps=steps, learning_rate=4e-3, schedule="cosine", warmup=steps // 5)
    optimisers = {name: make_optimiser(model, training) for name, model in models.items()}
    running: dict[str, float] = {}
    try:
        with progress(TextColumn("{task.fields[scores]}"), console=console) as shown:
            bar = shown.add_task("training", total=steps, scores="")
            for step in range(steps):
                batch = TASK.sample(16, generator)
                for name, model in models.items():
                    score = -train_step(model, optimisers[name], batch, training, step).item()
                    running[name] = 0.95 * running.get(name, score) + 0.05 * score
                scores = ", ".join(f"{name} {value:+.2f}" for name, value in running.items())
                shown.update(bar, advance=1, scores=f"log-likelihood: {scores}")
    except KeyboardInterrupt:
        console.print("Stopped early; drawing the models as they are.")


@torch.no_grad()
def draw(models: dict[str, NeuralProcess], generator: torch.Generator, path: Path) -> None:
    """Draws the predictions of all models for one data set and for the same data set shifted by SHIFT."""
    batch, truth = replace(TASK, points=(8, 8)).sample_with_truth(1, generator)
    xt = torch.linspace(*TASK.target, 300)[None, :, None]
    exact = GPOracle(TASK, truth)(batch.xc, batch.yc, xt)
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots(2, len(models), sharey=True, squeeze=False)
    for row, shift in zip(axes, (0.0, SHIFT), strict=True):
        for ax, (name, model), colour in zip(row, models.items(), ("tab:orange", "tab:blue"), strict=True):
            xc, x = batch.xc + shift, xt + shift
            draw_prediction(ax, xc, batch.yc, x, model(xc, batch.yc, x), exact, colour=colour)
            ax.set_title(f"{name}, " + (f"same data shifted by {shift:g}" if shift else "data in the training range"))
            ax.set_ylim(-3.5, 3.5)
    axes[0, 0].legend(loc="lower left", fontsize="small", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(prog="python -m shiftnp.demo", description="Draws the effect of equivariance.")
    parser.add_argument("--steps", type=int, default=1000, help="training steps (default: 1000, about a minute)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of weights and data (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("demo/synthetic-1d.png"), help="image file to write")
    args = parser.parse_args()
    console = Console()
    generator = torch.Generator().manual_seed(args.seed)
    with torch.random.fork_rng():
        torch.manual_seed(args.seed)  # torch initialises weights from its global generator only
        models: dict[str, NeuralProcess] = {
            "tnp": TNP(dx=1, dy=1, **SIZE),
            "te-tnp": TETNP(dx=1, dy=1, kernel="rotary", location_update=False, **SIZE),  # learns most in a minute
        }
    console.print("Training a TNP and a TE-TNP on the same Gaussian-process samples.")
    train(models, args.steps, generator, console)
    draw(models, torch.Generator().manual_seed(args.seed + 1), args.out)
    console.print(f"Predictions on a data set and on the same one shifted by {SHIFT:g}:")
    console.print(str(args.out.resolve()), soft_wrap=True)


if __name__ == "__main__":
    main()
