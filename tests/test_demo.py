from __future__ import annotations

import subprocess
import sys

from matplotlib.image import imread


def test_demo_draws_a_picture(tmp_path):
    out = tmp_path / "new" / "picture.png"
    command = [sys.executable, "-m", "shiftnp.demo", "--steps", "3", "--out", str(out)]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env={"COLUMNS": "400", "PATH": ""})
    assert str(out) in run.stdout
    pixels = imread(out)
    assert min(pixels.shape[:2]) > 400
    assert pixels.std() > 0.05  # something is drawn
