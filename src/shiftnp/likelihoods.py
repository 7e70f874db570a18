"""Likelihoods: from the decoder's output to a predictive distribution of batch shape `[b, nt]` and event shape `[dy]`.

A new likelihood is one class that inherits from `Likelihood` and one line in `LIKELIHOODS`:

- Its constructor takes what it needs of `dy` (number of outputs), `floor` (added to every variance, which keeps
  densities bounded) and `components` (number of Gaussians in a mixture), by these names. Other arguments need defaults.
  It sets `d_in`, the number of values that it takes per target.
- `forward` turns these values into a distribution: a Gaussian with independent channels, `Independent(Normal, 1)`, a
  mixture of such Gaussians, `MixtureSameFamily`, or another distribution with a method `components()` that returns it
  as a mixture of Gaussians. All metrics and samples are computed from that.
- `ceiling` is the form of the best possible prediction that its log-likelihood is compared with.

`tests/test_likelihoods.py` tests every entry of `LIKELIHOODS`.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, Normal
from torch.nn.functional import softplus

from shiftnp._registry import Registry


class Likelihood(nn.Module, ABC):
    """A map from the decoder's output to a distribution; it may have parameters."""

    d_in: int
    """Number of values that it takes per target: the output size of the decoder."""
    ceiling: ClassVar[Literal["gaussian", "mixture"]] = "gaussian"
    """Form of the best possible prediction to compare with: "gaussian", with one mean and variance per target, or
    "mixture", the exact posterior, which may be multimodal."""

    @abstractmethod
    def forward(self, raw: Float[Tensor, "b nt d_in"]) -> Distribution:
        """The predictive distribution at every target."""


class Heteroscedastic(Likelihood):
    """Gaussian with a predicted variance at every target: `softplus(raw) + floor`."""

    def __init__(self, dy: int, floor: float) -> None:
        super().__init__()
        self.dy, self.floor, self.d_in = dy, floor, 2 * dy

    def forward(self, raw: Float[Tensor, "b nt d_in"]) -> Distribution:
        mean, variance = raw.split(self.dy, dim=-1)
        return normal(mean, variance, self.floor)


class Homoscedastic(Likelihood):
    """Gaussian with one learned variance for each output, the same at every target: `softplus(GAIN raw) + floor`.

    An optimiser like Adam changes every parameter by about its learning rate per step, however large the gradient. A
    single parameter that has to cover orders of magnitude needs the gain to converge as fast as the network.
    """

    GAIN = 30.0

    def __init__(self, dy: int, floor: float) -> None:
        super().__init__()
        self.floor, self.d_in = floor, dy
        self.raw = nn.Parameter(torch.zeros(dy))

    def forward(self, raw: Float[Tensor, "b nt d_in"]) -> Distribution:
        return normal(raw, self.GAIN * self.raw.to(raw.dtype), self.floor)


class Mixture(Likelihood):
    """Mixture of `components` Gaussians over the joint outputs of a target, for multimodal predictions."""

    ceiling = "mixture"

    def __init__(self, dy: int, floor: float, components: int) -> None:
        super().__init__()
        if components < 2:
            raise ValueError(f"components must be at least 2 for a mixture, got {components}.")
        self.dy, self.floor, self.components = dy, floor, components
        self.d_in = components * (1 + 2 * dy)

    def forward(self, raw: Float[Tensor, "b nt d_in"]) -> Distribution:
        logits, rest = raw.split([self.components, self.components * 2 * self.dy], dim=-1)
        mean, variance = rest.unflatten(-1, (self.components, 2 * self.dy)).split(self.dy, dim=-1)
        return MixtureSameFamily(
            Categorical(logits=logits, validate_args=False), normal(mean, variance, self.floor), validate_args=False
        )


LIKELIHOODS: Registry[type[Likelihood]] = Registry(
    "likelihood", {"heteroscedastic": Heteroscedastic, "homoscedastic": Homoscedastic, "mixture": Mixture}
)


def make_likelihood(name: str, dy: int, floor: float, components: int) -> Likelihood:
    """Makes the likelihood of that name with those of the arguments that its constructor takes."""
    if name not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}, got {name!r}.")
    if not 0 <= floor < float("inf"):
        raise ValueError(f"variance_floor must be a finite number that is not negative, got {floor}.")
    make = LIKELIHOODS[name]
    arguments = {"dy": dy, "floor": floor, "components": components}
    taken = inspect.signature(make).parameters
    return make(**{key: value for key, value in arguments.items() if key in taken})


def normal(mean: Float[Tensor, "*any dy"], raw: Float[Tensor, "#*any dy"], floor: float) -> Distribution:
    """Gaussian with independent channels of variance `softplus(raw) + floor`."""
    std = (softplus(raw) + floor).sqrt().expand_as(mean)
    # Without validation, so that NaN reaches the loss, where training counts it and skips the step.
    return Independent(Normal(mean, std, validate_args=False), 1, validate_args=False)


# --- predictions as mixtures of Gaussians -----------------------------------------------------------------------------


class Components(NamedTuple):
    """A prediction as a mixture of `k` Gaussians with independent channels; a Gaussian is a mixture of one."""

    weight: Float[Tensor, "*batch k"]
    mean: Float[Tensor, "*batch k dy"]
    std: Float[Tensor, "*batch k dy"]


@runtime_checkable
class HasComponents(Protocol):
    """A distribution that can be converted to a mixture of Gaussians."""

    def components(self) -> Components:
        """The distribution as a mixture of Gaussians."""
        ...


def components_of(dist: Distribution) -> Components:
    """A prediction of a model or baseline as a mixture of Gaussians."""
    if isinstance(dist, HasComponents):
        return dist.components()
    mixture = isinstance(dist, MixtureSameFamily) and isinstance(dist.mixture_distribution, Categorical)
    parts = dist.component_distribution if isinstance(dist, MixtureSameFamily) and mixture else dist
    if not (isinstance(parts, Independent) and isinstance(parts.base_dist, Normal) and len(parts.event_shape) == 1):
        raise ValueError(
            "Samples, CRPS, coverage and calibration are known for Gaussians with independent channels,"
            f" Independent(Normal, 1), and for mixtures of them, not for {dist}."
        )
    mean, std = parts.base_dist.loc, parts.base_dist.scale
    if isinstance(dist, MixtureSameFamily):
        return Components(dist.mixture_distribution.probs, mean, std)
    return Components(mean.new_ones(*mean.shape[:-1], 1), mean.unsqueeze(-2), std.unsqueeze(-2))


def draw(dist: Distribution, generator: torch.Generator | None = None) -> Float[Tensor, "*batch dy"]:
    """One sample of a prediction; unlike `dist.sample()`, with a generator. NaN where the prediction is NaN."""
    weight, mean, std = components_of(dist)
    if weight.shape[-1] > 1:
        invalid = ~(weight.isfinite().all(-1, keepdim=True) & (weight.sum(-1, keepdim=True) > 0))
        pick = torch.multinomial(weight.masked_fill(invalid, 1.0).flatten(0, -2), 1, generator=generator)
        pick = pick.view(*weight.shape[:-1], 1, 1)
        mean, std = (p.take_along_dim(pick, dim=-2) for p in (mean.masked_fill(invalid[..., None], math.nan), std))
    mean, std = mean.squeeze(-2), std.squeeze(-2)
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + std * noise
