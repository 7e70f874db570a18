"""The training state in `state.safetensors`: weights, optimiser state, EMA and counters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shiftnp._arguments import check_type
from shiftnp._machine import processor
from shiftnp.batch import Batch
from shiftnp.models import NeuralProcess
from shiftnp.runs.initial import initialise
from shiftnp.runs.muon import Muon
from shiftnp.runs.run import STATE, Run
from shiftnp.runs.step import low_precision_is_faster, make_optimiser, update, update_average
from shiftnp.runs.tensors import check_tensors


@dataclass
class Best:
    """The weights with the best validation so far.

    Args:
        first: mean log-likelihood of each validation set in the first validation.
        score: gain since then, on the set on which it is smallest.
        step: number of steps of the weights.
    """

    first: list[float]
    score: float
    step: int
    weights: dict[str, Tensor]


COUNTERS = {"step": int, "skipped": int, "seconds": float, "threads": int, "losses": list[float]}
CHOSEN: dict[str, Any] = {"bf16": bool | None, "processor": str | None}


@dataclass
class TrainingState:
    """A model in training, with optimiser, EMA and counters.

    Args:
        average: the model with the EMA of the weights; None: no EMA.
        step: number of completed steps.
        skipped: number of steps whose loss or gradient was not finite.
        bad: number of these since the last finite loss.
        seconds: training time before this process.
        threads: number of threads of torch in the process that saved the state.
        losses: losses since the last entry in `metrics.jsonl`.
        best: the weights with the best validation; None: the last weights are kept, or there was no validation yet.
        bf16: whether bfloat16 was faster than float32 on `processor`, if the run's precision asks for it (None: not
            measured). Runs that are resumed on the same kind of processor thus go on in the same precision.
    """

    model: NeuralProcess
    optimiser: torch.optim.Optimizer
    average: NeuralProcess | None
    step: int = 0
    skipped: int = 0
    bad: int = 0
    seconds: float = 0.0
    threads: int = field(default_factory=torch.get_num_threads)
    losses: list[float] = field(default_factory=list)
    best: Best | None = None
    bf16: bool | None = None
    processor: str | None = None

    @staticmethod
    def of(run: Run, device: torch.device) -> TrainingState:
        """The state of the run's last checkpoint, or a new one."""
        training, model, saved = run.config.training, run.new_model(), run.state()
        if training.init is not None and saved is None:
            initialise(model, training.init, training.seed)
        model = model.to(device)
        average = None if training.ema is None else copy.deepcopy(model)
        state = TrainingState(model, make_optimiser(model, training), average)
        if saved is not None:
            try:
                state.load(saved)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{run.folder / STATE} does not fit config.json ({error}): if config.json was changed, change it"
                    " back, else train again with another --out."
                ) from error
        return state

    def load(self, saved: Mapping[str, Any]) -> None:
        """Loads what `to_save` returned, after checking all of it. ValueError: something does not match."""
        counters = {name: saved[name] for name in COUNTERS}
        for name, hint in COUNTERS.items():
            check_type(name, counters[name], hint)
        if min(counters[name] for name in ("step", "skipped", "seconds", "threads")) < 0:
            raise ValueError("a counter is negative")
        chosen = {name: saved.get(name) for name in CHOSEN}  # not in older states
        for name, hint in CHOSEN.items():
            check_type(name, chosen[name], hint)
        weights = {"model": self.model} | ({} if self.average is None else {"average": self.average})
        for name, model in weights.items():
            check_tensors(saved[name], model.state_dict())
        if "best" in saved:
            check_tensors(saved["best"], self.model.state_dict())
            check_type("best_score", saved["best_score"], float)
            check_type("best_step", saved["best_step"], int)
            check_type("first_scores", saved["first_scores"], list[float])
        parameters = dict(self.model.named_parameters())
        moments = saved.get("moments", {})  # none before the first update
        muon = isinstance(self.optimiser, Muon)
        matrices = {id(p) for p in self.optimiser.param_groups[0]["params"]} if muon else set()
        for name, entry in moments.items():
            check_moments(name, entry, parameters[name], muon=id(parameters[name]) in matrices)
        for name, model in weights.items():
            model.load_state_dict(saved[name])
        for name, entry in moments.items():
            like = {key: entry["step"] if key == "step" else parameters[name] for key in entry}
            device = parameters[name].device
            self.optimiser.state[parameters[name]] = {
                key: torch.empty_like(like[key], device=device, requires_grad=False).copy_(value)
                for key, value in entry.items()
            }
        self.step, self.skipped, self.threads = counters["step"], counters["skipped"], counters["threads"]
        self.seconds, self.losses = float(counters["seconds"]), list(counters["losses"])
        if "best" in saved:
            self.best = Best(saved["first_scores"], float(saved["best_score"]), saved["best_step"], saved["best"])
        self.bf16, self.processor = chosen["bf16"], chosen["processor"]

    @property
    def eval_model(self) -> NeuralProcess:
        """The model that is validated and saved: the one with the EMA of the weights, if there is an EMA."""
        return self.model if self.average is None else self.average

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights to predict with: those with the best validation, if they are kept, else the latest."""
        return self.eval_model.state_dict() if self.best is None else self.best.weights

    def validated(self, scores: Sequence[float]) -> None:
        """Keeps the current weights if they are the best so far: their gain since the first validation is larger, on
        the validation set on which it is smallest. So no set is improved at the cost of another."""
        if not all(map(math.isfinite, scores)):
            return
        first = list(scores) if self.best is None else self.best.first
        score = min(value - start for value, start in zip(scores, first, strict=True))
        if self.best is None or score > self.best.score:
            weights = {name: value.detach().cpu().clone() for name, value in self.eval_model.state_dict().items()}
            self.best = Best(first, score, self.step, weights)

    def choose_precision(self, run: Run, batch: Callable[[], Batch]) -> bool | None:
        """Whether bfloat16 is used: what the state says for this processor, else what is measured on a batch. None: the
        run's precision is float32."""
        precision, here = run.config.training.precision, processor()
        if precision == "float32":
            return None
        if self.bf16 is None or self.processor != here:
            self.bf16, self.processor = low_precision_is_faster(self.model, batch(), precision), here
        return self.bf16

    def update(self, run: Run, optimiser: torch.optim.Optimizer, part: float | None = None) -> None:
        """One step of the optimiser and of the EMA. `optimiser` may be a wrapper of the state's own."""
        training = run.config.training
        update(self.model, optimiser, training, self.step, part)
        if self.average is not None and training.ema is not None:
            update_average(self.average, self.model, training.ema, self.step)

    def to_save(self, seconds: float) -> dict[str, Any]:
        """The training state as plain data: nested dictionaries of tensors, and counters."""
        moments = {name: dict(self.optimiser.state.get(p, {})) for name, p in self.model.named_parameters()}
        saved: dict[str, Any] = {
            "step": self.step,
            "skipped": self.skipped,
            "losses": self.losses,
            "seconds": seconds,
            "threads": torch.get_num_threads(),
            "model": self.model.state_dict(),
            "moments": {name: entry for name, entry in moments.items() if entry},
        }
        if self.best is not None:
            saved |= {"best": self.best.weights, "best_score": self.best.score, "best_step": self.best.step}
            saved["first_scores"] = self.best.first
        if self.bf16 is not None:
            saved |= {"bf16": self.bf16, "processor": self.processor}
        return saved if self.average is None else {**saved, "average": self.average.state_dict()}


def check_moments(name: str, entry: Mapping[str, Tensor], parameter: Tensor, muon: bool) -> None:
    """Raises a ValueError for moments whose shape is not that of their parameter: the fused kernel of AdamW would read
    beyond their memory.

    Args:
        muon: whether Muon, which has the first moment only, updates the parameter.
    """
    expected = {"exp_avg": parameter}
    if not muon:
        expected |= {"step": torch.zeros(()), "exp_avg_sq": parameter}
    check_tensors({f"{name}/{k}": v for k, v in entry.items()}, {f"{name}/{k}": v for k, v in expected.items()})
    if not muon and (entry["step"] < 0 or (entry["exp_avg_sq"] < 0).any()):
        raise ValueError(f"{name} has a negative second moment or number of steps")
