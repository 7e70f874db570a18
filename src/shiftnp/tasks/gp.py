"""One-dimensional regression on samples of Gaussian processes (the paper, appendix on synthetic 1-D regression)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from shiftnp.batch import Batch
from shiftnp.typing import Real


def squared_exponential(d: Tensor, length: Tensor) -> Tensor:
    """`exp(-d^2 / 2 l^2)`."""
    return torch.exp(-0.5 * (d / length).square())


def periodic(d: Tensor, length: Tensor) -> Tensor:
    """`exp(-2 sin^2(pi d / l))`."""
    return torch.exp(-2 * torch.sin(math.pi * d / length).square())


def matern52(d: Tensor, length: Tensor) -> Tensor:
    """`(1 + r + r^2 / 3) exp(-r)` with `r = sqrt(5) |d| / l`."""
    r = math.sqrt(5) * d.abs() / length
    return (1 + r + r.square() / 3) * torch.exp(-r)


KERNELS = {"se": squared_exponential, "periodic": periodic, "matern52": matern52}


class Truth(NamedTuple):
    """What each task of a batch was drawn from."""

    kernel: Int[Tensor, " b"]  # index into the task's `kernels`
    length: Float[Tensor, " b"]


@dataclass(frozen=True)
class GPTask:
    """Samples of a Gaussian process whose kernel and length-scale are drawn anew for every task.

    `log l ~ U(log length[0], log length[1])`, `x_c ~ U(context)`, `x_t ~ U(target)`, both moved by `shift`; every
    observation has noise. The number of context points is drawn once a batch.

    Args:
        kernels: which of "se", "periodic" and "matern52", with equal odds.
        length: range of length-scales.
        noise: standard deviation of the observations.
        points: smallest and largest number of context points.
        targets: number of targets.
        context, target: ranges of inputs.
        shift: how far both are moved (the paper's Delta).
    """

    kernels: Sequence[str] = ("se", "periodic", "matern52")
    length: tuple[Real, Real] = (0.25, 4.0)
    noise: Real = 0.2
    points: tuple[int, int] = (1, 64)
    targets: int = 128
    context: tuple[Real, Real] = (-2.0, 2.0)
    target: tuple[Real, Real] = (-3.0, 3.0)
    shift: Real = 0.0

    dx = 1
    dy = 1

    def __post_init__(self) -> None:
        for kernel in self.kernels:
            if kernel not in KERNELS:
                raise ValueError(f"kernels must be among {', '.join(KERNELS)}, got {kernel!r}.")

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        return self.sample_with_truth(batch_size, generator)[0]

    def sample_with_truth(self, batch_size: int, generator: torch.Generator) -> tuple[Batch, Truth]:
        """A batch, in float32, and what it was drawn from."""

        def uniform(low: Real, high: Real, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)

        nc = int(torch.randint(self.points[0], self.points[1] + 1, (), generator=generator))
        truth = Truth(
            kernel=torch.randint(len(self.kernels), (batch_size,), generator=generator),
            length=uniform(math.log(self.length[0]), math.log(self.length[1]), batch_size).exp(),
        )
        x = torch.cat(
            [uniform(*self.context, batch_size, nc, 1), uniform(*self.target, batch_size, self.targets, 1)], 1
        )
        cov = self.covariance(x, x, truth) + self.noise**2 * torch.eye(x.shape[1], dtype=x.dtype)
        white = torch.randn(*x.shape, generator=generator, dtype=x.dtype)
        y = torch.linalg.cholesky(cov) @ white
        x, y = (x + self.shift).float(), y.float()
        return Batch(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:]), truth

    def covariance(
        self, x1: Float[Tensor, "b n 1"], x2: Float[Tensor, "b m 1"], truth: Truth
    ) -> Float[Tensor, "b n m"]:
        """Prior covariance of the functions (without noise)."""
        d = x1 - x2.mT
        length = truth.length[:, None, None]
        each = torch.stack([KERNELS[k](d, length) for k in self.kernels])
        return each[truth.kernel, torch.arange(len(d))]

    def posterior(
        self, xc: Float[Tensor, "b nc 1"], yc: Float[Tensor, "b nc 1"], xt: Float[Tensor, "b nt 1"], truth: Truth
    ) -> Distribution:
        """The exact predictive distribution, noise included, for one who knows the kernel and the length-scale."""
        xc, yc, xt = xc.double(), yc.double(), xt.double()
        kcc = self.covariance(xc, xc, truth) + self.noise**2 * torch.eye(xc.shape[1], dtype=xc.dtype)
        root = torch.linalg.cholesky(kcc)
        kct = self.covariance(xc, xt, truth)
        a = torch.linalg.solve_triangular(root, kct, upper=False)
        mean = a.mT @ torch.linalg.solve_triangular(root, yc, upper=False)
        variance = 1 + self.noise**2 - a.square().sum(1)[..., None]
        return Independent(Normal(mean, variance.sqrt()), 1)
