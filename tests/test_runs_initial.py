"""Initial weights of a run from a trained model, also from one with fewer inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conftest import random_batch, small_model
from shiftnp.regressor.weights import write_pretrained
from shiftnp.runs.config import RunConfig, Training
from shiftnp.runs.initial import initialise
from shiftnp.runs.run import Run
from shiftnp.runs.state import TrainingState
from shiftnp.runs.train import train


def rotary(dx, seed, **kwargs):
    return small_model("te-tnp", dx=dx, seed=seed, kernel="rotary", location_update=False, **kwargs)


def test_the_weights_of_the_same_model_are_copied(tmp_path):
    trained, model = rotary(2, 0), rotary(2, 1)
    write_pretrained(tmp_path, trained, "card", torch.float64)
    initialise(model, str(tmp_path), seed=0)
    assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), model.parameters(), strict=True))


def test_a_model_with_one_more_input_predicts_the_same_where_that_is_constant(tmp_path):
    trained, model = rotary(2, 0), rotary(3, 1)
    write_pretrained(tmp_path, trained, "card", torch.float64)
    initialise(model, str(tmp_path), seed=0)
    batch = random_batch(dx=2)

    def lifted(x, height):
        return torch.cat([x, torch.full_like(x[..., :1], height)], -1)

    expected = trained(batch.xc, batch.yc, batch.xt).mean
    there = model(lifted(batch.xc, 5.0), batch.yc, lifted(batch.xt, 5.0)).mean
    elsewhere = model(lifted(batch.xc, 5.0), batch.yc, lifted(batch.xt, 6.0)).mean
    torch.testing.assert_close(there, expected, rtol=1e-9, atol=1e-9)
    assert (elsewhere - expected).abs().max() > 1e-3


def test_a_model_of_another_kind_or_size_is_refused(tmp_path):
    write_pretrained(tmp_path, rotary(2, 0), "card")
    with pytest.raises(ValueError, match="of another size"):
        initialise(rotary(2, 0, dz=32), str(tmp_path), seed=0)
    with pytest.raises(ValueError, match="of another size"):
        initialise(rotary(1, 0), str(tmp_path), seed=0)
    with pytest.raises(ValueError, match="of another model"):
        initialise(small_model("tnp", dx=2), str(tmp_path), seed=0)
    with pytest.raises(FileNotFoundError, match="name the folder of a run"):
        initialise(rotary(2, 0), str(tmp_path / "nowhere"), seed=0)


def test_a_run_begins_with_them_and_resumes_without(tmp_path):
    settings = {"dz": 16, "heads": 2, "head_dim": 8, "layers": 1}
    training = Training(steps=3, batch_size=2, valid_every=3, valid_tasks=2)
    config = RunConfig("tnp", "gp-1d", training, settings, {"kernels": ("se",), "points": (1, 4), "targets": 4})
    first = Run.create(tmp_path / "first", config)
    train(first, gap=False, quiet=True)
    second = Run.create(tmp_path / "second", replace(config, training=replace(training, init=str(tmp_path / "first"))))
    begun = TrainingState.of(second, torch.device("cpu")).model.state_dict()
    assert all(torch.equal(value, begun[name]) for name, value in first.model().state_dict().items())
    train(second, gap=False, quiet=True)
    (tmp_path / "first" / "model.safetensors").unlink()
    resumed = TrainingState.of(Run.open(tmp_path / "second"), torch.device("cpu"))
    assert resumed.step == 3
