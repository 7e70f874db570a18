"""Pseudo-tokens `U`, and in translation-equivariant models their locations `V` (eq. 9 of the paper)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shiftnp.attention.reference import scores, softmax_over_keys
from shiftnp.geometry import Geometry
from shiftnp.nn.tokens import Tokens


class PlainPseudo(nn.Module):
    """`m` learned tokens, the same for every context, initialised from a standard normal."""

    def __init__(self, m: int, dz: int) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.randn(m, dz))

    def forward(self, c: Tokens) -> Tokens:
        return Tokens(self.u.expand(c.z.shape[0], -1, -1))


class RelativePseudo(nn.Module):
    """`m` learned tokens with locations relative to the context: `v_m = v0_m + sum_n psi(u_m, z_n) x_n` (eq. 9).

    With an empty context they have no location and are masked out.

    Args:
        geometry, dims: geometry and number of the equivariant inputs.
        initialiser: "attention": `psi` is the softmax attention of eq. 3, averaged over heads with learned weights
            that sum to one; "mean": `psi = 1/N` (the paper's ablation).
    """

    def __init__(
        self,
        m: int,
        dz: int,
        geometry: Geometry,
        dims: int,
        heads: int,
        head_dim: int,
        initialiser: str = "attention",
    ) -> None:
        super().__init__()
        self.geometry = geometry
        if initialiser not in ("attention", "mean"):
            raise ValueError(f'initialiser must be "attention" or "mean", got {initialiser!r}.')
        self.u = nn.Parameter(torch.randn(m, dz))
        self.v0 = nn.Parameter(torch.randn(m, dims))
        self.psi = HeadAveragedAttention(dz, heads, head_dim) if initialiser == "attention" else None

    def forward(self, c: Tokens) -> Tokens:
        assert c.x is not None
        u = self.u.expand(c.z.shape[0], -1, -1)
        # Weights sum to one only up to rounding, so they average positions relative to the centre, which are small.
        centre = self.geometry.centre(c.x, c.mask)
        x = self.geometry.wrap(c.x - centre).to(self.v0.dtype)
        with torch.autocast(x.device.type, enabled=False):  # bfloat16 is too coarse for positions
            if self.psi is None:
                present = x.new_ones(x.shape[:2]) if c.mask is None else c.mask.to(x.dtype)
                psi = (present / present.sum(1, keepdim=True).clamp(min=1))[:, None]
            else:
                psi = self.psi(u, c._replace(z=c.z.to(x.dtype)))
            offset = self.v0 + self.geometry.average(psi, x)
        mask = None if c.mask is None else c.mask.any(1, keepdim=True).expand(-1, len(self.u))
        return Tokens(u, centre.expand(-1, len(self.u), -1), offset, mask)


class HeadAveragedAttention(nn.Module):
    """Weights `psi(u_m, z_n)` that sum to one over the context: eq. 3 in each head, then a learned mean over heads."""

    def __init__(self, dz: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(dz, heads * head_dim, bias=False)
        self.to_k = nn.Linear(dz, heads * head_dim, bias=False)
        self.head_logits = nn.Parameter(torch.zeros(heads)) if heads > 1 else None  # one head has all the weight
        self.heads = heads

    def forward(self, u: Float[Tensor, "b m dz"], c: Tokens) -> Float[Tensor, "b m n"]:
        shape = (self.heads, -1)
        q = self.to_q(u).unflatten(-1, shape).transpose(1, 2)
        k = self.to_k(c.z).unflatten(-1, shape).transpose(1, 2)
        alpha = softmax_over_keys(scores(q, k), None if c.mask is None else c.mask[:, None, :])
        if self.head_logits is None:
            return alpha[:, 0]
        return torch.einsum("h,bhmn->bmn", self.head_logits.softmax(0).to(alpha.dtype), alpha)
