"""The kernel that factors: against its formula, written out for every pair."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import softplus

from conftest import small_model
from shiftnp.attention import separable
from shiftnp.geometry import Geometry
from shiftnp.models import TETNP
from shiftnp.nn import folding
from shiftnp.nn.separable import SeparableAttention
from shiftnp.nn.spectrum import Lines, Spectrum
from shiftnp.nn.tokens import Tokens
from shiftnp.nn.waves import Waves
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask

B, NQ, NK, DX, DZ, H, D = 2, 4, 5, 2, 6, 3, 4


def by_pairs(attention, q, k):
    """Scores from displacements alone, pair by pair, and turned values."""
    heads, d = attention.heads, q.x[:, :, None] - k.x[:, None]  # [b, nq, nk, dx]
    zq, zk, v = heads.project(q.z, k.z)
    score = torch.einsum("bhqd,bhkd->bhqk", zq, zk) / math.sqrt(D)
    complex_q, complex_k = (
        torch.view_as_complex(heads.split(layer(z)).unflatten(-1, (-1, 2)).contiguous())
        for layer, z in ((attention.to_q_waves, q.z), (attention.to_k_waves, k.z))
    )

    def turns(waves, harmonics):
        angle = torch.einsum("bqkd,hrd->bhqkr", d, waves.free)
        if attention.folded:
            one = torch.einsum("bqkd,bd->bqk", d, q.lines.fundamental)[:, None, ..., None]
            folded = one * torch.tensor(harmonics[: angle.shape[-1]])
            angle = torch.cat([angle, folded.expand(-1, attention.folded, -1, -1, -1)], 1)
        return torch.exp(1j * angle)

    phase = turns(attention.waves, [1, 1, 2, 2, 3, 3])
    waves = torch.einsum("bhqr,bhkr,bhqkr->bhqk", complex_q, complex_k.conj(), phase)
    score = score + waves.real / math.sqrt(attention.frequencies)
    width = softplus(heads.split(attention.to_window(q.z)))
    score = score - width * d.square().sum(-1)[:, None]
    if attention.to_gain is not None:
        gain = heads.split(attention.to_gain(q.z))
        score = score + torch.einsum("bhqs,sbqk->bhqk", gain, torch.stack(q.likeness))
    alpha = score.softmax(-1).to(torch.complex128)
    turned = turns(attention.value_waves, [0, 0, 1, 1, 2, 2]).conj()
    values = torch.view_as_complex(v.unflatten(-1, (-1, 2)).contiguous())
    out = torch.view_as_real(torch.einsum("bhqk,bhqkr,bhkr->bhqr", alpha, turned, values)).flatten(-2)
    pull = heads.split(attention.to_pull(q.z))
    step = (pull * torch.einsum("bhqk,bqkd->bhqd", alpha.real, -d)).mean(1)
    return heads.join(out, None), step


@pytest.fixture(params=[False, True], ids=["", "spectrum"])
def setup(request):
    g = torch.Generator().manual_seed(0)

    def gauss(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = SeparableAttention(
            DZ, H, D, Geometry(), DX, moves=True, frequencies=3, spectrum=request.param
        ).double()
    q, k = (Tokens(gauss(B, n, DZ), gauss(B, n, DX)) for n in (NQ, NK))
    if request.param:
        lines = Lines(gauss(5, DX), gauss(B, 2, 5).softmax(-1), gauss(B, DX), gauss(B, 1, DZ))
        q, k = (t._replace(lines=lines, likeness=lines.correlation(t.x, k.x)) for t in (q, k))
    return attention, q, k


def test_it_is_its_formula(setup):
    attention, q, k = setup
    for ours, formula in zip(attention(q, k, None), by_pairs(attention, q, k), strict=True):
        torch.testing.assert_close(ours, formula, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("period", [None, (3.0, None)])
def test_it_is_the_same_pair_by_pair(setup, period):
    """As it is computed where not all see all."""
    attention, q, k = setup
    attention.geometry = Geometry.of(DX, period, None)
    everyone = torch.ones(B, NQ, NK, dtype=torch.bool)
    for product, pairs in zip(attention(q, k, None), attention(q, k, everyone), strict=True):
        torch.testing.assert_close(product, pairs, rtol=1e-10, atol=1e-10)


def test_self_attention_takes_no_short_cut(setup):
    attention, q, _ = setup
    if q.lines is not None:
        q = q._replace(likeness=q.lines.correlation(q.x, q.x))
    copy = q._replace(x=q.x.clone())
    for same, other in zip(attention(q, q, None), attention(q, copy, None), strict=True):
        torch.testing.assert_close(same, other, rtol=1e-12, atol=1e-12)


def test_correlation_is_its_formula():
    g = torch.Generator().manual_seed(1)
    vectors, xq, xk = (torch.randn(*shape, 2, generator=g, dtype=torch.float64) for shape in ((5,), (3, 4), (3, 6)))
    strength = torch.rand(3, 2, 5, generator=g, dtype=torch.float64)
    wave = torch.cos(torch.einsum("bqkd,rd->bqkr", xq[:, :, None] - xk[:, None], vectors))
    formula = torch.einsum("bsr,bqkr->sbqk", strength, wave)
    ours = Lines(vectors, strength, vectors[:3], strength).correlation(xq, xk)
    torch.testing.assert_close(torch.stack(ours), formula, rtol=1e-12, atol=1e-12)


def test_strengths_are_powers_of_the_data_wherever_it_lies():
    """The strongest line of a wave is its own, with padding, gaps and a shift."""
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)[None, :, None].repeat(2, 1, 1)
    y = torch.cat([3 + torch.sin(5 * x), torch.cos(5 * x)], -1)
    x[1] += 7.3
    observed = (torch.arange(41) % 7 != 3).double()[None, :, None] * torch.tensor([1.0, 1.0])
    there = (torch.arange(41) < 30).double()[None, :, None].expand(2, -1, -1)
    spectrum = Spectrum(40, 1, DZ, Geometry(), (0.1, 10.0)).double()
    lines = spectrum(x, y, (observed * there).expand_as(y), there)
    assert (lines.vectors[lines.strength.argmax(-1)].abs() == 5).all()
    torch.testing.assert_close(lines.strength[0], lines.strength[1])
    torch.testing.assert_close(lines.about[0], lines.about[1])
    torch.testing.assert_close(lines.fundamental.abs(), torch.full((2, 1), 5.0).double(), rtol=2e-3, atol=0)
    y[:, 30:], y[:, 3] = 9.0, 9.0  # not there, not observed
    torch.testing.assert_close(spectrum(x, y, (observed * there).expand_as(y), there).strength, lines.strength)


@pytest.mark.parametrize("options", [{"kernel": "mlp"}, {"kernel": "separable", "radius": 1.0}])
def test_a_spectrum_is_for_a_kernel_that_can_use_it(options):
    with pytest.raises(ValueError, match="spectrum"):
        TETNP(1, 1, spectrum=3, **options)


def test_heads_share_out_the_waves_of_a_band():
    length = SeparableAttention(DZ, H, D, Geometry(), DX, False, 4, (0.5, 8.0)).waves.free.norm(dim=-1)
    expected = torch.logspace(math.log10(0.5), math.log10(8.0), H * 4)
    torch.testing.assert_close(length.flatten().sort().values, expected)
    assert (length.amax(1) / length.amin(1) > 4).all()  # each spans the band


def test_along_a_circle_whole_waves_fit():
    attention = SeparableAttention(DZ, H, D, Geometry.of(2, (8.0, None), None), 2, moves=True)
    whole = attention.waves.vectors(torch.float64)[..., 0] * 8 / (2 * math.pi)
    torch.testing.assert_close(whole, whole.round(), rtol=0, atol=1e-12)
    assert whole.any()
    assert attention.waves.free.shape[-1] == 1


def test_a_band_must_reach_the_first_wave_of_a_circle():
    with pytest.raises(ValueError, match=r"band .* period of 1: it must reach 6.28"):
        SeparableAttention(DZ, H, D, Geometry.of(1, 1.0, None), 1, moves=False, band=(0.2, 3.0))


def test_a_long_domain_is_no_place_for_squares():
    """Far from the middle of all keys, a query with neighbours sees them as it would without the others."""
    model = small_model("te-tnp", kernel="separable", radius=1.0, location_update=False, dtype=torch.float32)
    g = torch.Generator().manual_seed(0)
    near = 2**14 + torch.rand(1, 12, 1, generator=g)
    far = torch.cat([near, torch.arange(200.0)[None, :, None] * -100], 1)
    y = torch.randn(1, far.shape[1], 1, generator=g)
    alone, among = model(near, y[:, :12], near), model(far, y, near)
    torch.testing.assert_close(among.mean, alone.mean, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("more", [0, 2])
def test_torch_does_the_same(masked, more):
    """What runs on other devices than a CPU."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, d, generator=g, dtype=torch.float64) for n, d in ((4, 6), (5, 6), (5, 2)))
    pairs = torch.rand(2, 4, 5, generator=g) < 0.5 if masked else None
    shared = tuple(
        (torch.randn(2, 3, 4, 1, generator=g).double(), torch.randn(2, 4, 5, generator=g).double()) for _ in range(more)
    )
    if pairs is not None:
        pairs[0, 0] = False
    ours, torchs = (f(q, k, v, pairs, shared) for f in (separable.plainly, separable.through_torch))
    if pairs is not None:
        some = pairs.any(-1)[:, None, :, None]
        ours, torchs = ours * some, torchs * some  # nothing to see: left to the caller
    torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize(("name", "value"), [("band", (2.0, 1.0)), ("turned", 1.5)])
def test_settings_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        SeparableAttention(DZ, H, D, Geometry(), 1, moves=False, **{name: value})


def wrapped(n=30, wave=6.0, dx=1, seed=0):
    """Places, and a function of the phase of a wave there whose second harmonic is stronger than the first."""
    g = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(2, n, dx, generator=g, dtype=torch.float64) - 2
    phase = wave * x[..., :1]
    return x, 0.6 * torch.sin(phase) + torch.cos(2 * phase)


def test_errors_of_waves_are_those_of_pairs():
    """With two outputs, each observed at other points."""
    x, y = wrapped()
    observed = torch.stack([torch.arange(30) % 5 > 0, torch.arange(30) % 3 > 0], -1).double().expand(2, -1, -1)
    y = torch.cat([y, x], -1) * observed
    angle = x * torch.linspace(0.5, 12, 7, dtype=torch.float64)
    weight = torch.cos((angle[:, :, None] - angle[:, None]) / 2) ** (2 * folding.SHARPNESS)
    weight = weight * (1 - torch.eye(30, dtype=torch.float64))[..., None]
    value, total = (torch.einsum("bijr,bjy->biyr", weight, t) for t in (y, observed))
    left = observed[..., None] * (y[..., None] - value / (total + folding.PRIOR))
    formula = left.square().sum((1, 2)) / observed.sum((1, 2))[:, None]
    torch.testing.assert_close(folding.errors(angle, y, observed), formula, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dx", [1, 2])
def test_a_fundamental_is_found_though_its_second_harmonic_is_stronger(dx):
    """Between the waves that are tried, too, and where data have noise and lie elsewhere. With two inputs as near as
    waves in random directions come."""
    x, y = wrapped(60, wave=6.03, dx=dx)
    y = y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    torch.manual_seed(0)
    spectrum = Spectrum(60 if dx == 1 else 3000, dx, DZ, Geometry(), (0.1, 15.0)).double()
    ones = torch.ones_like(y)
    lines = spectrum(x, y, ones, ones)
    found, wanted = lines.fundamental.abs()[:, 0], torch.tensor(6.03).double().expand(2)
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0)
    assert (lines.vectors[lines.strength[:, 0].argmax(-1)].norm(dim=-1) - 12.06).abs().max() < 0.6
    torch.testing.assert_close(spectrum(x + 100, y, ones, ones).fundamental, lines.fundamental)


def test_folding_finds_more_periods_than_the_power_does():
    """What docs/separable.md says."""
    task = GPTask(kernels=("periodic",), points=(32, 32))
    batch, truth = task.sample_with_truth(300, generator_for(0, 0))
    x, y = batch.xc - batch.xc.mean(1, keepdim=True), batch.yc - batch.yc.sum(1, keepdim=True) / 33
    waves = torch.linspace(26 / 64, 26, 64)
    power = sum((y * wave(x * waves)).sum(1).square() for wave in (torch.cos, torch.sin))
    error = folding.errors(x * waves, y, torch.ones_like(y))
    by_error, by_power = (
        ((waves[best] - 2 * math.pi / truth.length[:, 0]).abs() < 0.4).float().mean()
        for best in (error.argmin(1), power.argmax(1))
    )
    assert by_error > 0.9
    assert by_power < 0.8


@pytest.mark.parametrize("n", [0, 1])
def test_next_to_no_data_has_a_fundamental_that_round_off_does_not_choose(n):
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(100, n, 1, generator=g) for _ in range(2))
    spectrum = Spectrum(64, 1, DZ, Geometry(), (0.1, 26.0))
    lines = spectrum(x, y, torch.ones_like(y), torch.ones_like(y))
    moved = spectrum(x + 64, y, torch.ones_like(y), torch.ones_like(y))
    torch.testing.assert_close(moved.fundamental, lines.fundamental, rtol=1e-3, atol=1e-3)
    assert lines.fundamental.isfinite().all()


def test_all_waves_run_the_same_way():
    """Else neighbours would turn folded heads in opposite ways."""
    assert (Spectrum(64, 1, DZ, Geometry(), (0.1, 26.0)).waves.free > 0).all()


def test_a_fundamental_does_not_depend_on_the_unit_of_places():
    x, y = wrapped(40, wave=6.1)
    near, ones = torch.full((2, 1), 6.0, dtype=torch.float64), torch.ones_like(y)
    tuned = [
        folding.tune(near / unit, x * unit, y, ones, torch.tensor(0.3 / unit).double(), [0]) * unit
        for unit in (1, 1000)
    ]
    torch.testing.assert_close(tuned[0], tuned[1])
    assert ((tuned[0] - 6.1).abs() < 0.05).all()


def test_a_wave_around_a_circle_stays_whole():
    x, y = wrapped(40, wave=6.0, dx=2)
    spectrum = Spectrum(300, 2, DZ, Geometry.of(2, (2 * math.pi, None), None), (0.1, 9.0)).double()
    whole = spectrum(x, y, torch.ones_like(y), torch.ones_like(y)).fundamental[:, 0]
    torch.testing.assert_close(whole, whole.round())


def test_gradients_of_a_spectrum_reach_the_data():
    """By finite differences."""
    x, y = (t[:1] for t in wrapped(12))
    spectrum = Spectrum(20, 1, DZ, Geometry(), (0.1, 15.0)).double()

    def strength(x, y):
        return spectrum(x, y, torch.ones_like(y), torch.ones_like(y)).strength

    assert torch.autograd.gradcheck(strength, (x.requires_grad_(), y.requires_grad_()))


def test_few_waves_fit_a_circle_too():
    """Though all of them may run in other directions by chance; not if the band is too short for any."""
    geometry = Geometry.of(2, (3.0, None), None)
    for seed in range(20):
        torch.manual_seed(seed)
        assert Waves(torch.tensor([[2.5]]), 2, geometry).whole.any()
    with pytest.raises(ValueError, match="must reach"):
        Waves(torch.tensor([[1.0]]), 2, geometry)
