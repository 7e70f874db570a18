"""Regression on samples of Gaussian processes (the paper's synthetic task), and its exact answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, Normal
from torch.nn.utils.rnn import pad_sequence

from shiftnp.batch import Batch
from shiftnp.tasks.base import Task, TestSet
from shiftnp.tasks.gp_kernels import KERNELS


class Truth(NamedTuple):
    """What each data set of a batch was drawn from."""

    kernel: Int[Tensor, " b"]  # index into the task's `kernels`
    length: Float[Tensor, "b parts"]  # one length-scale for each term of a sum of kernels


@dataclass(frozen=True)
class GPTask(Task):
    """Samples of a Gaussian process whose kernel and length-scale are drawn anew for every data set.

    `log l ~ U(log length[0], log length[1])`, `x_c ~ U(context)`, `x_t ~ U(target)` in every dimension, both moved by
    `shift`; every observation has noise. The number of context points is drawn once a batch.

    Args:
        dx: number of inputs.
        kernels: which of "se", "periodic", "matern12", "matern32", "matern52", with equal odds. "se+periodic" is a
            sum, scaled to unit variance, whose terms have length-scales of their own.
        length: range of length-scales.
        noise: standard deviation of the observations.
        points: smallest and largest number of context points.
        targets: number of targets.
        context, target: ranges of inputs.
        bimodal: inputs come from `U(-4, -1)` or `U(1, 4)` instead, with equal odds (the paper's ablation).
        shift: how far all inputs are moved (the paper's Delta).
        train_targets: number of targets in training (None: `targets`), where fewer make a step cheaper; test sets do
            not change.
    """

    dx: int = 1
    kernels: Sequence[str] = ("se", "periodic", "matern52")
    length: tuple[float, float] = (0.25, 4.0)
    noise: float = 0.2
    points: tuple[int, int] = (1, 64)
    targets: int = 128
    context: tuple[float, float] = (-2.0, 2.0)
    target: tuple[float, float] = (-3.0, 3.0)
    bimodal: bool = False
    shift: float = 0.0
    train_targets: int | None = field(default=None, repr=False)  # no part of what test sets are known by

    dy = 1

    def __post_init__(self) -> None:
        if isinstance(self.kernels, str) or not self.kernels:
            raise ValueError(f"kernels must be a tuple of names, got {self.kernels!r}.")
        for kernel in self.kernels:
            for part in kernel.split("+"):
                if part not in KERNELS:
                    raise ValueError(f"kernels must be made of {', '.join(KERNELS)}, got {kernel!r}.")
        if not 0 < self.length[0] <= self.length[1]:
            raise ValueError(f"length must be a range of positive numbers, got {self.length}.")
        if not 0 <= self.points[0] <= self.points[1]:
            raise ValueError(f"points must be a range of counts, got {self.points}.")
        if not 0 < self.noise < math.inf:
            raise ValueError(f"noise must be positive, got {self.noise}.")
        for name, count in (("dx", self.dx), ("targets", self.targets), ("train_targets", self.train_targets)):
            if not (isinstance(count, int) and count >= 1) and not (name == "train_targets" and count is None):
                raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}.")
        for name, span in (("context", self.context), ("target", self.target)):
            if not span[0] < span[1]:
                raise ValueError(f"{name} must be a range, the smaller number first, got {span}.")

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        return self.sample_with_truth(batch_size, generator)[0]

    def sample_with_truth(self, batch_size: int, generator: torch.Generator) -> tuple[Batch, Truth]:
        """A batch and what it was drawn from."""

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)

        def places(span: tuple[float, float], n: int) -> Tensor:
            shape = (batch_size, n, self.dx)
            if not self.bimodal:
                return uniform(*span, *shape)
            side = torch.randint(2, shape, generator=generator) * 2 - 1
            return side * uniform(1, 4, *shape)

        nc = int(torch.randint(self.points[0], self.points[1] + 1, (), generator=generator))
        parts = max(kernel.count("+") for kernel in self.kernels) + 1
        truth = Truth(
            kernel=torch.randint(len(self.kernels), (batch_size,), generator=generator),
            length=uniform(math.log(self.length[0]), math.log(self.length[1]), batch_size, parts).exp(),
        )
        x = torch.cat([places(self.context, nc), places(self.target, self.train_targets or self.targets)], 1)
        cov = self.covariance(x, x, truth)
        cov.diagonal(dim1=1, dim2=2).add_(self.noise**2)
        white = torch.randn(*x.shape[:2], 1, generator=generator, dtype=x.dtype)
        y = torch.linalg.cholesky(cov) @ white
        x, y = (x + self.shift).float(), y.float()
        return Batch(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:]), truth

    def covariance(
        self, x1: Float[Tensor, "b n dx"], x2: Float[Tensor, "b m dx"], truth: Truth
    ) -> Float[Tensor, "b n m"]:
        """Prior covariance of the functions, without noise."""
        out = x1.new_empty(len(x1), x1.shape[1], x2.shape[1])
        for i, kernel in enumerate(self.kernels):
            rows = (truth.kernel == i).nonzero()[:, 0]
            d = x1[rows, :, None] - x2[rows, None, :]
            terms = kernel.split("+")
            out[rows] = sum(
                KERNELS[term](d, truth.length[rows, j, None, None].expand(d.shape[:-1])) for j, term in enumerate(terms)
            ) / len(terms)
        return out

    def test_sets(self) -> dict[str, TestSet]:
        """`valid`, and `delta-0.0` to `delta-1.0`: the same data sets, moved ever farther."""
        base = replace(self, shift=0.0, train_targets=None)
        deltas = {f"delta-{i / 5:.1f}": TestSet(replace(base, shift=i / 5), seed=1, tasks=1024) for i in range(6)}
        return {"valid": TestSet(base, seed=2, tasks=256), **deltas}

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        from shiftnp.plots.curves import draw_field, draw_task

        figure = Figure(figsize=(7, 3.5) if self.dx == 1 else (9, 3), layout="constrained")
        if self.dx == 1:
            exact = None
            if not any("+" in kernel for kernel in self.kernels):
                exact = BayesOptimal(self, gaussian=True)(batch.xc, batch.yc, batch.xt, batch.mask_c)
            draw_task(figure, batch, prediction, index, exact)
        else:
            draw_field(figure, batch, prediction, index)
        return figure


def condition(
    kcc: Float[Tensor, "*any nc nc"],
    kct: Float[Tensor, "*any nc nt"],
    yc: Float[Tensor, "*any nc 1"],
    noise: float,
    mask: Bool[Tensor, "*any nc"] | None = None,
) -> tuple[Float[Tensor, "*any nt"], Float[Tensor, "*any nt"], Float[Tensor, "*any"]]:
    """Gaussian conditioning for a prior variance of one: predictive mean and variance of noisy targets, and the log
    marginal likelihood of the context. Context points that are not there have no covariance with anything."""
    if mask is not None:
        both = mask[..., :, None] & mask[..., None, :]
        kcc, kct, yc = kcc.where(both, 0.0), kct.where(mask[..., None], 0.0), yc.where(mask[..., None], 0.0)
        there = mask.to(kcc.dtype)
        diagonal = noise**2 * there + (1 - there)
    else:
        diagonal = kcc.new_full(kcc.shape[:-1], noise**2)
    root = torch.linalg.cholesky(kcc + torch.diag_embed(diagonal))
    a = torch.linalg.solve_triangular(root, torch.cat([kct, yc], -1), upper=False)
    gain, white = a[..., :-1], a[..., -1:]
    mean = (gain.mT @ white)[..., 0]
    variance = 1 + noise**2 - gain.square().sum(-2)
    count = yc.shape[-2] if mask is None else mask.sum(-1)
    log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    evidence = -0.5 * white.square().sum((-2, -1)) - log_det - 0.5 * math.log(2 * math.pi) * count
    return mean, variance, evidence


@dataclass(frozen=True)
class GPOracle:
    """The predictor that knows kernel and length-scale of every data set. Same contract as a model."""

    task: GPTask
    truth: Truth

    def __call__(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc 1"],
        xt: Float[Tensor, "b nt dx"],
        mask: Bool[Tensor, "b nc"] | None = None,
    ) -> Distribution:
        if yc.isnan().any():
            mask = ~yc.isnan()[..., 0] if mask is None else mask & ~yc.isnan()[..., 0]
        xc, yc, xt = xc.double(), yc.double(), xt.double()
        kcc, kct = (self.task.covariance(xc, x, self.truth) for x in (xc, xt))
        mean, variance, _ = condition(kcc, kct, yc, self.task.noise, mask)
        return Independent(Normal(mean[..., None], variance.sqrt()[..., None]), 1)


@dataclass(frozen=True)
class BayesOptimal:
    """The best predictor there can be: the posterior given the context, integrated over kernel and length-scale.

    Midpoint rule over the length-scale, each node weighted by prior and marginal likelihood of the context. Nodes are
    even in `log l`, those of the periodic kernel in `1 / l` and many more: with 64 points over 16 periods the context
    fixes the period to a thousandth, and a rule of 80 nodes steps over it. Converged for the default ranges and noise;
    with far less noise or shorter periods, take more nodes. Same contract as a model.

    Args:
        task: whose kernels, length-scales and noise it knows.
        gaussian: return the Gaussian with the mixture's mean and variance, the best that a Gaussian likelihood can do.
        nodes, periodic_nodes: number of length-scales of each kernel, and of the periodic one.
    """

    task: GPTask
    gaussian: bool = False
    nodes: int = 80
    periodic_nodes: int = 1500

    def __post_init__(self) -> None:
        if any("+" in kernel for kernel in self.task.kernels):
            raise ValueError("BayesOptimal integrates over one length-scale and has none for sums of kernels.")

    def __call__(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc 1"],
        xt: Float[Tensor, "b nt dx"],
        mask: Bool[Tensor, "b nc"] | None = None,
    ) -> Distribution:
        """A distribution of batch shape `[b, nt]` and event shape `[1]`, in float64."""
        there = ~yc.isnan()[..., 0] if mask is None else mask & ~yc.isnan()[..., 0]
        each = [self._predict(xc[i, m].double(), yc[i, m].double(), xt[i].double()) for i, m in enumerate(there)]
        mean, variance, logits = (pad_sequence(list(t), batch_first=True) for t in zip(*each, strict=True))
        count = torch.tensor([len(logit) for _, _, logit in each], device=xc.device)
        padding = torch.arange(logits.shape[1], device=xc.device) >= count[:, None]
        logits = logits.masked_fill(padding, -math.inf)[:, None].expand(-1, xt.shape[1], -1)
        mean, variance = mean.mT, variance.masked_fill(padding[..., None], 1.0).mT
        parts = Independent(Normal(mean[..., None], variance.sqrt()[..., None]), 1)
        mixture = MixtureSameFamily(Categorical(logits=logits), parts)
        return self.moments(mixture) if self.gaussian else mixture

    @staticmethod
    def moments(mixture: Distribution) -> Distribution:
        """The Gaussian with the same mean and variance."""
        return Independent(Normal(mixture.mean, mixture.stddev), 1)

    def quadrature(self, kernel: str) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Length-scales of one kernel and the logarithms of their prior weights, which sum to one."""
        low, high = (float(bound) for bound in self.task.length)
        if kernel == "periodic":
            middle = (torch.arange(self.periodic_nodes, dtype=torch.float64) + 0.5) / self.periodic_nodes
            frequency = 1 / high + (1 / low - 1 / high) * middle
            return 1 / frequency, (1 / frequency).log().log_softmax(0)  # d log l = df / f
        middle = (torch.arange(self.nodes, dtype=torch.float64) + 0.5) / self.nodes
        length = torch.exp(math.log(low) + math.log(high / low) * middle)
        return length, torch.full_like(length, -math.log(self.nodes))

    def _predict(
        self, xc: Float[Tensor, "nc dx"], yc: Float[Tensor, "nc 1"], xt: Float[Tensor, "nt dx"]
    ) -> tuple[Float[Tensor, "k nt"], Float[Tensor, "k nt"], Float[Tensor, " k"]]:
        """Means, variances and log-weights of the nodes that matter, for one data set."""
        nodes = {kernel: self.quadrature(kernel) for kernel in self.task.kernels}
        logits = {}
        for kernel, (length, prior) in nodes.items():
            *_, evidence = self._condition(kernel, length, xc, yc, xt[:0])
            logits[kernel] = prior + evidence
        worth = torch.cat(list(logits.values())).max() - 16  # what is left out weighs less than 1e-3 in all
        kept = []
        for kernel, (length, _) in nodes.items():
            keep = logits[kernel] > worth
            mean, variance, _ = self._condition(kernel, length[keep], xc, yc, xt)
            kept.append((mean, variance, logits[kernel][keep]))
        mean, variance, logit = (torch.cat(t) for t in zip(*kept, strict=True))
        return mean, variance, logit

    def _condition(
        self,
        kernel: str,
        length: Float[Tensor, " n"],
        xc: Float[Tensor, "nc dx"],
        yc: Float[Tensor, "nc 1"],
        xt: Float[Tensor, "nt dx"],
    ) -> tuple[Float[Tensor, "n nt"], Float[Tensor, "n nt"], Float[Tensor, " n"]]:
        length = length.to(xc.device)
        d = (xc[:, None] - torch.cat([xc, xt])).expand(len(length), -1, -1, -1)
        cov = KERNELS[kernel](d, length[:, None, None].expand(d.shape[:-1]))
        kcc, kct = cov.split([len(xc), len(xt)], dim=-1)
        return condition(kcc, kct, yc.expand(len(length), -1, -1), self.task.noise)
