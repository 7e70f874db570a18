"""A training step on stations in the plane: DeepSensor's ConvCNP beside our ConvCNP and our rotary TE-TNP.

    pip install deepsensor
    OMP_NUM_THREADS=1 python benchmarks/deepsensor_step.py      # writes results/deepsensor-step.json

16 tasks with 64 stations as context and 128 as targets in the unit square. Both ConvCNPs have a U-Net of four
resolutions with 64 channels and kernels of 5 x 5 points, 64 points per unit and a margin of 0.1; ours convolves before
it pools, theirs has strides. The TE-TNP has the paper's size. A step is forward, backward and Adam for all tasks at
once, in float32 on one thread; steps of the models alternate. Seconds are CPU time, because a busy machine does not
change them much.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from shiftnp._io import write_json
from shiftnp._machine import commit, machine
from shiftnp.models import MODELS

ROOT = Path(__file__).parent.parent
TASKS, CONTEXT, TARGETS, STEPS, SEED = 16, 64, 128, 5, 0
CHANNELS, LEVELS, KERNEL, DENSITY = 64, 4, 5, 64
MARGIN = 0.1  # that of DeepSensor
Step = Callable[[], object]


def stations() -> tuple[np.ndarray, np.ndarray]:
    """Places `[points, 2]` and readings `[tasks, points]`; what is observed does not matter for the time."""
    rng = np.random.default_rng(SEED)
    x = rng.uniform(size=(CONTEXT + TARGETS, 2))
    return x, np.sin(6 * x[:, 0] + np.arange(TASKS)[:, None]) * np.cos(5 * x[:, 1])


def deepsensor() -> tuple[nn.Module, Step]:
    """DeepSensor's model and a training step with its own trainer."""
    import deepsensor.torch  # noqa: F401
    import pandas as pd
    from deepsensor.data import DataProcessor, TaskLoader
    from deepsensor.model import ConvNP
    from deepsensor.train import Trainer

    (x, y), days = stations(), pd.date_range("2020-01-01", periods=TASKS)
    index = pd.MultiIndex.from_tuples([(day, *at) for day in days for at in x], names=["time", "x1", "x2"])
    processor = DataProcessor(x1_map=(0, 1), x2_map=(0, 1))
    data: Any = processor(pd.DataFrame({"reading": y.ravel()}, index=index))
    loader = TaskLoader(context=data, target=data, links=[(0, 0)])
    split = {"context_sampling": "split", "target_sampling": "split", "split_frac": CONTEXT / (CONTEXT + TARGETS)}
    tasks = [loader(day, **split, seed_override=i) for i, day in enumerate(days)]
    size = {
        "unet_channels": (CHANNELS,) * LEVELS,
        "unet_kernels": KERNEL,
        "internal_density": DENSITY,
    }
    model = ConvNP(processor, loader, likelihood="het", verbose=False, **size)
    trainer = Trainer(model, lr=1e-3)
    return model.model, lambda: trainer(tasks, batch_size=TASKS)


def ours(name: str, **settings: Any) -> tuple[nn.Module, Step]:
    """A model of ours and a training step."""
    model = MODELS[name](dx=2, dy=1, **settings)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = stations()
    xs, ys = (torch.tensor(a, dtype=torch.float32) for a in (np.broadcast_to(x, (TASKS, *x.shape)), y[..., None]))

    def step() -> None:
        optimiser.zero_grad()
        dist = model(xs[:, :CONTEXT], ys[:, :CONTEXT], xs[:, CONTEXT:])
        (-dist.log_prob(ys[:, CONTEXT:]).mean()).backward()
        optimiser.step()

    return model, step


def main() -> None:
    """Measures and writes."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    unet = {"channels": CHANNELS, "layers": 2 * LEVELS - 1, "kernel_size": KERNEL}
    lattice = {"points_per_unit": DENSITY, "margin": MARGIN}
    models = {
        "DeepSensor, ConvCNP": deepsensor(),
        "shiftnp, ConvCNP": ours("convcnp", **unet, **lattice),
        "shiftnp, TE-TNP, rotary": ours("te-tnp", kernel="rotary", location_update=False),
    }
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(STEPS + 1):
        for name, (_, step) in models.items():
            start = time.process_time()
            step()
            seconds[name].append(time.process_time() - start)
    result = {
        "what": f"CPU seconds of a training step, {TASKS} tasks, two inputs, median of {STEPS} steps, one thread",
        "command": "OMP_NUM_THREADS=1 python benchmarks/deepsensor_step.py",
        "seed": SEED,
        "commit": commit(),
        "machine": machine(),
        "versions": {name: version(name) for name in ("deepsensor", "neuralprocesses")},
        "models": {
            name: {"seconds": median(seconds[name][1:]), "parameters": sum(p.numel() for p in model.parameters())}
            for name, (model, _) in models.items()
        },
    }
    print(result["models"])
    write_json(ROOT / "results/deepsensor-step.json", result)


if __name__ == "__main__":
    main()
