"""A Gaussian process fitted to one data set by maximum marginal likelihood (gpytorch), as a careful user would."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp._optional import import_optional
from shiftnp.baselines.gp import import_gpytorch

COVARIANCES = "matern52", "two-materns"
LENGTHS = (1.0, 0.3, 3.0)
"""Length-scales to start from, in standard deviations of the inputs, in the order in which they are tried."""
NOISE = 1e-6
"""Lower bound of the noise variance, in units of the variance of the outputs."""


@dataclass(frozen=True)
class SingleGP:
    """A Gaussian process with a constant mean and one length-scale per input, for data in any units.

    All parameters are fitted in float64 with L-BFGS, which stops when the marginal likelihood does not improve any
    more; of several starts the one with the highest is used.

    Args:
        covariance: "matern52", or "two-materns": the sum of a Matern 5/2 and a Matern 1/2 kernel.
        starts: number of starts, at most three.
        iterations: steps of L-BFGS from each start, at most.
        tolerance: a start ends when a step improves the marginal likelihood per observation by less than this.
    """

    covariance: str = "matern52"
    starts: int = 3
    iterations: int = 100
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if self.covariance not in COVARIANCES:
            raise ValueError(f"covariance must be one of {', '.join(COVARIANCES)}, got {self.covariance!r}.")
        if not 1 <= self.starts <= len(LENGTHS):
            raise ValueError(f"starts must be between 1 and {len(LENGTHS)}, got {self.starts!r}.")

    def predict(
        self, x: Float[np.ndarray, "n dx"], y: Float[np.ndarray, " n"], xt: Float[np.ndarray, "m dx"]
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Fits the process to observations and returns the mean and standard deviation of new ones at targets."""
        centre, unit = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1.0)
        level, spread = float(y.mean()), float(y.std()) or 1.0
        inputs, targets = (torch.from_numpy((a - centre) / unit).double() for a in (x, xt))
        outputs = torch.from_numpy((y - level) / spread).double()
        with _exact(), torch.inference_mode(False), torch.enable_grad():
            fits = [self._fit(inputs, outputs, length) for length in LENGTHS[: self.starts]]
            model = min(fits, key=lambda fit: fit[0])[1].eval()
            with torch.no_grad():
                new = model.likelihood.eval()(model(targets))
                mean, std = new.mean, new.variance.sqrt()
        return mean.numpy() * spread + level, std.numpy() * spread

    def _fit(self, x: Float[Tensor, "n dx"], y: Float[Tensor, " n"], length: float) -> tuple[float, Any]:
        """The negative log marginal likelihood per observation, and the model, from one start."""
        gpytorch = import_gpytorch()
        optimize = import_optional("scipy.optimize", "A Gaussian-process baseline", "gp")
        failures = import_optional("linear_operator.utils.errors", "A Gaussian-process baseline", "gp")
        singular = torch.linalg.LinAlgError  # type: ignore[attr-defined]
        model = self._model(gpytorch, x, y, length).double().train()
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        parameters = list(model.parameters())
        best = math.inf, torch.nn.utils.parameters_to_vector(parameters).detach().clone()

        def loss(vector: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
            nonlocal best
            torch.nn.utils.vector_to_parameters(torch.from_numpy(vector.copy()), parameters)
            try:
                value = -evidence(model(x), y)
                slopes = torch.autograd.grad(value, parameters)
            except (ArithmeticError, singular, failures.NotPSDError, failures.NanError):
                return 1e6, np.zeros_like(vector)
            slope = torch.cat([s.reshape(-1) for s in slopes])
            if not (value.isfinite() and slope.isfinite().all()):
                return 1e6, np.zeros_like(vector)
            if float(value) < best[0]:
                best = float(value), torch.from_numpy(vector.copy())
            return float(value), slope.numpy()

        options = {"maxiter": self.iterations, "ftol": self.tolerance, "gtol": 1e-5}
        optimize.minimize(loss, best[1].numpy(), jac=True, method="L-BFGS-B", options=options)
        torch.nn.utils.vector_to_parameters(best[1], parameters)
        return best[0], model

    def _model(self, gpytorch: Any, x: Tensor, y: Tensor, length: float) -> Any:
        kernels, dx = gpytorch.kernels, x.shape[1]

        def matern(nu: float, length: float, variance: float) -> Any:
            kernel = kernels.ScaleKernel(kernels.MaternKernel(nu=nu, ard_num_dims=dx)).double()
            kernel.outputscale, kernel.base_kernel.lengthscale = variance, length
            return kernel

        if self.covariance == "matern52":
            covariance = matern(2.5, length, 1.0)
        else:
            covariance = matern(2.5, 2 * length, 0.7) + matern(0.5, length / 2, 0.3)
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(NOISE)
        ).double()
        likelihood.noise = 0.1

        class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(x, y, likelihood)
                self.mean = gpytorch.means.ConstantMean()
                self.covariance = covariance

            def forward(self, x: Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

        with torch.random.fork_rng():  # gpytorch draws initial values, which are replaced
            return Model()


@contextmanager
def _exact() -> Iterator[None]:
    """Cholesky factorisations for any size, and no warnings about those that need jitter."""
    gpytorch = import_gpytorch()
    with gpytorch.settings.fast_computations(False, False, False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
