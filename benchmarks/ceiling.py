"""The ceiling of `gp-1d`, by kernel and by quadrature: `python benchmarks/ceiling.py` (about five minutes).

Writes results/ceiling-gp-1d.json. With `--package` it computes the ceilings of the named test sets of `gp-1d` and
`gp-1d-bimodal` instead, and writes them into the package (three minutes).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from rich.progress import track

from shiftnp.metrics import log_likelihood
from shiftnp.tasks import TASKS
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.ceiling import PACKAGED, compute, file_name, save
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_posterior import BayesOptimal, GPOracle

SEED, BATCHES = 1, 64


def package() -> None:
    """Writes the ceilings that come with the package. Shifted test sets have the ceiling of `delta-0.0`."""
    for name in ("gp-1d", "gp-1d-bimodal"):
        for title in ("valid", "delta-0.0"):
            test_set = TASKS[name]().test_sets()[title]
            for old in PACKAGED.glob(f"{name}-{title}-*.npz"):
                old.unlink()
            save(PACKAGED / f"{name}-{title}-{file_name(test_set)}", compute(test_set))


def main() -> None:
    """Runs the benchmark and writes its results."""
    task = GPTask()
    quadratures = {"80 + 80 + 80 nodes": (80, 80), "80 + 1500 + 80 nodes": (80, 1500)}
    scores: dict[str, list[torch.Tensor]] = {}
    kernels = []
    for i in track(range(BATCHES), description="exact posteriors"):
        batch, truth = task.sample_with_truth(16, generator_for(SEED, i))
        kernels.append(truth.kernel)
        predictions = {"oracle": GPOracle(task, truth)(batch.xc, batch.yc, batch.xt)}
        for name, (nodes, periodic) in quadratures.items():
            mixture = BayesOptimal(task, nodes=nodes, periodic_nodes=periodic)(batch.xc, batch.yc, batch.xt)
            predictions[f"mixture, {name}"] = mixture
            predictions[f"gaussian, {name}"] = BayesOptimal.moments(mixture)
        for name, prediction in predictions.items():
            scores.setdefault(name, []).append(log_likelihood(prediction, batch.yt.double()))
    kernel = torch.cat(kernels)
    table = {}
    for name, parts in scores.items():
        score = torch.cat(parts)
        by_kernel = {k: round(float(score[kernel == j].mean()), 4) for j, k in enumerate(task.kernels)}
        error = float(score.std() / len(score) ** 0.5)
        table[name] = {"mean": round(float(score.mean()), 4), "standard error": round(error, 4), **by_kernel}
        print(name, table[name])
    out = Path("results/ceiling-gp-1d.json")
    out.parent.mkdir(exist_ok=True)
    record = {
        "command": "python " + " ".join(sys.argv),
        "what": "log-likelihood per target point on the tasks of the test set delta-0.0 of gp-1d",
        "seed": SEED,
        "tasks": 16 * BATCHES,
        "torch": torch.__version__,
        "scores": table,
    }
    out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    package() if sys.argv[1:] == ["--package"] else main()
