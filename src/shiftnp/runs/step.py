"""One training step: the loss of a batch, AdamW or Muon on clipped gradients, and the EMA of the weights."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.attention import tiled
from shiftnp.attention.precision import GAIN
from shiftnp.batch import Batch
from shiftnp.metrics import log_likelihood
from shiftnp.models import NeuralProcess
from shiftnp.runs.config import Precision, Training
from shiftnp.runs.muon import Muon, hidden_matrices


def loss(
    model: Callable[..., Distribution],
    batch: Batch,
    precision: Precision = "float32",
    width: int = 128,
    pays: bool | None = None,
) -> Tensor:
    """Negative log-likelihood per target, averaged over tasks.

    Args:
        model: a neural process, or a wrapper of one for several devices.
        precision: see `Training`.
        width, pays: see `precision_context`.
    """
    with precision_context(precision, batch.xc.device, width, pays):
        prediction = model(batch.xc, batch.yc, batch.xt, batch.mask_c)
    return -log_likelihood(prediction, batch.yt, batch.mask_t).mean()


@contextlib.contextmanager
def precision_context(
    precision: Precision, device: torch.device, width: int = 128, pays: bool | None = None
) -> Iterator[None]:
    """Context manager for a forward pass in that precision: bfloat16 only if it is faster.

    Args:
        width: width of the model, at which bfloat16 must be faster than float32 to be used.
        pays: whether bfloat16 is faster, if that is known.
    """
    if precision == "float32":
        with torch.autocast(device.type, torch.bfloat16, enabled=False):
            yield
    elif precision == "bf16-pairs":
        with tiled.low_precision(pays):
            yield
    else:
        pays = tiled.low_precision_pays(device, width) if pays is None else pays
        with torch.autocast(device.type, torch.bfloat16, enabled=pays), tiled.low_precision(pays):
            yield


def low_precision_is_faster(model: NeuralProcess, batch: Batch, precision: Precision, repeats: int = 2) -> bool:
    """Whether forward and backward pass take less time in that precision than in float32, on this batch.

    If products of the model's width are not faster, whole steps are not tried: emulated, they would take minutes.
    """
    device = batch.xc.device
    if tiled.LOW_PRECISION is not None or not tiled.low_precision_pays(device, width_of(model)):
        return bool(tiled.LOW_PRECISION)
    if device.type != "cpu":
        return True
    best = {False: float("inf"), True: float("inf")}
    for i in range(repeats + 1):
        for low in best:
            start = time.process_time()  # wall-clock time depends on the load of the machine
            value = loss(model, batch, precision, pays=low)
            torch.autograd.grad(value, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
            if i > 0:  # the first is a warm-up
                best[low] = min(best[low], time.process_time() - start)
    return best[False] > GAIN * best[True]


def width_of(model: NeuralProcess) -> int:
    """Width of the model's MLPs, on which the speed of bfloat16 depends."""
    return next(model.decoder.parameters()).shape[0]


def make_optimiser(model: NeuralProcess, training: Training) -> torch.optim.Optimizer:
    """The optimiser with the settings of a run."""
    rate, decay = float(training.learning_rate), float(training.weight_decay)
    if training.optimiser == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True)
    matrices = hidden_matrices(model)
    chosen = {id(p) for p in matrices}
    return Muon(matrices, [p for p in model.parameters() if id(p) not in chosen], lr=rate, weight_decay=decay)


def update(
    model: NeuralProcess, optimiser: torch.optim.Optimizer, training: Training, step: int, part: float | None = None
) -> None:
    """Step number `step` of the optimiser: clips the gradients, sets the learning rate and updates the weights.

    Args:
        part: see `Training.rate`.
    """
    if training.clip is not None:
        torch.nn.utils.clip_grad_value_(model.parameters(), float(training.clip))
    for group in optimiser.param_groups:
        group["lr"] = training.rate(step, part)
    optimiser.step()


@torch.no_grad()
def update_average(average: NeuralProcess, model: NeuralProcess, decay: float, step: int) -> None:
    """Exponential moving average of the weights: `average <- d * average + (1 - d) * model`.

    `d = min(decay, (1 + step) / (10 + step))`: early in training the average is short, so that the initial weights are
    soon forgotten.
    """
    decay = min(float(decay), (1 + step) / (10 + step))
    for mean, new in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(new, 1 - decay)


def train_step(
    model: NeuralProcess, optimiser: torch.optim.Optimizer, batch: Batch, training: Training, step: int
) -> Tensor:
    """Loss, gradient and update in one call, on one device and without checks. Returns the loss."""
    value = loss(model, batch, training.precision, width_of(model))
    optimiser.zero_grad()
    value.backward()
    update(model, optimiser, training, step)
    return value.detach()
