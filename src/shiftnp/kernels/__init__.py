"""Attention kernels: how the attention score of a pair depends on embeddings and displacement.

A kernel is a frozen dataclass with its own arguments; `kernel="mlp"`, `kernel=Rotary(frequencies=32)` and
`kernel={"name": "rotary", "frequencies": 32}` (what configs and checkpoints hold) all choose one. Adding a kernel is
one file and one line here; CONTRIBUTING.md says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from shiftnp._registry import Registry, choose
from shiftnp.kernels.base import ContextHook, Kernel
from shiftnp.kernels.mlp import PairwiseMLP
from shiftnp.kernels.rotary import Rotary

KERNELS: Registry[type[Kernel]] = Registry("kernel", {kernel.name: kernel for kernel in (PairwiseMLP, Rotary)})


def make_kernel(kernel: str | Mapping[str, Any] | Kernel) -> Kernel:
    """Makes a kernel from its name or from a JSON object with its `name` and arguments; a kernel is returned as is."""
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str | Mapping):
        raise ValueError(f"kernel must be a name, a kernel or a mapping with its name, got {kernel!r}.")
    arguments = {"name": kernel} if isinstance(kernel, str) else dict(kernel)
    name = arguments.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f"kernel must have a name, one of {', '.join(KERNELS)}, got {kernel!r}.")
    cls = KERNELS[name]
    for argument in arguments:
        choose(argument, {field.name: field for field in fields(cls)}, f"argument of the kernel {name}")
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()})  # JSON has no tuples


__all__ = ["KERNELS", "ContextHook", "Kernel", "PairwiseMLP", "Rotary", "make_kernel"]
