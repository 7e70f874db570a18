"""Regression on Gaussian-process samples with shifted test inputs (the paper's synthetic 1-D regression).

    shiftnp train gp-1d                       # TE-TNP; --model all: every row of the table
    shiftnp train gp-1d --model all
    shiftnp report gp-1d
    shiftnp train gp-1d --preset paper        # 500,000 steps

The preset `laptop` trains models of `D_z` 32, 4 heads of 8 and 3 layers for 10,000 steps, on one thread of an idle AMD
EPYC with AVX-512 in 12 minutes (TE-TNP), 13 (TE-PT-TNP-M32), 6 to 8 (rotary kernel) or 3 (TNP); `te-tnp-rotary`, which
has the paper's size and 20,000 steps, takes 55. An older one with AVX2 takes two to four times as long (docs/results.md
has both for every row). At the paper's size: results/train-times.json. The paper: 19 hours for TE-TNP and 8 for TNP
on a GPU (500 epochs at the pace of its first 200).

Log-likelihood to expect at Delta = 0, nats per target: TE-TNP -0.47 ± 0.01 after 500,000 steps, in the paper; with the
preset `laptop` see results/runs/gp-1d. The paper's test tasks are not ours: on ours the best Gaussian prediction scores
-0.349 ± 0.013 (results/ceiling-gp-1d.json), so compare gaps to that ceiling, not scores.
"""

from __future__ import annotations

from shiftnp.experiments.base import Column, Experiment, Figures, Row
from shiftnp.experiments.presets import ROTARY_MUON, TORCH_INIT, laptop, paper

BAND = (0.2, 26.0)
"""Band of the rotary kernel: up to four oscillations in a unit, as the periodic functions of the task have."""

PERIOD_SEARCH = {"name": "rotary", "band": BAND, "period_search": 256, "period_span": 4.0}
"""The rotary kernel with period search; no training context is longer than 4, longer ones are searched in windows."""

PAPER_SIZE = {"dz": 128, "heads": 8, "head_dim": 16, "layers": 5}
LONG = {"optimiser": "adamw", "schedule": "cosine", "ema": None, "steps": 20_000, "warmup": 500, "valid_every": 2000}
"""Training of the rows of the paper's size in the preset `laptop`; the rest is as for the other rows."""


def same(mean: float, error: float) -> tuple[Figures, ...]:
    """The results of a translation-equivariant model, which are the same for every shift."""
    return ((mean, error),) * 6


GP_1D = Experiment(
    name="gp-1d",
    title="Synthetic 1-D regression",
    about=(
        "Samples of Gaussian processes with squared-exponential, periodic or Matern 5/2 kernel and random length-scale;"
        " 1 to 64 context points in [-2, 2], 128 targets in [-3, 3]. At test time all inputs are shifted by Delta,"
        " to which a translation-equivariant model is invariant."
    ),
    tasks=("gp-1d",),
    # The paper's table "1d-regression-results".
    rows=(
        Row(
            "tnp",
            "TNP",
            "tnp",
            paper=((-0.48, 0.00), (-0.48, 0.01), (-0.49, 0.01), (-0.50, 0.01), (-0.52, 0.01), (-0.57, 0.01)),
        ),
        Row(
            "pt-tnp-m8",
            "PT-TNP-M8",
            "pt-tnp",
            {"pseudo": 8},
            paper=((-0.52, 0.00), (-0.52, 0.01), (-0.56, 0.01), (-0.73, 0.01), (-0.76, 0.01), (-0.71, 0.01)),
        ),
        Row(
            "pt-tnp-m16",
            "PT-TNP-M16",
            "pt-tnp",
            {"pseudo": 16},
            paper=((-0.49, 0.00), (-0.50, 0.01), (-0.53, 0.01), (-0.57, 0.01), (-0.60, 0.01), (-0.64, 0.01)),
        ),
        Row(
            "pt-tnp-m32",
            "PT-TNP-M32",
            "pt-tnp",
            {"pseudo": 32},
            paper=((-0.48, 0.00), (-0.49, 0.01), (-0.52, 0.01), (-0.55, 0.01), (-0.59, 0.01), (-0.63, 0.01)),
        ),
        Row(
            "cnp",
            "CNP",
            "cnp",
            paper=((-0.69, 0.01), (-0.71, 0.01), (-0.77, 0.005), (-0.86, 0.01), (-0.98, 0.00), (-1.08, 0.00)),
        ),
        Row("rcnp", "RCNP", "rcnp", paper=same(-0.58, 0.01)),
        Row("convcnp", "ConvCNP", "convcnp", paper=same(-0.46, 0.01)),  # U-Net, 11 layers, C = 128: its defaults
        Row("te-tnp", "TE-TNP", "te-tnp", TORCH_INIT, paper=same(-0.47, 0.01)),
        Row("te-pt-tnp-m8", "TE-PT-TNP-M8", "te-pt-tnp", {"pseudo": 8, **TORCH_INIT}, paper=same(-0.50, 0.00)),
        Row("te-pt-tnp-m16", "TE-PT-TNP-M16", "te-pt-tnp", {"pseudo": 16, **TORCH_INIT}, paper=same(-0.50, 0.00)),
        Row("te-pt-tnp-m32", "TE-PT-TNP-M32", "te-pt-tnp", {"pseudo": 32, **TORCH_INIT}, paper=same(-0.46, 0.00)),
        # The same two with He initialisation of `rho`, which is not in the paper.
        Row("te-tnp-he", "TE-TNP, He initialisation", "te-tnp", {"kernel": "mlp"}, paper=(None,) * 6),
        Row(
            "te-pt-tnp-m32-he",
            "TE-PT-TNP-M32, He initialisation",
            "te-pt-tnp",
            {"pseudo": 32, "kernel": "mlp"},
            paper=(None,) * 6,
        ),
        # The rotary kernel is not in the paper. The first row has the paper's size, a period search and a longer
        # training; the second is its control; the last two have the size and training of the other rows.
        Row(
            "te-tnp-rotary",
            "TE-TNP, rotary kernel, period search",
            "te-tnp",
            {**PAPER_SIZE, "kernel": PERIOD_SEARCH, "location_update": False},
            paper=(None,) * 6,
            laptop=LONG,
        ),
        Row(
            "te-tnp-rotary-control",
            "TE-TNP, rotary kernel, no period search",
            "te-tnp",
            {**PAPER_SIZE, "kernel": {"name": "rotary", "band": BAND}, "location_update": False},
            paper=(None,) * 6,
            laptop=LONG,
        ),
        Row(
            "te-tnp-rotary-small",
            "TE-TNP, rotary kernel, small",
            "te-tnp",
            {"kernel": {"name": "rotary", "band": BAND}, "location_update": False},
            paper=(None,) * 6,
            laptop=ROTARY_MUON,
        ),
        Row(
            "te-pt-tnp-m32-rotary",
            "TE-PT-TNP-M32, rotary kernel",
            "te-pt-tnp",
            {"pseudo": 32, "kernel": {"name": "rotary", "band": BAND}},
            paper=(None,) * 6,
            laptop=ROTARY_MUON,
        ),
    ),
    main="te-tnp",
    columns=tuple(Column(f"Delta = {i / 5:.1f}", "gp-1d", f"delta-{i / 5:.1f}") for i in range(6)),
    presets={
        "laptop": laptop(
            steps=10_000,
            batch_size=16,  # the paper's
            valid_tasks=256,  # the whole validation set, whose ceiling comes with the package
            muon=True,
            task={"train_targets": 64},  # half of the paper's: 1.5 times as fast; test tasks have 128
            models={"convcnp": {"channels": 32, "layers": 11}},  # the paper's U-Net with a quarter of its channels
        ),
        "paper": paper({"dz": 128}),
    },
)
