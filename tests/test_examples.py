"""The scripts of the gallery: each runs, draws its picture, and finds what its page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib import pyplot as plt
from matplotlib.image import imread

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SHORTER = {
    **{
        name: [("Regressor(", "Regressor(scales=1, ")]
        for name in ("temperature_map", "exceedance", "calibration", "space_time")
    },
    "train": [("STEPS = 600", "STEPS = 30"), ("range(8)]", "range(1)]")],
    "large_grid": [("SIZE = 240", "SIZE = 24"), ("chunks=120", "chunks=12"), ("(2000, 2)", "(60, 2)")],
    "joint_samples": [("Regressor(", "Regressor(scales=1, "), ("n=60", "n=12"), ("6.5, 24)", "6.5, 8)")],
}
"""Replacements that make an example shorter."""


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs an example in an empty folder; returns its names and what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt.switch_backend("agg")

    def of(name: str) -> tuple[dict[str, object], str]:
        path = ROOT / f"examples/{name}.py"
        code = path.read_text()
        for old, new in SHORTER.get(name, []):
            assert old in code, old
            code = code.replace(old, new)
        names: dict[str, object] = {"__name__": "__main__", "__file__": str(path)}
        exec(compile(code, str(path), "exec"), names)
        plt.close("all")
        assert imread(f"{name}.png").std() > 0.05  # something is drawn
        return names, capsys.readouterr().out

    return of


@pytest.mark.parametrize("name", ["co2", "temperature_map", "space_time", "joint_samples", "large_grid", "train"])
def test_an_example_runs(name, run):
    for package in ("pandas", "xarray", "zarr", "dask"):
        pytest.importorskip(package, reason="needs the extras `geo` and `dask`")
    _, printed = run(name)
    assert printed


def test_the_ends_of_a_period_agree(run):
    _, printed = run("longitude")
    without, with_period = map(float, re.findall(r"differ by ([\d.]+)", printed))
    assert without > 0.05
    assert with_period < 0.001


def test_updates_make_predictions_sure(run):
    _, printed = run("update")
    stds = [float(found) for found in re.findall(r"is ([\d.]+)$", printed, re.MULTILINE)]
    assert len(stds) == 3
    assert stds[-1] < stds[0] / 2


def test_only_the_equivariant_model_moves_with_the_data(run):
    _, printed = run("shift")
    changes = dict(re.findall(r"^(.*?): the mean changes by ([\d.]+)", printed, re.MULTILINE))
    assert float(changes["TNP, shift 2"]) > 0.5
    assert float(changes["TE-TNP, shift 50"]) < 1e-4


def test_probabilities_of_frost(run):
    pytest.importorskip("pandas", reason="needs the extra `geo`")
    names, _ = run("exceedance")
    assert 0 <= names["frost"].min() < 0.05 < 0.95 < names["frost"].max() <= 1
    assert (names["low"] < names["high"]).all()


def test_intervals_cover_withheld_observations(run):
    for package in ("pandas", "scipy", "gpytorch"):
        pytest.importorskip(package, reason="needs the extras `geo` and `gp`")
    names, _ = run("calibration")
    assert 0.8 < (abs(names["ours"] - 0.5) < 0.45).mean() < 0.97


def test_the_gallery_is_complete():
    page = (ROOT / "docs/gallery.md").read_text()
    assert len(EXAMPLES) == 11
    for path in EXAMPLES:
        assert f"(../examples/{path.name})" in page
        assert f"(gallery/{path.stem}.png)" in page
        assert f"<!-- source: examples/{path.name} -->" in page
        assert (ROOT / f"docs/gallery/{path.stem}.png").exists()
        assert 15 <= len(path.read_text().splitlines()) <= 40, path.name
