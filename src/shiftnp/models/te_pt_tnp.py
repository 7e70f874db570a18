"""The translation-equivariant pseudo-token transformer neural process."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from shiftnp.models.base import NeuralProcess
from shiftnp.nn.block import Block, te_attention
from shiftnp.nn.pseudo import RelativePseudo
from shiftnp.nn.tokens import Context, RelativeTokens
from shiftnp.nn.transformer import Memory, pseudo_stack


class TEPTTNP(NeuralProcess):
    """Translation-equivariant pseudo-token TNP (the paper, section 3.1), at a cost linear in the number of points.

    The pseudo-tokens lie at places that follow the context (eq. 9).

    Args:
        dx, dy: number of inputs and outputs.
        pseudo: number of pseudo-tokens, `M`.
        style: "ist" or "perceiver".
        dz: size of a token, and width of the pairwise networks `rho` and `phi`.
        heads, head_dim: number of attention heads and size of each.
        layers: number of layers.
        location_update: whether tokens move (eq. 8).
        initialiser: how pseudo-locations follow the context (eq. 9): "attention", or "mean" (the ablation). Along a
            circle both need a context that is not spread evenly all around it: such a ring has no mean.
        kernel: "mlp", the paper's (eq. 6), or "separable", which costs as much as plain attention, see
            `attention/separable.py`; with it, `location_update` pulls tokens towards what they attend to.
        frequencies, band, window: of the separable kernel, see `SeparableAttention`.
        period: length after which an input repeats, or None; one entry per input (a single number: all).
        radius: pairs farther apart do not attend. The receptive field stays infinite all the same, because where a
            pseudo-token lies depends on the whole context.
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
        pseudo: int = 32,
        style: str = "ist",
        dz: int = 128,
        heads: int = 8,
        head_dim: int = 16,
        layers: int = 5,
        location_update: bool = True,
        kernel: str = "mlp",
        frequencies: int = 16,
        band: tuple[float, float] = (0.2, 6.0),
        window: bool = True,
        initialiser: str = "attention",
        period: float | Sequence[float | None] | None = None,
        radius: float | None = None,
        equivariant: Sequence[int] | None = None,
        target_token: str = "learned",
        ff_layers: int = 2,
        likelihood: str = "heteroscedastic",
        components: int = 3,
        variance_floor: float = 1e-4,
    ) -> None:
        super().__init__(dx, dy, dz, dz, likelihood, components, variance_floor)
        self.tokens = RelativeTokens(dx, dy, dz, period, radius, equivariant, target_token)
        geometry, dims = self.tokens.geometry, len(self.tokens.places)

        attention = te_attention(kernel, dz, heads, head_dim, geometry, dims, frequencies, band, window)

        def block(moves: bool) -> Block:
            return Block(attention(moves and location_update), dz, ff_layers)

        tokens = RelativePseudo(pseudo, dz, geometry, dims, heads, head_dim, initialiser)
        self.stack = pseudo_stack(style)(layers, block, tokens, geometry)

    def embed_context(self, c: Context) -> Memory:
        return self.stack.encode(self.tokens.context(c))

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        return self.stack.decode(memory, self.tokens.targets(xt))
