"""Gaussian processes fitted to each context set by maximum marginal likelihood (gpytorch), the paper's baselines.

They are called like a model, `baseline(xc, yc, xt, mask) -> Distribution`, and share nothing between data sets.
`baseline.report` counts fits, those that were restarted, those that still failed, and those whose noise ended at its
lower bound, as with few points: their predictions may be arbitrarily overconfident.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from shiftnp._optional import import_optional


def import_gpytorch() -> Any:
    """Imports gpytorch, or raises an ImportError that says how to install it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it still uses torch.jit
        return import_optional("gpytorch", "A Gaussian-process baseline", "gp")


@dataclass
class GPBaseline:
    """A Gaussian process for each output of each data set.

    `k(x, x') = s^2 c(r) + noise` with `r^2 = sum_i (x_i - x'_i)^2 / l_i^2` and a constant mean, all fitted by Adam in
    float64. The covariance function `c` is `exp(-r^2 / 2)`, the paper's, or Matern 5/2.

    Data sets of equal size are fitted as one batch. A fit that fails numerically is restarted alone, from other
    length-scales and with a smaller learning rate, and the best restart is used; if all fail, the last finite
    parameters are. Without data the prediction is a standard normal, as outputs should be standardised.

    Args:
        iterations, learning_rate: settings of Adam (the paper's: 1000 and 0.1).
        batch: largest number of data sets in one fit.
        covariance: "se" (squared exponential) or "matern52".
        report: number of fits so far, by outcome.
    """

    iterations: int = 1000
    learning_rate: float = 0.1
    batch: int = 64
    covariance: str = "se"
    report: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.covariance not in ("se", "matern52"):
            raise ValueError(f"covariance must be 'se' or 'matern52', got {self.covariance!r}.")

    def __call__(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc dy"],
        xt: Float[Tensor, "b nt dx"],
        mask: Bool[Tensor, "b nc"] | None = None,
    ) -> Distribution:
        """A distribution of batch shape `[b, nt]` and event shape `[dy]`, in float64."""
        with torch.inference_mode(False):  # fitting needs gradients, even if the caller has disabled them
            return self._predict(xc.clone(), yc.clone(), xt.clone(), None if mask is None else mask.clone())

    def _predict(self, xc: Tensor, yc: Tensor, xt: Tensor, mask: Tensor | None) -> Distribution:
        observed = ~yc.isnan() if mask is None else ~yc.isnan() & mask[..., None]
        mean = torch.zeros(*xt.shape[:2], yc.shape[-1], dtype=torch.float64, device=xt.device)
        variance = torch.ones_like(mean)
        for fits in self.plan(observed):
            x, y, kind = (torch.stack(t) for t in zip(*(self.gather(xc, yc, observed, *f) for f in fits), strict=True))
            targets = torch.stack([xt[b] for b, _ in fits]).double()
            mu, var = self.fit_and_predict(x, y, kind, targets, outputs=len(range(yc.shape[-1])[fits[0][1]]))
            for i, (b, channels) in enumerate(fits):
                mean[b, :, channels], variance[b, :, channels] = mu[i], var[i]
        return Independent(Normal(mean, variance.sqrt()), 1)

    def plan(self, there: Bool[Tensor, "b nc dy"]) -> list[list[tuple[int, slice]]]:
        """Fits (data set, channels), grouped by number of observations, at most `batch` together."""
        by_size: defaultdict[int, list[tuple[int, slice]]] = defaultdict(list)
        for b in range(len(there)):
            for channels in self.channels(there.shape[-1]):
                by_size[int(there[b, :, channels].sum())].append((b, channels))
        by_size.pop(0, None)
        return [fits[k : k + self.batch] for fits in by_size.values() for k in range(0, len(fits), self.batch)]

    def channels(self, dy: int) -> list[slice]:
        """Groups of outputs that share a Gaussian process: here each output has its own."""
        return [slice(j, j + 1) for j in range(dy)]

    @staticmethod
    def gather(
        xc: Tensor, yc: Tensor, there: Tensor, b: int, channels: slice
    ) -> tuple[Float[Tensor, "n dx"], Float[Tensor, " n"], Int[Tensor, " n"]]:
        """The observations of some channels of one data set: inputs, values, and the channel of each."""
        point, channel = there[b, :, channels].nonzero(as_tuple=True)
        return xc[b, point].double(), yc[b, :, channels][point, channel].double(), channel

    def fit_and_predict(
        self,
        x: Float[Tensor, "r n dx"],
        y: Float[Tensor, "r n"],
        channel: Int[Tensor, "r n"],
        xt: Float[Tensor, "r nt dx"],
        outputs: int,
    ) -> tuple[Float[Tensor, "r nt d"], Float[Tensor, "r nt d"]]:
        """Fits all rows together or, if that fails, one by one; returns predictive means and variances."""
        self.report["fits"] += len(x)
        mean, variance, loss = self.fit(x, y, channel, xt, outputs)
        if len(x) == 1 and not loss.isfinite():
            self.report["restarted"] += 1
            starts = [self.fit(x, y, channel, xt, outputs, rate=0.1, length=length) for length in (0.7, 0.2, 2.0)]
            mean, variance, loss = min(starts, key=lambda s: float(s[2].nan_to_num(torch.inf)))
            self.report["failed"] += int(not loss.isfinite())
        elif not loss.isfinite().all():
            self.report["fits"] -= len(x)
            each = zip(*(t.split(1) for t in (x, y, channel, xt)), strict=True)
            rows = [self.fit_and_predict(a, b, c, t, outputs) for a, b, c, t in each]
            mean, variance = (torch.cat(t) for t in zip(*rows, strict=True))
        return mean, variance

    def fit(
        self, x: Tensor, y: Tensor, channel: Tensor, xt: Tensor, outputs: int, rate: float = 1.0, length: float = 0.7
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Fits with Adam from one start: predictive mean and variance, and final loss, infinite if the fit failed."""
        gpytorch = import_gpytorch()
        likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=x.shape[:1]).to(x)
        with torch.random.fork_rng():  # gpytorch draws some initial values, which are replaced
            model = self.make(gpytorch, likelihood, x, y, channel, outputs, length).to(x)
        errors = import_optional("linear_operator.utils.errors", "A Gaussian-process baseline", "gp")
        singular = torch.linalg.LinAlgError  # type: ignore[attr-defined]
        numerical_errors = (ArithmeticError, singular, errors.NotPSDError, errors.NanError)
        with gpytorch.settings.fast_computations(False, False, False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numerical errors are handled and counted here
            good, final = deepcopy(model.state_dict()), x.new_full((), torch.inf)
            optimiser = torch.optim.Adam(model.parameters(), lr=float(self.learning_rate) * rate)
            evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
            model.train()
            try:
                with torch.enable_grad():
                    for _ in range(self.iterations):
                        optimiser.zero_grad()
                        loss = -evidence(model(*model.train_inputs), y).sum()
                        if not loss.isfinite():
                            raise ArithmeticError
                        good = deepcopy(model.state_dict())
                        loss.backward()
                        optimiser.step()
                final = loss.detach()
            except numerical_errors:
                pass
            model.load_state_dict(good)
            model.eval()
            likelihood.eval()
            with torch.no_grad():
                mean, variance = self.predict(model, likelihood, xt)
            self.report["noise at its floor"] += int((likelihood.noise < 2e-4).sum())
        return mean, variance, final

    def make(
        self, gpytorch: Any, likelihood: Any, x: Tensor, y: Tensor, channel: Tensor, outputs: int, length: float
    ) -> Any:
        """The gpytorch model, with one Gaussian process per row."""
        kernels, rows = gpytorch.kernels, x.shape[:1]
        space = self.space(gpytorch, x, length)

        class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__((x,), y, likelihood)
                self.mean = gpytorch.means.ConstantMean(batch_shape=rows)
                self.kernel = kernels.ScaleKernel(space, batch_shape=rows)

            def forward(self, x: Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

        return Model()

    def space(self, gpytorch: Any, x: Tensor, length: float) -> Any:
        """The covariance function `c`, with one length-scale per row and input."""
        options = {"ard_num_dims": x.shape[-1], "batch_shape": x.shape[:1]}
        kernels = gpytorch.kernels
        made = (
            kernels.MaternKernel(nu=2.5, **options) if self.covariance == "matern52" else kernels.RBFKernel(**options)
        )
        made.lengthscale = length
        return made

    def predict(self, model: Any, likelihood: Any, xt: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean and variance of a fitted model at the targets."""
        dist = likelihood(model(xt))
        return dist.mean[..., None], dist.variance[..., None]


@dataclass
class MultiTaskGPBaseline(GPBaseline):
    """One Gaussian process for all outputs of a data set (the paper's baseline for Kolmogorov flow).

    `k([x, i], [x', j]) = exp(-sum (x - x')^2 / 2 l^2) B_ij + noise`, with a learned covariance `B` and a
    constant mean of the outputs.
    """

    def channels(self, dy: int) -> list[slice]:
        """All outputs share one Gaussian process."""
        return [slice(0, dy)]

    def make(
        self, gpytorch: Any, likelihood: Any, x: Tensor, y: Tensor, channel: Tensor, outputs: int, length: float
    ) -> Any:
        kernels, rows = gpytorch.kernels, x.shape[:1]
        space = self.space(gpytorch, x, length)

        class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__((x, channel[..., None]), y, likelihood)
                self.mean = torch.nn.Parameter(torch.zeros(*rows, outputs))
                self.space = space
                self.outputs = kernels.IndexKernel(num_tasks=outputs, rank=outputs, batch_shape=rows)
                self.outputs.covar_factor.data = torch.eye(outputs).expand(*rows, -1, -1).clone()
                self.outputs.raw_var.data.zero_()  # deterministic instead of random initialisation

            def forward(self, x: Tensor, channel: Tensor) -> Any:
                covariance = self.space(x).mul(self.outputs(channel))
                mean = self.mean.take_along_dim(channel[..., 0], -1)
                return gpytorch.distributions.MultivariateNormal(mean, covariance)

        return Model()

    def predict(self, model: Any, likelihood: Any, xt: Tensor) -> tuple[Tensor, Tensor]:
        moments = []
        for j in range(model.outputs.covar_factor.shape[-2]):
            dist = likelihood(model(xt, torch.full((*xt.shape[:2], 1), j, device=xt.device)))
            moments.append((dist.mean, dist.variance))
        mean, variance = (torch.stack(t, -1) for t in zip(*moments, strict=True))
        return mean, variance
