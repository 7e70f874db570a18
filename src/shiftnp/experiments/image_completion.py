"""Completion of translated images from a few pixels (the paper's image completion).

    shiftnp train image-completion --task t-mnist          # TE-PT-TNP-M128; --model all: every row, on both tasks
    shiftnp train image-completion --model all
    shiftnp report image-completion
    shiftnp train image-completion --preset paper          # 500,000 steps

One thread of an idle AMD EPYC with AVX-512, preset `laptop` on T-MNIST: 5,000 steps take 10 minutes for TE-PT-TNP-M32,
8 for M128 with the rotary kernel, 7 for RCNP, 4 for ConvCNP and 3 for PT-TNP-M128 (docs/results.md), and on T-CIFAR10
13 for TE-PT-TNP-M32. Images are downloaded, or found through SHIFTNP_DATA.

Log-likelihood to expect, nats per pixel: TE-PT-TNP-M128 1.25 ± 0.03 on T-MNIST and 1.51 ± 0.02 on T-CIFAR10, in the
paper; with the preset `laptop` 0.80 of M32 and 0.94 of M128 with the rotary kernel on T-MNIST, and 3.11 and 3.45 on
T-CIFAR10, where the three colours are added.
"""

from __future__ import annotations

from typing import Any

from shiftnp.experiments.base import Column, Experiment, Row
from shiftnp.experiments.presets import ROTARY_MUON, TORCH_INIT, laptop, paper
from shiftnp.tasks import ImageTask, Task


def on_grid(task: Task) -> dict[str, Any]:
    """Settings of a ConvCNP whose grid cells are the pixels, with the kernel size of 1-D."""
    assert isinstance(task, ImageTask)
    return {"on_grid": True, "points_per_unit": 1 / task.pitch, "net": "cnn"}


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
        Row(
            "convcnp",
            "ConvCNP",
            "convcnp",
            on_grid,
            paper=((1.20, 0.02), (1.44, 0.02)),
            laptop={"learning_rate": 3e-4},  # at 1e-3 its ReLUs die while the noise of the likelihood falls
        ),
        # The rows with M = 32, with He initialisation and with the rotary kernel are not in the paper.
        Row("pt-tnp-m32", "PT-TNP-M32", "pt-tnp", {"pseudo": 32}, paper=(None,) * 2),
        Row("te-pt-tnp-m32", "TE-PT-TNP-M32", "te-pt-tnp", {"pseudo": 32, **TORCH_INIT}, paper=(None,) * 2),
        Row(
            "te-pt-tnp-m32-he",
            "TE-PT-TNP-M32, He initialisation",
            "te-pt-tnp",
            {"pseudo": 32, "kernel": "mlp"},
            paper=(None,) * 2,
        ),
        Row("pt-tnp-m64", "PT-TNP-M64", "pt-tnp", {"pseudo": 64}, paper=((1.14, 0.02), (1.43, 0.01))),
        Row("pt-tnp-m128", "PT-TNP-M128", "pt-tnp", {"pseudo": 128}, paper=((1.14, 0.02), (1.46, 0.02))),
        Row(
            "te-pt-tnp-m64",
            "TE-PT-TNP-M64",
            "te-pt-tnp",
            {"pseudo": 64, **TORCH_INIT},
            paper=((1.18, 0.03), (1.50, 0.02)),
            paper_batch=8,
        ),
        Row(
            "te-pt-tnp-m128",
            "TE-PT-TNP-M128",
            "te-pt-tnp",
            {"pseudo": 128, **TORCH_INIT},
            paper=((1.25, 0.03), (1.51, 0.02)),
            paper_batch=8,
        ),
        Row(
            "te-pt-tnp-m128-rotary",
            "TE-PT-TNP-M128, rotary kernel",
            "te-pt-tnp",
            {"pseudo": 128, "kernel": "rotary"},
            paper=(None,) * 2,
            laptop=ROTARY_MUON,
        ),
    ),
    main="te-pt-tnp-m128",
    columns=(Column("T-MNIST", "t-mnist", "test"), Column("T-CIFAR10", "t-cifar10", "test")),
    # A homoscedastic likelihood "significantly improves training stability" (the paper).
    presets={
        "laptop": laptop(
            steps=5_000,
            batch_size=3,  # less than a quarter of the paper's, so that there are enough steps
            valid_tasks=256,  # whole images; with 32 a change of the score by 0.01 is noise
            muon=True,
            model={"likelihood": "homoscedastic"},
            # The paper trains on all pixels that are not context. A random subset gives an unbiased gradient, and the
            # cost of RCNP is proportional to it. Validation and test images always have all their pixels.
            task={"targets": 64},
            models={"convcnp": {"channels": 16, "layers": 5}},
        ),
        "paper": paper({"dz": 32, "likelihood": "homoscedastic"}, models={"convcnp": {"channels": 64, "layers": 5}}),
    },
)
