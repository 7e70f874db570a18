"""The pre-norm transformer block of all models: attention and MLP, each with a residual connection.

`block(t, t, mask)` is self-attention, `block(q, k, mask)` cross-attention.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from shiftnp.attention.mask import AttentionMask, PairMask
from shiftnp.nn.heads import Heads
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Tokens


class PlainAttention(nn.Module):
    """Multi-head attention that does not use positions, eqs. 2-4 of the paper; `values` may differ from the keys."""

    def __init__(self, dz: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = Heads(dz, heads, head_dim)

    def forward(
        self, q: Tokens, k: Tokens, pairs: PairMask, values: Float[Tensor, "b nk dz"] | None = None
    ) -> tuple[Float[Tensor, "b nq dz"], None]:
        # Torch's softmax over no keys is NaN: such a query attends to all keys here, and `merge` discards the result.
        mask = None if pairs is None else (pairs | ~pairs.any(-1, keepdim=True))[:, None]
        out = scaled_dot_product_attention(*self.heads.project(q.z, k.z, values), attn_mask=mask)
        return self.heads.merge(out.transpose(1, 2), pairs), None


class Block(nn.Module):
    """Transformer block that updates the query tokens `q` by attention to the tokens `k`.

    Args:
        attention: PlainAttention, or the attention module of a kernel (see `shiftnp.kernels`).
        ff_layers: hidden layers of the pointwise MLP (two in the paper, one in the authors' code).
    """

    def __init__(self, attention: nn.Module, dz: int, ff_layers: int = 2) -> None:
        super().__init__()
        self.attention = attention
        self.norm_attention = nn.LayerNorm(dz)
        self.norm_ff = nn.LayerNorm(dz)
        self.ff = MLP(dz, dz, dz, hidden=ff_layers)

    def forward(self, q: Tokens, k: Tokens, mask: AttentionMask) -> Tokens:
        zq = self.norm_attention(q.z)
        zk = zq if k is q else self.norm_attention(k.z)
        update, offset = self.attention(q._replace(z=zq), k._replace(z=zk), mask)
        z = q.z + update
        return q._replace(z=z + self.ff(self.norm_ff(z)), offset=offset)
