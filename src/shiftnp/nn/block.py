"""The one attention block: pre-norm, attention, residual; pre-norm, MLP, residual. Self-attention is `block(t, t)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from shiftnp.attention import local, reference, tiled
from shiftnp.attention.local import Sight
from shiftnp.attention.reference import Pairs
from shiftnp.geometry import Geometry
from shiftnp.nn.heads import Heads
from shiftnp.nn.mlp import MLP
from shiftnp.nn.separable import SeparableAttention
from shiftnp.nn.tokens import Tokens


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

    backend: ClassVar[str] = "tiled"
    """How it is computed: "tiled", or "reference", the specification that the former is tested against."""

    def __init__(self, dz: int, heads: int, head_dim: int, geometry: Geometry, dims: int, moves: bool) -> None:
        super().__init__()
        self.geometry = geometry
        self.heads = Heads(dz, heads, head_dim)
        self.rho = MLP(heads + dims + geometry.extra_features, heads, dz, bias_out=False)
        self.phi = MLP(heads, heads, dz) if moves else None

    def forward(
        self, q: Tokens, k: Tokens, sight: Sight
    ) -> tuple[Float[Tensor, "b nq dz"], Float[Tensor, "b nq dx"] | None]:
        assert q.x is not None
        assert k.x is not None
        kernel = self._tiled if self.backend == "tiled" else self._reference
        at_q, at_k = tiled.Places(q.x, q.moved), tiled.Places(k.x, k.moved)
        out, step = local.attend(kernel, *self.heads.project(q.z, k.z), at_q, at_k, sight)
        moved = q.moved if step is None else step if q.moved is None else q.moved + step
        return self.heads.join(out, sight), moved

    def _reference(
        self, q: Tensor, k: Tensor, v: Tensor, at_q: tiled.Places, at_k: tiled.Places, pairs: Pairs
    ) -> tuple[Tensor, Tensor | None]:
        dtype = torch.promote_types(q.dtype, torch.float32)
        d = self.geometry.between(at_q.x, at_k.x, at_q.moved, at_k.moved, dtype)
        out, alpha = reference.te_attention(q, k, v, self.geometry.features(d), self.rho, pairs)
        if self.phi is None:
            return out, None
        return out, reference.location_step(self.geometry.chord(d), alpha, self.phi, pairs)

    def _tiled(
        self, q: Tensor, k: Tensor, v: Tensor, at_q: tiled.Places, at_k: tiled.Places, pairs: Pairs
    ) -> tuple[Tensor, Tensor | None]:
        rho = tiled.Net(*self.rho.parameters())
        phi = None if self.phi is None else tiled.Net(*self.phi.parameters())
        low = tiled.uses_low_precision(q.device, len(rho.b1))
        return tiled.attend(q, k, v, at_q, at_k, rho, phi, self.geometry, pairs, low_precision=low)


class Block(nn.Module):
    """Updates the tokens `q` from the tokens `k`.

    Args:
        attention: PlainAttention, TEAttention or SeparableAttention.
        ff_layers: hidden layers of the pointwise MLP (two in the paper, one in the authors' code).
    """

    def __init__(
        self, attention: PlainAttention | TEAttention | SeparableAttention, dz: int, ff_layers: int = 2
    ) -> None:
        super().__init__()
        self.attention = attention
        self.norm_attention = nn.LayerNorm(dz)
        self.norm_ff = nn.LayerNorm(dz)
        self.ff = MLP(dz, dz, dz, hidden=ff_layers)

    def forward(self, q: Tokens, k: Tokens, sight: Sight) -> Tokens:
        zq = self.norm_attention(q.z)
        zk = zq if k is q else self.norm_attention(k.z)
        step, moved = self.attention(q._replace(z=zq), k._replace(z=zk), sight)
        z = q.z + step
        return q._replace(z=z + self.ff(self.norm_ff(z)), moved=moved)


def te_attention(
    kernel: str,
    dz: int,
    heads: int,
    head_dim: int,
    geometry: Geometry,
    dims: int,
    frequencies: int,
    band: tuple[float, float],
    window: bool,
    spectrum: bool = False,
) -> Callable[[bool], TEAttention | SeparableAttention]:
    """Makes translation-equivariant attention of a kind; its argument says whether queries move."""
    if kernel == "mlp":
        return lambda moves: TEAttention(dz, heads, head_dim, geometry, dims, moves)
    if kernel == "separable":
        more = (frequencies, band, window, spectrum)
        return lambda moves: SeparableAttention(dz, heads, head_dim, geometry, dims, moves, *more)
    raise ValueError(f'kernel must be "mlp" or "separable", got {kernel!r}.')
