"""The translation-equivariant pseudo-token transformer neural process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.kernels import Kernel, make_kernel
from shiftnp.kernels.base import AttentionSize
from shiftnp.models.base import NeuralProcess
from shiftnp.nn.pseudo import RelativePseudo
from shiftnp.nn.tokens import Context, RelativeTokens
from shiftnp.nn.transformer import Memory, pseudo_stack


class TEPTTNP(NeuralProcess):
    """Translation-equivariant pseudo-token TNP (the paper, section 3.1), at a cost linear in the number of points.

    The pseudo-tokens have locations that depend on the context and shift with it (eq. 9).

    Args:
        dx, dy: number of inputs and outputs.
        pseudo: number of pseudo-tokens, `M`.
        style: "ist" or "perceiver".
        dz: size of a token, and width of the pairwise networks `rho` and `phi`.
        heads, head_dim: number of attention heads and size of each.
        layers: number of layers.
        location_update: whether token locations are updated (eq. 8).
        initialiser: weights of the context in the pseudo-locations (eq. 9): "attention", or "mean" (the ablation).
            Along a periodic input both need a context that is not spread evenly over the whole period, as its circular
            mean is then undefined.
        kernel: "mlp", the paper's (eq. 6), or "rotary", which costs about as much as plain attention; `Rotary(...)`
            and `{"name": "rotary", ...}` set its arguments, see `shiftnp.kernels`.
        period: period of an input, or None; one entry per input (a single number: all).
        radius: pairs farther apart do not attend. The receptive field is still infinite, because the location of a
            pseudo-token depends on the whole context.
        equivariant: indices of the inputs that predictions are equivariant in (None: all); the others are covariates.
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
        kernel: str | Mapping[str, Any] | Kernel = "mlp",
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
        kernel, geometry = make_kernel(kernel), self.tokens.geometry
        size = AttentionSize(dz, heads, head_dim, len(self.tokens.locations), geometry)
        self.hook = kernel.hook(size, dy)
        tokens = RelativePseudo(pseudo, dz, geometry, size.dims, heads, head_dim, initialiser)
        block = kernel.make_block(size, location_update, ff_layers)
        self.stack = pseudo_stack(style)(layers, block, tokens, geometry)

    def embed_context(self, c: Context) -> Memory:
        tokens = self.tokens.context(c)
        return self.stack.encode(tokens if self.hook is None else self.hook.context(tokens, c))

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        tokens = self.tokens.targets(xt)
        return self.stack.decode(memory, tokens if self.hook is None else self.hook.targets(tokens, memory.start))

    def target_order(self, memory: Memory, xt: Float[Tensor, "1 nt dx"]) -> Int[Tensor, " nt"] | None:
        return memory.order(xt[..., self.tokens.locations])

    def difference(self, a: Float[Tensor, "b n dx"], b: Float[Tensor, " b #n dx"]) -> Float[Tensor, "b n dx"]:
        return self.tokens.difference(a, b)

    @property
    def absolute_inputs(self) -> list[int]:
        return self.tokens.covariates
