"""Memory that is kept between calls."""

from __future__ import annotations

import threading
from math import prod

import torch
from torch import Tensor


class Buffers(threading.local):
    """Memory for tiles, kept between calls: the first touch of fresh memory costs more than the work on it.

    One buffer for each name, dtype and thread, as large as the largest use so far. On a GPU torch keeps memory itself.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[str, torch.dtype], Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialised tensor, valid until the next call with the same name."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device)
        kept = self.kept.get((name, dtype))
        if kept is None or kept.numel() < prod(shape):
            with torch.inference_mode(False):  # a tensor of inference mode could not be written to outside of it
                kept = self.kept[name, dtype] = torch.empty(prod(shape), dtype=dtype)
        return kept[: prod(shape)].view(shape)


buffer = Buffers()
