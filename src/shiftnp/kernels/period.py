"""Period search: what the data look like as a periodic function, for the tokens of a rotary kernel.

Neural processes learn periodic functions slowly (compare spectral transformer neural processes, arXiv 2605.09498). Here
every candidate frequency is scored by the evidence of a regression on its harmonics (`harmonics.py`), and candidates
vote by a softmax over their evidence, so that predictions change continuously with the data. One more candidate says
that the data have no period at all: where it has the vote, the features are those of the prior.

Tokens get the mean and the standard deviation of the mixture of all regressions at their position, and context tokens
its leave-one-out residual as well, by which the model can tell whether to trust it.

With a `span` a longer context is searched in overlapping windows of that length, and tokens interpolate between the two
windows around them: each search has as much data as those in training, however long the domain.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from shiftnp.attention.chunks import slices
from shiftnp.geometry import Geometry
from shiftnp.kernels.base import AttentionSize, ContextHook
from shiftnp.kernels.frequencies import FrequencyBank, angles
from shiftnp.kernels.harmonics import interleave, polynomial, products, regress, waves
from shiftnp.kernels.windows import Windows
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Context, Tokens

HARMONICS = 4
"""Harmonics of a candidate, itself included: enough for smooth functions of the phase."""
PRIORS = ((0.3, 0.04), (0.6, 0.04), (0.6, 0.4))
"""Priors of the regressions, among which the votes choose, too: by which factor the variance of a harmonic is smaller
than that of the one before, and the variance of the noise; the variance of the signal is one."""
LEAST_VARIANCE = 1e-4
"""Floor of the variance of the mixture, a difference of two large numbers."""
LEAST_FREEDOM = 0.05
"""Floor of one minus the leverage of an observation."""
MOST_WAVES = 1 << 21
"""Waves in memory at once, few enough for the processor's cache; if there are more, points are processed in chunks."""
WINDOWS_AT_ONCE = 32
"""Windows whose regressions are in memory at once."""


class SpectralSummary(NamedTuple):
    """Summary of the harmonic regressions of each data set, or of each of its windows.

    Attributes:
        moments: coefficients of `E[f(x)]` and `E[f(x)^2]` of each output under the vote of all candidates, for the
            waves of each harmonic, see `harmonics.waves`.
        constant: the coefficients of the constant.
        floor: the vote for "no period", times the variance of the signal, which is one.
        embedding: embedding of the votes, to be added to tokens.
        noise: mean variance of the noise.
    """

    moments: Float[Tensor, "m b k c"]
    constant: Float[Tensor, "b 1 k"]
    floor: Float[Tensor, "b 1 1"]
    embedding: Float[Tensor, "b 1 dz"]
    noise: Float[Tensor, "b 1 1"]

    def take(self, rows: Int[Tensor, " some"]) -> SpectralSummary:
        """The summaries of some data sets or windows."""
        return SpectralSummary(self.moments[:, rows], *(t[rows] for t in self[1:]))

    @staticmethod
    def join(parts: list[SpectralSummary]) -> SpectralSummary:
        """The summaries of all data sets or windows in some lists."""
        moments, *others = zip(*parts, strict=True)
        return SpectralSummary(torch.cat(moments, 1), *map(torch.cat, others))


class Searched(NamedTuple):
    """A searched context.

    Attributes:
        summary: summaries of the data sets, or of their windows.
        centre: mean of the context inputs.
        windows: the windows, if there are any.
    """

    summary: SpectralSummary
    centre: Float[Tensor, "b 1 dx"]
    windows: Windows | None = None


class Features(NamedTuple):
    """What the search knows at some positions: embedding of the votes, variance of the noise, and mean and standard
    deviation of the function under the vote of all candidates."""

    embedding: Float[Tensor, "b _ dz"]
    noise: Float[Tensor, "b _ 1"]
    mean: Float[Tensor, "b n dy"]
    std: Float[Tensor, "b n dy"]


class PeriodSearch(ContextHook):
    """Context hook that lets `n` candidate frequencies vote and adds their prediction to the tokens.

    Args:
        n: number of candidates in random directions, with lengths evenly spaced up to the end of `band`. The phases of
            adjacent candidates should differ by at most a radian over the context: `n > band[1] * length` with one
            input. With several inputs a candidate rarely has the right direction, and the vote is for "no period".
        dy: number of outputs.
        span: longest context that is searched as a whole (None: any); only for one input without a period.
    """

    def __init__(
        self, n: int, band: tuple[float, float], size: AttentionSize, dy: int, span: float | None = None
    ) -> None:
        super().__init__()
        self.geometry, self.span = size.geometry, span
        lengths = torch.linspace(float(band[1]) / n, float(band[1]), n)[None]
        # Candidates are fixed: gradients through them would cost more than the rest of the model.
        self.candidates = FrequencyBank(lengths, size.dims, size.geometry, learned=False)
        self.table: Tensor
        self.register_buffer("table", products(HARMONICS), persistent=False)
        self.embed_votes = MLP(n * len(PRIORS) + 3, size.dz, size.dz)
        self.embed_moments = MLP(2 * dy, size.dz, size.dz)
        self.embed_residual = MLP(4 * dy, size.dz, size.dz)
        self.to_target = nn.Linear(size.dz, size.dz)

    def context(self, tokens: Tokens, c: Context) -> Tokens:
        """Context tokens with the embedding of the votes, of the mixture and of its residuals."""
        centre = Geometry.centre(tokens.positions.x, tokens.mask)
        x = self._relative(tokens, centre)
        with torch.autocast(x.device.type, enabled=False):  # bfloat16 is too coarse to rank candidates
            y, observed = c.y.to(self._dtype), c.observed.to(self._dtype)
            windows = None
            if self.span is not None and not torch.compiler.is_exporting():  # their number depends on the data
                windows = Windows.cover(x[..., 0], tokens.mask, self.span)
            if windows is None:
                searched = Searched(self.summarise(x.to(self._dtype), y, observed), centre)
            else:
                searched = Searched(self._summarise_windows(windows, x, y, observed, tokens), centre, windows)
            at = self._features(x, searched)
            residual = self._residuals(y, observed, at)
        z = tokens.z + at.embedding + self._embed(self.embed_moments, at.mean, at.std.log())
        return tokens._replace(z=z + self._embed(self.embed_residual, *residual), summary=searched)

    def targets(self, tokens: Tokens, context: Tokens) -> Tokens:
        """Target tokens with the embedding of the votes and of the mixture."""
        searched = context.summary
        assert isinstance(searched, Searched)
        x = self._relative(tokens, searched.centre)
        with torch.autocast(x.device.type, enabled=False):
            at = self._features(x, searched)
        z = tokens.z + self.to_target(at.embedding) + self._embed(self.embed_moments, at.mean, at.std.log())
        return tokens._replace(z=z, summary=searched)

    def summarise(
        self,
        x: Float[Tensor, "b n dx"],
        y: Float[Tensor, "b n dy"],
        observed: Float[Tensor, "b n dy"],
        weight: Float[Tensor, "b n 1"] | None = None,
    ) -> SpectralSummary:
        """Votes and mixture for contexts with inputs `x` relative to any centre, and weights of their points
        (None: 1): the log-likelihood of an observation is multiplied by its weight."""
        candidates, dy = len(self.candidates.vectors(x.dtype)[0]), y.shape[-1]
        squares = y.square()
        if weight is not None:
            squares, observed, y = weight * squares, weight * observed, weight * y
        data = torch.cat([observed, y], -1).mT  # [b, 2 dy, n]
        totals = torch.stack(
            [data[..., rows] @ waves(self._angles(x[:, rows]), 2 * HARMONICS) for rows in self._chunks(x)]
        ).sum(0)
        of_waves = totals.unflatten(-1, (candidates, 2)).movedim(0, -2)  # [b, 2 dy, r, m, 2]
        constant = data.sum(-1)[..., None, None].expand(-1, -1, candidates, 1)
        sums = torch.cat([constant, of_waves[..., 0], of_waves[..., 1]], -1)[:, :dy]
        few = of_waves[:, dy:, :, :HARMONICS]
        moments = torch.cat([constant[:, dy:], few[..., 0], few[..., 1]], -1)
        count, squares = observed.sum(1), squares.sum(1)
        decay, noise = x.new_tensor(PRIORS).unbind(-1)
        found = regress(sums, moments, squares, count, _prior(decay), noise, self.table.to(x.dtype))

        # "No period": independent outputs with the variance of signal and noise.
        variance, n = 1 + noise.mean(), count.sum(-1, keepdim=True)
        none = -0.5 * (squares.sum(-1, keepdim=True) / variance + n * variance.log())
        evidence = found.evidence.flatten(1)
        votes = torch.cat([evidence, none], -1).softmax(-1)
        # Log Bayes factor per observation.
        gain = (evidence.logsumexp(-1, keepdim=True) - math.log(evidence.shape[-1]) - none) / n.clamp(min=1)
        bounded = [gain.sign() * gain.abs().log1p(), n / (n + 32)]
        features = torch.cat([candidates**0.5 * votes[:, :-1], votes[:, -1:], *bounded], -1)
        embedding = self.embed_votes(features.to(self.embed_votes.dtype))[:, None]

        each = votes[:, :-1].unflatten(-1, found.evidence.shape[1:])[:, None, ..., None]
        polynomials = torch.cat([(each * m).sum(2) for m in (found.first, found.second)], 1)  # [b, 2 dy, r, m]
        level, mixture = interleave(polynomials)
        vote = votes[:, -1:, None]
        of_noise = (each.sum((1, 3, 4)) * noise).sum(-1)[:, None, None] + vote * noise.mean()
        return SpectralSummary(mixture.flatten(-2), level.sum(-1)[:, None], vote, embedding, of_noise)

    def _summarise_windows(
        self,
        windows: Windows,
        x: Float[Tensor, "b n 1"],
        y: Float[Tensor, "b n dy"],
        observed: Float[Tensor, "b n dy"],
        tokens: Tokens,
    ) -> SpectralSummary:
        """`summarise` for each window, with inputs relative to its centre."""
        index, weight, local = windows.divide(x[..., 0], tokens.mask)
        y, observed = (t.flatten(0, 1)[index] for t in (y, observed))
        data = local.to(self._dtype)[..., None], y, observed, weight.to(self._dtype)[..., None]
        rows = slices(len(index), WINDOWS_AT_ONCE)
        return SpectralSummary.join([self.summarise(*(t[some] for t in data)) for some in rows])

    def _features(self, x: Float[Tensor, "b n dx"], searched: Searched) -> Features:
        """What the search knows at positions `x` relative to the centre of the context."""
        summary, windows = searched.summary, searched.windows
        if windows is None:
            return Features(summary.embedding, summary.noise, *self._mixture(x.to(self._dtype), summary))
        embedding, noise, moments = (torch.zeros((), dtype=self._dtype, device=x.device) for _ in range(3))
        for row, local, weight in windows.around(x[..., 0]):
            share, at = weight.to(self._dtype)[..., None], local.to(self._dtype).view(-1, 1, 1)
            embedding = embedding + share * summary.embedding[row, 0]
            noise = noise + share * summary.noise[row, 0]
            # Each position has coefficients of its own.
            parts = [self._moments(at[some], summary.take(row.flatten()[some])) for some in self._chunks(at, 0)]
            moments = moments + share * torch.cat(parts).view(*row.shape, summary.constant.shape[-1])
        return Features(embedding.to(summary.embedding.dtype), noise, *_mean_and_std(moments))

    def _mixture(
        self, x: Float[Tensor, "b n dx"], summary: SpectralSummary
    ) -> tuple[Float[Tensor, "b n dy"], Float[Tensor, "b n dy"]]:
        """Mean and standard deviation of the function at `x` under the vote of all candidates."""
        return _mean_and_std(self._moments(x, summary))

    def _moments(self, x: Float[Tensor, "b n dx"], summary: SpectralSummary) -> Float[Tensor, "b n k"]:
        """`E[f(x)]` and `E[f(x)^2]` of each output under the vote of all candidates."""
        parts = [polynomial(self._angles(x[:, rows]), summary.moments) for rows in self._chunks(x)]
        mean, square = (torch.cat(parts, 1) + summary.constant).chunk(2, -1)
        return torch.cat([mean, square + summary.floor], -1)

    @staticmethod
    def _residuals(
        y: Float[Tensor, "b n dy"], observed: Float[Tensor, "b n dy"], at: Features
    ) -> list[Float[Tensor, "b n dy"]]:
        """Leave-one-out residual of each observation, with its standard deviation, and standardised."""
        variance = at.std.square()
        free = (1 - variance / (variance + at.noise)).clamp(min=LEAST_FREEDOM)  # one minus the leverage
        residual, spread = (y - at.mean) / free, (at.noise / free).sqrt()
        standard = (residual / spread).clamp(-6, 6)
        return [observed * t for t in (residual, spread.log(), standard, standard.abs())]

    @staticmethod
    def _embed(embed: MLP, *features: Float[Tensor, "b n dy"]) -> Float[Tensor, "b n dz"]:
        return embed(torch.cat(features, -1).to(embed.dtype))

    @property
    def _dtype(self) -> torch.dtype:
        return torch.promote_types(self.embed_votes.dtype, torch.float32)

    def _relative(self, tokens: Tokens, centre: Float[Tensor, "b 1 dx"]) -> Float[Tensor, "b n dx"]:
        """Positions relative to a centre; for windows in the precision of the inputs, as they may be far from it."""
        dtype = self._dtype
        if self.span is not None:
            dtype = torch.promote_types(dtype, tokens.positions.x.dtype)
        return self.geometry.relative(tokens.positions, centre, dtype)

    def _angles(self, x: Float[Tensor, "b n dx"]) -> Float[Tensor, "b n r"]:
        """The phases of all candidates."""
        return angles(x, self.candidates.vectors(x.dtype)[0])

    def _chunks(self, x: Float[Tensor, "b n dx"], dim: int = 1) -> list[slice]:
        """Slices along a dimension whose waves fit in memory. An exported program has none, as its sizes are
        dynamic."""
        if torch.compiler.is_exporting():
            return [slice(None)]
        each = x.shape[1 - dim] * len(self.candidates.vectors(x.dtype)[0]) * 4 * HARMONICS
        return slices(max(1, x.shape[dim]), max(1, MOST_WAVES // max(1, each)))


def _mean_and_std(moments: Float[Tensor, "b n k"]) -> tuple[Float[Tensor, "b n dy"], Float[Tensor, "b n dy"]]:
    mean, square = moments.chunk(2, -1)
    return mean, (square - mean.square()).clamp(min=LEAST_VARIANCE).sqrt()


def _prior(decay: Float[Tensor, " s"]) -> Float[Tensor, "s p"]:
    """Prior variances of the coefficients of constant, cosines and sines; constant and first harmonic have the same."""
    falling = torch.stack([decay ** max(0, h - 1) for h in range(HARMONICS + 1)], -1)
    variances = falling / falling.sum(-1, keepdim=True)
    return torch.cat([variances, variances[:, 1:]], -1)
