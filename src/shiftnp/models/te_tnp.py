"""The translation-equivariant transformer neural process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.kernels import Kernel, make_kernel
from shiftnp.kernels.base import AttentionSize
from shiftnp.models.base import NeuralProcess
from shiftnp.nn.tokens import Context, RelativeTokens
from shiftnp.nn.transformer import FullStack, Memory


class TETNP(NeuralProcess):
    """Translation-equivariant TNP (the paper, section 3): shifting the data shifts the predictions.

    Tokens embed the observations; locations enter through the displacements `x_q - x_k` in every attention layer.

    Args:
        dx, dy: number of inputs and outputs.
        dz: size of a token, and width of the pairwise networks `rho` and `phi`.
        heads, head_dim: number of attention heads and size of each.
        layers: number of layers.
        location_update: whether token locations are updated (eq. 8).
        kernel: "mlp", the paper's (eq. 6), or "rotary", which costs about as much as plain attention; `Rotary(...)`
            and `{"name": "rotary", ...}` set its arguments, see `shiftnp.kernels`.
        period: period of an input, or None; one entry per input (a single number: all).
        radius: pairs farther apart do not attend. The receptive field is then `(layers + 1) * radius`.
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
        dz: int = 128,
        heads: int = 8,
        head_dim: int = 16,
        layers: int = 5,
        location_update: bool = True,
        kernel: str | Mapping[str, Any] | Kernel = "mlp",
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
        self.stack = FullStack(layers, kernel.make_block(size, location_update, ff_layers), geometry)

    def embed_context(self, c: Context) -> Memory:
        tokens = self.tokens.context(c)
        return self.stack.encode(tokens if self.hook is None else self.hook.context(tokens, c))

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        tokens = self.tokens.targets(xt)
        return self.stack.decode(memory, tokens if self.hook is None else self.hook.targets(tokens, memory.start))

    def target_order(self, memory: Memory, xt: Float[Tensor, "1 nt dx"]) -> Int[Tensor, " nt"] | None:
        return memory.order(xt[..., self.tokens.locations])

    def extend_memory(self, memory: Memory, new: Context) -> Memory | None:
        if self.tokens.geometry.radius is None:
            return None
        assert self.hook is None  # hooks look at the whole context and exclude a radius
        return self.stack.extend(memory, self.tokens.context(new))

    def difference(self, a: Float[Tensor, "b n dx"], b: Float[Tensor, " b #n dx"]) -> Float[Tensor, "b n dx"]:
        return self.tokens.difference(a, b)

    @property
    def receptive_field(self) -> float:
        return (len(self.stack.context) + 1) * self.tokens.geometry.reach

    @property
    def absolute_inputs(self) -> list[int]:
        return self.tokens.covariates
