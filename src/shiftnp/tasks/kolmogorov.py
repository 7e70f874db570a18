"""Kolmogorov flow: velocities of two-dimensional turbulence in space and time, and how they are generated."""

from __future__ import annotations

import io
import json
import math
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.distributions import Distribution

from shiftnp._io import write, write_json
from shiftnp._progress import progress
from shiftnp.batch import Batch
from shiftnp.tasks.base import Task, TestSet
from shiftnp.tasks.navier_stokes import Simulation

SPLITS = {"train": 819, "valid": 102, "test": 103}
"""How 1024 trajectories are shared out; other numbers in proportion."""


def generate(
    trajectories: int,
    out: str | Path,
    seed: int = 0,
    workers: int | None = None,
    simulation: Simulation | None = None,
    quiet: bool = False,
) -> Path:
    """Writes trajectories `0, ..., trajectories - 1` to the folder `out`, one file each, and returns the folder.

    What is there already is not made again, so that the same call goes on where one was interrupted, and a call with
    more trajectories adds to a folder. `simulation.json` in it holds the settings.

    Args:
        workers: processes, each with one thread; one for every processor unless told.
        simulation: the settings, with `seed` put in; the paper's unless told.
        quiet: show no progress.
    """
    if trajectories < 1 or (workers is not None and workers < 1):
        raise ValueError(f"trajectories and workers must be at least 1, got {trajectories} and {workers}.")
    simulation = replace(simulation or Simulation(), seed=seed)
    folder = Path(out)
    if folder.is_file():
        raise ValueError(f"{folder} is a file: name a folder for the trajectories.")
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, simulation)
    missing = [i for i in range(trajectories) if not _is_whole(_shard(folder, i), simulation)]
    # One trajectory takes many seconds, and the time left is to be known from all of them.
    with progress(quiet=quiet, period=3600) as shown:
        bar = shown.add_task("Kolmogorov flow", total=trajectories, completed=trajectories - len(missing))
        try:
            for _ in _work(simulation, folder, missing, workers or os.cpu_count() or 1):
                shown.advance(bar)
        except KeyboardInterrupt:
            shown.stop()
            done = sum(_shard(folder, i).exists() for i in range(trajectories))
            raise SystemExit(
                f"Stopped with {done} of {trajectories} trajectories in {folder}; the same command goes on from there."
            ) from None
    return folder


def _work(simulation: Simulation, folder: Path, indices: list[int], workers: int) -> Iterator[int]:
    """Makes trajectories, in this process if there is but one, and gives the index of each when it is written."""
    workers = min(workers, len(indices))
    if workers <= 1:
        for i in indices:
            with _one_thread():
                _write(simulation, folder, i)
            yield i
        return
    others = set(multiprocessing.active_children())
    # Forked copies of a process in which torch has threads may hang, so fresh ones.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_start_worker)
    try:
        for future in as_completed([pool.submit(_write, simulation, folder, i) for i in indices]):
            yield future.result()
    except BaseException:
        # Half a trajectory is worth nothing: whoever stops us wants to wait for none.
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one alone answers it
    torch.set_num_threads(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Fields are too small for threads to gain anything."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _shard(folder: Path, index: int) -> Path:
    return folder / f"trajectory-{index:05d}.npy"


def _write(simulation: Simulation, folder: Path, index: int) -> int:
    """Writes one trajectory aside and renames it: under its own name a file is whole or absent."""
    data = simulation.trajectory(index).numpy()
    content = io.BytesIO()
    np.save(content, data)
    write(_shard(folder, index), content.getvalue())
    return index


def _is_whole(path: Path, simulation: Simulation) -> bool:
    """Whether a file holds a trajectory, for a copy may have been cut short."""
    try:
        data = np.load(path, mmap_mode="r")
    except (OSError, EOFError, ValueError):
        return False
    return bool(data.shape == (simulation.kept, 2, simulation.coarse, simulation.coarse))


def _claim(folder: Path, simulation: Simulation) -> None:
    """Notes the settings in a new folder, and refuses one with others."""
    note, mine = folder / "simulation.json", asdict(simulation)
    if note.exists():
        theirs = json.loads(note.read_text())
        other = [f"{key} = {theirs.get(key)}" for key in mine if theirs.get(key) != mine[key]]
        if other:
            raise ValueError(
                f"{folder} holds trajectories made with {', '.join(other)}: name another folder, or the same settings."
            )
        return
    if any(folder.glob("trajectory-*.npy")):
        raise ValueError(f"{folder} holds trajectories, but no simulation.json tells how they were made: name another.")
    write_json(note, mine)


@dataclass(frozen=True)
class KolmogorovTask(Task):
    """Velocity `(u, v)` at `(t, x, y)` in small crops of Kolmogorov flows.

    A crop is a block of neighbouring grid points anywhere in space (the flow is periodic, and so are crops: they go on
    at the opposite side) and time. Its inputs are scaled to `[-3, 3]`; velocities stay as they are, their root mean
    square being about one. Context points are drawn from the block without replacement, their number once per batch,
    and targets are the points that remain.

    Args:
        path: a folder of trajectories `[time, 2, x, y]` as `generate` writes them, or one such `.npy` file. None: the
            folder `kolmogorov` in the folder that the environment variable SHIFTNP_DATA names.
        split: "train", "valid" or "test". Trajectories, in the order of their names, are shared out 819 : 102 : 103.
            Fewer than three are shared out by time instead: a last stretch for testing, one before it for validation.
            Add trajectories before training, not after: shares move with their number.
        points: least and largest number of context points.
        targets: how many of the remaining points, at random. None: all.
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
        if self.split not in SPLITS:
            raise ValueError(f"`split` is {self.split!r}, but must be one of {', '.join(map(repr, SPLITS))}.")
        least, most = self.points
        if not 0 <= least <= most < math.prod(self.crop):
            raise ValueError(
                f"`points` is {self.points}, but a crop has {math.prod(self.crop)} points, one for a target."
            )
        if self.targets is not None and not 0 < self.targets <= math.prod(self.crop) - most:
            raise ValueError(
                f"`targets` is {self.targets}, but {most} context points leave {math.prod(self.crop) - most} of a crop."
            )
        frames, _, *sides = self.shape
        if any(have < need for have, need in zip(sides, self.crop[1:], strict=True)) or len(self.frames) < self.crop[0]:
            raise ValueError(
                f"Crops of {self.crop} points do not fit the split {self.split!r} of trajectories with {frames} frames"
                f" of {sides[0]} x {sides[1]} points: make `crop` smaller."
            )

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The trajectories of all splits, in order."""
        root = os.environ.get("SHIFTNP_DATA")
        path = Path(self.path) if self.path is not None else Path(root) / "kolmogorov" if root else None
        found = () if path is None else (path,) if path.is_file() else tuple(sorted(path.glob("*.npy")))
        if not found:
            where = "as neither `path` nor SHIFTNP_DATA names a folder" if path is None else f"in {path}"
            raise FileNotFoundError(
                f"There are no Kolmogorov trajectories {where}: make some with"
                " `shiftnp data kolmogorov --trajectories N --out DIR` and pass path=DIR."
            )
        return found

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Frames, components, points along x and y of every trajectory."""
        return self._read(self.files[0]).shape

    @cached_property
    def members(self) -> tuple[Path, ...]:
        """The trajectories of this split; all of them if it is made by time."""
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
        """The frames of this split; all of them if it is made by trajectory."""
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

    def _read(self, path: Path) -> np.ndarray:
        # Opened anew each time: a thousand open maps are more than many systems allow, and opening takes 0.1 ms.
        data = np.load(path, mmap_mode="r")
        if data.ndim != 4 or data.shape[1] != 2:
            raise ValueError(f"{path} has shape {list(data.shape)}, but a trajectory is [time, 2, x, y].")
        return data

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        def integer(low: int, high: int) -> int:
            return int(torch.randint(low, high, (), generator=generator))

        nc, total = integer(self.points[0], self.points[1] + 1), math.prod(self.crop)
        sides = self.shape[2:]
        y = torch.empty(batch_size, total, 2)
        for b in range(batch_size):
            path = self.members[integer(0, len(self.members))]
            t = integer(self.frames.start, self.frames.stop - self.crop[0] + 1)
            i, j = ((integer(0, n) + np.arange(c)) % n for n, c in zip(sides, self.crop[1:], strict=True))
            data = self._read(path)
            if data.shape != self.shape:
                raise ValueError(f"{path} has shape {list(data.shape)}, but {self.files[0]} has {list(self.shape)}.")
            block = data[t : t + self.crop[0]][:, :, i[:, None], j]
            y[b] = torch.from_numpy(np.moveaxis(block, 1, -1).reshape(total, 2).astype(np.float32))
        axes = [torch.linspace(-3, 3, c) if c > 1 else torch.zeros(1) for c in self.crop]
        x = torch.cartesian_prod(*axes).expand(batch_size, -1, -1)
        order = torch.rand(batch_size, total, generator=generator).argsort(dim=1, stable=True)[..., None]
        context, target = order[:, :nc], order[:, nc : total if self.targets is None else nc + self.targets]
        return Batch(*(v.take_along_dim(order, 1) for order in (context, target) for v in (x, y)))

    def test_sets(self) -> dict[str, TestSet]:
        """`valid` and `test`: the same crops for everyone who has the same files, with all remaining points as targets.

        Batches are small, because each has but one number of context points.
        """
        return {
            split: TestSet(replace(self, split=split, targets=None), seed=seed, tasks=tasks, batch_size=4)
            for split, seed, tasks in (("valid", 2, 128), ("test", 1, 512))
        }

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """Velocity and vorticity halfway through a crop."""
        from shiftnp.plots.flow import draw_flow

        figure = Figure(figsize=(4.6 if prediction is None else 9.2, 6), layout="constrained")
        draw_flow(figure, batch, prediction, index, spacing=2 * math.pi / self.shape[-1])
        return figure

    def for_comparison(self, batch: Batch) -> tuple[Batch, str]:
        """Context points are targets, too, for a picture without gaps."""
        every = replace(batch, xt=torch.cat([batch.xt, batch.xc], 1), yt=torch.cat([batch.yt, batch.yc], 1))
        times = every.xt[0, :, 0].unique()
        now = int((batch.xc[0, :, 0] == times[len(times) // 2]).sum())
        more = f" at several times. Shown is the middle one, to which {now} of the points belong. Mean and standard"
        more += (
            " deviation are those predicted for all points of the grid, also where the context is, and the vorticity"
        )
        return every, f"{more} is that of the mean"
