"""Seconds of `fit` and `predict` of Regressor and of a Gaussian process that is fitted to the same observations.

    python benchmarks/regressor_speed.py      # on an idle machine; writes results/regressor-speed.json

Noisy observations of a smooth function of two inputs, 200 targets. Regressor: median of nine runs. The Gaussian
process is `SingleGP` (Matern 5/2, three starts, float64), run once; with 5,000 observations it has one start and 50
steps. `--keep-gp 5000` takes the Gaussian process with so many observations, which takes minutes, from the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from shiftnp import Regressor
from shiftnp._io import write_json
from shiftnp._machine import commit, machine
from shiftnp.baselines.single import SingleGP

OUT = Path(__file__).parent.parent / "results/regressor-speed.json"
SIZES, TARGETS, SEED = (200, 1000, 5000), 200, 0


def observations(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs and targets."""
    rng = np.random.default_rng(SEED)
    x = rng.uniform(0, 10, size=(n, 2))
    return x, np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.1 * rng.normal(size=n), rng.uniform(0, 10, size=(TARGETS, 2))


def ours(n: int) -> float:
    """Seconds of `Regressor`."""
    x, y, targets = observations(n)
    start = time.perf_counter()
    Regressor().fit(x, y).predict(targets, return_std=True)
    return time.perf_counter() - start


def gaussian_process(n: int) -> float:
    """Seconds of the fitted Gaussian process."""
    x, y, targets = observations(n)
    model = SingleGP() if n < 5000 else SingleGP(starts=1, iterations=50)
    start = time.perf_counter()
    model.predict(x, y, targets)
    return time.perf_counter() - start


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description="Times Regressor beside a fitted Gaussian process.")
    parser.add_argument("--keep-gp", type=int, nargs="*", default=[], choices=SIZES, help="sizes that are not repeated")
    kept = parser.parse_args().keep_gp
    known = json.loads(OUT.read_text())["observations"] if kept else {}
    ours(SIZES[0])  # loads the weights
    sizes: dict[str, Any] = {}
    for n in SIZES:
        seconds = statistics.median(ours(n) for _ in range(9))
        gp = known[str(n)]["fitted GP"] if n in kept else gaussian_process(n)
        sizes[str(n)] = {"regressor": round(seconds, 3), "fitted GP": round(gp, 2), "ratio": round(gp / seconds, 1)}
        print(n, sizes[str(n)], flush=True)
    result = {
        "what": f"seconds of fit and predict at {TARGETS} targets, two inputs",
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "seed": SEED,
        "commit": commit(),
        "machine": machine(),
        "observations": sizes,
    }
    write_json(OUT, result)


if __name__ == "__main__":
    main()
