"""Predictions of a fitted regressor: at any number of targets in bounded memory, each from the observations around it;
their statistics; joint samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.models import NeuralProcess
from shiftnp.regressor.box import Box
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.passes import predict_rows, tensor
from shiftnp.regressor.process import SMALLEST
from shiftnp.regressor.regular import nearest
from shiftnp.regressor.scales import Scales, spread
from shiftnp.regressor.tiles import CHUNK, Tiles

FLOOR = 0.01
"""Lower bound of the standard deviation of a context of neighbours, as a fraction of that of all data."""
STEPS = 32
"""Steps in which targets are sampled jointly; targets of one step are independent given those of the steps before."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """The model and all that a fit has chosen. An output without any observation has mean 0 and standard deviation 1.

    Args:
        box: coordinates of inputs.
        tiles: the observations and their anchors.
        y: outputs of the observations; NaN where there is none.
        scales: scales of every output.
        spreads: factor of the spread of every output.
        variants: see `predict_rows`.
    """

    model: NeuralProcess
    box: Box
    tiles: Tiles
    y: Float[np.ndarray, "n k"]
    scales: Sequence[Scales]
    spreads: Sequence[float]
    variants: int = 1

    @property
    def known(self) -> list[int]:
        """Outputs with an observation."""
        return [o for o, values in enumerate(self.y.T) if not np.isnan(values).all()]

    def statistics(self, x: Float[np.ndarray, "m dx"], levels: Sequence[float] = ()) -> Float[np.ndarray, "s m k"]:
        """Mean, standard deviation (`Mixture.half_width`) and quantiles of these levels at targets."""
        result = np.empty((2 + len(levels), len(x), self.y.shape[1]))
        for rows, p in self.blocks(x):
            found = torch.stack([p.mean, p.half_width, *(p.quantile(level) for level in levels)])
            result[:, rows] = found.numpy().transpose(0, 2, 1)
        return result

    def blocks(self, x: Float[np.ndarray, "m dx"]) -> Iterator[tuple[Int[np.ndarray, " r"], Mixture]]:
        """Blocks of targets, neighbours together: their indices and predictions `[k, r]`."""
        u = self.box.coordinates(x)
        order = np.argsort(self.tiles.nearest(u), kind="stable")
        size = max(64, min(self.tiles.chunk, 2 * CHUNK // self.y.shape[1]))
        spreads = torch.tensor(self.spreads, dtype=torch.float64)[:, None]
        for i in range(0, len(order), size):
            rows = order[i : i + size]
            yield rows, self._bounded(u[rows], self._predict(u[rows]).spread(spreads))

    def _bounded(self, u: Float[np.ndarray, "m dx"], prediction: Mixture) -> Mixture:
        """Calibrated predictions `[k, m]`, where nothing is known of them not too sure, see `regular.py`."""
        stds, anchors = prediction.stds, self.tiles.nearest(u)
        for o, scale in enumerate(self.scales):
            if scale.bound is None or o not in self.known:
                continue
            distance = torch.empty(len(u), dtype=torch.float64)
            for anchor in np.unique(anchors):
                here = np.flatnonzero(anchors == anchor)
                xc, yc, xt = self._rows(int(anchor), u[here], np.array([o]), scale.typical[None])
                distance[torch.from_numpy(here)] = nearest(xt[0], xc[0, ~yc[0].isnan()])
            stds[o] = scale.bound.apply(Mixture(*(part[o] for part in prediction)), distance).stds
        return prediction

    def _predict(self, u: Float[np.ndarray, "m dx"]) -> Mixture:
        """The mixture over anchors, scales and Gaussian processes at coordinates, `[k, m]`, before calibration."""
        tiles, scales, known, targets = self.tiles, self.scales, self.known, len(u)
        outputs = np.repeat(known, [len(scales[o].factors) for o in known]).astype(int)
        if not len(outputs):
            one = torch.ones(len(scales), targets, 1, dtype=torch.float64)
            return Mixture(one, torch.zeros_like(one), one)
        factors = np.concatenate([scales[o].factors for o in known])
        degree = torch.from_numpy(np.concatenate([scales[o].degrees for o in known]))
        alone = len(tiles.anchors) == 1
        floor = tensor(np.array([0.0 if alone else FLOOR * spread(self.y[:, o]) for o in outputs]))

        weights = tiles.weights(u)
        taken = np.zeros(targets, int)
        slots = int((weights > 0).sum(1).max())
        most = max(len(scale.factors) + (scale.process is not None) for scale in scales)
        result: Mixture | None = None
        for anchor in map(int, np.flatnonzero((weights > 0).any(0))):
            here = np.flatnonzero(weights[:, anchor] > 0)
            rows = self._rows(anchor, u[here], outputs, factors)
            part = predict_rows(self.model, *rows, floor, self.variants, degree)
            if result is None:  # padding has weight zero, mean zero and standard deviation one
                shape = (len(scales), targets, slots, most, part.weight.shape[-1])
                empty = torch.zeros(shape, dtype=torch.float64)
                result = Mixture(empty, empty.clone(), torch.ones_like(empty))
            at, slot = torch.from_numpy(here), torch.from_numpy(taken[here])
            share = tensor(weights[here, anchor])[:, None]
            row = 0
            for o in known:
                xc, yc, xt = self._rows(anchor, u[here], np.array([o]), np.ones((1, u.shape[1])))
                process = None if yc.isnan().all() else scales[o].process  # it predicts nothing from no observations
                of_process = 0.0 if process is None else scales[o].share
                for s, weight in enumerate(scales[o].weights * (1 - of_process)):
                    result.weight[o, at, slot, s] = part.weight[row] * share * weight
                    result.means[o, at, slot, s] = part.means[row]
                    result.stds[o, at, slot, s] = part.stds[row]
                    row += 1
                if process is not None:
                    mean, std = process.predict(xc[0], yc[0], xt[0], SMALLEST * spread(self.y[:, o]))
                    result.weight[o, at, slot, -1, 0] = share[:, 0] * of_process
                    result.means[o, at, slot, -1, 0], result.stds[o, at, slot, -1, 0] = mean, std
            taken[here] += 1
        assert result is not None
        result = Mixture(*(part.flatten(2) for part in result))
        result.weight[[o for o in range(len(scales)) if o not in known], :, 0] = 1.0
        return result

    def sample_jointly(
        self, x: Float[np.ndarray, "m dx"], n: int, generator: torch.Generator
    ) -> Float[Tensor, "functions m k"]:
        """`n` functions at the targets, noise included, with a single anchor; outputs are independent of each other.

        Targets are drawn one after the other, each added to the observations of the next. Every function has one of the
        scales, drawn by their weights, and its own order of targets; or it is one of the Gaussian process.
        """
        u = self.box.coordinates(x)
        result = torch.empty(n, len(u), len(self.scales), dtype=torch.float64)
        for o, scale in enumerate(self.scales):
            if o not in self.known:
                result[..., o] = torch.randn(n, len(u), generator=generator, dtype=torch.float64)
                continue
            smooth = torch.zeros(n, dtype=torch.bool)
            if scale.process is not None:
                smooth = torch.rand(n, generator=generator) < scale.share
                xc, yc, xt = self._rows(0, u, np.array([o]), np.ones((1, u.shape[1])))
                rows = xc[0], yc[0], xt[0]
                result[smooth, :, o] = scale.process.sample(*rows, int(smooth.sum()), self.spreads[o], generator)
            result[~smooth, :, o] = self._sample_network(o, u, int((~smooth).sum()), generator)
        return result

    def _sample_network(
        self, o: int, u: Float[np.ndarray, "m dx"], n: int, generator: torch.Generator
    ) -> Float[Tensor, "functions m"]:
        """`n` functions of one output, from the network, at coordinates."""
        scale, result = self.scales[o], torch.empty(n, len(u), dtype=torch.float64)
        if not n:
            return result
        pick = torch.multinomial(scale.weights, n, replacement=True, generator=generator)
        xc, yc, xt = self._rows(0, u, np.full(n, o), scale.factors[pick.numpy()])
        degree = torch.from_numpy(scale.degrees)[pick]
        order = torch.rand(n, len(u), generator=generator).argsort(1)
        factor, floor = torch.tensor([self.spreads[o]], dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
        for some in order.split(-(-len(u) // STEPS), dim=1):
            at = xt.take_along_dim(some[..., None], 1)
            prediction = predict_rows(self.model, xc, yc, at, floor, self.variants, degree)
            drawn = prediction.spread(factor).sample(1, generator)[0]
            result.scatter_(1, some, drawn)
            xc, yc = torch.cat([xc, at], 1), torch.cat([yc, drawn], 1)
        return result

    def _rows(
        self,
        anchor: int,
        u: Float[np.ndarray, "m dx"],
        outputs: Int[np.ndarray, " b"],
        factors: Float[np.ndarray, "b dx"],
    ) -> tuple[Float[Tensor, "b nc dx"], Float[Tensor, "b nc"], Float[Tensor, "b m dx"]]:
        """Inputs and outputs of the context of an anchor, and targets: a row for each output and factor of inputs."""
        context, xc = self.tiles.context(anchor)
        by = tensor(factors)[:, None]
        xt = self.tiles.relative(anchor, u)
        return tensor(xc)[None] * by, tensor(self.y[context].T[outputs]), tensor(xt)[None] * by
