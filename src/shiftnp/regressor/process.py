"""A Gaussian process whose kernel is the sum of a smooth one (Matern 5/2) and a rough one (Matern 1/2), each with one
length-scale per input.

Length-scales, the variance of the rough part and noise are fitted once, to at most `MOST` observations, by the marginal
likelihood with a weak prior: first without the rough part, then with it, if that is better. Level and variance of the
function have a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.regressor.passes import tensor

MOST, LEAST = 192, 12
"""Observations that the parameters are fitted to: half of them around one of them, so that short length-scales are
seen, the rest anywhere. With fewer than `LEAST` there is no process."""
JITTER = 1e-10
"""Added to the noise."""
SMALLEST = 1e-6
"""Lower bound of a standard deviation, as a fraction of that of all outputs."""
FEW = 128
"""Observations on which starts of the optimiser are compared, at most."""
STARTS = [(rate, noise) for rate in (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0) for noise in (-7.0, -4.0, -1.0)]
"""Logarithms of inverse length-scale and noise to start from; the best is improved."""
ROUGH = [(shift, variance) for shift in (-1.5, 0.0, 1.5) for variance in (-2.0, 0.0)]
"""Starts of the rough part: logarithms of its inverse length-scales in units of the smooth part's, and of its variance.
"""
RATES, VARIANCE, NOISE = (0.0, 3.0), (-1.0, 3.0), (-4.0, 4.0)
"""Prior: mean and standard deviation of the logarithms of inverse length-scales, variance of the rough part, noise."""
STEPS, LONGEST, CLOSE = 30, 2.0, 0.01
"""Steps of the optimiser at most, length of a step at most, and gain of log-likelihood after which it ends."""


class Process(NamedTuple):
    """A fitted Gaussian process.

    Args:
        rates: inverse length-scales of the inputs, of the smooth and the rough part.
        rough: variance of the rough part, in units of that of the smooth one.
        noise: variance of the noise, in the same units.
    """

    rates: Float[np.ndarray, "2 dx"]
    rough: float
    noise: float

    def kernel(self, x: Float[Tensor, "n dx"], z: Float[Tensor, "m dx"]) -> Float[Tensor, "n m"]:
        """Covariances of the function at inputs."""
        smooth, rough = tensor(self.rates)
        found = matern(torch.cdist(x * smooth, z * smooth))
        return found + self.rough * torch.exp(-torch.cdist(x * rough, z * rough)) if self.rough else found

    def predict(
        self, xc: Float[Tensor, "n dx"], yc: Float[Tensor, " n"], xt: Float[Tensor, "m dx"], floor: float
    ) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean and standard deviation of new observations at targets; outputs that are NaN are left out.

        Args:
            floor: lower bound of the standard deviation, for observations that are equal by chance.
        """
        mean, solved, variance = self._condition(xc, yc, xt)
        left = (1 + self.rough + self.noise - solved.square().sum(0)).clamp(min=JITTER)
        return mean, (variance * left).sqrt().clamp(min=floor)

    def sample(
        self,
        xc: Float[Tensor, "n dx"],
        yc: Float[Tensor, " n"],
        xt: Float[Tensor, "m dx"],
        n: int,
        spread: float,
        generator: torch.Generator,
    ) -> Float[Tensor, "functions m"]:
        """`n` functions at targets, with noise; `spread` stretches them about the mean."""
        mean, solved, variance = self._condition(xc, yc, xt)
        covariance = self.kernel(xt, xt) - solved.mT @ solved
        covariance.diagonal().add_(self.noise + JITTER)
        values, vectors = torch.linalg.eigh(covariance)
        root = vectors * (variance * values.clamp(min=0)).sqrt()
        return mean + spread * torch.randn(n, len(xt), generator=generator, dtype=torch.float64) @ root.mT

    def _condition(
        self, xc: Float[Tensor, "n dx"], yc: Float[Tensor, " n"], xt: Float[Tensor, "m dx"]
    ) -> tuple[Float[Tensor, " m"], Float[Tensor, "c m"], Float[Tensor, ""]]:
        """The mean at targets, covariances of observations and targets after the inverse Cholesky factor, and the
        variance of the function."""
        there = ~yc.isnan()
        xc, yc = xc[there], yc[there]
        level, unit = yc.mean(), yc.std(correction=0)
        unit = unit.where(unit > 0, 1.0)
        z, kernel = (yc - level) / unit, self.kernel(xc, xc)
        kernel.diagonal().add_(self.noise + JITTER)
        right = torch.cat([torch.stack([z, torch.ones_like(z)], 1), self.kernel(xc, xt)], 1)
        white = torch.linalg.solve_triangular(cholesky(kernel), right, upper=False)
        white, ones, solved = white[:, 0], white[:, 1], white[:, 2:]
        constant = white @ ones / ones.square().sum()  # the best level, by generalised least squares
        white = white - constant * ones
        mean = level + unit * (constant + white @ solved)
        return mean, solved, unit.square() * white.square().mean()


def cholesky(kernel: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The Cholesky factor of a covariance, with more noise if rounding makes it indefinite."""
    for noise in (0.0, 1e-9, 1e-8, 1e-7):
        kernel.diagonal().add_(noise)
        factor, failed = torch.linalg.cholesky_ex(kernel)
        if not failed:
            return factor
    return torch.linalg.cholesky(kernel)


def squares(x: Float[Tensor, "n dx"], z: Float[Tensor, "m dx"]) -> Float[Tensor, "n m dx"]:
    """Squared differences along each input."""
    return (x[:, None] - z).square()


def matern(distance: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """The Matern 5/2 kernel at distances in units of the length-scale."""
    a = math.sqrt(5) * distance
    return (1 + a + a.square() / 3) * torch.exp(-a)


def fit_process(x: Float[np.ndarray, "n dx"], y: Float[np.ndarray, " n"], seed: int) -> Process | None:
    """The process of the highest marginal likelihood; None for outputs that are too few or equal."""
    there = np.flatnonzero(~np.isnan(y))
    if len(there) < LEAST or not y[there].std() > 0:
        return None
    rng = np.random.default_rng(seed)
    if len(there) > MOST:
        centre = x[there[rng.integers(len(there))]]
        order = np.argsort(((x[there] - centre) ** 2).sum(1), kind="stable")
        far = rng.permutation(order[MOST // 2 :])[: MOST - MOST // 2]
        there = there[np.concatenate([order[: MOST // 2], far])]
    differences = squares(tensor(x[there]), tensor(x[there]))
    z = tensor((y[there] - y[there].mean()) / y[there].std())
    few = slice(None, None, -(-len(there) // FEW))

    def best(starts: list[list[float]]) -> tuple[float, Float[Tensor, " p"]]:
        """The minimum of the loss from the best of several starts, and where it is."""
        some = [torch.tensor(start, dtype=torch.float64) for start in starts]
        start = min(some, key=lambda at: loss(at, differences[few, few], z[few])[0])
        found = minimise(lambda at: loss(at, differences, z), start)
        return loss(found, differences, z)[0], found

    dx = x.shape[1]
    alone, smooth = best([[rate] * dx + [noise] for rate, noise in STARTS])
    *rates, noise = smooth.tolist()
    both, found = best([[*rates, *(r + shift for r in rates), variance, noise] for shift, variance in ROUGH])
    if alone <= both:
        return Process(np.exp([rates, rates]), 0.0, float(np.exp(noise)))
    values = found.exp()
    return Process(values[:-2].reshape(2, dx).numpy(), float(values[-2]), float(values[-1]))


def minimise(
    function: Callable[[Float[Tensor, " p"]], tuple[float, Float[Tensor, " p"]]], start: Float[Tensor, " p"]
) -> Float[Tensor, " p"]:
    """The minimum of a function, from its values and gradients, by BFGS; never worse than the start. (Optimisers of
    torch take a second to be imported.)"""
    x, inverse = start, torch.eye(len(start), dtype=torch.float64)
    value, gradient = function(x)
    for _ in range(STEPS):
        step = -inverse @ gradient
        step = step * min(1.0, LONGEST / float(step.norm().clamp(min=1e-300)))
        decrease, length = float(gradient @ step), 1.0
        new, slope = function(x + step)
        while not new <= value + 1e-4 * length * decrease and length > 1e-3:
            length *= 0.4
            new, slope = function(x + length * step)
        if not new <= value + 1e-4 * length * decrease:
            break
        moved, turned, gained = length * step, slope - gradient, value - new
        x, value, gradient = x + moved, new, slope
        if gained < CLOSE:
            break
        curvature = float(moved @ turned)
        if curvature > 1e-10:
            keep = torch.eye(len(x), dtype=torch.float64) - torch.outer(moved, turned) / curvature
            inverse = keep @ inverse @ keep.mT + torch.outer(moved, moved) / curvature
    return x


def loss(
    parameters: Float[Tensor, " p"], differences: Float[Tensor, "n n dx"], y: Float[Tensor, " n"]
) -> tuple[float, Float[Tensor, " p"]]:
    """The negative log density of standardised outputs and parameters, up to a constant, and its gradient.

    Args:
        parameters: logarithms of inverse length-scales of the smooth part, of those and the variance of the rough part
            if there is one, and of the noise. Level and variance of the function are the best ones.
        differences: squared differences of inputs.
    """
    n, dx, noise = len(y), differences.shape[-1], parameters[-1].exp()
    smooth, rough = (2 * parameters[:dx]).exp(), (2 * parameters[dx:-2]).exp()
    a = (5 * (differences @ smooth)).sqrt()
    falling = torch.exp(-a)
    kernel = (1 + a + a.square() / 3) * falling
    if len(rough):
        b = (differences @ rough).sqrt()
        part = parameters[-2].exp() * torch.exp(-b)
        kernel += part
    kernel.diagonal().add_(noise + JITTER)
    factor, failed = torch.linalg.cholesky_ex(kernel)
    if failed:
        return 1e10, torch.zeros_like(parameters)
    solved, ones = torch.cholesky_solve(torch.stack([y, torch.ones_like(y)], 1), factor).unbind(1)
    level = solved.sum() / ones.sum()
    solved = solved - level * ones
    variance = ((y - level) @ solved / n).clamp(min=1e-300)
    prior = [RATES] * dx + ([RATES] * dx + [VARIANCE] if len(rough) else []) + [NOISE]
    centre, width = torch.tensor(prior, dtype=torch.float64).T
    off = (parameters - centre) / width
    value = 0.5 * n * variance.log() + factor.diagonal().log().sum() + 0.5 * off.square().sum()
    by_kernel = 0.5 * (torch.cholesky_inverse(factor) - torch.outer(solved, solved) / variance)
    by_noise = by_kernel.diagonal().sum()[None] * noise
    gradient = [torch.einsum("nm,nmd->d", by_kernel * (1 + a) * falling, differences) * smooth * (-5 / 3), by_noise]
    if len(rough):
        by_part = by_kernel * part
        by_rough = -torch.einsum("nm,nmd->d", by_part / b.where(b > 0, 1.0), differences) * rough
        gradient[1:1] = [by_rough, by_part.sum()[None]]
    return float(value), torch.cat(gradient) + off / width
