"""Completion of translated images from a few pixels (the paper's image completion).

    shiftnp train image-completion --task t-mnist          # TE-PT-TNP-M128; --model all: every row, on both tasks
    shiftnp train image-completion --model all
    shiftnp report image-completion
    shiftnp train image-completion --preset paper          # 500,000 steps

CPU seconds of a training step on one thread of an AVX2 processor (two threads take about 0.6 of that), float32, batches
of 4, plain formula, means of three steps on a busy machine: TE-PT-TNP-M128 7.1 and M64 2.9 with 677 context pixels on
average (540 is usual), ConvCNP 3.2, RCNP 0.4, PT-TNP-M128 0.3 on T-MNIST; T-CIFAR10 has 1.3 times as many pixels.
Images are downloaded, or found through SHIFTNP_DATA.

Log-likelihood to expect, nats per pixel: TE-PT-TNP-M128 1.25 ± 0.03 on T-MNIST and 1.51 ± 0.02 on T-CIFAR10, in the
paper; those of the preset `laptop` are not measured yet.
"""

from __future__ import annotations

from typing import Any

from shiftnp.experiments.base import Column, Experiment, Preset, Row
from shiftnp.runs.config import Training
from shiftnp.tasks import ImageTask, Task


def on_grid(task: Task) -> dict[str, Any]:
    """Settings of a ConvCNP whose grid cells are the pixels: the paper's layers and channels, the 1-D kernel size."""
    assert isinstance(task, ImageTask)
    return {"on_grid": True, "points_per_unit": 1 / task.pitch, "net": "cnn", "layers": 5, "channels": 64}


# Heads are the default, 8 of size 16: the paper changes only D_z, "relatively small due to the limitations of the
# hardware". A homoscedastic likelihood "significantly improves training stability".
MODEL = {"dz": 32, "likelihood": "homoscedastic"}

IMAGE_COMPLETION = Experiment(
    name="image-completion",
    title="Image completion",
    about=(
        "MNIST on a canvas of 56 x 56 and CIFAR-10 on one of 64 x 64 pixels, each image at a random position;"
        " between a hundredth and a third of all pixels are context, the others targets."
        " Equivariance is not needed here, as translations can be learned from the data, but it helps."
    ),
    tasks=("t-mnist", "t-cifar10"),
    # The paper's table "image-completion". It trained RCNP and TE-PT-TNP with batches of 8, the others with 16.
    rows=(
        Row("cnp", "CNP", "cnp", paper=((0.64, 0.00), (0.72, 0.00))),
        Row("rcnp", "RCNP", "rcnp", paper=((1.04, 0.02), (1.19, 0.02)), paper_batch=8),
        Row("convcnp", "ConvCNP", "convcnp", on_grid, paper=((1.20, 0.02), (1.44, 0.02))),
        Row("pt-tnp-m64", "PT-TNP-M64", "pt-tnp", {"pseudo": 64}, paper=((1.14, 0.02), (1.43, 0.01))),
        Row("pt-tnp-m128", "PT-TNP-M128", "pt-tnp", {"pseudo": 128}, paper=((1.14, 0.02), (1.46, 0.02))),
        Row(
            "te-pt-tnp-m64",
            "TE-PT-TNP-M64",
            "te-pt-tnp",
            {"pseudo": 64},
            paper=((1.18, 0.03), (1.50, 0.02)),
            paper_batch=8,
        ),
        Row(
            "te-pt-tnp-m128",
            "TE-PT-TNP-M128",
            "te-pt-tnp",
            {"pseudo": 128},
            paper=((1.25, 0.03), (1.51, 0.02)),
            paper_batch=8,
        ),
    ),
    main="te-pt-tnp-m128",
    columns=(Column("T-MNIST", "t-mnist", "test"), Column("T-CIFAR10", "t-cifar10", "test")),
    presets={
        "laptop": Preset(
            Training(
                # TE-PT-TNP-M128 and ConvCNP are slowest, about 3.5 and 1.9 s a step on two cores. With an attention 1.5
                # times as fast as the plain formula 1000 steps take 40 minutes on T-MNIST and 50 on T-CIFAR10.
                steps=1000,
                batch_size=4,  # a quarter of the paper's, so that there are enough steps
                learning_rate=5e-4,  # the paper's
                clip=0.5,  # the paper's
                schedule="cosine",  # better than a constant rate in a short run
                warmup=50,  # 5 % of the steps
                precision="float32",  # bfloat16 is ten times slower on a CPU that emulates it
                valid_every=250,
                # Two batches of whole images, without gradients. Each image costs a quarter of a step of TE-PT-TNP and
                # 1.7 of RCNP: four validations are 3 % of the longest run, and a fifth of RCNP's, which is short.
                valid_tasks=32,
            ),
            model=MODEL,
            # The paper trains on all pixels that are not context. A random subset gives an unbiased gradient, and the
            # cost of RCNP is proportional to it. Validation and test images always have all their pixels.
            task={"targets": 128},
        ),
        "paper": Preset(
            Training(
                steps=500_000,  # 500 epochs of 1,000 iterations
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
