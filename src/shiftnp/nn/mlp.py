"""Multilayer perceptron, applied to the last dimension."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MLP(nn.Module):
    """`hidden` ReLU layers of `width` between `d_in` and `d_out`.

    Args:
        bias_out: False if a bias of the output would have no effect (and so no gradient).
    """

    def __init__(self, d_in: int, d_out: int, width: int, hidden: int = 2, bias_out: bool = True) -> None:
        super().__init__()
        sizes = [d_in, *[width] * hidden, d_out]
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=bias_out or i < hidden) for i, (a, b) in enumerate(pairwise(sizes))
        )

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return next(self.parameters()).dtype

    def forward(self, x: Float[Tensor, "*any d_in"]) -> Float[Tensor, "*any d_out"]:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)
