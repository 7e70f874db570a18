"""Why pseudo-tokens lose on the bimodal inputs of the ablation.

    python benchmarks/bimodal_inputs.py

Inputs of the bimodal test tasks lie in two intervals, [-4, -1] and [1, 4]; in training they are in one. Trained models
predict each target twice: from the whole context, and from the context points of the target's own interval only. The
models are the kept runs of the ablation and, for comparison, those of the rows `OTHERS` of gp-1d. Writes
results/bimodal-inputs.json. About three minutes on one core.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp.experiments import EXPERIMENTS
from shiftnp.models import NeuralProcess
from shiftnp.runs.run import find_runs
from shiftnp.tasks import TestSet

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "results/runs"
OTHERS = ("te-tnp", "te-pt-tnp-m32-rotary")
"""Without pseudo-tokens, and with another kernel."""


@torch.no_grad()
def scores(model: NeuralProcess, tasks: TestSet) -> dict[str, Tensor]:
    """Log-likelihood per target of each task, from the whole context and from each target's own interval."""
    found: dict[str, list[Tensor]] = {"whole context": [], "own interval": []}
    for batch in tasks:
        left_c, left_t = batch.xc[..., 0] < 0, batch.xt[..., 0] < 0
        whole, left, right = (
            model(batch.xc, batch.yc, batch.xt, mask).log_prob(batch.yt) for mask in (None, left_c, ~left_c)
        )
        found["whole context"].append(whole.mean(-1))
        found["own interval"].append(torch.where(left_t, left, right).mean(-1))
    return {name: torch.cat(values) for name, values in found.items()}


def main() -> None:
    """Runs the benchmark and writes its results."""
    rows: dict[str, dict[str, list[float]]] = {}
    others = (run for run in find_runs(RUNS / "gp-1d")[0] if run.config.row in OTHERS)
    for run in (*find_runs(RUNS / "ablation")[0], *others):
        model = run.model()
        assert isinstance(model, NeuralProcess)
        found = scores(model, EXPERIMENTS["ablation"].test_sets(run.task)["bimodal"])
        own = found["own interval"] - found["whole context"]
        row = rows.setdefault(run.config.row or run.config.model, {})
        row.setdefault("seed", []).append(run.config.training.seed)
        for name, values in {**found, "difference": own}.items():
            row.setdefault(name, []).append(float(values.mean()))
        row.setdefault("standard error of the difference", []).append(float(own.std() / len(own) ** 0.5))
        print(run.folder.name, json.dumps({name: round(values[-1], 3) for name, values in row.items()}), flush=True)
    result = {
        "what": "log-likelihood per target on the bimodal test tasks of the ablation, for each seed",
        "command": "python benchmarks/bimodal_inputs.py",
        "machine": machine(),
        "rows": rows,
    }
    write_json(ROOT / "results/bimodal-inputs.json", result)


if __name__ == "__main__":
    main()
