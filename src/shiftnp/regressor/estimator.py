"""`Regressor`: predictions with uncertainty for a single data set, from pretrained weights."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from shiftnp.models import NeuralProcess
from shiftnp.regressor import blocks, checks, columns, containers, finetune, grid, saving, weights
from shiftnp.regressor.base import Estimator, not_fitted
from shiftnp.regressor.box import Box
from shiftnp.regressor.calibration import Scores, scores, spread_factor
from shiftnp.regressor.columns import Chunked, Columns, Table
from shiftnp.regressor.folds import make_folds
from shiftnp.regressor.groups import Groups, by_group, read_labels, select
from shiftnp.regressor.mixture import Mixture, check_levels
from shiftnp.regressor.predictor import Predictor
from shiftnp.regressor.regular import find_bound
from shiftnp.regressor.scales import MANY, Scales, search
from shiftnp.regressor.stacking import add_process
from shiftnp.regressor.summary import summary
from shiftnp.regressor.tiles import Tiles

DTYPES = {"float32": torch.float32, "float64": torch.float64}
FACTORS = (1 / 3, 3.0)
"""Smallest and largest common factor of the inputs that is tried first."""


class Regressor(Estimator):
    """Predicts a function of one to three inputs, with uncertainty, from scattered observations of one data set.

    A transformer neural process that was trained on a broad range of functions predicts without any training. `fit`
    only stores the observations and chooses, by cross-validation, the scale of each input, the share of a Gaussian
    process and a factor of the spread. The interface is that of scikit-learn's regressors.

    Predictions do not change if all inputs are shifted, if rows are reordered, or if targets are split into several
    calls; they scale with the outputs. With more observations than `neighbours`, a target is predicted from the
    observations around it. Without any observation the prediction has mean 0 and standard deviation 1.

    Many data sets of one kind, such as the days of a network of stations, can be given together:
    `fit(X, y, groups=day, station=station, minutes=10)` fine-tunes the weights to them, and then
    `predict(X2, groups=day)` predicts each row from the observations of its own day. `select(day)` is a regressor for
    one of them, with maps and samples, and `update(X, y, groups=new_day)` adds another day without training.

    Args:
        period: periods of inputs that wrap, by name or position, such as `{"lon": 360}`; of dates in days.
        calibrate: whether the predictive spread is multiplied by the factor that is best for held-out observations;
            between evenly spaced observations it also has a lower bound, as none of these were close to the others.
        folds: number of folds of the cross-validation.
        scales: number of common factors of the inputs to try first, between 1/3 and 3 (about half as many with more
            than 512 observations), or these factors; 1: no search.
        trend: for one input that does not wrap: whether a linear or quadratic trend is removed before a prediction and
            added to it, if that is better for held-out observations. Beyond the data the trend goes on in a straight
            line, and the spread grows.
        gp: whether a Gaussian process with a smooth and a rough kernel (Matern 5/2 and 1/2), fitted to the data, gets a
            share of the predictions, as large as is best for held-out observations: little for most data, nearly all
            for functions that are very smooth and free of noise. Not with a period or groups.
        neighbours: number of observations that a prediction uses, at most.
        variants: 1, 2 or 4: predictions are averaged over as many variants of the data, with inputs or outputs
            reflected and inputs exchanged. Better, and slower in proportion; always 1 with more observations than
            `neighbours`.
        weights: folder of pretrained weights, see `shiftnp.regressor.pretrained`; None: those in the package.
        seed: seed of the folds and of samples.
        device: device of the model, such as "cuda"; None: the CPU.
        dtype: precision of the model, "float32" or "float64".

    Attributes:
        n_features_in_, feature_names_in_: number of inputs, and their names if the data had any.
        scales_: factors of the inputs and their weights, for each output.
        spread_factors_: factor of the spread of each output; 1 without calibration.
        scores_: cross-validated scores of each output; None if there were too few observations.
        dropped_: number of rows without any output, which were left out.
        tuning_: what fine-tuning has done, see `shiftnp.regressor.finetune.Tuning`; None after a `fit` without groups.
        seconds_: duration of `fit`.
    """

    def __init__(
        self,
        *,
        period: Any = None,
        calibrate: bool = True,
        folds: int = 8,
        scales: int | Sequence[float] = 7,
        trend: bool = True,
        gp: bool = True,
        neighbours: int = 512,
        variants: int = 1,
        weights: str | Path | None = None,
        seed: int = 0,
        device: str | None = None,
        dtype: str = "float32",
    ) -> None:
        self.period = period
        self.calibrate = calibrate
        self.folds = folds
        self.scales = scales
        self.trend = trend
        self.gp = gp
        self.neighbours = neighbours
        self.variants = variants
        self.weights = weights
        self.seed = seed
        self.device = device
        self.dtype = dtype

    # --- fitting -------------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, station: Any = None, minutes: float = 10.0
    ) -> Regressor:
        """Stores the observations and chooses scales and spread; no gradient steps, unless there are groups.

        With groups, the pretrained weights are fine-tuned for the given time. A fifth of the groups and of the stations
        is held out, and the fine-tuned weights are used only if they predict the held-out groups better, at stations
        that were trained on and at those that were not; `report` says so. Ctrl-C ends the training and keeps the best
        weights so far. See `shiftnp.regressor.finetune`.

        Args:
            X: inputs, one row for each observation: anything like an array, a pandas DataFrame or Series. Or an xarray
                DataArray, with its coordinates as inputs and its values as outputs.
            y: outputs, one column for each; NaN where there is none. None for a DataArray.
            groups: which data set each row belongs to, for many data sets of one kind: one label for each row, such as
                its day. None: all rows are one data set.
            station: which station each row is of, one label for each. None: rows with equal inputs are of one station.
            minutes: time for `fit` with groups, in all; 0: no training.
        """
        start = time.perf_counter()
        factors = self._check_arguments()
        inputs, outputs = self._read(X, y)
        labels = finetune.check_groups(groups, station, minutes, inputs.values)
        dx = inputs.values.shape[1]
        folder = weights.pretrained(dx, self.weights)
        model = weights.load(folder, self.device or "cpu", DTYPES[self.dtype])
        if model.dx != dx:
            raise ValueError(f"The weights in {folder} are for {model.dx} inputs, and X has {dx}.")
        period = checks.periods(self.period, inputs.columns)
        self.n_features_in_ = dx
        if inputs.columns.given:
            self.feature_names_in_ = np.array(inputs.columns.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._inputs, self._outputs, self._flat = inputs.columns, outputs.columns, outputs.flat
        self._model = model
        self.dropped_ = 0
        kept = self._store(inputs.values, outputs.values)
        self._groups, self.tuning_ = None if labels is None else labels[0].take(kept), None
        self._box = Box.around(self._x, period, self.neighbours * (1 if labels is None else len(labels[0].labels)))
        if labels is None:
            self.scales_, self.spread_factors_, self.scores_ = self._search(factors)
        else:
            finetune.fit_groups(self, labels[1].code[kept], factors, minutes, start)
        self._make_tiles()
        self.seconds_ = time.perf_counter() - start
        return self

    def update(self, X: Any, y: Any = None, *, groups: Any = None) -> Regressor:
        """Adds observations. Scales, spread and weights stay as `fit` has chosen them.

        Args:
            groups: after a `fit` with groups, the data set of each row, or one for all rows; new ones are added.
        """
        self._check_fitted()
        inputs, outputs = self._read(X, y, self._inputs, self._outputs)
        empty = not len(self._x)
        more = self._added(groups, len(inputs.values))
        kept = self._store(np.concatenate([self._x, inputs.values]), np.concatenate([self._y, outputs.values]))
        self._groups = None if more is None else more.take(kept)
        if empty:  # their units were arbitrary
            self._box = Box.around(self._x, self._box.period, self.neighbours)
        self._make_tiles()
        return self

    def _read(
        self, X: Any, y: Any, known: Columns | None = None, known_y: Columns | None = None
    ) -> tuple[Table, Table]:
        """Inputs and outputs after checks."""
        if y is None and columns.is_xarray(X) and hasattr(X, "values") and not callable(X.values):
            inputs, outputs = columns.read_field(X)
        else:
            inputs = columns.read(X, "X", "x", known)
            outputs = columns.read(y, "y", "y", known_y, dates=False)
        if not inputs.values.shape[1]:
            raise ValueError(
                f"X has 0 feature(s) (shape={inputs.values.shape}) while a minimum of 1 is required: give it a column."
            )
        if len(inputs.values) != len(outputs.values):
            raise ValueError(f"X has {len(inputs.values)} rows and y has {len(outputs.values)}: they must be as many.")
        checks.check_inputs(inputs)
        checks.check_outputs(outputs)
        return inputs, outputs

    def _check_arguments(self) -> Float[np.ndarray, " s"]:
        """Raises a ValueError for invalid arguments of the constructor; returns the common factors to try first."""
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}.")
        if self.variants not in (1, 2, 4):
            raise ValueError(f"variants must be 1, 2 or 4, got {self.variants!r}.")
        for name, least in (("folds", 2), ("neighbours", 16), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
        if isinstance(self.scales, int | np.integer) and not isinstance(self.scales, bool) and self.scales >= 1:
            return np.ones(1) if self.scales == 1 else np.geomspace(*FACTORS, int(self.scales))
        try:
            factors = np.unique(np.asarray(self.scales, dtype=np.float64).reshape(-1))
        except (TypeError, ValueError):
            factors = np.zeros(0)
        if isinstance(self.scales, int | bool) or not len(factors) or not (factors > 0).all():
            raise ValueError(f"scales must be a number of factors or a list of positive factors, got {self.scales!r}.")
        return factors

    def _store(self, x: Float[np.ndarray, "n dx"], y: Float[np.ndarray, "n k"]) -> Int[np.ndarray, " m"]:
        """Stores observations in an order of their own, so that results do not depend on the order of rows; returns
        the rows in this order."""
        there = np.flatnonzero(~np.isnan(y).all(1))
        self.dropped_ += len(y) - len(there)
        order = there[np.lexsort((*y[there].T[::-1], *x[there].T[::-1]))]
        self._x, self._y = x[order], y[order]
        return order

    def _search(self, factors: Float[np.ndarray, " s"]) -> tuple[list[Scales], list[float], list[Scores] | None]:
        tiles = Tiles.make(self._box.coordinates(self._x), np.ones(self._model.dx), self._box.wrapping, self.neighbours)
        folds = make_folds(tiles, self.folds, np.random.default_rng(self.seed))
        if len(self._x) > MANY and not np.ndim(self.scales):
            factors = factors[::2]
        trend = self.trend and self._box.period == (None,)
        found = search(self._model, folds, self._y, factors, self._variants, trend)
        if self.gp and not any(self._box.period):
            u, seed = self._box.coordinates(self._x), self.seed
            found = [add_process(scale, folds, u, y, seed) for scale, y in zip(found, self._y.T, strict=True)]
        spreads, results = [1.0] * len(found), []
        for o, scale in enumerate(found):
            if scale.held_out is None or scale.y is None:
                continue
            if self.calibrate:
                spreads[o] = spread_factor(scale.held_out, scale.y)
            prediction = scale.held_out.spread(torch.full_like(scale.y, spreads[o]))
            if self.calibrate and not any(self._box.period):
                scale.bound = find_bound(folds, self._y[:, o], scale.typical, prediction)
            results.append(scores(prediction, scale.y))
        return [scale.plain() for scale in found], spreads, results or None

    def _make_tiles(self) -> None:
        metric = np.exp(np.mean([np.log(scale.typical) for scale in self.scales_], axis=0))
        self._tiles = Tiles.make(self._box.coordinates(self._x), metric, self._box.wrapping, self.neighbours)

    # --- groups --------------------------------------------------------------------------------------------------

    def select(self, group: Any) -> Regressor:
        """After a `fit` with groups: a regressor for one of them, which predicts from its observations alone, with the
        same weights, scales and spread."""
        self._check_fitted()
        if self._groups is None:
            raise ValueError("`select` needs a `fit` with groups, and this Regressor was fitted to one data set.")
        return select(self, int(self._groups.codes(group, 1)[0]))

    def _codes(self, groups: Any, n: int) -> Int[np.ndarray, " n"] | None:
        """The group of each of `n` targets, as numbers; None if there are no groups."""
        self._check_fitted()
        if (self._groups is None) != (groups is None):
            raise ValueError(
                "groups can be given only if `fit` had groups."
                if self._groups is None
                else f"This Regressor was fitted to {len(self._groups.labels)} groups: name that of each row by "
                f"groups=..., or one by select({self._groups.labels[-1]!r})."
            )
        return None if self._groups is None else self._groups.codes(groups, n)

    def _added(self, groups: Any, n: int) -> Groups | None:
        """The groups of all observations and of `n` new ones."""
        if self._groups is None or groups is None:
            self._codes(groups, n)
            return None
        single = isinstance(groups, str) or np.ndim(groups) == 0
        return self._groups.join(Groups.of(read_labels([groups] * n if single else groups, n, "groups")))

    # --- predictions ---------------------------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, *, groups: Any = None) -> Any:
        """The predictive mean, and with `return_std` the standard deviation of a new observation as well.

        The standard deviation is half of the width of the central 68.3 % interval, as of a Gaussian: predictions have
        heavy tails, for outliers, and would otherwise have standard deviations that are far wider than their intervals.

        After a `fit` with groups, `groups` names that of each row, or one for all: each row is predicted from the
        observations of its own group.

        Results have the form of `X`: numpy arrays, pandas Series (DataFrames for several outputs), or xarray DataArrays
        for a DataArray or Dataset with the inputs as coordinates or variables. If that has dask arrays, results have
        them as well: nothing is computed before results are needed or written, and then block by block, on the dask
        cluster that is active or on local threads.
        """
        targets = self._targets(X, chunked=True)
        mean, std = self._statistics(targets, groups=groups)
        return (self._like(mean, targets), self._like(std, targets)) if return_std else self._like(mean, targets)

    def predict_quantiles(self, X: Any, q: Sequence[float] | float = (0.05, 0.5, 0.95), *, groups: Any = None) -> Any:
        """Quantiles of new observations: an array `[n, q]` (`[n, outputs, q]` for several outputs); for pandas a
        DataFrame with a column for each; for a single number `q` as the mean of `predict`."""
        levels, targets = check_levels(q), self._targets(X, chunked=True)
        values = self._statistics(targets, levels, groups)[2:]
        if np.ndim(q) == 0:
            return self._like(values[0], targets)
        if targets.like is None:
            stacked = np.moveaxis(values, 0, -1)
            return stacked[:, 0] if self._flat else stacked
        return containers.join([self._like(v, targets) for v in values], levels, "quantile")

    def predict_table(self, X: Any, quantiles: Sequence[float] = (0.05, 0.95), *, groups: Any = None) -> Any:
        """Mean, standard deviation and quantiles as a pandas DataFrame with the columns `mean`, `std`, `q0.05`, ...;
        for several outputs with the output's name before each (`zinc mean`)."""
        levels, targets = check_levels(quantiles), self._targets(X)
        names = ["mean", "std", *(f"q{level:g}" for level in levels)]
        found = self._statistics(targets, levels, groups)
        return containers.frame(found, names, targets, self._outputs.names, self._flat)

    def predict_grid(
        self, quantiles: Sequence[float] = (), *, chunks: Any = None, out: Path | str | None = None, **axes: Any
    ) -> Any:
        """Predictions on a grid, as an `xarray.Dataset` with `mean`, `std` and quantiles in the units of the data.

        A grid that does not fit into memory is predicted block by block by dask, on the cluster that is active or on
        local threads; values do not depend on the size of blocks, apart from rounding.

        Args:
            quantiles: levels of quantiles to add.
            chunks: points in a block along each input: a number, a number for each input by its name, or "auto". The
                Dataset then has dask arrays, which are not computed yet. None: without `out` everything is computed at
                once, in memory.
            out: a Zarr (.zarr) or NetCDF (.nc) file that is written block by block, replaces an earlier one when it is
                complete, and is opened, not loaded, as the result.
            axes: for each input, by its name (x0, x1, ... without names), the number of points, evenly spread over the
                data; or the points themselves; or `(low, high, number)`. Dates without a time zone are in UTC, as are
                those of the Dataset, which cannot have one. Inputs that are left out get 500 points for
                one input, 100 for two and 30 for three.
        """
        self._codes(None, 0)
        return grid.predict_grid(self, axes, quantiles, chunks, None if out is None else Path(out))

    def sample(self, X: Any, n: int = 1, joint: bool = False, seed: int | None = None) -> Float[np.ndarray, " n *any"]:
        """`n` draws of new observations at each target, `[n, targets]` (`[n, targets, outputs]` for several outputs).

        Args:
            joint: False: draws at two targets are independent given the observations, so a draw is not a smooth
                function. True: draws of whole functions, which takes longer and allows for at most 512 targets.
            seed: None: the seed of the constructor.
        """
        targets = self._targets(X)
        self._codes(None, len(targets.values))
        if not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"n must be a whole number of at least 1, got {n!r}.")
        generator = torch.Generator().manual_seed(self.seed if seed is None else seed)
        if not joint:
            drawn = np.empty((n, len(targets.values), len(self._outputs.names)))
            for rows, prediction in self._predictor.blocks(targets.values):
                drawn[:, rows] = prediction.sample(int(n), generator).numpy().transpose(0, 2, 1)
        else:
            if len(self._tiles.anchors) > 1 or len(targets.values) > 512:
                raise ValueError(
                    f"Joint samples need at most {self.neighbours} observations, 512 targets and no period, got "
                    f"{len(self._x)} observations and {len(targets.values)} targets: use joint=False."
                )
            drawn = self._predictor.sample_jointly(targets.values, int(n), generator).numpy()
        return drawn[..., 0] if self._flat else drawn

    def log_likelihood(self, X: Any, y: Any, *, groups: Any = None) -> float:
        """Mean log density of observations, over rows and outputs that are there, in the units of the outputs."""
        targets, truth = self._truth(X, y)
        density = torch.empty_like(truth)
        for rows, prediction in self._blocks(targets.values, groups):
            density[rows] = prediction.log_prob(truth[rows].T.nan_to_num()).T
        return float(density[~truth.isnan()].mean())

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """The coefficient of determination R^2 of the mean, averaged over outputs, as of scikit-learn's regressors."""
        targets, truth = self._truth(X, y)
        mean = self._statistics(targets, groups=groups)[0]
        by = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        each = []
        for predicted, known in zip(mean.T, truth.numpy().T, strict=True):
            there = ~np.isnan(known)
            w, p, t = by[there], predicted[there], known[there]
            residual = float((w * (t - p) ** 2).sum())
            total = float((w * (t - np.average(t, weights=w)) ** 2).sum())
            each.append(1 - residual / total if total > 0 else float(residual == 0))
        return float(np.mean(each))

    def report(self) -> str:
        """Five lines: points, scales found, cross-validated CRPS, coverage, seconds; a sixth about fine-tuning, after
        which scores are those at held-out stations of held-out groups."""
        self._check_fitted()
        return summary(self)

    # --- files ---------------------------------------------------------------------------------------------------

    def save(self, folder: Path | str) -> None:
        """Saves the fitted model with its observations and weights, in JSON and safetensors, replacing an earlier one
        in that folder."""
        self._check_fitted()
        saving.save(self, Path(folder))

    @staticmethod
    def load(folder: Path | str) -> Regressor:
        """The model that `save` wrote; it predicts the same."""
        return saving.load(Regressor, Path(folder))

    # --- shared parts --------------------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        if not hasattr(self, "_tiles"):
            raise not_fitted("This Regressor instance is not fitted yet: call `fit` with observations first.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_tiles")

    def _targets(self, X: Any, chunked: bool = False) -> Any:
        """Targets as a Table; with `chunked` those in dask arrays as `Chunked`."""
        self._check_fitted()
        if chunked and columns.is_chunked(X):
            return columns.read_chunked(X, "X", self._inputs)
        targets = columns.read(X, "X", "x", self._inputs)
        checks.check_inputs(targets)
        return targets

    def _truth(self, X: Any, y: Any) -> tuple[Table, Float[Tensor, "n k"]]:
        targets, truth = self._targets(X), columns.read(y, "y", "y", dates=False)
        if truth.values.shape != (len(targets.values), len(self._outputs.names)):
            raise ValueError(
                f"y must have {len(targets.values)} rows and {len(self._outputs.names)} outputs, got shape "
                f"{truth.values.shape}."
            )
        return targets, torch.from_numpy(truth.values.copy())

    @property
    def _variants(self) -> int:
        return self.variants if len(self._x) <= self.neighbours else 1

    @property
    def _predictor(self) -> Predictor:
        return Predictor(
            self._model, self._box, self._tiles, self._y, self.scales_, self.spread_factors_, self._variants
        )

    def _statistics(self, targets: Table | Chunked, levels: Sequence[float] = (), groups: Any = None) -> Any:
        """Mean, standard deviation and quantiles `[s, n, k]`; at chunked targets a dask array `[s, *shape, k]`."""
        if isinstance(targets, Chunked):
            one = self if groups is None and self._groups is None else self.select(groups)
            return blocks.statistics(one._predictor, targets, levels)
        codes = self._codes(groups, len(targets.values))
        if codes is None:
            return self._predictor.statistics(targets.values, levels)
        result = np.empty((2 + len(levels), len(codes), len(self._outputs.names)))
        for code, rows in by_group(codes):
            result[:, rows] = select(self, code)._predictor.statistics(targets.values[rows], levels)
        return result

    def _blocks(
        self, x: Float[np.ndarray, "m dx"], groups: Any = None
    ) -> Iterator[tuple[Int[np.ndarray, " r"], Mixture]]:
        """Calibrated predictions `[k, r]` of blocks of targets, with their indices."""
        codes = self._codes(groups, len(x))
        if codes is None:
            yield from self._predictor.blocks(x)
        else:
            for code, some in by_group(codes):
                for rows, prediction in select(self, code)._predictor.blocks(x[some]):
                    yield some[rows], prediction

    def _like(self, values: Any, targets: Table | Chunked) -> Any:
        return containers.like(values, targets, self._outputs, self._flat)

    _model: NeuralProcess
    _inputs: Columns
    _outputs: Columns
    _flat: bool
    _x: Float[np.ndarray, "n dx"]
    _y: Float[np.ndarray, "n k"]
    _box: Box
    _tiles: Tiles
    _groups: Groups | None
    tuning_: finetune.Tuning | None
