"""What the presets of all experiments have in common.

`laptop` trains a small model nearly to its end, on two CPU cores; `paper` has the paper's sizes and steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shiftnp.experiments.base import Preset
from shiftnp.runs.config import Training

LAPTOP_SIZE = {"dz": 32, "heads": 4, "head_dim": 8, "layers": 3}
"""Size of every model in the preset `laptop`; the paper's is 128 (1-D) or 32, with 8 heads of size 16 and 5 layers."""

TORCH_INIT = {"kernel": {"name": "mlp", "init": "torch"}}
"""Settings of the rows with the paper's kernel: initial weights as in the authors' code. Rows with "-he" in their names
have the default of the kernel."""

ROTARY_MUON = {"learning_rate": 4e-4}
"""Training of rotary rows in a preset with Muon: at 1e-3, with a cosine schedule, the training was unstable (on climate
the EMA had a validation score of 1.06 after 1,600 steps and of -0.01 after 3,200)."""


def laptop(
    steps: int,
    batch_size: int,
    valid_tasks: int,
    model: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    models: Mapping[str, Mapping[str, Any]] | None = None,
    muon: bool = False,
    learning_rate: float = 1e-3,
) -> Preset:
    """The preset `laptop`: `LAPTOP_SIZE`, ten validations, and AdamW with cosine decay.

    Args:
        muon: Muon instead of AdamW, with an EMA, and with a rate that falls earlier.
        learning_rate: the default is twice the paper's: small models and short runs, with warm-up and decay.
    """
    training = Training(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        clip=0.5,  # the paper's
        schedule="cosine",  # better than a constant rate in a short run
        warmup=steps // 20,
        precision="float32",  # bfloat16 is no faster at this width, and ten times slower where it is emulated
        valid_every=steps // 10,
        valid_tasks=valid_tasks,
    )
    if muon:
        # Weights are noisy until the rate has fallen, hence the EMA; the schedule lets them come to rest. A longer EMA
        # lags, and is no better at the end. Larger rates are unstable: with 1.25e-3 TE-PT-TNP lost on climate what it
        # had learned, with 2e-3 on flow, too.
        training = replace(training, optimiser="muon", schedule="cosine-squared", ema=0.99)
    return Preset(training, {**LAPTOP_SIZE, **(model or {})}, task or {}, models or {})


def paper(
    model: Mapping[str, Any], valid_tasks: int | None = None, models: Mapping[str, Mapping[str, Any]] | None = None
) -> Preset:
    """The preset `paper`: 500 epochs of 1,000 steps; heads and layers are the defaults of the models."""
    training = Training(
        steps=500_000,
        batch_size=16,  # 8 for some rows, see `Row.paper_batch`
        learning_rate=5e-4,
        clip=0.5,
        schedule="constant",  # the paper mentions no schedule and no warm-up
        valid_every=1000,  # once an epoch
    )
    if valid_tasks is not None:
        training = replace(training, valid_tasks=valid_tasks)
    return Preset(training, model, models=models or {})
