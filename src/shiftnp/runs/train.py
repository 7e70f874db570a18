"""The training loop, `train`, and its helper functions."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader

from shiftnp.batch import Batch
from shiftnp.models import NeuralProcess
from shiftnp.runs.config import Training
from shiftnp.runs.evaluate import best_possible
from shiftnp.runs.log import RunLog
from shiftnp.runs.run import Run
from shiftnp.runs.scoring import log_likelihoods
from shiftnp.runs.signals import ignore_signals, stop_on_signal
from shiftnp.runs.state import TrainingState
from shiftnp.runs.step import loss, width_of
from shiftnp.tasks import Stream
from shiftnp.tasks.base import validation_sets

VALIDATIONS = 20
"""Number of validations in a training of some `minutes`."""


def train(
    run: Run,
    fabric: Fabric | None = None,
    workers: int = 0,
    gap: bool = True,
    save_every: float = 60,
    tensorboard: bool = False,
    quiet: bool = False,
) -> bool:
    """Trains a run from its last checkpoint to its last step.

    However often it is interrupted, even by `kill -9`, the result is bitwise the same on a CPU with the same number of
    threads: batch `i` depends on the seed and `i` only, and a checkpoint holds everything else. A training of some
    `minutes` depends on the speed of the machine, too.

    Args:
        fabric: the devices (None: one), see `make_fabric`.
        workers: number of DataLoader worker processes (0: none).
        gap: compute the best possible log-likelihood on the validation set, if it is known, and log the gap to it.
        save_every: seconds between two checkpoints: the training time that a crash can lose.
        tensorboard: also write event files for TensorBoard.
        quiet: show nothing.

    Returns:
        whether training is finished. False: it was stopped by Ctrl-C or SIGTERM.
    """
    fabric = fabric or make_fabric()
    with locked(run, fabric):  # before anything is read, as another process may be writing it
        training, task = run.config.training, run.task
        state = TrainingState.of(run, fabric.device)
        model, eval_model = state.model, state.eval_model
        module, optimiser = fabric.setup(model, state.optimiser)
        width = width_of(model)

        test_sets = {n: replace(t, tasks=training.valid_tasks) for n, t in validation_sets(task).items()}
        mixture = model.likelihood.ceiling == "mixture"
        best = best_possible(test_sets["valid"], mixture) if gap and fabric.is_global_zero else None
        valid = {name: list(test_set) for name, test_set in test_sets.items()}
        stream = Stream(task, training.batch_size, training.seed, fabric.global_rank, fabric.world_size, state.step)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This DataLoader will create")  # the user's choice
            batches = iter(DataLoader(stream, batch_size=None, num_workers=workers, worker_init_fn=ignore_signals))

        log = RunLog(run, state.step, state.seconds, fabric.is_global_zero, tensorboard, quiet)
        with log, stop_on_signal() as stop_request:
            if state.threads != torch.get_num_threads():
                log.print(f"Trained with {state.threads} threads so far, so last digits may change.")
            first = Stream(task, training.batch_size, training.seed)
            pays = state.choose_precision(run, lambda: next(iter(first)).to(fabric.device))
            state.bf16 = pays = fabric.broadcast(pays)  # one decision for all processes
            if pays is False:
                log.print(f"bfloat16 is not faster than float32 here, so --precision {training.precision} is float32.")
            saved, scores = time.perf_counter(), {"valid": torch.zeros(0)}
            part = training.part(state.step, state.seconds)
            while part < 1:
                value = loss(module, next(batches).to(fabric.device), training.precision, width, pays)
                optimiser.zero_grad()
                fabric.backward(value)

                mean, stop, seconds = reduce_loss(fabric, value.detach(), bool(stop_request), log.seconds)
                if mean.isfinite() and gradients_are_finite(model):
                    # Saved before the update, because these weights are known to give a finite loss.
                    if stop or log.saved is None or time.perf_counter() - saved > save_every:
                        log.save(state.to_save(log.seconds), state.weights)
                        saved = time.perf_counter()
                    if not stop:
                        state.update(run, optimiser, training.part(state.step, seconds))
                    state.losses.append(float(mean))
                    state.bad = 0
                else:
                    state.skipped += 1
                    state.bad += 1
                    if state.bad >= training.patience:
                        raise ArithmeticError(diverged(state, log))
                if stop:
                    log.print_stopped(state.step)
                    return False
                state.step += 1
                before, part = part, training.part(state.step, seconds)

                if state.step % training.log_every == 0 and state.losses:
                    rate = training.rate(state.step - 1, None if training.minutes is None else part)
                    log.loss(state.step, state.losses, rate, state.skipped)
                    state.losses = []
                if validation_is_due(training, state.step, before, part):
                    scores = {name: validate(eval_model, batches_of, fabric) for name, batches_of in valid.items()}
                    log.valid(state.step, scores, best)
                    if training.keep == "best":
                        state.validated([float(values.mean()) for values in scores.values()])
                log.advance(state.step)

            finite = all(bool(values.isfinite().all()) for values in scores.values())
            if state.bad or (training.steps > 0 and not finite and state.best is None):
                raise ArithmeticError(diverged(state, log))
            log.save(state.to_save(log.seconds), state.weights)
            log.print_finished(state.step, state.skipped, None if state.best is None else state.best.step)
    return True


@contextlib.contextmanager
def locked(run: Run, fabric: Fabric) -> Iterator[None]:
    """Holds the lock of the run in the first of several processes; the others wait until that one has it."""
    with run.lock() if fabric.is_global_zero else contextlib.nullcontext():
        fabric.barrier()
        yield


def validate(model: NeuralProcess, batches: list[Batch], fabric: Fabric) -> Float[Tensor, " n"]:
    """Log-likelihood per target of every task; the batches are distributed over the processes."""
    model.eval()
    scores = log_likelihoods(model, batches, fabric.device, shard=(fabric.global_rank, fabric.world_size))
    model.train()
    return reduce(fabric, scores, "sum").cpu()


def validation_is_due(training: Training, step: int, before: float, part: float) -> bool:
    """Whether to validate after a step, before and after which these parts of the training are over: every
    `valid_every` steps, or `VALIDATIONS` times in a training of some `minutes`, and at the end."""
    if training.minutes is None:
        return step % training.valid_every == 0 or part >= 1
    return int(VALIDATIONS * part) > int(VALIDATIONS * before)


def reduce_loss(fabric: Fabric, value: Tensor, stop: bool, seconds: float) -> tuple[Tensor, bool, float]:
    """The mean loss of all processes, whether any of them has to stop, and the seconds on their clocks."""
    mean, stops = reduce(fabric, torch.stack([value, torch.full_like(value, float(stop))]), "mean")
    clock = torch.tensor(seconds, dtype=torch.float64, device=value.device) if fabric.world_size > 1 else None
    return mean, bool(stops > 0), seconds if clock is None else float(reduce(fabric, clock, "mean"))


def reduce(fabric: Fabric, values: Tensor, how: str) -> Tensor:
    """The sum or mean over all processes."""
    result = fabric.all_reduce(values, reduce_op=how)
    assert isinstance(result, Tensor)
    return result


def gradients_are_finite(model: NeuralProcess) -> bool:
    """Whether all gradients are finite."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return bool(torch.stack([g.abs().amax() for g in gradients]).isfinite().all())


def diverged(state: TrainingState, log: RunLog) -> str:
    """The error message for diverged training: why it stopped and which weights are saved."""
    kept = "Nothing was saved."
    if log.saved is not None:
        kept = f"The weights of step {log.saved}, which were good, are kept in {log.run.folder}."
    return (
        f"{state.bad} steps in a row had no finite loss or gradient, up to step {state.step}, so training stopped."
        f" {kept} Try a smaller --learning-rate, a --warmup, --precision float32 or a larger variance_floor, and"
        " look for extreme values in the data."
    )


def make_fabric(devices: int | None = None, nodes: int | None = None) -> Fabric:
    """The Fabric of all training processes: one by default, under torchrun those that it has started."""
    for name, number in (("devices", devices), ("nodes", nodes)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = devices or int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = nodes or int(os.environ["WORLD_SIZE"]) // devices
    fabric = Fabric(devices=devices or 1, num_nodes=nodes or 1)
    fabric.launch()
    if torch.distributed.is_initialized():
        # Threads of the process group that are still running when the interpreter exits would abort the process.
        atexit.register(_leave_process_group)
    return fabric


def _leave_process_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
