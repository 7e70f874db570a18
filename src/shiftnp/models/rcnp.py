"""The relational conditional neural process."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.geometry import Geometry, Positions
from shiftnp.models.base import NeuralProcess
from shiftnp.nn.mlp import MLP
from shiftnp.nn.pool import Mean
from shiftnp.nn.tokens import Context


class RCNP(NeuralProcess):
    """Relational CNP, simple variant (Huang et al., 2023): `e(x_t, D_c) = mean_n phi(x_t - x_n, y_n)`.

    Translation equivariant, at the cost of one pass of `phi` for every pair.

    Args:
        dx, dy: number of inputs and outputs.
        dz: width of the encoder, its output and the decoder.
        hidden: hidden layers of `phi`.
        likelihood, components, variance_floor: see `NeuralProcess`.
    """

    is_equivariant = True

    def __init__(
        self,
        dx: int,
        dy: int,
        *,
        dz: int = 128,
        hidden: int = 5,
        likelihood: str = "heteroscedastic",
        components: int = 3,
        variance_floor: float = 1e-4,
    ) -> None:
        super().__init__(dx, dy, dz, dz, likelihood, components, variance_floor)
        self.geometry = Geometry()
        self.phi = MLP(dx + 2 * dy, dz, dz, hidden=hidden)
        self.mean = Mean(dz)

    def embed_context(self, c: Context) -> Context:
        return c

    def embed_targets(self, memory: Context, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        displacement = self.geometry.displacement(Positions(xt), Positions(memory.x), memory.y.dtype)
        outputs = torch.cat([memory.y, memory.observed], -1)[:, None].expand(-1, xt.shape[1], -1, -1)
        mask = None if memory.mask is None else memory.mask[:, None].expand(-1, xt.shape[1], -1)
        return self.mean(self.phi(torch.cat([displacement, outputs], -1)), mask)
