"""Every model as an exported program and as an ONNX file: sizes that were not there when it was traced, masks and gaps.

In a process of its own: the checker of annotations in this test run and the tracer do not mix. One process for all
models, as importing torch and its exporter takes longer than many an export.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from shiftnp.models import MODELS

VARIANTS = {name: (name, {}) for name in MODELS} | {
    "te-tnp rotary": ("te-tnp", {"kernel": "rotary"}),
    "te-tnp period search": ("te-tnp", {"kernel": {"name": "rotary", "period_search": 5}}),
    "te-tnp radius, period": ("te-tnp", {"radius": 1.0, "period": 16.0}),
    "te-pt-tnp perceiver": ("te-pt-tnp", {"style": "perceiver", "kernel": "rotary"}),
    "tnp mixture": ("tnp", {"likelihood": "mixture"}),
}
CODE = """
import json, sys, tempfile, traceback
from pathlib import Path
import torch
from conftest import random_batch, small_model
from shiftnp.export import OUTPUTS, export_model
from shiftnp.likelihoods import components_of
from shiftnp.onnx_file import open_session, run, write_onnx

torch.set_num_threads(1)

def expected(model, batch, mask):
    with torch.no_grad():
        dist = model(batch.xc, batch.yc, batch.xt, mask)
    return [dist.mean, dist.stddev, *components_of(dist)]

def check(outputs, truth, tolerance, mixture):
    assert len(outputs) == (5 if mixture else 2)
    for ours, theirs in zip(outputs, truth):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)

def data(b, nc, nt, dx, dtype):
    batch = random_batch(b=b, nc=nc, nt=nt, dx=dx, dy=2, dtype=dtype)
    batch.yc[0, 0, 0] = torch.nan
    return batch, torch.rand(b, nc, generator=torch.Generator().manual_seed(1)) < 0.8

def program(name, options, dx):
    model = small_model(name, dx=dx, dy=2, **options)
    exported = export_model(model, lattice_cells=128).module()
    for sizes in ((3, 9, 7), (1, 30, 2), (4, 2, 33)):
        batch, mask = data(*sizes, dx, torch.float64)
        with torch.no_grad():
            outputs = exported(batch.xc, batch.yc, batch.xt, mask)
        check(outputs, expected(model, batch, mask), 1e-6, "likelihood" in options)

def onnx_file(name, options, dx):
    # One layer where that has all kinds of blocks: a conversion takes its time.
    fewer = {"layers": 1} if name in ("anp", "tnp", "te-tnp") else {}
    model = small_model(name, dx=dx, dy=2, dtype=torch.float32, **{**fewer, **options})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        difference = write_onnx(model, path, lattice_cells=128)
        assert 0 <= difference <= 1e-4
        session = open_session(path)
    assert [o.name for o in session.get_outputs()] == list(OUTPUTS[: 5 if "likelihood" in options else 2])
    for sizes in ((3, 9, 7), (1, 1, 3), (5, 31, 1)):
        batch, mask = data(*sizes, dx, torch.float32)
        for m in (mask, torch.ones_like(mask), torch.zeros_like(mask)):
            outputs = run(session, batch.xc, batch.yc, batch.xt, m)
            check(outputs, expected(model, batch, m), 1e-4, "likelihood" in options)

for i, (variant, (name, options)) in enumerate(json.loads(sys.argv[1]).items()):
    for what, test, dxs in (("program", program, (1, 2)), ("onnx", onnx_file, (1 + i % 2,))):
        try:
            for dx in dxs:
                test(name, options, dx)
            found = "passed"
        except Exception:
            found = traceback.format_exc()[-2000:]
        print(json.dumps([variant, what, found]), flush=True)
"""


@pytest.fixture(scope="module")
def results():
    """What was found for each variant, as a program and as an ONNX file."""
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "JAXTYPING_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CODE, json.dumps(VARIANTS)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
    return {(variant, what): text for variant, what, text in found} | {"stderr": run.stderr[-2000:]}


@pytest.mark.parametrize("variant", VARIANTS)
def test_export_with_dynamic_numbers_of_points(variant, results):
    assert results.get((variant, "program"), results["stderr"]) == "passed"


@pytest.mark.parametrize("variant", VARIANTS)
def test_onnxruntime_agrees_with_torch_for_sizes_never_seen(variant, results):
    assert results.get((variant, "onnx"), results["stderr"]) == "passed"


def test_files_of_runs_and_of_pretrained_weights(tmp_path):
    """`shiftnp export` of what cannot be exported, or without the extra, says so in one sentence."""

    def export(*arguments, without=()):
        code = (
            "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split())); import shiftnp.cli as c; c.run()"
        )
        command = [sys.executable, "-c", code, " ".join(without), "export", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "JAXTYPING_DISABLE": "1"})

    found = export(tmp_path, "--out", tmp_path / "model.onnx")
    assert found.returncode == 1
    assert found.stderr == f"shiftnp: {tmp_path} is not a run: it has no config.json. `shiftnp train` makes runs.\n"
    found = export("1d", "--out", tmp_path / "model.onnx", without=("onnx",))
    assert found.returncode == 1
    assert found.stderr == "shiftnp: Export to ONNX needs the package onnx: pip install 'shiftnp[export]'.\n"
    found = export("1d", "--out", tmp_path / "model.txt")
    assert found.returncode == 2
    assert not list(tmp_path.iterdir())
