"""Functions of the prior: Gaussian processes with random kernels; and functions that are not in it, for tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.tasks.draws import Draws

Points = Float[Tensor, "n dx"]
Values = Float[Tensor, " n"]

JITTER = 1e-8
"""Added to the diagonal of a covariance of unit variance. In float64 rounding is a thousand times smaller, for any
kernel and up to thousands of points, so that the Cholesky decomposition does not fail."""
STATIONARY = ("se", "matern12", "matern32", "matern52", "rational-quadratic")
PERIODIC = ("periodic", "locally-periodic")
HELD_OUT_KERNELS = ("gamma-exponential", "wendland")


@dataclass(frozen=True)
class Term:
    """A kernel of unit variance.

    Args:
        kind: one of `STATIONARY`, `PERIODIC` or `HELD_OUT_KERNELS`.
        metric: matrix `A` of the distance `r = |A (x - x')|`, in length-scales; with one row, of one direction only.
        wave: vector `w` of the phase `w . (x - x')` of periodic kernels, in periods.
        shape: exponent `alpha` of the rational quadratic, or length-scale of a periodic kernel within its period.
    """

    kind: str
    metric: Float[Tensor, "k dx"]
    wave: Float[Tensor, " dx"]
    shape: float = 1.0

    def covariance(self, x: Points) -> Float[Tensor, "n n"]:
        """The covariance of the function at the points."""
        if self.kind == "periodic":
            return self._periodic(x)
        square = squared_distances(x @ self.metric.mT)
        if self.kind == "locally-periodic":
            return stationary("se", square).mul_(self._periodic(x))
        if self.kind == "rational-quadratic":  # (1 + r^2 / 2 alpha)^-alpha
            return square.div_(2 * self.shape).log1p_().mul_(-self.shape).exp_()
        return stationary(self.kind, square)

    def _periodic(self, x: Points) -> Float[Tensor, "n n"]:
        """`exp(-2 sin^2(pi w . d) / shape^2)`."""
        phase = math.pi * (x @ self.wave)
        return (phase[:, None] - phase).sin_().square_().mul_(-2 / self.shape**2).exp_()


@dataclass(frozen=True)
class InputWarp:
    """A monotone function of each input, `x + sum_k a_k s_k tanh((x - c_k) / s_k)`, scaled to keep the length of the
    unit interval around zero: near `c_k` functions vary faster by up to `1 + a_k`. All have the shape `[2, dx]`."""

    centre: Float[Tensor, "k dx"]
    width: Float[Tensor, "k dx"]
    slope: Float[Tensor, "k dx"]

    @staticmethod
    def draw(dx: int, draws: Draws) -> InputWarp:
        """A random warp."""
        width = 0.05 * 6 ** draws.rand(2, dx)
        return InputWarp(draws.rand(2, dx) - 0.5, width, 0.3 * 20 ** draws.rand(2, dx))

    def __call__(self, u: Points) -> Points:
        edge = torch.full_like(u[:1], 0.5)
        low, high, warped = (self._unscaled(v) for v in (-edge, edge, u))
        return (warped - low) / (high - low) - 0.5

    def _unscaled(self, u: Points) -> Points:
        return u + (self.slope * self.width * torch.tanh((u[:, None] - self.centre) / self.width)).sum(1)


@dataclass(frozen=True)
class GaussianFunction:
    """A Gaussian process with one kernel, or with the weighted sum or the product of two."""

    terms: tuple[Term, ...]
    combination: Literal["single", "sum", "product"] = "single"
    weight: float = 0.5

    def covariance(self, x: Points) -> Float[Tensor, "n n"]:
        """The covariance of the function at the points, of unit variance."""
        first = self.terms[0].covariance(x)
        if self.combination == "single":
            return first
        second = self.terms[1].covariance(x)
        if self.combination == "product":
            return first.mul_(second)
        return first.mul_(self.weight).add_(second, alpha=1 - self.weight)

    def sample(self, x: Points, draws: Draws) -> Values:
        """Values of one sample at the points."""
        covariance = self.covariance(x)
        covariance.diagonal().add_(JITTER)
        return torch.linalg.cholesky(covariance) @ draws.randn(len(x))


def stationary(kind: str, square: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """A kernel of the squared distance in length-scales, which is overwritten; some are in `gp_kernels`, too, for any
    displacement, where they are three times slower."""
    if kind == "se":
        return square.mul_(-0.5).exp_()
    r = square.sqrt_()
    if kind == "matern12":
        return r.neg_().exp_()
    if kind == "matern32":
        r.mul_(math.sqrt(3))
        return torch.exp(-r).mul_(r.add_(1))
    if kind == "matern52":
        r.mul_(math.sqrt(5))
        decay = torch.exp(-r)
        return r.square().div_(3).add_(r).add_(1).mul_(decay)
    if kind == "gamma-exponential":
        return r.pow_(1.3).neg_().exp_()
    if kind == "wendland":  # of smoothness C2, positive definite for up to three inputs; zero from r = 1
        return (1 - r).clamp_(min=0).square_().square_().mul_(r.mul_(4).add_(1))
    raise ValueError(f"There is no stationary kernel named {kind!r}.")


def squared_distances(z: Float[Tensor, "n k"]) -> Float[Tensor, "n n"]:
    """Squared Euclidean distances between all points."""
    if z.shape[1] == 1:
        return (z - z.mT).square_()
    square = z.square().sum(1)
    return torch.addmm(square, z, z.mT, alpha=-2).add_(square[:, None]).clamp_(min=0).fill_diagonal_(0)


def step_function(u: Points, draws: Draws) -> Values:
    """A piecewise constant function on the unit cube around zero, cut by one to six random hyperplanes, half of the
    time along the inputs; the cells have independent values."""
    cuts, dx = draws.whole(1, 6), u.shape[1]
    if draws.chance(0.5):
        normals = torch.eye(dx, dtype=u.dtype)[torch.randint(dx, (cuts,), generator=draws.generator)]
    else:
        normals = torch.nn.functional.normalize(draws.randn(cuts, dx), dim=1)
    through = draws.rand(cuts, dx) - 0.5
    side = (u @ normals.mT > (normals * through).sum(1)).long()
    return draws.randn(2**cuts)[(side * 2 ** torch.arange(cuts)).sum(1)]


def oscillations(u: Points, draws: Draws) -> Values:
    """One to three waves around random centres in the unit cube around zero, damped with the distance from them."""
    total = torch.zeros(len(u), dtype=u.dtype)
    for _ in range(draws.whole(1, 3)):
        r = torch.linalg.vector_norm(u - (draws.rand(u.shape[1]) - 0.5), dim=1)
        period, decay = draws.log_uniform(0.1, 0.5), draws.log_uniform(0.2, 1.0)
        wave = torch.cos(2 * math.pi * (r / period + draws.uniform()))
        total += draws.uniform(0.3, 1.0) * torch.exp(-r / decay) * wave
    return total
