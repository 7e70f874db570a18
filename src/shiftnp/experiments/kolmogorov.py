"""Velocities in turbulent flow from a few observations (the paper's Kolmogorov flow).

    shiftnp data kolmogorov --trajectories 64 --out DIR/kolmogorov    # the paper: 1024; then SHIFTNP_DATA=DIR
    shiftnp train kolmogorov                                          # TE-PT-TNP-M64; --model all: every row
    shiftnp train kolmogorov --model all
    shiftnp report kolmogorov
    shiftnp train kolmogorov --preset paper                           # 500,000 steps

CPU seconds of a training step on one thread of an AVX2 processor (two threads take about 0.6 of that), float32, batches
of 4, plain formula, means of three steps on a busy machine: TE-PT-TNP-M128 2.7 and M64 1.5 with 298 context points on
average (250 is usual), RCNP 0.9, PT-TNP-M128 0.15. A trajectory takes 11 s of two cores to generate. The multi-task GP
is not trained, but fitted to each test task.

Log-likelihood to expect, nats per target: TE-PT-TNP-M64 0.92 ± 0.03 with 819 trajectories to train on, in the paper;
that of the preset `laptop` is not measured yet, and depends on how many trajectories there are.
"""

from __future__ import annotations

from shiftnp.experiments.base import Column, Experiment, Preset, Row
from shiftnp.runs.config import Training

MODEL = {"dz": 32}  # the paper's; heads and layers are those of 1-D, the defaults

KOLMOGOROV = Experiment(
    name="kolmogorov",
    title="Kolmogorov flow",
    about=(
        "Two-dimensional turbulence driven by a periodic force: velocities in blocks of 16 x 16 x 16 points of time and"
        " space. 1 to 500 points are context, all others targets."
    ),
    tasks=("kolmogorov",),
    # The paper's table "kolmogorov". It trained RCNP and TE-PT-TNP with batches of 8, the others with 16.
    rows=(
        # The paper excludes "extreme values" of this baseline; here they are included.
        Row("multi-task-gp", "Multi-task GP", "multi-task-gp", paper=((0.48, 0.02),)),
        Row("cnp", "CNP", "cnp", paper=((-0.97, 0.01),)),
        Row("rcnp", "RCNP", "rcnp", paper=((0.16, 0.02),), paper_batch=8),
        Row("pt-tnp-m64", "PT-TNP-M64", "pt-tnp", {"pseudo": 64}, paper=((0.63, 0.003),)),
        Row("pt-tnp-m128", "PT-TNP-M128", "pt-tnp", {"pseudo": 128}, paper=((0.74, 0.03),)),
        Row("te-pt-tnp-m64", "TE-PT-TNP-M64", "te-pt-tnp", {"pseudo": 64}, paper=((0.92, 0.03),), paper_batch=8),
        Row("te-pt-tnp-m128", "TE-PT-TNP-M128", "te-pt-tnp", {"pseudo": 128}, paper=((0.90, 0.03),), paper_batch=8),
    ),
    main="te-pt-tnp-m64",  # the best of the paper's table
    columns=(Column("Kolmogorov flow", "kolmogorov", "test"),),
    presets={
        "laptop": Preset(
            Training(
                # TE-PT-TNP-M128 is slowest, 1.4 s a step on two cores. With an attention 1.5 times as fast as the plain
                # formula 2000 steps take half an hour.
                steps=2000,
                batch_size=4,  # a quarter of the paper's, so that there are enough steps
                learning_rate=5e-4,  # the paper's
                clip=0.5,  # the paper's
                schedule="cosine",  # better than a constant rate in a short run
                warmup=100,  # 5 % of the steps
                precision="float32",  # bfloat16 is ten times slower on a CPU that emulates it
                valid_every=500,
                # Whole crops, without gradients: each costs half a step of TE-PT-TNP and 1.3 of RCNP, so that four
                # validations are 3 to 8 % of a run.
                valid_tasks=32,
            ),
            model=MODEL,
            # The paper trains on all remaining points, up to 4095. A random subset gives an unbiased gradient, and the
            # cost of RCNP is proportional to it. Validation and test crops always have all their points.
            task={"targets": 256},
        ),
        "paper": Preset(
            Training(
                steps=500_000,  # 500 epochs of 1,000 steps, as in 1-D; its "10,000 iterations" is taken for a misprint
                batch_size=16,  # 8 for some rows, see above
                learning_rate=5e-4,
                clip=0.5,
                schedule="constant",  # the paper mentions no schedule and no warm-up
                valid_every=1000,  # once an epoch
                valid_tasks=128,  # all there are
            ),
            model=MODEL,
        ),
    },
)
