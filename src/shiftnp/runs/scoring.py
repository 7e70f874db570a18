"""Metrics of a predictor on each task, for validation and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.metrics import COVERAGE, coverage, crps, log_likelihood, pit_below, squared_error

Predictor = Callable[..., Distribution]
"""A model or a baseline, `predict(xc, yc, xt, mask_c)`."""


class Scores(NamedTuple):
    """Metrics of predictions, one row per task, on the CPU."""

    context: Int[Tensor, " n"]
    """Number of context points, without padding."""
    log_likelihood: Float[Tensor, " n"]
    squared_error: Float[Tensor, " n"]
    crps: Float[Tensor, " n"]
    covered: Float[Tensor, "n 3"]
    """Fraction of targets in the central intervals of `COVERAGE`."""
    pit_below: Float[Tensor, "n 19"]


def score(
    predict: Predictor,
    batches: Iterable[Batch],
    device: torch.device | str = "cpu",
    advance: Callable[[int], object] | None = None,
) -> Scores:
    """All metrics of a predictor on each task, for instance of a test set.

    Args:
        device: device of the predictor.
        advance: called after each batch with its number of tasks, to show progress.
    """
    rows = []
    for batch, dist in predictions(predict, batches, device):
        yt, mask = batch.yt.double(), batch.mask_t
        if yt.shape[1] == 0 or (mask is not None and not mask.any(-1).all()):
            raise ValueError("A task of the test set has no targets and cannot be scored: leave it out.")
        present = torch.ones_like(batch.xc[..., 0], dtype=torch.bool) if batch.mask_c is None else batch.mask_c
        row = (
            present.sum(-1),
            log_likelihood(dist, yt, mask),
            squared_error(dist, yt, mask),
            crps(dist, yt, mask),
            torch.stack([coverage(dist, yt, level, mask) for level in COVERAGE.values()], -1),
            pit_below(dist, yt, mask),
        )
        rows.append([value.cpu() for value in row])
        if advance is not None:
            advance(len(yt))
    return Scores(*(torch.cat(column) for column in zip(*rows, strict=True)))


def log_likelihoods(
    predict: Predictor, batches: Iterable[Batch], device: torch.device | str = "cpu", shard: tuple[int, int] = (0, 1)
) -> Float[Tensor, " n"]:
    """Log-likelihood per target of every task, on the device, for validation.

    Args:
        shard: rank and number of processes. Each scores every `number`-th batch and has zeros for the tasks of the
            others, so that the sum over processes is complete.
    """
    rank, world = shard
    batches = list(batches)
    parts = [torch.zeros(len(batch.xc), dtype=torch.float64, device=device) for batch in batches]
    own = range(rank, len(batches), world)
    for i, (batch, dist) in zip(own, predictions(predict, batches[rank::world], device), strict=True):
        parts[i] = log_likelihood(dist, batch.yt, batch.mask_t).double()
    return torch.cat(parts)


def predictions(
    predict: Predictor, batches: Iterable[Batch], device: torch.device | str
) -> Iterator[tuple[Batch, Distribution]]:
    """Each batch, moved to the device, and its prediction."""
    for batch in batches:
        batch = batch.to(device)
        with torch.no_grad():
            dist = predict(batch.xc, batch.yc, batch.xt, batch.mask_c)
        yield batch, dist
