"""The translation-equivariant transformer neural process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.geometry import Geometry
from shiftnp.models.base import NeuralProcess
from shiftnp.nn.block import Block, te_attention
from shiftnp.nn.spectrum import Spectrum
from shiftnp.nn.tokens import Context, RelativeTokens, Tokens
from shiftnp.nn.transformer import FullStack, Memory


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
        spectrum: number of waves in the spectrum of a data set, by which the separable kernel can attend (0: none), see
            `Spectrum`; half of the heads then use the harmonics of what repeats the data best. It is the spectrum of
            the whole context, so that it goes with no radius.
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
        band: tuple[float, float] = (0.2, 6.0),
        window: bool = True,
        spectrum: int = 0,
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

        if spectrum and (kernel != "separable" or radius is not None):
            raise ValueError(f'spectrum is for kernel="separable" without radius, got {kernel!r} and radius={radius}.')
        self.spectrum = Spectrum(spectrum, dims, dz, geometry, band) if spectrum else None
        attention = te_attention(kernel, dz, heads, head_dim, geometry, dims, frequencies, band, window, spectrum > 0)

        def block(moves: bool) -> Block:
            return Block(attention(moves and location_update), dz, ff_layers)

        self.stack = FullStack(layers, block, geometry)

    def embed_context(self, c: Context) -> Memory:
        tokens = self.tokens.context(c)
        if self.spectrum is not None:
            x = self._relative(tokens, tokens)
            lines = self.spectrum(x, c.y, c.observed, c.is_there[..., None].to(c.y.dtype))
            tokens = tokens._replace(z=tokens.z + lines.about, lines=lines, likeness=lines.correlation(x, x))
        memory = self.stack.encode(tokens)
        # Targets have a likeness of their own; that among context tokens, the square of their number, need not stay.
        layers = [layer._replace(likeness=()) for layer in memory.layers]
        return memory._replace(start=memory.start._replace(likeness=()), layers=layers)

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt dz"]:
        tokens, context = self.tokens.targets(xt), memory.start
        if self.spectrum is not None:
            lines = context.lines
            assert lines is not None
            likeness = lines.correlation(self._relative(tokens, context), self._relative(context, context))
            z = tokens.z + self.spectrum.to_target(lines.about)
            tokens = tokens._replace(z=z, lines=lines, likeness=likeness)
        return self.stack.decode(memory, tokens)

    def _relative(self, tokens: Tokens, context: Tokens) -> Float[Tensor, "b n dx"]:
        """Where tokens are, relative to the middle of the context."""
        assert tokens.x is not None
        assert context.x is not None
        x = self.tokens.geometry.wrap(tokens.x - Geometry.centre(context.x, context.mask))
        return x.to(torch.promote_types(context.z.dtype, torch.float32))

    @property
    def receptive_field(self) -> float:
        return (len(self.stack.context) + 1) * self.tokens.geometry.reach
