"""From the decoder's output to a predictive distribution of event shape `[dy]` and batch shape `[b, nt]`.

Each variance is `softplus(raw) + floor`; the floor keeps densities bounded.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, Normal
from torch.nn.functional import softplus


def normal(mean: Float[Tensor, "*any dy"], raw: Float[Tensor, "#*any dy"], floor: float) -> Distribution:
    """Independent channels with variance `softplus(raw) + floor`."""
    std = (softplus(raw) + floor).sqrt().expand_as(mean)
    # A training step with a broken number must reach the loss, where it is counted, and not stop here.
    return Independent(Normal(mean, std, validate_args=False), 1, validate_args=False)


class Heteroscedastic(nn.Module):
    """Normal with a learned variance at every point."""

    def __init__(self, dy: int, floor: float, components: int) -> None:
        super().__init__()
        self.dy, self.floor, self.d_in = dy, floor, 2 * dy

    def forward(self, out: Float[Tensor, "b nt d"]) -> Distribution:
        mean, raw = out.split(self.dy, dim=-1)
        return normal(mean, raw, self.floor)


class Homoscedastic(nn.Module):
    """Normal with one learned noise for each output, the same at every point: variance `softplus(GAIN raw) + floor`.

    An optimiser like Adam moves every number by about its learning rate a step, however much there is to gain. A
    single number that has to cover orders of magnitude needs the gain to get there as soon as the network does.
    """

    GAIN = 30.0

    def __init__(self, dy: int, floor: float, components: int) -> None:
        super().__init__()
        self.floor, self.d_in = floor, dy
        self.raw = nn.Parameter(torch.zeros(dy))

    def forward(self, out: Float[Tensor, "b nt d"]) -> Distribution:
        return normal(out, self.GAIN * self.raw.to(out.dtype), self.floor)


class Mixture(nn.Module):
    """Mixture of `K` Gaussians over the joint outputs of a point: what an uncertain choice between hypotheses needs."""

    def __init__(self, dy: int, floor: float, components: int) -> None:
        super().__init__()
        if components < 2:
            raise ValueError(f"components must be at least 2 for a mixture, got {components}.")
        self.dy, self.floor, self.components = dy, floor, components
        self.d_in = components * (1 + 2 * dy)

    def forward(self, out: Float[Tensor, "b nt d"]) -> Distribution:
        logits, rest = out.split([self.components, self.components * 2 * self.dy], dim=-1)
        mean, raw = rest.unflatten(-1, (self.components, 2 * self.dy)).split(self.dy, dim=-1)
        return MixtureSameFamily(
            Categorical(logits=logits, validate_args=False), normal(mean, raw, self.floor), validate_args=False
        )


LIKELIHOODS: dict[str, type[Heteroscedastic] | type[Homoscedastic] | type[Mixture]] = {
    "heteroscedastic": Heteroscedastic,
    "homoscedastic": Homoscedastic,
    "mixture": Mixture,
}


def make_likelihood(name: str, dy: int, floor: float, components: int) -> Heteroscedastic | Homoscedastic | Mixture:
    """The likelihood of that name for `dy` outputs."""
    if name not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}, got {name!r}.")
    if not 0 <= floor < float("inf"):
        raise ValueError(f"variance_floor must be a finite number that is not negative, got {floor}.")
    return LIKELIHOODS[name](dy, floor, components)


def draw(dist: Distribution, generator: torch.Generator | None = None) -> Tensor:
    """One sample from a distribution made here, with a generator of one's own (which torch's own `sample` cannot)."""
    if isinstance(dist, MixtureSameFamily):
        probs = dist.mixture_distribution.probs
        pick = torch.multinomial(probs.flatten(0, -2), 1, generator=generator).view(*probs.shape[:-1], 1, 1)
        parts = dist.component_distribution
        mean, std = (p.take_along_dim(pick, dim=-2).squeeze(-2) for p in (parts.mean, parts.stddev))
    else:
        mean, std = dist.mean, dist.stddev
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + std * noise
