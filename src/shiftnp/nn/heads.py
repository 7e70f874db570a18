"""Query, key, value and output projections of multi-head attention."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from shiftnp.attention.mask import AttentionMask, has_keys


class Heads(nn.Module):
    """The projections `W_Q, W_K, W_V` and `W_O` of multi-head attention."""

    def __init__(self, dz: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.to_q = nn.Linear(dz, heads * head_dim, bias=False)
        self.to_k = nn.Linear(dz, heads * head_dim, bias=False)
        self.to_v = nn.Linear(dz, heads * head_dim, bias=False)
        self.to_out = nn.Linear(heads * head_dim, dz)

    def split(self, z: Float[Tensor, "b n hd"]) -> Float[Tensor, "b h n d"]:
        """Splits channels into heads."""
        return z.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(
        self,
        zq: Float[Tensor, "b nq dz"],
        zk: Float[Tensor, "b nk dz"],
        zv: Float[Tensor, "b nk dz"] | None = None,
    ) -> tuple[Float[Tensor, "b h nq d"], Float[Tensor, "b h nk d"], Float[Tensor, "b h nk d"]]:
        """Queries, keys and values of every head; values come from `zv` if it is given."""
        zv = zk if zv is None else zv
        return self.split(self.to_q(zq)), self.split(self.to_k(zk)), self.split(self.to_v(zv))

    def merge(
        self, out: Float[Tensor, "b nq h d"], mask: AttentionMask, weight: Float[Tensor, "dz c"] | None = None
    ) -> Float[Tensor, "b nq dz"]:
        """The update of the query tokens: the output projection of the concatenated heads, zero (without the bias of
        the projection) for queries without keys.

        Args:
            weight: weights of the projection, if channels are in another order.
        """
        z = self.to_out(out.flatten(2)) if weight is None else linear(out.flatten(2), weight, self.to_out.bias)
        some = has_keys(mask)
        return z if some is None else z * some
