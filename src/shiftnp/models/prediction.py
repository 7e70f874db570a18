"""Chunked prediction for many targets, into arrays that may be larger than memory.

It implements `NeuralProcess.predict`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.distributions import Distribution

from shiftnp.attention.tiled import allows_low_precision
from shiftnp.models.inputs import check_targets

Array = Tensor | np.ndarray
"""Types of arrays that `predict` takes. A `numpy.memmap` is a numpy array, too."""
MOST_TARGETS = 1 << 15
"""Largest number of targets in a chunk by default."""


class Prediction(NamedTuple):
    """Mean and standard deviation at every target, `[nt, dy]` or `[b, nt, dy]`, like the targets."""

    mean: Array
    std: Array


@runtime_checkable
class Predictor(Protocol):
    """The part of a `NeuralProcess` that `predict` uses."""

    dx: int
    dy: int

    @property
    def absolute_inputs(self) -> list[int]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def encode(self, xc: Tensor, yc: Tensor, mask: Tensor | None = None) -> Any: ...

    def decode(self, encoded: Any, xt: Tensor) -> Distribution: ...

    def target_order(self, memory: Any, xt: Tensor) -> Tensor | None: ...


@torch.no_grad()
def predict(
    model: Predictor,
    xc: Array,
    yc: Array,
    xt: Array,
    chunk: int | None,
    out: tuple[Array, Array] | None,
    mask: Array | None,
    progress: bool,
) -> Prediction:
    """Implements `NeuralProcess.predict`."""
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    context = {"xc": to_tensor("xc", xc), "yc": to_tensor("yc", yc)}
    if mask is not None:
        context["mask"] = to_tensor("mask", mask)
    to_tensor("xt", xt[:0] if isinstance(xt, Array) else xt)
    unbatched = context["xc"].ndim == 2
    if unbatched:
        for name, a in {**context, "xt": xt}.items():
            if a.ndim != 2 - (name == "mask"):
                raise ValueError(f"{name} must have no batch dimension, as xc has none, got shape {tuple(a.shape)}.")
        context, xt = {name: a[None] for name, a in context.items()}, xt[None]
    if xt.ndim != 3:
        raise ValueError(f"xt must have shape [b, nt, dx], as xc has a batch dimension, got {tuple(xt.shape)}.")
    for _, x in chunks(xt, 1 << 20):  # all targets are checked before anything is computed
        check_targets(x, model.dx, model.absolute_inputs, len(context["xc"]))
    shape = (*xt.shape[:2], model.dy)
    result = room(xt, shape[1:] if unbatched else shape, model.dtype, out)
    device = next(model.parameters()).device
    context = {name: a.to(device) for name, a in context.items()}
    encoded = LAST.get(model, context, lambda: model.encode(**context))
    chunk = default_chunk(encoded.memory, *context["xc"].shape[:2]) if chunk is None else chunk
    on_disk = any(isinstance(a, np.memmap) for a in (xt, *result))
    order = None if on_disk else chunk_order(model, encoded.memory, xt)
    pieces = ((where, x.to(device)) for where, x in chunks(xt, chunk, order))
    batched = Prediction(*(a[None] if unbatched else a for a in result))
    fill(batched, lambda x: model.decode(encoded, x), pieces, xt.shape[1], progress)
    return result


def default_chunk(memory: Any, tasks: int, nc: int) -> int:
    """The number of targets in a chunk that needs about a quarter of a gigabyte of memory.

    Transformers need few bytes for each pair of target and key; other models may hold all activations of an MLP.
    """
    keys = getattr(memory, "keys_per_target", None)
    keys, bytes_per_pair = (nc, 2048) if keys is None else (keys, 64)
    return max(1, min(MOST_TARGETS // max(1, tasks), (1 << 28) // (max(1, tasks * keys) * bytes_per_pair)))


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


def chunks(xt: Array, size: int, order: np.ndarray | None = None) -> Iterator[tuple[slice | np.ndarray, Tensor]]:
    """Targets `[b, nt, dx]` in chunks, as tensors, with their indices; an array on disk is read chunk by chunk."""
    for i in range(0, xt.shape[1], size):
        where = slice(i, min(i + size, xt.shape[1]))
        here = where if order is None else order[where]
        yield here, to_tensor("xt", xt[:, here])


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
    pieces: Iterable[tuple[slice | np.ndarray, Tensor]],
    total: int,
    progress: bool,
) -> None:
    """Decodes chunk after chunk into `result`, whose arrays have a batch dimension."""
    columns = (
        TextColumn("targets"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=not progress) as shown:
        bar = shown.add_task("", total=total)
        for where, xt in pieces:
            dist = decode(xt)
            for array, values in zip(result, (dist.mean, dist.stddev), strict=True):
                if isinstance(array, Tensor):
                    array[:, where] = values.to(array.dtype).to(array.device)
                else:
                    array[:, where] = values.cpu().numpy()
            shown.advance(bar, xt.shape[1])


class Last:
    """Cache of the last result for each module, dropped with the module."""

    def __init__(self) -> None:
        self.results: WeakKeyDictionary[nn.Module, tuple[bytes, Any]] = WeakKeyDictionary()

    def get(self, module: Any, inputs: Mapping[str, Tensor | None], compute: Callable[[], Any]) -> Any:
        """`compute()`, or the cached result if neither the inputs nor the weights or precision settings have changed.

        Values are compared by their hash, since torch's version counters do not detect every in-place change.
        """
        device = next(module.parameters()).device
        autocast = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        settings = repr((*autocast, allows_low_precision(device), module.training))
        key = fingerprint({**module.state_dict(), **inputs}, settings)
        known, result = self.results.get(module, (b"", None))
        if known != key:
            self.results.pop(module, None)  # two results would need twice the memory
            result = compute()
            self.results[module] = (key, result)
        return result


LAST = Last()
"""Cache of the context that each model encoded last."""


def fingerprint(tensors: Mapping[str, Tensor | None], more: str) -> bytes:
    """A hash of names, dtypes, devices, shapes and values."""
    digest = hashlib.blake2b(more.encode(), digest_size=16)
    for name, t in tensors.items():
        digest.update(repr((name, None if t is None else (t.dtype, t.device, t.shape))).encode())
        if t is not None:
            digest.update(t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()
