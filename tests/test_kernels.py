"""Kernels as objects: chosen by name, by JSON or as themselves, and kept in configs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from conftest import random_batch, small_model
from shiftnp import kernels
from shiftnp.geometry import Geometry
from shiftnp.kernels import KERNELS, Kernel, PairwiseMLP, Rotary, make_kernel
from shiftnp.kernels.base import AttentionSize
from shiftnp.models import TETNP


@pytest.mark.parametrize(
    "kernel", [PairwiseMLP(), PairwiseMLP(init="torch"), Rotary(), Rotary(frequencies=3, band=(1, 2), window=False)]
)
def test_json_and_back(kernel):
    assert make_kernel(json.loads(json.dumps(kernel.to_json()))) == kernel
    assert make_kernel(kernel) is kernel


def test_names():
    assert {name: type(make_kernel(name)) for name in KERNELS} == KERNELS
    assert make_kernel({"name": "rotary", "frequencies": 32}) == Rotary(frequencies=32)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("rotray", "did you mean 'rotary'"),
        ({"frequencies": 3}, "kernel must have a name"),
        ({"name": "rotary", "frequency": 3}, "did you mean 'frequencies'"),
        ({"name": "mlp", "window": True}, "no argument of the kernel mlp named 'window'"),
        ({"name": "mlp", "init": "zero"}, 'init of the kernel mlp must be "he" or "torch"'),
        ({"name": "rotary", "frequencies": 0}, "frequencies"),
        ({"name": "rotary", "frequencies": True}, "frequencies"),
        ({"name": "rotary", "period_search": -1}, "period_search"),
        ({"name": "rotary", "period_span": 0}, "period_span"),
        ({"name": "rotary", "band": [2.0, 1.0]}, "band"),
    ],
)
def test_bad_kernels_are_refused_in_a_sentence(kernel, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_kernel(kernel)
    assert "\n" not in str(caught.value)


def test_values_of_a_wrong_type_are_refused_in_a_sentence():
    """In a process of its own: the checker of annotations in this test run would step in first."""
    code = """
from shiftnp.kernels import make_kernel
bad = {"kernel": 3, "band": {"name": "rotary", "band": "wide"}, "window": {"name": "rotary", "window": 1}}
for word, kernel in bad.items():
    try:
        make_kernel(kernel)
    except ValueError as error:
        assert str(error).startswith(f"{word} must be"), error
    else:
        raise SystemExit(f"{kernel} was accepted")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_model_shows_the_arguments_of_its_own_kernel_only():
    plain, rotary = small_model("te-tnp"), small_model("te-tnp", kernel=Rotary(frequencies=3))
    assert "kernel=PairwiseMLP(init='he')" in repr(plain)
    assert not any(word in repr(plain) for word in ("frequencies", "band", "window", "period_search"))
    assert "kernel=Rotary(frequencies=3, band=(0.2, 6.0), window=True, period_search=0, period_span=None)" in repr(
        rotary
    )
    assert rotary.config["kernel"] == {
        "name": "rotary",
        "frequencies": 3,
        "band": (0.2, 6.0),
        "window": True,
        "period_search": 0,
        "period_span": None,
    }


@pytest.mark.parametrize("width", [32, 128])
def test_initial_logits_differ_between_pairs(width):
    """With He initialisation by about one, whatever the width; with torch's more than ten times less."""
    g = torch.Generator().manual_seed(0)
    pairs = torch.cat([torch.randn(500, 4, generator=g), 2 * torch.randn(500, 1, generator=g)], 1)
    size = AttentionSize(width, 4, 8, 1, Geometry())
    spread = {}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for init in ("he", "torch"):
            nets = [PairwiseMLP(init).attention(size, True).rho for _ in range(20)]
            spread[init] = float(torch.stack([net(pairs).std(0) for net in nets]).mean())
    assert 0.7 < spread["he"] < 2.5
    assert spread["torch"] < spread["he"] / 10


def test_a_third_kernel_is_one_class_and_one_entry(monkeypatch):
    @dataclass(frozen=True)
    class Wide(Kernel):
        name: ClassVar[str] = "wide"
        factor: int = 2

        def attention(self, size, location_update):
            return PairwiseMLP().attention(size, location_update)

    monkeypatch.setitem(kernels.KERNELS, "wide", Wide)
    model, batch = TETNP(1, 1, dz=8, layers=1, kernel="wide").double(), random_batch()
    assert model.config["kernel"] == {"name": "wide", "factor": 2}
    assert model(batch.xc, batch.yc, batch.xt).mean.isfinite().all()
