"""Forward passes of the pretrained model over many contexts at once."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.likelihoods import components_of
from shiftnp.models import NeuralProcess
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.standardise import moments
from shiftnp.regressor.trend import fit_trend

TOKENS = 1 << 11
"""Context points and targets in one pass; more would not fit into the processor's cache."""
TARGETS = 1 << 10
"""Targets of a context that are decoded at once."""
VARIANTS = ((1, 1), (-1, -1), (1, -1), (-1, 1))
"""Signs of inputs and outputs in the variants of a data set; where they differ, inputs are in reverse order, too."""


@torch.no_grad()
def predict_rows(
    model: NeuralProcess,
    xc: Float[Tensor, "b nc dx"],
    yc: Float[Tensor, "b nc"],
    xt: Float[Tensor, "b nt dx"],
    floor: Float[Tensor, " b"],
    variants: int = 1,
    degree: Int[Tensor, " b"] | None = None,
) -> Mixture:
    """Predictions `[b, nt]` of `b` data sets, each standardised by its own context, in the units of `yc`.

    Args:
        yc: outputs; NaN where there is none, also in padding.
        floor: lower bound of the standard deviation that a data set is divided by.
        variants: 1, 2 or 4: predictions are the mixture of those of as many variants of a data set, with inputs or
            outputs reflected and inputs exchanged. They would be equal for a perfect model.
        degree: degree of the trend that is removed from each data set, see `fit_trend`; None: no trend.
    """
    if variants > 1:
        parts = []
        for sx, sy in VARIANTS[:variants]:
            x, t = (a * sx if sx == sy else a.flip(-1) * sx for a in (xc, xt))
            part = predict_rows(model, x, sy * yc, t, floor, 1, degree)
            parts.append(Mixture(part.weight / variants, sy * part.means, part.stds))
        return Mixture(*(torch.cat(fields, -1) for fields in zip(*parts, strict=True)))
    if degree is not None and bool(degree.any()):
        trend = fit_trend(xc, yc, degree)
        floor = floor * (trend.spread / moments(yc)[1]).where(degree > 0, 1.0)  # of what the trend leaves
        part = predict_rows(model, xc, yc - trend.at(xc)[0], xt, floor)
        level, doubt = (a[..., None] for a in trend.at(xt))
        return Mixture(part.weight, part.means + level, torch.hypot(part.stds, doubt))
    device, dtype = next(model.parameters()).device, model.dtype
    mean, std = moments(yc, floor)
    pieces = []
    size = max(1, TOKENS // (xc.shape[1] + min(xt.shape[1], TARGETS)))
    y = ((yc - mean[:, None]) / std[:, None])[..., None]
    for i in range(0, len(xc), size):
        x, z, t = (a[i : i + size].to(device=device, dtype=dtype) for a in (xc, y, xt))
        encoded = model.encode(x, z)
        # Without targets the chunk is empty, which gives a prediction of size zero.
        decoded = [components_of(model.decode(encoded, chunk)) for chunk in t.split(TARGETS, dim=1)]
        pieces.append([torch.cat([part[field] for part in decoded], 1) for field in range(3)])
    weight, means, stds = (torch.cat([p[field] for p in pieces]).cpu().double() for field in range(3))
    means, stds = means[..., 0] * std[:, None, None] + mean[:, None, None], stds[..., 0] * std[:, None, None]
    return Mixture(weight / weight.sum(-1, keepdim=True), means, stds)


def tensor(a: np.ndarray) -> Tensor:
    """An array as a float64 tensor."""
    return torch.from_numpy(np.ascontiguousarray(a, dtype=np.float64))
