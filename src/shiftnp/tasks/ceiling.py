"""What can be reached on a test set of Gaussian processes, worked out once and kept on disk."""

from __future__ import annotations

import hashlib
import io
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
from shiftnp.tasks.gp import BayesOptimal, GPOracle, GPTask

VERSION = 1  # of what is computed here; a file of another version is not used


class Ceiling(NamedTuple):
    """Log-likelihood per target of each task: knowing the hyperparameters, by Bayes, and by the best Gaussian."""

    oracle: Float[Tensor, " n"]
    mixture: Float[Tensor, " n"]
    gaussian: Float[Tensor, " n"]


def ceiling(test_set: TestSet, folder: Path | None = None) -> Ceiling:
    """The ceiling of a test set of `GPTask`s, from `folder` (None: the user's cache) if it is there.

    A model is judged by its gap to the ceiling on the same tasks, which has far less noise than its score.
    """
    task = test_set.task
    if not isinstance(task, GPTask):
        raise ValueError(f"a ceiling is known for Gaussian-process tasks only, not for {type(task).__name__}.")
    if task.train_targets is not None:
        raise ValueError("train_targets is for training only: take the sets of task.test_sets(), which have none.")
    test_set = replace(test_set, task=replace(task, shift=0.0))  # a shift of all inputs changes no exact posterior
    folder = folder or Path(pooch.os_cache("shiftnp")) / "ceilings"
    path = folder / f"{hashlib.sha256(f'{VERSION} {test_set!r}'.encode()).hexdigest()[:16]}.npz"
    try:
        with np.load(path) as file:
            return Ceiling(*(torch.from_numpy(file[name]) for name in Ceiling._fields))
    except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile):
        result = compute(test_set)
    content = io.BytesIO()
    np.savez(content, **{name: value.numpy() for name, value in result._asdict().items()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(path, content.getvalue())
    except OSError as error:
        warnings.warn(f"The ceiling could not be kept and will be worked out again: {error}", stacklevel=2)
    return result


def compute(test_set: TestSet) -> Ceiling:
    """The ceiling, worked out with progress shown."""
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
