"""Input validation of the models, and preprocessing of the context into a `Context`.

After it nothing is checked again, and no control flow depends on the values of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shiftnp.nn.tokens import Context

LARGEST_OUTPUT = 1e6
"""Largest absolute value of `yc`. Networks expect outputs of order one; beyond this limit predictions are meaningless
or NaN."""
LARGEST_INPUT = 1e5
"""Largest absolute value of inputs in models that are not translation equivariant."""


def check_points(name: str, x: Tensor, dx: int) -> None:
    """Raises a ValueError for inputs of a wrong type or shape."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must be a floating-point torch.Tensor, got {kind}; convert it first.")
    if x.ndim != 3 or x.shape[-1] != dx:
        points = "nt" if name == "xt" else "nc"
        raise ValueError(f"{name} must have shape [b, {points}, dx] with dx = {dx} inputs, got {tuple(x.shape)}.")


def check_locations(name: str, x: Tensor, absolute: Sequence[int], there: Tensor | None = None) -> None:
    """Raises a ValueError for inputs that are not finite, or for inputs that are not equivariant and too large.

    Args:
        absolute: inputs in which the model is not translation equivariant.
        there: True for points that are present.
    """
    if x.numel() == 0:
        return
    size = x.detach().abs()
    size = size if there is None else size.masked_fill(~there[..., None], 0.0)
    if not math.isfinite(float(size.max())):  # NaN if any is
        remedy = "drop those points" if name == "xt" else "drop those points or mask them out"
        raise ValueError(f"{name} holds NaN or inf: {remedy} before predicting.")
    if not absolute:
        return
    size = size[..., list(absolute)].amax(-1)
    largest = float(size.max())
    if largest > LARGEST_INPUT:
        raise ValueError(
            f"{name} holds {largest:.3g} at {_where(size)}: this input is not translation equivariant and must be of"
            " order one, so standardise it, or choose a model that is equivariant in it."
        )


def check_targets(xt: Tensor, dx: int, absolute: Sequence[int], tasks: int | None = None) -> None:
    """Raises a ValueError for invalid target inputs."""
    check_points("xt", xt, dx)
    if tasks is not None and len(xt) != tasks:
        raise ValueError(f"xt must hold as many tasks as the context ({tasks}), got {len(xt)}.")
    check_locations("xt", xt, absolute)


def check_context(
    xc: Tensor,
    yc: Tensor,
    mask: Tensor | None,
    dx: int,
    dy: int,
    absolute: Sequence[int],
    names: tuple[str, str] = ("xc", "yc"),
) -> None:
    """Raises a ValueError for an invalid context, whose inputs and outputs the caller knows by these names."""
    x, y = names
    check_points(x, xc, dx)
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(f"mask must be a boolean torch.Tensor, True for points and False for padding, got {kind}.")
        if mask.shape != xc.shape[:2]:
            raise ValueError(f"mask must have shape [b, nc] = {tuple(xc.shape[:2])}, got {tuple(mask.shape)}.")
    check_locations(x, xc, absolute, mask)
    if not isinstance(yc, Tensor) or not yc.is_floating_point():
        kind = yc.dtype if isinstance(yc, Tensor) else type(yc).__name__
        raise ValueError(f"{y} must be a floating-point torch.Tensor, got {kind}; convert it first.")
    if yc.shape != (*xc.shape[:2], dy):
        expected = (*xc.shape[:2], dy)
        raise ValueError(f"{y} must have shape [b, nc, dy] = {expected}, got {tuple(yc.shape)}.")
    if yc.numel() == 0:
        return
    size = yc.detach().abs().nan_to_num(nan=0.0, posinf=math.inf).amax(-1)
    size = size if mask is None else size.masked_fill(~mask, 0.0)
    largest = float(size.max())
    if math.isinf(largest):
        raise ValueError(f"{y} holds inf: use NaN for a value that was not observed.")
    if largest > LARGEST_OUTPUT:
        raise ValueError(
            f"{y} holds {largest:.3g} in size at {_where(size)}: models expect outputs of order one, so standardise"
            " them, and use NaN for fill values."
        )


def _where(size: Tensor) -> str:
    task, point = divmod(int(size.argmax()), size.shape[1])
    return f"point {point} of task {task}"


def make_context(xc: Tensor, yc: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Context:
    """A context without NaN, arbitrary padding or tensors of size zero, as a pure function of valid inputs.

    Its mask is never None; `drop_mask` removes it if there is no padding.
    """
    present = torch.ones(xc.shape[:2], dtype=torch.bool, device=xc.device) if mask is None else mask
    observed = ~yc.isnan() & present[..., None]
    present = observed.any(-1)
    if xc.shape[1] == 0:  # one point of padding, so that no model has to deal with tensors of size zero
        xc, yc, observed, present = (t.new_zeros(t.shape[0], 1, *t.shape[2:]) for t in (xc, yc, observed, present))
    # Padding is put at a corner of the data, so that no displacement becomes large.
    corner = xc.where(present[..., None], math.inf).amin(1, keepdim=True)
    xc = xc.where(present[..., None], corner.where(corner.isfinite(), 0.0))
    return Context(xc, yc.where(observed, 0.0).to(dtype), observed.to(dtype), present)


def drop_mask(c: Context) -> Context:
    """The same context, with None as mask if there is no padding: attention is faster without a mask."""
    return c._replace(mask=None) if c.mask is None or bool(c.mask.all()) else c
