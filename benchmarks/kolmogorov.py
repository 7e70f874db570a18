"""Speed and statistics of the Kolmogorov flow solver: `python benchmarks/kolmogorov.py` on an idle machine.

Generates four trajectories with the paper's settings, in as many processes as there are cores, and compares their
statistics with a trajectory of jax-cfd if one is given: `python benchmarks/kolmogorov.py REFERENCE.npy`.
Writes results/kolmogorov.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from shiftnp.tasks.kolmogorov_files import generate

TRAJECTORIES, SEED = 4, 0


def statistics(u: np.ndarray) -> dict[str, Any]:
    """Means over frames `[time, 2, x, y]`; vorticity by central differences."""
    step = 4 * np.pi / u.shape[-1]
    dv_dx = (np.roll(u[:, 1], -1, 1) - np.roll(u[:, 1], 1, 1)) / step
    du_dy = (np.roll(u[:, 0], -1, 2) - np.roll(u[:, 0], 1, 2)) / step
    return {
        "kinetic energy": round(float((u**2).sum(1).mean() / 2), 4),
        "rms u": round(float((u[:, 0] ** 2).mean() ** 0.5), 4),
        "rms v": round(float((u[:, 1] ** 2).mean() ** 0.5), 4),
        "rms vorticity": round(float(((dv_dx - du_dy) ** 2).mean() ** 0.5), 4),
    }


def main() -> None:
    """Runs the benchmark and writes its results."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        generate(TRAJECTORIES, folder, seed=SEED)
        seconds = time.perf_counter() - start
        ours = {path.stem: statistics(np.load(path)) for path in sorted(Path(folder).glob("*.npy"))}
    record = {
        "command": "python " + " ".join([sys.argv[0], *(Path(a).name for a in sys.argv[1:])]),
        "what": f"{TRAJECTORIES} trajectories of 128 snapshots at 256 x 256 points, start-up of processes included",
        "seed": SEED,
        "cores": os.cpu_count(),
        "seconds per trajectory": round(seconds / TRAJECTORIES, 2),
        "ours": ours,
        "reference": {Path(a).name: statistics(np.load(a)) for a in sys.argv[1:]},
    }
    out = Path("results/kolmogorov.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(record, indent=2) + "\n")
    print(out.read_text())


if __name__ == "__main__":
    main()
