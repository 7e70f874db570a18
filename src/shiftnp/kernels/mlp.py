"""The paper's attention kernel: an MLP of the dot-product scores and the displacement of every pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shiftnp.attention import local, reference, tiled
from shiftnp.attention.mask import AttentionMask, PairMask
from shiftnp.attention.pair_mlp import MLPWeights
from shiftnp.geometry import Positions
from shiftnp.kernels.base import AttentionSize, Kernel
from shiftnp.nn.heads import Heads
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Tokens

OUTPUT_GAIN = 2.0
"""Scale of the initial logits with `init="he"`."""


@dataclass(frozen=True)
class PairwiseMLP(Kernel):
    """`kernel="mlp"`, the paper's (eq. 6): logits of a pair are `rho(scores of all heads, x_q - x_k)`.

    Args:
        init: initial weights of `rho`: "he" (He et al., 2015), or "torch", the default of its linear layers and of the
            authors' code. The latter makes initial logits more than ten times smaller, so that all points are attended
            to alike at first, and pseudo-token models learn more slowly (docs/results.md).
    """

    name: ClassVar[str] = "mlp"
    init: str = "he"

    def __post_init__(self) -> None:
        if self.init not in ("he", "torch"):
            raise ValueError(f'init of the kernel mlp must be "he" or "torch", got {self.init!r}.')

    def attention(self, size: AttentionSize, location_update: bool) -> PairwiseMLPAttention:
        """A new attention module; with `location_update` the positions of queries are updated by eq. 8."""
        attention = PairwiseMLPAttention(size, location_update)
        if self.init == "he":
            he_init(attention.rho)
        return attention


class PairwiseMLPAttention(nn.Module):
    """Translation-equivariant multi-head attention, eqs. 5 and 6, and the location update, eq. 8.

    `rho` maps the `H` scores and the displacement of a pair to `H` logits. Its last layer has no bias, which the
    softmax would cancel. `phi` maps the `H` attention weights of a pair to its weight in the location update.
    """

    backend: ClassVar[str] = "tiled"
    """Implementation: "tiled", or "reference", the plain formula that "tiled" is tested against."""

    def __init__(self, size: AttentionSize, location_update: bool) -> None:
        super().__init__()
        self.geometry = size.geometry
        self.heads = Heads(size.dz, size.heads, size.head_dim)
        self.rho = MLP(size.heads + size.dims + size.geometry.extra_features, size.heads, size.dz, bias_out=False)
        self.phi = MLP(size.heads, size.heads, size.dz) if location_update else None

    def forward(
        self, q: Tokens, k: Tokens, mask: AttentionMask
    ) -> tuple[Float[Tensor, "b nq dz"], Float[Tensor, "b nq dx"] | None]:
        # Loops over tiles depend on sizes, which are dynamic in an exported program.
        plain = self.backend == "reference" or torch.compiler.is_exporting()
        dense = self._reference if plain else self._tiled
        out, step = local.attend(dense, *self.heads.project(q.z, k.z), q.positions, k.positions, mask)
        offset = q.offset if step is None else step if q.offset is None else q.offset + step
        return self.heads.merge(out.transpose(1, 2), mask), offset

    def _reference(
        self, q: Tensor, k: Tensor, v: Tensor, at_q: Positions, at_k: Positions, pairs: PairMask
    ) -> tuple[Tensor, Tensor | None]:
        d = self.geometry.displacement(at_q, at_k, torch.promote_types(q.dtype, torch.float32))
        out, alpha = reference.te_attention(q, k, v, self.geometry.features(d), self.rho, pairs)
        if self.phi is None:
            return out, None
        return out, reference.location_step(self.geometry.smooth(d), alpha, self.phi, pairs)

    def _tiled(
        self, q: Tensor, k: Tensor, v: Tensor, at_q: Positions, at_k: Positions, pairs: PairMask
    ) -> tuple[Tensor, Tensor | None]:
        rho = MLPWeights.of(self.rho.layers)
        phi = None if self.phi is None else MLPWeights.of(self.phi.layers)
        low = tiled.uses_low_precision(q.device, len(rho.b1), max(1, len(q) * q.shape[2] * k.shape[2]))
        return tiled.attend(q, k, v, at_q, at_k, rho, phi, self.geometry, pairs, low_precision=low)


def he_init(net: MLP) -> None:
    """Initial weights that keep the scale of the inputs through the ReLU layers, and double it at the output."""
    *hidden, last = (layer.weight for layer in net.layers if isinstance(layer, nn.Linear))
    for weight in hidden:
        nn.init.normal_(weight, std=(2 / weight.shape[1]) ** 0.5)
    nn.init.normal_(last, std=OUTPUT_GAIN * last.shape[1] ** -0.5)
