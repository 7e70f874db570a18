"""Learning curves with the pairwise MLPs in bfloat16, compared with float32.

    python benchmarks/bf16_training.py

A small TE-TNP with the paper's kernel is trained on `gp-1d` in both precisions, on the same batches, for several seeds.
On a CPU without bfloat16 instructions bfloat16 is tens of times slower than float32, so matrix products are emulated
here: computed in float32 from bfloat16 inputs, and then rounded. The result is that of a CPU with bfloat16, up to the
order of summation. This compares accuracy, not speed. Writes results/bf16-training.json and docs/bf16-training.png.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch.utils._python_dispatch import TorchDispatchMode

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp.attention import tiled
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.run import Run
from shiftnp.runs.train import train

MODEL = {"dz": 32, "heads": 4, "head_dim": 8, "layers": 2}
COLOURS = {"float32": "tab:blue", "bf16-pairs": "tab:orange"}
PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm)


class RoundedProducts(TorchDispatchMode):
    """Emulates bfloat16 matrix products by float32 ones with rounded results."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.overloadpacket not in PRODUCTS or args[-1].dtype != torch.bfloat16:
            return func(*args, **kwargs)
        result = func.overloadpacket(*(a.float() for a in args))
        return kwargs["out"].copy_(result) if "out" in kwargs else result.bfloat16()


def curve(folder: Path, precision: str, seed: int, steps: int) -> list[dict[str, float]]:
    """Trains a model; returns its validation log-likelihood by step."""
    training = Training(
        steps=steps,
        learning_rate=1e-3,
        schedule="cosine",
        warmup=20,
        precision=precision,
        seed=seed,
        valid_every=steps // 10,
        valid_tasks=64,
    )
    run = Run.create(folder / f"{precision}-{seed}", RunConfig("te-tnp", "gp-1d", training, MODEL))
    with RoundedProducts():
        if not train(run, gap=False, quiet=True):
            raise SystemExit("Stopped; nothing was written.")
    return [{"step": row["step"], "valid": row["valid"]} for row in run.metrics() if "valid" in row]


def draw(curves: dict[str, dict[str, list[dict[str, float]]]]) -> Figure:
    """The learning curves of both precisions and all seeds."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for precision, seeds in curves.items():
        for i, rows in enumerate(seeds.values()):
            axes.plot(
                [r["step"] for r in rows],
                [r["valid"] for r in rows],
                "-" if precision == "float32" else "--",
                color=COLOURS[precision],
                label=precision if i == 0 else None,
            )
    axes.set_xlabel("step")
    axes.set_ylabel("validation log-likelihood per target")
    axes.legend()
    return figure


def main() -> None:
    """Runs the benchmark and writes its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/bf16-training.json"))
    parser.add_argument("--picture", type=Path, default=Path("docs/bf16-training.png"))
    arguments = parser.parse_args()
    tiled.LOW_PRECISION = True
    curves: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seeds):
            for precision in COLOURS:
                curves.setdefault(precision, {})[str(seed)] = curve(Path(folder), precision, seed, arguments.steps)
                print(seed, precision, curves[precision][str(seed)][-1], flush=True)
    result = {
        "what": "validation log-likelihood per target of a small TE-TNP (paper's kernel) on gp-1d by step, 64 tasks",
        "command": f"python {' '.join(sys.argv)}",
        "products": "of bfloat16, computed in float32 and rounded: the same numbers, no statement about speed",
        "model": MODEL,
        "steps": arguments.steps,
        "machine": machine(),
        "curves": curves,
    }
    write_json(arguments.out, result)
    draw(curves).savefig(arguments.picture, dpi=120)
    print(json.dumps({p: [rows[-1]["valid"] for rows in seeds.values()] for p, seeds in curves.items()}))


if __name__ == "__main__":
    main()
