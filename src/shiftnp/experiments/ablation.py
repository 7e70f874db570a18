"""Ablation of the input-location updates (the paper's eqs. 8 and 9): TE-PT-TNP-M32 with and without them.

    shiftnp train ablation --model all
    shiftnp report ablation
    shiftnp train ablation --preset paper     # 500,000 steps

The presets are those of gp-1d; `laptop` has 8,000 steps, so that no row takes more than half an hour on an older
processor with AVX2.

Log-likelihood to expect, nats per target: -0.44 with and -0.46 ± 0.01 without updates on uniform inputs, -0.67 and
-0.76 ± 0.01 on bimodal ones, after 500,000 steps in the paper (other test tasks); -0.57 and -0.58, -1.13 and -1.07 with
the preset `laptop` (means of three seeds, standard deviations 0.01, 0.02, 0.20 and 0.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shiftnp.experiments.base import Column, Experiment, Row
from shiftnp.experiments.gp_1d import GP_1D
from shiftnp.experiments.presets import TORCH_INIT
from shiftnp.tasks import GPTask, Task, TestSet

LAPTOP = GP_1D.presets["laptop"]
SHORTER: Mapping[str, Any] = {"steps": 8_000, "warmup": 400, "valid_every": 800}
"""Training in the preset `laptop`; the rest is as on gp-1d."""


def uniform_and_bimodal(task: Task) -> dict[str, TestSet]:
    """Test sets with inputs as in training, and from `U(-4, -1)` or `U(1, 4)`, which are not in the training data."""
    assert isinstance(task, GPTask)
    return {
        name: replace(task, bimodal=bimodal).test_sets()["delta-0.0"]
        for name, bimodal in (("uniform", False), ("bimodal", True))
    }


ABLATION = Experiment(
    name="ablation",
    title="Ablation: dynamically updating input locations",
    about=(
        "A TE-PT-TNP initialises the locations of its pseudo-tokens by attention (eq. 9) and updates the locations of"
        " all tokens (eq. 8). Without input adjustment the locations are the context's mean plus a learned offset, and"
        " stay fixed. All models are trained on inputs from one interval and tested there and on two others, apart."
    ),
    tasks=("gp-1d",),
    # The paper's table "ablation-synthetic-1d".
    rows=(
        Row(
            "te-pt-tnp-m32",
            "TE-PT-TNP-M32",
            "te-pt-tnp",
            {"pseudo": 32, **TORCH_INIT},
            paper=((-0.44, 0.01), (-0.67, 0.01)),
        ),
        # The paper has only the row above and the last one; these two tell initialiser and updates apart.
        Row(
            "no-location-update",
            "TE-PT-TNP-M32 without location updates",
            "te-pt-tnp",
            {"pseudo": 32, "location_update": False, **TORCH_INIT},
            paper=(None, None),
        ),
        Row(
            "mean-initialiser",
            "TE-PT-TNP-M32 with initial locations around the mean",
            "te-pt-tnp",
            {"pseudo": 32, "initialiser": "mean", **TORCH_INIT},
            paper=(None, None),
        ),
        Row(
            "no-input-adjustment",
            "TE-PT-TNP-M32 no input adjustment",
            "te-pt-tnp",
            {"pseudo": 32, "initialiser": "mean", "location_update": False, **TORCH_INIT},
            paper=((-0.46, 0.01), (-0.76, 0.01)),
        ),
    ),
    main="te-pt-tnp-m32",
    columns=(Column("Uniform inputs", "gp-1d", "uniform"), Column("Bimodal inputs", "gp-1d", "bimodal")),
    presets={**GP_1D.presets, "laptop": replace(LAPTOP, training=replace(LAPTOP.training, **SHORTER))},
    test_sets=uniform_and_bimodal,
)
