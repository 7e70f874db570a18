"""Tables of evaluations for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shiftnp._text import printable
from shiftnp.metrics import COVERAGE
from shiftnp.regressor.crossvalidation import Results
from shiftnp.runs.results import BinSummary, Estimate, Evaluation, SetSummary

Rows = list[tuple[str, SetSummary]]
"""Names and metrics of the rows of a table."""
Columns = list[tuple[str, list[str]]]
"""Titles and cells of the columns of a table."""
NEW_PLACES, ENOUGH = "new-places", 0.85
"""The test set of stations that are not in training, and the coverage of 90 % intervals below which to warn."""
LONGEST = 16  # characters of a name that leave room for numbers


def print_tables(evaluations: Sequence[Evaluation], console: Console) -> None:
    """Prints evaluations as tables that fit the console, then runs that are not finished and tasks that failed."""

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
        if not e.is_finished:
            say(f"{label}: training is not finished, {e.step} of {e.steps} steps. These figures are not final.")
        for name, summary in e.sets.items():
            if summary.failures.tasks:
                say(f"{label}: {failed_tasks(name, summary)}")
            if name == NEW_PLACES and (cover := summary.coverage["90"].mean) is not None and cover < ENOUGH:
                say(
                    f"{label}: 90 % intervals cover {cover:.0%} at new places, so they are too narrow where no station"
                    " is: train on more stations, for less time, or with a larger task.drop and task.jitter."
                )


def failed_tasks(name: str, summary: SetSummary) -> str:
    """A sentence about the failed tasks of a test set."""
    failures = summary.failures
    sentence = f"{failures.tasks} of {summary.tasks} tasks of {name} score less than {failures.threshold:g} per target"
    if failures.worst:
        worst = failures.worst[0]
        sentence += (
            f"; the worst, task {worst.task} with {worst.context} context points, {figure(worst.log_likelihood)}"
        )
    return f"{sentence}; the median is {figure(summary.median_log_likelihood)}."


def names_of(evaluations: Sequence[Evaluation]) -> tuple[list[str], list[tuple[str, str]]]:
    """Names of the runs in tables, and a legend. If some names are long, all are replaced by numbers in the legend."""
    labels = [printable(e.label) for e in evaluations]
    seeds = [f"{label}, seed {e.seed}" for label, e in zip(labels, evaluations, strict=True)]
    keys = [(label, e.task) for label, e in zip(labels, evaluations, strict=True)]
    total = Counter(keys)
    names = [label if total[key] == 1 else seed for label, seed, key in zip(labels, seeds, keys, strict=True)]
    if len(names) == 1 or max(map(len, names), default=0) <= LONGEST:
        return names, []
    numbers = [f"[{i}]" for i in range(1, len(names) + 1)]
    short = [f"{label.split(' (')[0]} {number}" for label, number in zip(labels, numbers, strict=True)]
    return short, list(zip(numbers, seeds, strict=True))


def tables(evaluations: Sequence[Evaluation], names: list[str], width: int) -> list[tuple[str, Table]]:
    """Tables with their titles: for one run, test sets as rows; for several, one table per test set, runs as rows."""
    groups: dict[str, Rows] = {}
    for label, e in zip(names, evaluations, strict=True):
        task = printable(e.task)
        for name, summary in e.sets.items():
            title, row = (f"{label} on {task}", name) if len(evaluations) == 1 else (f"{task}, {name}", label)
            groups.setdefault(f"{title}: {tasks_of(summary)}", []).append((row, summary))
    out = []
    for title, rows in groups.items():
        out += [*figures_tables(title, rows, width), *context_tables(rows, width)]
    return out


def tasks_of(summary: SetSummary) -> str:
    """The number of tasks, of the groups of observations that they are made from, and the unit of the scores."""
    text = f"{summary.tasks} tasks"
    if summary.groups is not None:
        text += f" of {summary.groups} group{'s' if summary.groups > 1 else ''}"
    return text if summary.unit is None else f"{text}, in units of {printable(summary.unit)}"


def figures_tables(title: str, rows: Rows, width: int) -> list[tuple[str, Table]]:
    """All metrics of a test set or run, with standard errors over tasks: one table, or two in a narrow terminal."""
    names, every = [name for name, _ in rows], [s for _, s in rows]
    scores: Columns = [("log-\nlikelihood", [with_error(s.log_likelihood) for s in every])]
    if any(s.gap for s in every):
        scores.append(("gap to\nbest possible", [with_error(s.gap) if s.gap else "" for s in every]))
    scores.append(("RMSE", [figure(s.rmse.mean) for s in every]))
    scores.append(("CRPS", [figure(s.crps.mean) for s in every]))
    calibration: Columns = []
    for level in COVERAGE:
        shares = [s.coverage[level].mean if level in s.coverage else None for s in every]
        calibration.append((f"cover\n{level} %", ["-" if x is None else f"{100 * x:.1f}" for x in shares]))
    calibration.append(("calibr.\nerror", [figure(s.calibration_error) for s in every]))
    if width_of(names) + sum(map(width_of_column, scores + calibration)) <= width:
        return [(title, new_table(names, scores + calibration))]
    return [(title, new_table(names, scores)), ("The same: calibration", new_table(names, calibration))]


def context_tables(rows: Rows, width: int) -> list[tuple[str, Table]]:
    """Log-likelihood and gap by number of context points, in as many tables as the width needs."""
    bins = sorted({b for _, s in rows for b in s.by_context}, key=lambda b: int(b.split("-")[0]))
    names: list[str] = []
    lines: list[list[str]] = []
    for name, summary in rows:
        found = [summary.by_context.get(b) for b in bins]
        names.append(name)
        lines.append([mean_of(one) for one in found])
        if summary.gap:
            names.append("  gap")
            lines.append([mean_of(one, gap=True) for one in found])
    columns: Columns = [(b, [line[i] for line in lines]) for i, b in enumerate(bins)]
    room = width - width_of(names)
    most = max(1, room // max(map(width_of_column, columns), default=1))
    title = "The same, by number of context points: log-likelihood"
    return [(title, new_table(names, columns[i : i + most])) for i in range(0, len(columns), most)]


def new_table(names: list[str], columns: Columns) -> Table:
    """A table with a first column of names, which wrap only if they are long."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("", overflow="fold", min_width=min(width_of(names), 2 * LONGEST))
    for title, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for name, *cells in zip(names, *(cells for _, cells in columns), strict=True):
        table.add_row(Text(name), *cells)
    return table


def width_of(texts: list[str]) -> int:
    """Width of the longest line."""
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def width_of_column(column: tuple[str, list[str]]) -> int:
    """Width of a column with the space before it."""
    title, cells = column
    return 2 + width_of([title, *cells])


def figure(x: float | None) -> str:
    """A number with three decimals, or with two digits if it is large."""
    return "-" if x is None else f"{x:.3f}" if abs(x) < 1000 else f"{x:.2g}"


def with_error(estimate: Estimate) -> str:
    """A mean with its standard error."""
    return f"{figure(estimate.mean)} ± {figure(estimate.standard_error)}"


def mean_of(tasks: BinSummary | None, gap: bool = False) -> str:
    """The mean log-likelihood or gap of a bin of tasks; empty if there is none."""
    shown = None if tasks is None else tasks.gap if gap else tasks.log_likelihood
    return "" if shown is None else figure(shown.mean)


def print_check(results: Results, console: Console) -> None:
    """Prints the scores of a cross-validation: a table for each way to hold out observations."""
    for name, methods in results.items():
        table = Table(box=box.SIMPLE, title=name, title_justify="left", title_style="bold", pad_edge=False)
        table.add_column("method")
        for title in ("CRPS", "log-likelihood", *(f"{level} %" for level in COVERAGE), "seconds"):
            table.add_column(title, justify="right")
        for method, s in methods.items():
            covers = (f"{100 * value:.0f}" for value in s.coverage.values())
            scores = f"{float(s.crps.mean()):.4g}", f"{float(s.log_density.mean()):.3f}"
            table.add_row(method, *scores, *covers, f"{s.seconds:.1f}")
        console.print(table)
