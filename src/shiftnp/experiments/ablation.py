"""What it is worth that tokens move (the paper's ablation): TE-PT-TNP-M32 with and without it.

    shiftnp train ablation --model all
    shiftnp report ablation
    shiftnp train ablation --preset paper     # 500,000 steps

Presets are those of gp-1d, and so is the cost of each of the two models (see gp_1d.py).

Score to expect, nats per target, after 500,000 steps in the paper: -0.44 and -0.46 ± 0.01 on uniform inputs, -0.67 and
-0.76 ± 0.01 on bimodal ones, with and without. Those of the preset `laptop` are not measured yet.
"""

from __future__ import annotations

from dataclasses import replace

from shiftnp.experiments.base import Column, Experiment, Row
from shiftnp.experiments.gp_1d import GP_1D
from shiftnp.tasks import GPTask, Task, TestSet


def uniform_and_bimodal(task: Task) -> dict[str, TestSet]:
    """Inputs as in training, and from `U(-4, -1)` or `U(1, 4)`, which no model here was trained on."""
    assert isinstance(task, GPTask)
    return {
        name: replace(task, bimodal=bimodal).test_sets()["delta-0.0"]
        for name, bimodal in (("uniform", False), ("bimodal", True))
    }


ABLATION = Experiment(
    name="ablation",
    title="Ablation: dynamically updating input locations",
    about=(
        "A TE-PT-TNP places its pseudo-tokens by attention (eq. 9) and moves all tokens (eq. 8). Without input"
        " adjustment they lie at the context's mean, each with an offset of its own, and stay there. Both models are"
        " trained on inputs from one interval and tested there and on inputs from two, far apart."
    ),
    tasks=("gp-1d",),
    # The paper's table "ablation-synthetic-1d".
    rows=(
        Row("te-pt-tnp-m32", "TE-PT-TNP-M32", "te-pt-tnp", {"pseudo": 32}, paper=((-0.44, 0.01), (-0.67, 0.01))),
        Row(
            "no-input-adjustment",
            "TE-PT-TNP-M32 no input adjustment",
            "te-pt-tnp",
            {"pseudo": 32, "initialiser": "mean", "location_update": False},
            paper=((-0.46, 0.01), (-0.76, 0.01)),
        ),
    ),
    main="te-pt-tnp-m32",
    columns=(Column("Uniform inputs", "gp-1d", "uniform"), Column("Bimodal inputs", "gp-1d", "bimodal")),
    presets=GP_1D.presets,
    test_sets=uniform_and_bimodal,
)
