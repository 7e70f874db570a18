"""The attentive neural process."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shiftnp.models.base import NeuralProcess
from shiftnp.nn.block import Block, PlainAttention
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Context, PlainTokens, Tokens


class Memory(NamedTuple):
    """The encoded context: values (tokens), keys (embedded inputs) and mask of the cross-attention."""

    values: Float[Tensor, "b n dz"]
    keys: Float[Tensor, "b n dz"]
    mask: Tensor | None


class ANP(NeuralProcess):
    """Attentive neural process, deterministic path (Kim et al., 2019).

    Self-attention among context tokens, then cross-attention whose queries are embedded target inputs, whose keys are
    embedded context inputs and whose values are context tokens; decoded together with `x_t`.

    Args:
        dx, dy: number of inputs and outputs.
        dz: size of a token.
        heads, head_dim: number of attention heads and size of each.
        layers: self-attention layers.
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
        super().__init__(dx, dy, dx + dz, dz, likelihood, components, variance_floor)
        self.tokens = PlainTokens(dx, dy, dz)
        self.blocks = nn.ModuleList(Block(PlainAttention(dz, heads, head_dim), dz, ff_layers) for _ in range(layers))
        self.input_encoder = MLP(dx, dz, dz)
        self.cross_attention = PlainAttention(dz, heads, head_dim)

    def embed_context(self, c: Context) -> Memory:
        tokens = self.tokens.context(c)
        pairs = None if c.mask is None else c.mask[:, None, :]
        for block in self.blocks:
            tokens = block(tokens, tokens, pairs)
        return Memory(tokens.z, self.input_encoder(c.x.to(c.y.dtype)), c.mask)

    def embed_targets(self, memory: Memory, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt d"]:
        xt = xt.to(self.dtype)
        pairs = None if memory.mask is None else memory.mask[:, None, :]
        r, _ = self.cross_attention(Tokens(self.input_encoder(xt)), Tokens(memory.keys), pairs, values=memory.values)
        return torch.cat([xt, r], -1)
