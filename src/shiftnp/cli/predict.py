"""The command `shiftnp predict`."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from shiftnp.cli.evaluate import say
from shiftnp.cli.inputs import (
    check_names,
    check_outputs,
    command,
    fit,
    parse_periods,
    plain_messages,
    read,
    stem,
    write_picture,
)
from shiftnp.cli.settings import UsageError, usage

if TYPE_CHECKING:
    from shiftnp.regressor import Regressor
    from shiftnp.regressor.observations import Observations, Targets

Names = Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")]
Pairs = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE [NAME=VALUE ...]")]
Cells = Annotated[tuple[str, ...], arg(metavar="VALUE [VALUE ...]")]
File = Annotated[Path | None, arg(metavar="FILE")]
Folder = Annotated[Path | None, arg(metavar="DIR")]


@dataclass(frozen=True)
class Predict:
    """Predicts a curve or a map with error bars from one data set, by pretrained weights: no training.

    For instance: shiftnp predict stations.csv --x lon lat --y temperature --out map.nc
    """

    file: Positional[Annotated[Path, arg(metavar="FILE")]]
    """Observations: a table (.csv, .tsv, .txt, .parquet) with a header, or a field (.nc, .zarr)."""
    x: Names = ()
    """One to three inputs, such as lon lat. Default for a field: its dimensions. Dates are understood."""
    y: Names = ()
    """One or several outputs. Default for a file with one field: that field."""
    out: File = None
    """File to write: .csv, .tsv, .parquet, .nc or .zarr. Default: FILE-predicted.nc, or .csv for points."""
    at: File = None
    """Predict at the points of this table, or on the grid of this .nc or .zarr file, which must have the inputs."""
    grid: Annotated[str | None, arg(metavar="NxN")] = None
    """Predict on a grid over the data with so many points along each input, such as 200x200. Default: the grid of the
    file itself, whose holes are filled, or 500, 100x100 or 30x30x30 points."""
    period: Pairs = ()
    """Inputs that wrap, such as lon=360; periods of dates are in days."""
    quantiles: Annotated[tuple[float, ...], arg(metavar="[Q ...]")] = (0.05, 0.95)
    """Quantiles to write, between 0 and 1."""
    select: Pairs = ()
    """Use only rows with this value (day=2005-01-01), or this part of a field (time=2019-03-01T12)."""
    missing: Cells = ()
    """Numbers, or cells of a table, that mean "not observed", such as -9999 or n.d."""
    picture: bool = True
    """Also draw a picture beside the output, such as map.png."""
    report: File = None
    """Also write a self-contained page with the picture, the uncertainty, the calibration and the command."""
    weights: Folder = None
    """Folder of pretrained weights. Default: those in the package."""
    seed: int = 0
    """Random seed of the cross-validation."""

    def run(self) -> None:
        """Runs the command."""
        sizes = parse_grid(self.grid)
        period = parse_periods(self.period)
        if self.at is not None and sizes:
            raise UsageError("give --at or --grid, not both.")
        if not all(0 < q < 1 for q in self.quantiles):
            raise UsageError(f"quantiles must be between 0 and 1, such as 0.05, got {self.quantiles}.")
        check_names(self.x, self.seed)
        with plain_messages():
            self.predict(sizes, period)

    def predict(self, sizes: list[int], period: dict[str, float] | None) -> None:
        """Reads, fits, predicts and writes."""
        from rich.console import Console

        from shiftnp._progress import progress
        from shiftnp.regressor import columns
        from shiftnp.regressor.cells import is_field
        from shiftnp.regressor.files import check_targets, read_targets
        from shiftnp.regressor.results import check_output, grid_targets, predict
        from shiftnp.report.regression import drawn_quantiles

        table = self.at is not None and not is_field(self.at)
        out = self.out or Path(f"{stem(self.file)}-predicted{'.csv' if table else '.nc'}")
        with usage():
            check_output(out)
        check_outputs(out, self.picture, self.report, (self.file, self.at))
        if self.at is not None:
            check_targets(self.at)
        observations = read(self.file, self.x, self.y, self.select, self.missing)
        names = list(observations.inputs.columns)
        if len(sizes) not in (0, 1, len(names)):
            raise UsageError(f"--grid takes {len(names)} numbers, for {', '.join(names)}, got {self.grid}.")
        at = None if self.at is None else read_targets(self.at, columns.read(observations.inputs, "X", "x").columns)
        with progress(console=Console(stderr=True)) as bar:
            fitting = bar.add_task("finding scales", total=None)
            model = fit(observations, period, self.weights, self.seed)
            bar.remove_task(fitting)
            start = time.perf_counter()
            if at is not None:
                targets = at
            elif sizes or observations.grid is None:
                targets = grid_targets(model, sizes, observations.attributes)
            else:
                targets = observations.grid
            predicting = bar.add_task("predicting", total=len(targets.rows))
            levels = sorted({*self.quantiles, *drawn_quantiles(len(names))})
            predicted = predict(model, targets, levels, lambda n: bar.update(predicting, advance=n))
        seconds = time.perf_counter() - start
        self.write(out, model, targets, predicted)
        pages = self.draw(out, model, observations, targets, predicted)
        lines = model.report().splitlines()[:4]
        print(
            "\n".join([*lines, f"seconds: {model.seconds_:.2f} to fit, {seconds:.2f} for {len(predicted):,} targets"])
        )
        for path in (out, *pages):
            print(path.resolve())

    def write(self, out: Path, model: Regressor, targets: Targets, predicted: Any) -> None:
        """Writes the result."""
        from shiftnp.regressor.results import FIELDS, to_field, to_table, write_field, write_table

        names = [name for name in predicted.columns if not re.fullmatch(r"(.* )?q[\d.e-]+", name)]
        names += [name for name in predicted.columns if name.split(" ")[-1] in [f"q{q:g}" for q in self.quantiles]]
        predicted = predicted[[name for name in predicted.columns if name in names]]
        if out.suffix.lower() in FIELDS:
            write_field(out, to_field(model, targets, predicted, self.quantiles, {"history": command()}))
        else:
            write_table(out, to_table(targets, predicted))

    def draw(
        self, out: Path, model: Regressor, observations: Observations, targets: Targets, predicted: Any
    ) -> list[Path]:
        """Draws the picture and writes the page; returns their paths."""
        from shiftnp._text import sentence

        if not self.picture and self.report is None:
            return []
        from shiftnp.plots.regression import draw_predictions
        from shiftnp.report.regression import predictions_of, write_prediction_page

        written = []
        shown = predictions_of(model, observations, targets, predicted)
        if self.picture:
            try:
                write_picture(out.with_suffix(".png"), draw_predictions(shown))
                written.append(out.with_suffix(".png"))
            except OSError:
                raise
            except Exception as error:  # the result itself is written
                say(f"The picture could not be drawn: {sentence(error)}")
        if self.report is not None:
            held_out = self.cross_validate(model, observations)
            write_prediction_page(self.report, model, observations, shown, held_out, command(), self.file.name)
            written.append(self.report)
        return written

    def cross_validate(self, model: Regressor, observations: Observations) -> dict[str, Any]:
        """A cross-validation with random folds for the page, by output."""
        import numpy as np

        from shiftnp.regressor.crossvalidation import LEAST, RANDOM, cross_validate, pretrained_method, random_folds

        found = {}
        method = pretrained_method(model._box.period, weights=self.weights, seed=self.seed)
        for name, y in zip(model._outputs.names, model._y.T, strict=True):
            x, y = model._x[~np.isnan(y)], y[~np.isnan(y)]
            if len(np.unique(x, axis=0)) >= LEAST:
                folds = random_folds(x, 5, np.random.default_rng(self.seed))
                found[name] = {RANDOM: cross_validate(x, y, folds, method)}
        return found


def parse_grid(text: str | None) -> list[int]:
    """Numbers of points along each input, such as 200x100; none if there is no text."""
    if text is None:
        return []
    if not re.fullmatch(r"[1-9]\d{0,6}([x,*][1-9]\d{0,6})*", text.strip()):
        raise UsageError(f"--grid takes numbers of points such as 200x200, got {text!r}.")
    return [int(part) for part in re.split(r"[x,*]", text.strip())]
