"""Fills the tables of docs/results.md from the results of the experiments.

    shiftnp report gp-1d --runs results/runs --out results/gp-1d    # and so on: results/FOLDER/EXPERIMENT.json
    shiftnp report gp-1d --runs results/runs-adamw --out results/gp-1d-adamw
    SHIFTNP_DATA=DIR python benchmarks/laptop_times.py                # results/laptop-times-*.json: minutes
    python benchmarks/results_page.py

A table stands between the lines `<!-- table gp-1d gp-1d delta-0.0 delta-1.0 -->` and `<!-- end -->`: the folder in
results/, the task, and the test sets that become columns, in the order of the rows. The column *last fifth* tells how
near to its end a training is. `<!-- times -->` begins that of training steps. `tests/test_readme.py` checks that the
tables on the page are those that this script makes.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from laptop_times import row_of

from shiftnp._io import write
from shiftnp.experiments import EXPERIMENTS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/results.md"
TIMES = re.compile(r"(<!-- times -->\n).*?(<!-- end -->)", re.DOTALL)
BLOCK = re.compile(r"(<!-- table ([\w-]+) ([\w-]+) ([^>]*?) ?-->\n).*?(<!-- end -->)", re.DOTALL)


def table(folder: str, task: str, sets: list[str]) -> str:
    """A Markdown table of all runs of a report on a task: one line a row and its changes, seeds together. Changes that
    all runs have are not named."""
    (path,) = (ROOT / "results" / folder).glob("*.json")
    runs = [run for run in json.loads(path.read_text())["runs"] if run["evaluation"]["task"] == task]
    common = set.intersection(*(set(run["evaluation"]["changes"]) for run in runs))
    groups: dict[tuple[str, tuple[str, ...]], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        changes = tuple(change for change in run["evaluation"]["changes"] if change not in common)
        groups[run["evaluation"]["row"], changes].append(run)
    experiment = EXPERIMENTS[path.stem]
    titles = {column.test_set: column.title for column in experiment.columns if column.task == task}
    with_gap = [name for name in sets if any(gap(run, name) for runs in groups.values() for run in runs)][:1]
    most = max(run["evaluation"]["sets"][sets[0]]["tasks"] for runs in groups.values() for run in runs)
    head = ["model", "parameters", "steps", "minutes", "last fifth", "seeds", *(titles[name] for name in sets)]
    head += [f"gap, {titles[name]}" for name in with_gap]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for row in experiment.rows:
        for (name, changes), runs in groups.items():
            if name != row.name:
                continue
            first = runs[0]
            tasks = first["evaluation"]["sets"][sets[0]]["tasks"]
            notes = [*changes, *([f"{tasks} of {number(most)} tasks"] if tasks < most else [])]
            title = row.title + (f" ({', '.join(notes)})" if notes else "")
            cells = [title, number(first["parameters"]), number(first["evaluation"]["steps"] or None)]
            cells += [minutes(first)]
            cells += [last_fifth(runs), str(len(runs))]
            cells += [over_seeds([score(run, at) for run in runs], 3) for at in sets]
            cells += [over_seeds([gap(run, at) for run in runs], 3) for at in with_gap]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def times() -> str:
    """A Markdown table of the times of training steps, from results/train-times.json."""
    lines = ["| model | seconds a step | relative to the TNP | the paper's |", "|---|---:|---:|---:|"]
    for entry in json.loads((ROOT / "results/train-times.json").read_text())["models"].values():
        lines.append(
            f"| {entry['title']} | {entry['median']:.3f} | {entry['ratio']:.2f} | {entry['paper_ratio']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def score(run: dict[str, Any], name: str) -> dict[str, float] | None:
    """Log-likelihood of a run on a test set, with its standard error over tasks."""
    found = run["evaluation"]["sets"].get(name)
    return found and found["log_likelihood"]


def gap(run: dict[str, Any], name: str) -> dict[str, float] | None:
    """Gap to the ceiling of a run on a test set, with its standard error over tasks."""
    found = run["evaluation"]["sets"].get(name)
    return found and found.get("gap")


def over_seeds(values: list[dict[str, float] | None], digits: int) -> str:
    """Mean, and its standard error over tasks for one seed, or the standard deviation between several seeds."""
    there = [value for value in values if value is not None]
    if not there:
        return ""
    means = [value["mean"] for value in there]
    error = statistics.stdev(means) if len(means) > 1 else there[0]["standard_error"]
    return f"{statistics.fmean(means):.{digits}f} ± {error:.{digits}f}"


def last_fifth(runs: list[dict[str, Any]]) -> str:
    """By how much the validation score rose over the last fifth of the training, of the seed where it moved most."""
    rises = []
    for curve in (run["validation"] for run in runs if run["validation"]):
        before = [row["valid"] for row in curve if row["step"] <= 0.8 * curve[-1]["step"]]
        rises.append(curve[-1]["valid"] - before[-1])
    return f"{max(rises, key=abs):+.3f}" if rises else ""


def minutes(run: dict[str, Any]) -> str:
    """Minutes of training on one thread of idle machines, with AVX-512 and with AVX2; nothing for a baseline. A row
    whose steps were not timed on a machine has a question mark."""
    if not (steps := run["evaluation"]["steps"]):
        return ""
    files = [json.loads((ROOT / f"results/laptop-times-{kind}.json").read_text()) for kind in ("avx512", "avx2")]
    times = [file["rows"].get(row_of(run["command"])) for file in files]
    return " / ".join("?" if time is None else f"{steps * time['mean'] / 60:.0f}" for time in times)


def number(value: int | None) -> str:
    """A number with separators, or nothing."""
    return "" if value is None else f"{value:,}"


def fill(text: str) -> str:
    """The page with all tables made again."""
    text = TIMES.sub(lambda found: found[1] + times() + found[2], text)
    return BLOCK.sub(lambda found: found[1] + table(found[2], found[3], found[4].split()) + found[5], text)


if __name__ == "__main__":
    write(PAGE, fill(PAGE.read_text()))
