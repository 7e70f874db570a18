"""The Kolmogorov flow task: velocities of two-dimensional turbulence in space and time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.tasks import checks
from shiftnp.tasks.base import Task, TestSet
from shiftnp.tasks.download import VARIABLE, data_folder
from shiftnp.tasks.fill_values import LARGEST
from shiftnp.tasks.kolmogorov_files import read_trajectory

SPLITS = {"train": 819, "valid": 102, "test": 103}
"""Trajectories of each split if there are 1024; other numbers are split in proportion."""


@dataclass(frozen=True)
class KolmogorovTask(Task):
    """Velocity `(u, v)` at `(t, x, y)` in small crops of Kolmogorov flows.

    A crop is a block of adjacent grid points anywhere in space (the flow is periodic, so crops wrap around) and time.
    Its inputs are scaled to `[-3, 3]`; velocities are not scaled, their root mean square is about one. Context points
    are drawn from the block without replacement, their number once per batch, and the remaining points are targets.

    Args:
        path: a folder of trajectories `[time, 2, x, y]` as `generate` writes them, or one such `.npy` file. None: the
            subfolder `kolmogorov` of the folder in the environment variable SHIFTNP_DATA.
        split: "train", "valid" or "test". Trajectories, in the order of their names, are split 819 : 102 : 103. Fewer
            than three are split by time instead: the last frames for tests, those before them for validation.
            Add trajectories before training, not after: splits change with their number.
        points: minimum and maximum number of context points.
        targets: number of targets, drawn from the remaining points. None: all of them.
        crop: points of a crop in t, x and y.
    """

    path: str | Path | None = None
    split: str = "train"
    points: tuple[int, int] = (1, 500)
    targets: int | None = None
    crop: tuple[int, int, int] = (16, 16, 16)

    dx = 3
    dy = 2
    path_settings: ClassVar[tuple[str, ...]] = ("path",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checks.path_or_none("path", self.path))
        checks.one_of("split", self.split, tuple(SPLITS))
        object.__setattr__(self, "points", checks.whole_numbers("points", self.points, 2, least=0))
        object.__setattr__(self, "crop", checks.whole_numbers("crop", self.crop, 3))
        checks.whole("targets", self.targets, least=1, optional=True)
        least, most = self.points
        if not 0 <= least <= most < math.prod(self.crop):
            raise ValueError(
                f"`points` is {self.points}, but a crop has {math.prod(self.crop)} points, one for a target."
            )
        if self.targets is not None and self.targets > math.prod(self.crop) - most:
            raise ValueError(
                f"`targets` is {self.targets}, but {most} context points leave {math.prod(self.crop) - most} of a crop."
            )
        frames, _, *sides = self.shape
        if any(have < need for have, need in zip(sides, self.crop[1:], strict=True)) or len(self.frames) < self.crop[0]:
            raise ValueError(
                f"Crops of {self.crop} points do not fit the split {self.split!r} of trajectories with {frames} frames"
                f" of {sides[0]} x {sides[1]} points: make `crop` smaller."
            )

    @property
    def data(self) -> str:
        """Number of trajectories and their size."""
        frames, _, nx, ny = self.shape
        return f"{len(self.files):,} trajectories with {frames} frames of {nx} x {ny} points."

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The trajectories of all splits, in order."""
        root = data_folder()
        path = Path(self.path).expanduser() if self.path is not None else root / "kolmogorov" if root else None
        found = () if path is None else (path,) if path.is_file() else tuple(sorted(path.glob("*.npy")))
        if not found:
            where = f"as neither `path` nor {VARIABLE} names a folder" if path is None else f"in {path}"
            raise FileNotFoundError(
                f"There are no Kolmogorov trajectories {where}: make some with"
                " `shiftnp data kolmogorov --trajectories N --out DIR` and pass path=DIR."
            )
        return found

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Frames, components, points along x and y of every trajectory."""
        return read_trajectory(self.files[0]).shape

    @cached_property
    def members(self) -> tuple[Path, ...]:
        """The trajectories of this split; all of them if they are split by time."""
        n = len(self.files)
        if n < 3:
            return self.files
        # Validation and test get their share, rounded, but at least one; training gets the rest.
        valid, test = (max(1, round(n * SPLITS[split] / 1024)) for split in ("valid", "test"))
        cut = {
            "train": slice(0, n - valid - test),
            "valid": slice(n - valid - test, n - test),
            "test": slice(n - test, n),
        }
        return self.files[cut[self.split]]

    @cached_property
    def frames(self) -> range:
        """The frames of this split; all of them if it consists of whole trajectories."""
        frames = self.shape[0]
        if len(self.files) >= 3:
            return range(frames)
        held = max(self.crop[0], round(frames * SPLITS["test"] / 1024))
        cut = {
            "train": range(0, frames - 2 * held),
            "valid": range(frames - 2 * held, frames - held),
            "test": range(frames - held, frames),
        }
        return cut[self.split]

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` random crops, split into context and targets."""

        def integer(low: int, high: int) -> int:
            return int(torch.randint(low, high, (), generator=generator))

        nc, total = integer(self.points[0], self.points[1] + 1), math.prod(self.crop)
        sides = self.shape[2:]
        y = torch.empty(batch_size, total, 2)
        for b in range(batch_size):
            path = self.members[integer(0, len(self.members))]
            t = integer(self.frames.start, self.frames.stop - self.crop[0] + 1)
            i, j = ((integer(0, n) + np.arange(c)) % n for n, c in zip(sides, self.crop[1:], strict=True))
            # Opened for every crop: many systems do not allow a thousand open memory maps, and opening takes 0.1 ms.
            data = read_trajectory(path)
            if data.shape != self.shape:
                raise ValueError(f"{path} has shape {list(data.shape)}, but {self.files[0]} has {list(self.shape)}.")
            block = data[t : t + self.crop[0]][:, :, i[:, None], j]
            with np.errstate(invalid="ignore"):
                finite = bool((np.abs(block) < LARGEST).all())
            if not finite:
                raise ValueError(f"{path} has velocities that are not finite: get it or generate it again.")
            y[b] = torch.from_numpy(np.moveaxis(block, 1, -1).reshape(total, 2).astype(np.float32))
        axes = [torch.linspace(-3, 3, c) if c > 1 else torch.zeros(1) for c in self.crop]
        x = torch.cartesian_prod(*axes).expand(batch_size, -1, -1)
        order = torch.rand(batch_size, total, generator=generator).argsort(dim=1, stable=True)[..., None]
        context, target = order[:, :nc], order[:, nc : total if self.targets is None else nc + self.targets]
        return Batch(*(v.take_along_dim(order, 1) for order in (context, target) for v in (x, y)))

    def test_sets(self) -> dict[str, TestSet]:
        """`valid` and `test`: crops that depend on the files only, with all points outside the context as targets.

        Batches are small, because each has one number of context points.
        """
        return {
            split: TestSet(replace(self, split=split, targets=None), seed=seed, tasks=tasks, batch_size=4)
            for split, seed, tasks in (("valid", 2, 128), ("test", 1, 512))
        }

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """Velocity and vorticity at the middle time of a crop."""
        from shiftnp.plots.flow import draw_flow

        figure = Figure(figsize=(4.6 if prediction is None else 9.2, 6), layout="constrained")
        draw_flow(figure, batch, prediction, index, spacing=2 * math.pi / self.shape[-1])
        return figure

    def for_comparison(self, batch: Batch) -> tuple[Batch, str]:
        """Adds the context points to the targets, so that the figure has no gaps."""
        every = replace(batch, xt=torch.cat([batch.xt, batch.xc], 1), yt=torch.cat([batch.yt, batch.yc], 1))
        times = every.xt[0, :, 0].unique()
        now = int((batch.xc[0, :, 0] == times[len(times) // 2]).sum())
        more = f" at several times. Shown is the middle one, to which {now} of the points belong. Mean and standard"
        more += (
            " deviation are those predicted for all points of the grid, also where the context is, and the vorticity"
        )
        return every, f"{more} is that of the mean"
