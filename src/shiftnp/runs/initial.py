"""Initial weights from a trained model, also from one with fewer inputs (`Training.init`)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from shiftnp.models import NeuralProcess
from shiftnp.runs.run import WEIGHTS
from shiftnp.runs.tensors import read_tensors

SHIPPED = Path(__file__).parent.parent / "weights"
"""Folder of the pretrained weights in the package, with one folder for each number of inputs."""
FREQUENCIES = "frequencies.flat"
"""End of the names of learned frequency vectors, whose last dimension is the number of inputs."""


def initialise(model: NeuralProcess, source: str, seed: int) -> None:
    """Copies the weights of a trained model of the same kind and size.

    With a rotary kernel that model may have fewer inputs: only the frequency vectors depend on their number. Each gets
    further components, drawn from those that the frequency vectors of the same layer have, so that functions that do
    not vary along the new inputs are at first predicted as by the trained model wherever these are constant.

    Args:
        source: 1d, 2d or 3d, the weights in the package, or a folder with `model.safetensors`.
        seed: random seed of the further components.
    """
    folder = SHIPPED / source if source in ("1d", "2d", "3d") else Path(source).expanduser()
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"init: {source} has no {WEIGHTS}: name the folder of a run or of pretrained weights.")
    old, _ = read_tensors(folder / WEIGHTS)
    new, generator = model.state_dict(), torch.Generator().manual_seed(seed)
    if extra := old.keys() ^ new.keys():
        raise ValueError(f"init: {source} is of another model ({min(extra)} is in one of them only).")
    with torch.no_grad():
        for name in sorted(new):
            new[name].copy_(extended(name, old[name].to(new[name].dtype), new[name], source, generator))


def extended(name: str, old: Tensor, new: Tensor, source: str, generator: torch.Generator) -> Tensor:
    """Trained weights in the shape of the new ones: frequency vectors with further components."""
    if old.shape == new.shape:
        return old
    more = new.shape[-1] - old.shape[-1] if old.ndim == new.ndim > 0 else -1
    if not name.endswith(FREQUENCIES) or more < 0 or old.shape[:-1] != new.shape[:-1]:
        raise ValueError(
            f"init: {source} is of another size ({name} has the shape {list(old.shape)} instead of {list(new.shape)})."
        )
    drawn = torch.randint(old.numel(), (*old.shape[:-1], more), generator=generator)
    return torch.cat([old, old.flatten()[drawn]], -1)
