"""Speed, memory and accuracy of the attention kernels: `shiftnp bench attention`.

Training steps of the paper's 1-D models (16 tasks, 64 context points, 128 targets, `D_z` 128, 5 layers) with the plain
formula, with tiled attention and with the rotary kernel, alternating; the same with 32 context points; the time of the
wide matrix products alone, below which no implementation in float32 can get without holding activations; memory of a
forward and backward pass with 1,000 context points and 2,000 targets, in separate processes; and errors of gradients
relative to the plain formula in float64.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import nn

from shiftnp._machine import machine, peak_megabytes
from shiftnp._progress import progress
from shiftnp.attention import threads, tiled
from shiftnp.attention.tiled import low_precision_pays
from shiftnp.batch import Batch
from shiftnp.kernels.mlp import PairwiseMLPAttention
from shiftnp.models import MODELS, NeuralProcess
from shiftnp.runs.config import Precision
from shiftnp.runs.step import loss
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask

ROTARY = {"kernel": "rotary", "location_update": False}
PERIOD_SEARCH = {"kernel": {"name": "rotary", "period_search": 256}, "location_update": False}
CASES: dict[str, tuple[str, dict[str, Any], str, Precision]] = {
    # name: model, its settings, backend of the paper's kernel, precision
    "TNP": ("tnp", {}, "tiled", "float32"),
    "TE-TNP, plain formula": ("te-tnp", {}, "reference", "float32"),
    "TE-TNP, tiled": ("te-tnp", {}, "tiled", "float32"),
    "TE-TNP, tiled, bf16": ("te-tnp", {}, "tiled", "bf16-pairs"),
    "TE-PT-TNP-32, plain formula": ("te-pt-tnp", {"pseudo": 32}, "reference", "float32"),
    "TE-PT-TNP-32, tiled": ("te-pt-tnp", {"pseudo": 32}, "tiled", "float32"),
    "TE-PT-TNP-32, tiled, bf16": ("te-pt-tnp", {"pseudo": 32}, "tiled", "bf16-pairs"),
    "TE-TNP, rotary": ("te-tnp", ROTARY, "tiled", "float32"),
    "TE-TNP, rotary, period search": (
        "te-tnp",
        PERIOD_SEARCH,
        "tiled",
        "float32",
    ),
    "TE-PT-TNP-32, rotary": ("te-pt-tnp", {"pseudo": 32, **ROTARY}, "tiled", "float32"),
}


FEW_CONTEXT = ("TNP", "TE-TNP, plain formula", "TE-TNP, tiled", "TE-TNP, tiled, bf16", "TE-TNP, rotary")
"""The cases that are also timed with half the context points."""
TASKS, TARGETS = 16, 128


def measure(repeats: int = 5, seed: int = 0, context: int = 64, quiet: bool = False) -> dict[str, Any]:
    """Runs the benchmark; returns plain data for JSON. bfloat16 is timed only if its matrix products are faster."""
    bf16 = low_precision_pays(torch.device("cpu"), 128)
    names = [name for name, case in CASES.items() if case[3] == "float32" or bf16]
    few = [name for name in FEW_CONTEXT if name in names]
    with progress(quiet=quiet) as shown:
        bar = shown.add_task("training steps", total=(len(names) + len(few)) * (repeats + 1))
        steps = times(names, context, repeats, seed, lambda: shown.advance(bar))
        with_few = times(few, context // 2, repeats, seed, lambda: shown.advance(bar))
    return {
        "what": f"seconds of forward and backward, {TASKS} tasks, {context} context points, {TARGETS} targets, in turn",
        "seed": seed,
        "repeats": repeats,
        "machine": machine() | {"bf16": bf16},
        "steps": steps,
        f"steps with {context // 2} context points": with_few,
        "wide products": {f"{n} context points": wide_products(n) for n in (context, context // 2)},
        "memory": memory(),
        "gradients": {name: gradient_error(*arguments) for name, arguments in PRECISIONS.items()},
    }


def times(
    names: Sequence[str], context: int, repeats: int, seed: int, advance: Callable[[], None]
) -> dict[str, dict[str, Any]]:
    """Seconds of a step of each case, all in turn on the same batch."""
    batch = GPTask(points=(context, context)).sample(TASKS, generator_for(seed, 0))
    models: dict[tuple[str, str], NeuralProcess] = {}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(repeats + 1):
        for name in seconds:
            kind, settings, backend, precision = CASES[name]
            model = models.setdefault((kind, str(settings)), make(kind, settings, seed))
            with computed_by(backend):
                start = time.perf_counter()
                step(model, batch, precision)
                if i > 0:  # the first step is a warm-up
                    seconds[name].append(time.perf_counter() - start)
            advance()
    return {name: summary(of_one) for name, of_one in seconds.items()}


def wide_products(context: int, layers: int = 5, width: int = 128, repeats: int = 50) -> float:
    """Seconds of the `width x width` products of a tiled step of the paper's TE-TNP: for each pair and pairwise MLP one
    in the forward pass, one to recompute activations, and two in the backward pass. The last target layer has no
    location update, so no second MLP."""
    within, across = TASKS * context * context, TASKS * context * TARGETS
    pairs = 2 * layers * within + (2 * layers - 1) * across
    here = torch.device("cpu")
    rows, number = tiled.tile_size(here, width), threads.count(here, pairs)

    def products() -> None:
        a, b = torch.ones(rows, width), torch.ones(width, width)
        out = torch.empty_like(a)
        for _ in range(repeats):
            torch.mm(a, b, out=out)

    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        threads.run([products] * number)  # as many tiles at once as there are threads
        best = min(best, (time.perf_counter() - start) / (repeats * number))
    return 4 * pairs / rows * best


PRECISIONS: dict[str, tuple[str, Precision]] = {
    "tiled, float32": ("tiled", "float32"),
    "tiled, bf16 in the networks of pairs": ("tiled", "bf16-pairs"),
    "tiled, bf16 everywhere": ("tiled", "bf16"),
    "plain formula, bf16 everywhere": ("reference", "bf16"),
}


def make(kind: str, settings: dict[str, Any], seed: int) -> NeuralProcess:
    """A model with one input and one output."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MODELS[kind](dx=1, dy=1, **settings)


def step(model: NeuralProcess, batch: Batch, precision: Precision = "float32") -> None:
    """A forward and backward pass."""
    value = loss(model, batch, precision)
    model.zero_grad()
    value.backward()


@contextmanager
def computed_by(backend: str) -> Iterator[None]:
    """Context manager that sets the backend of the MLP kernel: "tiled" or "reference"."""
    before = PairwiseMLPAttention.backend
    PairwiseMLPAttention.backend = backend
    try:
        yield
    finally:
        PairwiseMLPAttention.backend = before


def summary(times: list[float]) -> dict[str, Any]:
    """Median and quartiles."""
    low, median, high = np.percentile(times, [25, 50, 75])
    return {"median": float(median), "quartiles": [float(low), float(high)]}


# Backend, context points and targets. The plain formula would need about 20 GB for 1000 and 2000.
MEMORY = (("tiled", 250, 500), ("tiled", 500, 1000), ("tiled", 1000, 2000), ("reference", 250, 500))


def memory() -> list[dict[str, Any]]:
    """Increase of the peak resident memory by a forward and backward pass, each in a separate process."""
    rows = []
    for backend, nc, nt in MEMORY:
        code = f"from shiftnp.bench.attention import added_memory; print(added_memory({backend!r}, {nc}, {nt}))"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        rows.append({"backend": backend, "context": nc, "targets": nt, "MB": round(json.loads(run.stdout), 1)})
    return rows


def added_memory(backend: str, nc: int, nt: int) -> float:
    """Increase of the peak memory in MB by a forward and backward pass of the paper's TE-TNP on one task."""
    model, g = make("te-tnp", {}, 0), torch.Generator().manual_seed(0)

    def run(nc: int, nt: int) -> None:
        x = torch.randn(1, nc + nt, 1, generator=g)
        step(model, Batch(x[:, :nc], x[:, :nc], x[:, nc:], x[:, nc:]))

    with computed_by(backend):
        run(8, 8)
        before = peak_megabytes()
        run(nc, nt)
    return peak_megabytes() - before


def gradient_error(backend: str, precision: Precision) -> dict[str, float]:
    """Relative error (2-norm) of the gradient against the plain formula in float64: of the whole gradient, and of the
    worst parameter. The paper's TE-TNP on four tasks."""
    batch = GPTask(points=(32, 32), targets=32).sample(4, generator_for(0, 0))
    exact, rough = make("te-tnp", {}, 0).double(), make("te-tnp", {}, 0)
    with computed_by("reference"):
        step(exact, batch.to(torch.float64))
    before, tiled.LOW_PRECISION = tiled.LOW_PRECISION, True
    try:
        with computed_by(backend):
            step(rough, batch, precision)
    finally:
        tiled.LOW_PRECISION = before
    a, b = ([p.grad.double() for p in m.parameters() if p.grad is not None] for m in (exact, rough))
    whole = (torch.cat([(x - y).flatten() for x, y in zip(a, b, strict=True)])).norm() / nn.utils.get_total_norm(a)
    worst = max(float((x - y).norm() / x.norm()) for x, y in zip(a, b, strict=True))
    return {"whole": float(whole), "worst parameter": worst}


def table(result: dict[str, Any]) -> Table:
    """The result of `measure` as a table for the terminal."""
    m = result["machine"]
    caption = f"{m['processor']}, {m['threads']} threads, torch {m['torch']}"
    if not m["bf16"]:
        caption += "; bfloat16 is not faster here, so it was not timed"
    for row in result["memory"]:
        caption += (
            f"\n{row['backend']}: {row['MB']} MB added by {row['context']} context points, {row['targets']} targets"
        )
    for name, error in result["gradients"].items():
        caption += f"\ngradient, {name}: {error['whole']:.1e} from the plain formula in float64"
        caption += f" ({error['worst parameter']:.1e} for the worst parameter)"
    for name, seconds in result["wide products"].items():
        caption += f"\nwide products of the tiled TE-TNP alone, {name}: {seconds:.2f} s"
    out = Table(title=result["what"], caption=caption)
    for head in ("", "median", "quartiles", "faster than plain", "relative to TNP"):
        out.add_column(head, justify="left" if head == "" else "right")
    for title, steps in result.items():
        if title.startswith("steps"):
            add_rows(out, steps, title.removeprefix("steps").strip())
    return out


def add_rows(out: Table, steps: dict[str, Any], title: str) -> None:
    """Adds one row for each case, after a title."""
    plain = {name.split(",")[0]: e["median"] for name, e in steps.items() if name.endswith("plain formula")}
    if title:
        out.add_section()
        out.add_row(title)
    for name, entry in steps.items():
        low, high = entry["quartiles"]
        family = plain.get(name.split(",")[0])
        out.add_row(
            name,
            f"{entry['median']:.3f} s",
            f"{low:.3f} to {high:.3f} s",
            "" if family is None else f"{family / entry['median']:.2f} x",
            f"{entry['median'] / steps['TNP']['median']:.2f}",
        )
