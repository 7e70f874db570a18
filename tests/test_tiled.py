"""The tiled attention against its specification: values, gradients, memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from conftest import random_batch, small_model
from shiftnp.attention import reference, tiled
from shiftnp.attention.pair_mlp import MLPWeights
from shiftnp.geometry import Geometry, Positions
from shiftnp.kernels.mlp import PairwiseMLPAttention
from shiftnp.models import TETNP
from shiftnp.nn.mlp import MLP
from shiftnp.runs.step import precision_context

B, H, NQ, NK, D, DX, WIDTH = 3, 3, 7, 5, 4, 2, 8


def make(dtype, period, masked, moves):
    """Everything that attention needs, and what its outputs are weighed with."""
    g = torch.Generator().manual_seed(0)

    def gauss(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_()

    geometry = Geometry.of(DX, period, None)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rho = MLP(H + DX + geometry.extra_features, H, WIDTH, bias_out=False).to(dtype)
        phi = MLP(H, H, WIDTH).to(dtype) if moves else None
    z = (gauss(B, H, NQ, D), gauss(B, H, NK, D), gauss(B, H, NK, D))
    x = (gauss(B, NQ, DX), gauss(B, NK, DX), gauss(B, NQ, DX), gauss(B, NK, DX))
    pairs = None
    if masked:
        pairs = torch.rand(B, NQ, NK, generator=g) < 0.6
        pairs[0, 0] = False  # a query that sees nothing
    weigh = (gauss(B, H, NQ, D).detach(), gauss(B, NQ, DX).detach())
    return z, x, geometry, rho, phi, pairs, weigh


def results(attend, setup):
    """Outputs and all gradients."""
    z, x, _, rho, phi, _, weigh = setup
    out, step = attend(*setup[:-1])
    outputs = [out] if step is None else [out, step]
    loss = sum((o * w).sum() for o, w in zip(outputs, weigh, strict=False))
    parameters = [*rho.parameters(), *([] if phi is None else phi.parameters())]
    return [*outputs, *torch.autograd.grad(loss, [*z, *x, *parameters])]


def specified(z, x, geometry, rho, phi, pairs):
    d = geometry.displacement(Positions(x[0], x[2]), Positions(x[1], x[3]), x[0].dtype)
    out, alpha = reference.te_attention(*z, geometry.features(d), rho, pairs)
    return out, None if phi is None else reference.location_step(geometry.smooth(d), alpha, phi, pairs)


def by_tiles(tile, low_precision=False):
    def attend(z, x, geometry, rho, phi, pairs):
        nets = MLPWeights.of(rho.layers), None if phi is None else MLPWeights.of(phi.layers)
        at = Positions(x[0], x[2]), Positions(x[1], x[3])
        return tiled.attend(*z, *at, *nets, geometry, pairs, tile, low_precision)

    return attend


def worst(ours, theirs):
    """Largest difference relative to the largest entry, over all outputs and gradients."""
    return max(float(((a - b).abs().max() / b.abs().max()).detach()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("tile", [3, 20, 1000])  # part of a row, some rows, several tasks at once
@pytest.mark.parametrize("period", [None, (2.0, None)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("moves", [False, True])
def test_same_function_same_gradients(tile, period, masked, moves):
    setup = make(torch.float64, period, masked, moves)
    assert worst(results(by_tiles(tile), setup), results(specified, setup)) < 1e-12


@pytest.mark.parametrize("tile", [3, 20, 1000])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("moves", [False, True])
def test_same_function_without_gradients(tile, masked, moves):
    """Tiles are larger then, and go through the networks in slices."""
    *setup, _ = make(torch.float64, None, masked, moves)
    with torch.no_grad():
        ours, theirs = by_tiles(tile)(*setup), specified(*setup)
    assert worst([o for o in ours if o is not None], [o for o in theirs if o is not None]) < 1e-12


@pytest.mark.parametrize("kept", [0, 1 << 21])  # recomputed in the backward pass, or kept
@pytest.mark.parametrize("sparse", [0.0, 1.1])  # masked pairs go through the networks, or not
@pytest.mark.parametrize("of_keys", [False, True])  # each query has a mask of its own, or all have the same
def test_masked_pairs_may_skip_the_networks(monkeypatch, sparse, of_keys, kept):
    monkeypatch.setattr(tiled, "SPARSE", sparse)
    monkeypatch.setattr(tiled, "KEPT", kept)
    *setup, pairs, weigh = make(torch.float64, None, True, True)
    pairs = pairs[:, 1:2] if of_keys else pairs
    assert worst(results(by_tiles(20), (*setup, pairs, weigh)), results(specified, (*setup, pairs, weigh))) < 1e-12


def test_masked_pairs_do_not_go_through_the_networks(monkeypatch):
    columns = []
    monkeypatch.setattr(
        tiled.BufferedMLP, "__call__", lambda self, x: columns.append(x.shape[1]) or x[: len(self.net.w3)]
    )
    *setup, pairs, _ = make(torch.float64, None, True, False)
    by_tiles(1000)(*setup, pairs)
    assert columns == [int(pairs.sum())]


def test_no_pair_attends():
    *setup, pairs, _ = make(torch.float64, None, True, True)
    out, step = by_tiles(20)(*setup, torch.zeros_like(pairs))
    assert not out.any()
    assert not step.any()


@pytest.mark.parametrize(("low_precision", "tolerance"), [(False, 1e-5), (True, 2e-2)])
def test_single_and_half_precision(low_precision, tolerance):
    exact = results(specified, make(torch.float64, None, True, True))
    rough = results(by_tiles(20, low_precision), make(torch.float32, None, True, True))
    assert worst([r.double() for r in rough], exact) < tolerance


def test_only_the_networks_of_pairs_in_half_precision(monkeypatch):
    """Nearly all of the work, nearly none of the rounding: the rest of a fresh model stays as it is."""
    monkeypatch.setattr(tiled, "LOW_PRECISION", True)
    batch, gradients = random_batch(b=3, nc=6, nt=5), {}
    for precision in ("float64", "float32", "bf16", "bf16-pairs"):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = TETNP(dx=1, dy=1, dz=16, heads=2, head_dim=8, layers=2)
        model.to(torch.float64 if precision == "float64" else torch.float32)
        with precision_context("float32" if precision == "float64" else precision, torch.device("cpu")):
            dist = model(batch.xc, batch.yc, batch.xt)
        dist.log_prob(batch.yt).mean().backward()
        gradients[precision] = torch.cat([p.grad.double().flatten() for p in model.parameters()])
    exact = gradients.pop("float64")
    off = {precision: float((g - exact).norm() / exact.norm()) for precision, g in gradients.items()}
    assert off["float32"] < 1e-5
    assert 10 * off["float32"] < off["bf16-pairs"] < 0.1 * off["bf16"] < 1e-2


def test_half_precision_only_where_it_pays(monkeypatch):
    here = torch.device("cpu")
    for pays in (True, False):
        monkeypatch.setattr(tiled, "LOW_PRECISION", pays)
        assert not tiled.uses_low_precision(here, 8)
        with tiled.low_precision():
            assert tiled.uses_low_precision(here, 8) is pays
        with torch.autocast("cpu", torch.bfloat16):
            assert tiled.uses_low_precision(here, 8) is pays


def test_a_decision_is_not_measured_again(monkeypatch):
    monkeypatch.setattr(tiled, "bf16_pays", lambda *a: pytest.fail("measured"))
    here = torch.device("cpu")
    for pays in (True, False):
        with tiled.low_precision(pays):
            assert tiled.uses_low_precision(here, 8) is pays
        with precision_context("bf16", here, 8, pays):
            assert torch.is_autocast_enabled("cpu") is pays
            assert tiled.uses_low_precision(here, 8) is pays
        with precision_context("bf16-pairs", here, 8, pays):
            assert not torch.is_autocast_enabled("cpu")
            assert tiled.uses_low_precision(here, 8) is pays
    assert not tiled.uses_low_precision(here, 8)


@pytest.mark.parametrize("options", [{}, {"radius": 1.0}, {"period": 16.0}, {"location_update": False}])
@pytest.mark.parametrize("name", ["te-tnp", "te-pt-tnp"])
def test_models_use_it(name, options, monkeypatch):
    """And give with it what they give with the specification, padded tasks included."""
    model, batch = small_model(name, **options), random_batch(b=3, nc=6, nt=5)
    mask = torch.arange(6) < torch.tensor([6, 3, 0])[:, None]
    outcome = {}
    for backend in ("reference", "tiled"):
        monkeypatch.setattr(PairwiseMLPAttention, "backend", backend)
        model.zero_grad()
        dist = model(batch.xc, batch.yc, batch.xt, mask)
        dist.log_prob(batch.yt).mean().backward()
        outcome[backend] = [dist.mean, dist.stddev, *(p.grad.clone() for p in model.parameters())]
    for a, b in zip(*outcome.values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_parts_are_even():
    assert [tiled.even(n, 7) for n in (0, 5, 7, 8, 16)] == [1, 5, 7, 4, 6]


def test_narrow_networks_have_larger_tiles():
    """As many activations in the cache, and fewer tiles; in bfloat16 there are twice as many."""
    here = torch.device("cpu")
    assert [tiled.tile_size(here, width) for width in (8, 32, 64, 128, 4096)] == [16384, 8192, 4096, 2048, 1024]
    assert tiled.tile_size(here, 128, itemsize=2) == 4096


MEMORY = """
import sys, torch
from shiftnp._machine import peak_megabytes
from shiftnp.models import TETNP
from shiftnp.kernels.mlp import PairwiseMLPAttention
PairwiseMLPAttention.backend, nc, nt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(0)
model = TETNP(dx=1, dy=1, dz=32, layers=1)
g = torch.Generator().manual_seed(0)
def step(nc, nt):
    x = torch.randn(1, nc + nt, 1, generator=g)
    dist = model(x[:, :nc], x[:, :nc], x[:, nc:])
    dist.log_prob(x[:, nc:]).mean().backward()
step(8, 8)
before = peak_megabytes()
step(nc, nt)
print(peak_megabytes() - before)
"""


def test_memory_is_that_of_the_points_not_of_the_pairs():
    """900,000 pairs of 32 numbers in two networks would be 500 MB and more."""
    added = {}
    for backend in ("tiled", "reference"):
        command = [sys.executable, "-c", MEMORY, backend, "500", "1300"]
        added[backend] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert added["tiled"] < 50
    assert added["reference"] > 400  # so the count is able to see it
