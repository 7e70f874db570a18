"""Exact predictors for `GPTask`: the oracle, which knows kernel and length-scale, and the Bayesian posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, Normal
from torch.nn.utils.rnn import pad_sequence

from shiftnp.tasks.gp import GPTask, Truth
from shiftnp.tasks.gp_kernels import COVARIANCES


def condition(
    kcc: Float[Tensor, "*any nc nc"],
    kct: Float[Tensor, "*any nc nt"],
    yc: Float[Tensor, "*any nc 1"],
    noise: float,
    mask: Bool[Tensor, "*any nc"] | None = None,
) -> tuple[Float[Tensor, "*any nt"], Float[Tensor, "*any nt"], Float[Tensor, "*any"]]:
    """Gaussian conditioning for a prior variance of one: predictive mean and variance of noisy targets, and the log
    marginal likelihood of the context. Masked context points have no covariance with any other point."""
    if mask is not None:
        both = mask[..., :, None] & mask[..., None, :]
        kcc, kct, yc = kcc.where(both, 0.0), kct.where(mask[..., None], 0.0), yc.where(mask[..., None], 0.0)
        present = mask.to(kcc.dtype)
        diagonal = noise**2 * present + (1 - present)
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
    """The exact posterior given the true kernel and length-scale of every data set. It is called like a model."""

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
    """The best possible predictor: the posterior given the context, integrated over kernel and length-scale. It is
    called like a model.

    Midpoint rule over the length-scale, each node weighted by prior and marginal likelihood of the context. Nodes are
    evenly spaced in `log l`. The periodic kernel has many more, evenly spaced in `1 / l`: 64 points over 16 periods
    determine the period to a thousandth, which can fall between two nodes of a rule with 80. The rule has converged
    for the default ranges and noise; far less noise or shorter periods need more nodes.

    Args:
        task: the task, with kernels, range of length-scales and noise.
        gaussian: return the Gaussian with the mixture's mean and variance, which has the highest expected
            log-likelihood of all Gaussians.
        nodes, periodic_nodes: number of quadrature nodes of each kernel, and of the periodic one.
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
        present = ~yc.isnan()[..., 0] if mask is None else mask & ~yc.isnan()[..., 0]
        each = [self._predict(xc[i, m].double(), yc[i, m].double(), xt[i].double()) for i, m in enumerate(present)]
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
        """Quadrature nodes (length-scales) of one kernel and their log prior weights; the weights sum to one."""
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
        """Means, variances and log-weights of the nodes that are not negligible, for one data set."""
        nodes = {kernel: self.quadrature(kernel) for kernel in self.task.kernels}
        logits = {}
        for kernel, (length, prior) in nodes.items():
            *_, evidence = self._condition(kernel, length, xc, yc, xt[:0])
            logits[kernel] = prior + evidence
        threshold = torch.cat(list(logits.values())).max() - 16  # the nodes left out have a total weight below 1e-3
        kept = []
        for kernel, (length, _) in nodes.items():
            keep = logits[kernel] > threshold
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
        cov = COVARIANCES[kernel](d, length[:, None, None].expand(d.shape[:-1]))
        kcc, kct = cov.split([len(xc), len(xt)], dim=-1)
        return condition(kcc, kct, yc.expand(len(length), -1, -1), self.task.noise)
