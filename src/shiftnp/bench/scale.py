"""Time and memory against the number of context points, for one million targets: `shiftnp bench scale`.

Two models of linear cost: a TE-TNP with a radius, whose points attend to their neighbours, and a TE-PT-TNP; small with
contexts of all sizes, or in the paper's size (`--size paper`), with both kernels and the largest context. The density
of points is constant, the domain grows. Every measurement runs in a separate process, because peak memory cannot be
reset. Weights are untrained, as neither time nor memory depends on them.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from shiftnp._machine import machine, peak_megabytes
from shiftnp._progress import progress
from shiftnp.models import MODELS

NEIGHBOURS = 16
"""Context points within the radius of a point, on average."""
RADIUS = math.sqrt(NEIGHBOURS / math.pi)
SMALL: dict[str, Any] = {"dz": 32, "heads": 4, "head_dim": 8, "layers": 3, "location_update": False}
FULL: dict[str, Any] = {"dz": 128, "heads": 8, "head_dim": 16, "layers": 5, "location_update": False}
"""The paper's size."""
LOCAL, PSEUDO = f"TE-TNP, {NEIGHBOURS} neighbours", "TE-PT-TNP, 32 pseudo-tokens"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    LOCAL: ("te-tnp", {**SMALL, "radius": RADIUS}),
    PSEUDO: ("te-pt-tnp", {**SMALL, "pseudo": 32}),
    f"{LOCAL}, D_z 128, 5 layers": ("te-tnp", {**FULL, "radius": RADIUS}),
    f"{LOCAL}, D_z 128, 5 layers, rotary": ("te-tnp", {**FULL, "radius": RADIUS, "kernel": "rotary"}),
    f"{PSEUDO}, D_z 128, 5 layers": ("te-pt-tnp", {**FULL, "pseudo": 32}),
    f"{PSEUDO}, D_z 128, 5 layers, rotary": ("te-pt-tnp", {**FULL, "pseudo": 32, "kernel": "rotary"}),
}
GOAL = {"context": 100_000, "targets": 1_000_000, "seconds": 60, "megabytes": 1024}


def measure(
    contexts: Sequence[int] = (1_000, 3_000, 10_000, 30_000, 100_000),
    targets: int = 1_000_000,
    seed: int = 0,
    quiet: bool = False,
    paper: bool = False,
) -> dict[str, Any]:
    """Encodes contexts of all sizes and predicts at `targets` targets, with each model.

    Ctrl-C ends the benchmark early and returns the measurements so far.

    Args:
        paper: whether models have the paper's size (`FULL`) and not `SMALL`; then only the largest context is measured.

    Returns:
        plain data for JSON: seconds and peak memory of every size, and the exponents `p` of `time ~ points^p`.
    """
    if not contexts or min(contexts) < 1 or targets < 1:
        raise ValueError(f"contexts and targets must be at least 1, got {tuple(contexts)} and {targets}.")
    contexts = [max(contexts)] if paper else list(contexts)
    titles = [title for title, (_, options) in ROWS.items() if (options["dz"] == FULL["dz"]) is paper]
    sizes: dict[str, list[dict[str, Any]]] = {title: [] for title in titles}
    every = [(n, title) for n in contexts for title in titles]
    with progress(quiet=quiet, period=3600) as shown:
        bar = shown.add_task("", total=len(every))
        try:
            for n, title in every:
                shown.update(bar, description=f"{title}, {n:,} points")
                sizes[title].append(in_own_process(title, n, targets, seed))
                shown.advance(bar)
        except KeyboardInterrupt:
            shown.stop()
    return {
        "what": "encoding a context and predicting at all targets, in two dimensions, points at constant density",
        "contexts": list(contexts),
        "targets": targets,
        "seed": seed,
        "finished": sum(map(len, sizes.values())) == len(every),
        "goal": GOAL,
        "machine": machine(),
        "models": {title: summary(title, rows) for title, rows in sizes.items()},
    }


def in_own_process(title: str, context: int, targets: int, seed: int) -> dict[str, Any]:
    """The result of `one`, measured in a new process."""
    command = [sys.executable, "-m", "shiftnp.bench.scale", title, str(context), str(targets), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"Measuring {title} with {context:,} points failed: {reason}")
    return json.loads(done.stdout)


def one(title: str, context: int, targets: int, seed: int) -> dict[str, Any]:
    """Seconds of encoding and of predicting, and the peak memory of this process."""
    name, options = ROWS[title]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MODELS[name](dx=2, dy=1, **options)
    small = field(300, seed)
    model.predict(*small, small[0])  # warm-up
    before = peak_megabytes()
    xc, yc = field(context, seed)
    xt = torch.rand(targets, 2, generator=torch.Generator().manual_seed(seed + 1)) * math.sqrt(context)
    start = time.perf_counter()
    with torch.no_grad():
        memory = model.encode(xc[None], yc[None])
    encoded = time.perf_counter()
    model.predict(memory, xt=xt)
    end = time.perf_counter()
    return {
        "context": context,
        "encode": encoded - start,
        "predict": end - encoded,
        "megabytes": peak_megabytes(),
        "megabytes_before": before,
    }


def field(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """A smooth function at `n` random points of a square, one point per unit of area."""
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed)) * math.sqrt(n)
    return x, torch.sin(x[:, :1] / 3) * torch.cos(x[:, 1:] / 4)


def summary(title: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Measurements and exponents of one model."""
    name, options = ROWS[title]
    points = [row["context"] for row in rows]
    return {
        "model": name,
        "options": options,
        "sizes": list(rows),
        "exponent_encode": exponent(points, [row["encode"] for row in rows]),
        "exponent_total": exponent(points, [row["encode"] + row["predict"] for row in rows]),
    }


def exponent(points: Sequence[int], seconds: Sequence[float]) -> float | None:
    """The exponent `p` of `seconds ~ points^p`, by least squares on logarithms."""
    if len(set(points)) < 2:
        return None
    return float(np.polyfit(np.log(points), np.log(seconds), 1)[0])


def table(result: dict[str, Any]) -> Table:
    """The result of `measure` as a table for the terminal."""
    m = result["machine"]
    whole = "" if result["finished"] else "; cut short"
    caption = f"{m['processor']}, {m['threads']} threads, torch {m['torch']}, float32"
    out = Table(title=f"Context points and {result['targets']:,} targets{whole}", caption=caption)
    for head in ("model", "context", "encode", "predict", "together", "peak memory"):
        out.add_column(head, justify="left" if head == "model" else "right")
    for title, entry in result["models"].items():
        for row in entry["sizes"]:
            seconds = (row["encode"], row["predict"], row["encode"] + row["predict"])
            figures = (f"{row['context']:,}", *(f"{s:.2f} s" for s in seconds), f"{row['megabytes']:,.0f} MB")
            out.add_row(title, *figures)
        if entry["exponent_encode"] is not None:
            exponents = (f"n^{entry['exponent_encode']:.2f}", "", f"n^{entry['exponent_total']:.2f}")
            out.add_row("  grows as", "", *exponents, "", end_section=True)
    return out


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1], *map(int, sys.argv[2:]))))
