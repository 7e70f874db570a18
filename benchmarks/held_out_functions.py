"""The shipped weights beside a Gaussian process fitted to each data set, on functions that are not in the prior.

    python benchmarks/held_out_functions.py              # needs gpytorch

Writes results/held-out-functions.json: log-likelihood, CRPS and coverage of the network alone (without the scales,
calibration and Gaussian process of `Regressor`, for which see results/zero-shot.json) and of a Gaussian process (Matern
5/2, a length-scale for each input, 200 steps of Adam on the marginal likelihood), on the same data sets of the test
sets of `prior-1d`, `prior-2d` and `prior-3d`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp.baselines.gp import GPBaseline
from shiftnp.metrics import coverage, crps, log_likelihood
from shiftnp.regressor.weights import load, pretrained
from shiftnp.tasks import TASKS

ROOT = Path(__file__).parent.parent


def measured(model: Any, batches: list[Any]) -> dict[str, Tensor]:
    """Scores of each data set, and the seconds that all of them took."""
    found: dict[str, list[Tensor]] = {"log-likelihood": [], "CRPS": [], "coverage of 90 % intervals": []}
    seconds = 0.0
    for batch in batches:
        start = time.perf_counter()
        with torch.no_grad():
            prediction = model(batch.xc, batch.yc, batch.xt)
        seconds += time.perf_counter() - start
        scores = (log_likelihood(prediction, batch.yt), crps(prediction, batch.yt), coverage(prediction, batch.yt, 0.9))
        for values, score in zip(found.values(), scores, strict=True):
            values.append(score.double())
    return {name: torch.cat(values) for name, values in found.items()} | {"seconds": torch.tensor(seconds)}


def compare(ours: dict[str, Tensor], gp: dict[str, Tensor]) -> dict[str, Any]:
    """Means of both, and paired differences; medians too, as a few fits to few points may fail badly."""
    gain = ours["log-likelihood"] - gp["log-likelihood"]
    means = {title: {k: float(v.mean()) for k, v in s.items()} for title, s in (("network", ours), ("fitted GP", gp))}
    return {
        "data sets": len(gain),
        **means,
        "gain in log-likelihood": {
            "mean": float(gain.mean()),
            "standard error": float(gain.std() / len(gain) ** 0.5),
            "median": float(gain.median()),
        },
        "CRPS ratio": float(ours["CRPS"].mean() / gp["CRPS"].mean()),
    }


def main() -> None:
    """Scores both on all test sets; writes what there is after each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=64, help="data sets of each test set (default 64)")
    parser.add_argument("--out", type=Path, default=ROOT / "results/held-out-functions.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "what": "shipped network and a Gaussian process fitted to each data set, functions not in the prior",
        "command": f"python benchmarks/held_out_functions.py --tasks {arguments.tasks}",
        "machine": machine(),
        "seeds": {},
    }
    for dx in (1, 2, 3):
        network = load(pretrained(dx)).eval()
        for name, test_set in TASKS[f"prior-{dx}d"]().test_sets().items():
            if name == "valid":  # functions of the prior
                continue
            result["seeds"][name] = test_set.seed
            batches = [batch for _, batch in zip(range(arguments.tasks // test_set.batch_size), test_set, strict=False)]
            rival = GPBaseline(covariance="matern52", iterations=200)
            found = compare(measured(network, batches), measured(rival, batches))
            found["fits of the GP"] = dict(rival.report)
            result.setdefault(f"{dx} inputs" if dx > 1 else "1 input", {})[name] = found
            write_json(arguments.out, result)
            gain = found["gain in log-likelihood"]
            print(
                f"{dx} inputs, {name}: gain {gain['mean']:+.3f} ± {gain['standard error']:.3f} nats"
                f" (median {gain['median']:+.3f}), CRPS ratio {found['CRPS ratio']:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
