"""Reports of runs made by hand: finished and unfinished ones, a row that was not run, a model the paper has not."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from shiftnp._machine import commit
from shiftnp.cli.evaluate import Report
from shiftnp.experiments import EXPERIMENTS
from shiftnp.experiments.base import Column, Experiment, Preset, Row
from shiftnp.plots.learning import Curve
from shiftnp.plots.scores import Series, draw_bins, draw_dots
from shiftnp.plots.style import COLOURS, OTHERS, styles
from shiftnp.report import make_report
from shiftnp.report.lines import gather
from shiftnp.report.page import Cell, Paragraph, Picture, Table, to_html, to_markdown, write_page
from shiftnp.report.pictures import learning_pictures, over_seeds, prediction_pictures, score_picture, sweep
from shiftnp.report.tables import best, measured, score_table, show
from shiftnp.report.timing import make_timing_report, read_measurement
from shiftnp.runs.config import Training
from shiftnp.runs.evaluate import describe, read_evaluation
from shiftnp.runs.results import BinSummary, Estimate, Evaluation, Failures, Gap, Machine, SetSummary
from shiftnp.runs.run import Run

SIZE = {"dz": 8, "heads": 2, "head_dim": 4, "layers": 1, "hidden": 1, "pseudo": 2}
TASK = {"kernels": ("se",), "points": (3, 6), "targets": 8}
SHIFTS = tuple(Column(f"Δ = {d}", "gp-1d", f"delta-{d}") for d in ("0.0", "0.2", "0.4"))


def paper(value: float) -> tuple[tuple[float, float], ...]:
    return ((value, 0.01),) * 3


EXPERIMENT = Experiment(
    name="small",
    title="A <small> experiment",
    about="Curves & bands | with *stars*.",
    tasks=("gp-1d",),
    rows=(
        Row("cnp", "CNP", "cnp", paper=paper(-0.69)),
        Row("tnp", "TNP", "tnp", paper=paper(-0.48)),
        Row("rcnp", "RCNP", "rcnp", paper=paper(-0.58)),
    ),
    main="tnp",
    columns=SHIFTS,
    presets={"laptop": Preset(Training(steps=40), SIZE, TASK), "paper": Preset(Training())},
)


def a_set(score: float | None, error: float | None = 0.02, gap: bool = True) -> SetSummary:
    value, below = Estimate(score, error), Gap(None if score is None else -0.3 - score, error, -0.3) if gap else None
    return SetSummary(
        tasks=16,
        log_likelihood=value,
        gap=below,
        median_log_likelihood=score,
        rmse=Estimate(0.4567, None),
        crps=Estimate(0.1234, error),
        coverage={"50": Estimate(0.5, error), "90": Estimate(None, None), "95": Estimate(0.91, error)},
        calibration_error=None,
        pit_below=(None,) * 19,
        by_context={"3-4": BinSummary(8, value, below), "5-8": BinSummary(8, value, below)},
        failures=Failures(-10.0, 0, 0, ()),
    )


def a_run(
    folder: Path,
    model: str,
    sets: dict[str, SetSummary],
    step: int = 40,
    experiment: Experiment = EXPERIMENT,
    training: dict[str, Any] | None = None,
    **changes: Any,
) -> Run:
    """A run with weights, metrics and an evaluation; `changes` are those of its config."""
    config = replace(experiment.configure(model, training=training), **changes)
    run = Run.create(folder, config)
    run.save({"step": step}, run.new_model().state_dict())
    entries = [{"step": 0, "loss": 2.0, "rate": 1e-3}, {"step": 0, "valid": None, "seconds": 0.0}]
    entries += [{"step": k, "valid": -1.0 + k / 100, "gap": 0.7 - k / 100, "seconds": 2.0 * k} for k in (10, 20, 30)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries) + '{"step": 4')
    evaluation = replace(describe(run, None, "cpu"), machine=Machine("abacus", "cpu", 2, "2.0"), sets=sets)
    (folder / "evaluation.json").write_text(json.dumps(evaluation.to_json()))
    return run


def read(run: Run) -> Evaluation:
    found = read_evaluation(run)
    assert found is not None
    return found


def everywhere(score: float | None, **kwargs: Any) -> dict[str, SetSummary]:
    return {column.test_set: a_set(score, **kwargs) for column in SHIFTS}


class Page(HTMLParser):
    """Keeps what a page would load, and checks that tags are closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.bold: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        if "b" in self.open:
            self.bold.append(data)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("report")
    runs = [
        a_run(folder / "runs" / "tnp", "tnp", everywhere(-0.52)),
        a_run(folder / "runs" / "cnp", "cnp", everywhere(-0.9), step=10),
        a_run(folder / "runs" / "anp", "anp", everywhere(-0.55)),
        a_run(folder / "runs" / "pt-tnp", "pt-tnp", everywhere(None, gap=False), training={"seed": 1}),
    ]
    empty = Run.create(folder / "runs" / "rcnp", EXPERIMENT.configure("rcnp"))
    return make_report(EXPERIMENT, [*runs, empty], folder / "out", read, quiet=True)


def scores(page: Page) -> dict[str, list[str]]:
    """The lines of the first table, without its head."""
    lines = page.tables[0]
    return {f"{row[0]} {row[2]}".strip(): row for row in lines[2:]}


def test_html_needs_nothing_else(report: tuple[Path, Path]) -> None:
    text = report[0].read_text()
    page = Page(text)
    assert page.loads
    assert all(value.startswith("data:image/") for value in page.loads)
    assert "://" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert "A &lt;small&gt; experiment" in text
    assert "Curves &amp; bands" in text
    assert sorted(path.suffix for path in report[0].parent.iterdir() if path.is_file()) == [".html", ".json", ".md"]


def test_table_has_ours_beside_the_papers(report: tuple[Path, Path]) -> None:
    rows = scores(Page(report[0].read_text()))
    assert list(rows) == ["CNP † 0", "TNP 0", "RCNP", "ANP 0", "PT-TNP 1"]  # the paper's order, then others
    assert rows["TNP 0"][1:5] == ["40", "0", "-0.520 ± 0.020", "-0.48 ± 0.01"]
    assert rows["CNP † 0"][1] == "10 of 40"
    assert rows["RCNP"][3:5] == ["not run", "-0.58 ± 0.01"]
    assert rows["PT-TNP 1"][3] == "n/a"
    assert rows["ANP 0"][3:5] == ["-0.550 ± 0.020", ""]


def test_the_record_has_command_and_scores_of_every_run(report: tuple[Path, Path]) -> None:
    record = json.loads(report[0].with_suffix(".json").read_text())
    assert record["command"] == "shiftnp report small"
    runs = {run["command"]: run for run in record["runs"]}
    tnp = runs["shiftnp train small --model tnp --task gp-1d --preset laptop --seed 0"]
    assert len(runs) == 4
    assert tnp["minutes of training"] == 1.0
    assert tnp["parameters"] > 100
    assert tnp["model settings"]["dz"] == 8
    assert tnp["evaluation"]["sets"]["delta-0.2"]["log_likelihood"] == {"mean": -0.52, "standard_error": 0.02}
    assert tnp["evaluation"]["commit"] == commit()
    assert [row["step"] for row in tnp["validation"]] == [0, 10, 20, 30]


def test_several_seeds_have_mean_and_spread(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / f"tnp-{i}", "tnp", everywhere(-0.5 - 0.01 * i), training={"seed": i}) for i in range(3)
    ] + [a_run(tmp_path / "cnp", "cnp", everywhere(-0.9))]
    html, _ = make_report(EXPERIMENT, runs, tmp_path / "out", read, quiet=True)
    page = Page(html.read_text())
    assert scores(page)["TNP 0\N{EN DASH}2"][3:5] == ["-0.510 ± 0.010", "-0.48 ± 0.01"]
    assert ["TNP", "40", "0\N{EN DASH}2", *["0.210 ± 0.010"] * 3] in page.tables[1]
    assert page.tables[2][1:] == [["TNP", "40", str(i), *[f"-0.5{i}0 ± 0.020"] * 3] for i in range(3)]
    assert ["TNP, 3 seeds", "Δ = 0.0", "0.457 ± 0.000", "0.123 ± 0.000"] in [row[:4] for row in page.tables[3]]
    for run in runs:
        found = read(run)
        sets = {name: replace(entry, gap=None) for name, entry in found.sets.items()}
        (run.folder / "evaluation.json").write_text(json.dumps(replace(found, sets=sets).to_json()))
    html, _ = make_report(EXPERIMENT, runs, tmp_path / "out", read, quiet=True)
    assert "best possible" not in html.read_text()
    lines = gather(EXPERIMENT, runs, list(map(read, runs)))
    figure = score_picture(EXPERIMENT, lines).figure
    ours = figure.axes[0].containers
    assert [c.get_label() for c in ours] == ["CNP", "TNP, 3 seeds"]
    assert ours[1].lines[0].get_ydata() == pytest.approx([-0.51] * 3)
    tops = [segment[1][1] for segment in ours[1].lines[2][0].get_segments()]
    assert tops == pytest.approx([-0.5] * 3)
    again = gather(EXPERIMENT, runs[:1] * 2, [read(runs[0])] * 2)  # one run twice is not two seeds
    assert [model.label for model in over_seeds(again) if model.row.name == "tnp"] == ["TNP (1)", "TNP (2)"]


def test_the_papers_scores_are_said_to_be_of_other_test_tasks(report: tuple[Path, Path]) -> None:
    page = Page(report[0].read_text())
    assert page.tables[0][1] == ["ours", "paper (other test tasks)"] * 3
    head = report[1].read_text().split("## Scores")[1].split("\n")[2]
    assert head.count("paper (other test tasks)") == 3
    assert "on other test tasks and after 500,000 training steps" in report[1].read_text()


def test_without_results_of_the_paper_it_is_not_mentioned(tmp_path: Path) -> None:
    columns = (Column("One", "gp-1d", "delta-0.0"), Column("Two", "gp-1d", "delta-1.0"))
    rows = tuple(replace(row, paper=(None, None)) for row in EXPERIMENT.rows)
    experiment = replace(EXPERIMENT, rows=rows, columns=columns, presets={"laptop": EXPERIMENT.presets["laptop"]})
    run = a_run(tmp_path / "tnp", "tnp", everywhere(-0.52), experiment=experiment)
    html, markdown = make_report(experiment, [run], tmp_path / "out", read, quiet=True)
    assert Page(html.read_text()).tables[0][1] == ["ours", "ours"]
    assert "paper" not in markdown.read_text()


def test_rows_that_were_not_run_are_listed_if_the_paper_has_them() -> None:
    names = [line.row.name for line in gather(EXPERIMENTS["gp-1d"], [], [])]
    assert "te-tnp" in names
    assert "te-tnp-he" not in names


def test_settings_are_footnotes(tmp_path: Path) -> None:
    """The first column stays short, and says by a number below the table what was set otherwise."""
    long = ("learning_rate=0.001", "task.kernels=se,periodic", "head_dim=8")
    runs = [
        a_run(tmp_path / "a", "tnp", everywhere(-0.5), changes=long),
        a_run(tmp_path / "b", "tnp", everywhere(-0.6)),
        a_run(tmp_path / "c", "cnp", everywhere(-0.7), changes=long),
        a_run(tmp_path / "d", "rcnp", everywhere(-0.7), changes=("dz=3",)),
    ]
    html, markdown = make_report(EXPERIMENT, runs, tmp_path / "out", read, quiet=True)
    names = [row[0] for row in Page(html.read_text()).tables[0]]
    assert names[2:] == ["CNP [1]", "TNP [1]", "TNP", "RCNP [2]"]
    text = markdown.read_text()
    assert r"*\[1\] Preset laptop with learning_rate=0.001, task.kernels=se,periodic, head_dim=8.*" in text
    assert r"*\[2\] Preset laptop with dz=3.*" in text
    assert text.count("learning_rate=0.001") == 1
    labels = [line.label for line in gather(EXPERIMENT, runs, [read(run) for run in runs])]
    assert labels == ["CNP [1]", "TNP [1]", "TNP", "RCNP [2]"]


def test_the_first_column_stays_in_view(report: tuple[Path, Path]) -> None:
    text = report[0].read_text()
    tables = re.findall(r"<table>.*?</table>", text, re.DOTALL)
    assert len(tables) == 3
    for table in tables:
        body = table.split("<tbody>")[1]
        assert table.count('<th class="first"') == 1
        assert body.count('<td class="first') == body.count("<tr>")
    assert re.search(r"\.first \{[^}]*position: sticky; left: 0;", text)


def test_bold_is_the_best_and_what_cannot_be_told_from_it(report: tuple[Path, Path]) -> None:
    assert Page(report[0].read_text()).bold == ["-0.520"] * 3 + ["-0.550"] * 3
    assert report[1].read_text().count("**-0.520 ± 0.020**") == 3
    assert best([(-0.46, 0.01), (-0.47, 0.0), (-0.471, 0.0), None]) == [True, True, False, False]
    assert best([(1.25, 0.03), (1.20, 0.02), (1.18, 0.03)]) == [True, True, False]  # the paper's T-MNIST
    assert best([(1.0, math.nan), (0.9, math.nan)]) == [True, False]
    assert best([None, None]) == [False, False]


def test_scores_on_fewer_tasks_are_marked_and_not_compared(tmp_path: Path) -> None:
    whole = {name: replace(a_set(-0.5), tasks=64) for name in everywhere(0.0)}
    runs = [a_run(tmp_path / "tnp", "tnp", whole), a_run(tmp_path / "rcnp", "rcnp", everywhere(-0.1))]
    table = score_table(EXPERIMENT, gather(EXPERIMENT, runs, [read(run) for run in runs]))
    cells = {row[0].text: row[3] for row in table.rows}
    assert cells["TNP"] == Cell("-0.500 ± 0.020", bold=True)
    assert cells["RCNP"] == Cell("-0.100 ± 0.020 ‡", bold=False)
    assert "‡ On 16 of 64 tasks, so that it compares with the others only roughly; never bold." in table.notes


def test_the_rest_is_said(report: tuple[Path, Path]) -> None:
    text = report[1].read_text()
    for words in (
        "preset laptop",
        "seeds 0, 1",
        "abacus, device cpu, 2 threads",
        "† Training is not finished",
        "| CNP † | 10 of 40 | 0 |",
        "0.220 ± 0.020",  # the gap
        "0.457",  # RMSE, of which no error is known
        "91.0 %",
        "no weights yet",
    ):
        assert words in text, words
    assert r"Curves & bands \| with \*stars\*." in text


def test_markdown_is_whole(report: tuple[Path, Path]) -> None:
    text = report[1].read_text()
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    names = ["scores", "context-size", "learning-gp-1d", "predictions-gp-1d", "calibration"]
    assert pictures == [f"small-figures/{name}.png" for name in names]
    for picture in pictures:
        assert (report[1].parent / picture).read_bytes().startswith(b"\x89PNG")
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_without_gaps_and_with_two_test_sets(tmp_path: Path) -> None:
    """Where nothing is swept over and no ceiling known, and where an evaluation has next to nothing."""
    experiment = replace(EXPERIMENT, name="other", columns=SHIFTS[:2], rows=EXPERIMENT.rows[:2])
    bare = {"delta-0.0": replace(a_set(None, None, gap=False), coverage={}, by_context={})}
    runs = [
        a_run(tmp_path / "a", "tnp", everywhere(-0.5, error=None, gap=False), experiment=experiment),
        a_run(tmp_path / "b", "cnp", bare, experiment=experiment),
    ]
    (tmp_path / "a" / "metrics.jsonl").unlink()
    html, markdown = make_report(experiment, runs, tmp_path / "out", read, quiet=True)
    Page(html.read_text())
    text = markdown.read_text()
    assert "best possible" not in text
    assert "| **-0.500** |" in text
    assert "| n/a | -0.69 ± 0.01 | not run | -0.69 ± 0.01 |" in text


def test_a_picture_that_cannot_be_drawn_costs_no_report(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", "tnp", everywhere(-0.5))
    (run.folder / "model.safetensors").write_bytes(b"cut short")
    _, markdown = make_report(EXPERIMENT, [run], tmp_path / "out", read, quiet=True)
    assert "Predictions on gp-1d could not be drawn" in markdown.read_text()


def test_a_damaged_run_costs_no_report(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / row, row, everywhere(-0.5)) for row in ("tnp", "cnp", "rcnp")]

    def evaluate(run: Run) -> Evaluation:
        if run.config.model == "cnp":
            raise ValueError("its weights are damaged: train it anew.")
        if run.config.model == "rcnp":
            raise FileNotFoundError("its data are gone.")
        return read(run)

    figures = tmp_path / "out" / "small-figures"
    figures.mkdir(parents=True)
    (figures / "old.png").write_bytes(b"of an earlier report")
    (figures / "notes.txt").write_text("not ours")
    _, markdown = make_report(EXPERIMENT, runs, tmp_path / "out", evaluate, quiet=True)
    text = markdown.read_text()
    assert "Left out, because they cannot be evaluated" in text
    assert f"- {tmp_path / 'cnp'}: its weights are damaged: train it anew." in text
    assert f"- {tmp_path / 'rcnp'}: its data are gone." in text
    assert "Ours: 1 run," in text
    assert "| CNP |  |  | not run |" in text
    assert not (figures / "old.png").exists()
    assert (figures / "notes.txt").exists()
    with pytest.raises(ValueError, match=r"No run of small in here can be evaluated. .*damaged.*gone"):
        make_report(EXPERIMENT, runs[1:], tmp_path / "none", evaluate, quiet=True, where="here")
    assert not (tmp_path / "none").exists()


def spoil(run: Run, file: str, text: str) -> None:
    (run.folder / file).write_text(text)


BAD_RUNS = {
    "a deeply nested config": lambda run: spoil(run, "config.json", "[" * 100_000),
    "a config that is cut short": lambda run: spoil(run, "config.json", '{"format"'),
    "damaged weights": lambda run: spoil(run, "model.safetensors", "cut short"),
}


@pytest.mark.parametrize("what", BAD_RUNS)
def test_one_bad_run_is_left_out(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path / "runs/small/good", "tnp", everywhere(-0.5))
    bad = a_run(tmp_path / "runs/small/bad", "cnp", everywhere(-0.5))
    (bad.folder / "evaluation.json").unlink()
    BAD_RUNS[what](bad)
    monkeypatch.setattr("shiftnp.experiments.EXPERIMENTS", {"small": EXPERIMENT})
    monkeypatch.chdir(tmp_path)
    Report("small", tasks=1).run()
    text = (tmp_path / "reports/small.md").read_text()
    assert "Left out, because they cannot be evaluated:\n\n- runs/small/bad" in text
    assert "| TNP | 40 | 0 | **-0.500 ± 0.020** |" in text


def test_a_run_without_a_label_is_left_out(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / row, row, everywhere(-0.5)) for row in ("tnp", "cnp")]
    object.__setattr__(runs[1].config, "preset", 3.5)
    _, markdown = make_report(EXPERIMENT, runs, tmp_path / "out", read, quiet=True)
    assert f"- {tmp_path / 'cnp'}: it cannot be used (TypeError: " in markdown.read_text()
    assert "| TNP | 40 | 0 | **-0.500 ± 0.020** |" in markdown.read_text()


def test_an_evaluation_without_step_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "runs/small/a", "tnp", everywhere(-0.5))
    data = json.loads((run.folder / "evaluation.json").read_text())
    del data["step"]
    (run.folder / "evaluation.json").write_text(json.dumps(data))
    monkeypatch.setattr("shiftnp.experiments.EXPERIMENTS", {"small": EXPERIMENT})
    monkeypatch.setattr("shiftnp.tasks.ceiling.pooch.os_cache", lambda name: str(tmp_path / "cache"))
    Report("small", tmp_path / "runs", tmp_path / "out", tasks=1).run()
    assert read(run).tasks == 1


def test_text_from_files_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither mathematics for matplotlib nor commands for a terminal."""
    runs = [
        a_run(tmp_path / "a", "cnp", everywhere(-0.5), row="$_{$"),
        a_run(tmp_path / "b", "cnp", everywhere(-0.6), row="\x1b[31mred", changes=("\x1b]0;title\x07",)),
    ]
    html, markdown = make_report(EXPERIMENT, runs, tmp_path / "out", read)
    two = replace(EXPERIMENT, columns=SHIFTS[:2])
    make_report(two, runs, tmp_path / "dots", read, quiet=True)
    for text in (capsys.readouterr().out, html.read_text(), markdown.read_text()):
        assert "\x1b" not in text
        assert r"\x1b" in text.replace("\\\\", "\\")
    assert "$_{$" in markdown.read_text()
    assert "could not be drawn" not in markdown.read_text() + (tmp_path / "dots/small.md").read_text()


def test_a_picture_that_fails_when_it_is_written_costs_no_page(tmp_path: Path) -> None:
    figure = Figure()
    figure.suptitle("$_{$", parse_math=True)
    html, markdown = write_page(tmp_path, "page", "Title", [Picture("bad", figure, "bad"), Paragraph("The rest.")])
    for page in (html, markdown):
        assert "The picture bad could not be drawn: " in page.read_text()
        assert "The rest." in page.read_text()
    with pytest.raises(OSError, match=r"page.md/out cannot be written \(Not a directory\): name another folder"):
        write_page(markdown / "out", "page", "Title", [])


def test_damaged_metrics_cost_one_curve(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / row, row, everywhere(-0.5)) for row in ("tnp", "cnp")]
    (tmp_path / "cnp" / "metrics.jsonl").write_text('{"step": 1, "valid": "high"}\n')
    _, markdown = make_report(EXPERIMENT, runs, tmp_path / "out", read, quiet=True)
    assert "Learning curves could not be drawn for CNP (could not convert string to float" in markdown.read_text()
    assert "learning-gp-1d.png" in markdown.read_text()


def test_what_was_not_run_has_no_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (Column("One", "gp-1d", "delta-0.0"), Column("Two", "gp-1d-bimodal", "delta-0.0"))
    experiment = replace(EXPERIMENT, tasks=("gp-1d", "gp-1d-bimodal"), columns=columns)
    run = a_run(tmp_path / "a", "tnp", everywhere(-0.5), experiment=experiment)
    found: dict[str, Picture] = {}

    def keep(folder: Path, name: str, title: str, blocks: list[Any]) -> tuple[Path, Path]:
        found.update({block.name: block for block in blocks if isinstance(block, Picture)})
        folder.mkdir()
        return folder, folder

    monkeypatch.setattr("shiftnp.report.write_page", keep)
    make_report(experiment, [run], tmp_path / "out", read, quiet=True)
    titles = {name: [ax.get_title() for ax in picture.figure.axes] for name, picture in found.items()}
    assert titles["context-size"] == titles["calibration"] == ["One"]
    assert titles["scores"] == ["One", "Two"]  # beside the paper's


def test_runs_without_validation_are_named(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / row, row, everywhere(-0.5)) for row in ("tnp", "cnp")]
    (tmp_path / "cnp" / "metrics.jsonl").unlink()
    _, markdown = make_report(EXPERIMENT, runs, tmp_path / "out", read, quiet=True)
    assert "Not validated yet: CNP." in markdown.read_text()


def test_models_have_their_colours_and_the_order_of_the_table(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / row, row, everywhere(-0.5)) for row in ("tnp", "rcnp", "cnp")]
    lines = gather(EXPERIMENT, runs, [read(run) for run in runs])
    (picture,) = [block for block in prediction_pictures(EXPERIMENT, lines) if isinstance(block, Picture)]
    axes = picture.figure.axes[:3]
    assert [ax.get_title() for ax in axes] == ["CNP", "TNP", "RCNP"]
    assert [ax.lines[0].get_color() for ax in axes] == [line.style.colour for line in lines]


def test_scores_beyond_the_axis_are_marked() -> None:
    ours = [Series("a", styles(["tnp"])[0], [-0.5, -40.0], [0.1, 0.1])]
    dots = draw_dots(["one", "two"], [*ours, *ours], [[-5.7, -0.3], [None, -0.2]], "score")
    assert [[text.get_text() for text in ax.texts] for ax in dots.axes] == [["-5.70"], ["-40.00", "-40.00"]]
    (ax,) = draw_bins(["1", "2"], {"": ours}, "points", "score").axes
    assert [text.get_text() for text in ax.texts] == ["-40.0"]
    low, high = ax.get_ylim()
    assert low < -0.6 < -0.4 < high  # room for error bars
    assert low > -5


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no run of small in here: `shiftnp train small` makes one"):
        make_report(EXPERIMENT, [], tmp_path, read, where="here")
    empty = Run.create(tmp_path / "a", EXPERIMENT.configure("tnp"))
    with pytest.raises(FileNotFoundError, match="no run with weights"):
        make_report(EXPERIMENT, [empty], tmp_path, read)
    assert not list(tmp_path.glob("*.html"))


def test_runs_on_several_tasks_make_one_line(tmp_path: Path) -> None:
    columns = (Column("One", "gp-1d", "delta-0.0"), Column("Two", "gp-1d-bimodal", "delta-0.0"))
    experiment = replace(EXPERIMENT, tasks=("gp-1d", "gp-1d-bimodal"), columns=columns)
    first = a_run(tmp_path / "a", "tnp", everywhere(-0.5), experiment=experiment)
    second = a_run(tmp_path / "b", "tnp", everywhere(-0.7), experiment=experiment, task="gp-1d-bimodal")
    _, markdown = make_report(experiment, [first, second], tmp_path / "out", read, quiet=True)
    text = markdown.read_text()
    assert "| TNP | 40 | 0 | **-0.500 ± 0.020** | -0.48 ± 0.01 | **-0.700 ± 0.020** | -0.48 ± 0.01 |" in text
    assert "learning-gp-1d-bimodal.png" in text


def test_timing(tmp_path: Path) -> None:
    rows = (
        Row("tnp", "TNP", "tnp", paper=((1.0, math.nan),)),
        Row("te-tnp", "TE-TNP", "te-tnp", paper=((2.39, math.nan),)),
        Row("cnp", "CNP", "cnp", paper=((0.51, math.nan),)),
    )
    experiment = replace(EXPERIMENT, name="timing", rows=rows, columns=(Column("Time", "gp-1d", "time"),))

    def entry(title: str, ratio: float | None) -> dict[str, Any]:
        quartiles = [None, None] if ratio is None else [0.09, 0.11]
        median = None if ratio is None else 0.1
        return {"title": title, "steps": 5, "median": median, "quartiles": quartiles, "ratio": ratio}

    result = {
        "preset": "laptop",
        "seed": 0,
        "repeats": 5,
        "finished": False,
        "batch_size": 16,
        "precision": "float32",
        "machine": {"processor": "abacus"},
        "models": {"tnp": entry("TNP", 1.0), "te-tnp": entry("TE-TNP", 3.456), "rcnp": entry("RCNP", None)},
    }
    path = tmp_path / "timing.json"
    path.write_text(json.dumps(result))
    html, markdown = make_timing_report(experiment, read_measurement(path), tmp_path)
    Page(html.read_text())
    text = markdown.read_text()
    assert "| TE-TNP | 0.100 s | 0.090 s to 0.110 s | 5 | 3.46 | 2.39 |" in text
    assert "| CNP |  |  |  | not run | 0.51 |" in text
    assert "| RCNP |  |  |  | not run |  |" in text
    assert "cut short" in text
    assert (tmp_path / "timing-figures" / "times.png").exists()
    for damaged in ("{", "[]", json.dumps({**result, "models": 3}), "[" * 100_000):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=r"timing.json is damaged \(.*\): measure again"):
            read_measurement(path)


def test_numbers() -> None:
    assert measured(Estimate(1, None)) == pytest.approx((1.0, math.nan), nan_ok=True)
    assert measured(Estimate(2.0, 0.5)) == (2.0, 0.5)
    assert measured(0.25) == pytest.approx((0.25, math.nan), nan_ok=True)
    assert measured(None) is None
    assert measured(Estimate(math.inf)) is None
    assert show((-0.001, 0.0)) == "0.00 ± 0.00"
    assert show((-123456.0, math.nan)) == "-1.23e+05"


def test_sweep_is_told_from_names() -> None:
    assert sweep(SHIFTS) == ("delta", [0.0, 0.2, 0.4])
    assert sweep(SHIFTS[:2]) is None
    assert sweep([Column("A", "climate", name) for name in ("central", "west", "north")]) is None
    assert sweep([Column("A", f"gp-{i}", f"delta-{i}") for i in range(3)]) is None


def test_curves_take_the_later_of_two_entries() -> None:
    style = styles(["tnp"])[0]
    entries = [{"step": 5, "valid": -2.0, "seconds": 1}, {"step": 5, "valid": -1, "gap": 0.5}, {"step": 3, "loss": 1.0}]
    curve = Curve.read("a", style, entries)
    assert curve is not None
    assert (curve.steps, curve.scores, curve.ceiling) == ([5], [-1.0], -0.5)
    assert math.isnan(curve.seconds[0])
    assert Curve.read("a", style, entries[2:]) is None


def test_pauses_do_not_count_as_training_time() -> None:
    entries = [{"step": k, "valid": 0.0, "seconds": s} for k, s in ((10, 5.0), (20, 3600.0), (30, 3605.0))]
    curve = Curve.read("a", styles(["tnp"])[0], entries)
    assert curve is not None
    assert curve.seconds == [5.0, 10.0, 15.0]


def test_seeds_share_a_style_and_an_entry_of_the_legend(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / f"tnp{seed}", "tnp", everywhere(-0.5), training={"seed": seed}) for seed in (0, 1)]
    runs.append(a_run(tmp_path / "cnp", "cnp", everywhere(-0.5)))
    lines = [line for line in gather(EXPERIMENT, runs, [read(run) for run in runs]) if line.runs]
    assert len({line.style for line in lines}) == 2
    (picture,) = [block for block in learning_pictures(EXPERIMENT, lines) if isinstance(block, Picture)]
    (drawn,) = picture.figure.legends
    assert [text.get_text() for text in drawn.get_texts()] == ["CNP", "TNP, 2 seeds", "best possible"]
    assert len(picture.figure.axes[0].lines) == 3 + 1


def test_styles_tell_models_apart() -> None:
    looks = styles(["tnp", "te-tnp", "pt-tnp", "pt-tnp", "gp", "unknown"])
    assert len(set(looks)) == 6
    assert [look.line for look in looks] == ["--", "-", "--", "--", "--", "--"]
    assert looks[3].colour > looks[2].colour  # lighter
    assert [look.colour for look in styles(["tnp"] * 3)] == [to_rgb(c) for c in (COLOURS["tnp"], *OTHERS[:2])]


def test_markup_is_made_harmless() -> None:
    blocks = [Paragraph("run `a|b` <script> & *this*, `alone"), Table([("", "x|y")], [[Cell("1 | 2", bold=True)]])]
    assert "<script>" not in to_html("t", blocks)
    text = to_markdown("t", blocks, "figures")
    assert r"| **1 \| 2** |" in text
    assert r"\<script>" in text
    with pytest.raises(ValueError, match="must have 1 cells, got 2"):
        Table([("", "a")], [[Cell(), Cell()]])
