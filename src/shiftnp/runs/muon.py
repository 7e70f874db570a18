"""The Muon optimiser: momentum whose update of a matrix is made orthogonal, beside AdamW for all other parameters.

Muon is by Jordan et al. (2024). As by Liu et al. (2025), an update does not depend on the shape of the matrix: the root
mean square of its entries is the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the iteration, by Jordan et al.: after five of them singular values are between 0.7 and 1.2."""
SMALLEST = 16
"""Matrices with fewer rows or columns, such as the first layer of an MLP of the inputs, are left to AdamW."""
EPSILON = 1e-7
"""Added to the norm of a matrix, so that a layer without a gradient stops, as its momentum falls towards zero."""


class Muon(torch.optim.Optimizer):
    """Muon for hidden matrices, AdamW for the other parameters. Both have the same learning rate and weight decay.

    Args:
        matrices: parameters with two dimensions. Those of one shape are orthogonalised in one batch.
        others: all other parameters.
    """

    def __init__(self, matrices: Iterable[Tensor], others: Iterable[Tensor], lr: float, weight_decay: float) -> None:
        super().__init__([{"params": list(matrices)}], {"lr": lr, "weight_decay": weight_decay})
        self.adamw = torch.optim.AdamW([{"params": list(others)}], lr=lr, weight_decay=weight_decay, fused=True)
        self.adamw.state = self.state  # one state and one list of groups, as of any optimiser
        self.param_groups.extend(self.adamw.param_groups)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update; `closure` is not used."""
        self.adamw.step()
        group = self.param_groups[0]
        shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for p in group["params"]:
            if p.grad is not None:
                moment = self.state[p].setdefault("exp_avg", torch.zeros_like(p)).lerp_(p.grad, 1 - MOMENTUM)
                shapes.setdefault(p.shape, []).append((p, p.grad.lerp(moment, MOMENTUM)))  # Nesterov's
        for shape, same in shapes.items():
            directions = orthogonal(torch.stack([ahead for _, ahead in same]))
            distance = group["lr"] * math.sqrt(max(shape))
            for (p, _), direction in zip(same, directions, strict=True):
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=distance)


def orthogonal(matrices: Float[Tensor, "n rows columns"], steps: int = 5) -> Float[Tensor, "n rows columns"]:
    """Each matrix with singular values near one and the same singular vectors, by Newton-Schulz iterations; near zero
    if its norm is far below `EPSILON`."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT, steps).mT
    a, b, c = NEWTON_SCHULZ
    x = matrices / (matrices.flatten(1).norm(dim=1)[:, None, None] + EPSILON)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """Weights of linear layers between hidden representations: not those of the decoder, whose last layer gives the
    prediction, nor those with fewer than `SMALLEST` inputs or outputs."""
    decoder = {id(p) for p in model.get_submodule("decoder").parameters()}
    weights = [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]
    return [w for w in weights if min(w.shape) >= SMALLEST and id(w) not in decoder]
