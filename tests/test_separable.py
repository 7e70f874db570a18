"""The kernel that factors: against its formula, written out for every pair."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import softplus

from conftest import small_model
from shiftnp.attention import separable
from shiftnp.displacement import Geometry
from shiftnp.models import TETNP
from shiftnp.nn.separable import SeparableAttention
from shiftnp.nn.spectrum import Lines, Spectrum
from shiftnp.nn.tokens import Tokens

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
    phase = torch.exp(1j * torch.einsum("bqkd,hrd->bhqkr", d, attention.waves.free))
    waves = torch.einsum("bhqr,bhkr,bhqkr->bhqk", complex_q, complex_k.conj(), phase)
    score = score + waves.real / math.sqrt(attention.frequencies)
    width = softplus(heads.split(attention.to_window(q.z)))
    score = score - width * d.square().sum(-1)[:, None]
    if attention.to_gain is not None:
        gain = heads.split(attention.to_gain(q.z)) @ k.lines.strength[:, None]
        lines = torch.cos(torch.einsum("bqkd,rd->bqkr", d, k.lines.vectors))
        score = score + torch.einsum("bhqr,bqkr->bhqk", gain, lines)
    alpha = score.softmax(-1).to(torch.complex128)
    turned = torch.exp(-1j * torch.einsum("bqkd,hrd->bhqkr", d, attention.value_waves.free))
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
    lines = Lines(gauss(5, DX), gauss(B, 2, 5).softmax(-1), gauss(B, 1, DZ)) if request.param else None
    q, k = (Tokens(gauss(B, n, DZ), gauss(B, n, DX), lines=lines) for n in (NQ, NK))
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
    copy = q._replace(x=q.x.clone())
    for same, other in zip(attention(q, q, None), attention(q, copy, None), strict=True):
        torch.testing.assert_close(same, other, rtol=1e-12, atol=1e-12)


def test_strengths_are_powers_of_the_data_wherever_it_lies():
    """The strongest line of a wave is its own, with padding, gaps and a shift."""
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)[None, :, None].repeat(2, 1, 1)
    y = torch.cat([3 + torch.sin(5 * x), torch.cos(5 * x)], -1)
    x[1] += 7.3
    observed = (torch.arange(41) % 7 != 3).double()[None, :, None] * torch.tensor([1.0, 1.0])
    there = (torch.arange(41) < 30).double()[None, :, None].expand(2, -1, -1)
    spectrum = Spectrum(10, 1, DZ, Geometry(), (0.1, 10.0)).double()
    lines = spectrum(x, y, (observed * there).expand_as(y), there)
    assert (lines.vectors[lines.strength.argmax(-1)].abs() == 5).all()
    torch.testing.assert_close(lines.strength[0], lines.strength[1])
    torch.testing.assert_close(lines.about[0], lines.about[1])
    assert lines.strength[0, 1].max() > lines.strength[0, 0].max()  # sharpened
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
