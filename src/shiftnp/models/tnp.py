"""The transformer neural process."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from shiftnp.models.base import NeuralProcess
from shiftnp.nn.block import Block, PlainAttention
from shiftnp.nn.tokens import Context, PlainTokens
from shiftnp.nn.transformer import FullStack, Memory


class TNP(NeuralProcess):
    """Transformer neural process, with efficient masking (Nguyen & Grover, 2022; Feng et al., 2023).

    Tokens of `(x, y, observed)`; each layer lets the context attend to itself and the targets attend to the context.
    Not translation equivariant.

    Args:
        dx, dy: number of inputs and outputs.
        dz: size of a token.
        heads, head_dim: number of attention heads and size of each.
        layers: number of layers.
        ff_layers: hidden layers of the MLP in a block.
        likelihood, components, variance_floor: see `NeuralProcess`.
    """

    def __init__(
        self,
        dx: int,
        dy: int,
        *,
        dz: int = 128,
        heads: int = 8,
        head_dim: int = 16,
        layers: int = 5,
        ff_layers: int = 2,
        likelihood: str = "heteroscedastic",
        components: int = 3,
        variance_floor: float = 1e-4,
    ) -> None:
        super().__init__(dx, dy, dz, dz, likelihood, components, variance_floor)
        self.tokens = PlainTokens(dx, dy, dz)
        self.stack = FullStack(layers, lambda _: Block(PlainAttention(dz, heads, head_dim), dz, ff_layers))

    def embed_context(self, c: Context) -> Memory:
        return self.stack.encode(self.tokens.context(c))

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        return self.stack.decode(memory, self.tokens.targets(xt))
