"""Files with trajectories of Kolmogorov flow: generation and reading."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout

from shiftnp._io import write, write_json
from shiftnp._progress import progress
from shiftnp.tasks import checks
from shiftnp.tasks.navier_stokes import Simulation
from shiftnp.tasks.reading import listed, reading, reason


def generate(
    trajectories: int,
    out: str | Path,
    seed: int = 0,
    workers: int | None = None,
    simulation: Simulation | None = None,
    quiet: bool = False,
) -> Path:
    """Writes trajectories `0, ..., trajectories - 1` to the folder `out`, one file each, and returns the folder.

    Existing trajectories are kept, so that the same call resumes an interrupted one, and a call with more trajectories
    adds to a folder. `simulation.json` in the folder holds the settings.

    Args:
        seed: random seed; trajectory `i` depends on `(seed, i)` only.
        workers: number of processes, each with one thread. None: one per core.
        simulation: the settings, whose seed is replaced by `seed`. None: the paper's.
        quiet: show no progress bar.
    """
    checks.whole("trajectories", trajectories, least=1)
    checks.whole("workers", workers, least=1, optional=True)
    checks.whole("seed", seed)
    simulation = replace(simulation or Simulation(), seed=seed)
    folder = Path(out)
    if folder.is_file():
        raise ValueError(f"{folder} is a file: name a folder for the trajectories.")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _check_settings(folder, simulation)
        for left in folder.glob(".trajectory-*.part"):
            left.unlink(missing_ok=True)  # written by a process that was killed
        _generate_missing(simulation, folder, trajectories, workers or os.cpu_count() or 1, quiet)
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks the folder against other processes; the system releases the lock of a killed process."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"Another process generates trajectories in {folder}: wait for it, or stop it.") from None
    try:
        yield
    finally:
        lock.release()


def _generate_missing(simulation: Simulation, folder: Path, trajectories: int, workers: int, quiet: bool) -> None:
    """Generates missing trajectories, with a progress bar unless `quiet`."""
    missing = [i for i in range(trajectories) if not _is_complete(_trajectory_path(folder, i), simulation)]
    # A trajectory takes many seconds, so the time left is estimated over a long period.
    with progress(quiet=quiet, period=3600) as shown:
        bar = shown.add_task("Kolmogorov flow", total=trajectories, completed=trajectories - len(missing))
        try:
            for _ in _run(simulation, folder, missing, workers):
                shown.advance(bar)
        except KeyboardInterrupt:
            shown.stop()
            done = sum(_trajectory_path(folder, i).exists() for i in range(trajectories))
            raise SystemExit(
                f"Stopped with {done} of {trajectories} trajectories in {folder}; the same command goes on from there."
            ) from None


def _run(simulation: Simulation, folder: Path, indices: list[int], workers: int) -> Iterator[int]:
    """Generates trajectories, in this process if `workers` is one, and yields the index of each when it is written."""
    workers = min(workers, len(indices))
    if workers <= 1:
        for i in indices:
            with _one_thread():
                _write(simulation, folder, i)
            yield i
        return
    others = set(multiprocessing.active_children())
    # Spawned, because forked copies of a process in which torch has threads may hang.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_start_worker)
    try:
        for future in as_completed([pool.submit(_write, simulation, folder, i) for i in indices]):
            yield future.result()
    except BaseException:
        # An unfinished trajectory cannot be used, so its process is stopped at once.
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; only the parent handles it
    torch.set_num_threads(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limits torch to one thread: fields are too small for several to be faster."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _trajectory_path(folder: Path, index: int) -> Path:
    return folder / f"trajectory-{index:05d}.npy"


def _write(simulation: Simulation, folder: Path, index: int) -> int:
    """Generates one trajectory and writes it atomically: a file with its name is complete."""
    data = simulation.trajectory(index).numpy()
    content = io.BytesIO()
    np.save(content, data)
    write(_trajectory_path(folder, index), content.getvalue())
    return index


def _is_complete(path: Path, simulation: Simulation) -> bool:
    """Whether a file holds a complete trajectory; a copied file can be truncated."""
    try:
        data = read_trajectory(path)
    except (OSError, ValueError):
        return False
    return bool(data.shape == (simulation.kept, 2, simulation.coarse, simulation.coarse))


def read_trajectory(path: Path) -> np.ndarray:
    """The trajectory in a file, `[time, 2, x, y]`, as a memory map."""
    with reading(path, "an array in numpy's .npy format"):
        data = np.lib.format.open_memmap(path, mode="r")
    if data.ndim != 4 or data.shape[1] != 2 or not data.size:
        raise ValueError(f"{path} has shape {list(data.shape)}, but a trajectory is [time, 2, x, y].")
    if not np.issubdtype(data.dtype, np.floating):
        raise ValueError(f"{path} holds {data.dtype}, but velocities are floating-point numbers.")
    return data


def _check_settings(folder: Path, simulation: Simulation) -> None:
    """Writes the settings into a new folder; raises a ValueError for a folder with other settings."""
    note, mine = folder / "simulation.json", asdict(simulation)
    if note.exists():
        try:
            theirs = json.loads(note.read_text())
            other = [f"{key} = {theirs.get(key)}" for key in mine if theirs.get(key) != mine[key]]
        except (ValueError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{note} is damaged ({reason(error)}), so that the settings of the trajectories beside it are unknown: "
                "name another folder."
            ) from error
        if other:
            raise ValueError(
                f"{folder} holds trajectories made with {listed(other)}: name another folder, or the same settings."
            )
        return
    if any(folder.glob("trajectory-*.npy")):
        raise ValueError(f"{folder} holds trajectories, but no simulation.json tells how they were made: name another.")
    write_json(note, mine)
