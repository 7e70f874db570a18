"""The climate task: air temperature over latitude, longitude, time and elevation, from files such as ERA5."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.scaling import Scaling, moments, scaling_or_none
from shiftnp.tasks import checks
from shiftnp.tasks.base import Task, TestSet, present
from shiftnp.tasks.climate_files import date
from shiftnp.tasks.climate_grid import REGIONS, Box, Region, Source, covers, open_source

Split = Literal["train", "valid", "test"]

INPUTS = ("latitude (degrees north)", "longitude (degrees east)", "time (days since 1970-01-01)", "elevation (m)")
OUTPUTS = ("temperature (degrees Celsius)",)
RELATIVE_TIME = "time (days from the middle of the crop)"


@dataclass(frozen=True)
class ClimateTask(Task):
    """Crops of a temperature field: a random part of the points is the context, all others are the targets.

    Crops of `size` grid points inside the region and the times of the split are drawn uniformly, except those with too
    many missing values. Of the `N` points of a crop that are not missing (in land data, those at sea are),
    `N_c ~ U(N/100, N/3)` are context; the share is drawn once per batch. Inputs and output are standardised, see
    `scaling`.

    Times are split into alternating blocks for training, validation and tests, so that each split covers all seasons; a
    crop lies in one block. Training, validation and test crops therefore share no time, even if their regions overlap.

    Args:
        path: a NetCDF, Zarr or npz file, a pattern ("data/Tair_*.nc") or a folder; None: climate/ in SHIFTNP_DATA.
            Files on one grid are concatenated in time. If several grids cover `region`, the one with most times is
            used.
        region: training region: "central", "west" or "north" (the paper's), or a box (minimum and maximum latitude,
            minimum and maximum longitude). The maxima are excluded, so that adjacent boxes share no point.
        test_region: region of the crops, if it is not `region`. Standardisation remains that of `region`.
        split: the times that crops are drawn from: those for training, validation or tests.
        size: points of a crop along latitude, longitude and time.
        stride: step between the grid points used, along each dimension. None for time: 6 for hourly data, else 1.
        context: minimum and maximum fraction of a crop's points that are context.
        targets: maximum number of targets of a crop (None: all points that are not context). Test sets have all.
        min_share: minimum fraction of a crop's points that are not missing.
        shares: fractions of the times for training, validation and tests.
        relative_time: count time from the middle of the crop, in units of its standard deviation in a crop. The paper
            counts from one origin, in units of the standard deviation of all training times; in data that are far
            longer than a crop, such as monthly means of 40 years, the times of a crop are then almost equal.
        rounds: number of times that the three blocks alternate; fewer if there are too few times.
        gap: times left out between two blocks, so that no test time is next to a training time.
        variable: name of the temperature, if the file has several.
        elevation: a file with elevation or geopotential, if neither the temperature's file nor one beside it has it.
        missing: numbers that mean "not observed" though the file does not declare them as _FillValue.
        fixed_scaling: a scaling to use instead of that of the training data.
    """

    path: str | Path | None = None
    region: str | Box = "central"
    test_region: str | Box | None = None
    split: Split = "train"
    size: tuple[int, int, int] = (15, 15, 5)
    stride: tuple[int, int, int | None] = (1, 1, None)
    context: tuple[float, float] = (1 / 100, 1 / 3)
    targets: int | None = None
    min_share: float = 0.1
    shares: tuple[float, float, float] = (0.7, 0.1, 0.2)
    relative_time: bool = False
    rounds: int = 12
    gap: int = 1
    variable: str | None = None
    elevation: str | Path | None = None
    missing: float | tuple[float, ...] = ()
    fixed_scaling: Scaling | None = None

    dx = 4
    dy = 1
    path_settings: ClassVar[tuple[str, ...]] = ("path", "elevation")

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for name in ("path", "elevation"):
            put(name, checks.path_or_none(name, getattr(self, name)))
        for name in ("region", "test_region"):
            put(name, _checked_region(name, getattr(self, name)))
        if self.region is None:
            raise ValueError("region must be given.")
        put("size", checks.whole_numbers("size", self.size, 3))
        put("stride", checks.whole_numbers("stride", self.stride, 3, optional=True))
        put("context", checks.numbers("context", self.context, 2))
        put("shares", checks.numbers("shares", self.shares, 3))
        put("missing", checks.numbers("missing", self.missing, single=True))
        put("fixed_scaling", scaling_or_none(self.fixed_scaling))
        checks.one_of("split", self.split, get_args(Split))
        checks.text_or_none("variable", self.variable)
        checks.number("min_share", self.min_share)
        checks.whole("targets", self.targets, least=1, optional=True)
        checks.whole("rounds", self.rounds, least=1)
        checks.whole("gap", self.gap)
        if None in self.stride[:2]:
            raise ValueError(f"stride must be whole numbers for latitude and longitude, got {self.stride}.")
        if not 0 <= self.context[0] <= self.context[1] <= 1:
            raise ValueError(f"context must be a range of shares between 0 and 1, got {self.context}.")
        if min(self.shares) <= 0:
            raise ValueError(f"shares must be positive, got {self.shares}.")

    @property
    def _missing(self) -> tuple[float, ...]:
        """The numbers that mean "not observed"; a single one is a sequence of one."""
        return checks.numbers("missing", self.missing, single=True)

    @property
    def source(self) -> Source:
        """The files that data come from."""
        path, elevation = (None if p is None else str(p) for p in (self.path, self.elevation))
        return open_source(path, elevation, self.variable, *_named(self.region))

    @property
    def data(self) -> str:
        """Number of times, their distance and the first and last of them."""
        days, source = self._region.days, self.source
        first, last = (date(day, source.calendar).split()[0] for day in (days[0], days[-1]))
        step = float(np.median(np.diff(days)))
        apart = f"{step:.3g} days" if step >= 2 else f"{24 * step:.3g} hours"
        return f"{self._file.name}: {len(days):,} times from {first} to {last}, {apart} apart."

    @cached_property
    def scaling(self) -> Scaling:
        """Means and standard deviations of all points of the training region at training times, or `fixed_scaling`."""
        if self.fixed_scaling is not None:
            return self.fixed_scaling
        data = self.source.load(*_named(self.region), self.stride, self._missing)
        train = self._splits(data) == 0
        weight = (data.observed & train[:, None, None]).astype(np.float64)
        x = [
            moments(data.lat, weight.sum((0, 2))),
            moments(data.lon, weight.sum((0, 1))),
            (0.0, self._crop_days(data).std().item()) if self.relative_time else moments(data.days, weight.sum((1, 2))),
            moments(data.elevation, weight.sum(0)),
        ]
        y_mean, y_std = moments(data.celsius[weight > 0])
        inputs = (*INPUTS[:2], RELATIVE_TIME, INPUTS[3]) if self.relative_time else INPUTS
        return Scaling(inputs, OUTPUTS, [m for m, _ in x], [s for _, s in x], [y_mean], [y_std])

    def _crop_days(self, data: Region) -> Float[np.ndarray, " length"]:
        """Times of a crop without gaps, in days from its middle."""
        return (np.arange(self.size[2]) - self.size[2] // 2) * float(np.median(np.diff(data.days)))

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` random crops, split into context and targets."""
        # Numpy, because torch's threads slow down operations on such small arrays when the machine is busy.
        corner = self._starts[torch.randint(len(self._starts), (batch_size,), generator=generator).numpy()]
        height, width, length = self.size
        offset = np.indices((length, height, width)).reshape(3, -1)
        t, i, j = np.moveaxis(corner[:, :, None] + offset, 1, 0)
        lat, lon, days, elevation, celsius = self._standardised
        if self.relative_time:
            middle = self._region.days[corner[:, 0] + length // 2]
            time = ((self._region.days[t] - middle[:, None]) / self.scaling.x_std[2]).astype(np.float32)
        else:
            time = days[t]
        x = np.stack([lat[i], lon[j], time, elevation[i, j]], -1)
        y = celsius[t, i, j][..., None]

        observed = np.isfinite(y[..., 0]) & np.isfinite(x[..., 3])
        count = observed.sum(1)
        low, high = self.context
        share = low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()
        nc = np.minimum(np.maximum(np.rint(share * count).astype(np.int64), 1), count - 1)
        # Points in random order, missing ones last. A stable sort gives the same order on every machine.
        key = np.where(observed, torch.rand(observed.shape, generator=generator).numpy(), 2.0)
        order = key.argsort(1, kind="stable")

        def take(first: Int[np.ndarray, " b"], n: Int[np.ndarray, " b"]) -> tuple[Tensor, Tensor, Tensor | None]:
            rank = np.arange(n.max())[None]
            mask = rank < n[:, None]
            index = np.take_along_axis(order, np.minimum(first[:, None] + rank, order.shape[1] - 1), 1)
            xs, ys = (np.where(mask[..., None], v[np.arange(batch_size)[:, None], index], 0) for v in (x, y))
            return torch.from_numpy(xs), torch.from_numpy(ys), None if mask.all() else torch.from_numpy(mask)

        xc, yc, mask_c = take(np.zeros_like(nc), nc)
        nt = count - nc
        xt, yt, mask_t = take(nc, nt if self.targets is None else np.minimum(nt, self.targets))
        return Batch(xc, yc, xt, yt, mask_c, mask_t)

    def test_sets(self) -> dict[str, TestSet]:
        """`valid` and, at test times, the training region (`region` if it is a box) and those of the paper's three
        regions that the files cover."""
        fixed = replace(self, fixed_scaling=self.scaling, test_region=None, targets=None)
        sets = {"valid": TestSet(replace(fixed, split="valid"), seed=2, tasks=256)}
        fixed = replace(fixed, split="test")
        sets[self.region if isinstance(self.region, str) else "region"] = TestSet(fixed, seed=1, tasks=1024)
        for name, box in REGIONS.items():
            if name not in sets and covers(self.source, box):
                sets[name] = TestSet(replace(fixed, test_region=name), seed=1, tasks=1024)
        return sets

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """Maps of the middle time of a crop."""
        from shiftnp.plots.maps import draw_maps

        middle = self._middle_time(batch, index)
        figure = Figure(figsize=(9.5, 3.8) if prediction is not None else (5.5, 3.8), layout="compressed")
        draw_maps(figure, batch, self.scaling, middle, prediction, index)
        figure.suptitle(self._date(middle))
        return figure

    def for_comparison(self, batch: Batch) -> tuple[Batch, str]:
        """The batch, and a caption that names the time shown and how many context points have it."""
        middle = self._middle_time(batch, 0)
        days = self.scaling.undo_x(present(batch.xc, batch.mask_c))[:, 2]
        now = int(((days - middle).abs() < 1e-4 + 1e-6 * self.scaling.x_std[2]).sum())  # float32 rounds times
        more = f" at several times. Shown is one of these, {self._date(middle)}, to which {now} of the"
        return batch, f"{more} points belong"

    def _date(self, days: float) -> str:
        """The date of an unstandardised time, or how far it is from the middle of its crop."""
        return f"{days:+.0f} days from the middle" if self.relative_time else date(days, self.source.calendar)

    def _middle_time(self, batch: Batch, index: int) -> float:
        """Median time of the targets, in days."""
        return self.scaling.undo_x(present(batch.xt, batch.mask_t, index))[:, 2].median().item()

    @cached_property
    def _region(self) -> Region:
        region = self.region if self.test_region is None else self.test_region
        return self.source.load(*_named(region), self.stride, self._missing)

    @cached_property
    def _standardised(self) -> list[Float[np.ndarray, "..."]]:
        """Standardised latitudes, longitudes, days, elevations and temperatures, in float32."""
        data, scaling = self._region, self.scaling
        values = (data.lat, data.lon, data.days, data.elevation, data.celsius)
        means, stds = (*scaling.x_mean, *scaling.y_mean), (*scaling.x_std, *scaling.y_std)
        return [((v - m) / s).astype(np.float32) for v, m, s in zip(values, means, stds, strict=True)]

    @property
    def _file(self) -> Path:
        """The first file, for error messages."""
        return self.source.parts[0].path

    def _splits(self, data: Region) -> Int[np.ndarray, " t"]:
        return split_times(len(data.days), self.size[2], self.shares, self.rounds, self.gap, f"{self._file}: ")

    @cached_property
    def _starts(self) -> Int[np.ndarray, "k 3"]:
        """First time, row and column of every valid crop."""
        data, (height, width, length) = self._region, self.size
        if data.celsius.shape[1] < height or data.celsius.shape[2] < width:
            rows, columns = data.celsius.shape[1:]
            raise ValueError(
                f"The region has {rows} x {columns} points of {self._file} at stride {self.stride[:2]}, too few for "
                f"crops of {height} x {width}: choose a smaller `size` or a larger region."
            )
        split = self._splits(data)
        steps = np.diff(data.days)
        jump = np.flatnonzero(steps > 1.5 * np.median(steps)) + 1  # the first time after a gap in the data
        stretch = np.cumsum(np.isin(np.arange(len(split)), jump))
        first, last = slice(None, len(split) - length + 1), slice(length - 1, None)
        wanted = np.lib.stride_tricks.sliding_window_view(split == get_args(Split).index(self.split), length).all(1)
        wanted &= stretch[first] == stretch[last]
        # Sums over boxes from cumulative sums.
        total = np.pad(data.observed.astype(np.int32).cumsum(0).cumsum(1).cumsum(2), ((1, 0),) * 3)
        for axis, n in enumerate((length, height, width)):
            total = np.take(total, np.arange(n, total.shape[axis]), axis) - np.take(
                total, np.arange(total.shape[axis] - n), axis
            )
        enough = total >= max(2, self.min_share * height * width * length)
        starts = np.argwhere(enough & wanted[:, None, None])
        if not len(starts):
            raise ValueError(
                f"No crop of {height} x {width} x {length} points of {self._file} for split {self.split!r} has "
                f"{self.min_share:.0%} of its points observed: choose a smaller `size` or `min_share`, or a region "
                "with more land."
            )
        return starts


def split_times(
    n: int, length: int, shares: tuple[float, float, float], rounds: int, gap: int, where: str = ""
) -> Int[np.ndarray, " n"]:
    """0 (training), 1 (validation), 2 (tests) or -1 (left out) for `n` times, in blocks of at least `length`."""
    share = np.asarray(shares, np.float64) / sum(shares)
    rounds = max(1, min(rounds, n // (int(np.ceil(length / share.min())) + 3 * gap)))
    split = np.full(n, -1)
    edges = np.linspace(0, n, rounds + 1).astype(int)
    for start, end in pairwise(edges):
        free = end - start - 3 * gap
        parts = [0, *(max(length, round(free * s)) for s in share[1:])]
        parts[0] = free - sum(parts)
        if parts[0] < length:
            raise ValueError(
                f"{where}{n} times are too few to train, validate and test on crops of {length} times with gaps of "
                f"{gap}: {3 * (length + gap)} are needed, so choose more data, a smaller `size` or no `gap`."
            )
        for k, part in enumerate(parts):
            split[start : start + part] = k
            start += part + gap
    return split


def _named(region: str | Box) -> tuple[str, Box]:
    return (region, REGIONS[region]) if isinstance(region, str) else ("asked for", region)


def _checked_region(name: str, region: Any) -> str | Box | None:
    if region is None or (isinstance(region, str) and region in REGIONS):
        return region
    if isinstance(region, list | tuple):
        low, high, west, east = checks.numbers(name, region, 4)
        if not (low < high and west < east):
            raise ValueError(f"a box is (lat_min, lat_max, lon_min, lon_max), got {tuple(region)}.")
        return low, high, west, east
    raise ValueError(f"{name} must be one of {', '.join(REGIONS)} or a box of four numbers, got {region!r}.")
