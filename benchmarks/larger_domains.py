"""Generalisation to domains larger than in training (Theorem 2 of the paper).

    python benchmarks/larger_domains.py

Small models are trained on Gaussian processes on [-2, 2] and tested on domains 1, 2, 5, 20 and 100 times as long, with
the same density of points. Then the same with the kept runs of gp-1d with and without period search, on functions of
gp-1d, a third of which are periodic. Writes results/larger-domains.json and docs/larger-domains.png. About twenty
minutes on two cores.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from shiftnp._machine import machine
from shiftnp.kernels.period import PeriodSearch
from shiftnp.metrics import log_likelihood
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.run import Run
from shiftnp.runs.train import train
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_posterior import GPOracle

ROOT = Path(__file__).parent.parent
TASK: dict[str, Any] = {"kernels": ("se", "matern52"), "length": (0.2, 0.5), "points": (16, 48), "targets": 32}
TASK |= {"context": (-2.0, 2.0), "target": (-2.0, 2.0)}
SIZE = {"dz": 32, "heads": 4, "head_dim": 8, "layers": 3}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "TNP": ("tnp", SIZE),
    "TE-TNP, radius 1": ("te-tnp", {**SIZE, "radius": 1.0, "location_update": False}),
    "TE-TNP, rotary": ("te-tnp", {**SIZE, "kernel": "rotary", "location_update": False}),
    "TE-TNP, rotary, no window": (
        "te-tnp",
        {**SIZE, "kernel": {"name": "rotary", "window": False}, "location_update": False},
    ),
    "TE-TNP, rotary, period search": (
        "te-tnp",
        {**SIZE, "kernel": {"name": "rotary", "period_search": 64}, "location_update": False},
    ),
    "TE-TNP, rotary, period search in windows": (
        "te-tnp",
        {**SIZE, "kernel": {"name": "rotary", "period_search": 64, "period_span": 4.0}, "location_update": False},
    ),
}
TRAINING = Training(steps=2000, learning_rate=2e-3, schedule="cosine", warmup=100, valid_every=1000, valid_tasks=64)
TIMES = (1, 2, 5, 20, 100)
POINTS = 8  # context points, and targets, per unit of length
TASKS = {1: 64, 2: 64, 5: 32, 20: 16, 100: 8}


def test_batches(times: int, functions: dict[str, Any]) -> Any:
    """Data sets on a domain `times` as long as in training, each with its exact posterior."""
    half, n = 2.0 * times, 4 * POINTS * times
    task = GPTask(**{**functions, "context": (-half, half), "target": (-half, half), "points": (n, n), "targets": n})
    for i in range(TASKS[times]):
        batch, truth = task.sample_with_truth(1, generator_for(1, i))
        yield batch, GPOracle(task, truth)


def trained() -> dict[str, Any]:
    """The small models, trained."""
    models = {}
    for name, (kind, settings) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            run = Run.create(Path(folder), RunConfig(kind, "gp-1d", TRAINING, settings, TASK))
            train(run, gap=False)
            models[name] = run.model()
    return models


def kept() -> dict[str, Any]:
    """The kept runs of gp-1d, the one with period search also without windows."""
    models = {
        name: Run.open(ROOT / f"results/runs/gp-1d/{row}-laptop-seed0").model()
        for name, row in (
            ("no period search", "te-tnp-rotary-control"),
            ("period search", "te-tnp-rotary"),
            ("period search in windows", "te-tnp-rotary"),
        )
    }
    for name, span in (("period search", None), ("period search in windows", 4.0)):
        hook = models[name].hook
        assert isinstance(hook, PeriodSearch)
        hook.span = span  # training contexts are no longer than 4, so the weights are the same
    return models


@torch.no_grad()
def score(models: dict[str, Any], functions: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Log-likelihood of models and of the exact posterior by length of the domain: mean and standard error."""
    scores: dict[str, dict[str, list[float]]] = {name: {} for name in ("oracle", *models)}
    for times in TIMES:
        rows: dict[str, list[float]] = {name: [] for name in scores}
        for batch, oracle in test_batches(times, functions):
            for name, predict in {"oracle": oracle, **models}.items():
                prediction = predict(batch.xc, batch.yc, batch.xt)
                rows[name].append(float(log_likelihood(prediction, batch.yt.to(prediction.mean.dtype)).mean()))
        for name, values in rows.items():
            v = torch.tensor(values)
            scores[name][str(times)] = [float(v.mean()), float(v.std() / len(v) ** 0.5)]
            print(f"{times:4} x  {name:42} {v.mean():+.3f}", flush=True)
    return scores


def main() -> None:
    """Runs the benchmark and writes its results."""
    of_kept = score(kept(), {})
    scores = score(trained(), TASK)
    result = {
        "what": "log-likelihood per target, mean and standard error over tasks, by length of the domain",
        "command": "python benchmarks/larger_domains.py",
        "seed": TRAINING.seed,
        "training": {"steps": TRAINING.steps, "task": TASK, "size": SIZE},
        "machine": machine(),
        "scores": scores,
        "kept runs on functions of gp-1d": of_kept,
    }
    (ROOT / "results/larger-domains.json").write_text(json.dumps(result, indent=2) + "\n")
    draw(scores).savefig(ROOT / "docs/larger-domains.png", dpi=130)


def draw(scores: dict[str, dict[str, list[float]]]) -> Figure:
    """Log-likelihood of all models against the length of the domain."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    ax = figure.subplots()
    for name, by_times in scores.items():
        mean, error = zip(*by_times.values(), strict=True)
        style = {"color": "0.5", "linestyle": "--"} if name == "oracle" else {"marker": "o"}
        ax.errorbar([4 * t for t in TIMES], mean, error, label=name, **style)
    ax.axvspan(3.4, 4.6, color="0.9", zorder=0)
    lowest = min(v[0] for name in ("TE-TNP, radius 1", "oracle") for v in scores[name].values())
    ax.set(xscale="log", xlabel="length of the domain (trained on 4)", ylabel="log-likelihood per target")
    ax.set_ylim(bottom=lowest - 3, top=max(v[0] for v in scores["oracle"].values()) + 0.3)
    ax.legend(fontsize="small")
    return figure


if __name__ == "__main__":
    main()
