"""The rotary kernel against its formula, written out for every pair."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch.nn.functional import softplus

from conftest import small_model
from shiftnp.attention import rotary as functions
from shiftnp.attention.rotary import Rotation, attend, attend_explicit, attend_sdpa
from shiftnp.geometry import Geometry
from shiftnp.kernels import Rotary, rotary
from shiftnp.kernels.base import AttentionSize
from shiftnp.kernels.frequencies import FrequencyBank
from shiftnp.nn.tokens import Tokens

B, NQ, NK, DX, DZ, H, D = 2, 4, 5, 2, 6, 3, 4
PRECISIONS = (torch.float32, torch.float64)


def size(dims=DX, geometry=None):
    return AttentionSize(DZ, H, D, dims, geometry or Geometry())


def by_pairs(attention, q, k):
    """Scores from displacements alone, pair by pair, and rotated values."""
    heads, d = attention.heads, q.x[:, :, None] - k.x[:, None]  # [b, nq, nk, dx]
    zq, zk, v = heads.project(q.z, k.z)
    score = torch.einsum("bhqd,bhkd->bhqk", zq, zk) / math.sqrt(D)
    complex_q, complex_k = (
        torch.view_as_complex(heads.split(layer(z)).unflatten(-1, (-1, 2)).contiguous())
        for layer, z in ((attention.to_q_rotary, q.z), (attention.to_k_rotary, k.z))
    )

    def phases(bank):
        return torch.exp(1j * torch.einsum("bqkd,hrd->bhqkr", d, bank.flat))

    phase = phases(attention.score_frequencies)
    relative = torch.einsum("bhqr,bhkr,bhqkr->bhqk", complex_q, complex_k.conj(), phase)
    score = score + relative.real / math.sqrt(attention.frequencies)
    width = softplus(heads.split(attention.to_locality(q.z)))
    score = score - width * d.square().sum(-1)[:, None]
    alpha = score.softmax(-1).to(torch.complex128)
    rotated = phases(attention.value_frequencies).conj()
    values = torch.view_as_complex(v.unflatten(-1, (-1, 2)).contiguous())
    out = torch.view_as_real(torch.einsum("bhqk,bhqkr,bhkr->bhqr", alpha, rotated, values)).flatten(-2)
    strength = heads.split(attention.to_step(q.z))
    step = (strength * torch.einsum("bhqk,bqkd->bhqd", alpha.real, -d)).mean(1)
    return heads.merge(out.transpose(1, 2), None), step


@pytest.fixture
def setup():
    g = torch.Generator().manual_seed(0)

    def gauss(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = Rotary(frequencies=3).attention(size(), location_update=True).double()
    q, k = (Tokens(gauss(B, n, DZ), gauss(B, n, DX)) for n in (NQ, NK))
    return attention, q, k


def test_it_is_its_formula(setup):
    attention, q, k = setup
    for ours, formula in zip(attention(q, k, None), by_pairs(attention, q, k), strict=True):
        torch.testing.assert_close(ours, formula, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("period", [None, (3.0, None)])
def test_it_is_the_same_pair_by_pair(setup, period):
    """As it is computed with a mask."""
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


@pytest.mark.parametrize("masked", [False, True])
def test_many_queries_go_in_chunks(setup, masked, monkeypatch):
    """Whatever the size of a chunk: values and gradients are those of one piece."""
    attention, q, k = setup
    mask = torch.rand(B, NQ, NK, generator=torch.Generator().manual_seed(1)) < 0.7 if masked else None
    outcomes = []
    for most in (1 << 24, 1, H * NQ * NK):
        monkeypatch.setattr(rotary, "MOST_SCORES", most)
        monkeypatch.setattr(rotary, "CACHED_SCORES", most)
        out, offset = attention(q, k, mask)
        gradients = torch.autograd.grad((out.sin() + offset.sum()).sum(), list(attention.parameters()))
        with torch.no_grad():
            outcomes.append([out, offset, *gradients, *attention(q, k, mask)])
    for one, *chunks in zip(*outcomes, strict=True):
        for other in chunks:
            torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)


def test_memory_is_bounded():
    """20,000 context points have 3.2e9 scores in eight heads: 13 GB for each layer, if they were held at once."""
    code = """
import torch
from shiftnp._machine import peak_megabytes
from shiftnp.kernels import Rotary
from shiftnp.models import TETNP
torch.set_num_threads(1)
model = TETNP(dx=1, dy=1, dz=16, heads=8, head_dim=4, layers=1, kernel=Rotary(frequencies=2, period_search=4))
x = torch.linspace(-4, 4, 6000)[:, None]
model.predict(x[:10], x[:10], x[:10])
before = peak_megabytes()
model.predict(x, x.sin(), x[:10])
print(peak_megabytes() - before)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 700  # 6,000 points have 2.9e8 scores: 1.2 GB, held twice by a softmax


def test_frequencies_are_log_spaced_and_interleaved_across_heads():
    attention = Rotary(frequencies=4, band=(0.5, 8.0)).attention(size(), False)
    length = attention.score_frequencies.flat.norm(dim=-1)
    expected = torch.logspace(math.log10(0.5), math.log10(8.0), H * 4)
    torch.testing.assert_close(length.flatten().sort().values, expected)
    assert (length.amax(1) / length.amin(1) > 4).all()  # each spans the band


def test_along_a_circle_frequencies_are_harmonics():
    bank = Rotary().attention(size(2, Geometry.of(2, (8.0, None), None)), True).score_frequencies
    multiple = bank.vectors(torch.float64)[..., 0] * 8 / (2 * math.pi)
    torch.testing.assert_close(multiple, multiple.round(), rtol=0, atol=1e-12)
    assert multiple.any()
    assert bank.flat.shape[-1] == 1


def test_a_band_must_reach_the_first_harmonic_of_a_circle():
    with pytest.raises(ValueError, match=r"band .* period of 1: it must reach 6.28"):
        Rotary(band=(0.2, 3.0)).attention(size(1, Geometry.of(1, 1.0, None)), False)


def test_a_long_domain_does_not_round_neighbours_away():
    """Far from the mean of all keys, a query with neighbours attends to them as it would without the others."""
    model = small_model("te-tnp", kernel="rotary", radius=1.0, location_update=False, dtype=torch.float32)
    g = torch.Generator().manual_seed(0)
    near = 2**14 + torch.rand(1, 12, 1, generator=g)
    far = torch.cat([near, torch.arange(200.0)[None, :, None] * -100], 1)
    y = torch.randn(1, far.shape[1], 1, generator=g)
    alone, among = model(near, y[:, :12], near), model(far, y, near)
    torch.testing.assert_close(among.mean, alone.mean, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("masked", [False, True])
def test_a_long_domain_loses_nothing_in_float32(masked):
    """Without a radius, with weights in float32 and inputs in float64: the answer is that of weights in float64."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(1, 60, 1, generator=g, dtype=torch.float64) * 1e5
    y, mask = torch.randn(1, 60, 1, generator=g, dtype=torch.float64), torch.ones(1, 60, dtype=torch.bool)
    mask[0, -1] = not masked
    single, double = (small_model("te-tnp", kernel="rotary", location_update=False, dtype=t) for t in PRECISIONS)
    torch.testing.assert_close(single(x, y, x, mask).mean.double(), double(x, y, x, mask).mean, rtol=1e-4, atol=1e-5)


def test_an_outlier_beyond_the_receptive_field_changes_nothing():
    model = small_model("te-tnp", kernel="rotary", radius=1.0, location_update=False, dtype=torch.float32)
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(1, 12, 1, generator=g, dtype=torch.float64) for _ in range(2))
    far = torch.cat([x, torch.full((1, 1, 1), 1e9, dtype=torch.float64)], 1)
    among = model(far, torch.cat([y, y[:, :1]], 1), x)
    torch.testing.assert_close(among.mean, model(x, y, x).mean, rtol=1e-5, atol=1e-6)


def test_weights_in_bfloat16_run():
    model, x = small_model("te-tnp", kernel="rotary", dtype=torch.bfloat16), torch.randn(1, 6, 1)
    assert model(x, x, x).mean.isfinite().all()


def attention_inputs(masked, local):
    """Queries, keys, values, mask, widths and distances; the first query has no key."""
    g = torch.Generator().manual_seed(0)

    def gauss(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()

    pairs = torch.rand(2, 4, 5, generator=g) < 0.5 if masked else None
    if pairs is not None:
        pairs[0, 0] = False
    bias = (gauss(2, 3, 4, 1), gauss(2, 4, 5)) if local else (None, None)
    return gauss(2, 3, 4, 6), gauss(2, 3, 5, 6), gauss(2, 3, 5, 2), pairs, *bias


@pytest.mark.parametrize("at_once", [1, 1 << 20])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("local", [False, True])
def test_attention_is_the_same_on_all_devices(masked, local, at_once, monkeypatch):
    """`attend` on a CPU, what runs elsewhere, and the plain formula: values and gradients."""
    monkeypatch.setattr(functions, "SCORES_AT_ONCE", at_once)
    inputs = attention_inputs(masked, local)
    some = 1.0 if inputs[3] is None else inputs[3].any(-1)[:, None, :, None]
    graded = [t for t in inputs if t is not None and t.requires_grad]
    outcomes = []
    for f in (attend_explicit, attend_sdpa, attend):
        out = f(*inputs) * some  # queries without keys are left to the caller
        outcomes.append([out, *torch.autograd.grad(out.sin().sum(), graded)])
    for plain, *others in zip(*outcomes, strict=True):
        for other in others:
            torch.testing.assert_close(other, plain)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("rest", [0, 1, 2])
def test_gradients_of_rotations(inverse, rest):
    """Of channels, of those that are not rotated, and of angles."""
    g = torch.Generator().manual_seed(0)

    def gauss(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()

    # Channels are part of a wider tensor, whose width says whether they can be read as complex numbers in place.
    wide, angle, other = gauss(2, 3, 4, 6 + rest), gauss(2, 4, 3, 3), gauss(2, 3, 4, 2)

    def rotate(wide, angle, other):
        return Rotation.by(angle, torch.float64)(wide[..., :6], other if rest else None, inverse)

    assert torch.autograd.gradcheck(rotate, (wide, angle, other))
    points = torch.view_as_complex(wide[..., :6].unflatten(-1, (-1, 2)).contiguous()).transpose(1, 2)
    expected = torch.view_as_real(points * torch.exp((-1j if inverse else 1j) * angle)).flatten(-2)
    torch.testing.assert_close(rotate(wide, angle, other)[..., :6], expected)


def test_few_frequencies_fit_a_circle_too():
    """Though all of them may point in other directions by chance; not if the band is too short for any."""
    geometry = Geometry.of(2, (3.0, None), None)
    for seed in range(20):
        torch.manual_seed(seed)
        assert FrequencyBank(torch.tensor([[2.5]]), 2, geometry).harmonics.any()
    with pytest.raises(ValueError, match="must reach"):
        FrequencyBank(torch.tensor([[1.0]]), 2, geometry)
