"""Regressors with small random models in float64, and data, for the tests of `shiftnp.regressor`."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch

from conftest import small_model
from shiftnp.kernels import Rotary
from shiftnp.regressor import Regressor, write_pretrained


@cache
def folder() -> Path:
    """A folder with the weights of small models for one to three inputs."""
    folder = Path(mkdtemp())
    for dx in (1, 2, 3):
        shutil.copytree(weights(dx), folder / f"{dx}d")
    return folder


@cache
def weights(dx: int) -> Path:
    """A folder with the weights of a small model."""
    model = small_model(
        "te-tnp", dx, location_update=False, kernel=Rotary(band=(0.5, 3.0)), likelihood="mixture", components=2
    )
    folder = Path(mkdtemp()) / f"{dx}d"
    write_pretrained(folder, model, "A small random model.\n", torch.float64)
    return folder


def regressor(dx: int = 2, **arguments) -> Regressor:
    return Regressor(
        **{"weights": weights(dx), "dtype": "float64", "scales": 3, "folds": 4, "variants": 2, "gp": False, **arguments}
    )


def observations(n: int = 40, dx: int = 2, outputs: int | None = None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs that are multiples of 2^-10, so that shifts are exact, and noisy outputs."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.uniform(size=(n, dx)) * 8 * 2**10) / 2**10
    phase = np.zeros(1) if outputs is None else np.arange(outputs)
    y = np.sin(x.sum(1)[:, None] + phase) + 0.1 * rng.normal(size=(n, len(phase)))
    return x, y[:, 0] if outputs is None else y


def same(a, b, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=tolerance, atol=tolerance)
