"""Predictions in chunks: the same as at once, into any array, from a context that is encoded once."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
import torch

from conftest import random_batch, small_model
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


# --- an encoded context in place of the context ----------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_encoded_contexts(name):
    model = small_model(name, dx=2, dy=2)
    mask = torch.arange(9).expand(2, -1) < torch.tensor([[9], [4]])
    encoded, expected = model.encode(*CONTEXT, mask), model(*CONTEXT, BATCH.xt, mask)
    for xt in (BATCH.xt, BATCH.xt.numpy()):
        result = model.predict(encoded, xt=xt, chunk=4)
        torch.testing.assert_close(torch.as_tensor(result.mean), expected.mean)
        torch.testing.assert_close(torch.as_tensor(result.std), expected.stddev)


def test_an_encoded_context_is_not_encoded_again(counted):
    model, calls = counted
    encoded = model.encode(*CONTEXT)
    embed, memory = model.embed_context, encoded.memory
    model.embed_context = lambda c: calls.append(2) or embed(c)
    for xt in (BATCH.xt, BATCH.xt[:, :3]):
        model.predict(encoded, xt=xt)
        model.decode(encoded, xt)
    assert calls == [1]
    assert encoded.memory is memory
    model.predict(*CONTEXT, BATCH.xt, chunk=4)
    model.predict(*CONTEXT, BATCH.xt, chunk=4)  # nothing is remembered behind the caller's back
    assert calls == [1, 1, 2, 1, 2]


def test_one_encoded_data_set_needs_no_batch_dimension():
    model = small_model("te-tnp", dx=2, dy=2)
    encoded = model.encode(BATCH.xc[:1], BATCH.yc[:1])
    one, batched = model.predict(encoded, xt=BATCH.xt[0]), model.predict(encoded, xt=BATCH.xt[:1])
    assert one.mean.shape == (23, 2)
    assert torch.equal(one.mean, batched.mean[0])
    several = model.encode(*CONTEXT)
    for bad, message in (
        (lambda: model.predict(several, xt=BATCH.xt[0]), "^xt must have shape"),
        (lambda: model.predict(several, xt=BATCH.xt[:1]), "^xt must hold as many tasks"),
        (lambda: model.predict(several), "^xt must be"),
        (lambda: model.predict(several, BATCH.yc, BATCH.xt), "^yc and mask"),
        (lambda: model.predict(several, xt=BATCH.xt, mask=torch.ones(2, 9, dtype=torch.bool)), "^yc and mask"),
        (lambda: copy.deepcopy(model).predict(several, xt=BATCH.xt), "^xc was encoded by another model"),
        (lambda: model.predict(BATCH.xc, xt=BATCH.xt), "^yc must be"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()


def step(model):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(*CONTEXT, BATCH.xt).log_prob(BATCH.yt).mean().backward()
    optimiser.step()


@pytest.mark.parametrize(
    "change", [step, lambda m: m.load_state_dict(m.state_dict()), lambda m: m.float()], ids=["step", "load", "float"]
)
def test_an_encoded_context_is_refused_after_a_change_of_weights(change):
    model = small_model("te-tnp", dx=2, dy=2)
    encoded = model.encode(*CONTEXT)
    change(model)
    for use in (
        lambda: model.predict(encoded, xt=BATCH.xt),
        lambda: model.decode(encoded, BATCH.xt),
        lambda: encoded.update(BATCH.xt, BATCH.yt),
    ):
        with pytest.raises(ValueError, match="has changed since this context was encoded"):
            use()


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
    paper = scale.measure(contexts=(50, 100), targets=20, quiet=True, paper=True)["models"]
    assert len(paper) == 4
    for title, entry in paper.items():
        assert [row["context"] for row in entry["sizes"]] == [100]
        assert f"D_z {entry['options']['dz']}, {entry['options']['layers']} layers" in title
    with pytest.raises(ValueError, match="contexts"):
        scale.measure(contexts=())


def test_bench_scale_in_its_own_process():
    row = scale.in_own_process("TE-PT-TNP, 32 pseudo-tokens", 20, 30, 0)
    assert row["context"] == 20
    with pytest.raises(RuntimeError, match="Measuring nothing"):
        scale.in_own_process("nothing", 20, 30, 0)
