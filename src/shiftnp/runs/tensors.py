"""Safetensors files with a checksum, and checks of their tensors against those of a model.

The metadata contain the SHA-256 of all other metadata and of the name, dtype, shape and bytes of every tensor, so that
damage is detected. A file without a checksum, such as one written by another program, is read without this check.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from shiftnp._arguments import first_line
from shiftnp._io import write

ENTRY, CHECKSUM = "shiftnp", "sha256"
# All metadata are one entry, since safetensors writes several in random order and equal weights make equal files.


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors and their metadata to a file, atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    entry = json.dumps({**metadata, CHECKSUM: checksum(plain, metadata)})
    write(path, safetensors.torch.save(plain, {ENTRY: entry}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file. ValueError: the file is damaged, with the reason as a short phrase."""
    data = path.read_bytes()
    try:
        tensors = safetensors.torch.load(data)
        metadata = _unpack(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__"))
    except (safetensors.SafetensorError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(first_line(error)) from error
    expected = metadata.pop(CHECKSUM, None)
    if expected is not None and checksum(tensors, metadata) != expected:
        raise ValueError("its checksum is wrong")
    return tensors, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file, without checking its tensors. ValueError: the file is damaged."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return _unpack(file.metadata())
    except (safetensors.SafetensorError, ValueError) as error:
        raise ValueError(first_line(error)) from error


def _unpack(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The metadata that `write_tensors` was given, and the checksum."""
    found = dict(metadata or {})
    try:
        found = json.loads(found[ENTRY]) if ENTRY in found else found
    except RecursionError:
        raise ValueError("its metadata are not readable") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("its metadata are not text")
    return found


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of metadata and of all names, types, shapes and bytes."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raises a ValueError for tensors with unexpected names, dtypes or shapes, or with values that are not finite."""
    if found.keys() != expected.keys():
        name = min(found.keys() ^ expected.keys())
        raise ValueError(f"{name} is {'missing' if name in expected else 'unknown'}")
    for name, like in expected.items():
        tensor = found[name]
        if tensor.dtype != like.dtype or tensor.shape != like.shape:
            raise ValueError(f"{name} is {_form(tensor)}, not {_form(like)}")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} has values that are not finite")


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Tensor]:
    """The tensors of nested dictionaries, under names such as `model/decoder.weight`."""
    flat: dict[str, Tensor] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}/")
        elif isinstance(value, Tensor):
            flat[prefix + name] = value
    return flat


def unflatten(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Nested dictionaries of tensors: the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for name, tensor in tensors.items():
        *path, last = name.split("/")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = tensor
    return tree
