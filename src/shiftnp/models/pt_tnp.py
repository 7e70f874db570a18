"""The pseudo-token transformer neural process."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from shiftnp.models.base import NeuralProcess
from shiftnp.nn.block import Block, PlainAttention
from shiftnp.nn.pseudo import PlainPseudo
from shiftnp.nn.tokens import Context, PlainTokens
from shiftnp.nn.transformer import Memory, pseudo_stack


class PTTNP(NeuralProcess):
    """Pseudo-token TNP: targets attend to `pseudo` learned tokens, which attend to the context, at linear cost.

    Not translation equivariant.

    Args:
        dx, dy: number of inputs and outputs.
        pseudo: number of pseudo-tokens, `M`.
        style: "ist" (Lee et al., 2019) or "perceiver" (Jaegle et al., 2021), the LBANP of Feng et al. (2023).
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
        pseudo: int = 32,
        style: str = "ist",
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
        self.stack = pseudo_stack(style)(
            layers, lambda _: Block(PlainAttention(dz, heads, head_dim), dz, ff_layers), PlainPseudo(pseudo, dz)
        )

    def embed_context(self, c: Context) -> Memory:
        return self.stack.encode(self.tokens.context(c))

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        return self.stack.decode(memory, self.tokens.targets(xt))
