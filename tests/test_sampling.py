"""Joint samples: one at a time they are those of the definition, and in steps close to that on Gaussian processes."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_batch, small_model
from shiftnp.kernels import Rotary
from shiftnp.likelihoods import draw
from shiftnp.models import NeuralProcess, sampling
from shiftnp.tasks.gp_kernels import squared_exponential

VARIANTS = {
    "te-tnp": ("te-tnp", {}),
    "te-tnp rotary": ("te-tnp", {"kernel": "rotary"}),
    "te-tnp radius": ("te-tnp", {"radius": 0.7}),
    "te-tnp rotary radius": ("te-tnp", {"kernel": "rotary", "radius": 0.7}),
    "te-tnp period search": ("te-tnp", {"kernel": Rotary(period_search=5)}),
    "te-tnp period windows": ("te-tnp", {"kernel": Rotary(period_search=5, period_span=1.0)}),
    "te-pt-tnp": ("te-pt-tnp", {}),
    "tnp mixture": ("tnp", {"likelihood": "mixture"}),
    "convcnp": ("convcnp", {}),
}


def plain(model, xc, yc, xt, n, generator, mask, chunk):
    """Joint samples as their definition says: one target after the other, and the whole context encoded each time."""
    b, nt = xt.shape[:2]
    mask = torch.ones(xc.shape[:2], dtype=torch.bool) if mask is None else mask
    functions = []
    for r in torch.arange(b).repeat(n).split(chunk):
        x, y, m, t = xc[r], yc[r], mask[r], xt[r]
        order = torch.rand(t.shape[:2], generator=generator).argsort(1)
        out = torch.empty(*t.shape[:2], model.dy, dtype=model.dtype)
        for i in order.split(1, dim=1):
            at = t.take_along_dim(i[..., None], 1)
            with torch.no_grad():
                new = draw(model(x, y, at, m), generator)
            out.scatter_(1, i[..., None].expand_as(new), new)
            x, y, m = torch.cat([x, at], 1), torch.cat([y, new], 1), torch.cat([m, torch.ones_like(i).bool()], 1)
        functions.append(out)
    return torch.cat(functions).view(n, b, nt, model.dy)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("n", "b", "chunk"), [(3, 2, 64), (2, 3, 4), (4, 1, 3)])
def test_samples_are_those_of_the_definition(variant, n, b, chunk):
    name, options = VARIANTS[variant]
    model, batch = small_model(name, dx=1, dy=2, **options), random_batch(b=b, nc=6, nt=5, dy=2)
    mask = torch.arange(6).expand(b, -1) < torch.tensor([6, 3, 0])[:b, None]
    for m in (None, mask):
        a, e = (
            function(batch.xc, batch.yc, batch.xt, n=n, generator=torch.Generator().manual_seed(4), mask=m, chunk=chunk)
            for function in (model.sample, functools.partial(plain, model))
        )
        torch.testing.assert_close(a, e, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_as_many_steps_as_targets_add_one_at_a_time(variant):
    """With steps the first draw is the marginal one; with as many as targets, later ones see all before them."""
    name, options = VARIANTS[variant]
    model, batch = small_model(name, **options), random_batch(b=1, nc=4, nt=4)
    g = torch.Generator().manual_seed(0)
    drawn = model.sample(batch.xc, batch.yc, batch.xt, 2, g, steps=9)
    assert drawn.shape == (2, 1, 4, 1)
    g.manual_seed(0)
    order = sampling.spread(batch.xt.repeat(2, 1, 1), model.difference, g)
    x, y = (t.repeat(2, 1, 1) for t in (batch.xc, batch.yc))
    for i in order.split(1, dim=1):
        at = batch.xt.repeat(2, 1, 1).take_along_dim(i[..., None], 1)
        with torch.no_grad():
            new = draw(model(x, y, at), g)
        torch.testing.assert_close(drawn[:, 0].take_along_dim(i[..., None], 1), new, rtol=1e-9, atol=1e-9)
        x, y = torch.cat([x, at], 1), torch.cat([y, new], 1)


def test_one_step_draws_independently():
    model, batch = small_model("te-tnp", kernel="rotary"), random_batch(b=1, nc=4, nt=3)
    drawn = model.sample(batch.xc, batch.yc, batch.xt, 2000, torch.Generator().manual_seed(0), steps=1, chunk=2000)[
        :, 0, :, 0
    ]
    dist = model(batch.xc, batch.yc, batch.xt)
    torch.testing.assert_close(drawn.mean(0), dist.mean[0, :, 0], rtol=0, atol=0.12)
    torch.testing.assert_close(drawn.std(0), dist.stddev[0, :, 0], rtol=0.08, atol=0)
    assert (drawn.T.corrcoef() - torch.eye(3)).abs().max() < 0.09


@pytest.mark.parametrize("steps", [None, 4])
def test_whatever_does_not_change_is_not_computed_again(steps, monkeypatch):
    """A context is encoded once for all functions, and then once a step, also with several chunks."""
    model, batch, rows = small_model("te-tnp", kernel="rotary"), random_batch(b=2, nc=6, nt=7), []
    embed = model.embed_context
    monkeypatch.setattr(model, "embed_context", lambda c: rows.append(len(c.x)) or embed(c))
    model.sample(batch.xc, batch.yc, batch.xt, 5, torch.Generator().manual_seed(0), steps=steps, chunk=5)
    assert rows == [2] + [5] * 2 * ((steps or 7) - 1)


def test_a_radius_spares_most_tokens(monkeypatch):
    model, seen = small_model("te-tnp", radius=0.3), []
    for block in model.stack.context:
        forward = block.forward
        monkeypatch.setattr(block, "forward", lambda q, k, m, f=forward: seen.append(q.z.shape[1]) or f(q, k, m))
    g = torch.Generator().manual_seed(0)
    xc, xt = (torch.rand(1, n, 1, generator=g, dtype=torch.float64) * 30 for n in (150, 6))
    model.sample(xc, xc.sin(), xt, 2, g)
    layers = len(model.stack.context)
    assert seen[: 2 * layers] == [150] * layers + [151] * layers
    assert max(seen[2 * layers :]) < 20


@given(st.integers(0, 300), st.integers(1, 40))
def test_sizes_add_up_and_grow(targets, steps):
    sizes = sampling.sizes(targets, steps)
    assert sum(sizes) == targets
    assert len(sizes) == min(steps, targets)
    assert min(sizes, default=1) >= 1
    assert all(b >= a - 1 for a, b in pairwise(sizes))  # up to rounding
    assert sampling.sizes(targets, targets or 1) == [1] * targets


def test_order_is_farthest_first():
    model, x = small_model("te-tnp"), torch.linspace(0, 8, 9, dtype=torch.float64)[None, :, None].repeat(40, 1, 1)
    order = sampling.spread(x, model.difference, torch.Generator().manual_seed(0))
    assert torch.equal(order.sort(1).values, torch.arange(9).expand(40, -1))
    assert len(order[:, 0].unique()) > 5  # functions start elsewhere
    for row in order:
        known = row[:1]
        for i in row[1:]:
            apart = (torch.arange(9)[:, None] - known).abs().amin(1)
            assert apart[i] == apart.max()
            known = torch.cat([known, i[None]])
    assert sampling.spread(x[:, :0], model.difference).shape == (40, 0)
    same = sampling.spread(torch.zeros(2, 5, 1), model.difference)
    assert torch.equal(same.sort(1).values, torch.arange(5).expand(2, -1))


@pytest.mark.parametrize("name", ["te-tnp", "te-pt-tnp"])
def test_order_knows_periods(name):
    model = small_model(name, dx=2, period=(None, 10.0), equivariant=(0, 1))
    x = torch.tensor([[[0.0, 0.0], [0.0, 9.9], [0.0, 5.0]]], dtype=torch.float64)
    for seed in range(6):
        order = sampling.spread(x, model.difference, torch.Generator().manual_seed(seed))[0].tolist()
        assert sorted(order[:2]) != [0, 1]  # these are neighbours


def test_chunks_are_bounded():
    assert sampling.default_chunk(164) == 64
    assert sampling.default_chunk(10_000) == 3
    assert sampling.default_chunk(10**6) == sampling.default_chunk(0) // 64 == 1


def test_no_targets_and_bad_arguments():
    model, batch = small_model("te-tnp"), random_batch(nt=0)
    for steps in (None, 3):
        assert model.sample(batch.xc, batch.yc, batch.xt, 2, steps=steps).shape == (2, 2, 0, 1)
    for bad in ({"n": 0}, {"steps": 0}, {"chunk": 0}):
        with pytest.raises(ValueError, match=r"^n, steps and chunk must be at least 1"):
            model.sample(batch.xc, batch.yc, batch.xt, **bad)


# --- against the exact order, on Gaussian processes ------------------------------------------------------------------

FLOOR, LENGTH, NOISE = 1e-6, 0.5, 0.2


class KnownGP(NeuralProcess):
    """The exact posterior of a Gaussian process at single targets, as a neural process: what a perfect one predicts."""

    def __init__(self, dx: int = 1, dy: int = 1) -> None:
        super().__init__(dx, dy, 2, 2, "heteroscedastic", 2, FLOOR)

    def embed_context(self, c):
        return c

    def embed_targets(self, memory, xt):
        mean, cov = posterior(memory.x, memory.y, xt)
        var = cov.diagonal(dim1=1, dim2=2)[..., None]
        return torch.cat([mean, (var - FLOOR).expm1().log()], -1)  # the inverse of softplus

    def _decode(self, memory, xt):
        return self.embed_targets(memory, xt)


def posterior(xc, yc, xt):
    """Mean and covariance of observations, noise included."""

    def k(a, b):
        d = a[:, :, None] - b[:, None]
        return squared_exponential(d, torch.full_like(d[..., 0], LENGTH))

    gram = k(xc, xc) + NOISE**2 * torch.eye(xc.shape[1], dtype=torch.float64)
    solved = torch.linalg.solve(gram, k(xc, xt))
    return solved.mT @ yc, k(xt, xt) - k(xt, xc) @ solved + NOISE**2 * torch.eye(xt.shape[1], dtype=torch.float64)


@pytest.fixture(scope="module")
def gp():
    """A process with known posterior, its context and 24 targets."""
    g = torch.Generator().manual_seed(1)
    xc, xt = (torch.rand(1, n, 1, generator=g, dtype=torch.float64) * 4 - 2 for n in (6, 24))
    yc = torch.linalg.cholesky(posterior(xc[:, :0], xc[:, :0], xc)[1]) @ torch.randn(
        1, 6, 1, generator=g, dtype=torch.float64
    )
    return KnownGP().double(), xc, yc, xt


@pytest.mark.parametrize(("steps", "tolerance"), [(None, 0.09), (16, 0.11), (8, 0.3)])
def test_mean_and_covariance_of_joint_samples(gp, steps, tolerance):
    """Standard errors are up to 0.022 for a mean and 0.032 for a covariance, as variances are up to one. In 8 steps the
    covariance of a pair that is drawn in one step is up to 0.23 off."""
    model, xc, yc, xt = gp
    drawn = model.sample(xc, yc, xt, 2000, torch.Generator().manual_seed(0), steps=steps, chunk=2000)[:, 0, :, 0]
    mean, cov = (t[0] for t in posterior(xc, yc, xt))
    assert (drawn.mean(0) - mean[:, 0]).abs().max() < 0.09
    assert (drawn.T.cov() - cov).abs().max() < tolerance
    assert (drawn.T.cov() - cov).abs().mean() < 0.03
    assert (cov - cov.diagonal().diag()).abs().max() > 0.5  # so independent draws would fail


def loss_per_target(gp, order, sizes):
    """Expected log density of joint samples minus that under the order in steps: a Kullback-Leibler divergence.

    For Gaussians it is known: entropies of single targets given the steps before, minus the joint entropy.
    """
    _, xc, yc, xt = gp
    cov, known, total = posterior(xc, yc, xt)[1][0], [], -0.5 * torch.logdet(posterior(xc, yc, xt)[1][0])
    for step in order.split(sizes):
        given = cov[step][:, known] @ torch.linalg.solve(cov[known][:, known], cov[known][:, step])
        total = total + 0.5 * (cov[step][:, step] - given).diagonal().log().sum()
        known = [*known, *step.tolist()]
    return float(total) / len(order)


def test_log_likelihood_of_joint_samples(gp):
    model, _, _, xt = gp
    spread = [sampling.spread(xt, model.difference, torch.Generator().manual_seed(i))[0] for i in range(5)]
    random = [torch.randperm(24, generator=torch.Generator().manual_seed(i)) for i in range(5)]

    def loss(orders, sizes):
        return sum(loss_per_target(gp, order, sizes) for order in orders) / 5

    assert loss(spread, [1] * 24) == pytest.approx(0, abs=1e-9)
    found = {steps: loss(spread, sampling.sizes(24, steps)) for steps in (1, 4, 8, 16)}
    assert found[1] > 0.3  # nats: what independent draws lose
    assert found[8] < 0.02
    assert found[16] < 0.005
    assert found[1] > found[4] > found[8] > found[16]
    assert loss(random, sampling.sizes(24, 8)) > 2 * found[8]  # targets next to each other in one step
