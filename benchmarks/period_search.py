"""Does the period search only fit gp-1d? Runs with and without it, on functions of many kinds.

    shiftnp train gp-1d --model te-tnp-rotary --seed 0            # and seeds 1 and 2
    shiftnp train gp-1d --model te-tnp-rotary-control --seed 0    # the same without period search
    python benchmarks/period_search.py runs/gp-1d/te-tnp-rotary-*

Writes results/period-search.json: the gap to the best possible Gaussian by kernel on the 1,024 test tasks of gp-1d, and
log-likelihoods on functions that are not in gp-1d, each as a mean over the seeds of a row, with the paired difference
between the two rows. Inputs, noise and numbers of points are those of gp-1d. The control on other functions is the
exact Bayesian predictor of gp-1d's prior (`BayesOptimal`): what it loses is due to the training data, not to a model.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp.batch import Batch
from shiftnp.metrics import log_likelihood
from shiftnp.runs.run import Run
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_kernels import COVARIANCES
from shiftnp.tasks.gp_posterior import BayesOptimal

ROOT = Path(__file__).parent.parent
TASK = GPTask()
BATCHES, BATCH_SIZE, SEED = 32, 16, 7
EXACT = "exact predictor of gp-1d's prior"

Draw = Callable[[Tensor, torch.Generator], Tensor]
"""Function values of unit variance at inputs `[b, n]`, one function a row."""


def uniform(g: torch.Generator, b: int, low: float, high: float) -> Tensor:
    """One number for each of `b` functions."""
    return low + (high - low) * torch.rand(b, 1, generator=g, dtype=torch.float64)


def log_uniform(g: torch.Generator, b: int, low: float, high: float) -> Tensor:
    """One number for each of `b` functions."""
    return uniform(g, b, math.log(low), math.log(high)).exp()


def gaussian_process(covariance: Callable[[Tensor, torch.Generator], Tensor]) -> Draw:
    """Samples of a Gaussian process, given its covariance as a function of displacements `[b, n, n, 1]`."""

    def draw(x: Tensor, g: torch.Generator) -> Tensor:
        gram = covariance((x[:, :, None] - x[:, None])[..., None], g)
        gram.diagonal(dim1=1, dim2=2).add_(1e-8)
        white = torch.randn(*x.shape, 1, generator=g, dtype=x.dtype)
        return (torch.linalg.cholesky(gram) @ white)[..., 0]

    return draw


def quasi_periodic(d: Tensor, g: torch.Generator) -> Tensor:
    """A periodic kernel whose correlations fade within 0.5 to 2 units."""
    period, length = (log_uniform(g, len(d), *r)[..., None].expand(d.shape[:-1]) for r in ((0.25, 2), (0.5, 2)))
    return COVARIANCES["periodic"](d, period) * COVARIANCES["se"](d, length)


def matern12(d: Tensor, g: torch.Generator) -> Tensor:
    """Rough functions without a period."""
    return COVARIANCES["matern12"](d, log_uniform(g, len(d), 0.25, 4)[..., None].expand(d.shape[:-1]))


def two_periods(x: Tensor, g: torch.Generator) -> Tensor:
    """Two sines with unrelated periods and random amplitudes."""
    share = uniform(g, len(x), 0.2, 0.8)
    waves = [
        math.sqrt(2) * torch.sin(2 * math.pi * (x / log_uniform(g, len(x), 0.25, 4) + uniform(g, len(x), 0, 1)))
        for _ in range(2)
    ]
    return share.sqrt() * waves[0] + (1 - share).sqrt() * waves[1]


def chirp(x: Tensor, g: torch.Generator) -> Tensor:
    """A sine whose frequency changes by a factor of two to four from -3 to 3."""
    low, factor = log_uniform(g, len(x), 0.25, 1), uniform(g, len(x), 2, 4)
    slope = low * (factor - 1) / 6
    return math.sqrt(2) * torch.sin(2 * math.pi * (low * (x + 3) + slope * (x + 3) ** 2 / 2 + uniform(g, len(x), 0, 1)))


def sawtooth(x: Tensor, g: torch.Generator) -> Tensor:
    """Straight lines from -sqrt(3) to sqrt(3), over and over."""
    phase = x / log_uniform(g, len(x), 0.5, 4) + uniform(g, len(x), 0, 1)
    return math.sqrt(3) * (2 * (phase - phase.floor()) - 1)


def steps(x: Tensor, g: torch.Generator) -> Tensor:
    """Four random levels with three random jumps."""
    jumps = -3 + 6 * torch.rand(len(x), 3, generator=g, dtype=x.dtype)
    levels = torch.randn(len(x), 4, generator=g, dtype=x.dtype)
    return levels.gather(1, (x[..., None] > jumps[:, None]).sum(-1))


def line(x: Tensor, g: torch.Generator) -> Tensor:
    """A straight line."""
    slope, level = torch.randn(2, len(x), 1, generator=g, dtype=x.dtype)
    return 0.7 * level + 0.4 * slope * x


FUNCTIONS: dict[str, Draw] = {
    "quasi-periodic": gaussian_process(quasi_periodic),
    "two periods": two_periods,
    "chirp": chirp,
    "sawtooth": sawtooth,
    "Matern 1/2": gaussian_process(matern12),
    "steps": steps,
    "line": line,
}


def batches(draw: Draw) -> Iterator[Batch]:
    """Data sets with the inputs, noise and numbers of points of gp-1d."""
    for i in range(BATCHES):
        g = generator_for(SEED, i)
        nc = int(torch.randint(TASK.points[0], TASK.points[1] + 1, (), generator=g))
        spans = ((TASK.context, nc), (TASK.target, TASK.targets))
        x = torch.cat([lo + (hi - lo) * torch.rand(BATCH_SIZE, n, generator=g).double() for (lo, hi), n in spans], 1)
        y = draw(x, g) + TASK.noise * torch.randn(x.shape, generator=g, dtype=x.dtype)
        x, y = x[..., None].float(), y[..., None].float()
        yield Batch(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:])


@torch.no_grad()
def scores(model: Any, data: Iterator[Batch]) -> Tensor:
    """Log-likelihood per target of every data set."""
    return torch.cat([log_likelihood(model(b.xc, b.yc, b.xt), b.yt).double() for b in data])


def estimate(values: Tensor) -> dict[str, float]:
    """Mean and standard error over data sets."""
    return {"mean": float(values.mean()), "standard error": float(values.std() / len(values) ** 0.5)}


def compare(by_row: dict[str, list[Tensor]], best: Tensor | None = None) -> dict[str, Any]:
    """Scores of every row, averaged over its seeds, and the paired difference of the two rows."""
    means = {row: torch.stack(values).mean(0) for row, values in by_row.items()}
    table: dict[str, Any] = {"data sets": len(next(iter(means.values())))}
    for row, values in means.items():
        table[row] = {"log-likelihood": estimate(values), "by seed": [float(v.mean()) for v in by_row[row]]}
        if best is not None:
            table[row]["gap"] = estimate(best - values)
            table[row]["gap by seed"] = [float((best - v).mean()) for v in by_row[row]]
    with_search, control = (means.get(row) for row in ("te-tnp-rotary", "te-tnp-rotary-control"))
    if with_search is not None and control is not None:
        table["gain by the period search"] = estimate(with_search - control)
    return table


def main() -> None:
    """Scores all runs and writes the results."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for folder in map(Path, sys.argv[1:]):
        run = Run.open(folder)
        runs[run.config.row or run.config.model].append(run)
    test_set = TASK.test_sets()["delta-0.0"]
    drawn = [
        test_set.task.sample_with_truth(test_set.batch_size, generator_for(test_set.seed, i))
        for i in range(test_set.tasks // test_set.batch_size)
    ]
    kernel = torch.cat([truth.kernel for _, truth in drawn])
    best = TASK.ceiling(test_set, mixture=False)
    assert best is not None
    on_test: dict[str, list[Tensor]] = defaultdict(list)
    on_others: dict[str, dict[str, list[Tensor]]] = {name: defaultdict(list) for name in FUNCTIONS}
    for row, found in runs.items():
        for run in found:
            model = run.model().eval()
            on_test[row].append(scores(model, iter([batch for batch, _ in drawn])))
            for name, draw in FUNCTIONS.items():
                on_others[name][row].append(scores(model, batches(draw)))
    by_kernel = {
        name: compare({row: [v[kernel == i] for v in values] for row, values in on_test.items()}, best[kernel == i])
        for i, name in enumerate(TASK.kernels)
    }
    result: dict[str, Any] = {
        "what": "TE-TNP, rotary kernel, with and without period search: log-likelihood per target, gap to the ceiling",
        "command": "python benchmarks/period_search.py " + " ".join(r.folder.name for f in runs.values() for r in f),
        "seeds": {row: [run.config.training.seed for run in found] for row, found in runs.items()},
        "training": {row: [run.config.command for run in found] for row, found in runs.items()},
        "seed of the data": SEED,
        "machine": machine(),
        "gp-1d": {"all": compare(on_test, best), **by_kernel},
    }
    exact = BayesOptimal(TASK, gaussian=True)
    for name, draw in FUNCTIONS.items():  # takes many minutes; what there is is written after each of them
        result["other functions"] = {name: compare(by_row) for name, by_row in on_others.items()}
        write_json(ROOT / "results/period-search.json", result)
        on_others[name][EXACT].append(scores(exact, batches(draw)))
    result["other functions"] = {name: compare(by_row) for name, by_row in on_others.items()}
    write_json(ROOT / "results/period-search.json", result)
    for name, table in {**result["gp-1d"], **result["other functions"]}.items():
        shown = [f"{row} {table[row]['log-likelihood']['mean']:+.3f}" for row in (*runs, EXACT) if row in table]
        shown += [f"gap {table[row]['gap']['mean']:.4f}" for row in runs if "gap" in table[row]]
        print(f"{name:16}", *shown)


if __name__ == "__main__":
    main()
