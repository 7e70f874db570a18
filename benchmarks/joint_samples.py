"""Accuracy of joint samples in few steps, against the exact order, for trained models on GP tasks.

    python benchmarks/joint_samples.py

For every data set the log density of the true outputs is computed as they would be drawn: exactly, with
every target added to the context; in steps; and with a causal buffer: new tokens attend to all before them, but
the tokens of the context are not updated, as models were not trained for it. Writes results/joint-samples.json.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shiftnp  # noqa: F401 (before torch)

# isort: split
import torch
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp.batch import Batch
from shiftnp.models import TETNP, sampling
from shiftnp.models.encoded import Encoded
from shiftnp.nn.tokens import Tokens
from shiftnp.nn.transformer import Memory
from shiftnp.runs.run import Run
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask

RUNS = ("te-tnp-rotary-small-laptop-seed0", "te-tnp-laptop-seed0")
STEPS = (1, 4, 8, 16)


def log_density(model: TETNP, batch: Batch, order: Tensor, sizes: Sequence[int], buffer: bool = False) -> Tensor:
    """Log density per target of the outputs of each data set, drawn in that order and in steps of these sizes."""
    xt, yt = (t.take_along_dim(order[..., None], 1) for t in (batch.xt, batch.yt))
    encoded, total = Encoded(model, batch.xc, batch.yc), torch.zeros(len(xt))
    memory = encoded.memory
    for x, y in zip(xt.split(sizes, 1), yt.split(sizes, 1), strict=True):
        total += model.likelihood(model._decode(memory, x)).log_prob(y).sum(1)
        encoded.add(x, y)
        memory = extended(model, memory, model.tokens.context(model.context(x, y))) if buffer else None
        if not buffer and encoded.xc.shape[1] < batch.xc.shape[1] + xt.shape[1]:
            memory = encoded.memory
    return total / xt.shape[1]


def extended(model: TETNP, memory: Memory, new: Tokens) -> Memory:
    """The memory with new tokens, which attend to all; the others stay as they are."""
    old, layers, start = memory.start, [], memory.start.join(new)
    for block, after in zip(model.stack.context, memory.layers, strict=True):
        new, before = block(new, old.join(new), None), after
        joined = before.join(new)
        layers.append(joined)
        old = before
    return Memory(start, layers)


@torch.no_grad()
def losses(model: TETNP, batch: Batch) -> dict[str, Any]:
    """Mean and standard error over data sets of the loss of log density per target, against the exact order."""
    g, nt = torch.Generator().manual_seed(0), batch.xt.shape[1]
    order = sampling.spread(batch.xt, model.difference, g)
    exact = log_density(model, batch, order, [1] * nt)
    cases = {f"{steps} steps": (order, sampling.sizes(nt, steps), False) for steps in STEPS}
    random = torch.rand(order.shape, generator=g).argsort(1)
    cases["8 steps in random order"] = (random, sampling.sizes(nt, 8), False)
    cases["exact in random order"] = (random, [1] * nt, False)
    cases["causal buffer"] = (order, [1] * nt, True)
    found: dict[str, Any] = {"exact": float(exact.mean())}
    for name, case in cases.items():
        lost = exact - log_density(model, batch, *case)
        found[name] = {"lost": float(lost.mean()), "standard error": float(lost.std() / len(lost) ** 0.5)}
        print(f"  {name}: {found[name]['lost']:.4f} ({found[name]['standard error']:.4f})", flush=True)
    return found


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description="Accuracy of joint samples in few steps.")
    parser.add_argument("--runs", type=Path, default=Path("results/runs/gp-1d"))
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--targets", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/joint-samples.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "what": "nats per target that joint draws lose against the exact order, on samples of gp-1d",
        "command": shlex.join(["python", *sys.argv]),
        "seed": args.seed,
        "tasks": args.tasks,
        "targets": args.targets,
        "machine": machine(),
        "models": {},
    }
    for name in RUNS:
        model = Run.open(args.runs / name).model().eval()
        assert isinstance(model, TETNP)
        for context in (4, 20):
            task = GPTask(points=(context, context), targets=args.targets)
            batch = task.sample(args.tasks, generator_for(args.seed, 0)).to(dtype=torch.float32)
            print(f"{name}, {context} context points", flush=True)
            result["models"][f"{name}, {context} context points"] = losses(model, batch)
    write_json(args.out, result)
    print(json.dumps(result["models"], indent=1))


if __name__ == "__main__":
    main()
