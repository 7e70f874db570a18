"""Period search: translation-invariant features of a data set's power spectrum, for the rotary kernel.

A shift of the data multiplies `sum_k y_k exp(i w . x_k)` by a phase, so its squared modulus, the power at `w` (the
Lomb-Scargle periodogram is its least-squares form), is translation invariant. Candidate frequencies weighted by their
power, `sum_r P_r cos(w_r . d)`, add up to the autocorrelation of the data at displacement `d` (Wiener-Khinchin). As an
additive attention bias it lets a query attend to points with which its own value is correlated.

The frequency with most power need not be the fundamental frequency of a periodic function. The fundamental is found by
phase folding (`folding.py`), and its harmonics replace the learned frequencies in half of the heads: these treat a
periodic function as a smooth function of its phase.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shiftnp.attention.bias import LowRankBias
from shiftnp.geometry import Geometry
from shiftnp.kernels.base import AttentionSize, ContextHook
from shiftnp.kernels.folding import fold_errors, gauss_newton_step
from shiftnp.kernels.frequencies import FrequencyBank, angles
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Context, Tokens

POWER_FLOOR = 0.02
"""Added to every power before its logarithm: half the power of noise with standard deviation 0.2."""
ERROR_FLOOR = 0.01
"""Added to every leave-one-out error before its logarithm: a quarter of the variance of the same noise."""
STEPS = 2
"""Gauss-Newton steps that refine the fundamental frequency."""


class SpectralSummary(NamedTuple):
    """Summary of the power spectrum of each data set.

    Attributes:
        weights: weights of the candidate frequencies, by power and by leave-one-out error; each of the two sums to one.
        fundamental: frequency vector with the smallest leave-one-out error; it need not be one of the candidates.
        embedding: embedding of the spectrum, to be added to tokens.
        keys: cosine and sine of every candidate at the context points, relative to `centre`.
        centre: mean of the context inputs.
    """

    weights: Float[Tensor, "b 2 r"]
    fundamental: Float[Tensor, "b dx"]
    embedding: Float[Tensor, "b 1 dz"]
    keys: Float[Tensor, "b n r2"]
    centre: Float[Tensor, "b 1 dx"]

    def autocorrelation(self, queries: Float[Tensor, "b nq r2"]) -> LowRankBias:
        """`sum_r weight_r cos(w_r . (x_q - x_k))` for queries and all context points, with both kinds of weights."""
        weights = torch.cat([self.weights, self.weights], -1).to(queries.dtype)[:, :, None]
        return LowRankBias.of(weights * queries[:, None], self.keys)


class PeriodSearch(ContextHook):
    """Context hook that weights `n` candidate frequencies, finds the fundamental and embeds the spectrum in tokens.

    Args:
        n: number of candidates in random directions, with lengths evenly spaced up to the end of `band`. The phases of
            adjacent candidates should differ by at most two radians over the context: `2 n > band[1] * length` with
            one input, and far more candidates with several.
    """

    def __init__(self, n: int, band: tuple[float, float], size: AttentionSize) -> None:
        super().__init__()
        self.geometry = size.geometry
        lengths = torch.linspace(float(band[1]) / n, float(band[1]), n)[None]
        # Candidates are fixed: gradients through them would cost more than the rest of the model.
        self.candidates = FrequencyBank(lengths, size.dims, size.geometry, learned=False)
        self.spacing: Tensor
        spacing = _spacing(self.candidates.vectors(torch.float32)[0]).clamp(max=float(band[1]))
        self.register_buffer("spacing", spacing)
        self.free = size.geometry.flat(size.dims)
        self.sharpness = nn.Parameter(torch.ones(2))
        self.refine = MLP(3 * n + 1, 2 * n, size.dz)
        for parameter in self.refine.layers[-1].parameters():  # at initialisation weights are as measured
            nn.init.zeros_(parameter)
        self.embed = MLP(4 * n + 1, size.dz, size.dz)
        self.to_target = nn.Linear(size.dz, size.dz)

    def context(self, tokens: Tokens, c: Context) -> Tokens:
        """Context tokens with the embedding of their spectrum and the autocorrelation among them."""
        centre = Geometry.centre(tokens.positions.x, tokens.mask)
        x = self._relative(tokens, centre)
        present = c.present[..., None].to(c.y.dtype)
        with torch.autocast(x.device.type, enabled=False):  # bfloat16 is too coarse to rank candidates
            y, observed, present = (t.to(x.dtype) for t in (c.y, c.observed, present))
            summary = self.summarise(x, y, observed, present, centre)
        bias = summary.autocorrelation(summary.keys)
        return tokens._replace(z=tokens.z + summary.embedding, summary=summary, attention_bias=bias)

    def targets(self, tokens: Tokens, context: Tokens) -> Tokens:
        """Target tokens with the embedding of the context's spectrum and the autocorrelation with its points."""
        summary = context.summary
        assert isinstance(summary, SpectralSummary)
        queries = self._phases(self._relative(tokens, summary.centre))
        z = tokens.z + self.to_target(summary.embedding)
        return tokens._replace(z=z, summary=summary, attention_bias=summary.autocorrelation(queries))

    def _relative(self, tokens: Tokens, centre: Float[Tensor, "b 1 dx"]) -> Float[Tensor, "b n dx"]:
        dtype = torch.promote_types(self.embed.dtype, torch.float32)
        return self.geometry.relative(tokens.positions, centre, dtype)

    def _phases(self, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n r2"]:
        """Cosine and sine of every candidate."""
        angle = angles(x, self.candidates.vectors(x.dtype)[0])
        return torch.cat([angle.cos(), angle.sin()], -1)

    def summarise(
        self,
        x: Float[Tensor, "b n dx"],
        y: Float[Tensor, "b n dy"],
        observed: Float[Tensor, "b n dy"],
        there: Float[Tensor, "b n 1"],
        centre: Float[Tensor, "b 1 dx"],
    ) -> SpectralSummary:
        """Summarises the spectra of contexts with inputs `x` relative to their `centre`."""
        count, points = observed.sum(1, keepdim=True), there.sum(1, keepdim=True)
        # An additional observation of zero, the prior mean, so that a single observation is not its own mean.
        y = (y - (y * observed).sum(1, keepdim=True) / (count + 1)) * observed
        values = torch.cat([y, there], -1) / torch.cat([count, points], -1).clamp(min=1).sqrt()
        vectors, keys = self.candidates.vectors(x.dtype)[0], self._phases(x)
        cos, sin = (values.mT @ keys).chunk(2, -1)
        power = cos.square() + sin.square()  # of each output, and of the sampling pattern itself
        level = torch.stack([power[:, :-1].mean(1), power[:, -1]], 1).add(POWER_FLOOR).log()
        error = fold_errors(angles(x, vectors), y, observed).add(ERROR_FLOOR).log()

        spectrum = torch.cat([level.flatten(1), error, points[:, 0].clamp(min=1).log()], -1).to(self.embed.dtype)
        refined = self.refine(spectrum).unflatten(-1, (2, -1)).to(x.dtype)
        # The second is the log-likelihood of the errors, with the maximum-likelihood noise of each candidate.
        measured = torch.stack([level[:, 0], -0.5 * count.sum(-1) * error], 1)
        weights = (self.sharpness[:, None] * measured + refined).softmax(-1)
        embedding = self.embed(torch.cat([spectrum, weights[:, 1].to(spectrum.dtype)], -1))[:, None]
        fundamental = self._fundamental(vectors, weights[:, 1], x, y, observed)
        return SpectralSummary(weights, fundamental, embedding, keys, centre)

    def _fundamental(
        self,
        vectors: Float[Tensor, "r dx"],
        weights: Float[Tensor, "b r"],
        x: Float[Tensor, "b n dx"],
        y: Float[Tensor, "b n dy"],
        observed: Float[Tensor, "b n dy"],
    ) -> Float[Tensor, "b dx"]:
        """The best candidate, averaged with its neighbours and refined by Gauss-Newton. No gradient flows through."""
        # If all weights are equal, as with a single observation, the lowest frequency wins, not rounding errors.
        tie_break = 1e-4 * torch.arange(len(vectors), dtype=x.dtype, device=x.device)
        best = vectors[(weights.log() - tie_break).argmax(-1)]
        reach = self.spacing.to(x.dtype)
        near = (vectors - best[:, None]).square().sum(-1) < (2.5 * reach).square()
        weight = weights * near
        mean = (weight[..., None] * vectors).sum(1) / weight.sum(-1, keepdim=True)
        vector = torch.stack([(mean if i in self.free else best)[:, i] for i in range(mean.shape[-1])], -1)
        for _ in range(STEPS if self.free else 0):
            vector = gauss_newton_step(vector, x, y, observed, reach, self.free)
        return vector.detach()


def _spacing(vectors: Float[Tensor, "r dx"]) -> Float[Tensor, ""]:
    """Median distance of a candidate to its nearest neighbour."""
    apart = torch.cdist(vectors, vectors)
    return apart.where(apart > 0, math.inf).min(-1).values.median()
