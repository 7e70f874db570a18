"""Methods to compare the pretrained model with: a fitted Gaussian process, interpolation, tabular foundation models."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from shiftnp._arguments import first_line
from shiftnp.baselines.distance import InverseDistance
from shiftnp.baselines.single import SingleGP
from shiftnp.regressor.box import Box
from shiftnp.regressor.crossvalidation import DISTANCE, GP, NEAREST, Method, statistics
from shiftnp.regressor.mixture import Mixture

MOST_GP = 600
"""Observations that the Gaussian process is fitted to, at most (a random choice)."""
LEVELS = tuple((i + 0.5) / 50 for i in range(50))
"""Quantiles by which the predictions of tabular models are represented."""


def features(
    x: Float[np.ndarray, "n dx"], xt: Float[np.ndarray, "m dx"], period: Sequence[float | None]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "m d"]]:
    """Inputs in units of the extent of the observations; those that wrap as two coordinates on a circle."""
    box = Box.around(x, period, max(len(x), 1))

    def embed(values: np.ndarray) -> np.ndarray:
        parts = []
        for u, p in zip(box.coordinates(values).T, box.wrapping, strict=True):
            angle = 2 * np.pi * u / p
            parts += [u] if not np.isfinite(p) else [p / (2 * np.pi) * np.cos(angle), p / (2 * np.pi) * np.sin(angle)]
        return np.stack(parts, -1)

    return embed(x), embed(xt)


def baseline_method(baseline: Callable[..., Any], period: Sequence[float | None]) -> Method:
    """A baseline, which is called like a model, on standardised outputs."""

    def method(x: np.ndarray, y: np.ndarray, xt: np.ndarray, yt: np.ndarray) -> np.ndarray:
        u, ut = features(x, xt, period)
        mean, std = float(y.mean()), float(y.std()) or 1.0
        arrays = (u[None], ((y - mean) / std)[None, :, None], ut[None])
        found = baseline(*(torch.from_numpy(a) for a in arrays))
        centre, spread = (v[0, :, 0, None] * std for v in (found.mean, found.stddev))
        return statistics(Mixture(torch.ones_like(centre), mean + centre, spread), yt)

    return method


def gp_method(gp: SingleGP, period: Sequence[float | None], most: int) -> Method:
    """A Gaussian process that is fitted to each fold.

    Args:
        most: number of observations that it is fitted to, at most.
    """

    def method(x: np.ndarray, y: np.ndarray, xt: np.ndarray, yt: np.ndarray) -> np.ndarray:
        some = np.random.default_rng(0).permutation(len(x))[:most]
        u, ut = features(x[some], xt, period)
        mean, std = (torch.from_numpy(part)[:, None] for part in gp.predict(u, y[some], ut))
        return statistics(Mixture(torch.ones_like(mean), mean, std), yt)

    return method


def rivals(period: Sequence[float | None], n: int) -> tuple[dict[str, Method], list[str]]:
    """Methods by name, and sentences about those that cannot be used or are limited.

    Args:
        n: number of observations.
    """
    found: dict[str, Method] = {}
    notes = []
    if importlib.util.find_spec("gpytorch") is None:
        notes.append("There is no fitted GP in the comparison: pip install 'shiftnp[gp]'.")
    else:
        found[GP] = gp_method(SingleGP(), period, MOST_GP)
        if n > MOST_GP:
            notes.append(f"The GP is fitted to {MOST_GP} of the observations, chosen at random, to save time.")
    found[DISTANCE] = baseline_method(InverseDistance(), period)
    found[NEAREST] = baseline_method(InverseDistance(neighbours=1), period)
    for name, make in (("TabPFN", _tabpfn), ("TabICL", _tabicl)):
        try:
            model = make()
        except Exception as error:  # another package, of any version
            notes.append(f"{name} is installed but cannot be used ({first_line(error)}).")
            continue
        if model is not None:
            found[name] = tabular_method(*model)
    return found, notes


# --- tabular foundation models ---------------------------------------------------------------------------------------


def _tabpfn() -> tuple[Callable[[], Any], dict[str, Any]] | None:
    """A maker of TabPFN regressors and the arguments by which they predict quantiles; None if it is not installed.

    Its weights are looked for where the package keeps them, and never downloaded.
    """
    if importlib.util.find_spec("tabpfn") is None:
        return None
    home = "Library/Caches" if sys.platform == "darwin" else ".cache"
    cache = Path(os.environ.get("TABPFN_MODEL_CACHE_DIR") or Path.home() / home / "tabpfn")
    weights = sorted(cache.glob("*regressor*.ckpt"))
    if not weights:
        raise FileNotFoundError(f"its weights are not in {cache}, and nothing is downloaded")
    cls = importlib.import_module("tabpfn").TabPFNRegressor
    return lambda: cls(model_path=str(weights[-1])), {"output_type": "quantiles", "quantiles": list(LEVELS)}


def _tabicl() -> tuple[Callable[[], Any], dict[str, Any]] | None:
    """As `_tabpfn`, for TabICL."""
    if importlib.util.find_spec("tabicl") is None:
        return None
    os.environ["HF_HUB_OFFLINE"] = "1"
    cls = importlib.import_module("tabicl").TabICLRegressor
    cls(allow_auto_download=False).fit(np.zeros((4, 1)) + np.arange(4.0)[:, None], np.arange(4.0))  # finds weights
    return lambda: cls(allow_auto_download=False), {"output_type": "quantiles", "alphas": list(LEVELS)}


def tabular_method(make: Callable[[], Any], arguments: dict[str, Any]) -> Method:
    """A regressor with scikit-learn's interface that predicts quantiles, as a mixture of Gaussians around them."""

    def method(x: np.ndarray, y: np.ndarray, xt: np.ndarray, yt: np.ndarray) -> np.ndarray:
        found = make().fit(x, y).predict(xt, **arguments)
        # A list has an array for each quantile, an array a row for each target.
        quantiles = np.stack(found, 1) if isinstance(found, list) else np.asarray(found)
        means = torch.from_numpy(np.sort(quantiles.astype(np.float64), axis=1))
        width = 0.5 * (means[:, 2:] - means[:, :-2])  # between neighbours, which makes the density continuous
        stds = torch.cat([width[:, :1], width, width[:, -1:]], 1).clamp(min=1e-6 * float(y.std() or 1.0))
        return statistics(Mixture(torch.full_like(means, 1 / len(LEVELS)), means, stds), yt)

    return method
