"""A training run and its folder: `config.json`, `metrics.jsonl`, `model.safetensors`, `state.safetensors`.

Every file is written atomically, so that it is complete or absent whenever a run is stopped.
"""

from __future__ import annotations

import contextlib
import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

import shiftnp
from shiftnp._arguments import build, check_type, first_line
from shiftnp._io import write_json
from shiftnp._registry import choose
from shiftnp.baselines import BASELINES
from shiftnp.baselines.gp import GPBaseline
from shiftnp.models import MODELS, NeuralProcess
from shiftnp.runs.config import RunConfig
from shiftnp.runs.tensors import check_tensors, flatten, read_metadata, read_tensors, unflatten, write_tensors
from shiftnp.scaling import Scaling
from shiftnp.tasks import TASKS, Task

FORMAT = 1  # of the folder; a run of a higher format was written by a newer version
WEIGHTS, STATE = "model.safetensors", "state.safetensors"
BEGINNING = ("config.json", "scaling.json", "metrics.jsonl", ".lock")
"""Files of a run that has no checkpoint yet."""


@dataclass(frozen=True)
class Run:
    """A run and its folder. `Run.open(folder)` opens an existing one, to evaluate, plot or resume it."""

    folder: Path
    config: RunConfig

    @staticmethod
    def create(folder: Path, config: RunConfig) -> Run:
        """Creates a run in a folder that has none. Nothing is written if the settings of task or model are invalid."""
        if (folder / "config.json").exists():
            raise FileExistsError(
                f"{folder} holds a run already: go on with `{resume_command(folder)}`, or name another folder with"
                " --out."
            )
        run = Run(folder, config)
        run.check()
        scaling = run.task.scaling
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
        """Opens the run in a folder."""
        folder = Path(folder)
        path = folder / "config.json"
        if folder.is_file():
            which = f", {folder.parent}" if (folder.parent / "config.json").is_file() else ""
            raise NotADirectoryError(f"{folder} is a file: name the folder of a run{which}.")
        if not path.is_file():
            what = "has no config.json" if folder.is_dir() else "does not exist"
            raise FileNotFoundError(f"{folder} is not a run: it {what}. `shiftnp train` makes runs.")
        data = _read_json(path, "config.json of a run")
        written, version = data.pop("format", None), data.pop("shiftnp", None)
        if not isinstance(written, int) or not isinstance(version, str):
            raise ValueError(f"{path} is damaged or not the config.json of a run (no format and version): train again.")
        if written > FORMAT:
            raise ValueError(
                f"{path} was written by shiftnp {version} (format {written}), newer than this one,"
                f" {shiftnp.__version__} (format {FORMAT}): update shiftnp to use this run."
            )
        try:
            return Run(folder, RunConfig.from_json(data))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, written by shiftnp {version}, cannot be used: {error}") from error

    def write_config(self) -> None:
        """Writes `config.json`, with the number of the format and the version of shiftnp."""
        write_json(
            self.folder / "config.json",
            {"format": FORMAT, "shiftnp": shiftnp.__version__, **self.config.to_json()},
        )

    def check(self) -> None:
        """Makes the task and the model once; raises a ValueError if their settings are invalid."""
        _ = self.task
        self.baseline() if self.is_baseline else self.new_model()

    # --- task and model ------------------------------------------------------------------------------------------

    @cached_property
    def task(self) -> Task:
        """The task that the model is trained on."""
        name = self.config.task
        make, settings = choose(name, TASKS, "task"), self.config.task_settings
        more = {} if self.scaling is None or "fixed_scaling" in settings else {"fixed_scaling": self.scaling}
        task: Task = build(make, settings, f"the task {name}", **more)
        return task

    @cached_property
    def scaling(self) -> Scaling | None:
        """The task's standardisation of inputs and outputs, as stored when the run was created; None if it has none."""
        path = self.folder / "scaling.json"
        if not path.exists():
            return None
        data = _read_json(path, "scaling.json of a run")
        try:
            for entry in fields(Scaling):
                check_type(entry.name, data[entry.name], list[str] if "put" in entry.name else list[float])
            if not all(math.isfinite(v) for name in ("x_mean", "x_std", "y_mean", "y_std") for v in data[name]):
                raise ValueError("means and standard deviations must be finite.")
            for names in (("inputs", "x_mean", "x_std"), ("outputs", "y_mean", "y_std")):
                if len({len(data[name]) for name in names}) > 1:
                    raise ValueError(f"{', '.join(names)} must have the same length.")
            return Scaling(**data)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is damaged ({first_line(error)}): restore it, or train again with another --out."
            ) from error

    def new_model(self) -> NeuralProcess:
        """The model with its initial weights, which depend on the seed."""
        name, settings = self.config.model, self.config.model_settings
        make = choose(name, MODELS, "model")
        with torch.random.fork_rng():
            torch.manual_seed(self.config.training.seed)  # torch initialises weights from its global generator only
            model: NeuralProcess = build(make, settings, f"the model {name}", dx=self.task.dx, dy=self.task.dy)
        return model

    def baseline(self) -> GPBaseline:
        """The baseline, which is fitted to each context and has no weights."""
        name = self.config.model
        baseline: GPBaseline = build(BASELINES[name], self.config.model_settings, f"the baseline {name}")
        return baseline

    def model(self, device: torch.device | str = "cpu") -> NeuralProcess | GPBaseline:
        """The trained model in evaluation mode, or the baseline."""
        if self.is_baseline:
            return self.baseline()
        model = self.new_model()
        try:
            weights, _ = read_tensors(self.folder / WEIGHTS)
            weights = {name: t.float() if t.dtype == torch.float16 else t for name, t in weights.items()}
            check_tensors(weights, model.state_dict())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.folder} has no weights yet: train it, with `{resume_command(self.folder)}`."
            ) from None
        except ValueError as error:
            raise ValueError(self._damaged(error)) from error
        model.load_state_dict(weights)
        return model.to(device).eval()

    @property
    def is_baseline(self) -> bool:
        """Whether the model is a baseline, which is not trained."""
        return self.config.model in BASELINES

    # --- progress of the training --------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Number of training steps of the weights in `model.safetensors`."""
        path = self.folder / WEIGHTS
        if not path.is_file():
            return 0
        try:
            return _step(read_metadata(path))
        except ValueError as error:
            raise ValueError(self._damaged(error)) from error

    def _damaged(self, error: BaseException) -> str:
        return (
            f"{self.folder / WEIGHTS} is damaged or does not fit config.json ({first_line(error)}):"
            f" `{resume_command(self.folder)}` writes it again if {STATE} is intact."
        )

    @property
    def is_finished(self) -> bool:
        """Whether training is finished. False if the weights are damaged, as resuming writes them again."""
        if not (self.folder / WEIGHTS).is_file():
            return self.config.training.steps == 0
        try:
            metadata = read_tensors(self.folder / WEIGHTS)[1]
            return self.config.training.part(_step(metadata), _seconds(metadata)) >= 1
        except ValueError:
            return False

    @property
    def steps(self) -> int:
        """The planned number of training steps; for a run of some `minutes` as many as its speed so far allows for."""
        training = self.config.training
        if training.minutes is None or self.is_baseline:
            return training.steps
        step = self.step
        part = training.part(step, _seconds(read_metadata(self.folder / WEIGHTS))) if step else 0.0
        return step if part >= 1 else max(step + 1, round(step / part)) if part > 0 else step + 1

    def metrics(self) -> list[dict[str, Any]]:
        """The entries of `metrics.jsonl`; invalid lines, such as one truncated by a crash, are left out."""
        entries = []
        path = self.folder / "metrics.jsonl"
        for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, dict) and isinstance(entry.get("step"), int):
                    entries.append(entry)
        return entries

    # --- saving and resuming -------------------------------------------------------------------------------------

    def save(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Saves a checkpoint: the training state, then the weights to predict with, which say their step, and in which
        step they were best and how long the training took if that matters.

        Args:
            state: nested dictionaries of tensors, and plain data for JSON. `state["step"]` is the step of both files.
        """
        tensors = flatten(state)
        plain = {name: value for name, value in state.items() if not isinstance(value, Mapping)}
        write_tensors(self.folder / STATE, tensors, {"plain": json.dumps(plain)})
        metadata = {"step": str(state["step"])}
        if self.config.training.minutes is not None:
            metadata["seconds"] = f"{state['seconds']:.3f}"
        if "best_step" in state:
            metadata["best"] = str(state["best_step"])
        write_tensors(self.folder / WEIGHTS, weights, metadata)

    def state(self) -> dict[str, Any] | None:
        """The training state of the last checkpoint, on the CPU; None if nothing was saved yet."""
        path = self.folder / STATE
        if not path.exists():
            if (self.folder / WEIGHTS).exists():
                raise ValueError(f"{path} is missing: this run cannot go on; train again with another --out.")
            return None
        try:
            tensors, metadata = read_tensors(path)
            plain = json.loads(metadata["plain"])
            return {**unflatten(tensors), **plain}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} is damaged ({first_line(error)}): this run cannot go on; train again with another --out."
            ) from error

    def extend(self, steps: int) -> Run:
        """Increases the number of training steps, also in `config.json`; returns the new run."""
        if (minutes := self.config.training.minutes) is not None:
            raise ValueError(f"{self.folder} is trained for {minutes:g} minutes, not for a number of steps.")
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
        """Locks the run against training by other processes."""
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RuntimeError(f"{self.folder} is being trained by another process: wait for it.") from None
        except OSError as error:
            raise OSError(f"{self.folder} cannot be written ({error.strerror or error}): make it writable.") from error
        try:
            yield
        finally:
            lock.release()


@contextlib.contextmanager
def removed_on_failure(folder: Path) -> Iterator[None]:
    """Context manager for the start of a new run: an error before its first checkpoint removes the files and folders
    that it has made, so that the same command can be given again. A run that was there before is left alone."""
    had = set(folder.iterdir()) if folder.is_dir() else set()
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except Exception:
        saved = (folder / WEIGHTS).exists() or (folder / STATE).exists()
        if not saved and folder / "config.json" not in had:
            with contextlib.suppress(OSError):  # the error itself matters more
                for path in ({folder / name for name in BEGINNING} | {*folder.glob("events.out.tfevents.*")}) - had:
                    path.unlink(missing_ok=True)
                for path in new_folders:
                    path.rmdir()
        raise


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All runs in a folder, in the order of their names, and an error message for each that cannot be read."""
    runs, sentences = [], []
    for path in sorted(folder.rglob("config.json")):
        try:
            runs.append(Run.open(path.parent))
        except (ValueError, OSError) as error:
            sentences.append(str(error))
        except RecursionError:
            sentences.append(f"{path} is nested too deeply: train again.")
    return runs, sentences


def resume_command(folder: Path) -> str:
    """The shell command that resumes a run."""
    return f"shiftnp train --resume {shlex.quote(str(folder))}"


def _read_json(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        data = json.loads(path.read_text())
        if not isinstance(data, dict):
            raise ValueError(f"it holds {type(data).__name__}, not an object")
        return data
    except OSError as error:
        raise OSError(f"{path} cannot be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or not the {what} ({first_line(error)}): train again.") from error


def _step(metadata: Mapping[str, str]) -> int:
    """The number of steps in the metadata of `model.safetensors`."""
    written = metadata.get("step", "")
    if not written.isdecimal() or len(written) > 18:
        raise ValueError("it does not say its step")
    return int(written)


def _seconds(metadata: Mapping[str, str]) -> float:
    """The training time in the metadata of `model.safetensors`; 0 if it is not there."""
    try:
        seconds = float(metadata.get("seconds", "0"))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError("it does not say its training time")
    return seconds
