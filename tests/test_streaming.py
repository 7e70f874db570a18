"""Observations added to an encoded context: the same predictions as from all at once, with a radius at less cost."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_batch, small_model
from shiftnp.kernels import Rotary
from shiftnp.models import MODELS
from shiftnp.nn import transformer

LOCAL = {
    "mlp": {},
    "mlp still": {"location_update": False},
    "mlp period": {"period": (2.5, None)},
    "mlp covariate": {"equivariant": (1,)},
    "rotary": {"kernel": "rotary"},
    "rotary still": {"kernel": Rotary(window=False), "location_update": False},
    "rotary period": {"kernel": "rotary", "period": (None, 3.0)},
}


def assert_same(a, b, tolerance=1e-9):
    torch.testing.assert_close(a.mean, b.mean, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(a.stddev, b.stddev, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("variant", LOCAL)
@pytest.mark.parametrize("limit", [0, 1 << 60], ids=["cells", "dense"])
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(0, 14), st.integers(0, 4), st.integers(1, 3)),
    radius=st.sampled_from([0.3, 1.0, 9.0]),
    masked=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    seed=st.integers(0, 1000),
)
def test_points_added_to_a_local_model(variant, limit, sizes, radius, masked, seed):
    (b, n, m, times), g = sizes, torch.Generator().manual_seed(seed)
    before, transformer.DENSE = transformer.DENSE, limit
    try:
        model = small_model("te-tnp", dx=2, dy=2, radius=radius, **LOCAL[variant])
        batch = random_batch(b=b, nc=n + m * times, nt=5, dx=2, dy=2, seed=seed)
        yc = batch.yc.clone()
        if masked[2]:
            yc[torch.rand(yc.shape, generator=g) < 0.3] = math.nan
        mask = torch.rand(yc.shape[:2], generator=g) < 0.6
        parts = [slice(0, n), *(slice(n + i * m, n + (i + 1) * m) for i in range(times))]
        used = [mask[:, part] if masked[i > 0] else None for i, part in enumerate(parts)]
        encoded = model.encode(batch.xc[:, parts[0]], yc[:, parts[0]], used[0])
        for part, some in zip(parts[1:], used[1:], strict=True):
            assert encoded.update(batch.xc[:, part], yc[:, part], some) is encoded
        whole = torch.cat(
            [torch.ones_like(mask[:, p]) if u is None else u for p, u in zip(parts, used, strict=True)], 1
        )
        assert_same(model.decode(encoded, batch.xt), model(batch.xc, yc, batch.xt, whole))
    finally:
        transformer.DENSE = before


@pytest.mark.parametrize("name", MODELS)
def test_points_added_to_any_model(name):
    model, batch = small_model(name), random_batch(nc=7)
    encoded = model.encode(batch.xc[:, :3], batch.yc[:, :3])
    encoded.update(batch.xc[:, 3:5], batch.yc[:, 3:5]).update(batch.xc[:, 5:], batch.yc[:, 5:])
    assert_same(model.decode(encoded, batch.xt), model(batch.xc, batch.yc, batch.xt))
    assert_same(model.decode(encoded, batch.xt), model(encoded.xc, encoded.yc, batch.xt))


@pytest.mark.parametrize("offset", [0.0, 1e7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", ["mlp", "rotary"])
def test_many_points_one_after_the_other(kernel, dtype, offset):
    """Also far from zero, and with weights in float32, where rounding decides about 1e-6."""
    model = small_model("te-tnp", dx=2, kernel=kernel, radius=0.5, dtype=dtype)
    g = torch.Generator().manual_seed(0)
    x = torch.rand(1, 80, 2, generator=g, dtype=torch.float64) * 4 + offset
    y, xt = torch.randn(1, 80, 1, generator=g, dtype=torch.float64), x[:, :30] + 0.1
    with torch.no_grad():
        encoded = model.encode(x[:, :60], y[:, :60])
        for i in range(60, 80):
            encoded.update(x[:, i : i + 1], y[:, i : i + 1])
        a, b = model.decode(encoded, xt), model(x, y, xt)
    assert_same(a, b, 1e-6 if dtype == torch.float64 else 1e-4)


def count_queries(model, monkeypatch):
    """A list that gets the number of tokens of every call of an encoder's block."""
    seen = []
    for block in model.stack.context:
        forward = block.forward
        monkeypatch.setattr(block, "forward", lambda q, k, m, f=forward: seen.append(q.z.shape[1]) or f(q, k, m))
    return seen


def test_with_a_radius_only_the_neighbourhood_is_computed_again(monkeypatch):
    model = small_model("te-tnp", dx=2, radius=1.0, layers=3)
    seen, g = count_queries(model, monkeypatch), torch.Generator().manual_seed(0)
    x = torch.rand(1, 400, 2, generator=g, dtype=torch.float64) * 20  # one point per unit of area
    with torch.no_grad():
        encoded = model.encode(x, x[..., :1].sin())
        assert seen == [400] * 3
        seen.clear()
        encoded.update(x[:, :1] + 0.01, x[:, :1, :1])
    near = (x - x[:, :1] - 0.01).norm(dim=-1)
    assert seen == [int((near <= hops).sum()) + 1 for hops in (1, 2, 3)]
    assert seen[-1] < 40
    seen.clear()
    with torch.no_grad():
        model.predict(encoded, xt=x)  # nothing is encoded again
    assert seen == []


def test_without_a_radius_updates_are_encoded_at_once_when_needed(monkeypatch):
    model, batch = small_model("te-tnp"), random_batch(nc=8)
    seen = count_queries(model, monkeypatch)
    encoded = model.encode(batch.xc[:, :4], batch.yc[:, :4])
    for i in range(4, 8):
        encoded.update(batch.xc[:, i : i + 1], batch.yc[:, i : i + 1])
    layers = len(model.stack.context)
    assert seen == [4] * layers
    model.predict(encoded, xt=batch.xt)
    assert seen == [4] * layers + [8] * layers


def test_gradients_pass_through_updates():
    model, batch = small_model("te-tnp", radius=1.0), random_batch(nc=6)
    results = []
    for split in (6, 4):
        y = batch.yc.clone().requires_grad_()
        encoded = model.encode(batch.xc[:, :split], y[:, :split]).update(batch.xc[:, split:], y[:, split:])
        model.decode(encoded, batch.xt).mean.sum().backward()
        results.append(y.grad)
    torch.testing.assert_close(*results)


BAD = {
    "x tasks": {"x": torch.zeros(1, 1, 1)},
    "x nan": {"x": torch.full((2, 1, 1), math.nan)},
    "x rank": {"x": torch.zeros(2, 1)},
    "y shape": {"y": torch.zeros(2, 2, 1)},
    "y large": {"y": torch.full((2, 1, 1), 1e30)},
    "mask shape": {"mask": torch.ones(2, 2, dtype=torch.bool)},
}


@pytest.mark.parametrize("case", BAD)
def test_bad_updates_are_refused_by_name_and_change_nothing(case):
    model, batch = small_model("te-tnp", radius=1.0), random_batch()
    encoded = model.encode(batch.xc, batch.yc)
    before = model.decode(encoded, batch.xt)
    good = {"x": torch.zeros(2, 1, 1), "y": torch.zeros(2, 1, 1)}
    if case == "x tasks":
        good["y"] = torch.zeros(1, 1, 1)
    with pytest.raises(ValueError, match=rf"^{case.split()[0]} "):
        encoded.update(**{**good, **BAD[case]})
    assert_same(model.decode(encoded, batch.xt), before, 0.0)
    assert encoded.xc.shape == batch.xc.shape
