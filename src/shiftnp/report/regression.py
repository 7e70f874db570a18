"""Pages of `shiftnp predict` and `shiftnp check`: one self-contained HTML file each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shiftnp
from shiftnp._io import aside
from shiftnp.metrics import COVERAGE
from shiftnp.plots.check import Values, draw_coverage, draw_pits, draw_scores
from shiftnp.plots.regression import MEAN, SEEN, STD, Prediction, draw_predictions
from shiftnp.regressor import Regressor
from shiftnp.regressor.crossvalidation import PRETRAINED, Results, Scored, Suspicious
from shiftnp.regressor.observations import Observations, Targets
from shiftnp.regressor.results import column
from shiftnp.report.page import Block, Cell, Heading, Items, Paragraph, Picture, Row, Table, checked, to_html
from shiftnp.tasks.dates import in_utc


def predictions_of(model: Regressor, observations: Observations, targets: Targets, predicted: Any) -> list[Prediction]:
    """What figures need of each output.

    Args:
        predicted: the table of `regressor.results.predict`, with the quantiles of `drawn_quantiles`.
    """
    names = model._inputs.names
    at = {name: in_utc(targets.rows[name]).to_numpy() for name in names}
    seen = {name: in_utc(observations.inputs[name]).to_numpy() for name in names}
    for name, period in zip(names, model._box.period, strict=True):
        if period is not None and seen[name].dtype.kind == "f":
            seen[name] = images(seen[name], at[name], period)
    found = []
    for output in model._outputs.names:
        there = observations.outputs[output].notna().to_numpy()

        def statistic(name: str, output: str = output) -> np.ndarray:
            values: np.ndarray = predicted[column(model._outputs.names, output, name)].to_numpy()
            return values

        found.append(
            Prediction(
                names,
                label(output, observations),
                x={name: values[there] for name, values in seen.items()},
                y=observations.outputs[output].to_numpy()[there],
                at=at,
                mean=statistic("mean"),
                std=statistic("std"),
                low=statistic("q0.05"),
                high=statistic("q0.95"),
                dims=targets.dims if set(targets.dims) <= set(names) else (),
                known=targets.known.get(output),
                inner=(statistic("q0.25"), statistic("q0.75")) if len(names) == 1 else None,
            )
        )
    return found


def images(x: np.ndarray, at: np.ndarray, period: float) -> np.ndarray:
    """Values of a periodic input, moved by whole periods where that puts them into the range of the targets."""
    if not np.isfinite(at).any():
        return x
    low, high = np.nanmin(at), np.nanmax(at)
    moved: np.ndarray = low + (x - low) % period
    return np.where(((x < low) | (x > high)) & (moved <= high), moved, x)


def drawn_quantiles(inputs: int) -> tuple[float, ...]:
    """Quantiles that figures show: a curve has two bands."""
    return (0.05, 0.25, 0.75, 0.95) if inputs == 1 else (0.05, 0.95)


def label(output: str, observations: Observations) -> str:
    """Name of an output with its unit."""
    unit = observations.attributes.get(output, {}).get("units")
    return f"{output} ({unit})" if unit else output


def crps_of(results: Results) -> dict[str, dict[str, Values]]:
    """Mean CRPS and its standard error, by cross-validation and method."""
    return {
        name: {
            method: (float(s.crps.mean()), float(s.crps.std(ddof=1)) / math.sqrt(len(s.crps)))
            for method, s in methods.items()
        }
        for name, methods in results.items()
    }


# --- pages -----------------------------------------------------------------------------------------------------------


def write_prediction_page(
    path: Path,
    model: Regressor,
    observations: Observations,
    shown: Sequence[Prediction],
    held_out: Mapping[str, Mapping[str, Scored]],
    command: str,
    file: str,
) -> None:
    """Writes the page of `shiftnp predict`.

    Args:
        held_out: the pretrained model's cross-validation, by output.
        file: name of the file of observations.
    """
    outputs = ", ".join(model._outputs.names)
    blocks: list[Block] = [
        Paragraph(f"{outputs} as a function of {', '.join(model._inputs.names)}, predicted from {file}."),
        Items([line.strip() for line in model.report().splitlines()]),
        *_pictures(shown),
        Heading("Calibration"),
    ]
    for output, results in held_out.items():
        if len(held_out) > 1:
            blocks.append(Paragraph(f"{output}:"))
        blocks += _calibration(results)
    if not held_out:
        blocks.append(Paragraph("There are too few observations for a cross-validation."))
    _write(path, f"Prediction of {outputs}", [*blocks, *_repeat(command, observations)])


def write_check_page(
    path: Path,
    observations: Observations,
    results: Results,
    shown: Sequence[Prediction],
    found: Sequence[Suspicious],
    sentences: Sequence[str],
    command: str,
    file: str,
) -> None:
    """Writes the page of `shiftnp check`.

    Args:
        sentences: the verdict, then notes.
        file: name of the file of observations.
    """
    output = str(observations.outputs.columns[0])
    inputs = ", ".join(map(str, observations.inputs.columns))
    blocks: list[Block] = [
        Paragraph(f"{output} as a function of {inputs}, {len(observations.inputs)} observations of {file}."),
        Paragraph(sentences[0]),
        Heading("Scores of held-out observations"),
    ]
    for name, methods in results.items():
        blocks += [Paragraph(f"In {name}:"), score_table(methods)]
    blocks.append(
        Picture(
            "scores",
            draw_scores(crps_of(results), label(output, observations)),
            "CRPS of each method",
            "Smaller is better; bars are standard errors.",
        )
    )
    if len(sentences) > 1:
        blocks.append(Items(sentences[1:]))
    blocks += [
        Heading("Calibration of the pretrained model"),
        *_calibration({n: m[PRETRAINED] for n, m in results.items()}),
    ]
    blocks += [Heading("Suspicious points"), suspicious_block(found, observations)]
    blocks += _pictures(shown)
    _write(path, f"Check of {output}", [*blocks, *_repeat(command, observations)])


def score_table(methods: Mapping[str, Scored]) -> Table:
    """Scores of each method, the best in bold."""
    head = [("", "method"), ("", "CRPS"), ("", "log-lik."), *(("", f"{name} %") for name in COVERAGE), ("", "seconds")]
    best = {
        "crps": min(float(s.crps.mean()) for s in methods.values()),
        "log_density": max(float(s.log_density.mean()) for s in methods.values()),
    }
    rows = []
    for name, s in methods.items():
        cells = [Cell(name)]
        for key, value in (("crps", float(s.crps.mean())), ("log_density", float(s.log_density.mean()))):
            cells.append(Cell(f"{value:.3g}", bold=value == best[key]))
        cells += [Cell(f"{100 * value:.0f}") for value in s.coverage.values()]
        rows.append([*cells, Cell(f"{s.seconds:.1f}")])
    count = len(next(iter(methods.values())).rows)
    note = (
        f"{count} held-out observations. 50 %, 90 % and 95 %: how many of them lie in central intervals, in per cent."
    )
    return Table(head, rows, [note])


def suspicious_block(found: Sequence[Suspicious], observations: Observations) -> Block:
    """The suspicious points as a list."""
    if not found:
        return Paragraph("No observation is more than 4 standard deviations from its prediction by the others.")
    return Items([describe(one, observations) for one in found])


def describe(one: Suspicious, observations: Observations) -> str:
    """A suspicious point in words."""
    from shiftnp.plots.regression import show

    where = observations.inputs.iloc[one.row]
    place = ", ".join(f"{name} {show(in_utc(observations.inputs[name]).to_numpy()[one.row])}" for name in where.index)
    what = "cell" if observations.grid is not None else "row"
    return (
        f"{what} {int(observations.places[one.row])} ({place}): {one.value:.5g}, where the others predict "
        f"{one.mean:.5g} ± {one.std:.2g} ({abs(one.residual):.1f} standard deviations)"
    )


def _pictures(shown: Sequence[Prediction]) -> list[Block]:
    """The curve with bands, or maps of the mean and of the uncertainty."""
    captions = {
        SEEN: "Observations; grey: holes.",
        MEAN: "Mean; dots are observations, in the same colours.",
        STD: "Uncertainty: standard deviation of a new observation; dots are observations.",
    }
    blocks: list[Block] = [Heading("Prediction and uncertainty")]
    for i, p in enumerate(shown):
        if len(p.shown) == 1:
            text = "Mean, intervals that hold 50 % (dark) and 90 % (light) of new observations, and observations."
            figure = draw_predictions([p])
            figure.set_size_inches(5.8, 3.8)  # readable on a narrow screen
            blocks.append(Picture(f"curve-{i}", figure, f"{p.output} over {p.shown[0]}", text))
            continue
        if p.known is not None:
            captions[MEAN] = "Mean."
            captions[STD] = "Uncertainty: standard deviation of a new observation."
        maps = [
            Picture(
                f"{name.replace(' ', '-')}-{i}",
                draw_predictions([p], [name]),
                f"{name} of {p.output}",
                captions[name],
                drawn=False,
            )
            for name in p.panels
        ]
        blocks.append(Row(maps))
    return blocks


def _calibration(results: Mapping[str, Scored]) -> list[Block]:
    pits = {name: s.pit for name, s in results.items()}
    covers = "; ".join(
        f"{name}: " + ", ".join(f"{100 * v:.0f} % in {level} % intervals" for level, v in s.coverage.items())
        for name, s in results.items()
    )
    line = "On the line: intervals hold what they promise. Below it they are too narrow, above it too wide."
    flat = (
        "Flat within the grey band: calibrated. High at both ends: intervals are too narrow; in the middle: too wide."
    )
    pictures = [
        Picture("coverage", draw_coverage(pits), "coverage against nominal coverage", line),
        Picture("pit", draw_pits(pits), "PIT histograms", flat),
    ]
    return [Paragraph(f"Held-out observations within central intervals, {covers}."), Row(pictures)]


def _repeat(command: str, observations: Observations) -> list[Block]:
    return [
        Heading("The command"),
        Paragraph(f"`{command}`"),
        *([Items(observations.notes)] if observations.notes else []),
        Paragraph(f"shiftnp {shiftnp.__version__}."),
    ]


def _write(path: Path, title: str, blocks: Sequence[Block]) -> None:
    text = to_html(title, [checked(block) for block in blocks])
    with aside(path) as new:
        new.write_text(text, encoding="utf-8")
