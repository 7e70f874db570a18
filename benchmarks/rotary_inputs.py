"""The rotary kernel with two and three inputs, with and without period search.

    python benchmarks/rotary_inputs.py

Small models are trained on Gaussian processes without a period (squared-exponential and Matern 5/2 kernels), and on the
same and functions that are periodic along each input, a third of the tasks. The search has nothing to find in the
former: what it costs is the difference between the two rotary models, on the same 256 tasks that are not in training.
Writes results/rotary-inputs.json. About forty minutes of one core.
"""

from __future__ import annotations

import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import torch

from shiftnp._machine import machine
from shiftnp.metrics import log_likelihood
from shiftnp.models import NeuralProcess
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.run import Run
from shiftnp.runs.train import train
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask

SIZE = {"dz": 32, "heads": 4, "head_dim": 8, "layers": 3}
SEARCH = {"name": "rotary", "period_search": 256}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "TNP": ("tnp", SIZE),
    "TE-TNP, rotary": ("te-tnp", {**SIZE, "kernel": "rotary", "location_update": False}),
    "TE-TNP, rotary, period search": ("te-tnp", {**SIZE, "kernel": SEARCH, "location_update": False}),
}
TRAINING = Training(steps=2000, learning_rate=1e-3, schedule="cosine", warmup=100, valid_every=1000, valid_tasks=64)
TASKS = 256
KERNELS = {"no period": ("se", "matern52"), "a third periodic": ("se", "periodic", "matern52")}


def trained(kind: str, settings: dict[str, Any], task: dict[str, Any]) -> NeuralProcess:
    """A trained model."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder), RunConfig(kind, "gp-1d", TRAINING, settings, task))
        train(run, gap=False)
        return run.model()


@torch.no_grad()
def scores(model: NeuralProcess, task: dict[str, Any]) -> torch.Tensor:
    """Log-likelihood per target of each test task."""
    test = GPTask(**task)
    batches = [test.sample(16, generator_for(1, i)) for i in range(TASKS // 16)]
    return torch.cat([log_likelihood(model(b.xc, b.yc, b.xt, b.mask_c), b.yt) for b in batches])


def main() -> None:
    """Runs the benchmark and writes its results."""
    found: dict[str, Any] = {functions: {} for functions in KERNELS}
    for functions, dx in product(KERNELS, (2, 3)):
        task = {"dx": dx, "kernels": KERNELS[functions], "train_targets": 64}
        of_models = {name: scores(trained(*arguments, task), task) for name, arguments in MODELS.items()}
        plain, search = (of_models[name] for name in list(MODELS)[1:])
        rows = {name: summary(values) for name, values in of_models.items()}
        found[functions][str(dx)] = {**rows, "gain by the search": summary(search - plain)}
        print(functions, dx, found[functions][str(dx)], flush=True)
    result = {
        "what": "log-likelihood per target, mean and standard error over tasks, by functions and number of inputs",
        "command": "python benchmarks/rotary_inputs.py",
        "seed": TRAINING.seed,
        "training": {"steps": TRAINING.steps, "kernels": KERNELS, "size": SIZE},
        "tasks": TASKS,
        "machine": machine(),
        "scores": found,
    }
    out = Path(__file__).parent.parent / "results/rotary-inputs.json"
    out.write_text(json.dumps(result, indent=2) + "\n")


def summary(values: torch.Tensor) -> list[float]:
    """Mean and standard error."""
    return [float(values.mean()), float(values.std() / len(values) ** 0.5)]


if __name__ == "__main__":
    main()
