"""Stationary covariance functions of unit variance, as functions of a displacement and a length-scale. A new one is one
function and one line in `COVARIANCES`."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

Displacement = Float[Tensor, "*any dx"]
Length = Float[Tensor, "*any"]
Covariance = Float[Tensor, "*any"]


def scaled_distance(d: Displacement, length: Length) -> Covariance:
    """`|d| / l`; in one dimension without the slow square root."""
    return (d[..., 0].abs() if d.shape[-1] == 1 else torch.linalg.vector_norm(d, dim=-1)) / length


def squared_exponential(d: Displacement, length: Length) -> Covariance:
    """`exp(-|d|^2 / 2 l^2)`."""
    return torch.exp(-0.5 * scaled_distance(d, length).square())


def periodic(d: Displacement, length: Length) -> Covariance:
    """`exp(-2 sum_i sin^2(pi d_i / l))`."""
    return torch.exp(-2 * torch.sin(math.pi * d / length[..., None]).square().sum(-1))


def matern12(d: Displacement, length: Length) -> Covariance:
    """`exp(-r)` with `r = |d| / l`."""
    return torch.exp(-scaled_distance(d, length))


def matern32(d: Displacement, length: Length) -> Covariance:
    """`(1 + r) exp(-r)` with `r = sqrt(3) |d| / l`."""
    r = math.sqrt(3) * scaled_distance(d, length)
    return (1 + r) * torch.exp(-r)


def matern52(d: Displacement, length: Length) -> Covariance:
    """`(1 + r + r^2 / 3) exp(-r)` with `r = sqrt(5) |d| / l`."""
    r = math.sqrt(5) * scaled_distance(d, length)
    return (1 + r + r.square() / 3) * torch.exp(-r)


COVARIANCES = {
    "se": squared_exponential,
    "periodic": periodic,
    "matern12": matern12,
    "matern32": matern32,
    "matern52": matern52,
}
