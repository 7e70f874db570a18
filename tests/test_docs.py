"""What the pages in docs/ say is so: code and commands run, links lead somewhere, the site needs no other host."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args
from unittest import mock

import numpy as np
import pytest
import torch

import shiftnp
from conftest import random_batch, small_model
from regressors import folder
from shiftnp.kernels import KERNELS
from shiftnp.likelihoods import LIKELIHOODS
from shiftnp.models import MODELS
from shiftnp.tasks import TASKS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
TOP = {name: (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")}
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def given(page: str) -> dict[str, object]:
    """Names that the code of a page takes for granted."""
    if page != "docs/sampling.md":
        return {}
    batch = random_batch()
    return {
        **{"torch": torch, "model": small_model("te-tnp"), "xc": batch.xc, "yc": batch.yc, "xt": batch.xt},
        **{"x": batch.xt[:, :2], "y": batch.yt[:, :2]},
    }


@pytest.fixture
def registries():
    """Undoes what code adds to the registries."""
    with (
        mock.patch.dict(MODELS),
        mock.patch.dict(KERNELS),
        mock.patch.dict(LIKELIHOODS),
        mock.patch.dict(TASKS),
    ):
        yield


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if CODE.search(text)])
def test_the_code_runs(page, monkeypatch, tmp_path):
    """All blocks of a page, one after the other, in the folder of a reader."""
    pytest.importorskip("xarray", reason="needs the extra `geo`")
    monkeypatch.chdir(tmp_path)
    names = given(page)
    for code in CODE.findall(TEXTS[page]):
        exec(compile(code, page, "exec"), names)


def commands() -> list[str]:
    """Every `shiftnp predict` and `shiftnp check` of the documentation, once."""
    blocks = [block for text in (*TOP.values(), *TEXTS.values()) for block in SHELL.findall(text)]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [re.sub(r"\s+#.*", "", line) for line in lines]
    return sorted({line for line in found if re.match(r"shiftnp (predict|check) ", line)})


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """A folder with the files that the documentation speaks of."""
    pd, xr = (pytest.importorskip(name, reason="needs the extra `geo`") for name in ("pandas", "xarray"))
    where, rng = tmp_path_factory.mktemp("reader"), np.random.default_rng(0)
    table = pd.DataFrame({"lon": rng.uniform(0, 9, 24), "lat": rng.uniform(40, 50, 24)})
    table["temperature"] = np.sin(table["lon"]) + 0.1 * rng.normal(size=24)
    table.to_csv(where / "stations.csv", index=False)
    table[["lon", "lat"]].head(3).to_csv(where / "points.csv", index=False)
    table.rename(columns={"lon": "x_km", "lat": "y_km", "temperature": "log_zinc"}).to_csv(where / "meuse.csv")
    dates = pd.date_range("2020-01-05", periods=24, freq="W")
    pd.DataFrame({"date": dates, "co2": np.sin(range(24))}).to_csv(where / "co2.csv", index=False)
    field = xr.DataArray(rng.normal(size=(6, 5)), {"lat": np.arange(6.0), "lon": np.arange(5.0)}, name="t")
    field.where(field < 0.5).to_netcdf(where / "holes.nc", engine="h5netcdf")
    return where


@pytest.mark.parametrize("command", commands())
def test_the_commands_run(command, reader, monkeypatch, capsys):
    """With the weights of a small random model, so that they take no time."""
    from shiftnp.cli import main

    monkeypatch.chdir(reader)
    arguments = [*shlex.split(command)[1:], "--weights", str(folder())]
    if "check" in arguments:
        monkeypatch.setitem(sys.modules, "gpytorch", None)  # fitting it takes long, and tests/test_cli_check.py does it
    elif not {"--grid", "--at", "holes.nc"} & set(arguments):
        arguments += ["--grid", "8"]
    with mock.patch.object(sys, "argv", ["shiftnp", *arguments]):
        main()
    written = [Path(line) for line in capsys.readouterr().out.splitlines() if line.startswith(str(reader))]
    assert written
    assert all(path.exists() for path in written)
    if "--out" in arguments:
        assert reader / arguments[arguments.index("--out") + 1] in written


def test_links_lead_somewhere():
    for name, text in {**TOP, **TEXTS}.items():
        page = ROOT / name
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for link in re.findall(r"\]\(((?!http)[^)]+)\)", prose):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{name} links to {link}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                assert anchor in map(slug, headings), f"{name} links to {link}"


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_every_page_is_in_the_navigation():
    """Both ways; the build says so too, where it can run."""
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


def test_the_site_builds_and_loads_nothing_from_other_hosts(tmp_path):
    for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(name, reason="needs the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "default"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    pages = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    for path, text in pages.items():
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?([^\">\s]+)", text)
        loaded += re.findall(r"<link[^>]*\shref=\"?([^\">\s]+)", text)
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], path
        assert "arithmatex" not in text, path  # every formula is MathML
        assert "<!-- help" not in text, path
        assert "<!-- source" not in text, path
    styles = "".join(path.read_text() for path in tmp_path.rglob("*.css"))
    assert not re.search(r"@import|url\(['\"]?(https?:)?//", styles)
    assert "--quantiles" in pages[tmp_path / "reference/cli.html"]
    assert "Regressor.predict_grid" in pages[tmp_path / "reference/api/regressor.html"]


def test_every_public_name_is_in_the_reference():
    index = TEXTS["docs/reference/api/index.md"]
    for name in shiftnp.__all__:
        assert f"`{name}`" in index, name
    for text in TEXTS.values():
        for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE):
            try:
                assert importlib.import_module(name)
            except ModuleNotFoundError:
                module, _, part = name.rpartition(".")
                assert getattr(importlib.import_module(module), part) is not None


def test_every_command_is_in_the_reference():
    from shiftnp.cli import Command

    page = TEXTS["docs/reference/cli.md"]
    names = [part.name for option in get_args(Command) for part in get_args(option)[1:]]
    assert "predict" in names
    for name in names:
        assert f"<!-- help: {name} -->" in page, f"docs/reference/cli.md has no section for `shiftnp {name}`"


def test_version_and_paper_in_the_citation():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"version: {shiftnp.__version__}\n" in text
    assert "arXiv:2406.12409" in text
    assert shiftnp.__version__ in TOP["CHANGELOG.md"]
