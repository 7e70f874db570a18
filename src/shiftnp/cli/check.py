"""The command `shiftnp check`."""

from __future__ import annotations

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
from shiftnp.cli.predict import Cells, File, Folder, Names, Pairs
from shiftnp.cli.settings import UsageError

if TYPE_CHECKING:
    from shiftnp.regressor.crossvalidation import Results, Suspicious
    from shiftnp.regressor.observations import Observations


@dataclass(frozen=True)
class Check:
    """Cross-validates the pretrained model on one data set, beside a fitted GP and interpolation.

    Observations are held out at random, and in blocks, as if a region or a period had no data. For instance:
    shiftnp check stations.csv --x lon lat --y temperature
    """

    file: Positional[Annotated[Path, arg(metavar="FILE")]]
    """Observations: a table (.csv, .tsv, .txt, .parquet) with a header, or a field (.nc, .zarr)."""
    x: Names = ()
    """One to three inputs, such as lon lat. Default for a field: its dimensions. Dates are understood."""
    y: Annotated[str | None, arg(metavar="NAME")] = None
    """The output. Default for a file with one field: that field."""
    out: File = None
    """JSON file for all scores, with the picture beside it. Default: FILE-check.json."""
    period: Pairs = ()
    """Inputs that wrap, such as lon=360; periods of dates are in days."""
    select: Pairs = ()
    """Use only rows with this value (day=2005-01-01), or this part of a field (time=2019-03-01T12)."""
    missing: Cells = ()
    """Numbers, or cells of a table, that mean "not observed", such as -9999 or n.d."""
    folds: int = 5
    """Number of folds, and of blocks."""
    picture: bool = True
    """Also draw scores, PIT histograms and coverage beside the output."""
    report: File = None
    """Also write a self-contained page with scores, calibration, suspicious points, the prediction and the command."""
    weights: Folder = None
    """Folder of pretrained weights. Default: those in the package."""
    seed: int = 0
    """Random seed of the folds."""

    def run(self) -> None:
        """Runs the command."""
        period = parse_periods(self.period)
        check_names(self.x, self.seed)
        if not 2 <= self.folds <= 100:
            raise UsageError(f"--folds must be between 2 and 100, got {self.folds}.")
        out = self.out or Path(f"{stem(self.file)}-check.json")
        if out.suffix.lower() != ".json":
            raise UsageError(f"--out must end in .json, got {out}.")
        check_outputs(out, self.picture, self.report, (self.file,))
        with plain_messages():
            self.check(out, period)

    def check(self, out: Path, period: dict[str, float] | None) -> None:
        """Reads, cross-validates, prints and writes."""
        from rich.console import Console

        from shiftnp._io import aside, write_json
        from shiftnp.regressor.crossvalidation import PRETRAINED, RANDOM, suspicious, verdict
        from shiftnp.report.regression import describe
        from shiftnp.report.terminal import print_check

        observations = read(self.file, self.x, () if self.y is None else (self.y,), self.select, self.missing)
        results, notes = self.cross_validate(observations, period)
        y = observations.outputs.iloc[:, 0].to_numpy()
        found = suspicious(results[RANDOM][PRETRAINED], y)
        sentence = verdict(results)
        for note in notes:
            say(note)
        print_check(results, Console())
        for one in found:
            print(f"suspicious: {describe(one, observations)}")
        if not found:
            print("suspicious: no observation is 4 standard deviations or more from its prediction by the others")
        print(sentence)
        scores: dict[str, Any] = {
            "command": command(),
            "observations": len(observations.inputs),
            "scores": {name: {m: s.summary() for m, s in methods.items()} for name, methods in results.items()},
            "suspicious": [
                {"place": int(observations.places[one.row]), **one._asdict(), "residual": one.residual} for one in found
            ],
            "verdict": sentence,
            "notes": notes,
        }
        with aside(out) as new:
            write_json(new, scores)
        for path in (out, *self.draw(out, observations, period, results, found, [sentence, *notes])):
            print(path.resolve())

    def cross_validate(self, observations: Observations, period: dict[str, float] | None) -> tuple[Results, list[str]]:
        """Scores of all methods in both cross-validations, and notes."""
        import numpy as np
        from rich.console import Console

        from shiftnp._progress import progress
        from shiftnp.regressor import checks, columns, pretrained
        from shiftnp.regressor.crossvalidation import (
            BLOCKS,
            LEAST,
            MOST,
            PRETRAINED,
            RANDOM,
            block_folds,
            cross_validate,
            pretrained_method,
            random_folds,
        )
        from shiftnp.regressor.rivals import features, rivals

        table = columns.read(observations.inputs, "X", "x")
        x, y = table.values, observations.outputs.iloc[:, 0].to_numpy()
        if len(np.unique(x, axis=0)) < LEAST:
            raise ValueError(f"{self.file} has observations at fewer than {LEAST} places, too few to check anything.")
        if np.ptp(y) == 0:
            name = str(observations.outputs.columns[0])
            raise ValueError(f"{name!r} of {self.file} is {y[0]:g} everywhere: there is nothing to check.")
        periods = checks.periods(period, table.columns)
        pretrained(x.shape[1], self.weights)
        others, notes = rivals(periods, len(x))
        if len(x) > MOST:
            notes.append(f"{MOST:,} of the {len(x):,} observations are held out, chosen at random, to save time.")
        methods = {PRETRAINED: pretrained_method(periods, weights=self.weights, seed=self.seed), **others}
        rng = np.random.default_rng(self.seed)
        plan = {
            RANDOM: random_folds(x, self.folds, rng),
            BLOCKS: block_folds(features(x, x, periods)[0], self.folds, rng),
        }
        results: dict[str, dict[str, Any]] = {name: {} for name in plan}
        with progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("checking", total=len(methods) * sum(map(len, plan.values())))
            for method, fitted in methods.items():
                for name, folds in plan.items():
                    bar.update(task, description=f"{method}, {name}")
                    results[name][method] = cross_validate(x, y, folds, fitted, lambda: bar.advance(task))
        return results, notes

    def draw(
        self,
        out: Path,
        observations: Observations,
        period: dict[str, float] | None,
        results: Results,
        found: list[Suspicious],
        sentences: list[str],
    ) -> list[Path]:
        """Draws the picture and writes the page; returns their paths."""
        from shiftnp._text import sentence
        from shiftnp.plots.check import draw_check
        from shiftnp.regressor.crossvalidation import PRETRAINED
        from shiftnp.regressor.results import grid_targets, predict
        from shiftnp.report.regression import crps_of, drawn_quantiles, label, predictions_of, write_check_page

        written = []
        if self.picture:
            pits = {name: methods[PRETRAINED].pit for name, methods in results.items()}
            unit = label(str(observations.outputs.columns[0]), observations)
            try:
                write_picture(out.with_suffix(".png"), draw_check(crps_of(results), pits, unit))
                written.append(out.with_suffix(".png"))
            except OSError:
                raise
            except Exception as error:  # the scores are written
                say(f"The picture could not be drawn: {sentence(error)}")
        if self.report is not None:
            model = fit(observations, period, self.weights, self.seed)
            targets = observations.grid or grid_targets(model)
            predicted = predict(model, targets, drawn_quantiles(observations.inputs.shape[1]))
            shown = predictions_of(model, observations, targets, predicted)
            write_check_page(self.report, observations, results, shown, found, sentences, command(), self.file.name)
            written.append(self.report)
        return written
