"""The conditional neural process."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.models.base import NeuralProcess
from shiftnp.nn.mlp import MLP
from shiftnp.nn.pool import Mean
from shiftnp.nn.tokens import Context


class CNP(NeuralProcess):
    """Conditional neural process (Garnelo et al., 2018): `e(D_c) = mean_n phi(x_n, y_n)`, decoded with `x_t`.

    Args:
        dx, dy: number of inputs and outputs.
        dz: width of the encoder, its output and the decoder.
        hidden: hidden layers of `phi`.
        likelihood, components, variance_floor: see `NeuralProcess`.
    """

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
        super().__init__(dx, dy, dx + dz, dz, likelihood, components, variance_floor)
        self.phi = MLP(dx + 2 * dy, dz, dz, hidden=hidden)
        self.mean = Mean(dz)

    def embed_context(self, c: Context) -> Float[Tensor, "b dz"]:
        return self.mean(self.phi(torch.cat([c.x.to(c.y.dtype), c.y, c.observed], -1)), c.mask)

    def embed_targets(self, memory: Float[Tensor, "b dz"], xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt d"]:
        return torch.cat([xt.to(memory.dtype), memory[:, None].expand(-1, xt.shape[1], -1)], -1)
