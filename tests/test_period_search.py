"""The period search: harmonic regression against Gaussian processes, the vote, and what it must not do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from conftest import small_model
from shiftnp.geometry import Geometry
from shiftnp.kernels import Rotary, period
from shiftnp.kernels.base import AttentionSize
from shiftnp.kernels.harmonics import interleave, invert, invert_, invert_exported, products, regress, waves
from shiftnp.kernels.period import HARMONICS, PRIORS, PeriodSearch, Searched
from shiftnp.kernels.windows import Windows
from shiftnp.models import TEPTTNP, TETNP
from shiftnp.nn.tokens import Context, Tokens
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask

F64 = torch.float64


def search(n, band=(0.1, 10.0), dims=1, geometry=None, dy=1):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return PeriodSearch(n, band, AttentionSize(6, 3, 4, dims, geometry or Geometry()), dy).double()


def summarise(module, x, y, observed=None):
    observed = torch.ones_like(y) if observed is None else observed
    return module.summarise(x, y * observed, observed)


def periodic_data(n=30, wave=6.0, dx=1, seed=0, noise=0.0):
    """Inputs, and a periodic function there whose second harmonic is stronger than the first."""
    g = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(2, n, dx, generator=g, dtype=F64) - 2
    phase = wave * x[..., :1]
    y = 0.6 * torch.sin(phase) + torch.cos(2 * phase)
    return x, y + noise * torch.randn(y.shape, generator=g, dtype=F64)


def votes(module, x, y, observed=None):
    """Votes for every candidate, over all priors, and for "no period"."""
    seen = []
    hook = module.embed_votes.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    summarise(module, x, y, observed)
    hook.remove()
    n = len(module.candidates.vectors(F64)[0])
    found = seen[0][:, : n * len(PRIORS)].unflatten(-1, (len(PRIORS), n)).sum(1) / n**0.5
    return found, seen[0][:, n * len(PRIORS)]


def basis_of(angle, top):
    """Constant, cosines, sines: by their formulas, in the order of `products`."""
    steps = torch.arange(1, top + 1, dtype=F64)
    return torch.cat(
        [angle.new_ones(*angle.shape, 1), (angle[..., None] * steps).cos(), (angle[..., None] * steps).sin()], -1
    )


# --- harmonic regression ---------------------------------------------------------------------------------------------


def test_products_of_waves_are_waves():
    angle = torch.randn(7, dtype=F64)
    one, two = basis_of(angle, 3), basis_of(angle, 6)
    formula = torch.einsum("nm,ijm->nij", two, products(3).double())
    torch.testing.assert_close(formula, one[:, :, None] * one[:, None])


def test_waves_and_polynomials_of_them():
    g = torch.Generator().manual_seed(0)
    angle, coefficients = (torch.randn(shape, generator=g, dtype=F64) for shape in ((7, 5), (5, 17)))
    constant, of_waves = interleave(coefficients)
    polynomial = (waves(angle, 8) @ of_waves.flatten(1)[..., None]).sum(0)[:, 0] + constant.sum()
    torch.testing.assert_close(polynomial, (basis_of(angle, 8) * coefficients).sum((1, 2)))


@pytest.mark.parametrize("method", [invert, invert_, invert_exported])
def test_many_small_matrices_are_inverted(method):
    root = torch.randn(50, 5, 9, generator=torch.Generator().manual_seed(0), dtype=F64)
    matrix = root @ root.mT
    inverse, log_det = method(matrix.permute(1, 2, 0).clone())
    torch.testing.assert_close(inverse.permute(2, 0, 1), torch.linalg.inv(matrix))
    torch.testing.assert_close(log_det, torch.logdet(matrix))


def test_exported_inverses_are_as_precise_as_others():
    """In float32, for the matrices of a regression on harmonics with many observations and little noise."""
    g = torch.Generator().manual_seed(0)
    phase = 6.3 * torch.rand(20, 60, 1, generator=g, dtype=F64) * torch.arange(1.0, 5.0, dtype=F64)
    basis = torch.cat([torch.ones(20, 60, 1, dtype=F64), phase.cos(), phase.sin()], -1)
    matrix = (basis.mT @ basis + 0.1 * torch.eye(9, dtype=F64)).permute(1, 2, 0)
    exact, _ = invert(matrix)

    def error(method):
        return float((method(matrix.float().clone())[0] - exact).abs().max())

    assert error(invert_exported) < 2 * error(invert_)


def test_the_regression_is_a_gaussian_process():
    """With covariance `sum_h v_h cos(h w d)`: evidence, mean and second moment, for each frequency and prior."""
    g = torch.Generator().manual_seed(0)
    x, y, xt = (torch.randn(n, generator=g, dtype=F64) for n in (12, 12, 5))
    frequencies, top = torch.tensor([1.3, 2.0, 4.0], dtype=F64), 3
    variances = torch.tensor([[0.5, 0.4, 0.2, 0.1], [0.3, 0.2, 0.1, 0.1]], dtype=F64)
    noise = torch.tensor([0.05, 0.3], dtype=F64)
    basis = basis_of(x[:, None] * frequencies, 2 * top)
    moments = (basis * y[:, None, None]).sum(0)[:, [*range(top + 1), *range(2 * top + 1, 3 * top + 1)]]
    prior = torch.cat([variances, variances[:, 1:]], 1)
    count = torch.tensor([[12.0]], dtype=F64)
    found = regress(
        basis.sum(0)[None, None], moments[None, None], (y @ y)[None, None], count, prior, noise, products(top).double()
    )
    for s, (v, variance) in enumerate(zip(variances, noise, strict=True)):
        for r, w in enumerate(frequencies):

            def covariance(a, b, v=v, w=w):
                return sum(v[h] * torch.cos(h * w * (a[:, None] - b)) for h in range(top + 1))

            gram, cross = covariance(x, x) + variance * torch.eye(12, dtype=F64), covariance(xt, x)
            normal = torch.distributions.MultivariateNormal(torch.zeros(12, dtype=F64), gram)
            mean = cross @ torch.linalg.solve(gram, y)
            spread = (covariance(xt, xt) - cross @ torch.linalg.solve(gram, cross.T)).diagonal()
            at = basis_of(xt * w, 2 * top)
            torch.testing.assert_close(found.evidence[0, s, r], normal.log_prob(y) + 6 * math.log(2 * math.pi))
            torch.testing.assert_close(at @ found.first[0, 0, s, r], mean)
            torch.testing.assert_close(at @ found.second[0, 0, s, r], spread + mean.square())


# --- the vote --------------------------------------------------------------------------------------------------------


def test_the_fundamental_gets_the_vote_though_its_second_harmonic_is_stronger():
    """With noise, gaps and two outputs, and wherever the data lie."""
    x, y = periodic_data(60, wave=6.0, noise=0.1)
    y = torch.cat([y, -y], -1)
    observed = torch.stack([torch.arange(60) % 5 > 0, torch.arange(60) % 3 > 0], -1).double().expand(2, -1, -1)
    module = search(50, dy=2)
    found, none = votes(module, x, torch.where(observed > 0, y, 1e3), observed)
    assert module.candidates.vectors(F64)[0, found.argmax(-1), 0].tolist() == [6.0, 6.0]
    assert (found.max(-1).values > 0.99).all()
    assert (none < 1e-6).all()
    moved, _ = votes(module, x + 100, y, observed)
    torch.testing.assert_close(moved, found, rtol=1e-6, atol=1e-9)


def test_evidence_finds_more_periods_than_the_power_does():
    """What docs/rotary.md says."""
    task = GPTask(kernels=("periodic",), points=(32, 32))
    batch, truth = task.sample_with_truth(300, generator_for(0, 0))
    x, y = batch.xc.double() - batch.xc.double().mean(1, keepdim=True), batch.yc.double()
    module = search(256, (0.1, 26.0))
    frequencies = module.candidates.vectors(F64)[0, :, 0]
    centred = y - y.mean(1, keepdim=True)
    power = sum((centred * wave(x * frequencies)).sum(1).square() for wave in (torch.cos, torch.sin))
    by_evidence, by_power = (
        ((frequencies[best] - 2 * math.pi / truth.length[:, 0]).abs() < 0.4).double().mean()
        for best in (votes(module, x, y)[0].argmax(1), power.argmax(1))
    )
    assert by_evidence > 0.93
    assert by_power < 0.8


def test_noise_has_no_period():
    g = torch.Generator().manual_seed(0)
    x, y = 4 * torch.rand(20, 60, 1, generator=g, dtype=F64), torch.randn(20, 60, 1, generator=g, dtype=F64)
    module = search(64, (0.1, 26.0))
    _, none = votes(module, x, y)
    assert (none > 0.5).double().mean() > 0.9
    mean, std = module._mixture(x, summarise(module, x, y))  # where the vote is clear, that of the prior
    assert mean[none > 0.999].abs().max() < 0.01
    torch.testing.assert_close(std[none > 0.999], torch.ones_like(std[none > 0.999]), rtol=0.01, atol=0)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_with_several_inputs_it_does_no_harm(dims):
    """Few random directions miss the fundamental. New observations are then predicted no worse than by the prior."""
    x, y = periodic_data(240, wave=9.0, dx=dims, noise=0.2)
    module = search(64, (0.1, 26.0), dims)
    here, new = (slice(0, 120), slice(120, None))
    summary = summarise(module, x[:, here], y[:, here])
    mean, std = module._mixture(x[:, new], summary)
    ours, prior = (
        torch.distributions.Normal(mean, (std.square() + summary.noise).sqrt()),
        torch.distributions.Normal(0.0, 1.0),
    )
    gain = (ours.log_prob(y[:, new]) - prior.log_prob(y[:, new])).mean()
    assert gain > (0.8 if dims == 1 else -0.05)


def test_predictions_do_not_jump():
    """As an observation moves, the best candidate changes, and predictions change continuously."""
    x, y = (t[:1] for t in periodic_data(5, seed=3))
    model = small_model("te-tnp", kernel=Rotary(period_search=30, band=(0.1, 12.0)), location_update=False).double()
    path = torch.linspace(-2, 2, 2001, dtype=F64)
    moving = y.expand(len(path), -1, -1).clone()
    moving[:, 0, 0] = path
    every, targets = x.expand(len(path), -1, -1), torch.linspace(-3, 3, 7, dtype=F64)[None, :, None]
    best = votes(model.hook, every - every.mean(1, keepdim=True), moving)[0].argmax(-1)
    assert len(best.unique()) > 1
    with torch.no_grad():
        mean = model(every, moving, targets.expand(len(path), -1, -1)).mean
    steps = mean.diff(dim=0).abs().amax((1, 2))
    assert steps.max() < 20 * steps.median() + 1e-4


@pytest.mark.parametrize("n", [0, 1, 2])
def test_next_to_no_data(n):
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(10, n, 1, generator=g, dtype=F64) for _ in range(2))
    model = small_model("te-tnp", kernel=Rotary(period_search=16), location_update=False).double()
    targets = torch.randn(10, 3, 1, generator=g, dtype=F64)
    here, moved = model(x, y, targets), model(x + 64, y, targets + 64)
    assert here.mean.isfinite().all()
    torch.testing.assert_close(moved.mean, here.mean)


@pytest.mark.parametrize("most", [1, 5000])
def test_points_go_in_chunks(most, monkeypatch):
    x, y = periodic_data(40)
    module = search(20)
    whole = summarise(module, x, y)
    mixture = module._mixture(x, whole)
    monkeypatch.setattr(period, "MOST_WAVES", most)
    torch.testing.assert_close(summarise(module, x, y), whole)
    torch.testing.assert_close(module._mixture(x, whole), mixture)


def test_residuals_are_those_of_leaving_one_out():
    """Nearly: where one candidate has the vote."""
    x, y = (t[:1] for t in periodic_data(30, wave=6.0, noise=0.1))
    module = search(50)
    searched = Searched(summarise(module, x, y), x.new_zeros(1, 1, 1))
    residual, *_ = module._residuals(y, torch.ones_like(y), module._features(x, searched))
    keep = [[j for j in range(30) if j != i] for i in range(30)]
    left_out = summarise(module, torch.cat([x[:, k] for k in keep]), torch.cat([y[:, k] for k in keep]))
    mean, _ = module._mixture(x[0, :, None], left_out)
    exact = (y[0] - mean[:, 0])[:, 0]
    assert (residual[0, :, 0] - exact).abs().mean() < 0.15 * exact.abs().mean()


def test_along_a_circle_candidates_are_harmonics():
    x, y = periodic_data(40, wave=6.0, dx=2)
    module = search(300, (0.1, 9.0), 2, Geometry.of(2, (2 * math.pi, None), None))
    around = x + torch.tensor([2 * math.pi, 0.0], dtype=F64)
    torch.testing.assert_close(votes(module, around, y)[0], votes(module, x, y)[0], rtol=1e-6, atol=1e-9)


def test_gradients_reach_the_data():
    """By finite differences."""
    x, y = (t[:1] for t in periodic_data(12))
    module = search(8)
    assert torch.autograd.gradcheck(
        lambda x, y: module._mixture(x, summarise(module, x, y)), (x.requires_grad_(), y.requires_grad_())
    )


def test_a_period_search_needs_the_whole_context():
    with pytest.raises(ValueError, match=r"period_search .* radius"):
        TETNP(1, 1, kernel=Rotary(period_search=3), radius=1.0)


# --- windows ---------------------------------------------------------------------------------------------------------


def windowed(span, **options):
    """The same model with and without windows."""
    kernels = (Rotary(period_search=24, band=(0.1, 10.0), period_span=s) for s in (None, span))
    return [small_model("te-tnp", kernel=k, location_update=False, **options).double() for k in kernels]


def long_data(n=60, length=20.0, tasks=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = length * (torch.rand(tasks, n, 1, generator=g, dtype=F64) - 0.5)
    return x, torch.sin(6 * x) + 0.1 * torch.randn(x.shape, generator=g, dtype=F64)


def test_windows_are_those_of_their_definition():
    """Features at every position, against a search in each window, one after the other."""
    x, y = long_data()
    module, length = search(20), 3.0
    windows = Windows.cover(x[..., 0], None, length)
    module.span = length
    tokens = Tokens(torch.zeros(2, 60, 6, dtype=F64), x)
    summary = module._summarise_windows(windows, x, y, torch.ones_like(y), tokens)
    at = torch.linspace(-12, 12, 41, dtype=F64)[:, None]
    found = module._features(at.expand(2, -1, -1), Searched(summary, torch.zeros(2, 1, 1, dtype=F64), windows))
    for task in range(2):
        low, high = float(x[task].min()), float(x[task].max())
        centres = [low + 1.5]
        while centres[-1] < high - 1.5:
            centres.append(min(centres[-1] + 1.5, high - 1.5))
        assert len(centres) > 5
        parts = []
        for centre in centres:
            weight = ((1.5 * 1.25 - (x[task] - centre).abs()) / (1.5 * 0.25)).clamp(0, 1)
            part = module.summarise(x[None, task], y[None, task], torch.ones_like(y[None, task]), weight[None])
            parts.append((module._moments(at[None], part)[0], part.embedding[0], part.noise[0]))
        place = at.clamp(centres[0], centres[-1])[:, 0].numpy()
        weights = torch.tensor(np.stack([np.interp(place, centres, row) for row in np.eye(len(centres))], 1))
        moments = torch.einsum("tw,wtk->tk", weights, torch.stack([p[0] for p in parts]))
        mean, square = moments.chunk(2, -1)
        torch.testing.assert_close(found.mean[task], mean)
        torch.testing.assert_close(found.std[task], (square - mean.square()).sqrt())
        torch.testing.assert_close(found.embedding[task], weights @ torch.cat([p[1] for p in parts]))
        torch.testing.assert_close(found.noise[task], weights @ torch.cat([p[2] for p in parts]))


def test_weights_count_as_repeated_observations():
    x, y = periodic_data(12)
    module = search(20)
    weight = torch.ones_like(y)
    weight[:, :5] = 2.0
    twice = torch.cat([x, x[:, :5]], 1), torch.cat([y, y[:, :5]], 1)
    torch.testing.assert_close(module.summarise(x, y, torch.ones_like(y), weight), summarise(module, *twice))


def test_a_context_that_fits_into_a_window_has_none():
    x, y = periodic_data(30)
    whole, parts = windowed(4.0)
    assert torch.equal(whole(x, y, x + 3).mean, parts(x, y, x + 3).mean)


def test_windows_change_continuously():
    """With the position of the last point, also where a new window begins."""
    x, y = (t[:1] for t in periodic_data(30))
    x = x.sort(1).values
    _, model = windowed(2.0)
    path = torch.linspace(0, 3, 601, dtype=F64)
    every = torch.cat([x[:, :-1].expand(601, -1, -1), (x[:, -1:] + path[:, None, None])], 1)
    with torch.no_grad():
        mean = model(every, y.expand(601, -1, -1), x[:, ::5].expand(601, -1, -1)).mean
    steps = mean.diff(dim=0).abs().amax((1, 2))
    spans = every[:, -1, 0] - x[0, 0, 0]
    assert len(((spans - 2.0) / 1.0).ceil().unique()) > 3
    assert steps.max() < 0.03


def test_windows_of_a_task_do_not_depend_on_others():
    """Contexts of different lengths in one batch, padded, are predicted as each alone, and wherever they lie."""
    (a, ya), (b, yb) = long_data(60, 20.0, 1), long_data(30, 1.5, 1)
    _, model = windowed(2.0)
    padded = torch.cat([b, torch.full((1, 30, 1), 1e3, dtype=F64)], 1), torch.cat([yb, yb], 1)
    x, y, mask = torch.cat([a, padded[0]]), torch.cat([ya, padded[1]]), torch.ones(2, 60, dtype=torch.bool)
    mask[1, 30:] = False
    targets = torch.linspace(-11, 11, 40, dtype=F64)[None, :, None].expand(2, -1, -1)
    together, moved = model(x, y, targets, mask=mask).mean, model(x + 1e6, y, targets + 1e6, mask=mask).mean
    alone = torch.cat([model(a, ya, targets[:1]).mean, model(b, yb, targets[:1]).mean])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(moved, together, rtol=1e-5, atol=1e-5)


def test_models_with_windows_keep_the_contract():
    """The tests of `test_contract.py`, which have several inputs, for a model with one."""
    x, y = long_data(40)
    targets, order = torch.linspace(-11, 11, 9, dtype=F64)[None, :, None].expand(2, -1, -1), torch.randperm(40)
    _, model = windowed(2.0)
    here = model(x, y, targets)
    torch.testing.assert_close(model(x[:, order], y[:, order], targets).mean, here.mean)
    memory = model.encode(x, y)
    torch.testing.assert_close(model.decode(memory, targets[:, 3:4]).mean, here.mean[:, 3:4])
    assert model.decode(memory, targets[:, :0]).mean.shape == (2, 0, 1)
    here.log_prob(torch.zeros_like(targets)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    single = (t.float() for t in (x, y, targets))
    x, y, targets = ((t * 64).round() / 64 for t in single)  # exact in float32 also after a shift by 2^17
    model = model.float()
    moved = model(x + 2**17, y, targets + 2**17).mean
    torch.testing.assert_close(moved, model(x, y, targets).mean, rtol=1e-4, atol=1e-4)


def test_a_change_of_the_period_is_found_by_windows():
    """Half of a long domain has another period: windows vote for the one that is there."""
    x, _ = long_data(400, 40.0, 1)
    y = torch.where(x < 0, torch.sin(6 * x), torch.sin(2 * x))
    errors = {}
    for span in (None, 4.0):
        module = search(100)
        module.span = span
        tokens = module.context(Tokens(torch.zeros(1, 400, 6, dtype=F64), x), Context(x, y, torch.ones_like(y), None))
        errors[span] = (module._features(x - x.mean(), tokens.summary).mean - y).abs()
    assert errors[None].mean() > 0.3
    assert errors[4.0].median() < 0.05


def test_a_gap_costs_nothing():
    """Windows without points take neither memory nor time, however many there are; between them is the prior."""
    x, y = long_data(20, 3.0, 1)
    far, y = torch.cat([x, x + 1e9], 1), torch.cat([y, y], 1)
    module = search(20)
    module.span = 2.0
    tokens = module.context(Tokens(torch.zeros(1, 40, 6, dtype=F64), far), Context(far, y, torch.ones_like(y), None))
    assert len(tokens.summary.windows.found) < 20
    at = module._features(torch.tensor([[[-4e8], [0.0], [2e8]]], dtype=F64), tokens.summary)
    torch.testing.assert_close(at.mean, torch.zeros(1, 3, 1, dtype=F64))
    torch.testing.assert_close(at.std, torch.ones(1, 3, 1, dtype=F64))


def test_gradients_go_through_windows():
    """By finite differences."""
    x, y = long_data(14, 6.0, 1)
    module = search(8)
    module.span = 2.0

    def features(x, y):
        context = module.context(Tokens(x.new_zeros(1, 14, 6), x), Context(x, y, torch.ones_like(y), None))
        at = module._features(x - x.detach().mean(), context.summary)
        return at.mean, at.std, at.noise

    assert torch.autograd.gradcheck(features, (x.requires_grad_(), y.requires_grad_()))


@pytest.mark.parametrize("options", [{"dx": 2}, {"dx": 1, "period": 3.0}])
def test_windows_are_for_one_input_without_a_period(options):
    with pytest.raises(ValueError, match="period_span is for models with one input"):
        TETNP(dy=1, kernel=Rotary(period_search=3, period_span=1.0, band=(0.1, 9.0)), **options)


# --- models ----------------------------------------------------------------------------------------------------------


def test_pseudo_tokens_can_have_it_too():
    model = TEPTTNP(1, 2, dz=16, heads=2, head_dim=8, layers=2, pseudo=4, kernel=Rotary(period_search=9)).double()
    x, y = periodic_data(20)
    y = torch.cat([y, -y], -1)
    here, moved = (model(x + d, y, x[:, :5] + d).mean for d in (0, 1000))
    torch.testing.assert_close(moved, here, rtol=1e-6, atol=1e-8)
    assert HARMONICS == 4
