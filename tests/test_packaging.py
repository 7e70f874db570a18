"""The tools and the package: what they would let through, and what a user gets."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {"pillow": "PIL", "lightning-fabric": "lightning_fabric", "scikit-learn": "sklearn"}
"""Distributions whose modules have another name."""


def modules(requirements):
    names = [re.match(r"[\w-]+", requirement)[0] for requirement in requirements]
    return {MODULES.get(name, name) for name in names}


CORE = modules(PROJECT["dependencies"])
EXTRAS = set().union(*(modules(names) for names in PROJECT["optional-dependencies"].values())) - CORE


def imports(node):
    """Top-level names of the modules that are imported anywhere below a node."""
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in part.names)
        elif isinstance(part, ast.ImportFrom) and part.module:
            yield part.module.partition(".")[0]


def test_core_dependencies_are_those_that_are_imported():
    """Neither one that nothing uses nor one that a user would miss. Extras are imported where they are needed."""
    used = set()
    for path in (ROOT / "src").rglob("*.py"):
        used |= set(imports(ast.parse(path.read_text())))
    assert used - sys.stdlib_module_names - EXTRAS - {"shiftnp"} == CORE


IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # None: importing it fails
import shiftnp
for module in pkgutil.walk_packages(shiftnp.__path__, "shiftnp."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_every_module_imports_without_the_extras():
    command = [sys.executable, "-W", "ignore", "-c", IMPORT_ALL, *EXTRAS]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git repository")
def test_nothing_is_left_out_of_the_wheel():
    """The build leaves out what git ignores, except for the built files of the playground."""
    artifacts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert artifacts["artifacts"] == ["src/shiftnp/play/page/built/*"]
    left_out = {"__pycache__", "built"}
    files = [str(path) for path in (ROOT / "src").rglob("*") if not left_out & {*path.parts} and path.is_file()]
    assert str(ROOT / "src/shiftnp/py.typed") in files
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", *files]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""


def test_terms_of_data_and_weights_are_in_the_metadata():
    files = {path for pattern in PROJECT["license-files"] for path in ROOT.glob(pattern)}
    assert ROOT / "LICENSE" in files
    for folder in (ROOT / "src/shiftnp/data", *(ROOT / "src/shiftnp/weights").iterdir()):
        assert folder / "README.md" in files
    assert {"Homepage", "Documentation", "Repository", "Issues", "Changelog"} <= PROJECT["urls"].keys()


def test_every_folder_is_a_package():
    folders = {path.parent for path in (ROOT / "src/shiftnp").rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders)


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
