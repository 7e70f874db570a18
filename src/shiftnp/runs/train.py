"""The training loop, readable top to bottom: `train`. Everything else here serves it."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader

from shiftnp.attention import tiled
from shiftnp.batch import Batch
from shiftnp.runs.run import Run
from shiftnp.runs.evaluate import best_possible
from shiftnp.runs.log import Journal
from shiftnp.runs.scoring import log_likelihoods
from shiftnp.metrics import log_likelihood
from shiftnp.models import NeuralProcess
from shiftnp.runs.config import Precision
from shiftnp.tasks import Stream


def train(
    run: Run,
    fabric: Fabric | None = None,
    workers: int = 0,
    gap: bool = True,
    save_every: float = 60,
    tensorboard: bool = False,
    quiet: bool = False,
) -> bool:
    """Trains a run from where it is to its last step.

    However often it is interrupted, even by `kill -9`, the result is the same to the last bit on a CPU with the same
    number of threads: batch `i` depends on the seed and `i` alone, and a checkpoint holds everything else.

    Args:
        fabric: the devices (None: one), see `make_fabric`.
        workers: processes that make batches ahead of time (0: none).
        gap: work out what can be reached on the validation set, where that is known, and follow the gap to it.
        save_every: seconds between two checkpoints, which is what a crash may cost.
        tensorboard: write event files for TensorBoard, too.
        quiet: show nothing.

    Returns:
        whether it came to its end. False: it was asked to stop, by Ctrl-C or SIGTERM.
    """
    fabric = fabric or make_fabric()
    settings, task = run.config.training, run.task
    state = State.of(run, fabric.device)
    model, judged, optimiser = state.model, state.judged, state.optimiser
    module, stepper = fabric.setup(model, optimiser)

    test_set = replace(task.test_sets()["valid"], tasks=settings.valid_tasks)
    mixture = run.config.model_settings.get("likelihood") == "mixture"
    best = best_possible(test_set, mixture) if gap and fabric.is_global_zero else None
    valid = list(test_set)
    stream = Stream(task, settings.batch_size, settings.seed, fabric.global_rank, fabric.world_size, state.step)
    batches = iter(DataLoader(stream, batch_size=None, num_workers=workers, worker_init_fn=ignore_signals))

    writes = fabric.is_global_zero
    with Journal(run, state.step, state.seconds, writes, tensorboard, quiet) as journal, asked_to_stop() as asked:
        if state.threads != torch.get_num_threads():
            journal.say(f"Trained with {state.threads} threads so far, so last digits may change.")
        if settings.precision != "float32" and not tiled.low_precision_pays(fabric.device):
            instead = "bf16-pairs is float32" if settings.precision == "bf16-pairs" else "bf16 is slower than float32"
            journal.say(f"This processor has no bfloat16: {instead} here.")
        saved, scores = time.perf_counter(), torch.zeros(0)
        while state.step < settings.steps:
            batch = next(batches).to(fabric.device)
            with arithmetic(settings.precision, fabric.device):
                prediction = module(batch.xc, batch.yc, batch.xt, batch.mask_c)
            loss = -log_likelihood(prediction, batch.yt, batch.mask_t).mean()
            stepper.zero_grad()
            fabric.backward(loss)

            mean, stop = agree(fabric, loss.detach(), bool(asked))
            if mean.isfinite() and gradients_are_finite(model):
                # Saved before the update: these weights have just given a finite loss, those after it have not yet.
                if stop or journal.saved is None or time.perf_counter() - saved > save_every:
                    journal.save(state.to_save(journal.seconds), judged.state_dict())
                    saved = time.perf_counter()
                if not stop:
                    update(state, stepper, run)
                state.losses.append(float(mean))
                state.bad = 0
            else:
                state.skipped += 1
                state.bad += 1
                if state.bad >= settings.patience:
                    raise ArithmeticError(give_up(state, journal))
            if stop:
                journal.say_stopped(state.step)
                return False
            state.step += 1

            if state.step % settings.log_every == 0 and state.losses:
                journal.loss(state.step, state.losses, settings.rate(state.step - 1), state.skipped)
                state.losses = []
            if state.step % settings.valid_every == 0 or state.step == settings.steps:
                scores = validate(judged, valid, fabric)
                journal.valid(state.step, scores, best)
            journal.advance(state.step)

        if state.bad or (settings.steps > 0 and not scores.isfinite().all()):
            raise ArithmeticError(give_up(state, journal))
        journal.save(state.to_save(journal.seconds), judged.state_dict())
        journal.say_finished(state.step, state.skipped)
    return True


@dataclass
class State:
    """What changes while a model is trained."""

    model: NeuralProcess
    optimiser: torch.optim.Optimizer
    average: NeuralProcess | None
    step: int = 0
    skipped: int = 0
    bad: int = 0  # steps in a row without a finite loss
    seconds: float = 0.0
    threads: int = field(default_factory=torch.get_num_threads)
    losses: list[float] = field(default_factory=list)  # since the last entry in metrics.jsonl

    @staticmethod
    def of(run: Run, device: torch.device) -> State:
        """That of the run's last checkpoint, or a fresh one."""
        settings, model = run.config.training, run.new_model().to(device)
        rate, decay = float(settings.learning_rate), float(settings.weight_decay)
        optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True)
        state = State(model, optimiser, None if settings.ema is None else copy.deepcopy(model))
        saved = run.state()
        if saved is None:
            return state
        try:
            model.load_state_dict(saved["model"])
            optimiser.load_state_dict(saved["optimiser"])
            if state.average is not None:
                state.average.load_state_dict(saved["average"])
            state.step, state.skipped = saved["step"], saved["skipped"]
            state.seconds, state.threads, state.losses = saved["seconds"], saved["threads"], list(saved["losses"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{run.folder / 'state.pt'} does not fit config.json ({type(error).__name__}): if config.json was"
                " changed, change it back, else train anew with another --out."
            ) from error
        return state

    @property
    def judged(self) -> NeuralProcess:
        """The weights that are validated, and kept to predict with."""
        return self.model if self.average is None else self.average

    def to_save(self, seconds: float) -> dict[str, Any]:
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "skipped": self.skipped,
            "losses": self.losses,
            "seconds": seconds,
            "threads": torch.get_num_threads(),
        }


def arithmetic(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """What a forward pass in that precision runs in."""
    if precision == "bf16-pairs":
        return tiled.low_precision()
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def update(state: State, stepper: Any, run: Run) -> None:
    """One step of AdamW with clipped gradients, and of the moving average of the weights."""
    settings = run.config.training
    if settings.clip is not None:
        torch.nn.utils.clip_grad_value_(state.model.parameters(), float(settings.clip))
    for group in state.optimiser.param_groups:
        group["lr"] = settings.rate(state.step)
    stepper.step()
    if state.average is not None and settings.ema is not None:
        # Shorter at first, so that the initial weights are soon forgotten.
        decay = min(float(settings.ema), (1 + state.step) / (10 + state.step))
        with torch.no_grad():
            for mean, new in zip(state.average.parameters(), state.model.parameters(), strict=True):
                mean.lerp_(new, 1 - decay)


def validate(model: NeuralProcess, batches: list[Batch], fabric: Fabric) -> Float[Tensor, " n"]:
    """Log-likelihood per target of every task; processes share the batches out."""
    model.eval()
    scores = log_likelihoods(model, batches, fabric.device, shard=(fabric.global_rank, fabric.world_size))
    model.train()
    return reduce(fabric, scores, "sum").cpu()


def agree(fabric: Fabric, loss: Tensor, stop: bool) -> tuple[Tensor, bool]:
    """The mean loss of all processes, and whether any of them was asked to stop."""
    mean, asked = reduce(fabric, torch.stack([loss, torch.full_like(loss, float(stop))]), "mean")
    return mean, bool(asked > 0)


def reduce(fabric: Fabric, values: Tensor, how: str) -> Tensor:
    """The sum or mean over all processes."""
    result = fabric.all_reduce(values, reduce_op=how)
    assert isinstance(result, Tensor)
    return result


def gradients_are_finite(model: NeuralProcess) -> bool:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return bool(torch.stack([g.abs().amax() for g in gradients]).isfinite().all())


def give_up(state: State, journal: Journal) -> str:
    kept = "Nothing was saved."
    if journal.saved is not None:
        kept = f"The weights of step {journal.saved}, which were good, are kept in {journal.run.folder}."
    return (
        f"{state.bad} steps in a row had no finite loss or gradient, up to step {state.step}, so training stopped."
        f" {kept} Try a smaller --learning-rate, a --warmup, --precision float32 or a larger variance_floor, and"
        " look for extreme values in the data."
    )


def ignore_signals(worker: int) -> None:
    """Ctrl-C reaches every process of a terminal; the one that trains answers it, and stops its loader's workers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def make_fabric(devices: int | None = None, nodes: int | None = None) -> Fabric:
    """Processes to train with, started if need be: one by default, and under torchrun as many as it has started."""
    for name, number in (("devices", devices), ("nodes", nodes)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = devices or int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = nodes or int(os.environ["WORLD_SIZE"]) // devices
    fabric = Fabric(devices=devices or 1, num_nodes=nodes or 1)
    fabric.launch()
    return fabric


class Asked:
    """Whether a stop was asked for."""

    def __init__(self) -> None:
        self.yes = False

    def __bool__(self) -> bool:
        return self.yes

    def note(self, number: int, frame: Any) -> None:
        if self.yes and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        self.yes = True


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Asked]:
    """Turns Ctrl-C and SIGTERM into a wish that the loop grants between two steps; a second Ctrl-C is granted at once.

    A step cut in two would leave weights that no uninterrupted run ever had.
    """
    asked = Asked()
    try:
        before = {s: signal.signal(s, asked.note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # signals can be caught in the main thread only
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
