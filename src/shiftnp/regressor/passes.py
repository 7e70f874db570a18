"""Forward passes of the pretrained model over many contexts at once."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.likelihoods import components_of
from shiftnp.models import NeuralProcess
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.standardise import moments

TOKENS = 1 << 11
"""Context points and targets in one pass; more would not fit into the processor's cache."""
TARGETS = 1 << 10
"""Targets of a context that are decoded at once."""


@torch.no_grad()
def predict_rows(
    model: NeuralProcess,
    xc: Float[Tensor, "b nc dx"],
    yc: Float[Tensor, "b nc"],
    xt: Float[Tensor, "b nt dx"],
    floor: Float[Tensor, " b"],
) -> Mixture:
    """Predictions `[b, nt]` of `b` data sets, each standardised by its own context, in the units of `yc`.

    Args:
        yc: outputs; NaN where there is none, also in padding.
        floor: lower bound of the standard deviation that a data set is divided by.
    """
    device, dtype = next(model.parameters()).device, model.dtype
    mean, std = moments(yc, floor)
    parts = []
    size = max(1, TOKENS // (xc.shape[1] + min(xt.shape[1], TARGETS)))
    y = ((yc - mean[:, None]) / std[:, None])[..., None]
    for i in range(0, len(xc), size):
        x, z, t = (a[i : i + size].to(device=device, dtype=dtype) for a in (xc, y, xt))
        encoded = model.encode(x, z)
        # Without targets the chunk is empty, which gives a prediction of size zero.
        decoded = [components_of(model.decode(encoded, chunk)) for chunk in t.split(TARGETS, dim=1)]
        parts.append([torch.cat([part[field] for part in decoded], 1) for field in range(3)])
    weight, means, stds = (torch.cat([p[field] for p in parts]).cpu().double() for field in range(3))
    means, stds = means[..., 0] * std[:, None, None] + mean[:, None, None], stds[..., 0] * std[:, None, None]
    return Mixture(weight / weight.sum(-1, keepdim=True), means, stds)


def tensor(a: np.ndarray) -> Tensor:
    """An array as a float64 tensor."""
    return torch.from_numpy(np.ascontiguousarray(a, dtype=np.float64))
