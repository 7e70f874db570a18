"""Time of joint samples, exact and in steps: `shiftnp bench sample`.

Seconds are of CPU time, which does not depend on the load of the machine; with several threads they are divided by the
number of threads to estimate the time of an idle machine. Weights are untrained, as the time does not depend on them.
What would take longer than half a minute is scaled from the time of few functions, as every function takes the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from rich.table import Table

from shiftnp._machine import machine, peak_megabytes
from shiftnp._progress import progress
from shiftnp.models import MODELS, NeuralProcess

SIZES: dict[str, Any] = {"dz": 128, "heads": 8, "head_dim": 16, "layers": 5}
ROWS: dict[str, dict[str, Any]] = {
    "TE-TNP, rotary": {**SIZES, "kernel": "rotary"},
    "TE-TNP": {**SIZES, "kernel": "mlp"},
}
FEW, LONGEST = 4, 30.0
"""Functions that are measured first (in the exact order: one), and the CPU seconds up to which all are."""
GOAL = {"functions": 100, "targets": 100, "context": 64, "seconds": {"TE-TNP, rotary": 3, "TE-TNP": 20}}


def measure(
    functions: int = 100,
    targets: int = 100,
    context: int = 64,
    steps: Sequence[int | None] = (4, 8, 16, None),
    seed: int = 0,
    longest: float = LONGEST,
    quiet: bool = False,
    rows: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Draws joint samples of every model in every number of steps (None: the exact order).

    Args:
        longest: expected CPU seconds above which the time is scaled from that of a few functions.

    Returns:
        plain data for JSON.
    """
    if min(functions, targets) < 1 or context < 0 or not steps:
        raise ValueError(f"functions, targets and steps must be at least 1, got {functions}, {targets} and {steps}.")
    rows = ROWS if rows is None else rows
    found: dict[str, list[dict[str, Any]]] = {title: [] for title in rows}
    finished = False
    with progress(quiet=quiet, period=3600) as shown:
        bar = shown.add_task("", total=len(rows) * len(steps))
        try:
            for number in steps:
                for title, options in rows.items():
                    shown.update(bar, description=f"{title}, {'exact' if number is None else f'{number} steps'}")
                    drawn = 1 if number is None else min(functions, FEW)
                    seconds = one(options, drawn, targets, context, number, seed)
                    if drawn < functions and seconds * functions / drawn < longest:
                        drawn, seconds = functions, one(options, functions, targets, context, number, seed)
                    entry = {"steps": number, "measured_functions": drawn, "cpu_seconds": seconds * functions / drawn}
                    found[title].append({**entry, "megabytes": peak_megabytes()})
                    shown.advance(bar)
            finished = True
        except KeyboardInterrupt:
            shown.stop()
    return {
        "what": "CPU seconds of joint samples, one input, scaled to all functions where fewer were measured",
        "functions": functions,
        "targets": targets,
        "context": context,
        "seed": seed,
        "finished": finished,
        "goal": GOAL,
        "machine": machine(),
        "models": {title: {"options": rows[title], "draws": draws} for title, draws in found.items()},
    }


def one(options: dict[str, Any], functions: int, targets: int, context: int, steps: int | None, seed: int) -> float:
    """CPU seconds of drawing functions in that many steps."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: NeuralProcess = MODELS["te-tnp"](dx=1, dy=1, **options)
    g = torch.Generator().manual_seed(seed)
    xc, xt = (torch.rand(1, n, 1, generator=g) * 4 - 2 for n in (context, targets))
    yc = torch.sin(3 * xc)
    model.sample(xc, yc, xt[:, :2], 1, g, steps=1)  # warm-up
    start = time.process_time()
    model.sample(xc, yc, xt, functions, g, steps=steps)
    return time.process_time() - start


def table(result: dict[str, Any]) -> Table:
    """The result of `measure` as a table for the terminal."""
    m = result["machine"]
    whole = "" if result["finished"] else "; cut short"
    size = f"{result['functions']} functions at {result['targets']} targets, {result['context']} context points"
    out = Table(
        title=f"{size}{whole}", caption=f"{m['processor']}, {m['threads']} threads, torch {m['torch']}, float32"
    )
    for head in ("model", "steps", "CPU time", "per thread", "peak memory"):
        out.add_column(head, justify="left" if head == "model" else "right")
    for title, entry in result["models"].items():
        for row in entry["draws"]:
            seconds, few = row["cpu_seconds"], row["measured_functions"] < result["functions"]
            out.add_row(
                title,
                "exact" if row["steps"] is None else str(row["steps"]),
                f"{seconds:.1f} s{' (scaled)' if few else ''}",
                f"{seconds / m['threads']:.1f} s",
                f"{row['megabytes']:,.0f} MB",
            )
    return out
