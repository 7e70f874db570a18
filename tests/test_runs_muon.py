"""Muon: its updates, which parameters it takes, and that runs with it resume."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from conftest import small_model
from shiftnp.models import MODELS
from shiftnp.runs import train as train_module
from shiftnp.runs.muon import MOMENTUM, Muon, hidden_matrices, orthogonal
from shiftnp.runs.run import Run
from shiftnp.runs.step import make_optimiser
from shiftnp.runs.train import train
from test_runs_train import CONFIG, assert_identical, changed, trained


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 24), (2, 24, 8)])
def test_orthogonal_keeps_singular_vectors(shape):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    values = u.mT @ orthogonal(x) @ vh.mT
    diagonal = values.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(values, torch.diag_embed(diagonal), atol=1e-10, rtol=0)
    assert diagonal.min() > 0.6
    assert diagonal.max() < 1.3


def test_orthogonal_does_not_depend_on_scale():
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(orthogonal(1e3 * x), orthogonal(x))
    torch.testing.assert_close(orthogonal(1e-6 * x), orthogonal(x), rtol=0, atol=0.02)  # norms of 100 `EPSILON`
    assert torch.equal(orthogonal(torch.zeros(1, 8, 8)), torch.zeros(1, 8, 8))
    # Squares of such entries underflow: the norm is zero.
    assert orthogonal(1e-25 * x).abs().max() < 1e-14


def test_a_layer_that_loses_its_gradient_stops():
    """As one behind dead ReLUs does: its momentum falls to the smallest float, and its weights stay finite."""
    weight, bias = nn.Parameter(torch.ones(16, 16)), nn.Parameter(torch.ones(16))
    optimiser = Muon([weight], [bias], lr=1e-3, weight_decay=0.0)
    weight.grad, bias.grad = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)), torch.ones(16)
    optimiser.step()
    weight.grad = torch.zeros(16, 16)
    for _ in range(600):
        optimiser.step()
    before = weight.detach().clone()
    for _ in range(1800):
        optimiser.step()
    assert weight.isfinite().all()
    torch.testing.assert_close(weight.detach(), before, atol=1e-5, rtol=0)


def test_two_steps_by_hand():
    """Momentum of the gradients, looked ahead, orthogonal, with a root mean square of the learning rate."""
    generator = torch.Generator().manual_seed(0)
    start, *gradients = torch.randn(3, 16, 8, dtype=torch.float64, generator=generator)
    weight, bias = nn.Parameter(start.clone()), nn.Parameter(torch.zeros(3))
    optimiser = Muon([weight], [bias], lr=0.1, weight_decay=0.5)
    expected, moment = start.clone(), torch.zeros_like(start)
    for gradient in gradients:
        weight.grad, bias.grad = gradient.clone(), torch.ones(3)
        optimiser.step()
        moment = MOMENTUM * moment + (1 - MOMENTUM) * gradient
        ahead = MOMENTUM * moment + (1 - MOMENTUM) * gradient
        direction = orthogonal(ahead[None])[0]
        expected = (1 - 0.1 * 0.5) * expected - 0.1 * 4 * direction
        assert (4 * direction).square().mean().sqrt() == pytest.approx(1, abs=0.2)
    torch.testing.assert_close(weight.detach(), expected)
    reference = nn.Parameter(torch.zeros(3))
    adamw = torch.optim.AdamW([reference], lr=0.1, weight_decay=0.5)
    for _ in gradients:
        reference.grad = torch.ones(3)
        adamw.step()
    torch.testing.assert_close(bias, reference)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_updated_once(name):
    model = small_model(name)
    optimiser = make_optimiser(model, replace(CONFIG.training, optimiser="muon"))
    taken = [id(p) for group in optimiser.param_groups for p in group["params"]]
    assert sorted(taken) == sorted(id(p) for p in model.parameters())
    assert all(p.ndim == 2 for p in hidden_matrices(model))
    assert not {id(p) for p in model.decoder.parameters()} & {id(p) for p in hidden_matrices(model)}


def test_parameters_without_gradient_stay():
    weight, bias = nn.Parameter(torch.ones(8, 8)), nn.Parameter(torch.ones(8))
    Muon([weight], [bias], lr=0.1, weight_decay=0.1).step()
    assert torch.equal(weight, torch.ones(8, 8))
    assert torch.equal(bias, torch.ones(8))


def test_runs_with_muon_resume(tmp_path, monkeypatch):
    whole = trained(tmp_path / "whole", changed(optimiser="muon", steps=12))
    assert not torch.equal(
        whole.model().decoder.layers[0].weight,
        trained(tmp_path / "adamw", changed(steps=12)).model().decoder.layers[0].weight,
    )
    half = Run.create(tmp_path / "half", whole.config)
    real, calls = train_module.loss, []

    def failing(*args):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(train_module, "loss", failing)
    with pytest.raises(KeyboardInterrupt):
        train(half, gap=False, quiet=True, save_every=0)
    monkeypatch.undo()
    assert 0 < half.step < 12
    assert train(half, gap=False, quiet=True)
    assert_identical(whole, half)
