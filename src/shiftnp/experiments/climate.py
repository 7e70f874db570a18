"""Temperatures over Europe, also in regions outside the training data (the paper's environmental data).

    shiftnp train climate                     # TE-PT-TNP; --model all: every row. Files: climate/ in SHIFTNP_DATA,
    shiftnp train climate --model all         # or task.path="FILES"
    shiftnp report climate
    shiftnp train climate --preset paper      # 500,000 steps

One thread of an idle AMD EPYC with AVX-512, preset `laptop`: 8,000 steps take 11 minutes for TE-PT-TNP-M32 and for
M128 with the rotary kernel, 10 for RCNP and 2 to 3 for PT-TNP; an older processor with AVX2 takes two to three times as
long (docs/results.md). The GP is not trained, but fitted to each test task.

Log-likelihood to expect, nats per target: TE-PT-TNP 1.35 ± 0.01 in central, 1.27 ± 0.01 in western and 1.44 ± 0.01 in
northern Europe, in the paper, on hourly ERA5-derived data of 2019. That file needs an account at the Copernicus store;
on other files scores are not comparable. On monthly means, with the preset `laptop`: results/climate.
"""

from __future__ import annotations

from shiftnp.experiments.base import Column, Experiment, Row
from shiftnp.experiments.presets import ROTARY_MUON, TORCH_INIT, laptop, paper

CLIMATE = Experiment(
    name="climate",
    title="Environmental data",
    about=(
        "Surface temperature over latitude, longitude, time and elevation, in crops of 15 x 15 points and 5 times;"
        " between a hundredth and a third of a crop's points are context, all others targets. Models are trained in"
        " central Europe and tested there, in western and in northern Europe."
    ),
    tasks=("climate",),
    # The paper's table "cru-tair". It trained RCNP and TE-PT-TNP with batches of 8, the others with 16. Its section on
    # this experiment gives M = 128 for both models with pseudo-tokens.
    rows=(
        Row("gp", "GP", "gp", paper=((0.90, 0.01), (1.22, 0.01), (1.02, 0.01))),
        Row("cnp", "CNP", "cnp", paper=((0.36, 0.00), (-5.70, 0.05), (-1.64, 0.02))),
        Row("rcnp", "RCNP", "rcnp", paper=((0.96, 0.01), (-0.09, 0.04), (0.34, 0.01)), paper_batch=8),
        # The rows with M = 32, with He initialisation and with the rotary kernel are not in the paper.
        Row("pt-tnp-m32", "PT-TNP-M32", "pt-tnp", {"pseudo": 32}, paper=(None,) * 3),
        Row("te-pt-tnp-m32", "TE-PT-TNP-M32", "te-pt-tnp", {"pseudo": 32, **TORCH_INIT}, paper=(None,) * 3),
        Row(
            "te-pt-tnp-m32-he",
            "TE-PT-TNP-M32, He initialisation",
            "te-pt-tnp",
            {"pseudo": 32, "kernel": "mlp"},
            paper=(None,) * 3,
        ),
        Row("pt-tnp", "PT-TNP", "pt-tnp", {"pseudo": 128}, paper=((0.73, 0.01), (-0.40, 0.01), (-0.19, 0.00))),
        Row(
            "te-pt-tnp",
            "TE-PT-TNP",
            "te-pt-tnp",
            {"pseudo": 128, **TORCH_INIT},
            paper=((1.35, 0.01), (1.27, 0.01), (1.44, 0.01)),
            paper_batch=8,
        ),
        Row(
            "te-pt-tnp-rotary",
            "TE-PT-TNP, rotary kernel",
            "te-pt-tnp",
            {"pseudo": 128, "kernel": "rotary"},
            paper=(None,) * 3,
            laptop=ROTARY_MUON,
        ),
    ),
    main="te-pt-tnp",
    columns=(
        Column("C. Europe", "climate", "central"),
        Column("W. Europe", "climate", "west"),
        Column("N. Europe", "climate", "north"),
    ),
    presets={
        # A batch is a quarter of the paper's, so that there are enough steps. Time is relative to the crop, because the
        # data at hand are monthly means of 41 years, of which the 5 months of a crop are hardly a hundredth.
        # With AdamW TE-PT-TNP-M32 reached 1.09 in validation after 15,000 steps, with Muon 1.28 after 8,000.
        "laptop": laptop(
            steps=8_000,
            batch_size=4,
            valid_tasks=64,
            muon=True,
            task={"targets": 128, "relative_time": True},
        ),
        "paper": paper({"dz": 32}),
    },
)
