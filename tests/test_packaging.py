"""The tools and the package: what they would let through, and what a user gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["b", "cells", "n", "shape"])
def test_static_checks_see_undefined_names(name, tmp_path):
    """Also those that occur in shapes: neither ruff nor mypy may have to ignore them."""
    file = tmp_path / "snippet.py"
    file.write_text(f'"""A name that does not exist."""\n\n\ndef answer() -> int:\n    return {name}\n')
    for tool, code in (("ruff check", "F821"), (f"mypy --cache-dir={tmp_path}/cache", "name-defined")):
        config = "--config-file" if "mypy" in tool else "--config"
        command = [sys.executable, "-m", *tool.split(), config, str(ROOT / "pyproject.toml"), str(file)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 1
        assert code in run.stdout
