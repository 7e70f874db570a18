"""Keeps finished runs with the results: settings, learning curve, scores and weights, without the optimiser's state.

    python benchmarks/keep_runs.py runs/gp-1d/*                     # to results/runs/gp-1d
    shiftnp evaluate results/runs/gp-1d/te-tnp-rotary-laptop-seed0  # weights in half precision are to be scored again

Weights of more than 2 MB are stored in half precision, without the scores of those in full precision.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

from shiftnp.runs.run import WEIGHTS, Run
from shiftnp.runs.tensors import read_tensors, write_tensors

ROOT = Path(__file__).parent.parent
LARGE = 2_000_000


def keep(run: Run, out: Path) -> None:
    """Copies a run, if it is finished."""
    if not run.is_finished:
        print(f"{run.folder}: not finished, left out")
        return
    out.mkdir(parents=True, exist_ok=True)
    large = not run.is_baseline and (run.folder / WEIGHTS).stat().st_size > LARGE
    for name in ("config.json", "metrics.jsonl", "scaling.json", *(() if large else ("evaluation.json", WEIGHTS))):
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, out / name)
    if large:
        tensors, metadata = read_tensors(run.folder / WEIGHTS)
        half = {name: t.half() if t.dtype == torch.float32 else t for name, t in tensors.items()}
        write_tensors(out / WEIGHTS, half, metadata)
    print(f"{out}{': evaluate it, its weights are in half precision' if large else ''}")


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        run = Run.open(folder)
        keep(run, ROOT / "results/runs" / (run.config.experiment or run.config.task) / folder.name)
