"""Neighbours from cells against the dense mask: the same pairs, the same predictions, the same gradients."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_batch, small_model
from shiftnp.attention import local
from shiftnp.attention.local import CellList
from shiftnp.attention.mask import BlockMask
from shiftnp.batch import Batch
from shiftnp.geometry import Geometry, Positions
from shiftnp.kernels import rotary
from shiftnp.kernels.mlp import PairwiseMLPAttention
from shiftnp.nn import transformer
from shiftnp.nn.block import Block


def as_mask(near, b, nk):
    """A neighbourhood as the dense mask; every pair may be in one block only."""
    nq = near.row.shape[1]
    mask = torch.zeros(b * nq, b * nk, dtype=torch.int)
    for group in near.groups:
        i, j = (t.expand_as(group.pairs) for t in (group.q[:, :, None], group.k[:, None]))
        mask.index_put_((i[group.pairs], j[group.pairs]), torch.tensor(1, dtype=torch.int), accumulate=True)
    assert mask.max() <= 1
    return torch.stack([m[:, i * nk : (i + 1) * nk] for i, m in enumerate(mask.bool().split(nq))]), mask.bool().sum()


def dense_mask(geometry, at_q, at_k, mask_q, mask_k):
    near = geometry.within_reach(geometry.displacement(at_q, at_k, torch.float64))
    if mask_k is not None:
        near = near & mask_k[:, None]
    return near if mask_q is None else near & mask_q[:, :, None]


def assert_same_pairs(geometry, at_q, at_k, mask_q=None, mask_k=None):
    near = CellList(geometry, at_k, mask_k).neighbours(at_q, mask_q, torch.float64)
    mask, total = as_mask(near, len(at_k.x), at_k.x.shape[1])
    expected = dense_mask(geometry, at_q, at_k, mask_q, mask_k)
    assert torch.equal(mask, expected)
    assert total == expected.sum()  # none between tasks
    assert torch.equal(near.has_keys, expected.any(-1, keepdim=True))
    return near


@given(
    dx=st.integers(1, 5),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 80), st.integers(1, 80)),
    radius=st.sampled_from([0.03, 0.2, 0.5, 1, 3.0]),
    periods=st.lists(st.sampled_from([None, None, 1.0, 1.7, 2, 30.0]), min_size=5, max_size=5),
    form=st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.0, 1e7, -1e4]), st.integers(0, 100)),
)
def test_cells_find_the_pairs_of_the_dense_mask(dx, sizes, radius, periods, form):
    (b, nq, nk), (masked, moving, offset, seed) = sizes, form
    g = torch.Generator().manual_seed(seed)
    geometry = Geometry.of(dx, periods[:dx], radius)

    def places(n):
        x = torch.randn(b, n, dx, generator=g, dtype=torch.float64) + offset
        return Positions(x, torch.randn(b, n, dx, generator=g, dtype=torch.float64) if moving else None)

    masks = (torch.rand(b, n, generator=g) < 0.7 if masked else None for n in (nq, nk))
    assert_same_pairs(geometry, places(nq), places(nk), *masks)


@pytest.mark.parametrize("offset", [0.0, 1e7, 1e7 + 1 / 3])
@pytest.mark.parametrize("period", [None, (3.6, None), (0.6, 1.2), (0.3, None), (3.6, 0.5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_at_exactly_the_radius(offset, period, dtype):
    lattice = torch.cartesian_prod(*[torch.arange(12, dtype=torch.float64) * 0.3] * 2)[None]
    if dtype == torch.float32:
        offset = min(offset, 4.0)
    x = (lattice + offset).to(dtype)
    near = assert_same_pairs(Geometry.of(2, period, 0.3), Positions(x), Positions(x))
    if period is None and dtype == torch.float64:
        assert sum(int(group.pairs.sum()) for group in near.groups) == 144 + 4 * 11 * 12


def test_crowds_and_outliers():
    """Many points in one place, and places so far away that cells cannot be told apart any more."""
    x = torch.zeros(1, 300, 2, dtype=torch.float64)
    x[0, 200:] = torch.rand(100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_same_pairs(Geometry.of(2, None, 0.1), Positions(x), Positions(x))
    x[0, 250:252], x[0, 252] = 1e25, -1e25
    assert_same_pairs(Geometry.of(2, None, 0.1), Positions(x), Positions(x))


def test_nobody_there():
    x, geometry = torch.zeros(2, 5, 2), Geometry.of(2, None, 1.0)
    nobody, some = torch.zeros(2, 5, dtype=torch.bool), torch.ones(2, 5, dtype=torch.bool)
    for mask_q, mask_k in ((nobody, some), (some, nobody), (nobody, nobody)):
        near = assert_same_pairs(geometry, Positions(x), Positions(x), mask_q, mask_k)
        assert not near.has_keys.any()
    assert_same_pairs(geometry, Positions(x), Positions(x + 100))
    assert CellList(geometry, Positions(x), nobody).mean_neighbours == 0
    assert CellList(geometry, Positions(x[:, :0])).neighbours(Positions(x), None, torch.float32).groups == []
    assert CellList(geometry, Positions(x)).neighbours(Positions(x[:, :0]), None, torch.float32).has_keys.shape == (
        2,
        0,
        1,
    )


def test_work_grows_linearly():
    """With ten times the points in ten times the space, blocks hold about ten times the pairs, and not many in vain."""
    work = []
    for n in (1_000, 10_000):
        x = torch.rand(1, n, 2, generator=torch.Generator().manual_seed(0)) * math.sqrt(n)
        near = CellList(Geometry.of(2, None, math.sqrt(16 / math.pi)), Positions(x)).neighbours(
            Positions(x), None, torch.float32
        )
        work.append(sum(group.pairs.numel() for group in near.groups) / n)
        assert work[-1] < 5 * sum(int(group.pairs.sum()) for group in near.groups) / n
    assert work[1] < 1.2 * work[0]


# --- models --------------------------------------------------------------------------------------------------------

MODELS = {
    "te-tnp": ("te-tnp", {}),
    "te-tnp still": ("te-tnp", {"location_update": False}),
    "te-tnp period": ("te-tnp", {"period": (2.5, None)}),
    "te-tnp covariate": ("te-tnp", {"equivariant": (1,)}),
    "te-tnp rotary": ("te-tnp", {"kernel": "rotary"}),
    "te-pt-tnp": ("te-pt-tnp", {}),
    "te-pt-tnp perceiver": ("te-pt-tnp", {"style": "perceiver"}),
}
every_model = pytest.mark.parametrize("variant", MODELS)


def make(variant, **options):
    name, more = MODELS[variant]
    return small_model(name, dx=2, dy=1, radius=0.6, **more, **options)


@pytest.fixture(params=["tiled", "reference"])
def backend(request, monkeypatch):
    monkeypatch.setattr(PairwiseMLPAttention, "backend", request.param)


@pytest.fixture
def both(monkeypatch):
    """Runs something with the dense mask and with cells."""

    def run(compute):
        results = []
        for limit in (1 << 60, 0):
            monkeypatch.setattr(transformer, "DENSE", limit)
            results.append(compute())
        return results

    return run


@every_model
@pytest.mark.usefixtures("backend")
def test_predictions_and_gradients_are_those_of_the_dense_mask(variant, both):
    """Tasks of different sizes, one of them empty, a point alone, padding of any kind, inputs with gradients."""
    model = make(variant)
    tasks = [random_batch(b=1, nc=n, nt=5 + n % 7, dx=2, seed=n) for n in (40, 0, 1, 23)]
    batch = Batch.collate(tasks)
    batch.xt[0, 0] = 50.0  # sees nobody
    xc, xt = batch.xc.requires_grad_(), batch.xt.requires_grad_()

    def compute():
        dist = model(xc, batch.yc, xt, batch.mask_c)
        loss = (dist.mean.sin() + dist.stddev).sum()
        return dist.mean, dist.stddev, *torch.autograd.grad(loss, [*model.parameters(), xc, xt], materialize_grads=True)

    for a, b in zip(*both(compute), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@every_model
def test_large_coordinates_lose_nothing(variant, both):
    model, batch = make(variant), random_batch(b=2, nc=60, nt=20, dx=2)
    shift = torch.tensor([1e7, 0.0 if "covariate" in variant else 1e7][:: -1 if "covariate" in variant else 1])
    moved = batch.shift(shift)
    here, there = (both(lambda d=d: model(d.xc, d.yc, d.xt).mean) for d in (batch, moved))
    for mean in (here[1], *there):
        torch.testing.assert_close(mean, here[0], rtol=1e-9, atol=1e-9)


def test_float32_and_autocast(both):
    model, batch = make("te-tnp", dtype=torch.float32), random_batch(b=2, nc=60, nt=20, dx=2)
    dense, near = both(lambda: model(batch.xc, batch.yc, batch.xt).mean)
    torch.testing.assert_close(near, dense, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        dense, near = both(lambda: model(batch.xc, batch.yc, batch.xt).mean)
    torch.testing.assert_close(near, dense, rtol=0.1, atol=0.1)


def test_large_problems_take_the_cells(monkeypatch):
    """And targets find the context through the cells that were made when it was encoded."""
    model, batch = make("te-tnp", dtype=torch.float32), random_batch(b=1, nc=400, nt=300, dx=2)
    made = []
    monkeypatch.setattr(transformer, "CellList", lambda *args: made.append(local.CellList(*args)) or made[-1])
    encoded = model.encode(batch.xc, batch.yc)
    assert isinstance(model.stack.mask(model.tokens.targets(batch.xt), encoded.memory.start), BlockMask)
    made.clear()
    model.decode(encoded, batch.xt)
    assert not made


@pytest.mark.parametrize("kernel", ["mlp", "rotary"])
def test_every_parameter_gets_a_gradient_where_nobody_has_neighbours(kernel):
    """Training in several processes stops at parameters whose gradient is None."""
    model, batch = make("te-tnp", kernel=kernel), random_batch(b=1, nc=200, nt=200, dx=2)
    xc = torch.arange(200, dtype=torch.float64)[None, :, None].expand(-1, -1, 2) * 10
    model(xc, batch.yc, xc + 5).log_prob(batch.yt).mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


PARTS = {
    **MODELS,
    "te-pt-tnp rotary": ("te-pt-tnp", {"kernel": "rotary"}),
    "tnp": ("tnp", {}),
    "pt-tnp": ("pt-tnp", {}),
}


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("radius", [None, 0.6])
@pytest.mark.parametrize("variant", PARTS)
def test_without_gradients_queries_come_in_parts_with_the_same_predictions(monkeypatch, variant, radius, tasks):
    name, options = PARTS[variant]
    options = {**options, "radius": radius} if name.startswith("te") else options
    model, batch = small_model(name, dx=2, **options), random_batch(b=tasks, nc=90, nt=150, dx=2)
    batch.xt[0, 3] = 50.0  # sees nobody
    mask = torch.arange(90) < torch.tensor([[80], [90]])[:tasks]
    with_gradients = model(batch.xc, batch.yc, batch.xt, mask)
    monkeypatch.setattr(transformer, "MOST_QUERIES", 32)
    monkeypatch.setattr(transformer, "DENSE", 0)
    monkeypatch.setattr(rotary, "KEYS_AT_ONCE", 16)
    sizes, forward = [], Block.forward
    monkeypatch.setattr(Block, "forward", lambda self, q, k, m: sizes.append(q.z.shape[1]) or forward(self, q, k, m))
    with torch.no_grad():
        in_parts = model(batch.xc, batch.yc, batch.xt, mask)
    torch.testing.assert_close(in_parts.mean, with_gradients.mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(in_parts.stddev, with_gradients.stddev, rtol=1e-10, atol=1e-10)
    assert max(sizes) == (150 if name.startswith("te") and radius is not None and tasks > 1 else 32)
