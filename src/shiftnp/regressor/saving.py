"""Fitted regressors on disk: `regressor.json`, `observations.safetensors` and a folder with the weights.

The folder is written aside and renamed, so that it is complete or absent.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import shiftnp
from shiftnp._arguments import first_line
from shiftnp._io import aside, write_json
from shiftnp._schema import from_json
from shiftnp.regressor import weights
from shiftnp.regressor.box import Box
from shiftnp.regressor.calibration import Scores
from shiftnp.regressor.columns import Columns
from shiftnp.regressor.finetune import Tuning
from shiftnp.regressor.groups import Groups
from shiftnp.regressor.process import Process
from shiftnp.regressor.regular import Bound
from shiftnp.regressor.scales import Scales
from shiftnp.runs.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor

FORMAT = 1
FILE, OBSERVATIONS, WEIGHTS = "regressor.json", "observations.safetensors", "weights"
CARD = "Weights of a fitted regressor, a copy of those it was fitted with.\n"


@dataclass(frozen=True)
class SavedColumns:
    """`Columns` as plain data."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    given: bool
    attributes: dict[str, dict[str, Any]]
    zones: tuple[str | None, ...] = ()

    @staticmethod
    def of(columns: Columns) -> SavedColumns:
        """Columns as plain data."""
        return SavedColumns(columns.names, columns.kinds, columns.given, plain(columns.attributes), columns.zones)

    def columns(self) -> Columns:
        """The columns again."""
        if not all(kind in ("number", "date", "duration") for kind in self.kinds):
            raise ValueError(f"kinds of columns are unknown: {', '.join(self.kinds)}")
        if len(self.zones) not in (0, len(self.names)):
            raise ValueError("time zones do not fit the columns")
        return Columns(self.names, self.kinds, self.given, self.attributes, self.zones)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SavedProcess:
    """`Process` as plain data, and its share of predictions."""

    rates: tuple[tuple[float, ...], ...]
    rough: float
    noise: float
    share: float


@dataclass(frozen=True)
class SavedBound:
    """`Bound` as plain data."""

    reach: float
    least: float


@dataclass(frozen=True)
class SavedScales:
    """Factors and weights of the scales of one output and the factor of its spread; degrees of trends, the Gaussian
    process and the lower bound of standard deviations, which files of earlier versions do not have."""

    factors: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    spread: float
    degrees: tuple[int, ...] = ()
    process: SavedProcess | None = None
    bound: SavedBound | None = None

    @staticmethod
    def of(scales: Scales, spread: float) -> SavedScales:
        """Scales as plain data."""
        found = scales.process
        return SavedScales(
            tuple(map(tuple, scales.factors.tolist())),
            tuple(scales.weights.tolist()),
            spread,
            tuple(scales.degrees.tolist()),
            found and SavedProcess(tuple(map(tuple, found.rates.tolist())), found.rough, found.noise, scales.share),
            scales.bound and SavedBound(*scales.bound),
        )

    def scales(self) -> Scales:
        """The scales again."""
        degrees, found = self.degrees or (0,) * len(self.factors), self.process
        if not len(self.factors) == len(self.weights) == len(degrees):
            raise ValueError("factors, weights and degrees of scales differ in number")
        weights, inputs = torch.tensor(self.weights, dtype=torch.float64), np.array(self.factors)
        bound = None if self.bound is None else Bound(self.bound.reach, self.bound.least)
        if found is None:
            return Scales(inputs, weights, np.array(degrees), bound=bound)
        rates = np.array(found.rates)
        if rates.shape != (2, inputs.shape[1]):
            raise ValueError("the Gaussian process does not fit the inputs")
        process = Process(rates, found.rough, found.noise)
        return Scales(inputs, weights, np.array(degrees), process, found.share, bound)


@dataclass(frozen=True)
class SavedScores:
    """`Scores` as plain data; None for those that are not known."""

    held_out: int
    crps: float | None
    log_likelihood: float | None
    coverage: float | None

    @staticmethod
    def of(scores: Scores) -> SavedScores:
        """Scores as plain data."""
        return SavedScores(scores.held_out, *(None if math.isnan(value) else value for value in scores[1:]))

    def scores(self) -> Scores:
        """The scores again."""
        values = (self.crps, self.log_likelihood, self.coverage)
        return Scores(self.held_out, *(math.nan if value is None else value for value in values))


@dataclass(frozen=True)
class Saved:
    """The content of `regressor.json`."""

    format: int
    shiftnp: str
    parameters: dict[str, Any]
    inputs: SavedColumns
    outputs: SavedColumns
    flat: bool
    centre: tuple[float, ...]
    unit: tuple[float, ...]
    period: tuple[float | None, ...]
    scales: tuple[SavedScales, ...]
    scores: tuple[SavedScores, ...] | None
    dropped: int
    seconds: float
    groups: tuple[str, ...] | None = None
    tuning: Tuning | None = None


def save(model: Regressor, folder: Path) -> None:
    """Implements `Regressor.save`."""
    if folder.exists() and not (folder / FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is no saved Regressor: name another folder.")
    parameters = {
        name: value for name, value in model.get_params().items() if name not in ("period", "weights", "device")
    }
    content = Saved(
        FORMAT,
        shiftnp.__version__,
        {name: plain(value) for name, value in parameters.items()},
        SavedColumns.of(model._inputs),
        SavedColumns.of(model._outputs),
        model._flat,
        model._box.centre,
        model._box.unit,
        model._box.period,
        tuple(SavedScales.of(s, f) for s, f in zip(model.scales_, model.spread_factors_, strict=True)),
        None if model.scores_ is None else tuple(map(SavedScores.of, model.scores_)),
        model.dropped_,
        model.seconds_,
        None if model._groups is None else model._groups.labels,
        model.tuning_,
    )
    with aside(folder) as new:
        new.mkdir(parents=True)
        observations = {"x": torch.from_numpy(model._x), "y": torch.from_numpy(model._y)}
        if model._groups is not None:
            observations["group"] = torch.from_numpy(model._groups.code)
        write_tensors(new / OBSERVATIONS, observations, {})
        weights.write_pretrained(new / WEIGHTS, model._model, CARD, model._model.dtype)
        write_json(new / FILE, asdict(content))


def load(cls: type[Regressor], folder: Path) -> Regressor:
    """Implements `Regressor.load`."""
    if not (folder / FILE).is_file():
        raise FileNotFoundError(f"{folder} is no saved Regressor: it has no {FILE}. `Regressor.save` writes one.")
    try:
        data = json.loads((folder / FILE).read_text())
        if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
            raise ValueError(f"it was written by a newer version of shiftnp (format {data['format']})")
        saved = from_json(Saved, data)
        observations, _ = read_tensors(folder / OBSERVATIONS)
        x, y = observations["x"].double().numpy(), observations["y"].double().numpy()
        if len(x) != len(y) or x.shape[1:] != (len(saved.inputs.names),) or y.shape[1:] != (len(saved.outputs.names),):
            raise ValueError("observations do not fit the columns")
        model_groups = None
        if saved.groups is not None:
            model_groups = Groups(saved.groups, observations["group"].numpy())
            code = model_groups.code
            if (
                code.shape != x.shape[:1]
                or code.dtype != np.int64
                or not ((code >= 0) & (code < len(saved.groups))).all()
            ):
                raise ValueError("groups do not fit the observations")
        period = {name: p for name, p in zip(saved.inputs.names, saved.period, strict=True) if p is not None}
        model = cls(**saved.parameters, period=period or None, weights=str(folder / WEIGHTS))
        model._check_arguments()
        model._inputs, model._outputs = saved.inputs.columns(), saved.outputs.columns()
        model.scales_ = [s.scales() for s in saved.scales]
        model.scores_ = None if saved.scores is None else [s.scores() for s in saved.scores]
    except (ValueError, LookupError, TypeError, OSError, RecursionError) as error:
        raise ValueError(f"{folder} is damaged or of another version of shiftnp ({first_line(error)}).") from error
    model._model = weights.load(folder / WEIGHTS, "cpu", torch.float64 if model.dtype == "float64" else torch.float32)
    model._flat, model._box = saved.flat, Box(saved.centre, saved.unit, saved.period)
    model.spread_factors_ = [s.spread for s in saved.scales]
    model.dropped_, model.seconds_, model.n_features_in_ = saved.dropped, saved.seconds, x.shape[1]
    if model._inputs.given:
        model.feature_names_in_ = np.array(model._inputs.names, dtype=object)
    model._x, model._y, model._groups, model.tuning_ = x, y, model_groups, saved.tuning
    model._make_tiles()
    return model


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers of numpy become numbers, what is neither number nor text becomes text."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
