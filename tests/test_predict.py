"""Predictions in chunks: the same as at once, into any array, from a context that is encoded once."""

from __future__ import annotations

import copy
import gc
import json
import math

import numpy as np
import pytest
import torch

from conftest import random_batch, small_model
from shiftnp.attention import tiled
from shiftnp.bench import scale
from shiftnp.models import MODELS, prediction
from shiftnp.nn import transformer

BATCH = random_batch(b=2, nc=9, nt=23, dx=2, dy=2)
CONTEXT = (BATCH.xc, BATCH.yc)


@pytest.fixture
def counted(monkeypatch):
    """A model that counts how often it encodes a context."""
    model, calls = small_model("te-tnp", dx=2, dy=2, radius=1.0), []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *a, **k: calls.append(1) or encode(*a, **k))
    return model, calls


@pytest.mark.parametrize("name", MODELS)
def test_chunks_change_nothing(name):
    model = small_model(name, dx=2, dy=2)
    dist = model(*CONTEXT, BATCH.xt)
    for chunk in (1, 7, 23, 1000, None):
        mean, std = model.predict(*CONTEXT, BATCH.xt, chunk=chunk)
        torch.testing.assert_close(mean, dist.mean)
        torch.testing.assert_close(std, dist.stddev)
        assert not mean.requires_grad


@pytest.mark.parametrize("limit", [0, 1 << 60])
def test_neighbours(monkeypatch, limit):
    monkeypatch.setattr(transformer, "DENSE", limit)
    model = small_model("te-tnp", dx=2, dy=2, radius=0.5)
    dist = model(*CONTEXT, BATCH.xt)
    torch.testing.assert_close(model.predict(*CONTEXT, BATCH.xt, chunk=5).mean, dist.mean)


@pytest.mark.parametrize("equivariant", [None, (1,)])
def test_targets_of_a_chunk_are_neighbours_and_come_out_where_they_went_in(monkeypatch, equivariant):
    monkeypatch.setattr(transformer, "DENSE", 0)
    model = small_model("te-tnp", dx=2, dy=2, radius=0.5, equivariant=equivariant)
    (xc, yc), g = (t[0] for t in CONTEXT), torch.Generator().manual_seed(0)
    xt = 20 * torch.rand(64, 2, generator=g, dtype=torch.float64)
    first = 0 if equivariant is None else 1
    chunks, decode = [], model.decode
    monkeypatch.setattr(model, "decode", lambda encoded, x: chunks.append(x[0]) or decode(encoded, x))
    dist = model(xc[None], yc[None], xt[None])
    for kind in (xt, xt.numpy()):
        chunks.clear()
        mean, std = model.predict(xc, yc, kind, chunk=4)
        torch.testing.assert_close(torch.as_tensor(mean), dist.mean[0])
        torch.testing.assert_close(torch.as_tensor(std), dist.stddev[0])
        assert len(chunks) == 16
        assert torch.stack([x[:, first].std() for x in chunks]).mean() < xt[:, 0].std() / 4  # rows of cells


def test_mixtures_have_a_standard_deviation():
    model = small_model("tnp", dx=2, dy=2, likelihood="mixture")
    torch.testing.assert_close(model.predict(*CONTEXT, BATCH.xt).std, model(*CONTEXT, BATCH.xt).stddev)


@pytest.mark.parametrize("masked", [False, True])
def test_one_data_set_and_several_in_tensors_and_arrays(masked):
    model = small_model("te-tnp", dx=2, dy=2)
    mask = torch.arange(9).expand(2, -1) < torch.tensor([[9], [4]]) if masked else None
    dist = model(*CONTEXT, BATCH.xt, mask)
    several = model.predict(*(t.numpy() for t in (*CONTEXT, BATCH.xt)), mask=mask if mask is None else mask.numpy())
    assert isinstance(several.mean, np.ndarray)
    torch.testing.assert_close(torch.from_numpy(several.mean), dist.mean)
    one = model.predict(*(t[1] for t in (*CONTEXT, BATCH.xt)), mask=None if mask is None else mask[1])
    assert isinstance(one.mean, torch.Tensor)
    torch.testing.assert_close(one.mean, dist.mean[1])
    torch.testing.assert_close(one.std, dist.stddev[1])


def test_arrays_on_disk(tmp_path):
    model = small_model("te-tnp", dx=2, dy=2, dtype=torch.float32)
    np.save(tmp_path / "xt.npy", BATCH.xt[0].numpy())
    xt = np.load(tmp_path / "xt.npy", mmap_mode="r")
    out = tuple(
        np.lib.format.open_memmap(tmp_path / f"{name}.npy", mode="w+", dtype=np.float32, shape=(23, 2))
        for name in ("mean", "std")
    )
    result = model.predict(CONTEXT[0][0].numpy(), CONTEXT[1][0].numpy(), xt, chunk=4, out=out)
    assert result.mean is out[0]
    assert result.std is out[1]
    result.mean.flush()
    dist = model(*(t[:1] for t in (*CONTEXT, BATCH.xt)))
    np.testing.assert_allclose(np.load(tmp_path / "mean.npy"), dist.mean[0].detach(), rtol=1e-4, atol=1e-5)


def test_out_is_written_in_place_whatever_its_precision():
    model = small_model("tnp", dx=2, dy=2)
    out = torch.zeros(2, 23, 2, dtype=torch.float32), np.zeros((2, 23, 2), dtype=np.float64)
    assert model.predict(*CONTEXT, BATCH.xt, out=out).mean is out[0]
    dist = model(*CONTEXT, BATCH.xt)
    torch.testing.assert_close(out[0], dist.mean.float())
    np.testing.assert_allclose(out[1], dist.stddev.detach())


@pytest.mark.parametrize(("nc", "nt"), [(0, 5), (5, 0), (0, 0)])
def test_nothing_to_see_or_to_say(nc, nt):
    batch, model = random_batch(b=1, nc=nc, nt=nt), small_model("te-tnp")
    result = model.predict(batch.xc[0], batch.yc[0], batch.xt[0])
    assert result.mean.shape == (nt, 1)
    torch.testing.assert_close(result.mean, model(batch.xc, batch.yc, batch.xt).mean[0])


def test_nan_means_not_observed():
    model, yc = small_model("te-tnp", dx=2, dy=2), BATCH.yc.clone()
    yc[:, 3] = math.nan
    torch.testing.assert_close(model.predict(BATCH.xc, yc, BATCH.xt).mean, model(BATCH.xc, yc, BATCH.xt).mean)


def test_training_mode_and_progress(capsys):
    model = small_model("te-tnp", dx=2, dy=2).train()
    model.predict(*CONTEXT, BATCH.xt, chunk=3, progress=True)
    assert model.training
    assert "23/23" in capsys.readouterr().out
    model.predict(*CONTEXT, BATCH.xt)
    assert capsys.readouterr().out == ""


# --- one encoding is enough, and never an old one --------------------------------------------------------------------


def test_context_is_encoded_once(counted):
    model, calls = counted
    first = model.predict(*CONTEXT, BATCH.xt, chunk=4)
    again = model.predict(*CONTEXT, BATCH.xt[:, :3])
    model.predict(*(t.numpy() for t in (*CONTEXT, BATCH.xt)))
    assert len(calls) == 1
    torch.testing.assert_close(again.mean, first.mean[:, :3])


def step(model):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(*CONTEXT, BATCH.xt).log_prob(BATCH.yt).mean().backward()
    optimiser.step()


CHANGES = {
    "values": lambda model, xc, yc, mask: yc[0, 0].add_(1),
    "values, unnoticed by torch": lambda model, xc, yc, mask: np.add(yc.numpy(), 1, out=yc.numpy()),
    "places": lambda model, xc, yc, mask: xc.mul_(0.9),
    "mask": lambda model, xc, yc, mask: mask[0, :5].logical_not_(),
    "training": lambda model, xc, yc, mask: step(model),
    "weights": lambda model, xc, yc, mask: next(model.parameters()).data.mul_(1.5),
    "other weights": lambda model, xc, yc, mask: model.load_state_dict(
        small_model("te-tnp", dx=2, dy=2, radius=1.0, seed=1).state_dict()
    ),
    "precision": lambda model, xc, yc, mask: model.float(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_stale(counted, change):
    model, calls = counted
    xc, yc, mask = BATCH.xc.clone(), BATCH.yc.clone(), torch.ones(2, 9, dtype=torch.bool)
    before = model.predict(xc, yc, BATCH.xt, mask=mask)
    CHANGES[change](model, xc, yc, mask)
    calls.clear()
    after = model.predict(xc, yc, BATCH.xt, mask=mask)
    assert len(calls) == 1
    expected = model(xc, yc, BATCH.xt, mask)
    assert torch.equal(after.mean, expected.mean)
    assert torch.equal(after.std, expected.stddev)
    assert not torch.equal(after.mean, before.mean.to(after.mean.dtype)) or change == "precision"


def test_precision_of_autocast_is_part_of_what_is_remembered(counted):
    model, calls = counted
    model.float().predict(*CONTEXT, BATCH.xt)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.predict(*CONTEXT, BATCH.xt)
    assert len(calls) == 2


def test_so_is_that_of_the_networks_of_pairs(counted, monkeypatch):
    monkeypatch.setattr(tiled, "LOW_PRECISION", True)
    model, calls = counted
    model.float().predict(*CONTEXT, BATCH.xt)
    with tiled.low_precision():
        model.predict(*CONTEXT, BATCH.xt)
    assert len(calls) == 2


def test_models_remember_for_themselves_and_do_not_live_longer():
    model = small_model("te-tnp", dx=2, dy=2)
    model.predict(*CONTEXT, BATCH.xt)
    other = copy.deepcopy(model)
    next(other.parameters()).data.mul_(2)
    assert not torch.equal(other.predict(*CONTEXT, BATCH.xt).mean, model.predict(*CONTEXT, BATCH.xt).mean)
    gc.collect()
    n = len(prediction.LAST.results)
    del model, other
    gc.collect()
    assert len(prediction.LAST.results) == n - 2


def test_default_chunk_bounds_pairs():
    memory = small_model("te-tnp", dx=2, dy=2).encode(*CONTEXT).memory
    assert prediction.default_chunk(memory, 2, 9) == prediction.MOST_TARGETS // 2
    full = memory._replace(start=memory.start._replace(z=torch.empty(1, 10**6, 0)))
    assert 1 <= prediction.default_chunk(full, 1, 10**6) * 10**6 <= 1 << 22
    assert prediction.default_chunk(None, 1, 10**5) * 10**5 <= 1 << 17
    assert prediction.default_chunk(None, 1, 10**9) == 1


# --- what is refused -------------------------------------------------------------------------------------------------

BAD = {
    "chunk": {"chunk": 0},
    "xt tasks": {"xt": BATCH.xt[:1]},
    "xt rank": {"xt": BATCH.xt[0]},
    "xt integers": {"xt": BATCH.xt.numpy().astype(int)},
    "xt nan, late": {"xt": BATCH.xt.index_fill(1, torch.tensor([22]), math.nan)},
    "xc dx": {"xc": BATCH.xc[..., :1]},
    "xc integers": {"xc": BATCH.xc.numpy().astype(int)},
    "yc rank": {"xc": BATCH.xc[0], "xt": BATCH.xt[0]},
    "yc shape": {"yc": BATCH.yc[:, :4]},
    "mask rank": {**{n: getattr(BATCH, n)[0] for n in ("xc", "yc", "xt")}, "mask": torch.ones(2, 9, dtype=torch.bool)},
    "mask floats": {"mask": np.ones((2, 9))},
    "out shape": {"out": (torch.zeros(2, 23, 1), torch.zeros(2, 23, 2))},
    "out integers": {"out": (torch.zeros(2, 23, 2), np.zeros((2, 23, 2), dtype=int))},
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name_before_anything_is_written(case):
    model = small_model("te-tnp", dx=2, dy=2)
    out = torch.full((2, 23, 2), 7.0), torch.full((2, 23, 2), 7.0)
    with pytest.raises(ValueError, match=rf"^{case.split()[0]} ") as caught:
        model.predict(**{"xc": BATCH.xc, "yc": BATCH.yc, "xt": BATCH.xt, "out": out, "chunk": 4, **BAD[case]})
    assert "\n" not in str(caught.value)
    assert all((t == 7).all() for t in out)


# --- how it scales ---------------------------------------------------------------------------------------------------


def test_bench_scale(monkeypatch):
    monkeypatch.setattr(scale, "in_own_process", scale.one)
    result = scale.measure(contexts=(50, 200), targets=300, quiet=True)
    assert json.loads(json.dumps(result)) == result
    assert result["finished"]
    for entry in result["models"].values():
        assert [row["context"] for row in entry["sizes"]] == [50, 200]
        assert all(row["encode"] > 0 and row["predict"] > 0 and row["megabytes"] > 50 for row in entry["sizes"])
    assert scale.table(result).row_count == 2 * 3
    assert scale.exponent([1, 10, 100], [0.1, 1.0, 10.0]) == pytest.approx(1.0)
    assert scale.exponent([1], [0.1]) is None
    with pytest.raises(ValueError, match="contexts"):
        scale.measure(contexts=())


def test_bench_scale_in_its_own_process():
    row = scale.in_own_process("TE-PT-TNP, 32 pseudo-tokens", 20, 30, 0)
    assert row["context"] == 20
    with pytest.raises(RuntimeError, match="Measuring nothing"):
        scale.in_own_process("nothing", 20, 30, 0)
