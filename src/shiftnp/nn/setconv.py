"""Set convolutions (SetConv) of the ConvCNP: from scattered points to a regular grid around the data, and back."""

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
    """A regular grid of cells around the context of each task; `mask` says which cells the task uses.

    The cells of a task depend on its own context only, not on other tasks of the batch nor on the targets.
    """

    corner: Float[Tensor, "b 1 dx"]  # of the context's bounding box, in the dtype of the inputs
    offset: Float[Tensor, "b 1 dx"]  # of the first cell from the corner: small, so it is exact at any distance from 0
    step: float
    mask: Bool[Tensor, " b *cells"]

    def position(self, x: Float[Tensor, "b n dx"], dtype: torch.dtype) -> Float[Tensor, "b n dx"]:
        """Inputs in grid coordinates: units of cells, from the first cell."""
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
    """A lattice that covers the context and `margin` cells around it, its size rounded up to a multiple of `multiple`.

    It is aligned to the context's centroid, or with `follow_points` to the corner of the context, for points that
    already lie on a grid.

    Args:
        cells: fixed size along every input, for any context. None: the size that the largest task of the batch needs.
        max_cells: largest number of cells of all tasks together.
    """
    present = c.present[..., None]
    some = present.any(1, keepdim=True)
    corner = c.x.where(present, math.inf).amin(1, keepdim=True).where(some, 0.0)
    x = (c.x - corner).where(present, 0.0)
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
    least = size.new_full((1, size.shape[1]), max(multiple, 2))  # interpolation needs two cells
    extent = torch.cat([size, least]).amax(0).tolist()
    if math.prod(extent) * len(size) > max_cells:
        cells = " x ".join(f"{n:.3g}" for n in extent)
        raise ValueError(
            f"xc spans so much that its lattice would need {cells} cells for each of {len(size)} tasks: scale the "
            f"inputs down, or lower points_per_unit (now {1 / step:g})."
        )
    return [int(n) for n in extent]


class SetConv(nn.Module):
    """Set convolution of a context onto a lattice: for each output a density channel and the normalised data channel.

    Args:
        dx: number of inputs, 1 or 2.
        smooth: whether to use a Gaussian kernel of learned length-scale (initially two cells); otherwise each point
            goes to the nearest cell only.
    """

    def __init__(self, dx: int, smooth: bool) -> None:
        super().__init__()
        self.log_width = nn.Parameter(torch.full((dx,), math.log(2.0))) if smooth else None

    def forward(self, c: Context, lattice: Lattice) -> Float[Tensor, "b c *cells"]:
        position = lattice.position(c.x, c.y.dtype)
        if self.log_width is None:
            position = position.round()  # removes rounding errors, so that each point matches exactly one cell
        weights = []
        for dim, n in enumerate(lattice.mask.shape[1:]):
            d = position[..., dim, None] - torch.arange(n, device=c.y.device, dtype=c.y.dtype)
            if self.log_width is None:
                weights.append((d == 0).to(c.y.dtype))
            else:
                weights.append(torch.exp(-0.5 * (d / self.log_width[dim].exp()).square()))
        channels = torch.cat([c.observed, c.y], -1)  # both zero where nothing was observed
        out = torch.einsum("bnc,bng->bcg" if len(weights) == 1 else "bnc,bng,bnh->bcgh", channels, *weights)
        density, signal = out.chunk(2, dim=1)
        return torch.cat([density, signal / (density + 1e-6)], 1) * lattice.mask[:, None]


def interpolate(h: Float[Tensor, "b c *cells"], lattice: Lattice, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n c"]:
    """(Bi)linear interpolation at inputs `x`; zero outside the lattice."""
    h = h.to(torch.promote_types(h.dtype, torch.float32))  # bfloat16 is too coarse for cell indices
    size = torch.tensor(h.shape[2:], device=h.device, dtype=h.dtype)
    # Clamped to just outside the lattice, where the result is zero as well, to keep numbers small.
    position = lattice.position(x, h.dtype).maximum(size.new_tensor(-2.0)).minimum(size + 1)
    at = 2 * position / (size - 1) - 1
    if h.ndim == 3:
        h, at = h[:, :, None], torch.stack([at[..., 0], torch.zeros_like(at[..., 0])], -1)
    else:
        at = at.flip(-1)  # grid_sample takes coordinates in the order (x, y), the last dimension first
    return grid_sample(h, at[:, None], align_corners=True)[:, :, 0].mT
