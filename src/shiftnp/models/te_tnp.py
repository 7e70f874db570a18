"""The translation-equivariant transformer neural process."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from shiftnp.models.base import NeuralProcess
from shiftnp.nn.block import Block, te_attention
from shiftnp.nn.tokens import Context, RelativeTokens
from shiftnp.nn.transformer import FullStack, Memory
from shiftnp.typing import Real


class TETNP(NeuralProcess):
    """Translation-equivariant TNP (the paper, section 3): move the data, and the predictions move with it.

    Tokens know only what was observed; where it was enters through the differences `x_q - x_k` in every attention.

    Args:
        dx, dy: number of inputs and outputs.
        dz: size of a token, and width of the pairwise networks `rho` and `phi`.
        heads, head_dim: number of attention heads and size of each.
        layers: number of layers.
        location_update: whether tokens move (eq. 8).
        kernel: "mlp", the paper's (eq. 6), or "separable", which costs as much as plain attention, see
            `attention/separable.py`; with it, `location_update` pulls tokens towards what they attend to.
        frequencies, band, window: of the separable kernel, see `SeparableAttention`.
        period: length after which an input repeats, or None; one entry per input (a single number: all).
        radius: pairs farther apart do not attend. The receptive field is then `(layers + 1) * radius`.
        equivariant: which inputs predictions are equivariant in (None: all); the others are ordinary covariates.
        target_token: "learned" (the paper) or "encoded" (the authors' code), see `RelativeTokens`.
        ff_layers: hidden layers of the MLP in a block.
        likelihood, components, variance_floor: see `NeuralProcess`.
    """

    is_equivariant = True

    def __init__(
        self,
        dx: int,
        dy: int,
        *,
        dz: int = 128,
        heads: int = 8,
        head_dim: int = 16,
        layers: int = 5,
        location_update: bool = True,
        kernel: str = "mlp",
        frequencies: int = 16,
        band: tuple[Real, Real] = (0.2, 6.0),
        window: bool = True,
        period: Real | Sequence[Real | None] | None = None,
        radius: Real | None = None,
        equivariant: Sequence[int] | None = None,
        target_token: str = "learned",
        ff_layers: int = 2,
        likelihood: str = "heteroscedastic",
        components: int = 3,
        variance_floor: Real = 1e-4,
    ) -> None:
        super().__init__(dx, dy, dz, dz, likelihood, components, variance_floor)
        self.tokens = RelativeTokens(dx, dy, dz, period, radius, equivariant, target_token)
        geometry, dims = self.tokens.geometry, len(self.tokens.places)

        attention = te_attention(kernel, dz, heads, head_dim, geometry, dims, frequencies, band, window)

        def block(moves: bool) -> Block:
            return Block(attention(moves and location_update), dz, ff_layers)

        self.stack = FullStack(layers, block, geometry)

    def embed_context(self, c: Context) -> Memory:
        return self.stack.encode(self.tokens.context(c))

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        return self.stack.decode(memory, self.tokens.targets(xt))

    @property
    def receptive_field(self) -> float:
        return (len(self.stack.context) + 1) * self.tokens.geometry.reach
