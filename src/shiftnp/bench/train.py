"""Time of a training step of several models: `shiftnp bench train`.

The load of a machine varies, so measurements are interleaved: in each round, every model makes one step on the same
batch, so that a high load slows down all models alike. Ratios are therefore more reliable than seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from torch.optim import Optimizer

from shiftnp._machine import machine
from shiftnp._progress import progress
from shiftnp.experiments.base import PresetName, Row
from shiftnp.experiments.timing import TIMING
from shiftnp.models import NeuralProcess
from shiftnp.runs.run import Run
from shiftnp.runs.step import make_optimiser, train_step
from shiftnp.tasks import Stream

UNIT = "tnp"
"""The row whose time is the unit of the ratios."""


def measure(
    rows: Sequence[Row], preset_name: PresetName, repeats: int, seed: int = 0, quiet: bool = False
) -> dict[str, Any]:
    """Times `repeats` training steps of every row, after a warm-up step.

    A step is `train_step`: forward, backward, clipping and AdamW, with the settings and batches of gp-1d. Round `i` has
    the same batch for every row. Ctrl-C ends the benchmark early and returns the measurements so far.

    Returns:
        plain data for JSON: seconds (median and quartiles), ratios of medians to the TNP's, and the paper's ratios.
        Missing measurements are None.
    """
    if repeats < 1 or not rows:
        raise ValueError(f"rows and repeats must be at least 1, got {len(rows)} and {repeats}.")
    experiment = replace(TIMING, rows=tuple(rows))
    configs = {row.name: experiment.configure(row.name, preset=preset_name, training={"seed": seed}) for row in rows}
    training = next(iter(configs.values())).training  # the same for all
    seconds: dict[str, list[float]] = {name: [] for name in configs}
    models: dict[str, NeuralProcess] = {}
    optimisers: dict[str, Optimizer] = {}
    # Models differ in speed, so the time left is estimated over a long period.
    with progress(quiet=quiet, period=3600) as shown:
        bar = shown.add_task("", total=len(configs) * (repeats + 1))
        try:
            for name, config in configs.items():
                run = Run(Path(), config)  # nothing is written
                models[name] = run.new_model()
                optimisers[name] = make_optimiser(models[name], config.training)
            for i, batch in zip(range(repeats + 1), Stream(run.task, training.batch_size, seed), strict=False):
                for name, model in models.items():
                    shown.update(bar, description=name)
                    start = time.perf_counter()
                    train_step(model, optimisers[name], batch, training, i)
                    taken = time.perf_counter() - start
                    if i > 0:  # the first step is a warm-up
                        seconds[name].append(taken)
                    shown.advance(bar)
        except KeyboardInterrupt:
            shown.stop()
    entries = {row.name: summary(row, seconds[row.name], seconds.get(UNIT, [])) for row in rows}
    for name, entry in entries.items():
        entry["parameters"] = sum(p.numel() for p in models[name].parameters()) if name in models else None
    return {
        "what": "seconds of a training step on gp-1d, models in turn on the same batches",
        "unit": TIMING.unit,
        "preset": preset_name,
        "seed": seed,
        "repeats": repeats,
        "finished": all(len(times) == repeats for times in seconds.values()),
        "batch_size": training.batch_size,
        "precision": training.precision,
        "machine": machine(),
        "models": entries,
    }


def summary(row: Row, seconds: Sequence[float], unit: Sequence[float]) -> dict[str, Any]:
    """Step times of one row. Its ratio is over the rounds in which both it and the TNP made their step."""
    figures = row.paper[0] if row.paper else None
    both = min(len(seconds), len(unit))
    quartiles = [float(q) for q in np.percentile(seconds, [25, 50, 75])] if seconds else [None] * 3
    return {
        "title": row.title,
        "steps": len(seconds),
        "median": quartiles[1],
        "quartiles": [quartiles[0], quartiles[2]],
        "ratio": float(np.median(seconds[:both]) / np.median(unit[:both])) if both else None,
        "paper_ratio": None if figures is None else figures[0],
    }


def table(result: dict[str, Any]) -> Table:
    """The result of `measure` as a table for the terminal."""
    m = result["machine"]
    whole = "" if result["finished"] else "; cut short"
    caption = f"{m['processor']}, {m['threads']} threads, torch {m['torch']}, {result['precision']}"
    out = Table(title=f"Time of a training step, {result['batch_size']} tasks{whole}", caption=caption)
    for head in ("model", "steps", "median", "quartiles", "relative to TNP", "the paper's"):
        out.add_column(head, justify="left" if head == "model" else "right")
    for entry in result["models"].values():
        low, high = entry["quartiles"]
        out.add_row(
            entry["title"],
            str(entry["steps"]),
            "" if entry["median"] is None else f"{entry['median']:.3f} s",
            "" if low is None else f"{low:.3f} to {high:.3f} s",
            "" if entry["ratio"] is None else f"{entry['ratio']:.2f}",
            "" if entry["paper_ratio"] is None else f"{entry['paper_ratio']:.2f}",
        )
    return out
