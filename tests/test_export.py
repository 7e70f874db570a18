"""Every model as an exported program: sizes that were not there when it was traced, masks and gaps included.

In a process of its own: the checker of annotations in this test run and the tracer do not mix.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from shiftnp.models import MODELS

CODE = """
import sys
import torch
from conftest import random_batch, small_model
from shiftnp.export import export_model

torch.set_num_threads(1)
name, options = sys.argv[1], eval(sys.argv[2])
for dx in (1, 2):
    model = small_model(name, dx=dx, dy=2, **options)
    program = export_model(model, lattice_cells=128).module()
    for b, nc, nt in ((3, 9, 7), (1, 30, 2), (4, 2, 33)):
        batch = random_batch(b=b, nc=nc, nt=nt, dx=dx, dy=2)
        mask = torch.rand(b, nc, generator=torch.Generator().manual_seed(1)) < 0.8
        batch.yc[0, 0, 0] = torch.nan
        with torch.no_grad():
            mean, std = program(batch.xc, batch.yc, batch.xt, mask)
            dist = model(batch.xc, batch.yc, batch.xt, mask)
        torch.testing.assert_close(mean, dist.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(std, dist.stddev, rtol=1e-6, atol=1e-6)
"""
VARIANTS = {name: (name, {}) for name in MODELS} | {
    "te-tnp rotary": ("te-tnp", {"kernel": "rotary"}),
    "te-tnp period search": ("te-tnp", {"kernel": {"name": "rotary", "period_search": 5}}),
    "te-tnp radius, period": ("te-tnp", {"radius": 1.0, "period": 16.0}),
    "te-pt-tnp perceiver": ("te-pt-tnp", {"style": "perceiver", "kernel": "rotary"}),
    "tnp mixture": ("tnp", {"likelihood": "mixture"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_export_with_dynamic_numbers_of_points(variant, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    name, options = VARIANTS[variant]
    run = subprocess.run([sys.executable, "-c", CODE, name, repr(options)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
