"""The ceiling: the best possible log-likelihood on each data set of a Gaussian-process test set.

Computing it takes about a tenth of a second per data set on one core. The ceilings of the named test sets of `gp-1d`
and `gp-1d-bimodal` come with the package, in `ceilings/`; others are computed once and cached in the user's cache.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pooch
import torch
from jaxtyping import Float
from rich.progress import track
from torch import Tensor

from shiftnp._io import write
from shiftnp.metrics import log_likelihood
from shiftnp.tasks.base import TestSet, generator_for
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_posterior import BayesOptimal, GPOracle

VERSION = 1  # of the computation; results of another version are not used
PACKAGED = Path(__file__).parent / "ceilings"


class Ceiling(NamedTuple):
    """Log-likelihood per target of each data set, for three predictors: the oracle, which knows kernel and
    length-scale; the Bayes-optimal predictor, a mixture over both; and the best Gaussian."""

    oracle: Float[Tensor, " n"]
    mixture: Float[Tensor, " n"]
    gaussian: Float[Tensor, " n"]


def ceiling(test_set: TestSet, folder: Path | None = None) -> Ceiling:
    """The ceiling of a test set of a `GPTask`: from the package, else from `folder`, else computed and cached there.

    The gap of a model to the ceiling on the same data sets has a far smaller standard error than its log-likelihood.

    Args:
        folder: folder of the cache. None: the user's cache.
    """
    task = test_set.task
    if not isinstance(task, GPTask):
        raise ValueError(f"a ceiling is known for Gaussian-process tasks only, not for {type(task).__name__}.")
    if task.train_targets is not None:
        raise ValueError("train_targets is for training only: take the sets of task.test_sets(), which have none.")
    test_set = replace(test_set, task=replace(task, shift=0.0))  # exact posteriors do not depend on the shift
    folder = folder or Path(pooch.os_cache("shiftnp")) / "ceilings"
    found = read(test_set, PACKAGED) or read(test_set, folder)
    if found is not None:
        return found
    result = compute(test_set)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / file_name(test_set), result)
    except OSError as error:
        warnings.warn(f"The ceiling could not be kept and will be computed again: {error}", stacklevel=2)
    return result


def file_name(test_set: TestSet) -> str:
    """File name in the cache: a hash of everything that determines the data sets, then their number."""
    content = f"{VERSION} {test_set.task!r} {test_set.seed} {test_set.batch_size}"
    return f"{hashlib.sha256(content.encode()).hexdigest()[:16]}-{test_set.tasks}.npz"


def read(test_set: TestSet, folder: Path) -> Ceiling | None:
    """The ceiling in a folder, in a file whose name ends in its `file_name`; None: there is none.

    The ceiling of a longer test set is used if `test_set` consists of complete batches, which are then the first ones
    of the longer.
    """
    key = file_name(test_set).partition("-")[0]
    sizes = {
        path: int(found[1]) for path in folder.glob(f"*{key}-*.npz") if (found := re.search(r"-(\d+)$", path.stem))
    }
    for path, size in sorted(sizes.items(), key=lambda entry: entry[1]):
        if size == test_set.tasks or (size > test_set.tasks and test_set.tasks % test_set.batch_size == 0):
            try:
                with np.load(path) as file:
                    columns = [torch.from_numpy(file[name]) for name in Ceiling._fields]
            except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile):
                continue  # a damaged file is replaced
            if all(column.shape == (size,) for column in columns):
                return Ceiling(*(column[: test_set.tasks] for column in columns))
    return None


def save(path: Path, result: Ceiling) -> None:
    """Writes a ceiling to an npz file."""
    content = io.BytesIO()
    np.savez(content, **{name: value.numpy() for name, value in result._asdict().items()})
    write(path, content.getvalue())


def compute(test_set: TestSet) -> Ceiling:
    """Computes the ceiling from exact posteriors, with a progress bar."""
    task = test_set.task
    assert isinstance(task, GPTask)
    rows = []
    for i in track(range(len(test_set)), description="exact posteriors", transient=True):
        size = min(test_set.batch_size, test_set.tasks - i * test_set.batch_size)
        batch, truth = task.sample_with_truth(size, generator_for(test_set.seed, i))
        best = BayesOptimal(task)
        mixture = best(batch.xc, batch.yc, batch.xt)
        predictions = (GPOracle(task, truth)(batch.xc, batch.yc, batch.xt), mixture, best.moments(mixture))
        rows.append(torch.stack([log_likelihood(p, batch.yt.double()) for p in predictions]))
    return Ceiling(*torch.cat(rows, 1))
