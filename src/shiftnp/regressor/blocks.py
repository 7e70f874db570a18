"""Predictions on dask arrays: lazy, block by block, on whatever dask scheduler or cluster is active when they are
computed; by default on local threads.

Every block is predicted by itself, so that memory is bounded by the blocks that are computed at once. Dask computes as
many blocks at once as there are cores, so each of them uses one thread of torch: the threads of both do not multiply.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from shiftnp._optional import import_optional
from shiftnp.regressor import checks, columns
from shiftnp.regressor.columns import Chunked, Columns
from shiftnp.regressor.predictor import Predictor


def statistics(predictor: Predictor, targets: Chunked, levels: Sequence[float] = ()) -> Any:
    """`Predictor.statistics` at all targets as a dask array `[s, *shape, k]`, which is not computed yet."""
    dask, da = (import_optional(name, "A field of dask arrays", "dask") for name in ("dask", "dask.array"))
    dims = tuple(sorted({axis for axes in targets.axes for axis in axes}))
    statistic, output = len(dims), len(dims) + 1
    return da.blockwise(
        _block,
        (statistic, *dims, output),
        *(part for pair in zip(targets.arrays, targets.axes, strict=True) for part in pair),
        new_axes={statistic: 2 + len(levels), output: predictor.y.shape[1]},
        dtype=np.float64,
        meta=np.empty((0,) * (len(dims) + 2)),
        align_arrays=False,  # they are aligned, and dask would warn of the many blocks of a grid
        predictor=dask.delayed(predictor, traverse=False),  # so that a cluster sends it to each worker once
        axes=targets.axes,
        known=targets.columns,
        levels=tuple(levels),
    )


def _block(
    *arrays: np.ndarray,
    predictor: Predictor,
    axes: tuple[tuple[int, ...], ...],
    known: Columns,
    levels: tuple[float, ...],
) -> Float[np.ndarray, "s *shape k"]:
    dims = {axis for some in axes for axis in some}
    cells = [np.expand_dims(a, sorted(dims - set(some))) for a, some in zip(arrays, axes, strict=True)]
    shape = np.broadcast_shapes(*(a.shape for a in cells))
    with _ONE_THREAD():
        targets = columns.read_block(cells, known)
        checks.check_inputs(targets)
        found = predictor.statistics(targets.values, levels)
    return found.reshape(len(found), *shape, found.shape[-1])


@contextlib.contextmanager
def own_threads() -> Iterator[None]:
    """Local threads for dask that have all ended afterwards, so that after an error none still writes to a file. If a
    cluster or another scheduler is active, that is used."""
    dask = import_optional("dask", "A grid in blocks", "dask")
    if dask.base.get_scheduler() is not None or dask.config.get("pool", None) is not None:
        yield
        return
    with ThreadPoolExecutor(dask.config.get("num_workers", dask.system.CPU_COUNT)) as pool, dask.config.set(pool=pool):
        yield


class _OneThread:
    """A context in which what the calling thread computes uses one thread of torch.

    The number is a property of each thread, and threads start with the number that was set last anywhere. So the
    original number is remembered from the first of all running blocks, not by each of them.
    """

    def __init__(self) -> None:
        self.lock, self.running, self.before = Lock(), 0, 1

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if not self.running:
                self.before = torch.get_num_threads()
            self.running += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self.lock:
                self.running -= 1
                torch.set_num_threads(self.before)


_ONE_THREAD = _OneThread()
