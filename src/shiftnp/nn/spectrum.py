"""The spectrum of a data set: what a separable kernel can know of it at once, wherever it lies.

Moving the data multiplies `sum_k y_k exp(i w . x_k)` by a phase, so its square, the power at `w`, stays the same. Waves
with these powers, `sum_r P_r cos(w_r . d)`, add up to the autocorrelation of the data at the displacement `d`
(Wiener and Khinchin). As a score it lets a query attend to where the data resemble what they are here, one period away
for instance, before any layer has learned to find a period.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shiftnp.displacement import Geometry
from shiftnp.nn.mlp import MLP
from shiftnp.nn.waves import Waves, angles
from shiftnp.typing import Real

FLOOR = 0.02
"""Added to every power before its logarithm is taken: half of what noise of standard deviation 0.2 gives."""


class Lines(NamedTuple):
    """What is known of the spectrum of each data set.

    Attributes:
        vectors: of the waves.
        strength: how strong each wave is, as it is and sharpened; both sum to one.
        about: what tokens should know of it.
    """

    vectors: Float[Tensor, "r dx"]
    strength: Float[Tensor, "b 2 r"]
    about: Float[Tensor, "b 1 dz"]

    def correlation(
        self, xq: Float[Tensor, "b nq dx"], xk: Float[Tensor, "b nk dx"]
    ) -> tuple[Float[Tensor, "b nq nk"], ...]:
        """`sum_r strength_r cos(w_r . (x_q - x_k))`, with strengths as they are and sharpened."""
        on_q, on_k = waves_at(self.vectors, xq), waves_at(self.vectors, xk)
        strength = torch.cat([self.strength, self.strength], -1).to(on_q.dtype)[:, :, None]
        with torch.autocast(xq.device.type, enabled=False):
            return ((strength * on_q[:, None]) @ on_k.mT[:, None]).unbind(1)


def waves_at(vectors: Float[Tensor, "r dx"], x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n r2"]:
    """Cosine and sine of every wave."""
    angle = angles(x, vectors.to(x.dtype))
    return torch.cat([angle.cos(), angle.sin()], -1)


class Spectrum(nn.Module):
    """Powers of a data set at `n` wave vectors, as strengths for attention and as something to add to tokens.

    Args:
        n: number of waves, in all directions, their lengths spread evenly up to the end of `band`. Two neighbours
            should not drift apart by more than half a turn over the domain: `band[1] * length < 3 * n`.
    """

    SHARPNESS = (1.0, 3.0)

    def __init__(self, n: int, dims: int, dz: int, geometry: Geometry, band: tuple[Real, Real]) -> None:
        super().__init__()
        self.waves = Waves(torch.linspace(float(band[1]) / n, float(band[1]), n)[None], dims, geometry)
        self.sharpness = nn.Parameter(torch.tensor(self.SHARPNESS))
        self.refine = MLP(2 * n + 1, 2 * n, dz)
        for parameter in self.refine.layers[-1].parameters():  # at first the powers as they are
            nn.init.zeros_(parameter)
        self.embed = MLP(2 * n + 1, dz, dz)
        self.to_target = nn.Linear(dz, dz)

    def forward(
        self,
        x: Float[Tensor, "b n dx"],
        y: Float[Tensor, "b n dy"],
        observed: Float[Tensor, "b n dy"],
        there: Float[Tensor, "b n 1"],
    ) -> Lines:
        """The lines of contexts.

        Args:
            x: where the context is, relative to anything that moves with it.
        """
        count, points = observed.sum(1, keepdim=True), there.sum(1, keepdim=True)
        # One more point at zero, where the prior is, so that a single observation is not its own mean.
        mean = (y * observed).sum(1, keepdim=True) / (count + 1)
        values = torch.cat([(y - mean) * observed, there], -1) / torch.cat([count, points], -1).clamp(min=1).sqrt()
        vectors = self.waves.vectors(x.dtype)[0]
        waves = waves_at(vectors, x)
        with torch.autocast(x.device.type, enabled=False):
            cos, sin = (values.to(waves.dtype).mT @ waves).chunk(2, -1)
        power = cos.square() + sin.square()  # of each output, and of the places themselves
        level = torch.stack([power[:, :-1].mean(1), power[:, -1]], 1).add(FLOOR).log()
        seen = torch.cat([level.flatten(1), points[:, 0].clamp(min=1).log()], -1).to(self.embed.dtype)
        refined = self.refine(seen).unflatten(-1, (2, -1)).to(level.dtype)
        strength = (self.sharpness[:, None] * level[:, :1] + refined).softmax(-1)
        about = self.embed(seen)
        return Lines(vectors, strength, about[:, None])
