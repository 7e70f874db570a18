"""A training step of our ConvCNP beside that of neuralprocesses, which DeepSensor trains, too.

    pip install neuralprocesses
    OMP_NUM_THREADS=1 python benchmarks/convcnp_step.py      # writes results/convcnp-step.json

Both have a U-Net of six resolutions with 64 channels and kernels of 9 points, 64 points per unit, a margin of 0.1 and a
Gaussian likelihood, and take the same batches: 16 tasks with 64 context points and 128 targets, inputs in [-2, 2]. A
step is forward, backward and Adam, in float32 on one thread. Steps of the two models alternate. Seconds are CPU time,
because a busy machine does not change them much.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._machine import commit, machine
from shiftnp.models import MODELS

ROOT = Path(__file__).parent.parent
TASKS, CONTEXT, TARGETS, STEPS, SEED = 16, 64, 128, 20, 0
CHANNELS, LEVELS, KERNEL, POINTS_PER_UNIT, MARGIN = 64, 6, 9, 64, 0.1
Loss = Callable[[], Tensor]


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Context and targets `[tasks, points, 1]`; what is observed does not matter for the time."""
    x = torch.rand(TASKS, CONTEXT + TARGETS, 1) * 4 - 2
    y = torch.sin(3 * x) + 0.1 * torch.randn_like(x)
    return x[:, :CONTEXT], y[:, :CONTEXT], x[:, CONTEXT:], y[:, CONTEXT:]


def ours() -> tuple[torch.nn.Module, Loss]:
    """Our ConvCNP and its loss on a new batch."""
    model = MODELS["convcnp"](
        dx=1,
        dy=1,
        channels=CHANNELS,
        layers=2 * LEVELS - 1,
        kernel_size=KERNEL,
        points_per_unit=POINTS_PER_UNIT,
        margin=MARGIN,
    )

    def loss() -> Tensor:
        xc, yc, xt, yt = batch()
        return -model(xc, yc, xt).log_prob(yt).mean()

    return model, loss


def theirs() -> tuple[torch.nn.Module, Loss]:
    """The ConvCNP of neuralprocesses and its loss on a new batch."""
    import neuralprocesses.torch as nps

    model = nps.construct_convgnp(
        dim_x=1,
        dim_y=1,
        likelihood="het",
        unet_channels=(CHANNELS,) * LEVELS,
        unet_kernels=KERNEL,
        points_per_unit=POINTS_PER_UNIT,
        margin=MARGIN,
        dtype=torch.float32,
    )

    def loss() -> Tensor:
        xc, yc, xt, yt = (t.mT for t in batch())
        return -nps.loglik(model, xc, yc, xt, yt, normalise=True).mean()

    loss()  # parameters are made in the first call
    return model, loss


def main() -> None:
    """Measures and writes."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rows: dict[str, Any] = {}
    for name, (model, loss) in {"shiftnp": ours(), "neuralprocesses": theirs()}.items():
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        rows[name] = (model, loss, optimiser, [])
    for _ in range(STEPS + 1):
        for _, loss, optimiser, seconds in rows.values():
            start = time.process_time()
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()
            seconds.append(time.process_time() - start)
    result = {
        "what": f"CPU seconds of a training step of a ConvCNP, {TASKS} tasks, median of {STEPS} steps, one thread",
        "command": "OMP_NUM_THREADS=1 python benchmarks/convcnp_step.py",
        "seed": SEED,
        "commit": commit(),
        "machine": machine(),
        "neuralprocesses": version("neuralprocesses"),
        "models": {
            name: {"seconds": median(seconds[1:]), "parameters": sum(p.numel() for p in model.parameters())}
            for name, (model, _, _, seconds) in rows.items()
        },
    }
    print(result["models"])
    write_json(ROOT / "results/convcnp-step.json", result)


if __name__ == "__main__":
    main()
