"""Evaluations as tables in a terminal."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shiftnp.evaluation import COVERAGE, Summary

Rows = list[tuple[str, Summary]]
WIDEST = 8  # most context sizes side by side, in 100 columns


def print_tables(evaluations: list[dict[str, Any]], console: Console) -> None:
    """Shows evaluations as tables, and below them what a mean would hide."""

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False)

    for title, table in tables(evaluations):
        say(title, "bold")
        console.print(table)
    for e in evaluations:
        if e["note"]:
            say(f"{e['label']}: {e['note']}")
        for name, summary in e["sets"].items():
            extremes, worst = summary["extremes"], summary["extremes"]["worst"][0]
            if extremes["tasks"]:
                say(
                    f"{e['label']}: {extremes['tasks']} of {summary['tasks']} tasks of {name} score less than"
                    f" {extremes['threshold']:g} per target; the worst, task {worst['task']} with {worst['context']}"
                    f" context points, {figure(worst['log_likelihood'])};"
                    f" the median is {figure(summary['median_log_likelihood'])}."
                )


def tables(evaluations: list[dict[str, Any]]) -> list[tuple[str, Table]]:
    """Titles and tables: of one run, with its test sets as rows; of several, with runs as rows, for each test set."""
    groups: dict[str, Rows] = {}
    labels = Counter((e["label"], e["task"]) for e in evaluations)
    for e in evaluations:
        label = e["label"] if labels[e["label"], e["task"]] == 1 else f"{e['label']}, seed {e['seed']}"
        for name, summary in e["sets"].items():
            title, row = (f"{label} on {e['task']}", name) if len(evaluations) == 1 else (f"{e['task']}, {name}", label)
            groups.setdefault(f"{title}: {summary['tasks']} tasks", []).append((row, summary))
    return [pair for title, rows in groups.items() for pair in (figures_table(title, rows), *context_tables(rows))]


def figures_table(title: str, rows: Rows) -> tuple[str, Table]:
    """All figures of a test set or run, with standard errors of the mean over tasks."""
    gap = any("gap" in s for _, s in rows)
    covers = [f"cover\n{level} %" for level in COVERAGE]
    columns = ("log-\nlikelihood", *(["gap to\nbest possible"] * gap), "RMSE", "CRPS", *covers, "calibr.\nerror")
    table = new_table(*columns)
    for name, s in rows:
        covered = (s["coverage"][level]["mean"] for level in COVERAGE)
        table.add_row(
            Text(name),
            with_error(s["log_likelihood"]),
            *([with_error(s["gap"]) if "gap" in s else ""] * gap),
            figure(s["rmse"]["value"]),
            figure(s["crps"]["mean"]),
            *("-" if share is None else f"{100 * share:.1f}" for share in covered),
            figure(s["calibration_error"]),
        )
    return title, table


def context_tables(rows: Rows) -> list[tuple[str, Table]]:
    """Log-likelihood and gap by number of context points."""
    bins = sorted({b for _, s in rows for b in s["by_context"]}, key=lambda b: int(b.split("-")[0]))
    out = []
    for some in (bins[i : i + WIDEST] for i in range(0, len(bins), WIDEST)):
        table = new_table(*some)
        for name, s in rows:
            each = [s["by_context"].get(b) for b in some]
            for what, key in ((name, "log_likelihood"), ("  gap", "gap")):
                if key in s:
                    table.add_row(Text(what), *("" if e is None else figure(e[key]["mean"]) for e in each))
        out.append(("The same, by number of context points: log-likelihood", table))
    return out


def new_table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def figure(x: float | None) -> str:
    """Three digits after the point, or few in all if it is large."""
    return "-" if x is None else f"{x:.3f}" if abs(x) < 1000 else f"{x:.2g}"


def with_error(entry: dict[str, float | None]) -> str:
    return f"{figure(entry['mean'])} ± {figure(entry['standard_error'])}"
