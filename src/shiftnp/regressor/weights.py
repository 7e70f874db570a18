"""Pretrained weights: a folder with `config.json` (model and settings), `model.safetensors` and a card, `README.md`.

The package ships one folder for each number of inputs, `shiftnp/weights/{1d,2d,3d}`. Weights may be stored in half
precision; they are loaded in the precision that predictions are computed in.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import shiftnp
from shiftnp._arguments import build, first_line
from shiftnp._io import write, write_json
from shiftnp._registry import choose
from shiftnp.models import MODELS, NeuralProcess
from shiftnp.runs.initial import SHIPPED
from shiftnp.runs.tensors import check_tensors, read_tensors, write_tensors

FORMAT = 1
MOST_INPUTS = 3
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


def pretrained(dx: int, folder: Path | str | None = None) -> Path:
    """The folder of the weights for `dx` inputs; raises an error if there is none.

    Args:
        folder: a folder with weights, or with one such folder for each number of inputs, named 1d, 2d and 3d. None: the
            weights in the package.
    """
    if not 1 <= dx <= MOST_INPUTS:
        raise ValueError(
            f"Regressor takes 1 to {MOST_INPUTS} inputs, got {dx}: choose the columns that matter most, such as the "
            "coordinates and one covariate."
        )
    if folder is not None:
        inside = Path(folder).expanduser() / f"{dx}d"
        return inside if inside.is_dir() else Path(folder).expanduser()
    if not (SHIPPED / f"{dx}d" / CONFIG).is_file():
        raise FileNotFoundError(
            f"This installation has no pretrained weights for {dx} input{'s' if dx > 1 else ''}: name a folder with "
            "Regressor(weights=...), or install a version of shiftnp that ships them."
        )
    return SHIPPED / f"{dx}d"


def write_pretrained(folder: Path, model: NeuralProcess, card: str, dtype: torch.dtype = torch.float16) -> None:
    """Writes a model and its card as a folder of pretrained weights.

    Args:
        card: text of `README.md`: data, prior, steps, hours, scores, limits and terms.
        dtype: precision on disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = next(name for name, cls in MODELS.items() if type(model) is cls)
    write(folder / CARD, card)
    write_tensors(folder / WEIGHTS, {key: as_stored(t, dtype) for key, t in model.state_dict().items()}, {})
    config = {"format": FORMAT, "shiftnp": shiftnp.__version__, "model": name, "settings": model.config}
    write_json(folder / CONFIG, config)


def as_stored(t: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor in the precision on disk; integers stay as they are."""
    return t.to(dtype) if t.is_floating_point() else t


def load(folder: Path | str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> NeuralProcess:
    """The model in a folder of pretrained weights, in evaluation mode. The last ones are kept in memory, so do not
    change their weights."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        lacking = CONFIG if not (folder / CONFIG).is_file() else WEIGHTS
        what = f"has no {lacking}" if folder.is_dir() else "does not exist"
        raise FileNotFoundError(f"{folder} is not a folder of pretrained weights: it {what}.")
    changed = (folder / CONFIG).stat().st_mtime_ns, (folder / WEIGHTS).stat().st_mtime_ns
    return _load(folder.resolve(), device, dtype, changed)


@lru_cache(maxsize=4)
def _load(folder: Path, device: str, dtype: torch.dtype, changed: tuple[int, int]) -> NeuralProcess:
    name, settings = read_config(folder / CONFIG)
    try:
        with torch.random.fork_rng(devices=[]):  # initial weights are drawn from the global generator
            model: NeuralProcess = build(choose(name, MODELS, "model"), settings, f"the model {name}")
        tensors, _ = read_tensors(folder / WEIGHTS)
        expected = model.to(dtype).state_dict()
        tensors = {key: as_stored(t, expected[key].dtype if key in expected else t.dtype) for key, t in tensors.items()}
        check_tensors(tensors, expected)
    except ValueError as error:
        raise ValueError(f"{folder} is damaged or of another version of shiftnp ({first_line(error)}).") from error
    model.load_state_dict(tensors)
    if model.dy != 1 or not model.is_equivariant or model.absolute_inputs:
        raise ValueError(f"{folder} has a model that Regressor cannot use: it must be translation equivariant, dy = 1.")
    return model.to(device=device, dtype=dtype).eval().requires_grad_(False)


def read_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Name and settings of the model in a `config.json`."""
    try:
        data = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not the config.json of pretrained weights ({first_line(error)}).") from error
    if isinstance(data, dict) and {"task", "training"} <= data.keys():
        raise ValueError(
            f"{path.parent} is a run of `shiftnp train`, whose model predicts in the units that it was trained in, and "
            "not a folder of pretrained weights: predict with it in Python, as docs/howto/train.md shows, or use the "
            "pretrained weights of the package."
        )
    try:
        name, settings, written = data["model"], data["settings"], data["format"]
        if not isinstance(name, str) or not isinstance(settings, dict) or not isinstance(written, int):
            raise ValueError("model, settings or format have a wrong type")
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is not the config.json of pretrained weights ({first_line(error)}).") from error
    if written > FORMAT:
        raise ValueError(f"{path} was written by a newer version of shiftnp (format {written}): update shiftnp.")
    return name, settings
