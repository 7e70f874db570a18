"""The table task: data sets from a table of scattered observations, such as measurements of weather stations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.scaling import Scaling, moments, scaling_or_none
from shiftnp.tasks import checks
from shiftnp.tasks.base import Task, TestSet, Unit, generator_for
from shiftnp.tasks.stations import spacing, warn_of_fixed_places
from shiftnp.tasks.table_files import Table, read_frame, read_table

Split = Literal["train", "valid", "test"]
Holdout = Literal["random", "block"]
Places = Literal["known", "new"]
Order = Literal["random", "sorted"]


class DataSet(NamedTuple):
    """Standardised points of one data set.

    Args:
        station: station of each point; all of one if the table has none.
        shift: standard deviation of the jitter of each input of each point.
        new: points that are at new places, and are targets.
    """

    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, "n dy"]
    station: Int[np.ndarray, " n"]
    shift: Float[np.ndarray, "n dx"]
    new: Bool[np.ndarray, " n"]

    @property
    def targets(self) -> Bool[np.ndarray, " n"]:
        """Points that can be targets: all outputs are observed, and they are new if any are."""
        return np.isfinite(self.y).all(1) & (self.new | (not self.new.any()))

    def take(self, rows: Int[np.ndarray, " m"] | Bool[np.ndarray, " n"]) -> DataSet:
        """Some of the points."""
        return DataSet(*(field[rows] for field in self))

    def disturbed(self, drop: float, generator: torch.Generator) -> DataSet:
        """Without some of the stations, up to a share of `drop`, and with jittered positions."""
        stations = np.unique(self.station)
        share = 1 - drop * float(torch.rand((), generator=generator))
        order = torch.randperm(len(stations), generator=generator).numpy()
        kept = np.isin(self.station, stations[order[: max(2, round(share * len(stations)))]])
        part = self.take(kept) if (self.targets & kept).any() and kept.sum() > 1 else self
        noise = torch.randn(part.x.shape, generator=generator, dtype=torch.float64).numpy()
        return part._replace(x=part.x + part.shift * noise)


@dataclass(frozen=True, eq=False)
class TableTask(Task):
    """Data sets from a table, each split into context and targets; inputs and outputs are standardised.

    Each group of rows is one data set; without groups, the whole table is one, of which every task is a random subset.
    Groups (or rows) are assigned to training, validation and tests once, so that these share none. A row with a missing
    output can be context but not a target; a row with all outputs missing is left out.

    Stations that are in every data set are known by heart after training. With `station`, they are assigned to
    training, validation and tests as well, and training drops and jitters them; there are then test sets of known
    places, which are those of training, and of new places.

    Args:
        path: a .csv, .tsv or .parquet file with a header.
        inputs, outputs: names of columns. Dates (ISO, or pandas' own) become days since 1970-01-01 UTC.
        group: the column that groups rows: equal values belong to one data set, for instance a day.
        station: the column that names the station of each row. None: rows have no stations.
        drop: largest part of the stations that is left out of a training task, drawn for each; needs `station`.
        jitter: standard deviation of random shifts of all rows of a training task, as a part of the distance to the
            nearest station, along inputs in which stations do not move; needs `station`.
        places: targets of validation and tests are at stations of training ("known"), or at the stations that are
            assigned to the split ("new"); contexts are at stations of training. Needs `station`.
        holdout: targets are random points ("random"), or all points in a box of inputs ("block"), as if a region had no
            data.
        block: inputs that the box bounds; empty: all of them.
        context: minimum and maximum fraction of a data set's points that are context, drawn for every task. A box with
            several points on its edge holds all of them out, so that the fraction can be slightly smaller.
        points: largest number of points of a data set; larger ones are randomly subsampled.
        split: the groups (or rows) that tasks are drawn from: those for training, validation or tests.
        shares: fractions of the groups (or rows), and of the stations, for training, validation and tests.
        order: assign groups (or rows) to splits at random, or the first to training and the last to tests ("sorted"),
            which is the right choice for a time series: groups are sorted by value (text alphabetically, so write dates
            as 2023-06-14), rows keep the order of the table.
        seed: random seed of the assignment to splits.
        drop_missing: leave out rows with a missing input or group, instead of raising an error.
        missing: numbers that mean "not observed", for instance -9999.
        fixed_scaling: a scaling to use instead of that of the training rows.
        frame: a pandas DataFrame instead of a file.
    """

    path: str | Path | None = None
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    group: str | None = None
    station: str | None = None
    drop: float = 0.5
    jitter: float = 0.3
    places: Places = "known"
    holdout: Holdout = "random"
    block: Sequence[str] = ()
    context: tuple[float, float] = (0.1, 0.7)
    points: int = 512
    split: Split = "train"
    shares: tuple[float, float, float] = (0.7, 0.1, 0.2)
    order: Order = "random"
    seed: int = 0
    drop_missing: bool = False
    missing: float | Sequence[float] = ()
    fixed_scaling: Scaling | None = None
    frame: Any = field(default=None, repr=False)
    dx: int = field(init=False)
    dy: int = field(init=False)
    path_settings: ClassVar[tuple[str, ...]] = ("path",)
    sequence_settings: ClassVar[tuple[str, ...]] = ("inputs", "outputs", "block")

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("path", checks.path_or_none("path", self.path))
        for name in ("inputs", "outputs", "block"):
            put(name, checks.names(name, getattr(self, name)))
        if not self.inputs or not self.outputs:
            raise ValueError("inputs and outputs must name at least one column each.")
        if both := set(self.inputs) & set(self.outputs):
            raise ValueError(f"outputs must not be inputs as well, got {', '.join(sorted(both))} as both.")
        if unknown := set(self.block) - set(self.inputs):
            raise ValueError(f"block must name some of the inputs, got {', '.join(sorted(unknown))}.")
        checks.text_or_none("group", self.group)
        checks.text_or_none("station", self.station)
        for name, most in (("drop", 1.0), ("jitter", np.inf)):
            checks.number(name, getattr(self, name))
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be a share of at least 0, got {getattr(self, name)!r}.")
        if self.station is not None and self.group is None:
            raise ValueError("station needs a group as well: the column that tells data sets apart, such as the day.")
        if (self.path is None) == (self.frame is None):
            raise ValueError("either path or frame must be given, and not both.")
        if self.frame is not None and not (hasattr(self.frame, "columns") and hasattr(self.frame, "iloc")):
            raise ValueError(f"frame must be a pandas DataFrame, got {type(self.frame).__name__}.")
        for name, kind in (("holdout", Holdout), ("split", Split), ("order", Order), ("places", Places)):
            checks.one_of(name, getattr(self, name), get_args(kind))
        if self.places == "new" and (self.station is None or self.split == "train"):
            raise ValueError('places="new" needs a `station`, and the split "valid" or "test".')
        put("context", checks.numbers("context", self.context, 2))
        put("shares", checks.numbers("shares", self.shares, 3))
        put("missing", checks.numbers("missing", self.missing, single=True))
        if not 0 <= self.context[0] <= self.context[1] <= 1:
            raise ValueError(f"context must be a range of shares between 0 and 1, got {self.context}.")
        if min(self.shares) <= 0:
            raise ValueError(f"shares must be positive, got {self.shares}.")
        checks.whole("points", self.points, least=2)
        checks.whole("seed", self.seed)
        checks.flag("drop_missing", self.drop_missing)
        put("fixed_scaling", scaling_or_none(self.fixed_scaling))
        put("dx", len(self.inputs))
        put("dy", len(self.outputs))

    @property
    def _missing(self) -> tuple[float, ...]:
        """The numbers that mean "not observed"; a single one is a sequence of one."""
        return checks.numbers("missing", self.missing, single=True)

    @cached_property
    def table(self) -> Table:
        """All rows, in their own units."""
        frame = read_frame(Path(self.path).expanduser()) if self.path is not None else self.frame
        roles = self.inputs, self.outputs, self.group, self.drop_missing, self._where, self._missing
        return read_table(frame, *roles, self.station)

    @property
    def _where(self) -> str:
        """Name of the table in error messages."""
        return "the frame" if self.path is None else str(self.path)

    @cached_property
    def scaling(self) -> Scaling:
        """Means and standard deviations of the training rows, or `fixed_scaling`."""
        if self.fixed_scaling is not None:
            return self.fixed_scaling
        rows = np.concatenate(self.rows("train"))
        rows = rows if self._station_split is None else rows[self._station_split[rows] == 0]
        x = [moments(column) for column in self.table.x[rows].T]
        y = [moments(column) for column in self.table.y[rows].T]
        means, stds = ([m[k] for m in x] for k in (0, 1))
        return Scaling(self.table.inputs, self.outputs, means, stds, [m for m, _ in y], [s for _, s in y])

    def rows(self, split: Split) -> list[Int[np.ndarray, " n"]]:
        """Rows of each data set of a split."""
        group = self.table.group
        n = len(self.table.x) if group is None else int(group.max()) + 1
        edges = self._edges(n, "rows" if group is None else f"groups of {self.group!r}")
        order = (
            np.arange(n) if self.order == "sorted" else torch.randperm(n, generator=generator_for(self.seed, 0)).numpy()
        )
        mine = np.sort(np.split(order, edges)[get_args(Split).index(split)])
        if group is None:
            return [mine]
        by_group = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[by_group], np.arange(n + 1))
        return [by_group[bounds[g] : bounds[g + 1]] for g in mine]

    def _edges(self, n: int, what: str) -> Int[np.ndarray, " 2"]:
        """Where `n` groups, rows or stations in some order are cut into those for training, validation and tests."""
        edges = np.rint(n * np.cumsum(self.shares) / sum(self.shares)).astype(int)[:2]
        if min(edges[0], edges[1] - edges[0], n - edges[1]) < 1:
            raise ValueError(
                f"{n} {what} in {self._where} are too few to train, validate and test: give more data or other "
                "`shares`."
            )
        return edges

    @cached_property
    def _station_split(self) -> Int[np.ndarray, " n"] | None:
        """For each row, whether its station is for training (0), validation (1) or tests (2); None without stations."""
        station = self.table.station
        if station is None:
            return None
        n = int(station.max()) + 1
        order = torch.randperm(n, generator=generator_for(self.seed, 1)).numpy()
        split = np.empty(n, dtype=np.int64)
        split[order] = np.searchsorted(self._edges(n, f"stations of {self.station!r}"), np.arange(n), side="right")
        return split[station]

    @cached_property
    def _sets(self) -> list[DataSet]:
        """Standardised data sets of this split with at least two points, one of which can be a target."""
        table, scaling, split = self.table, self.scaling, self._station_split
        x, y = scaling.x(torch.from_numpy(table.x)).numpy(), scaling.y(torch.from_numpy(table.y)).numpy()
        own = get_args(Split).index(self.split)
        groups, new = self.rows(self.split), np.zeros(len(x), dtype=bool)
        if split is not None:
            new = (split == own) & (self.places == "new")
            groups = [rows[(split[rows] == 0) | new[rows]] for rows in groups]
        elif self.split == "train" and self.group is not None:
            warn_of_fixed_places(table.x[np.concatenate(groups)], self._where)
        station = np.zeros(len(x), dtype=np.int64) if table.station is None else table.station
        shift = np.zeros_like(x)
        if table.station is not None and self.split == "train":
            rows = np.concatenate(groups)
            shift[rows] = self.jitter * spacing(x[rows], station[rows])
        sets = [DataSet(x[rows], y[rows], station[rows], shift[rows], new[rows]) for rows in groups]
        sets = [s for s in sets if len(s.x) > 1 and s.targets.any()]
        if not sets:
            raise ValueError(
                f"No data set of the split {self.split!r} of {self._where} has two rows, one of them with all of "
                f"{', '.join(self.outputs)}: choose another `group`, fewer `outputs` or give more data."
            )
        return sets

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` random data sets of the split, padded to one size."""
        sets = self._sets
        tasks = []
        for k in self._drawn(batch_size, generator):
            part = sets[k]
            if self.split == "train" and self.station is not None:
                part = part.disturbed(self.drop, generator)
            kept = subsample(len(part.x), self.points, generator)
            if not part.targets[kept].any():  # every task needs a target
                some = np.flatnonzero(part.targets)
                kept[0] = some[int(torch.randint(len(some), (), generator=generator))]
            part = part.take(kept)
            context, target = self._divide(part, generator)
            points = (part.x[context], part.y[context], part.x[target], part.y[target])
            tasks.append(Batch(*(torch.from_numpy(values[None].astype(np.float32)) for values in points)))
        return Batch.collate(tasks)

    def _drawn(self, batch_size: int, generator: torch.Generator) -> list[int]:
        """The data sets of a batch, the first random numbers of its generator."""
        drawn: list[int] = torch.randint(len(self._sets), (batch_size,), generator=generator).tolist()
        return drawn

    def origins(self, test_set: TestSet) -> Int[Tensor, " n"]:
        """The group of each task of a test set; all are of one if the table has no groups."""
        sizes = [min(test_set.batch_size, test_set.tasks - i * test_set.batch_size) for i in range(len(test_set))]
        drawn = [self._drawn(size, generator_for(test_set.seed, i)) for i, size in enumerate(sizes)]
        return torch.tensor([k for some in drawn for k in some], dtype=torch.int64)

    @property
    def unit(self) -> Unit | None:
        """That of the table, if it has one output; several are scored in units of their standard deviations."""
        return Unit(self.outputs[0], float(self.scaling.y_std[0])) if self.dy == 1 else None

    def _divide(
        self, part: DataSet, generator: torch.Generator
    ) -> tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Masks of the context and of the targets."""
        x, complete = part.x, part.targets
        low, high = self.context
        u, v = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        if part.new.any():
            known = np.flatnonzero(~part.new)  # in random order
            context = np.zeros(len(x), dtype=bool)
            context[known[: round((low + (high - low) * u) * len(known))]] = True
            return context, complete
        held = max(1, len(x) - round((low + (high - low) * u) * len(x)))
        middle = np.flatnonzero(complete)[int(v * complete.sum())]
        if self.holdout == "random":
            out = np.arange(len(x)) >= len(x) - held  # points are in random order
            out[middle] |= not (out & complete).any()
        else:
            bounds = [list(self.inputs).index(name) for name in self.block or self.inputs]
            far = np.abs(x - x[middle])[:, bounds].max(1)
            out = far <= np.sort(far)[held - 1]
        return ~out, out & complete

    def test_sets(self) -> dict[str, TestSet]:
        """`valid` and `test`: groups (or rows) that are not used in training. With stations, `valid` and
        `known-places`, with targets at stations of training, and `valid-new-places` and `new-places`, with targets at
        other stations."""
        if self.station is None:
            return {
                "valid": TestSet(self._at("valid"), seed=2, tasks=256),
                "test": TestSet(self._at("test"), seed=1, tasks=1024),
            }
        return {
            "valid": TestSet(self._at("valid"), seed=2, tasks=256),
            "valid-new-places": TestSet(self._at("valid", "new"), seed=2, tasks=256),
            "known-places": TestSet(self._at("test"), seed=1, tasks=1024),
            "new-places": TestSet(self._at("test", "new"), seed=1, tasks=1024),
        }

    def _at(self, split: Split, places: Places = "known") -> TableTask:
        task = replace(self, split=split, places=places, fixed_scaling=self.scaling)
        task.__dict__["table"] = self.table  # read once
        return task

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """Curves over one input, or maps over the first two, in the units of the table."""
        from shiftnp.plots.maps import draw_table

        wide = 6.5 if prediction is None or self.dx == 1 else 12
        figure = Figure(figsize=(wide, 3.2), layout="constrained")
        draw_table(figure, batch, self.scaling, prediction, index)
        return figure


def subsample(n: int, most: int, generator: torch.Generator) -> Int[np.ndarray, " k"]:
    """All of `n` indices, or `most` different ones, in random order."""
    if n <= 16 * most:
        return torch.randperm(n, generator=generator)[:most].numpy()
    # For a long table, drawing with replacement and dropping duplicates is far cheaper than a permutation.
    drawn = torch.randint(n, (2 * most + 16,), generator=generator).numpy()
    return drawn[np.sort(np.unique(drawn, return_index=True)[1])][:most]
