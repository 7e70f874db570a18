"""Evaluations as tables in a terminal."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shiftnp.metrics import COVERAGE
from shiftnp.runs.evaluate import Summary

Rows = list[tuple[str, Summary]]
Columns = list[tuple[str, list[str]]]
"""Titles and cells."""
LONGEST = 16  # characters of a name that leave room for figures


def print_tables(evaluations: list[dict[str, Any]], console: Console) -> None:
    """Shows evaluations as tables that fit the console, and below them what a mean would hide."""

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False)

    names, legend = names_of(evaluations)
    for title, table in tables(evaluations, names, console.width):
        say(title, "bold")
        console.print(table)
        say("")
    if legend:
        grid = Table.grid(padding=(0, 1))
        for number, text in legend:
            grid.add_row(Text(number), Text(text))
        console.print(grid)
    for label, e in zip(names, evaluations, strict=True):
        if e["note"]:
            say(f"{label}: {e['note']}")
        for name, summary in e["sets"].items():
            extremes, worst = summary["extremes"], summary["extremes"]["worst"][0]
            if extremes["tasks"]:
                say(
                    f"{label}: {extremes['tasks']} of {summary['tasks']} tasks of {name} score less than"
                    f" {extremes['threshold']:g} per target; the worst, task {worst['task']} with {worst['context']}"
                    f" context points, {figure(worst['log_likelihood'])};"
                    f" the median is {figure(summary['median_log_likelihood'])}."
                )


def names_of(evaluations: list[dict[str, Any]]) -> tuple[list[str], list[tuple[str, str]]]:
    """What each run is called in tables. If some names are long, all get numbers, and a legend says what they are."""
    same = Counter((e["label"], e["task"]) for e in evaluations)
    names = [e["label"] if same[e["label"], e["task"]] == 1 else f"{e['label']}, seed {e['seed']}" for e in evaluations]
    if len(names) == 1 or max(map(len, names), default=0) <= LONGEST:
        return names, []
    numbers = [f"[{i}]" for i in range(1, len(names) + 1)]
    short = [f"{e['label'].split(' (')[0]} {number}" for e, number in zip(evaluations, numbers, strict=True)]
    return short, [(n, f"{e['label']}, seed {e['seed']}") for n, e in zip(numbers, evaluations, strict=True)]


def tables(evaluations: list[dict[str, Any]], names: list[str], width: int) -> list[tuple[str, Table]]:
    """Titles and tables: of one run, with its test sets as rows; of several, with runs as rows, for each test set."""
    groups: dict[str, Rows] = {}
    for label, e in zip(names, evaluations, strict=True):
        for name, summary in e["sets"].items():
            title, row = (f"{label} on {e['task']}", name) if len(evaluations) == 1 else (f"{e['task']}, {name}", label)
            groups.setdefault(f"{title}: {summary['tasks']} tasks", []).append((row, summary))
    out = []
    for title, rows in groups.items():
        out += [*figures_tables(title, rows, width), *context_tables(rows, width)]
    return out


def figures_tables(title: str, rows: Rows, width: int) -> list[tuple[str, Table]]:
    """All figures of a test set or run, with standard errors of the mean over tasks: one table, or two if narrow."""
    names, every = [name for name, _ in rows], [s for _, s in rows]
    scores: Columns = [("log-\nlikelihood", [with_error(s["log_likelihood"]) for s in every])]
    if any("gap" in s for s in every):
        scores.append(("gap to\nbest possible", [with_error(s["gap"]) if "gap" in s else "" for s in every]))
    scores.append(("RMSE", [figure(s["rmse"]["value"]) for s in every]))
    scores.append(("CRPS", [figure(s["crps"]["mean"]) for s in every]))
    calibration: Columns = []
    for level in COVERAGE:
        shares = [s["coverage"][level]["mean"] for s in every]
        calibration.append((f"cover\n{level} %", ["-" if x is None else f"{100 * x:.1f}" for x in shares]))
    calibration.append(("calibr.\nerror", [figure(s["calibration_error"]) for s in every]))
    if width_of(names) + sum(map(width_of_column, scores + calibration)) <= width:
        return [(title, new_table(names, scores + calibration))]
    return [(title, new_table(names, scores)), ("The same: calibration", new_table(names, calibration))]


def context_tables(rows: Rows, width: int) -> list[tuple[str, Table]]:
    """Log-likelihood and gap by number of context points, as many side by side as there is room for."""
    bins = sorted({b for _, s in rows for b in s["by_context"]}, key=lambda b: int(b.split("-")[0]))
    lines = [
        (what, s, key) for name, s in rows for what, key in ((name, "log_likelihood"), ("  gap", "gap")) if key in s
    ]
    names = [what for what, _, _ in lines]
    columns: Columns = []
    for b in bins:
        each = [(s["by_context"].get(b), key) for _, s, key in lines]
        columns.append((b, ["" if e is None else figure(e[key]["mean"]) for e, key in each]))
    room = width - width_of(names)
    most = max(1, room // max(map(width_of_column, columns), default=1))
    title = "The same, by number of context points: log-likelihood"
    return [(title, new_table(names, columns[i : i + most])) for i in range(0, len(columns), most)]


def new_table(names: list[str], columns: Columns) -> Table:
    """A table that gives names the room they need, as they are short or alone."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("", overflow="fold", min_width=min(width_of(names), 2 * LONGEST))
    for title, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for name, *cells in zip(names, *(cells for _, cells in columns), strict=True):
        table.add_row(Text(name), *cells)
    return table


def width_of(texts: list[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def width_of_column(column: tuple[str, list[str]]) -> int:
    """With what is between it and the one before."""
    title, cells = column
    return 2 + width_of([title, *cells])


def figure(x: float | None) -> str:
    """Three digits after the point, or few in all if it is large."""
    return "-" if x is None else f"{x:.3f}" if abs(x) < 1000 else f"{x:.2g}"


def with_error(entry: dict[str, float | None]) -> str:
    return f"{figure(entry['mean'])} ± {figure(entry['standard_error'])}"
