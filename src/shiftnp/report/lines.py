"""The lines of the tables in a report: evaluated runs in the order of the paper's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shiftnp._text import printable
from shiftnp.experiments.base import Column, Experiment, Row
from shiftnp.plots.style import BLACK, Style, styles
from shiftnp.runs.results import Evaluation, SetSummary
from shiftnp.runs.run import Run


@dataclass(frozen=True)
class Line:
    """One line of a table: a row of the paper, and runs of it that differ only in the task they are trained on.

    Args:
        row: the row of the paper.
        runs, evaluations: runs and their evaluations, by task; empty if the paper's row was not run.
        mark: number of the footnote with the settings; 0: none, the settings are those of the preset.
        label: a unique name, for figures and tables without a column of seeds.
        style: plot style of the line in all figures.
    """

    row: Row
    runs: Mapping[str, Run] = field(default_factory=dict)
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    mark: int = 0
    label: str = ""
    style: Style = BLACK

    @property
    def first(self) -> Evaluation:
        """The first evaluation, for the properties that all evaluations of the line share."""
        return next(iter(self.evaluations.values()))

    @property
    def title(self) -> str:
        """The paper's name of the model, with marks for other settings and for unfinished training."""
        return printable(self.row.title) + (f" [{self.mark}]" if self.mark else "") + ("" if self.is_finished else " †")

    @property
    def settings(self) -> str:
        """The preset and its changes as text."""
        preset = f"Preset {self.first.preset}" if self.first.preset else "No preset"
        return printable(preset + (f" with {', '.join(self.first.changes)}" if self.first.changes else ""))

    @property
    def is_finished(self) -> bool:
        """Whether the training of all runs is finished."""
        return all(e.is_finished for e in self.evaluations.values())

    def summary(self, column: Column) -> SetSummary | None:
        """The metrics of one test set; None if it was not evaluated."""
        evaluation = self.evaluations.get(column.task)
        return None if evaluation is None else evaluation.sets.get(column.test_set)


class Model(NamedTuple):
    """Lines that differ only in the seed, or a single line."""

    label: str
    lines: list[Line]

    @property
    def first(self) -> Line:
        """The first line, for the properties that all of them share."""
        return self.lines[0]

    @property
    def row(self) -> Row:
        """The row of the paper."""
        return self.first.row

    @property
    def seeds(self) -> str:
        """The seeds as text, three or more consecutive ones as a range."""
        seeds = [line.first.seed for line in self.lines if line.evaluations]
        if len(seeds) > 2 and seeds == [*range(seeds[0], seeds[-1] + 1)]:
            return f"{seeds[0]}\N{EN DASH}{seeds[-1]}"
        return ", ".join(map(str, seeds))

    def summaries(self, column: Column) -> list[SetSummary]:
        """The metrics of one test set, of each seed that was evaluated on it."""
        return [summary for line in self.lines if (summary := line.summary(column)) is not None]


def over_seeds(lines: Sequence[Line]) -> list[Model]:
    """The lines with those together that differ only in the seed."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.row.name, line.title), []).append(line)
    found = []
    for (_, title), group in groups.items():
        seeds = {line.first.seed for line in group if line.evaluations}
        if len(group) > 1 and len(seeds) == len(group):
            by_seed = sorted(group, key=lambda line: line.first.seed)
            found.append(Model(f"{title}, {len(group)} seeds", by_seed))
        else:
            found += [Model(line.label, [line]) for line in group]
    return found


def gather(experiment: Experiment, runs: Sequence[Run], evaluations: Sequence[Evaluation]) -> list[Line]:
    """Lines in the order of the experiment's rows, then those of other models. Rows that are in the paper's table are
    there without a run, too."""
    groups: list[tuple[tuple[object, ...], dict[str, Run], dict[str, Evaluation]]] = []
    for run, e in zip(runs, evaluations, strict=True):
        key = (e.row or e.model, e.model, e.preset, e.changes, e.seed)
        same = [group for group in groups if group[0] == key and e.task not in group[1]]
        if not same:
            same = [(key, {}, {})]
            groups += same
        same[0][1][e.task], same[0][2][e.task] = run, e
    lines = [Line(_row(experiment, next(iter(of.values()))), by_task, of) for _, by_task, of in groups]
    names = {line.row.name for line in lines}
    lines += [Line(row) for row in experiment.rows if any(row.paper) and row.name not in names]
    order = {row.name: i for i, row in enumerate(experiment.rows)}
    return _labelled(sorted(lines, key=lambda line: (order.get(line.row.name, len(order)), line.row.name)))


def _row(experiment: Experiment, evaluation: Evaluation) -> Row:
    name = evaluation.row or evaluation.model
    try:
        return experiment.row(name)
    except ValueError:  # a row that the experiment no longer has
        return Row(name, name, evaluation.model)


def _labelled(lines: Sequence[Line]) -> list[Line]:
    """The lines with styles, footnote marks, and labels that distinguish lines of the same row."""
    presets = {line.first.preset for line in lines if line.evaluations}
    marks: dict[str, int] = {}
    marked: list[Line] = []
    for line in lines:
        needed = line.evaluations and (line.first.changes or len(presets) > 1)
        marked.append(replace(line, mark=marks.setdefault(line.settings, len(marks) + 1)) if needed else line)
    names = []
    for line in marked:
        seeds = {o.first.seed for o in lines if o.evaluations and o.row.name == line.row.name}
        names.append(f"{line.title}, seed {line.first.seed}" if line.evaluations and len(seeds) > 1 else line.title)
    seen, total = Counter[str](), Counter(names)
    labels, kinds = [], []
    for line, name in zip(marked, names, strict=True):
        seen[name] += 1  # more than 1: the same run twice, in two folders
        labels.append(f"{name} ({seen[name]})" if total[name] > 1 else name)
        kinds.append((line.row.name, line.title, seen[name]))  # seeds have the same style
    models = {kind: line.row.model for kind, line in zip(kinds, marked, strict=True)}
    looks = dict(zip(models, styles(list(models.values())), strict=True))
    found = zip(marked, labels, kinds, strict=True)
    return [replace(line, label=name, style=looks[kind]) for line, name, kind in found]
