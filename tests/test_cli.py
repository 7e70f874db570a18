from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from shiftnp.cli import parse_setting

SHIFTNP = [str(Path(sys.executable).with_name("shiftnp"))]


def run(*args, cwd=None):
    return subprocess.run([*SHIFTNP, *args], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize(
    "command", [(), ("list",), ("data",), ("data", "preview"), ("data", "ceiling"), ("data", "kolmogorov")]
)
def test_help(command):
    result = run(*command, "--help")
    assert result.returncode == 0
    assert "usage: shiftnp" in result.stdout


def test_help_is_fast():
    """It does not import torch: the best of three takes far less than a second."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run("--help")
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0
    code = "import sys, shiftnp.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_list():
    assert "te-pt-tnp" in run("list").stdout


def test_preview(tmp_path):
    result = run("data", "preview", "gp-1d", "targets=20", 'kernels=["se"]', "--predict", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "preview-gp-1d.png").stat().st_size > 5000
    assert str(tmp_path) in result.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("data", "preview", "gp1d"), "did you mean 'gp-1d'"),
        (("data", "preview", "gp-1d", "dx"), "name=value"),
        (("data", "preview", "gp-1d", "noise=-1"), "noise"),
        (("data", "preview", "gp-1d", "colour=red"), "no setting of gp-1d named 'colour'"),
        (("data", "preview", "gp-1d", "dxx=2"), "did you mean 'dx'"),
        (("data", "preview", "gp-1d", "dx=two"), "dx must be"),
        (("data", "ceiling", "delta-9"), "no test set named"),
        (("lst",), "lst"),
    ],
)
def test_mistakes_get_one_sentence(command, message):
    result = run(*command)
    assert result.returncode != 0
    assert message in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs=lon,lat", ("lon", "lat")),
        ("inputs=[lon, lat]", ("lon", "lat")),
        ('inputs=["lon", "lat"]', ("lon", "lat")),
        ("inputs=('lon', 'lat')", ("lon", "lat")),
        ("region=50,58,-10,2", (50, 58, -10, 2)),
        ("dx=2", 2),
        ("bimodal=true", True),
        ("path=a/b.csv", "a/b.csv"),
    ],
)
def test_settings_may_be_written_in_many_ways(text, value):
    assert parse_setting(text)[1] == value
