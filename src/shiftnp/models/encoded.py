"""Encoded contexts, to which observations can be added: the result of `NeuralProcess.encode`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from shiftnp.models.inputs import check_context
from shiftnp.nn.tokens import Context


@runtime_checkable
class Encoder(Protocol):
    """The part of a `NeuralProcess` that `Encoded` uses."""

    dx: int
    dy: int

    @property
    def absolute_inputs(self) -> list[int]: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def context(self, xc: Tensor, yc: Tensor, mask: Tensor | None) -> Context: ...

    def embed_context(self, c: Context) -> Any: ...

    def extend_memory(self, memory: Any, new: Context) -> Any | None: ...


class Encoded:
    """The encoded contexts of `tasks` data sets, for any number of calls to `decode`, `predict` and `update`.

    They are those of the model's weights at the time; if the weights change, `memory` raises an error where torch
    notices (not for changes through `.data`). Without `torch.no_grad()` all of them keep their graph for gradients.

    Args:
        xc, yc, mask: valid contexts, see `NeuralProcess.forward`.
    """

    def __init__(self, model: Encoder, xc: Tensor, yc: Tensor, mask: Tensor | None = None) -> None:
        self.model, self.xc, self.yc, self.mask = model, xc, yc, mask
        self._memory: Any = None
        self._weights: list[object] = []

    @property
    def tasks(self) -> int:
        """Number of data sets."""
        return len(self.xc)

    @property
    def memory(self) -> Any:
        """The encoded contexts, of a type that depends on the model; computed when it is first used."""
        weights = _state_of(self.model)
        if self._memory is None:
            self._memory = self.model.embed_context(self.model.context(self.xc, self.yc, self.mask))
            self._weights = weights
        elif weights != self._weights:
            raise ValueError("The model has changed since this context was encoded: encode it again.")
        return self._memory

    def update(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Encoded:
        """Adds observations, in place; returns this object.

        With a `radius` (te-tnp) only the tokens are computed again whose receptive field the new points are in; other
        models encode the whole context again, at the next prediction.

        Args:
            x, y, mask: new points `[b, n, dx]`, outputs `[b, n, dy]` and mask of padding, as in `forward`.
        """
        check_context(x, y, mask, self.model.dx, self.model.dy, self.model.absolute_inputs, ("x", "y"))
        if len(x) != self.tasks:
            raise ValueError(f"x must hold as many tasks as the context ({self.tasks}), got {len(x)}.")
        return self.add(x.to(self.xc.device), y.to(self.yc.device), None if mask is None else mask.to(self.xc.device))

    def add(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Encoded:
        """`update` without validation."""
        if self._memory is not None:
            self._memory = self.model.extend_memory(self.memory, self.model.context(x, y, mask))
        if self.mask is not None or mask is not None:
            masks = [
                torch.ones(a.shape[:2], dtype=torch.bool, device=a.device) if m is None else m
                for a, m in ((self.xc, self.mask), (x, mask))
            ]
            self.mask = torch.cat(masks, 1)
        # `torch.cat` promotes to the more precise of two dtypes.
        self.xc, self.yc = torch.cat([self.xc, x], 1), torch.cat([self.yc, y], 1)
        return self

    def repeat(self, tasks: Tensor) -> Encoded:
        """Contexts of the given data sets, in that order and as often, not encoded yet."""
        return Encoded(self.model, *(None if t is None else t[tasks] for t in (self.xc, self.yc, self.mask)))  # type: ignore[arg-type]


def _state_of(model: Encoder) -> list[object]:
    """What tells torch's changes of weights: their version counters, and the dtype and the device of all."""
    weights = list(model.parameters())
    same = [(w.dtype, w.device) for w in weights[:1]]
    return [*same, *(0 if w.is_inference() else w._version for w in weights)]
