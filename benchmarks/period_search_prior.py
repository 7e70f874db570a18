"""The period search after training on a broad prior over functions, not on gp-1d: the shipped weights and a control.

    shiftnp train pretrain-1d --model te-tnp-rotary-control --steps 9000     # the shipped weights without period search
    python benchmarks/period_search_prior.py runs/pretrain-1d/te-tnp-rotary-control-laptop-seed0-steps=9000

Writes results/period-search-prior.json: log-likelihood per target on functions of the prior (`valid`), on its test
sets, which are not in it, and on the functions of benchmarks/period_search.py, each with the paired difference between
both models. Outputs are standardised by the context, as these models expect; scores are in the units of the data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from period_search import FUNCTIONS, ROOT, SEED, batches, compare
from torch import Tensor

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp.batch import Batch
from shiftnp.metrics import log_likelihood
from shiftnp.regressor.weights import load, pretrained
from shiftnp.runs.run import Run
from shiftnp.scaling import standardise_by_context
from shiftnp.tasks import TASKS


@torch.no_grad()
def scores(model: Any, data: Iterable[Batch]) -> Tensor:
    """Log-likelihood per target of every data set, in the units of its outputs."""
    found = []
    for batch in data:
        scale = standardise_by_context(batch.yc)
        prediction = model(batch.xc, scale.apply(batch.yc).float(), batch.xt)
        found.append(log_likelihood(prediction, scale.apply(batch.yt).float()).double() - scale.std.log()[:, 0, 0])
    return torch.cat(found)


def main() -> None:
    """Scores both models and writes the results."""
    control = Run.open(Path(sys.argv[1]))
    models = {"te-tnp-rotary": load(pretrained(1)), "te-tnp-rotary-control": control.model()}
    test_sets = TASKS["prior-1d"]().test_sets()
    data: dict[str, Any] = {name: list(test_set) for name, test_set in test_sets.items()}
    data |= {f"{name}, inputs of gp-1d": list(batches(draw)) for name, draw in FUNCTIONS.items()}
    result: dict[str, Any] = {
        "what": "TE-TNP, rotary kernel, trained on prior-1d with and without period search: log-likelihood per target",
        "command": f"python benchmarks/period_search_prior.py {control.folder.name}",
        "training": {"te-tnp-rotary": "see src/shiftnp/weights/1d", "te-tnp-rotary-control": control.config.command},
        "seed of the data": {**{name: t.seed for name, t in test_sets.items()}, "inputs of gp-1d": SEED},
        "machine": machine(),
        "functions": {},
    }
    for name, found in data.items():
        table = compare({row: [scores(model.eval(), found)] for row, model in models.items()})
        result["functions"][name] = table
        write_json(ROOT / "results/period-search-prior.json", result)
        gain = table["gain by the period search"]
        print(f"{name:32} gain {gain['mean']:+.3f} ± {gain['standard error']:.3f}", flush=True)


if __name__ == "__main__":
    main()
