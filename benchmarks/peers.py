"""Regressor beside what one would fit instead: CPU seconds of fit and predict, and errors, from 100 to 20,000 points.

    OMP_NUM_THREADS=1 python benchmarks/peers.py      # writes results/peers.json

Noisy observations of a smooth function of two inputs, 200 targets, one thread. `SingleGP` is exact (gpytorch, Matern
5/2, L-BFGS, float64): three starts up to 1,000 observations, one start and 30 steps with 3,000; beyond that it is not
run. With 20,000 observations a sparse variational process takes its place (SVGP of gpytorch: 256 inducing points,
batches of 1,024, 200 steps of Adam). Seconds are CPU time, because a busy machine does not change them much. Errors are
of the predicted means against the function without noise, and of the standard deviations in nats.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftnp import Regressor
from shiftnp._io import write_json
from shiftnp._machine import commit, machine
from shiftnp.baselines.gp import import_gpytorch
from shiftnp.baselines.single import SingleGP

ROOT = Path(__file__).parent.parent
SIZES, TARGETS, SEED, NOISE = (100, 300, 1000, 3000, 20_000), 200, 0, 0.1
INDUCING, BATCH, STEPS, RATE = 256, 1024, 200, 0.05
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def function(x: np.ndarray) -> np.ndarray:
    """What is to be predicted."""
    return np.sin(x[:, 0]) * np.cos(x[:, 1])


def observations(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs and targets."""
    rng = np.random.default_rng(SEED)
    x = rng.uniform(0, 10, size=(n, 2))
    return x, function(x) + NOISE * rng.normal(size=n), rng.uniform(0, 10, size=(TARGETS, 2))


def regressor(x: np.ndarray, y: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of new observations by the pretrained model."""
    return Regressor().fit(x, y).predict(targets, return_std=True)


def exact(x: np.ndarray, y: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by a fitted exact Gaussian process."""
    return (SingleGP() if len(x) <= 1000 else SingleGP(starts=1, iterations=30)).predict(x, y, targets)


def variational(x: np.ndarray, y: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by a sparse variational Gaussian process."""
    gpytorch = import_gpytorch()
    g = torch.Generator().manual_seed(SEED)
    inputs, outputs, at = (torch.from_numpy(a).float() for a in (x, y, targets))

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self, inducing: torch.Tensor) -> None:
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, distribution))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2))

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    process = Process(inputs[torch.randperm(len(inputs), generator=g)[:INDUCING]].clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, process, num_data=len(inputs))
    optimiser = torch.optim.Adam([*process.parameters(), *likelihood.parameters()], lr=RATE)
    for _ in range(STEPS):
        rows = torch.randint(len(inputs), (BATCH,), generator=g)
        optimiser.zero_grad()
        (-bound(process(inputs[rows]), outputs[rows])).backward()
        optimiser.step()
    process.eval(), likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(process(at))
    return predicted.mean.numpy(), predicted.variance.sqrt().numpy()


def measure(predict: Predict, n: int) -> dict[str, float]:
    """CPU seconds and errors of one method."""
    x, y, targets = observations(n)
    start = time.process_time()
    mean, std = predict(x, y, targets)
    seconds = time.process_time() - start
    truth = function(targets)
    excess = 0.5 * ((mean - truth) ** 2 + NOISE**2) / std**2 + np.log(std) - 0.5 - math.log(NOISE)
    rmse = float(np.sqrt(np.mean((mean - truth) ** 2)))
    return {
        "seconds": round(seconds, 2),
        "rmse": round(rmse, 4),
        "nats above the noise": round(float(excess.mean()), 4),
    }


def main() -> None:
    """Measures and writes."""
    torch.set_num_threads(1)
    regressor(*observations(100))  # loads the weights
    sizes: dict[str, Any] = {}
    for n in SIZES:
        rows: dict[str, Predict] = {"regressor": regressor}
        rows |= {"exact GP": exact} if n <= 3000 else {"variational GP": variational}
        sizes[str(n)] = {name: measure(predict, n) for name, predict in rows.items()}
        print(n, sizes[str(n)], flush=True)
    result = {
        "what": f"CPU seconds of fit and predict at {TARGETS} targets, two inputs, one thread, and errors",
        "command": f"OMP_NUM_THREADS=1 python benchmarks/{Path(sys.argv[0]).name}",
        "seed": SEED,
        "commit": commit(),
        "machine": machine(),
        "observations": sizes,
    }
    write_json(ROOT / "results/peers.json", result)


if __name__ == "__main__":
    main()
