"""What the rows of docs/results.md cost: the time of a training step on one thread of an idle machine.

    SHIFTNP_DATA=DIR python benchmarks/laptop_times.py

The minutes in the log of a run are wall time, with whatever else the machine did. This times some steps of every kept
run (results/runs); docs/results.md multiplies by the number of steps. Validation and evaluation are not included. Steps
differ in the number of context points, so all models of a task see the same batches. Writes
results/laptop-times-avx512.json, or -avx2.json on a processor without AVX-512. Five to fifteen minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp._memory import keep_freed_memory
from shiftnp.runs.run import Run, find_runs
from shiftnp.runs.step import make_optimiser, train_step
from shiftnp.tasks import Stream

ROOT = Path(__file__).parent.parent
WARMUP = 2
"""Steps that are not timed."""


def row_of(command: str) -> str:
    """The command of a run without seed, number of steps, learning rate, schedule, optimiser and EMA, on which the time
    of a step hardly depends: Muon takes two milliseconds more than AdamW."""
    return re.sub(r" --(seed|steps|learning-rate|schedule|optimiser|ema) \S+", "", command)


def step_times(run: Run, steps: int) -> list[float]:
    """Seconds of training steps, with the time that their data take."""
    training, model = run.config.training, run.new_model()
    optimiser = make_optimiser(model, training)
    batches, seconds = iter(Stream(run.task, training.batch_size, 0)), []
    for i in range(WARMUP + steps):
        start = time.perf_counter()
        train_step(model, optimiser, next(batches), training, i)
        seconds.append(time.perf_counter() - start)
    return seconds[WARMUP:]


def main() -> None:
    """Times every row and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each row (default: 40)")
    parser.add_argument("--missing", action="store_true", help="time only rows that the file of this machine lacks")
    arguments = parser.parse_args()
    steps, kind = arguments.steps, torch.backends.cpu.get_cpu_capability().lower()
    path = ROOT / f"results/laptop-times-{kind}.json"
    torch.set_num_threads(1)
    keep_freed_memory()  # as `shiftnp train` does
    rows: dict[str, Any] = {}
    if arguments.missing:
        earlier = json.loads(path.read_text())
        if (earlier["machine"]["processor"], earlier["timed steps"]) != (machine()["processor"], steps):
            raise SystemExit(f"{path} is of another processor or number of steps: time all rows.")
        rows = earlier["rows"]
    for run in find_runs(ROOT / "results/runs")[0]:
        if run.is_baseline or run.config.command is None or (row := row_of(run.config.command)) in rows:
            continue
        seconds = step_times(run, steps)
        rows[row] = {"mean": statistics.fmean(seconds), "standard error": statistics.stdev(seconds) / steps**0.5}
        print(f"{rows[row]['mean']:.3f} s  {row}", flush=True)
    result = {
        "what": "seconds of a training step on one thread, with the time that its data take",
        "command": f"python benchmarks/laptop_times.py --steps {steps}",
        "seed": 0,
        "timed steps": steps,
        "machine": machine(),
        "rows": rows,
    }
    write_json(path, result)


if __name__ == "__main__":
    main()
