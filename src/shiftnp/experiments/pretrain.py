"""Pretraining on a broad prior over functions, for predictions on any data of one to three inputs without training.

    shiftnp train pretrain-2d                 # also pretrain-1d and pretrain-3d; Ctrl-C saves, --resume continues
    shiftnp train pretrain-2d --model gp      # a Gaussian process fitted to each data set, to compare with
    shiftnp evaluate runs/pretrain-2d/*       # on functions that are not in the prior
    shiftnp report pretrain-2d

Not in the paper. The task is `shiftnp.tasks.prior`: one output, 0 to 512 context points, inputs in a box that is 1 to
10 wide, outputs standardised by the context. The columns are functions that the prior does not have: Gaussian processes
with a gamma-exponential and a Wendland kernel, step functions and damped oscillations.

A training step of `pretrain-2d` takes 0.22 s of one thread of an AMD EPYC (AVX-512), of which the data take 0.014; with
8 instead of 4 heads it takes 0.48 s, as most of the time goes into the attention scores of each head. The weights in
the package come from these commands, see the README.md beside them.
"""

from __future__ import annotations

from shiftnp.experiments.base import Column, Experiment, Preset, Row
from shiftnp.runs.config import Training

COLUMNS = {
    "gamma-exponential": "gamma-exp. kernel",
    "wendland": "Wendland kernel",
    "steps": "steps",
    "oscillations": "oscillations",
}
"""Titles of the test sets."""


def pretraining(
    dx: int,
    band: tuple[float, float],
    steps: int,
    period_search: int = 0,
    learning_rate: float = 8e-4,
    init: str | None = None,
) -> Experiment:
    """The pretraining of models with `dx` inputs.

    Args:
        band: band of the rotary kernel, in radians per unit of input.
        period_search: candidates of the period search; with it there is a second row without, its control.
        learning_rate, init: see `Training`.
    """
    task, empty = f"prior-{dx}d", (None,) * len(COLUMNS)
    plural = "s" * (dx > 1)

    def rotary(name: str, title: str, candidates: int) -> Row:
        kernel = {"name": "rotary", "band": band, "period_search": candidates}
        return Row(name, f"TE-TNP, rotary kernel{title}", "te-tnp", {"kernel": kernel, "location_update": False}, empty)

    rotaries = [rotary("te-tnp-rotary", ", period search" if period_search else "", period_search)]
    if period_search:
        rotaries.append(rotary("te-tnp-rotary-control", ", no period search", 0))

    return Experiment(
        name=f"pretrain-{dx}d",
        title=f"Pretraining for {dx} input{plural}",
        about=(
            f"Functions of {dx} input{plural} from a broad prior: Gaussian processes with many kernels, trends, warps"
            " of inputs and outputs, unequal noise and outliers, at sites of many arrangements. 0 to 512 context"
            " points, 64 targets; outputs are standardised by the context. The test functions are not in the prior."
        ),
        tasks=(task,),
        rows=(
            *rotaries,
            # Its hyperparameters are fitted to each data set; 200 steps of Adam converge for standardised data.
            Row("gp", "GP, Matern 5/2", "gp", {"covariance": "matern52", "iterations": 200}, empty),
        ),
        main="te-tnp-rotary",
        columns=tuple(Column(title, task, name) for name, title in COLUMNS.items()),
        presets={
            "laptop": Preset(
                Training(
                    steps=steps,
                    batch_size=8,
                    learning_rate=learning_rate,
                    schedule="cosine",
                    warmup=min(1000, steps // 16),
                    valid_every=min(2000, steps // 8),
                    valid_tasks=256,
                    log_every=50,
                    init=init,
                ),
                {
                    "dz": 128,
                    "heads": 4,
                    "head_dim": 16,
                    "layers": 5,
                    "likelihood": "mixture",  # for outliers, skewed outputs and steps
                    "components": 4,
                    "variance_floor": 1e-6,  # below the smallest noise of the prior, also beside a large trend
                },
            )
        },
    )


PRETRAIN_1D = pretraining(1, (0.2, 26.0), 16_000, period_search=256)
PRETRAIN_2D = pretraining(2, (0.2, 12.0), 24_000)
# A step takes twice as long with three inputs. The weights for two of them save most of the steps: their log-likelihood
# is -1.22 before the first step, and -1.17 after 120 steps, when that of random initial weights is -1.50.
PRETRAIN_3D = pretraining(3, (0.2, 12.0), 8_000, learning_rate=5e-4, init="2d")
