"""Puts the weights of a finished pretraining into the package, in half precision, with a card.

    shiftnp train pretrain-2d                                    # also pretrain-1d, pretrain-3d
    shiftnp evaluate runs/pretrain-2d/te-tnp-rotary-laptop-seed0
    python benchmarks/ship_weights.py runs/pretrain-2d/te-tnp-rotary-laptop-seed0

Writes `src/shiftnp/weights/2d` (or 1d, 3d), or the folder that `--out` names. Prints how much half precision changes
the log-likelihood on validation tasks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from shiftnp import __version__
from shiftnp.metrics import log_likelihood
from shiftnp.models import NeuralProcess
from shiftnp.regressor.weights import SHIPPED, load, write_pretrained
from shiftnp.runs.evaluate import read_evaluation
from shiftnp.runs.run import Run
from shiftnp.tasks.base import generator_for

CARD = """\
# Pretrained weights for {inputs}

A translation-equivariant transformer neural process ({model}) with {parameters:,} parameters, in half precision. It is
what `shiftnp.Regressor` and `shiftnp predict` use for {inputs}.

- **Data**: none from the real world. Every training step draws 8 new data sets from a prior over functions
  (`shiftnp.tasks.prior`): Gaussian processes with squared-exponential, Matern, rational-quadratic, periodic and locally
  periodic kernels, sums and products of them, trends, warped inputs and outputs, unequal noise and outliers.
- **Training**: {steps:,} steps, {hours:.1f} hours on one thread of a busy machine, seed {seed}. Command:
  `{command}`{note}
- **Conventions**: 0 to 512 observations, inputs scaled such that the data fill a box 1 to 10 wide, outputs standardised
  by their mean and standard deviation. `Regressor` does both.
- **Log-likelihood** per target, in standardised units, mean over data sets:
  {scores}.
- **Limits**: one output at a time; functions unlike those of the prior, such as many jumps or chaotic signals, are
  predicted with wide intervals at best; extrapolation falls back to the mean and spread of the observations within a
  few length-scales. Measured against fitted Gaussian processes on real data: {measured};
  on functions outside the prior: results/held-out-functions.json.
- **Terms**: as the package, see LICENSE. Written by shiftnp {version}.
"""


def card(run: Run, model: NeuralProcess, note: str) -> str:
    """The text of README.md."""
    seconds = [entry["seconds"] for entry in run.metrics() if "seconds" in entry]
    valid = [entry["valid"] for entry in run.metrics() if "valid" in entry]
    shown = [f"validation {valid[-1]:+.3f}"] if valid else []
    if (evaluation := read_evaluation(run)) is not None:
        shown += [f"{name} {found.log_likelihood.mean:+.3f}" for name, found in evaluation.sets.items()]
    return CARD.format(
        inputs=f"{model.dx} input{'s' if model.dx > 1 else ''}",
        model=run.config.row or run.config.model,
        parameters=sum(p.numel() for p in model.parameters()),
        steps=run.step,
        hours=seconds[-1] / 3600 if seconds else 0.0,
        seed=run.config.training.seed,
        command=run.config.command,
        note=f".\n  {note}" if note else "",
        scores=", ".join(shown) or "not measured",
        measured=f"results/zero-shot{'-3d' if model.dx == 3 else ''}.json",
        version=__version__,
    )


@torch.no_grad()
def validation(run: Run, model: NeuralProcess, batches: int = 8) -> float:
    """Mean log-likelihood on the first validation tasks."""
    test_set = run.task.test_sets()["valid"]
    drawn = [test_set.task.sample(test_set.batch_size, generator_for(test_set.seed, i)) for i in range(batches)]
    return float(torch.cat([log_likelihood(model(b.xc, b.yc, b.xt), b.yt) for b in drawn]).mean())


def main() -> None:
    """Writes the folder and reports the effect of half precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--out", type=Path, help="folder of the weights; default: the one in the package")
    parser.add_argument("--note", default="", help="a sentence on the training, for the card")
    arguments = parser.parse_args()
    run = Run.open(arguments.run)
    model = run.model()
    assert isinstance(model, NeuralProcess)
    folder = arguments.out or SHIPPED / f"{model.dx}d"
    write_pretrained(folder, model, card(run, model, arguments.note))
    before, after = validation(run, model), validation(run, load(folder))
    print(f"{folder}: step {run.step}, validation {before:+.4f}, in half precision {after:+.4f}")


if __name__ == "__main__":
    main()
