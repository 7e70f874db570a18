"""The spectrum of a data set: what a separable kernel can know of it at once, wherever it lies.

Moving the data multiplies `sum_k y_k exp(i w . x_k)` by a phase, so its square, the power at `w`, stays the same. Waves
with these powers, `sum_r P_r cos(w_r . d)`, add up to the autocorrelation of the data at the displacement `d`
(Wiener and Khinchin). As a score it lets a query attend to where the data resemble what they are here.

The strongest wave need not be the fundamental, with whose period the data repeat. That one is found by trying each wave
on the data (`nn/folding.py`). Its harmonics then take the place of learned waves in some heads: to these, a periodic
function is what a smooth one is to the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shiftnp.geometry import Geometry
from shiftnp.nn import folding
from shiftnp.nn.mlp import MLP
from shiftnp.nn.waves import Waves, angles

FLOOR = 0.02
"""Added to every power before its logarithm is taken: half of what noise of standard deviation 0.2 gives."""
ERROR_FLOOR = 0.01
"""Added to every error before its logarithm is taken: a quarter of the variance of such noise."""
STEPS = 2
"""Of Gauss and Newton towards the fundamental."""


class Lines(NamedTuple):
    """What is known of the spectrum of each data set.

    Attributes:
        vectors: of the waves.
        strength: how strong each wave is, and how well it explains the data; both sum to one.
        fundamental: vector of the wave that explains the data best, which need not be among them.
        about: what tokens should know of it.
    """

    vectors: Float[Tensor, "r dx"]
    strength: Float[Tensor, "b 2 r"]
    fundamental: Float[Tensor, "b dx"]
    about: Float[Tensor, "b 1 dz"]

    def correlation(
        self, xq: Float[Tensor, "b nq dx"], xk: Float[Tensor, "b nk dx"]
    ) -> tuple[Float[Tensor, "b nq nk"], ...]:
        """`sum_r strength_r cos(w_r . (x_q - x_k))`, for either kind of strength."""
        on_q, on_k = waves_at(self.vectors, xq), waves_at(self.vectors, xk)
        strength = torch.cat([self.strength, self.strength], -1).to(on_q.dtype)[:, :, None]
        with torch.autocast(xq.device.type, enabled=False):
            return ((strength * on_q[:, None]) @ on_k.mT[:, None]).unbind(1)


def waves_at(vectors: Float[Tensor, "r dx"], x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n r2"]:
    """Cosine and sine of every wave."""
    angle = angles(x, vectors.to(x.dtype))
    return torch.cat([angle.cos(), angle.sin()], -1)


class Spectrum(nn.Module):
    """Strengths of `n` waves in a data set, its fundamental, and something to add to tokens.

    Args:
        n: number of waves, in all directions, their lengths spread evenly up to the end of `band`. Two neighbours
            should not drift apart by more than two radians over the context: `2 n > band[1] * length` with one input,
            and far more with several.
    """

    def __init__(self, n: int, dims: int, dz: int, geometry: Geometry, band: tuple[float, float]) -> None:
        super().__init__()
        lengths = torch.linspace(float(band[1]) / n, float(band[1]), n)[None]
        self.waves = Waves(lengths, dims, geometry, learned=False)  # to learn them would cost more than all the rest
        self.spacing: Tensor
        self.register_buffer("spacing", _spacing(self.waves.vectors(torch.float32)[0]).clamp(max=float(band[1])))
        self.flat, self.circles = geometry.split_dimensions(dims)
        self.sharpness = nn.Parameter(torch.ones(2))
        self.refine = MLP(3 * n + 1, 2 * n, dz)
        for parameter in self.refine.layers[-1].parameters():  # at first strengths as they are measured
            nn.init.zeros_(parameter)
        self.embed = MLP(4 * n + 1, dz, dz)
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
        with torch.autocast(x.device.type, enabled=False):  # which wave is best is not for bfloat16 to say
            return self._lines(x, *(t.to(x.dtype) for t in (y, observed, there)))

    def _lines(self, x: Tensor, y: Tensor, observed: Tensor, there: Tensor) -> Lines:
        count, points = observed.sum(1, keepdim=True), there.sum(1, keepdim=True)
        # One more point at zero, where the prior is, so that a single observation is not its own mean.
        y = (y - (y * observed).sum(1, keepdim=True) / (count + 1)) * observed
        values = torch.cat([y, there], -1) / torch.cat([count, points], -1).clamp(min=1).sqrt()
        vectors = self.waves.vectors(x.dtype)[0]
        cos, sin = (values.mT @ waves_at(vectors, x)).chunk(2, -1)
        power = cos.square() + sin.square()  # of each output, and of the places themselves
        level = torch.stack([power[:, :-1].mean(1), power[:, -1]], 1).add(FLOOR).log()
        error = folding.errors(angles(x, vectors), y, observed).add(ERROR_FLOOR).log()

        seen = torch.cat([level.flatten(1), error, points[:, 0].clamp(min=1).log()], -1).to(self.embed.dtype)
        refined = self.refine(seen).unflatten(-1, (2, -1)).to(x.dtype)
        # The second is the log-likelihood of the errors, each wave with the noise that suits it best.
        measured = torch.stack([level[:, 0], -0.5 * count.sum(-1) * error], 1)
        strength = (self.sharpness[:, None] * measured + refined).softmax(-1)
        about = self.embed(torch.cat([seen, strength[:, 1].to(seen.dtype)], -1))[:, None]
        return Lines(vectors, strength, self._fundamental(vectors, strength[:, 1], x, y, observed), about)

    def _fundamental(
        self,
        vectors: Float[Tensor, "r dx"],
        strength: Float[Tensor, "b r"],
        x: Float[Tensor, "b n dx"],
        y: Float[Tensor, "b n dy"],
        observed: Float[Tensor, "b n dy"],
    ) -> Float[Tensor, "b dx"]:
        """From the strongest wave to the mean of its neighbours, and on to where the error is least. Gradients stop."""
        # Where all are equally strong, as with a single observation, round-off must not decide.
        even = 1e-4 * torch.arange(len(vectors), dtype=x.dtype, device=x.device)
        best = vectors[(strength.log() - even).argmax(-1)]
        reach = self.spacing.to(x.dtype)
        near = (vectors - best[:, None]).square().sum(-1) < (2.5 * reach).square()
        weight = strength * near
        mean = (weight[..., None] * vectors).sum(1) / weight.sum(-1, keepdim=True)
        vector = torch.stack([(best if i in self.circles else mean)[:, i] for i in range(mean.shape[-1])], -1)
        for _ in range(STEPS if self.flat else 0):
            vector = folding.tune(vector, x, y, observed, reach, self.flat)
        return vector.detach()


def _spacing(vectors: Float[Tensor, "r dx"]) -> Float[Tensor, ""]:
    """How far a wave is from the next, typically."""
    apart = torch.cdist(vectors, vectors)
    return apart.where(apart > 0, math.inf).min(-1).values.median()
