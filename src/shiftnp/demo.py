"""Demonstration with real data, without training: `python -m shiftnp.demo`, or `make demo`.

`Regressor`, with the weights that come with the package, predicts CO2 in the air over time, from some weeks and with
gaps, and a map of air temperature from a few hundred places. Both are scored on what was withheld, beside a Gaussian
process that is fitted to the same observations. Then all inputs are shifted, which changes nothing. The data are in the
public domain, see data/README.md.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from shiftnp.baselines.single import SingleGP
from shiftnp.plots.maps import NOTHING, coastline
from shiftnp.regressor import Regressor
from shiftnp.regressor.calibration import Scores, scores
from shiftnp.regressor.distribution import distribution
from shiftnp.regressor.mixture import Mixture

DATA = Path(__file__).parent / "data"
SHIFT = 10_000.0
YEARS = 1980.0, 1992.0
"""Years of CO2 that are shown."""
GAPS = (1982.6, 1983.9), (1987.2, 1988.1)
"""Periods without any observation."""
EVERY = 3
"""Outside of the gaps, every third week is observed."""
PLACES = 300
"""Number of places at which the temperature is observed."""


@dataclass(frozen=True, eq=False)
class Data:
    """Observations, of which some are withheld."""

    name: str
    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, " n"]
    observed: Bool[np.ndarray, " n"]

    @property
    def withheld(self) -> tuple[Float[np.ndarray, "m dx"], Float[np.ndarray, " m"]]:
        """Inputs and outputs that are predicted."""
        return self.x[~self.observed], self.y[~self.observed]


@dataclass(frozen=True, eq=False)
class Result:
    """A method's scores on what was withheld, and the seconds that fitting and predicting took."""

    method: str
    scores: Scores
    seconds: float


def co2() -> Data:
    """CO2 at Mauna Loa in decimal years."""
    rows = [line.split(",") for line in (DATA / "co2.csv").read_text().split()[1:]]
    days = np.array([row[0] for row in rows], dtype="datetime64[D]") - np.datetime64("1958-01-01")
    years = 1958 + days / np.timedelta64(1, "D") / 365.25
    shown = (years >= YEARS[0]) & (years < YEARS[1])
    years, values = years[shown], np.array([float(row[1]) for row in rows])[shown]
    observed = np.arange(len(years)) % EVERY == 0
    for first, last in GAPS:
        observed &= (years < first) | (years > last)
    return Data("CO2, Mauna Loa", years[:, None], values, observed)


def air_temperature() -> Data:
    """Temperature over North America in degrees Celsius, by longitude and latitude."""
    table = np.loadtxt(DATA / "air-temperature.csv", delimiter=",", skiprows=1)
    observed = np.zeros(len(table), bool)
    observed[np.random.default_rng(0).permutation(len(table))[:PLACES]] = True
    return Data("air temperature", table[:, :2], table[:, 2] - 273.15, observed)


# --- predictions -------------------------------------------------------------------------------------------------


def predict(data: Data, weights: Path | None, shift: float = 0.0) -> tuple[Mixture, float]:
    """Predictions at all inputs, with all inputs shifted, and the seconds that they took."""
    start = time.perf_counter()
    model = Regressor(weights=weights).fit(data.x[data.observed] + shift, data.y[data.observed])
    prediction = distribution(model, data.x + shift)
    return prediction, time.perf_counter() - start


def rival(data: Data) -> Result | None:
    """A Gaussian process fitted to the same observations; None if gpytorch is not installed."""
    start = time.perf_counter()
    try:
        found = SingleGP().predict(data.x[data.observed], data.y[data.observed], data.x)
    except ImportError:
        return None
    mean, std = (torch.from_numpy(part)[:, None] for part in found)
    return Result("fitted GP", score(Mixture(torch.ones_like(mean), mean, std), data), time.perf_counter() - start)


def score(prediction: Mixture, data: Data) -> Scores:
    """Scores of predictions at all inputs on those that are withheld."""
    there = torch.from_numpy(~data.observed)
    return scores(Mixture(*(part[there] for part in prediction)), torch.from_numpy(data.withheld[1]))


# --- the picture -------------------------------------------------------------------------------------------------


def draw(curve: Data, on_curve: Mixture, field: Data, on_field: Mixture, path: Path) -> None:
    """A curve above, and below four maps: what was observed, the truth, and mean and standard deviation."""
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 0.95))
    above, below = parts
    draw_curve(above.subplots(), curve, on_curve)
    axes = below.subplots(1, 4, sharex=True, sharey=True)
    seen = np.where(field.observed, field.y, np.nan)
    limits = float(field.y.min()), float(field.y.max())
    panels = {
        f"{PLACES} observations": seen,
        "truth": field.y,
        "predicted mean": on_field.mean.numpy(),
        "predicted standard deviation": on_field.half_width.numpy(),
    }
    images = [
        draw_map(ax, title, field.x, values, limits) for ax, (title, values) in zip(axes, panels.items(), strict=True)
    ]
    axes[0].set_ylabel("latitude")
    below.colorbar(images[2], ax=list(axes[:3]), label="air temperature, °C", pad=0.01, shrink=0.75)
    below.colorbar(images[3], ax=axes[3], label="°C", shrink=0.75)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def draw_curve(ax: Axes, data: Data, prediction: Mixture) -> None:
    """Observations, withheld values, and the prediction with its 90 % interval."""
    x, order = data.x[:, 0], np.argsort(data.x[:, 0])
    low, high, mean = (
        t.numpy()[order] for t in (prediction.quantile(0.05), prediction.quantile(0.95), prediction.mean)
    )
    for first, last in GAPS:
        ax.axvspan(first, last, color="0.94", linewidth=0)
    ax.fill_between(x[order], low, high, color="tab:blue", alpha=0.25, linewidth=0, label="90 % interval")
    ax.plot(x[order], mean, color="tab:blue", label="predicted mean")
    ax.plot(x[~data.observed], data.y[~data.observed], ".", color="tab:orange", markersize=3, label="withheld")
    ax.plot(x[data.observed], data.y[data.observed], "k.", markersize=4, label="observed")
    ax.set(xlim=YEARS, ylabel="CO2, ppm", title=f"{data.name}, no training: prediction from the observed weeks")
    ax.legend(loc="upper left", ncols=4, fontsize="small")


def draw_map(
    ax: Axes, title: str, x: Float[np.ndarray, "n 2"], values: Float[np.ndarray, " n"], limits: tuple[float, float]
) -> Any:
    """One field on the grid; places without a value are grey."""
    lon, lat = np.unique(x[:, 0]), np.unique(x[:, 1])
    grid = np.full((len(lat), len(lon)), np.nan)
    grid[np.searchsorted(lat, x[:, 1]), np.searchsorted(lon, x[:, 0])] = values
    low, high = (0.0, None) if "deviation" in title else limits
    image = ax.pcolormesh(lon, lat, grid, shading="nearest", cmap="plasma" if high else "viridis", vmin=low, vmax=high)
    ax.add_collection(LineCollection(coastline((lon[0], lon[-1], lat[0], lat[-1])), colors="0.2", linewidths=0.6))
    ax.set_facecolor(NOTHING)
    ax.set(title=title, xlabel="longitude", aspect=1 / np.cos(np.radians(lat.mean())))
    return image


# --- the command -------------------------------------------------------------------------------------------------


def show(console: Console, data: Data, results: list[Result], units: str) -> None:
    """A table of the scores on what was withheld."""
    withheld = len(data.withheld[1])
    table = Table(
        title=f"{data.name}: {int(data.observed.sum())} observations, {withheld} withheld", title_justify="left"
    )
    for heading in ("", f"CRPS, {units}", "log-likelihood", "90 % cover", "seconds"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for result in results:
        found = result.scores
        table.add_row(
            result.method,
            f"{found.crps:.3f}",
            f"{found.log_likelihood:.3f}",
            f"{100 * found.coverage:.0f} %",
            f"{result.seconds:.2f}",
        )
    console.print(table)


def main(arguments: list[str] | None = None) -> None:
    """Runs the demonstration."""
    parser = argparse.ArgumentParser(prog="python -m shiftnp.demo", description="Predicts real data without training.")
    parser.add_argument("--weights", type=Path, help="folder of pretrained weights (default: those in the package)")
    parser.add_argument("--out", type=Path, default=Path("demo/demo.png"), help="image file to write")
    args = parser.parse_args(arguments)
    console = Console()
    start = time.perf_counter()
    drawn: list[tuple[Data, Mixture]] = []
    moved = []
    without = False
    for data, units in ((co2(), "ppm"), (air_temperature(), "°C")):
        prediction, seconds = predict(data, args.weights)
        results, fitted = [Result("shiftnp, no training", score(prediction, data), seconds)], rival(data)
        without |= fitted is None
        show(console, data, results + ([fitted] if fitted else []), units)
        drawn.append((data, prediction))
        there, _ = predict(data, args.weights, SHIFT)
        change = (
            float((there.mean - prediction.mean).abs().max()),
            float((there.half_width - prediction.half_width).abs().max()),
        )
        moved.append(f"{data.name} {max(change):.1g} {units}")
    if without:
        console.print(
            "No Gaussian process was fitted, as gpytorch is not installed: pip install 'shiftnp[gp]'.", markup=False
        )
    console.print(
        f"The same data with all inputs shifted by {SHIFT:,.0f}: means and standard deviations change by at most "
        f"{', '.join(moved)}."
    )
    draw(*drawn[0], *drawn[1], args.out)
    console.print(f"{time.perf_counter() - start:.1f} seconds. The picture:")
    console.print(str(args.out.resolve()), soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
