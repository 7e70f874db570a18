"""What a run writes and shows while it is trained: `metrics.jsonl`, checkpoints, TensorBoard, progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any

from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from shiftnp._io import write
from shiftnp._optional import need
from shiftnp.runs.run import Run, resume_command

TELL_EVERY = 30.0
"""Seconds between lines where there is no terminal to show live progress."""


class Journal:
    """The open journal of a run, in one process alone. With several processes, those that are not `active` write and
    show nothing.

    Args:
        step: where training starts; entries of `metrics.jsonl` beyond it are taken back, since their steps come again.
        seconds: how long the run was trained before.
    """

    def __init__(
        self, run: Run, step: int, seconds: float, active: bool = True, tensorboard: bool = False, quiet: bool = False
    ) -> None:
        self.run, self.first, self.before, self.active = run, step, seconds, active
        self.console = Console(quiet=quiet or not active, soft_wrap=True, markup=False, highlight=False)
        # Tasks differ in size from batch to batch, so that the time left is estimated from many steps.
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not active or not self.console.is_terminal,
            speed_estimate_period=600,
            transient=True,
        )
        self.total = run.config.training.steps
        self.shown: dict[str, str] = {}
        self.saved: int | None = step if step else None
        self.wants_board = tensorboard and active
        self.open = contextlib.ExitStack()
        self.told = time.monotonic()

    def __enter__(self) -> Journal:
        if self.active:
            with self.writing():
                self.open.enter_context(self.run.lock())
                for leftover in self.run.folder.glob(".*.part"):  # of a process that was killed while it wrote
                    leftover.unlink(missing_ok=True)
                kept = [json.dumps(entry) + "\n" for entry in self.run.metrics() if entry["step"] <= self.first]
                write(self.run.folder / "metrics.jsonl", "".join(kept))
                self.file = (self.run.folder / "metrics.jsonl").open("a", buffering=1)
            if self.wants_board:
                board = need("torch.utils.tensorboard", "--tensorboard", "track")
                self.board = board.SummaryWriter(str(self.run.folder), purge_step=self.first)
        self.progress.start()
        self.bar = self.progress.add_task(self.run.config.row or self.run.config.model, total=self.total, now="")
        self.began = time.perf_counter()
        if self.first:
            self.console.print(f"Going on from step {self.first} of {self.total}.")
        self.advance(self.first)
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        if self.active:
            with contextlib.suppress(OSError):
                self.file.close()
            if self.wants_board:
                self.board.close()
        self.open.close()

    # --- what happens ----------------------------------------------------------------------------------------------

    def loss(self, step: int, losses: list[float], rate: float, skipped: int) -> None:
        """The mean of the last losses."""
        mean = math.fsum(losses) / len(losses)
        self.shown["loss"] = f"{mean:+.3f}"
        self.note({"step": step, "loss": mean, "rate": rate, "skipped": skipped})

    def valid(self, step: int, scores: Float[Tensor, " n"], best: Float[Tensor, " n"] | None) -> None:
        """The log-likelihood of the validation tasks and the gap to the best possible one."""
        entry = {"step": step, "valid": float(scores.mean())}
        self.shown["valid"] = f"{entry['valid']:+.3f}"
        if best is not None:
            entry["gap"] = float((best - scores).mean())
            self.shown["gap"] = f"{entry['gap']:.3f}"
        self.note({**entry, "seconds": round(self.seconds, 1)})
        self.tell(step)

    def note(self, entry: Mapping[str, Any]) -> None:
        if not self.active:
            return
        numbers = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in entry.items()}
        with self.writing():
            self.file.write(json.dumps(numbers) + "\n")
        if self.wants_board:
            for name, value in entry.items():
                if name != "step":
                    self.board.add_scalar(name, value, entry["step"])

    def save(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """A checkpoint, after the entries that belong to it."""
        if self.active:
            with self.writing():
                os.fsync(self.file.fileno())
                self.run.save(state, weights)
            self.saved = state["step"]

    def advance(self, step: int) -> None:
        self.progress.update(self.bar, completed=step, now=self.now(step))
        if not self.console.is_terminal and time.monotonic() - self.told > TELL_EVERY:
            self.tell(step)

    def tell(self, step: int) -> None:
        """A line that stays, and that log files get."""
        self.told = time.monotonic()
        left = clock((self.total - step) / self.speed(step))
        self.say(f"step {step}/{self.total}  {self.now(step)}  {left} left")

    def say(self, sentence: str) -> None:
        self.console.print(sentence)

    def say_finished(self, step: int, skipped: int) -> None:
        note = f", {skipped} of them skipped for want of a finite loss" if skipped else ""
        scores = "  ".join(f"{name} {value}" for name, value in self.shown.items())
        self.console.print(f"Trained for {step} steps in {clock(self.seconds)}{note}: {scores}")
        self.console.print(f"Next: shiftnp evaluate {shlex.quote(str(self.run.folder))}")

    def say_stopped(self, step: int) -> None:
        kept = "nothing was saved yet" if self.saved is None else f"step {self.saved} is saved"
        self.console.print(f"Stopped at step {step} of {self.total}; {kept}. Go on with:")
        self.console.print(f"  {resume_command(self.run.folder)}")

    # --- figures that change -----------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """How long the run has been trained in all."""
        return self.before + time.perf_counter() - self.began

    def speed(self, step: int) -> float:
        """Steps per second."""
        return max(step - self.first, 1e-9) / (time.perf_counter() - self.began)

    def now(self, step: int) -> str:
        values = "  ".join(f"{name} {value}" for name, value in self.shown.items())
        return f"{values}  {self.speed(step):.2f} steps/s" if step > self.first else values

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Says in one sentence why a file could not be written and what is left."""
        try:
            yield
        except OSError as error:
            kept = "No checkpoint was written yet." if self.saved is None else f"That of step {self.saved} is intact."
            raise OSError(
                f"{self.run.folder} cannot be written ({error.strerror or error}). {kept} Make room, or make the folder"
                f" writable, and go on with `{resume_command(self.run.folder)}`."
            ) from error


def clock(seconds: float) -> str:
    """`1:02:03`"""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
