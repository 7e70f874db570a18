"""The demonstration, with the weights of small random models."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from matplotlib.image import imread

from regressors import folder
from shiftnp import demo


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(demo, "YEARS", (1981.5, 1984.5))
    monkeypatch.setattr(demo, "PLACES", 40)


@pytest.mark.usefixtures("small")
def test_demo_predicts_and_draws_a_picture(tmp_path, capsys):
    pytest.importorskip("gpytorch", reason="needs the extra `gp`")
    out = tmp_path / "new" / "picture.png"
    demo.main(["--weights", str(folder()), "--out", str(out)])
    printed = capsys.readouterr().out
    assert str(out) in printed.replace("\n", "")
    assert printed.count("shiftnp, no training") == printed.count("fitted GP") == 2
    moved = re.search(
        r"change by at most CO2, Mauna Loa (\S+) ppm, air temperature (\S+) °C", " ".join(printed.split())
    )
    assert moved
    assert all(float(change) < 1e-3 for change in moved.groups())
    pixels = imread(out)
    assert min(pixels.shape[:2]) > 400
    assert pixels.std() > 0.05  # something is drawn


@pytest.mark.usefixtures("small")
def test_demo_says_that_there_is_no_gaussian_process(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    demo.main(["--weights", str(folder()), "--out", str(tmp_path / "picture.png")])
    printed = " ".join(capsys.readouterr().out.split())
    assert "pip install 'shiftnp[gp]'" in printed
    assert "fitted GP" not in printed


def test_some_of_the_data_are_withheld():
    for data, inputs in ((demo.co2(), 1), (demo.air_temperature(), 2)):
        assert data.x.shape == (len(data.y), inputs)
        assert np.isfinite(data.x).all()
        assert np.isfinite(data.y).all()
        assert 0 < data.observed.sum() < len(data.y) / 2
    years = demo.co2().x[demo.co2().observed, 0]
    for first, last in demo.GAPS:
        assert not ((years > first) & (years < last)).any()


def test_the_data_are_those_that_their_terms_describe():
    terms = (demo.DATA / "README.md").read_text()
    assert len((demo.DATA / "co2.csv").read_text().split()) == 2_225 + 1
    assert len((demo.DATA / "air-temperature.csv").read_text().split()) == 53 * 25 + 1
    assert "2,225 weeks" in terms
    assert "53 longitudes x 25 latitudes" in terms
    assert sorted(p.name for p in demo.DATA.iterdir() if f"`{p.name}`" not in terms) == ["README.md"]
