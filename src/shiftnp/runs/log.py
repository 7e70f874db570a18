"""Logging during training: `metrics.jsonl`, checkpoints, TensorBoard and progress."""

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
from rich.progress import TextColumn
from torch import Tensor

from shiftnp._io import write
from shiftnp._optional import import_optional
from shiftnp._progress import progress
from shiftnp._text import printable
from shiftnp.runs.run import STATE, Run, resume_command

PRINT_EVERY = 30.0
"""Seconds between progress lines if the output is not a terminal."""
TITLES = {"loss": "loss (NLL)", "valid": "valid (LL)", "valid-new-places": "new places (LL)", "gap": "gap"}
"""Printed names of the metrics in `metrics.jsonl`: a loss (NLL) has the opposite sign of a log-likelihood (LL)."""


class RunLog:
    """The log of a run during training. With several processes, those that are not `active` write and show nothing.

    Args:
        step: step at which training starts; later entries of `metrics.jsonl` are removed, since they are repeated.
        seconds: training time of the run before this process.
        active: whether this process writes and shows anything.
        tensorboard: also write event files for TensorBoard.
        quiet: show nothing.
    """

    def __init__(
        self, run: Run, step: int, seconds: float, active: bool = True, tensorboard: bool = False, quiet: bool = False
    ) -> None:
        self.run, self.first, self.before, self.active = run, step, seconds, active
        self.console = Console(quiet=quiet or not active, soft_wrap=True, markup=False, highlight=False)
        self.progress = progress(TextColumn("{task.fields[now]}"), quiet=quiet or not active, console=self.console)
        minutes = run.config.training.minutes
        self.total, self.timed = run.config.training.steps, minutes is not None
        if minutes is not None:
            self.total = max(1, round(60 * minutes))  # seconds
        self.shown: dict[str, str] = {}
        self.saved: int | None = step if step else None
        self.wants_board = tensorboard and active
        self.printed = time.monotonic()

    def __enter__(self) -> RunLog:
        if self.active:
            with self.writing():
                for leftover in self.run.folder.glob(".*.part"):  # left by a process that was killed while writing
                    leftover.unlink(missing_ok=True)
                kept = [json.dumps(entry) + "\n" for entry in self.run.metrics() if entry["step"] <= self.first]
                write(self.run.folder / "metrics.jsonl", "".join(kept))
                self.file = (self.run.folder / "metrics.jsonl").open("a", buffering=1)
            if self.wants_board:
                board = import_optional("torch.utils.tensorboard", "--tensorboard", "track")
                self.board = board.SummaryWriter(str(self.run.folder), purge_step=self.first)
        self.progress.start()
        self.bar = self.progress.add_task(
            printable(self.run.config.row or self.run.config.model) + (" (seconds)" if self.timed else ""),
            total=self.total,
            now="",
        )
        self.began = time.perf_counter()
        if self.first:
            self.print(f"Going on from {self.place(self.first)}.")
        self.print("loss: negative log-likelihood per target (NLL); valid: log-likelihood per target (LL)")
        self.advance(self.first)
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
        if self.active:
            with contextlib.suppress(OSError):
                self.file.close()
            if self.wants_board:
                self.board.close()

    # --- entries and checkpoints -------------------------------------------------------------------------------------

    def loss(self, step: int, losses: list[float], rate: float, skipped: int) -> None:
        """Logs the mean of the losses since the last entry."""
        mean = math.fsum(losses) / len(losses)
        self.shown["loss"] = f"{mean:+.3f}"
        self.append({"step": step, "loss": mean, "rate": rate, "skipped": skipped})

    def valid(self, step: int, scores: Mapping[str, Float[Tensor, " n"]], best: Float[Tensor, " n"] | None) -> None:
        """Logs the log-likelihood of the tasks of each validation set, and the gap to the best possible one on
        `valid`."""
        entry: dict[str, Any] = {"step": step}
        for name, values in scores.items():
            entry[name] = float(values.mean())
            self.shown[name] = f"{entry[name]:+.3f}"
        if best is not None:
            entry["gap"] = float((best - scores["valid"]).mean())
            self.shown["gap"] = f"{entry['gap']:.3f}"
        self.append({**entry, "seconds": round(self.seconds, 1)})
        self.print_progress(step)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry to `metrics.jsonl`."""
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
        """Saves a checkpoint, after the entries that belong to it."""
        if self.active:
            with self.writing():
                os.fsync(self.file.fileno())
                self.run.save(state, weights)
            self.saved = state["step"]

    def advance(self, step: int) -> None:
        """Updates the progress bar; without a terminal, prints a line from time to time."""
        done = min(self.total, round(self.seconds)) if self.timed else step
        self.progress.update(self.bar, completed=done, now=self.now(step))
        if not self.console.is_terminal and time.monotonic() - self.printed > PRINT_EVERY:
            self.print_progress(step)

    def print_progress(self, step: int) -> None:
        """Prints a progress line, for a terminal or a log file."""
        self.printed = time.monotonic()
        left = max(0.0, self.total - self.seconds) if self.timed else (self.total - step) / self.speed(step)
        place = f"step {step}" if self.timed else f"step {step}/{self.total}"
        self.print(f"{place}  {self.now(step)}  {clock(left)} left")

    def print(self, sentence: str) -> None:
        """Prints a line above the progress bar."""
        self.console.print(sentence)

    def place(self, step: int) -> str:
        """Where a training is at a step: `step 5 of 10`, or `step 5, after 0:30 of 1:00`."""
        return (
            f"step {step}, after {clock(self.seconds)} of {clock(self.total)}"
            if self.timed
            else f"step {step} of {self.total}"
        )

    def print_finished(self, step: int, skipped: int, best: int | None = None) -> None:
        """Prints the final metrics, and the command that evaluates the run.

        Args:
            best: the step whose weights are kept; None: the last.
        """
        note = f", {skipped} of them skipped for lack of a finite loss" if skipped else ""
        self.print(f"Trained for {step} steps in {clock(self.seconds)}{note}: {self.figures()}")
        if best is not None:
            self.print(f"The weights of step {best} are kept: they were the best in validation.")
        self.print(f"Next: shiftnp evaluate {shlex.quote(str(self.run.folder))}")

    def print_stopped(self, step: int) -> None:
        """Prints where training was interrupted, and the command that resumes it."""
        kept = "nothing was saved yet" if self.saved is None else f"step {self.saved} is saved"
        self.print(f"Stopped at {self.place(step)}; {kept}. Go on with:")
        self.print(f"  {resume_command(self.run.folder)}")

    # --- current metrics ---------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Total training time of the run, over all processes that trained it."""
        return self.before + time.perf_counter() - self.began

    def speed(self, step: int) -> float:
        """Steps per second."""
        return max(step - self.first, 1e-9) / (time.perf_counter() - self.began)

    def now(self, step: int) -> str:
        """The latest metrics and, once it is known, the speed."""
        return f"{self.figures()}  {self.speed(step):.2f} steps/s" if step > self.first else self.figures()

    def figures(self) -> str:
        """The latest metrics as text."""
        return "  ".join(f"{TITLES.get(name, name)} {value}" for name, value in self.shown.items())

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Context manager that adds to an OSError which checkpoint is left and how to resume."""
        try:
            yield
        except OSError as error:
            kept = "No checkpoint was written yet."
            if self.saved is not None:
                whole = (self.run.folder / STATE).is_file()
                kept = f"That of step {self.saved} is intact." if whole else "Its checkpoint is gone."
            raise OSError(
                f"{self.run.folder} cannot be written ({error.strerror or error}). {kept} Make room, or make the folder"
                f" writable, and go on with `{resume_command(self.run.folder)}`."
            ) from error


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds, such as `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
