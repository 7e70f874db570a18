"""A batch of tasks (context and target sets), as sampled by tasks and used in training, evaluation and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True, eq=False)
class Batch:
    """`b` tasks: context sets `(xc, yc)` and targets `(xt, yt)`, batch first.

    Args:
        xc, yc: context inputs and outputs. NaN in `yc`: this channel was not observed at this point.
        xt, yt: target inputs and outputs.
        mask_c, mask_t: True for points, False for padding, if tasks have different sizes. None: no padding.
    """

    xc: Float[Tensor, "b nc dx"]
    yc: Float[Tensor, "b nc dy"]
    xt: Float[Tensor, "b nt dx"]
    yt: Float[Tensor, "b nt dy"]
    mask_c: Bool[Tensor, "b nc"] | None = None
    mask_t: Bool[Tensor, "b nt"] | None = None

    def to(self, device: torch.device | torch.dtype | str | None = None, dtype: torch.dtype | None = None) -> Batch:
        """The same batch on another device or in another dtype (masks stay boolean)."""
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        moved: dict[str, Tensor] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                moved[field.name] = value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        return replace(self, **moved)

    def __post_init__(self) -> None:
        sizes = {"xc": (self.xc, 3), "yc": (self.yc, 3), "xt": (self.xt, 3), "yt": (self.yt, 3)}
        for name, (value, ndim) in sizes.items():
            if not isinstance(value, Tensor) or value.ndim != ndim:
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"{name} must be a torch.Tensor of shape [tasks, points, channels], got {shape}.")
        for x, y, mask, names in (
            (self.xc, self.yc, self.mask_c, ("xc", "yc", "mask_c")),
            (self.xt, self.yt, self.mask_t, ("xt", "yt", "mask_t")),
        ):
            for name, other in ((names[1], y), (names[2], mask)):
                if name == names[2] and other is not None and (other.dtype != torch.bool or other.ndim != 2):
                    raise ValueError(
                        f"{name} must be boolean, of shape [tasks, points], got {other.dtype} {tuple(other.shape)}."
                    )
                if other is not None and other.shape[:2] != x.shape[:2]:
                    raise ValueError(
                        f"{name} must have as many tasks and points as {names[0]}, {tuple(x.shape[:2])}, got"
                        f" {tuple(other.shape[:2])}."
                    )
        for one, two, what in ((self.xc, self.xt, "xc and xt"), (self.yc, self.yt, "yc and yt")):
            if one.shape[0] != two.shape[0] or one.shape[2] != two.shape[2]:
                raise ValueError(
                    f"{what} must have the same number of tasks and channels, got {tuple(one.shape)} and"
                    f" {tuple(two.shape)}."
                )

    def shard(self, rank: int, world: int) -> Batch:
        """The shard of this batch for process `rank` of `world`; all shards have the same size."""
        if len(self.xc) % world:
            raise ValueError(f"A batch of {len(self.xc)} tasks cannot be sharded equally among {world} processes.")
        size = len(self.xc) // world
        rows = slice(rank * size, (rank + 1) * size)
        points = (v[rows] for v in (self.xc, self.yc, self.xt, self.yt))
        return Batch(*points, *(None if mask is None else mask[rows] for mask in (self.mask_c, self.mask_t)))

    def shift(self, delta: Tensor | Sequence[float] | float) -> Batch:
        """The batch with all inputs shifted by `delta` (a number, or one per input dimension)."""
        step = torch.as_tensor(delta, dtype=self.xc.dtype, device=self.xc.device)
        return replace(self, xc=self.xc + step, xt=self.xt + step)

    @staticmethod
    def collate(tasks: Sequence[Batch]) -> Batch:
        """Collates batches whose tasks have different sizes into one batch, with padding and masks."""

        def join(points: list[Tensor], masks: list[Tensor | None]) -> tuple[Tensor, Tensor]:
            # pad_sequence pads the first dimension, so each task is one sequence of points.
            present = [
                torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if m is None else m
                for x, m in zip(points, masks, strict=True)
            ]
            rows = [row for x in points for row in x]
            padded_mask = pad_sequence([row for mask in present for row in mask], batch_first=True)
            return pad_sequence(rows, batch_first=True), padded_mask

        masks_c, masks_t = [t.mask_c for t in tasks], [t.mask_t for t in tasks]
        xc, mask_c = join([t.xc for t in tasks], masks_c)
        yc, _ = join([t.yc for t in tasks], masks_c)
        xt, mask_t = join([t.xt for t in tasks], masks_t)
        yt, _ = join([t.yt for t in tasks], masks_t)
        return Batch(xc, yc, xt, yt, mask_c, mask_t)
