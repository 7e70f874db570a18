"""Comparison of runs on gp-1d with the rotary kernel, the paper's kernel and the TNP.

    shiftnp train gp-1d ... --out runs/NAME
    shiftnp evaluate runs/NAME  # optional, for scores on the test sets
    python benchmarks/rotary.py runs/NAME ...

Writes results/rotary-gp-1d.json, with the command of every run, and docs/rotary.png: the gap to the best possible
Gaussian on the validation tasks, against steps and against time.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, NullFormatter

from shiftnp._io import write_json
from shiftnp._machine import machine
from shiftnp.kernels import make_kernel
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.evaluate import read_evaluation
from shiftnp.runs.results import SetSummary
from shiftnp.runs.run import Run

ROOT = Path(__file__).parent.parent
COLOURS = {"mlp": "tab:green", "rotary": "tab:blue", "TNP": "tab:orange"}


def main() -> None:
    """Reads the runs and writes the results."""
    runs = {}
    for folder in map(Path, sys.argv[1:]):
        run = Run.open(folder)
        evaluation = read_evaluation(run)
        curve = [row for row in run.metrics() if "valid" in row]
        if any("gap" not in row for row in curve):
            raise SystemExit(f"{folder} was trained with --no-gap, but the gap is what is compared here.")
        name = name_of(run.config, curve[-1]["step"])
        if name in runs:
            raise SystemExit(f"{folder} is a second run called {name!r}.")
        runs[name] = {
            "command": command(run.config, evaluation.tasks if evaluation else None),
            "seed": run.config.training.seed,
            "machine": machine() | {"threads": run.state()["threads"]},
            "minutes": curve[-1]["seconds"] / 60,
            "curve": curve,
            "sets": {name: figures(entry) for name, entry in (evaluation.sets if evaluation else {}).items()},
        }
    what = "gp-1d: gap to the best possible Gaussian while training (256 validation tasks), and scores on test sets"
    write_json(ROOT / "results/rotary-gp-1d.json", {"what": what, "runs": runs})
    draw(runs).savefig(ROOT / "docs/rotary.png", dpi=130)
    for name, run in runs.items():
        print(f"{name:60} gap {run['curve'][-1]['gap']:.3f} on the validation tasks")


def name_of(config: RunConfig, step: int) -> str:
    """Name of a run: model, kernel and number of steps."""
    kernel = make_kernel(config.model_settings.get("kernel", "mlp"))
    kind = "TNP" if config.model == "tnp" else f"TE-TNP, {kernel.name}"
    search = " with period search" if getattr(kernel, "period_search", 0) else ""
    stopped = "" if step == config.training.steps else f"{step:,} of "
    return f"{kind}{search}, {stopped}{config.training.steps:,} steps"


def command(config: RunConfig, tasks: int | None) -> str:
    """The command that trains and evaluates the run again."""
    options, names = [], {entry.name for entry in fields(Training)}
    for change in config.changes:
        name, value = change.split("=", 1)
        options.append(f"--{name.replace('_', '-')} {value}" if name in names else change)
    evaluate = "shiftnp evaluate RUN" + ("" if tasks is None else f" --tasks {tasks}")
    about = f"--model {config.row} --preset {config.preset} --seed {config.training.seed}"
    return f"shiftnp train gp-1d {about} {' '.join(options)} --out RUN; {evaluate}"


def figures(entry: SetSummary) -> dict[str, Any]:
    """The metrics of a test set that are stored."""
    return {key: asdict(entry)[key] for key in ("tasks", "log_likelihood", "gap", "coverage", "calibration_error")}


def draw(runs: dict[str, Any]) -> Figure:
    """Gaps of all runs against steps and against time."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, run in runs.items():
        colour = next(c for word, c in COLOURS.items() if word in name)
        line = "-" if run["minutes"] == max(r["minutes"] for r in runs.values()) else "--"
        gaps = [row["gap"] for row in run["curve"]]
        left.plot([row["step"] for row in run["curve"]], gaps, line, marker=".", color=colour, label=name)
        right.plot([row["seconds"] / 60 for row in run["curve"]], gaps, line, marker=".", color=colour)
    for ax, label, ticks in ((left, "step", 250), (right, "minutes", 3)):
        ax.set(xscale="log", yscale="log", xlabel=label)
        ax.set_xticks([ticks * 2**i for i in range(6 if label == "step" else 5)])
        ax.set_yticks([0.05, 0.1, 0.2, 0.3, 0.5])
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(FormatStrFormatter("%g"))
            axis.set_minor_formatter(NullFormatter())
        ax.grid(alpha=0.3)
    left.set_ylabel("gap in nats per target")
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    return figure


if __name__ == "__main__":
    main()
