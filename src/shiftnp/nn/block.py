"""The one attention block: pre-norm, attention, residual; pre-norm, MLP, residual. Self-attention is `block(t, t)`."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from shiftnp.attention import reference
from shiftnp.attention.reference import Pairs
from shiftnp.displacement import Geometry
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Tokens, displacement


class Heads(nn.Module):
    """The projections `W_Q, W_K, W_V` and `W_O` of multi-head attention."""

    def __init__(self, dz: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dz, heads * head_dim, bias=False)
        self.to_k = nn.Linear(dz, heads * head_dim, bias=False)
        self.to_v = nn.Linear(dz, heads * head_dim, bias=False)
        self.to_out = nn.Linear(heads * head_dim, dz)

    def split(self, z: Float[Tensor, "b n hd"]) -> Float[Tensor, "b h n d"]:
        return z.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(
        self,
        zq: Float[Tensor, "b nq dz"],
        zk: Float[Tensor, "b nk dz"],
        zv: Float[Tensor, "b nk dz"] | None = None,
    ) -> tuple[Float[Tensor, "b h nq d"], Float[Tensor, "b h nk d"], Float[Tensor, "b h nk d"]]:
        zv = zk if zv is None else zv
        return self.split(self.to_q(zq)), self.split(self.to_k(zk)), self.split(self.to_v(zv))

    def join(self, out: Float[Tensor, "b h nq d"], pairs: Pairs) -> Float[Tensor, "b nq dz"]:
        z = self.to_out(out.transpose(1, 2).flatten(2))
        # A query that sees no key learns nothing, not even the bias.
        return z if pairs is None else z * pairs.any(-1, keepdim=True)


class PlainAttention(nn.Module):
    """Multi-head attention, eqs. 2-4 of the paper. Knows no locations; `values` may differ from the keys."""

    def __init__(self, dz: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = Heads(dz, heads, head_dim)

    def forward(
        self, q: Tokens, k: Tokens, pairs: Pairs, values: Float[Tensor, "b nk dz"] | None = None
    ) -> tuple[Float[Tensor, "b nq dz"], None]:
        # Torch's softmax over no keys is NaN: such a query looks at all of them here, and `join` takes that back.
        seen = None if pairs is None else (pairs | ~pairs.any(-1, keepdim=True))[:, None]
        out = scaled_dot_product_attention(*self.heads.project(q.z, k.z, values), attn_mask=seen)
        return self.heads.join(out, pairs), None


class TEAttention(nn.Module):
    """Translation-equivariant multi-head attention, eqs. 5 and 6, and with `moves` the location update, eq. 8.

    `rho` maps the `H` scores and the displacement of a pair to `H` logits. Its last layer has no bias: the softmax
    would cancel it.
    """

    def __init__(self, dz: int, heads: int, head_dim: int, geometry: Geometry, dims: int, moves: bool) -> None:
        super().__init__()
        self.geometry = geometry
        self.heads = Heads(dz, heads, head_dim)
        self.rho = MLP(heads + dims + geometry.extra_features, heads, dz, bias_out=False)
        self.phi = MLP(heads, heads, dz) if moves else None

    def forward(
        self, q: Tokens, k: Tokens, pairs: Pairs
    ) -> tuple[Float[Tensor, "b nq dz"], Float[Tensor, "b nq dx"] | None]:
        d = displacement(self.geometry, q, k)
        projected = self.heads.project(q.z, k.z)
        out, alpha = reference.te_attention(*projected, self.geometry.features(d), self.rho, pairs)
        moved = q.moved
        if self.phi is not None:
            step = reference.location_step(self.geometry.chord(d), alpha, self.phi, pairs)
            moved = step if moved is None else moved + step
        return self.heads.join(out, pairs), moved


class Block(nn.Module):
    """Updates the tokens `q` from the tokens `k`.

    Args:
        attention: PlainAttention or TEAttention.
        ff_layers: hidden layers of the pointwise MLP (two in the paper, one in the authors' code).
    """

    def __init__(self, attention: PlainAttention | TEAttention, dz: int, ff_layers: int = 2) -> None:
        super().__init__()
        self.attention = attention
        self.norm_attention = nn.LayerNorm(dz)
        self.norm_ff = nn.LayerNorm(dz)
        self.ff = MLP(dz, dz, dz, hidden=ff_layers)

    def forward(self, q: Tokens, k: Tokens, pairs: Pairs) -> Tokens:
        zq = self.norm_attention(q.z)
        zk = zq if k is q else self.norm_attention(k.z)
        step, moved = self.attention(q._replace(z=zq), k._replace(z=zk), pairs)
        z = q.z + step
        return q._replace(z=z + self.ff(self.norm_ff(z)), moved=moved)
