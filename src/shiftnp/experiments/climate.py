"""Temperatures over Europe, also in regions outside the training data (the paper's environmental data).

    shiftnp train climate                     # TE-PT-TNP; --model all: every row. Files: climate/ in SHIFTNP_DATA,
    shiftnp train climate --model all         # or task.path="FILES"
    shiftnp report climate
    shiftnp train climate --preset paper      # 500,000 steps

CPU seconds of a training step on one thread of an AVX2 processor (two threads take about 0.6 of that), float32, batches
of 4, plain formula, means of three steps on a busy machine: TE-PT-TNP 5.9, RCNP 1.2 and PT-TNP 0.3 with 240 context
points and 890 targets on average. The GP is not trained, but fitted to each test task.

Log-likelihood to expect, nats per target: TE-PT-TNP 1.35 ± 0.01 in central, 1.27 ± 0.01 in western and 1.44 ± 0.01 in
northern Europe, in the paper, on hourly ERA5-derived data of 2019. That file needs an account at the Copernicus store;
on other files (monthly means, for instance) scores are not comparable. None are measured here yet.
"""

from __future__ import annotations

from shiftnp.experiments.base import Column, Experiment, Preset, Row
from shiftnp.runs.config import Training

MODEL = {"dz": 32}  # the paper's; heads and layers are those of 1-D, the defaults

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
        Row("pt-tnp", "PT-TNP", "pt-tnp", {"pseudo": 128}, paper=((0.73, 0.01), (-0.40, 0.01), (-0.19, 0.00))),
        Row(
            "te-pt-tnp",
            "TE-PT-TNP",
            "te-pt-tnp",
            {"pseudo": 128},
            paper=((1.35, 0.01), (1.27, 0.01), (1.44, 0.01)),
            paper_batch=8,
        ),
    ),
    main="te-pt-tnp",
    columns=(
        Column("C. Europe", "climate", "central"),
        Column("W. Europe", "climate", "west"),
        Column("N. Europe", "climate", "north"),
    ),
    presets={
        "laptop": Preset(
            Training(
                # TE-PT-TNP is slowest, about 3.5 s a step on two cores. With an attention 1.5 times as fast as the
                # plain formula 1000 steps take 40 minutes.
                steps=1000,
                batch_size=4,  # a quarter of the paper's, so that there are enough steps
                learning_rate=5e-4,  # the paper's
                clip=0.5,  # the paper's
                schedule="cosine",  # better than a constant rate in a short run
                warmup=50,  # 5 % of the steps
                precision="float32",  # bfloat16 is ten times slower on a CPU that emulates it
                valid_every=250,
                valid_tasks=64,  # without gradients 16 tasks cost about as much as a step and a half: 4 x 64 are 2 %
            ),
            model=MODEL,
        ),
        "paper": Preset(
            Training(
                steps=500_000,  # 500 epochs of 1,000 steps, as in 1-D; its "10,000 iterations" is taken for a misprint
                batch_size=16,  # 8 for some rows, see above
                learning_rate=5e-4,
                clip=0.5,
                schedule="constant",  # the paper mentions no schedule and no warm-up
                valid_every=1000,  # once an epoch
            ),
            model=MODEL,
        ),
    },
)
