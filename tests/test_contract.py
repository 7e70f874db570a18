"""Every promise of the README, for every model of MODELS and for the variants that an option makes different."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_batch, small_model
from shiftnp import likelihoods
from shiftnp.batch import Batch
from shiftnp.kernels import KERNELS, Rotary
from shiftnp.models import MODELS

VARIANTS = {name: (name, {}) for name in MODELS} | {
    "pt-tnp perceiver": ("pt-tnp", {"style": "perceiver"}),
    "te-tnp still": ("te-tnp", {"location_update": False}),
    "te-tnp encoded target": ("te-tnp", {"target_token": "encoded"}),
    "te-tnp radius": ("te-tnp", {"radius": 1.0}),
    "te-tnp period": ("te-tnp", {"period": 16.0}),
    "te-tnp rotary": ("te-tnp", {"kernel": "rotary"}),
    "te-tnp rotary period": ("te-tnp", {"kernel": "rotary", "period": 16.0}),
    "te-tnp rotary still": ("te-tnp", {"kernel": Rotary(window=False), "location_update": False}),
    "te-tnp period search": ("te-tnp", {"kernel": Rotary(period_search=5)}),
    "te-tnp period search period": ("te-tnp", {"kernel": Rotary(period_search=5), "period": 16.0}),
    "te-pt-tnp rotary": ("te-pt-tnp", {"kernel": "rotary"}),
    "te-pt-tnp period search": ("te-pt-tnp", {"kernel": Rotary(period_search=5)}),
    "te-pt-tnp perceiver": ("te-pt-tnp", {"style": "perceiver"}),
    "te-pt-tnp ablation": ("te-pt-tnp", {"initialiser": "mean", "location_update": False}),
    "te-pt-tnp radius": ("te-pt-tnp", {"radius": 3.0}),
    "te-pt-tnp period": ("te-pt-tnp", {"period": 16.0}),
    "convcnp cnn": ("convcnp", {"net": "cnn"}),
    "convcnp on grid": ("convcnp", {"on_grid": True, "points_per_unit": 4}),
    "tnp mixture": ("tnp", {"likelihood": "mixture"}),
    "te-tnp homoscedastic": ("te-tnp", {"likelihood": "homoscedastic"}),
}
EQUIVARIANT = [v for v, (name, _) in VARIANTS.items() if MODELS[name].is_equivariant]
PLAIN = [v for v in VARIANTS if v not in EQUIVARIANT]

every_model = pytest.mark.parametrize("variant", VARIANTS)
sizes = st.fixed_dictionaries(
    {
        "b": st.integers(1, 3),
        "nc": st.integers(0, 7),
        "nt": st.integers(1, 6),
        "dx": st.integers(1, 3),
        "dy": st.integers(1, 2),
        "seed": st.integers(0, 1000),
    }
)


@cache
def make(variant, dx=1, dy=1, dtype=torch.float64):
    """One model of each kind for all tests, none of which changes it."""
    name, options = VARIANTS[variant]
    return small_model(name, dx, dy, dtype=dtype, **options)


def build(variant, size, dtype=torch.float64):
    if variant.startswith("convcnp"):
        size["dx"] = min(size["dx"], 2)
    return make(variant, size["dx"], size["dy"], dtype)


def assert_same(a, b, tolerance=1e-9):
    torch.testing.assert_close(a.mean, b.mean, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(a.stddev, b.stddev, rtol=tolerance, atol=tolerance)


def is_finite(dist):
    return bool(dist.mean.isfinite().all() and dist.stddev.isfinite().all() and (dist.stddev > 0).all())


# --- shapes and sets -----------------------------------------------------------------------------------------------


@every_model
@given(sizes)
def test_shapes(variant, size):
    model = build(variant, size)
    batch = random_batch(**size)
    dist = model(batch.xc, batch.yc, batch.xt)
    assert dist.batch_shape == (size["b"], size["nt"])
    assert dist.event_shape == (size["dy"],)
    assert dist.log_prob(batch.yt).shape == (size["b"], size["nt"])
    assert is_finite(dist)


@every_model
@given(sizes, st.randoms(use_true_random=False))
def test_permutations(variant, size, random):
    """The order of the context changes nothing; that of the targets permutes the answer."""
    model = build(variant, size)
    batch = random_batch(**size)
    pc, pt = (random.sample(range(n), n) for n in (size["nc"], size["nt"]))
    dist = model(batch.xc, batch.yc, batch.xt)
    other = model(batch.xc[:, pc], batch.yc[:, pc], batch.xt[:, pt])
    torch.testing.assert_close(other.mean, dist.mean[:, pt])
    torch.testing.assert_close(other.stddev, dist.stddev[:, pt])


@every_model
@given(sizes)
def test_targets_do_not_see_each_other(variant, size):
    model = build(variant, size)
    batch = random_batch(**size)
    far = batch.xt.clone()
    far[:, 1:] += 50.0
    alone = model(batch.xc, batch.yc, batch.xt[:, :1])
    for others in (batch.xt, far):
        together = model(batch.xc, batch.yc, others)
        torch.testing.assert_close(together.mean[:, :1], alone.mean)
        torch.testing.assert_close(together.stddev[:, :1], alone.stddev)


@every_model
def test_no_targets(variant):
    batch, model = random_batch(nt=0), make(variant)
    assert model(batch.xc, batch.yc, batch.xt).mean.shape == (2, 0, 1)


@every_model
def test_encoding_once_is_enough(variant):
    batch, model = random_batch(), make(variant)
    memory = model.encode(batch.xc, batch.yc)
    whole = model(batch.xc, batch.yc, batch.xt)
    for i in range(batch.xt.shape[1]):
        one = model.decode(memory, batch.xt[:, i : i + 1])
        torch.testing.assert_close(one.mean, whole.mean[:, i : i + 1])


# --- translation equivariance --------------------------------------------------------------------------------------

shifts = st.lists(st.integers(-(10**7), 10**7), min_size=3, max_size=3)


@pytest.mark.parametrize("variant", EQUIVARIANT)
@given(sizes, shifts)
def test_shift_changes_nothing_in_float64(variant, size, shift):
    model = build(variant, size)
    batch = random_batch(**size)
    moved = batch.shift(torch.tensor(shift[: size["dx"]]))
    tolerance = 1e-6 if variant.startswith("convcnp") else 1e-9
    assert_same(model(batch.xc, batch.yc, batch.xt), model(moved.xc, moved.yc, moved.xt), tolerance)


@pytest.mark.parametrize("variant", EQUIVARIANT)
@given(sizes, shifts)
def test_shift_changes_nothing_with_float32_weights(variant, size, shift):
    model = build(variant, size, dtype=torch.float32)
    batch = random_batch(**size)
    moved = batch.shift(torch.tensor(shift[: size["dx"]]))
    tolerance = 1e-4 if variant.startswith("convcnp") else 1e-5
    assert_same(model(batch.xc, batch.yc, batch.xt), model(moved.xc, moved.yc, moved.xt), tolerance)


@pytest.mark.parametrize("variant", EQUIVARIANT)
def test_shift_changes_little_where_inputs_are_rounded(variant):
    """Inputs that a shift rounds: the answer moves no more than that rounding moves the points."""
    model, g = make(variant, 2), torch.Generator().manual_seed(0)
    xc, xt = (torch.rand(1, n, 2, generator=g, dtype=torch.float64) for n in (8, 5))
    yc = torch.randn(1, 8, 1, generator=g, dtype=torch.float64)
    if "on grid" in variant:
        xc, xt = ((x * 4).round() / 4 for x in (xc, xt))
    shift = torch.tensor([1234567.891, -7654321.123], dtype=torch.float64)
    assert_same(model(xc, yc, xt), model(xc + shift, yc, xt + shift), 1e-7)
    single = (t.float() for t in (xc, yc, xt))  # exact in float32: multiples of 1/64 moved by 2^17
    xc, yc, xt = ((t * 64).round() / 64 for t in single)
    model = make(variant, 2, dtype=torch.float32)
    assert_same(model(xc, yc, xt), model(xc + 2**17, yc, xt + 2**17), 1e-4)


@pytest.mark.parametrize("options", [{"radius": 0.3}, {"period": 1.2}, {"radius": 0.3, "period": 1.2}])
@pytest.mark.parametrize("shift", [0.1, 1.0, 33.3, 123456.7])
def test_shift_changes_nothing_on_a_lattice(options, shift):
    """Where many distances equal the radius, or half the period, rounding must not decide anything."""
    model = small_model("te-tnp", **options)
    x = torch.arange(12, dtype=torch.float64)[None, :, None] * 0.1
    y = torch.sin(3 * x)
    a, b = model(x, y, x), model(x + shift, y, x + shift)
    assert (a.mean - b.mean).abs().max() < 1e-6 * a.mean.std()


@pytest.mark.parametrize("variant", PLAIN)
def test_plain_models_are_not_equivariant(variant):
    batch, model = random_batch(), make(variant)
    moved = batch.shift(3.0)
    a, b = model(batch.xc, batch.yc, batch.xt), model(moved.xc, moved.yc, moved.xt)
    assert (a.mean - b.mean).abs().max() > 1e-3


@pytest.mark.parametrize("variant", EQUIVARIANT)
def test_equivariant_models_use_the_places(variant):
    """Not equivariant by ignoring x: moving the targets alone changes the answer."""
    batch, model = random_batch(), make(variant)
    a, b = model(batch.xc, batch.yc, batch.xt), model(batch.xc, batch.yc, batch.xt + 0.5)
    assert (a.mean - b.mean).abs().max() > 1e-5


@pytest.mark.parametrize("name", ["te-tnp", "te-pt-tnp"])
@pytest.mark.parametrize("target_token", ["learned", "encoded"])
def test_equivariant_in_some_inputs_only(name, target_token):
    model = small_model(name, dx=3, dy=1, equivariant=(0, 2), target_token=target_token)
    batch = random_batch(dx=3)
    dist = model(batch.xc, batch.yc, batch.xt)
    place = batch.shift([1000.0, 0.0, -7.0])
    assert_same(dist, model(place.xc, place.yc, place.xt))
    covariate = torch.tensor([0.0, 1.0, 0.0])
    for xc, xt in ((batch.xc + covariate, batch.xt), (batch.xc, batch.xt + covariate)):  # both sides see it
        assert (dist.mean - model(xc, batch.yc, xt).mean).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("te-tnp", "mlp"),
        ("te-pt-tnp", "mlp"),
        ("te-tnp", "rotary"),
        ("te-pt-tnp", "rotary"),
        ("te-tnp", Rotary(period_search=4)),
    ],
)
@given(st.lists(st.integers(-3, 3), min_size=6, max_size=6), st.floats(-500, 500))
def test_periods(name, kernel, turns, shift):
    """A longitude may be written in many ways, and the seam may lie anywhere."""
    model = small_model(name, dx=2, period=(360.0, None), kernel=kernel)
    batch = random_batch(dx=2, b=1).shift([shift, 0.0])
    dist = model(batch.xc, batch.yc, batch.xt)
    xc, xt = batch.xc.clone(), batch.xt.clone()
    xc[0, :, 0] += 360.0 * torch.tensor(turns)
    xt[0, :, 0] -= 360.0 * turns[0]
    assert_same(dist, model(xc, batch.yc, xt), 1e-8)
    shorter = small_model(name, dx=2, period=(3.0, None), kernel=kernel)  # and the period matters
    assert (dist.mean - shorter(batch.xc, batch.yc, batch.xt).mean).abs().max() > 1e-6


# --- what is not there ---------------------------------------------------------------------------------------------


@every_model
@given(sizes, st.lists(st.booleans(), min_size=7, max_size=7))
def test_masked_points_are_dropped_points(variant, size, keep):
    model = build(variant, size)
    batch = random_batch(**size)
    keep = torch.tensor(keep[: size["nc"]], dtype=torch.bool)
    xc, yc = batch.xc.clone(), batch.yc.clone()
    xc[:, ~keep], yc[:, ~keep] = math.nan, math.inf  # whatever padding holds
    masked = model(xc, yc, batch.xt, keep.expand(size["b"], -1))
    dropped = model(batch.xc[:, keep], batch.yc[:, keep], batch.xt)
    assert_same(masked, dropped)


@every_model
@given(st.lists(st.integers(0, 6), min_size=2, max_size=4), st.integers(0, 100))
def test_ragged_batches(variant, counts, seed):
    """Each task of a ragged batch, empty ones too, gets the prediction that it gets alone."""
    model = make(variant, 2, 1)
    tasks = [random_batch(b=1, nc=n, nt=1 + n % 3, dx=2, seed=seed + i) for i, n in enumerate(counts)]
    batch = Batch.collate(tasks)
    together = model(batch.xc, batch.yc, batch.xt, batch.mask_c)
    for i, task in enumerate(tasks):
        alone = model(task.xc, task.yc, task.xt)
        torch.testing.assert_close(together.mean[i : i + 1, : task.xt.shape[1]], alone.mean)
        torch.testing.assert_close(together.stddev[i : i + 1, : task.xt.shape[1]], alone.stddev)


@every_model
def test_empty_context_gives_the_prior(variant):
    model = make(variant, 1, 2)
    batch = random_batch(b=2, nc=0, dy=2)
    prior = model(batch.xc, batch.yc, batch.xt)
    assert is_finite(prior)
    if variant in EQUIVARIANT:  # no place is known, so none is special
        torch.testing.assert_close(prior.mean, prior.mean[:1, :1].expand_as(prior.mean), rtol=1e-12, atol=1e-12)
        assert_same(prior, model(batch.xc, batch.yc, batch.xt + 1e6), 0.0)
    hidden = random_batch(b=2, nc=3, dy=2)
    assert_same(prior, model(hidden.xc, hidden.yc, batch.xt, torch.zeros(2, 3, dtype=torch.bool)))
    assert_same(prior, model(hidden.xc, torch.full_like(hidden.yc, math.nan), batch.xt))


@every_model
def test_one_context_point(variant):
    batch, model = random_batch(nc=1), make(variant)
    assert is_finite(model(batch.xc, batch.yc, batch.xt))


@every_model
def test_nan_means_not_observed(variant):
    model = make(variant, 1, 2)
    batch = random_batch(dy=2)
    yc = batch.yc.clone()
    yc[:, 2] = math.nan
    rest = [i for i in range(6) if i != 2]
    assert_same(model(batch.xc, yc, batch.xt), model(batch.xc[:, rest], batch.yc[:, rest], batch.xt))
    # One channel of a point: the other still counts, and "not observed" is not "observed zero".
    yc = batch.yc.clone()
    yc[:, 2, 0] = math.nan
    partly = model(batch.xc, yc, batch.xt)
    assert is_finite(partly)
    for other in (yc.nan_to_num(0.0), yc.where(torch.arange(6)[:, None] != 2, math.nan)):
        assert (partly.mean - model(batch.xc, other, batch.xt).mean).abs().max() > 1e-6


@pytest.mark.parametrize("location_update", [True, False])
@pytest.mark.parametrize("layers", [1, 3])
def test_receptive_field(layers, location_update):
    """Beyond the stated field a context point has exactly no influence; a chain of points carries it up to the edge."""
    radius = 1.0
    model = small_model("te-tnp", radius=radius, layers=layers, location_update=location_update)
    field = model.receptive_field
    assert field == pytest.approx((layers + 1) * radius, rel=1e-5)
    chain = torch.arange(layers + 2, dtype=torch.float64)[None, :, None] * 0.99  # the last one is beyond by a step
    xc = torch.cat([chain, chain.new_tensor([[[field + 1.0]]])], 1)
    yc = torch.linspace(-1, 1, xc.shape[1], dtype=torch.float64)[None, :, None]
    xt = chain.new_zeros(1, 1, 1)
    dist = model(xc, yc, xt)
    value, place = yc.clone(), xc.clone()
    value[:, -1], place[:, -1] = 100.0, 1e6
    for other in (model(xc, value, xt), model(place, yc, xt)):
        assert torch.equal(dist.mean, other.mean)
        assert torch.equal(dist.stddev, other.stddev)
    assert_same(dist, model(xc[:, :-1], yc[:, :-1], xt), 1e-14)
    edge = yc.clone()
    edge[:, layers + 1] = 3.0
    assert not torch.equal(dist.mean, model(xc, edge, xt).mean)


def test_radius_period_and_covariates_together():
    model = small_model("te-tnp", dx=3, radius=10, period=(360, None, None), equivariant=(0, 1), layers=1)
    assert model.receptive_field == pytest.approx(20, rel=1e-5)
    batch = random_batch(b=1, dx=3)
    xc, xt = (x * torch.tensor([3.0, 3.0, 1.0]) for x in (batch.xc, batch.xt))
    dist = model(xc, batch.yc, xt)
    moved = torch.tensor([500.0, -3.0, 0.0])
    assert_same(dist, model(xc + moved, batch.yc, xt + moved))
    far = torch.cat([xc, xc[:, :1] + torch.tensor([180.0, 0.0, 0.0])], 1)  # 180 degrees away, either way
    assert_same(dist, model(far, torch.cat([batch.yc, batch.yc[:, :1]], 1), xt), 1e-14)
    near = torch.cat([xc, xc[:, :1] + torch.tensor([355.0, 0.0, 0.0])], 1)  # five degrees away, the other way round
    assert (dist.mean - model(near, torch.cat([batch.yc, batch.yc[:, :1]], 1), xt).mean).abs().max() > 1e-6


def test_covariates_far_from_zero_are_refused():
    """Predictions are not equivariant in them: Unix seconds as a covariate would give numbers without meaning."""
    model, batch = small_model("te-tnp", dx=2, equivariant=(0,)), random_batch(dx=2)
    far = batch.shift([1e9, 0.0])
    assert_same(model(batch.xc, batch.yc, batch.xt), model(far.xc, far.yc, far.xt), 1e-5)
    seconds = batch.shift([0.0, 1.7e9])
    with pytest.raises(ValueError, match=r"^xc holds 1.7e.09 .* not translation equivariant"):
        model(seconds.xc, seconds.yc, seconds.xt)


def test_periods_follow_the_order_of_equivariant():
    """One entry per input, or one per equivariant input in the order they are named."""
    batch = random_batch(dx=3)
    by_input = small_model("te-tnp", dx=3, equivariant=(2, 0), period=(None, None, 5.0))
    by_place = small_model("te-tnp", dx=3, equivariant=(2, 0), period=(5.0, None))
    a, b = (m(batch.xc, batch.yc, batch.xt) for m in (by_input, by_place))
    assert_same(a, b, 0.0)
    turn = torch.tensor([0.0, 0.0, 5.0])
    assert_same(a, by_input(batch.xc, batch.yc, batch.xt + turn))


def test_receptive_field_is_infinite_without_radius():
    assert all(small_model(name).receptive_field == math.inf for name in MODELS)
    assert small_model("te-pt-tnp", radius=1.0).receptive_field == math.inf  # pseudo-locations see the whole context


# --- learning and keeping ------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("dx", [1, 2])
def test_every_parameter_gets_a_gradient(variant, dx):
    model = make(variant, dx, 2)
    batch = Batch.collate([random_batch(b=2, nc=n, dx=dx, dy=2, seed=n) for n in (0, 4, 7)])
    dist = model(batch.xc, batch.yc, batch.xt, batch.mask_c)
    model.zero_grad()
    dist.log_prob(batch.yt).sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, f"{name} gets no gradient"
        assert p.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert p.grad.abs().max() > 1e-12, f"{name} has a gradient of zero"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("heads", [1, 2])
def test_every_parameter_gets_a_gradient_at_the_smallest(name, heads):
    options = {"layers": 1} | ({"heads": heads} if "tnp" in name else {})
    model = small_model(name, dx=2, **options) if name != "cnp" and name != "rcnp" else small_model(name, dx=2)
    batch = Batch.collate([random_batch(nc=n, dx=2, seed=n) for n in (0, 5)])
    model(batch.xc, batch.yc, batch.xt, batch.mask_c).log_prob(batch.yt).sum().backward()
    assert all(p.grad.abs().max() > 1e-12 for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_no_gradient_is_missing_without_an_empty_context(name):
    """Training in several processes stops at parameters whose gradient is None."""
    model, batch = small_model(name), random_batch()
    model(batch.xc, batch.yc, batch.xt).log_prob(batch.yt).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@every_model
def test_precisions(variant):
    batch = random_batch(nc=12)
    exact = make(variant)(batch.xc, batch.yc, batch.xt)
    model = make(variant, dtype=torch.float32)
    single = batch.to(dtype=torch.float32)
    dist = model(single.xc, single.yc, single.xt)
    assert dist.mean.dtype == torch.float32
    torch.testing.assert_close(dist.mean, exact.mean.float(), rtol=1e-3, atol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(single.xc, single.yc, single.xt)
        loss = -rough.log_prob(single.yt).mean()
    model.zero_grad()
    loss.backward()
    assert rough.mean.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(rough.mean, dist.mean, rtol=0.1, atol=0.1)


@every_model
def test_state_dict_and_config_rebuild_the_model(variant):
    model, batch = make(variant, 2), random_batch(dx=2)
    other = MODELS[VARIANTS[variant][0]](**model.config).double()
    other.load_state_dict(model.state_dict())
    assert_same(model(batch.xc, batch.yc, batch.xt), other(batch.xc, batch.yc, batch.xt), 0.0)


@every_model
def test_repr_is_one_line_that_could_be_run(variant):
    model = make(variant)
    text = repr(model)
    assert "\n" not in text
    assert text.startswith(f"{type(model).__name__}(dx=1, dy=1")
    names = {cls.__name__: cls for cls in (type(model), *KERNELS.values())}
    rebuilt = eval(text, names)
    assert repr(rebuilt) == text


@every_model
def test_prediction_leaves_global_random_state_alone(variant):
    batch, model = random_batch(nt=2), make(variant)
    before = torch.random.get_rng_state()
    model(batch.xc, batch.yc, batch.xt)
    model.sample(batch.xc, batch.yc, batch.xt, 1, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.random.get_rng_state())


# --- joint samples -------------------------------------------------------------------------------------------------


@every_model
@given(
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([None, 1, 2, 9]),
    st.sampled_from([1, 2, 64]),
    st.booleans(),
)
def test_samples(variant, nc, nt, n, steps, chunk, masked):
    model = make(variant, 1, 2)
    batch = random_batch(nc=nc, nt=nt, dy=2)
    mask = torch.ones(2, nc, dtype=torch.bool).index_fill_(1, torch.arange(min(nc, 1)), False) if masked else None

    def draw():
        g = torch.Generator().manual_seed(5)
        return model.sample(batch.xc, batch.yc, batch.xt, n, g, mask=mask, steps=steps, chunk=chunk)

    functions = draw()
    assert functions.shape == (n, 2, nt, 2)
    assert functions.isfinite().all()
    assert torch.equal(functions, draw())


# --- bad input -----------------------------------------------------------------------------------------------------

GOOD = random_batch(b=2, nc=4, nt=3, dx=2, dy=1)
BAD = {
    "xc rank": ("xc", {"xc": GOOD.xc[0]}),
    "xc dx": ("xc", {"xc": GOOD.xc[..., :1]}),
    "xc integers": ("xc", {"xc": GOOD.xc.long()}),
    "xc nan": ("xc", {"xc": GOOD.xc.where(GOOD.xc < 1, math.nan).index_fill(1, torch.tensor([0]), math.nan)}),
    "xc inf": ("xc", {"xc": GOOD.xc.index_fill(1, torch.tensor([1]), math.inf)}),
    "yc rank": ("yc", {"yc": GOOD.yc[..., 0]}),
    "yc points": ("yc", {"yc": GOOD.yc[:, :3]}),
    "yc dy": ("yc", {"yc": GOOD.yc.expand(-1, -1, 2)}),
    "yc integers": ("yc", {"yc": GOOD.yc.long()}),
    "yc inf": ("yc", {"yc": GOOD.yc.index_fill(1, torch.tensor([1]), math.inf)}),
    "xt rank": ("xt", {"xt": GOOD.xt[0]}),
    "xt dx": ("xt", {"xt": GOOD.xt[..., :1]}),
    "xt tasks": ("xt", {"xt": GOOD.xt[:1]}),
    "xt nan": ("xt", {"xt": GOOD.xt.index_fill(1, torch.tensor([2]), math.nan)}),
    "mask shape": ("mask", {"mask": torch.ones(2, 3, dtype=torch.bool)}),
    "mask rank": ("mask", {"mask": torch.ones(2, 4, 1, dtype=torch.bool)}),
    "mask floats": ("mask", {"mask": torch.ones(2, 4)}),
}


@every_model
@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("call", ["forward", "sample"])
def test_bad_input_is_refused_by_name(variant, case, call):
    name, change = BAD[case]
    model = make(variant, 2, 1)
    arguments = {"xc": GOOD.xc, "yc": GOOD.yc, "xt": GOOD.xt, **change}
    with pytest.raises(ValueError, match=rf"^{name} ") as caught:
        getattr(model, call)(**arguments)
    assert "\n" not in str(caught.value)


def test_what_is_no_tensor_is_refused_by_name():
    """In a process of its own: the shape checks of this test run would step in first."""
    code = """
import torch
from shiftnp import MODELS
model, good = MODELS["cnp"](1, 1), {"xc": torch.zeros(1, 2, 1), "yc": torch.zeros(1, 2, 1), "xt": torch.zeros(1, 3, 1)}
for name in ("xc", "yc", "xt", "mask"):
    try:
        model(**{**good, name: [[[0.0], [1.0]]]})
    except ValueError as error:
        assert str(error).startswith(f"{name} must be a "), error
        assert "list" in str(error), error
    else:
        raise SystemExit(f"{name} was accepted")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("argument", "value"),
    [("dx", 0), ("dy", 0), ("likelihood", "students-t"), ("variance_floor", -1.0), ("likelihood", "mixture")],
)
def test_bad_arguments_are_refused_by_name(name, argument, value):
    extra = {"components": 1} if value == "mixture" else {}
    with pytest.raises(ValueError, match="components" if extra else argument):
        small_model(name, **{"dx": 1, "dy": 1, argument: value}, **extra)


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("te-tnp", "period", (1.0, 2.0)),
        ("te-tnp", "period", -1.0),
        ("te-tnp", "radius", 0.0),
        ("te-tnp", "equivariant", (0, 0)),
        ("te-tnp", "equivariant", (1,)),
        ("te-tnp", "equivariant", ()),
        ("te-tnp", "target_token", "zero"),
        ("te-tnp", "layers", 0),
        ("te-tnp", "heads", 0),
        ("te-tnp", "head_dim", 0),
        ("te-tnp", "ff_layers", -1),
        ("te-pt-tnp", "pseudo", 0),
        ("cnp", "hidden", -1),
        ("anp", "layers", -3),
        ("tnp", "variance_floor", math.inf),
        ("convcnp", "channels", 0),
        ("convcnp", "points_per_unit", 0),
        ("convcnp", "margin", -1.0),
        ("te-pt-tnp", "style", "swin"),
        ("te-pt-tnp", "initialiser", "median"),
        ("pt-tnp", "style", "swin"),
        ("convcnp", "net", "resnet"),
        ("convcnp", "layers", 4),
        ("convcnp", "kernel_size", 4),
        ("convcnp", "dx", 3),
    ],
)
def test_bad_options_are_refused_by_name(name, argument, value):
    with pytest.raises(ValueError, match=argument):
        small_model(name, **{argument: value})


def test_likelihood_names_are_the_registered_ones():
    batch = random_batch(dy=2)
    for name in likelihoods.LIKELIHOODS:
        assert is_finite(small_model("tnp", dy=2, likelihood=name)(batch.xc, batch.yc, batch.xt))
