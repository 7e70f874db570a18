"""A run is a folder that explains itself: `config.json`, `metrics.jsonl`, `model.safetensors` and `state.pt`.

Every file is written aside and renamed, so that under its own name it is whole or absent, whenever a run is stopped.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from filelock import FileLock, Timeout
from torch import Tensor

import shiftnp
from shiftnp.baselines import BASELINES
from shiftnp.baselines.gp import GPBaseline
from shiftnp._io import write, write_json
from shiftnp._registry import choose
from shiftnp.models import MODELS, NeuralProcess
from shiftnp.runs.config import RunConfig
from shiftnp.tasks import TASKS, Task
from shiftnp.tasks.scaling import Scaling

FORMAT = 1  # of the folder; a run of a higher format was written by a newer version


@dataclass(frozen=True)
class Run:
    """A run and its folder. `Run.open(folder)` is all that evaluating, plotting or resuming needs."""

    folder: Path
    config: RunConfig

    @staticmethod
    def create(folder: Path, config: RunConfig) -> Run:
        """A new run in a folder that has none. Nothing is written if its task or its model cannot be made."""
        if (folder / "config.json").exists():
            raise FileExistsError(
                f"{folder} holds a run already: go on with `{resume_command(folder)}`, or name another folder with"
                " --out."
            )
        run = Run(folder, config)
        scaling = getattr(run.task, "standardisation", None)
        if not run.is_baseline:
            run.new_model()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if scaling is not None:
                write_json(folder / "scaling.json", asdict(scaling))
            run.write_config()
        except OSError as error:
            raise OSError(f"{folder} cannot be made ({error.strerror}): name another folder with --out.") from error
        return run

    @staticmethod
    def open(folder: Path | str) -> Run:
        """The run in a folder."""
        folder = Path(folder)
        path = folder / "config.json"
        if not path.is_file():
            what = "has no config.json" if folder.is_dir() else "does not exist"
            raise FileNotFoundError(f"{folder} is not a run: it {what}. `shiftnp train` makes runs.")
        try:
            data = json.loads(path.read_text())
            written, version = int(data.pop("format")), data.pop("shiftnp")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} is damaged or not the config of a run ({error}): train anew.") from error
        if written > FORMAT:
            raise ValueError(
                f"{path} was written by shiftnp {version} (format {written}), newer than this one,"
                f" {shiftnp.__version__} (format {FORMAT}): update shiftnp to use this run."
            )
        try:
            return Run(folder, RunConfig.from_json(data))
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(f"{path}, written by shiftnp {version}, cannot be used: {error}") from error

    def write_config(self) -> None:
        write_json(
            self.folder / "config.json",
            {"format": FORMAT, "shiftnp": shiftnp.__version__, **self.config.to_json()},
        )

    # --- what a run is made of -----------------------------------------------------------------------------------

    @cached_property
    def task(self) -> Task:
        """What it is trained on."""
        make = choose(self.config.task, TASKS, "task")
        settings = dict(self.config.task_settings)
        if self.scaling is not None:
            settings.setdefault("scaling", self.scaling)
        return make(**settings)

    @cached_property
    def scaling(self) -> Scaling | None:
        """How the task standardises inputs and outputs, as it was when the run began; None if it does not."""
        path = self.folder / "scaling.json"
        return Scaling(**json.loads(path.read_text())) if path.exists() else None

    def new_model(self) -> NeuralProcess:
        """The model with its initial weights, which the seed decides."""
        make = choose(self.config.model, MODELS, "model")
        with torch.random.fork_rng():
            torch.manual_seed(self.config.training.seed)  # torch initialises weights from its global generator alone
            model: NeuralProcess = make(dx=self.task.dx, dy=self.task.dy, **self.config.model_settings)
        return model

    def model(self, device: torch.device | str = "cpu") -> NeuralProcess | GPBaseline:
        """The trained model, ready to predict."""
        if self.is_baseline:
            return BASELINES[self.config.model](**self.config.model_settings)
        model = self.new_model()
        path = self.folder / "model.safetensors"
        if not path.is_file():
            raise FileNotFoundError(
                f"{self.folder} has no weights yet: train it, with `{resume_command(self.folder)}`."
            )
        try:
            model.load_state_dict(safetensors.torch.load_file(path))
        except (safetensors.SafetensorError, RuntimeError) as error:
            raise ValueError(self._damaged(error)) from error
        return model.to(device).eval()

    @property
    def is_baseline(self) -> bool:
        """Whether there is nothing to train."""
        return self.config.model in BASELINES

    # --- how far it is -------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """How many steps the weights in `model.safetensors` have seen."""
        path = self.folder / "model.safetensors"
        if not path.is_file():
            return 0
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                return int(file.metadata()["step"])
        except (safetensors.SafetensorError, TypeError, KeyError, ValueError) as error:
            raise ValueError(self._damaged(error)) from error

    def _damaged(self, error: BaseException) -> str:
        return (
            f"{self.folder / 'model.safetensors'} is damaged or does not fit config.json ({_first_line(error)}):"
            f" `{resume_command(self.folder)}` writes it anew if state.pt is whole."
        )

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to train; with damaged weights there is."""
        try:
            return self.step >= self.config.training.steps
        except ValueError:
            return False

    def metrics(self) -> list[dict[str, Any]]:
        """The entries of `metrics.jsonl`; lines that are none, such as one cut short by a crash, are left out."""
        entries = []
        path = self.folder / "metrics.jsonl"
        for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and isinstance(entry.get("step"), int):
                    entries.append(entry)
        return entries

    # --- saving and going on -------------------------------------------------------------------------------------

    def save(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Keeps what resuming needs, then the weights to predict with. `state["step"]` is that of both."""
        memory = io.BytesIO()  # so that a full disk is met by `write`, which knows what to do
        torch.save(dict(state), memory)
        write(self.folder / "state.pt", memory.getvalue())
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        write(self.folder / "model.safetensors", safetensors.torch.save(tensors, {"step": str(state["step"])}))

    def state(self) -> dict[str, Any] | None:
        """What `save` kept, on the CPU; None if nothing was saved yet."""
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
            raise ValueError(
                f"{path} is damaged ({_first_line(error)}): this run cannot go on; train anew with another --out."
            ) from error
        return state

    def extend(self, steps: int) -> Run:
        """The same run with more steps to go, in its folder too."""
        if steps < self.step:
            raise ValueError(f"{self.folder} has been trained for {self.step} steps, more than the {steps} asked for.")
        changes = (*(c for c in self.config.changes if not c.startswith("steps=")), f"steps={steps}")
        training = replace(self.config.training, steps=steps)
        longer = Run(self.folder, replace(self.config, training=training, changes=changes))
        with self.lock():
            longer.write_config()
        return longer

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps all other processes from training the run."""
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RuntimeError(f"{self.folder} is being trained by another process: wait for it.") from None
        try:
            yield
        finally:
            lock.release()


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All runs in a folder, in the order of their names, and a sentence about each that cannot be read."""
    runs, sentences = [], []
    for path in sorted(folder.rglob("config.json")):
        try:
            runs.append(Run.open(path.parent))
        except (ValueError, OSError) as error:
            sentences.append(str(error))
        except RecursionError:
            sentences.append(f"{path} is nested too deeply: train anew.")
    return runs, sentences


def resume_command(folder: Path) -> str:
    """What to type to go on with a run."""
    return f"shiftnp train --resume {shlex.quote(str(folder))}"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".:")
