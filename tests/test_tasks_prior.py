"""The prior over functions has what it promises, in the shares that it promises, for any seed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from shiftnp.scaling import standardise_by_context
from shiftnp.tasks import TASKS, PriorTask
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.draws import Draws
from shiftnp.tasks.gp_kernels import COVARIANCES
from shiftnp.tasks.prior import SHARES, noise_profile, standardised
from shiftnp.tasks.prior_functions import (
    HELD_OUT_KERNELS,
    PERIODIC,
    STATIONARY,
    GaussianFunction,
    InputWarp,
    Term,
    oscillations,
    step_function,
)
from shiftnp.tasks.prior_sites import ARRANGEMENTS, with_gaps

NAMES = ("prior-1d", "prior-2d", "prior-3d")


def draws(seed=0):
    return Draws(torch.Generator().manual_seed(seed))


# --- the batch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nc", [0, 1, 2, 40])
def test_shapes_and_dtype(name, nc):
    task = TASKS[name](points=(nc, nc))
    batch = task.sample(3, generator_for(0, 0))
    assert batch.xc.shape == (3, nc, task.dx)
    assert batch.yc.shape == (3, nc, 1)
    assert batch.xt.shape == (3, 64, task.dx)
    assert batch.yt.shape == (3, 64, 1)
    assert {v.dtype for v in (batch.xc, batch.yc, batch.xt, batch.yt)} == {torch.float32}


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_finite(name):
    """A Cholesky decomposition never fails, whatever the kernel, the sites and the number of points."""
    task = TASKS[name]()
    counts = set()
    for seed in range(150):
        batch = task.sample(4, generator_for(seed, 0))
        counts.add(batch.xc.shape[1])
        assert all(v.isfinite().all() for v in (batch.xc, batch.yc, batch.xt, batch.yt))
        assert batch.yt.abs().max() <= task.limit
    assert min(counts) <= 4
    assert max(counts) > 400


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_targets_or_none_beyond_the_box(name, share):
    for seed in range(20):
        batch = TASKS[name](points=(0, 3), targets=5, beyond=share).sample(2, generator_for(seed, 0))
        assert batch.xt.shape[1] == 5
        assert batch.yt.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_the_hardest_covariances_are_decomposed(name):
    """Length-scales much longer than the box make covariances nearly singular."""
    task = TASKS[name](points=(512, 512), length=(100.0, 100.0), period=(100.0, 100.0), width=(1.0, 1.0))
    assert task.sample(4, generator_for(0, 0)).yt.isfinite().all()


def test_determinism():
    for name in NAMES:
        a, b, c = (TASKS[name](points=(20, 60)).sample(4, generator_for(seed, 0)) for seed in (1, 1, 2))
        assert torch.equal(a.xc, b.xc)
        assert torch.equal(a.yt, b.yt)
        assert not torch.equal(a.yt, c.yt)


def test_numbers_of_context_points():
    task = PriorTask(dx=1)
    counts = np.array([task._context_points(draws(seed)) for seed in range(4000)])
    assert counts.min() == 0
    assert 490 < counts.max() <= 512
    few = counts < 8
    assert few.mean() == pytest.approx(0.1 * 8 / 9, abs=0.02)
    assert set(counts[few]) == set(range(8))
    logs = np.log(counts[~few] / 8) / math.log(64)
    assert np.quantile(logs, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.06)
    assert {PriorTask(points=(3, 3))._context_points(draws(seed)) for seed in range(50)} == {3}
    many = {PriorTask(points=(20, 40))._context_points(draws(seed)) for seed in range(999)}
    assert many == set(range(20, 41))


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_standardised_by_the_context(name):
    batch = TASKS[name](points=(30, 30)).sample(16, generator_for(0, 0))
    torch.testing.assert_close(batch.yc.mean(1), torch.zeros(16, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(batch.yc.std(1), torch.ones(16, 1), atol=1e-5, rtol=0)
    one = TASKS[name](points=(1, 1)).sample(16, generator_for(0, 0))
    assert torch.equal(one.yc, torch.zeros(16, 1, 1))
    # Without a context, the scale is that of all points.
    none = TASKS[name](points=(0, 0), outliers=0.0).sample(32, generator_for(0, 0))
    torch.testing.assert_close(none.yt.square().mean((1, 2)), torch.ones(32), atol=1e-4, rtol=0)


def test_the_box():
    task = PriorTask(dx=2, points=(100, 100), gaps=0.0, clusters=0.0, grids=0.0, tracks=0.0, stations=0.0)
    batch, truth = task.sample_with_truth(200, generator_for(0, 0))
    sides = torch.tensor([t.sides for t in truth])
    assert sides.min() >= 1
    assert 9 < sides.max() <= 10
    assert (sides.amax(1) / sides.amin(1)).max() <= 3
    assert sides.amax(1).log().mean().item() == pytest.approx(math.log(10) / 2, abs=0.15)
    u = batch.xc / sides[:, None]
    assert u.abs().max() <= 0.5 + 1e-6
    beyond = round(task.beyond * 64)
    like_context, elsewhere = (batch.xt / sides[:, None]).split([64 - beyond, beyond], 1)
    assert like_context.abs().max() <= 0.5 + 1e-6
    assert 0.59 < elsewhere.abs().max() <= 0.6 + 1e-6


# --- ingredients -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=NAMES)
def truths(request):
    task = TASKS[request.param](points=(2, 2), targets=3)
    return task, task.sample_with_truth(1000, generator_for(0, 0))[1]


def test_every_ingredient_has_its_share(truths):
    task, all_of_them = truths

    def share(found):
        return np.mean([bool(found(t)) for t in all_of_them])

    expected = {
        "trends": share(lambda t: t.trend is not None),
        "warped": share(lambda t: t.warp is not None),
        "skewed": share(lambda t: t.skewed),
        "unequal": share(lambda t: t.unequal),
        "outliers": share(lambda t: t.outliers is not None),
        "gaps": share(lambda t: t.gaps),
        "clusters": share(lambda t: t.sites == "clusters"),
        "grids": share(lambda t: t.sites == "grid"),
        "sums": share(lambda t: t.function.combination == "sum"),
        "products": share(lambda t: t.function.combination == "product"),
    }
    assert expected == pytest.approx({name: getattr(task, name) for name in expected}, abs=0.05)
    assert share(lambda t: t.sites == "track") == pytest.approx(task.tracks * (task.dx > 1), abs=0.05)
    assert share(lambda t: t.sites == "stations") == pytest.approx(task.stations * (task.dx > 2), abs=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_has_its_share(name):
    task, source = TASKS[name](), draws()
    terms = [term for _ in range(3000) for term in task._function(source).terms]
    counts = Counter(term.kind for term in terms)
    assert set(counts) == {*STATIONARY, *PERIODIC}
    for kinds, share in ((PERIODIC, task.periodic), (STATIONARY, 1 - task.periodic)):
        for kind in kinds:
            assert counts[kind] / len(terms) == pytest.approx(share / len(kinds), abs=0.023)  # four standard errors
    directed = np.mean([len(term.metric) < task.dx for term in terms])
    assert directed == pytest.approx(task.directed * (task.dx > 1), abs=0.02)
    if task.dx > 1:
        along = [(term.wave != 0).sum() == 1 for term in terms]
        assert np.mean(along) == pytest.approx(1 - task.rotated, abs=0.05)


def test_lengths_ratios_periods_and_noise_are_log_uniform(truths):
    task, all_of_them = truths

    def quarters(values, low, high):
        assert low * 0.999 <= min(values) < max(values) <= high * 1.001
        at = (np.log(values) - math.log(low)) / math.log(high / low)
        assert np.quantile(at, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.05)

    terms = [term for t in all_of_them for term in t.function.terms]
    plain = [t for t in terms if t.kind in STATIONARY]
    if task.dx == 1:
        quarters([float(1 / t.metric) for t in plain], *task.length)
    quarters([float(1 / t.wave.norm()) for t in terms], *task.period)
    quarters([t.noise for t in all_of_them], *task.noise)
    quarters([t.trend for t in all_of_them if t.trend is not None], *task.trend)
    assert task.noise[1] / task.noise[0] >= 100
    if task.dx > 1:
        whole = [torch.linalg.svdvals(t.metric) for t in plain if len(t.metric) == task.dx]
        assert max(float(s[0] / s[-1]) for s in whole) <= task.ratio**2 * 1.001
        assert max(float(s[0] / s[-1]) for s in whole) > task.ratio**1.5


def test_a_share_of_one_or_none():
    every = ("trends", "warped", "skewed", "unequal", "outliers", "gaps", "periodic")
    for share in (0.0, 1.0):
        task = PriorTask(dx=2, points=(5, 5), targets=4, **dict.fromkeys(every, share))
        for t in task.sample_with_truth(20, generator_for(0, 0))[1]:
            found = (t.trend, t.warp, t.outliers)
            assert {t.skewed, t.unequal, t.gaps, *(v is not None for v in found)} == {share == 1}
            assert {term.kind in PERIODIC for term in t.function.terms} == {share == 1}


def test_noise_has_its_variance():
    task = PriorTask(
        dx=1, points=(400, 400), noise=(0.5, 0.5), sums=0, products=0, periodic=0, trends=0, skewed=0, outliers=0,
        warped=0, length=(50.0, 50.0), unequal=0.5,
    )  # fmt: skip
    batch, _ = task.sample_with_truth(60, generator_for(0, 0))
    x, order = batch.xc[..., 0].double().sort(1)
    y = batch.yc[..., 0].double().gather(1, order)
    assert (x.diff(dim=1) >= 0).all()
    # Functions vary slowly, so that differences between neighbours are twice the noise; signal and noise are 1 : 0.5.
    noise = y.diff(dim=1).square().mean(1) / 2
    assert noise.median().item() == pytest.approx(0.5 / 1.5, abs=0.06)


def test_a_trend_extends_over_the_box():
    task = PriorTask(
        dx=2, points=(300, 300), trends=1.0, trend=(5.0, 5.0), skewed=0, outliers=0, noise=(0.01, 0.01), unequal=0
    )
    batch = task.sample(20, generator_for(0, 0))
    x = torch.cat([batch.xc, torch.ones(20, 300, 1)], 2).double()
    rest = batch.yc.double() - x @ torch.linalg.lstsq(x, batch.yc.double()).solution
    assert rest.square().mean((1, 2)).median() < 0.15


def test_outliers_and_skew_are_seen():
    def spread(**settings):
        task = PriorTask(dx=1, points=(300, 300), **{"skewed": 0.0, "outliers": 0.0, "trends": 0.0, **settings})
        y = torch.cat([task.sample(8, generator_for(0, i)).yc for i in range(6)])
        return y.pow(4).mean((1, 2)).mean(), y.pow(3).mean((1, 2)).abs().mean()

    plain, outlying, skewed = spread(), spread(outliers=1.0), spread(skewed=1.0)
    assert outlying[0] > 2 * plain[0]
    assert skewed[1] > 1.3 * plain[1]


def test_unequal_noise_has_mean_square_one():
    u = draws(1).rand(500, 2) - 0.5
    for seed in range(20):
        profile = noise_profile(u, draws(seed))
        assert profile.square().mean().item() == pytest.approx(1)
    assert profile.max() > 1.2 * profile.min() > 0


def test_a_warp_is_monotone_and_keeps_the_box():
    u = torch.linspace(-0.6, 0.6, 400, dtype=torch.float64)[:, None].expand(-1, 3)
    steepest = 0.0
    for seed in range(50):
        warped = InputWarp.draw(3, draws(seed))(u)
        slope = warped.diff(dim=0) / u.diff(dim=0)
        assert (slope > 0).all()
        steepest = max(steepest, float(slope.max() / slope.min()))
        edges = torch.tensor([[-0.5], [0.5]], dtype=torch.float64).expand(-1, 3)
        torch.testing.assert_close(InputWarp.draw(3, draws(seed))(edges), edges)
    assert steepest > 3


# --- sites -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("dx", [1, 2, 3])
def test_sites_are_in_the_unit_cube(arrangement, dx):
    if dx < {"track": 2, "stations": 3}.get(arrangement, 1):
        return
    for seed in range(40):
        for n in (1, 2, 7, 200):
            x = ARRANGEMENTS[arrangement](n, dx, draws(seed))
            assert x.shape == (n, dx)
            assert x.dtype == torch.float64
            assert x.isfinite().all()
            assert x.min() >= 0
            assert x.max() <= 1
            gapped = with_gaps(x, draws(seed))
            assert gapped.min() >= 0
            assert gapped.max() <= 1


def test_a_grid_is_regular_or_jittered():
    kinds = set()
    for seed in range(40):
        x = ARRANGEMENTS["grid"](50, 1, draws(seed))[:, 0].sort().values
        assert (x.diff() > 0).all()
        steps = x.diff() / x.diff().min()
        regular = (steps - steps.round()).abs().max() < 1e-6
        kinds.add(bool(regular))
    assert kinds == {True, False}


def test_stations_share_places_and_times():
    for seed in range(20):
        x = ARRANGEMENTS["stations"](200, 3, draws(seed))
        assert len(x.unique(dim=0)) == 200
        assert any(len(x[:, [i for i in range(3) if i != time]].unique(dim=0)) < 100 for time in range(3))


def test_gaps_are_gaps():
    for seed in range(40):
        x = with_gaps(draws(seed).rand(2000, 1), draws(seed + 1000))[:, 0].sort().values
        widest = torch.cat([x[:1], x.diff(), 1 - x[-1:]]).max()
        assert widest > 0.03
        assert len(x) == 2000


# --- kernels and functions -------------------------------------------------------------------------------------------


def term(kind, dx=2, seed=0):
    return PriorTask(dx=dx)._term(kind, draws(seed))


@pytest.mark.parametrize("kind", ["se", "matern12", "matern32", "matern52"])
def test_kernels_are_those_of_the_other_task(kind):
    x = draws(5).rand(30, 2) * 4
    t = term(kind)
    z = x @ t.metric.mT
    d = z[:, None] - z
    torch.testing.assert_close(
        t.covariance(x), COVARIANCES[kind](d, torch.ones(30, 30, dtype=d.dtype)), atol=1e-7, rtol=0
    )


def test_formulas():
    x = torch.tensor([[0.0], [0.3]], dtype=torch.float64)
    one, wave = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)

    def k(kind, shape=1.0):
        covariance = Term(kind, one, wave, shape).covariance(x)
        torch.testing.assert_close(covariance.diagonal(), torch.ones(2, dtype=torch.float64))
        return float(covariance[0, 1])

    periodic = math.exp(-2 * math.sin(0.3 * math.pi) ** 2 / 0.49)
    assert k("rational-quadratic", 0.7) == pytest.approx((1 + 0.09 / 1.4) ** -0.7)
    assert k("periodic", 0.7) == pytest.approx(periodic)
    assert k("locally-periodic", 0.7) == pytest.approx(periodic * math.exp(-0.045))
    assert k("gamma-exponential") == pytest.approx(math.exp(-(0.3**1.3)))
    assert k("wendland") == pytest.approx(0.7**4 * 2.2)


@pytest.mark.parametrize("kind", [*STATIONARY, *PERIODIC, *HELD_OUT_KERNELS])
@pytest.mark.parametrize("dx", [1, 2, 3])
def test_kernels_are_positive_definite(kind, dx):
    for seed in range(5):
        x = (draws(seed).rand(120, dx) - 0.5) * 6
        assert torch.linalg.eigvalsh(term(kind, dx, seed).covariance(x)).min() > -1e-9


def test_sums_and_products():
    x = draws(5).rand(20, 2) * 4
    a, b = term("se", seed=1), term("matern12", seed=2)
    ka, kb = a.covariance(x), b.covariance(x)
    torch.testing.assert_close(GaussianFunction((a, b), "sum", 0.3).covariance(x), 0.3 * ka + 0.7 * kb)
    torch.testing.assert_close(GaussianFunction((a, b), "product").covariance(x), ka * kb)


def test_samples_have_the_covariance():
    x = draws(5).rand(12, 2) * 3
    function, g = GaussianFunction((term("matern32", seed=3),)), draws(0)
    samples = torch.stack([function.sample(x, g) for _ in range(8000)])
    torch.testing.assert_close(samples.T @ samples / 8000, function.covariance(x), atol=0.06, rtol=0)


def test_a_directed_kernel_varies_along_one_axis():
    task = PriorTask(dx=3, directed=1.0, rotated=0.0, periodic=0.0)
    t = task._random_term(draws(3))
    along = int(t.metric[0].nonzero()[0])
    x = torch.zeros(4, 3, dtype=torch.float64)
    x[torch.arange(1, 4), torch.arange(3)] = 1.0
    assert [bool(v < 1) for v in t.covariance(x)[0, 1:]] == [i == along for i in range(3)]


def test_step_functions_are_piecewise_constant():
    for dx in (1, 2, 3):
        for seed in range(20):
            values = step_function(draws(seed).rand(500, dx) - 0.5, draws(seed)).unique()
            assert 1 <= len(values) <= 64


def test_oscillations_oscillate():
    u = torch.linspace(-0.5, 0.5, 400, dtype=torch.float64)[:, None]
    turns = [int((oscillations(u, draws(s)).diff().sign().diff() != 0).sum()) for s in range(20)]
    assert min(turns) >= 2
    assert np.mean(turns) > 4


def test_standardised_values():
    y = standardised(draws(0).rand(100) * 5 + 3)
    assert y.mean().item() == pytest.approx(0, abs=1e-12)
    assert y.square().mean().item() == pytest.approx(1)
    assert torch.equal(standardised(torch.full((4,), 2.5, dtype=torch.float64)), torch.zeros(4, dtype=torch.float64))


# --- test sets and settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_held_out_functions_are_not_in_the_prior(name):
    task = TASKS[name](points=(0, 40))
    sets = task.test_sets()
    assert list(sets) == ["valid", "gamma-exponential", "wendland", "steps", "oscillations"]
    assert sets["valid"].task == task
    assert sets["valid"].tasks == 256
    assert len({test_set.seed for test_set in sets.values()}) == len(sets)
    for kind, test_set in islice(sets.items(), 1, None):
        batch, truth = test_set.task.sample_with_truth(8, generator_for(0, 0))
        assert batch.yt.isfinite().all()
        assert batch.xc.shape[1] >= 8
        kinds = {term.kind for t in truth if t.function for term in t.function.terms}
        assert kinds == ({kind} if kind in HELD_OUT_KERNELS else set())
        assert not any(t.trend or t.warp or t.skewed or t.unequal or t.outliers for t in truth)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dx": 4}, "dx must be 1, 2 or 3"),
        ({"points": (9, 3)}, "points must be a range"),
        ({"targets": 0}, "targets must be a whole number"),
        ({"noise": (0.0, 1.0)}, "noise must be a range of positive numbers"),
        ({"length": (2.0, 1.0)}, "length must be a range of positive numbers"),
        ({"trends": 1.5}, "trends must be a share between 0 and 1"),
        ({"ratio": 0.5}, "ratio must be at least 1"),
        ({"sums": 0.7, "products": 0.7}, "sums, products must have a sum of at most 1"),
    ],
)
def test_invalid_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        PriorTask(**settings)


def test_all_shares_are_settings():
    assert all(0 <= getattr(PriorTask(), name) <= 1 for name in SHARES)
    assert replace(PriorTask(), noise=(1, 2)).noise == (1.0, 2.0)


# --- standardisation by the context ----------------------------------------------------------------------------------


def test_standardisation():
    y = torch.tensor([[[1.0, 10.0], [2.0, math.nan], [6.0, 30.0], [99.0, 99.0]]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    s = standardise_by_context(y, mask)
    torch.testing.assert_close(s.mean, torch.tensor([[[3.0, 20.0]]], dtype=torch.float64))
    torch.testing.assert_close(s.std, torch.tensor([[[7.0, 200.0]]], dtype=torch.float64).sqrt())
    torch.testing.assert_close(s.undo(s.apply(y)), y, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1e-12, 1.0, 1e12])
def test_standardisation_without_a_spread(dtype, factor):
    def of(values):
        y = factor * torch.tensor(values, dtype=torch.float64).to(dtype).view(1, -1, 1)
        s = standardise_by_context(y.to(dtype))
        return s.mean.item(), s.std.item()

    assert of([]) == (0, 1)
    assert of([5.0]) == (pytest.approx(5 * factor), 1)
    assert of([0.1] * 7) == (pytest.approx(0.1 * factor), 1)
    assert of([0.0, 0.0]) == (0, 1)
    assert of([1.0, 3.0])[1] == pytest.approx(factor * math.sqrt(2))  # of any magnitude


def test_standardisation_does_not_depend_on_units():
    y = draws(0).randn(2, 30, 1)
    plain = standardise_by_context(y).apply(y)
    moved = 1e4 + 1e-3 * y
    torch.testing.assert_close(standardise_by_context(moved).apply(moved), plain, atol=1e-6, rtol=0)
