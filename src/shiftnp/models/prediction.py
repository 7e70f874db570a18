"""Chunked prediction for many targets, into arrays that may be larger than memory.

It implements `NeuralProcess.predict`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.attention import threads
from shiftnp.attention.chunks import slices
from shiftnp.models.encoded import Encoded, Encoder
from shiftnp.models.inputs import check_targets

Array = Tensor | np.ndarray
"""Types of arrays that `predict` takes. A `numpy.memmap` is a numpy array, too."""
MOST_TARGETS = 1 << 14
"""Largest number of targets in a chunk by default."""


class Prediction(NamedTuple):
    """Mean and standard deviation at every target, `[nt, dy]` or `[b, nt, dy]`, like the targets."""

    mean: Array
    std: Array


@runtime_checkable
class Predictor(Encoder, Protocol):
    """The part of a `NeuralProcess` that `predict` uses."""

    @property
    def dtype(self) -> torch.dtype: ...

    def encode(self, xc: Tensor, yc: Tensor, mask: Tensor | None = None) -> Encoded: ...

    def decode(self, encoded: Encoded, xt: Tensor) -> Distribution: ...

    def target_order(self, memory: Any, xt: Tensor) -> Tensor | None: ...


@torch.no_grad()
def predict(
    model: Predictor,
    xc: Array | Encoded,
    yc: Array | None,
    xt: Array | None,
    chunk: int | None,
    out: tuple[Array, Array] | None,
    mask: Array | None,
    progress: bool,
) -> Prediction:
    """Implements `NeuralProcess.predict`."""
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    context: dict[str, Tensor] = {}
    if isinstance(xc, Encoded):
        if yc is not None or mask is not None:
            raise ValueError(
                "yc and mask must be left out with an encoded context, which holds them: predict(encoded, xt=xt)."
            )
        if xc.model is not model:
            raise ValueError("xc was encoded by another model: encode it with the model that is to predict.")
        tasks = xc.tasks
    else:
        context = {"xc": to_tensor("xc", xc), "yc": to_tensor("yc", yc)}
        if mask is not None:
            context["mask"] = to_tensor("mask", mask)
        tasks = len(context["xc"])
    to_tensor("xt", xt[:0] if isinstance(xt, Array) else xt)
    assert xt is not None  # checked by `to_tensor`
    unbatched = context["xc"].ndim == 2 if context else xt.ndim == 2 and tasks == 1
    if unbatched:
        tasks = 1
        for name, a in {**context, "xt": xt}.items():
            if a.ndim != 2 - (name == "mask"):
                raise ValueError(f"{name} must have no batch dimension, as xc has none, got shape {tuple(a.shape)}.")
        context, xt = {name: a[None] for name, a in context.items()}, xt[None]
    if xt.ndim != 3:
        raise ValueError(f"xt must have shape [b, nt, dx], as xc has a batch dimension, got {tuple(xt.shape)}.")
    for where in places(xt.shape[1], 1 << 20):  # all targets are checked before anything is computed
        check_targets(to_tensor("xt", xt[:, where]), model.dx, model.absolute_inputs, tasks)
    shape = (*xt.shape[:2], model.dy)
    result = room(xt, shape[1:] if unbatched else shape, model.dtype, out)
    device = next(model.parameters()).device
    encoded = xc if isinstance(xc, Encoded) else model.encode(**{name: a.to(device) for name, a in context.items()})
    chunk = default_chunk(encoded.memory, *encoded.xc.shape[:2]) if chunk is None else chunk
    on_disk = any(isinstance(a, np.memmap) for a in (xt, *result))
    order = None if on_disk else chunk_order(model, encoded.memory, xt)
    batched = Prediction(*(a[None] if unbatched else a for a in result))
    fill(batched, lambda x: model.decode(encoded, x), xt, places(xt.shape[1], chunk, order), device, progress)
    return result


def default_chunk(memory: Any, tasks: int, nc: int) -> int:
    """The number of targets in a chunk, so that those of all threads need about a quarter of a gigabyte of memory.

    Transformers need few bytes for each pair of target and key; other models may hold all activations of an MLP.
    """
    keys = getattr(memory, "keys_per_target", None)
    keys, bytes_per_pair = (nc, 2048) if keys is None else (keys, 64)
    most = (1 << 28) // torch.get_num_threads()
    return max(1, min(MOST_TARGETS // max(1, tasks), most // (max(1, tasks * keys) * bytes_per_pair)))


def chunk_order(model: Predictor, memory: Any, xt: Array) -> np.ndarray | None:
    """The model's `target_order`, which halves the time of local attention if targets are in random order.

    None: the given order, also for several data sets, each of which would need its own.
    """
    if len(xt) != 1:
        return None
    order = model.target_order(memory, to_tensor("xt", xt).to(next(model.parameters()).device))
    return None if order is None else order.cpu().numpy()


def to_tensor(name: str, a: Any) -> Tensor:
    """A tensor with the same values, which must be floating-point numbers or booleans."""
    if isinstance(a, Tensor):
        return a
    if not isinstance(a, np.ndarray):
        raise ValueError(f"{name} must be a torch.Tensor or a numpy array, got {type(a).__name__}.")
    if a.dtype.kind not in "fb":
        raise ValueError(f"{name} must hold floating-point numbers (a mask: booleans), got {a.dtype}: convert it.")
    return torch.from_numpy(np.array(a, a.dtype.newbyteorder("=")))  # a copy, as torch takes no read-only arrays


def places(total: int, size: int, order: np.ndarray | None = None) -> list[slice | np.ndarray]:
    """The indices of the targets in each chunk."""
    return [where if order is None else order[where] for where in slices(total, size)]


def room(like: Array, shape: tuple[int, ...], dtype: torch.dtype, out: Any) -> Prediction:
    """The arrays that predictions are written to: `out`, or new arrays of the same type as the targets."""
    if out is None:
        on = like.device if isinstance(like, Tensor) else "cpu"
        mean, std = (torch.empty(shape, dtype=torch.promote_types(dtype, torch.float32), device=on) for _ in range(2))
        return Prediction(mean, std) if isinstance(like, Tensor) else Prediction(mean.numpy(), std.numpy())
    if not isinstance(out, tuple) or len(out) != 2 or not all(isinstance(a, Tensor | np.ndarray) for a in out):
        raise ValueError("out must be a pair (mean, std) of tensors or numpy arrays.")
    for name, a in zip(("mean", "std"), out, strict=True):
        if tuple(a.shape) != shape:
            raise ValueError(f"out must hold arrays of shape {shape}, got {tuple(a.shape)} for the {name}.")
        if not (a.is_floating_point() if isinstance(a, Tensor) else a.dtype.kind == "f"):
            raise ValueError(f"out must hold arrays of floating-point numbers, got {a.dtype} for the {name}.")
    return Prediction(*out)


def fill(
    result: Prediction,
    decode: Callable[[Tensor], Distribution],
    xt: Array,
    chunks: Sequence[slice | np.ndarray],
    device: torch.device,
    progress: bool,
) -> None:
    """Decodes the targets `[b, nt, dx]`, chunk by chunk, into `result`, whose arrays have a batch dimension.

    Threads decode different chunks; targets on disk are read and predictions written chunk by chunk.
    """
    columns = (
        TextColumn("targets"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=not progress) as shown:
        bar = shown.add_task("", total=xt.shape[1])

        def predict(where: slice | np.ndarray) -> None:
            x = to_tensor("xt", xt[:, where]).to(device)
            dist = decode(x)
            for array, values in zip(result, (dist.mean, dist.stddev), strict=True):
                if isinstance(array, Tensor):
                    array[:, where] = values.to(array.dtype).to(array.device)
                else:
                    array[:, where] = values.cpu().numpy()
            shown.advance(bar, x.shape[1])

        threads.each(predict, chunks, device)
