"""Between scattered points and a lattice that follows the data."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import grid_sample

from shiftnp.geometry import Geometry
from shiftnp.nn.tokens import Context


class Lattice(NamedTuple):
    """Regular cells around the context of each task, of which it uses those in its `mask`.

    A task's cells depend on its own context alone, whatever else is in the batch and wherever the targets are.
    """

    corner: Float[Tensor, "b 1 dx"]  # of the context, in the dtype of the inputs
    offset: Float[Tensor, "b 1 dx"]  # of the first cell from there: small, and so exact however far away the data are
    step: float
    mask: Bool[Tensor, " b *cells"]

    def position(self, x: Float[Tensor, "b n dx"], dtype: torch.dtype) -> Float[Tensor, "b n dx"]:
        """Places counted in cells from the first one."""
        return ((x - self.corner - self.offset) / self.step).to(dtype)


def lay_lattice(
    c: Context,
    step: float,
    margin: int,
    multiple: int,
    follow_points: bool,
    cells: int | None = None,
    max_cells: int = 2**22,
) -> Lattice:
    """A lattice that covers the context and `margin` cells around it, in a size that is a multiple of `multiple`.

    It is aligned to the context's centroid, or with `follow_points` to the points themselves, which then lie on it.

    Args:
        cells: its size along every input, whatever the context spans. None: what the largest task of the batch needs.
        max_cells: most cells of all tasks together.
    """
    there = c.is_there[..., None]
    some = there.any(1, keepdim=True)
    corner = c.x.where(there, math.inf).amin(1, keepdim=True).where(some, 0.0)
    x = (c.x - corner).where(there, 0.0)
    anchor = torch.zeros_like(corner) if follow_points else Geometry.centre(x, c.mask)
    # A thousandth of a cell of slack: rounding of the anchor must not add or drop a cell.
    first = torch.floor(-anchor / step + 1e-3) - margin
    last = torch.ceil((x.amax(1, keepdim=True) - anchor) / step - 1e-3) + margin
    size = (last - first + 1).where(some, 0.0)
    size = torch.ceil(size / multiple)[:, 0] * multiple
    extent = [cells] * size.shape[1] if cells is not None else _extent(size, multiple, max_cells, step)
    mask = torch.ones((), dtype=torch.bool, device=c.x.device)
    for dim, n in enumerate(extent):
        inside = torch.arange(n, device=c.x.device) < size[:, dim, None]
        mask = mask[..., None] & inside.view(c.x.shape[0], *[1] * dim, n)
    return Lattice(corner, anchor + first * step, step, mask)


def _extent(size: Float[Tensor, "b dx"], multiple: int, max_cells: int, step: float) -> list[int]:
    """The number of cells along each input that the largest task needs."""
    least = size.new_full((1, size.shape[1]), max(multiple, 2))  # one cell would leave nothing to interpolate
    extent = torch.cat([size, least]).amax(0).tolist()
    if math.prod(extent) * len(size) > max_cells:
        cells = " x ".join(f"{n:.3g}" for n in extent)
        raise ValueError(
            f"xc spans so much that its lattice would need {cells} cells for each of {len(size)} tasks: scale the "
            f"inputs down, or lower points_per_unit (now {1 / step:g})."
        )
    return [int(n) for n in extent]


class SetConv(nn.Module):
    """Scattered context to channels on a lattice: for each output its density, and its data divided by the density.

    Args:
        dx: number of inputs, 1 or 2.
        smooth: a Gaussian of learned width (two cells at first); otherwise each point goes to its own cell and
            nowhere else.
    """

    def __init__(self, dx: int, smooth: bool) -> None:
        super().__init__()
        self.log_width = nn.Parameter(torch.full((dx,), math.log(2.0))) if smooth else None

    def forward(self, c: Context, lattice: Lattice) -> Float[Tensor, "b c *cells"]:
        position = lattice.position(c.x, c.y.dtype)
        if self.log_width is None:
            position = position.round()  # or rounding errors would spill a little onto empty cells nearby
        weights = []
        for dim, n in enumerate(lattice.mask.shape[1:]):
            d = position[..., dim, None] - torch.arange(n, device=c.y.device, dtype=c.y.dtype)
            if self.log_width is None:
                weights.append((d == 0).to(c.y.dtype))
            else:
                weights.append(torch.exp(-0.5 * (d / self.log_width[dim].exp()).square()))
        channels = torch.cat([c.observed, c.y], -1)  # both zero where there is nothing
        out = torch.einsum("bnc,bng->bcg" if len(weights) == 1 else "bnc,bng,bnh->bcgh", channels, *weights)
        density, signal = out.chunk(2, dim=1)
        return torch.cat([density, signal / (density + 1e-6)], 1) * lattice.mask[:, None]


def interpolate(h: Float[Tensor, "b c *cells"], lattice: Lattice, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n c"]:
    """(Bi)linear interpolation at places `x`; zero beyond the lattice."""
    h = h.to(torch.promote_types(h.dtype, torch.float32))  # bfloat16 cannot count cells
    size = torch.tensor(h.shape[2:], device=h.device, dtype=h.dtype)
    # One cell beyond is as good as anywhere beyond, and keeps numbers small.
    position = lattice.position(x, h.dtype).maximum(size.new_tensor(-2.0)).minimum(size + 1)
    at = 2 * position / (size - 1) - 1
    if h.ndim == 3:
        h, at = h[:, :, None], torch.stack([at[..., 0], torch.zeros_like(at[..., 0])], -1)
    else:
        at = at.flip(-1)  # grid_sample counts the last dimension first
    return grid_sample(h, at[:, None], align_corners=True)[:, :, 0].mT
