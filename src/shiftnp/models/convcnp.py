"""The convolutional conditional neural process."""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from shiftnp.models.base import NeuralProcess
from shiftnp.nn.setconv import Lattice, SetConv, interpolate, lay_lattice
from shiftnp.nn.tokens import Context
from shiftnp.nn.unet import CNN, UNet


class Memory(NamedTuple):
    """The encoded context: CNN features on a lattice."""

    features: Float[Tensor, "b c *cells"]
    lattice: Lattice


class ConvCNP(NeuralProcess):
    """Convolutional CNP (Gordon et al., 2020), for one or two inputs.

    A set convolution maps the context to a lattice (a regular grid), a CNN is applied to it, and its features are
    interpolated at the targets. The lattice follows the data: it is aligned to the context's centroid and covers the
    context and a margin. A target outside it gets the prior, which is also the prediction for an empty context.

    Shifting all inputs leaves predictions unchanged up to rounding of the centroid: 1e-6 in float64 and 1e-4 in
    float32, relative to predictions of order one.

    Args:
        dx, dy: number of inputs (1 or 2) and outputs.
        on_grid: whether the inputs already lie on a grid with `points_per_unit`, as pixels do: no smoothing.
        points_per_unit: cells per unit of input (None: 64 for one input, 16 for two).
        margin: how far the lattice extends beyond the context, in units of input (None: 3 for one input, 1 for two,
            and 8 cells on a grid). It is smaller than the receptive field of the CNN, to save time.
        net: "unet" or "cnn" (None: the latter on a grid).
        channels, layers, kernel_size: sizes of the CNN (None: 128 and 11; on a grid 64 and 5, the paper's for images).
        likelihood, components, variance_floor: see `NeuralProcess`.
    """

    is_equivariant = True
    lattice_cells: int | None = None
    """Size of the lattice along each input, if it is the same for all contexts, as in an exported program."""

    def __init__(
        self,
        dx: int,
        dy: int,
        *,
        on_grid: bool = False,
        points_per_unit: float | None = None,
        margin: float | None = None,
        net: str | None = None,
        channels: int | None = None,
        layers: int | None = None,
        kernel_size: int = 9,
        likelihood: str = "heteroscedastic",
        components: int = 3,
        variance_floor: float = 1e-4,
    ) -> None:
        if dx not in (1, 2):
            raise ValueError(f"convcnp needs dx = 1 or 2 inputs, got {dx}: a lattice in more dimensions is too large.")
        if net is None:
            net = "cnn" if on_grid else "unet"
        if net not in ("unet", "cnn"):
            raise ValueError(f'net must be "unet" or "cnn", got {net!r}.')
        if points_per_unit is None:
            points_per_unit = 64.0 if dx == 1 else 16.0
        if not points_per_unit > 0:
            raise ValueError(f"points_per_unit must be positive, got {points_per_unit}.")
        if margin is None:
            margin = 8 / points_per_unit if on_grid else (3.0 if dx == 1 else 1.0)
        if not margin >= 0:
            raise ValueError(f"margin must not be negative, got {margin}.")
        if channels is None:
            channels = 64 if on_grid else 128
        if layers is None:
            layers = 5 if on_grid else 11
        super().__init__(dx, dy, channels, channels, likelihood, components, variance_floor)
        self.on_grid = on_grid
        self.step = 1 / points_per_unit
        self.margin = math.ceil(margin * points_per_unit - 1e-6)
        self.setconv = SetConv(dx, smooth=not on_grid)
        self.net = (UNet if net == "unet" else CNN)(dx, 2 * dy, channels, layers, kernel_size)

    def embed_context(self, c: Context) -> Memory:
        lattice = lay_lattice(c, self.step, self.margin, self.net.multiple, self.on_grid, self.lattice_cells)
        return Memory(self.net(self.setconv(c, lattice), lattice.mask), lattice)

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt c"]:
        return interpolate(memory.features, memory.lattice, xt)
