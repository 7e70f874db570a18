"""The rotary kernel against its formula, written out for every pair; and its period search."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch.nn.functional import softplus

from conftest import small_model
from shiftnp.attention import bias
from shiftnp.attention.rotary import attend_explicit, attend_sdpa
from shiftnp.geometry import Geometry
from shiftnp.kernels import Rotary, folding
from shiftnp.kernels.base import AttentionSize
from shiftnp.kernels.frequencies import FrequencyBank
from shiftnp.kernels.period import PeriodSearch, SpectralSummary
from shiftnp.models import TEPTTNP, TETNP
from shiftnp.nn.tokens import Tokens
from shiftnp.tasks.base import generator_for
from shiftnp.tasks.gp import GPTask

B, NQ, NK, DX, DZ, H, D = 2, 4, 5, 2, 6, 3, 4
PRECISIONS = (torch.float32, torch.float64)


def size(dims=DX, geometry=None):
    return AttentionSize(DZ, H, D, dims, geometry or Geometry())


def search(n, band, dims=1, geometry=None):
    return PeriodSearch(n, band, size(dims, geometry))


def summarise(module, x, y, observed=None, there=None):
    observed = torch.ones_like(y) if observed is None else observed
    there = torch.ones_like(y[..., :1]) if there is None else there
    return module.summarise(x, y, observed, there, x.new_zeros(len(x), 1, x.shape[-1]))


def by_pairs(attention, q, k):
    """Scores from displacements alone, pair by pair, and rotated values."""
    heads, d = attention.heads, q.x[:, :, None] - k.x[:, None]  # [b, nq, nk, dx]
    zq, zk, v = heads.project(q.z, k.z)
    score = torch.einsum("bhqd,bhkd->bhqk", zq, zk) / math.sqrt(D)
    complex_q, complex_k = (
        torch.view_as_complex(heads.split(layer(z)).unflatten(-1, (-1, 2)).contiguous())
        for layer, z in ((attention.to_q_rotary, q.z), (attention.to_k_rotary, k.z))
    )

    def phases(bank, harmonics):
        angle = torch.einsum("bqkd,hrd->bhqkr", d, bank.flat)
        if attention.harmonic_heads:
            one = torch.einsum("bqkd,bd->bqk", d, q.summary.fundamental)[:, None, ..., None]
            folded = one * torch.tensor(harmonics[: angle.shape[-1]])
            angle = torch.cat([angle, folded.expand(-1, attention.harmonic_heads, -1, -1, -1)], 1)
        return torch.exp(1j * angle)

    phase = phases(attention.score_frequencies, [1, 1, 2, 2, 3, 3])
    relative = torch.einsum("bhqr,bhkr,bhqkr->bhqk", complex_q, complex_k.conj(), phase)
    score = score + relative.real / math.sqrt(attention.frequencies)
    width = softplus(heads.split(attention.to_locality(q.z)))
    score = score - width * d.square().sum(-1)[:, None]
    if attention.to_bias_gain is not None:
        gain = heads.split(attention.to_bias_gain(q.z))
        score = score + torch.einsum("bhqs,bsqk->bhqk", gain, q.attention_bias.maps)
    alpha = score.softmax(-1).to(torch.complex128)
    rotated = phases(attention.value_frequencies, [0, 0, 1, 1, 2, 2]).conj()
    values = torch.view_as_complex(v.unflatten(-1, (-1, 2)).contiguous())
    out = torch.view_as_real(torch.einsum("bhqk,bhqkr,bhkr->bhqr", alpha, rotated, values)).flatten(-2)
    strength = heads.split(attention.to_step(q.z))
    step = (strength * torch.einsum("bhqk,bqkd->bhqd", alpha.real, -d)).mean(1)
    return heads.merge(out, None), step


@pytest.fixture(params=[False, True], ids=["", "period search"])
def setup(request):
    g = torch.Generator().manual_seed(0)

    def gauss(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        kernel = Rotary(frequencies=3, period_search=5 if request.param else 0)
        attention = kernel.attention(size(), location_update=True).double()
        module = search(5, (0.5, 3.0), DX).double()
    q, k = (Tokens(gauss(B, n, DZ), gauss(B, n, DX)) for n in (NQ, NK))
    if request.param:
        keys, centre = module._phases(k.x), k.x.new_zeros(B, 1, DX)
        summary = SpectralSummary(gauss(B, 2, 5).softmax(-1), gauss(B, DX), gauss(B, 1, DZ), keys, centre)
        maps = (summary.autocorrelation(module._phases(t.x)) for t in (q, k))
        q, k = (t._replace(summary=summary, attention_bias=m) for t, m in zip((q, k), maps, strict=True))
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
    if q.attention_bias is not None:
        q = q._replace(attention_bias=bias.LowRankBias.of(q.attention_bias.q, q.attention_bias.k[:, :NQ]))
    copy = q._replace(x=q.x.clone())
    for same, other in zip(attention(q, q, None), attention(q, copy, None), strict=True):
        torch.testing.assert_close(same, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_many_queries_go_in_chunks(setup, masked, monkeypatch):
    """Whatever the size of a chunk: values and gradients are those of one piece."""
    attention, q, k = setup
    mask = torch.rand(B, NQ, NK, generator=torch.Generator().manual_seed(1)) < 0.7 if masked else None
    outcomes = []
    for most in (1 << 24, 1):
        monkeypatch.setattr(bias, "MOST_SCORES", most)
        if q.attention_bias is not None:  # as factors where chunks are small
            maps = bias.LowRankBias.of(q.attention_bias.q, q.attention_bias.k)
            assert (maps.maps is None) == (most == 1)
            q = q._replace(attention_bias=maps)
        out, offset = attention(q, k, mask)
        gradients = torch.autograd.grad((out.sin() + offset.sum()).sum(), list(attention.parameters()))
        with torch.no_grad():
            outcomes.append([out, offset, *gradients, *attention(q, k, mask)])
    for one, chunks in zip(*outcomes, strict=True):
        torch.testing.assert_close(chunks, one, rtol=1e-12, atol=1e-12)


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


def test_autocorrelation_is_its_formula():
    g = torch.Generator().manual_seed(1)
    module = search(5, (0.5, 3.0), 2).double()
    vectors = module.candidates.vectors(torch.float64)[0]
    xq, xk = (torch.randn(3, n, 2, generator=g, dtype=torch.float64) for n in (4, 6))
    weights = torch.rand(3, 2, 5, generator=g, dtype=torch.float64)
    wave = torch.cos(torch.einsum("bqkd,rd->bqkr", xq[:, :, None] - xk[:, None], vectors))
    formula = torch.einsum("bsr,bqkr->bsqk", weights, wave)
    zeros = torch.zeros(3, 1, 2)
    summary = SpectralSummary(weights, xq[:, 0], zeros, module._phases(xk), zeros.double())
    ours = summary.autocorrelation(module._phases(xq)).maps
    torch.testing.assert_close(ours, formula, rtol=1e-12, atol=1e-12)


def test_weights_are_powers_of_the_data_wherever_it_lies():
    """The strongest candidate of a wave is its own frequency, with padding, gaps and a shift."""
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)[None, :, None].repeat(2, 1, 1)
    y = torch.cat([3 + torch.sin(5 * x), torch.cos(5 * x)], -1)
    x[1] += 7.3
    observed = (torch.arange(41) % 7 != 3).double()[None, :, None] * torch.tensor([1.0, 1.0])
    there = (torch.arange(41) < 30).double()[None, :, None].expand(2, -1, -1)
    module = search(40, (0.1, 10.0)).double()
    vectors = module.candidates.vectors(torch.float64)[0]
    summary = summarise(module, x, y, (observed * there).expand_as(y), there)
    assert (vectors[summary.weights.argmax(-1)].abs() == 5).all()
    torch.testing.assert_close(summary.weights[0], summary.weights[1])
    torch.testing.assert_close(summary.embedding[0], summary.embedding[1])
    torch.testing.assert_close(summary.fundamental.abs(), torch.full((2, 1), 5.0).double(), rtol=2e-3, atol=0)
    y[:, 30:], y[:, 3] = 9.0, 9.0  # not there, not observed
    again = summarise(module, x, y, (observed * there).expand_as(y), there)
    torch.testing.assert_close(again.weights, summary.weights)


def test_a_period_search_needs_the_whole_context():
    with pytest.raises(ValueError, match=r"period_search .* radius"):
        TETNP(1, 1, kernel=Rotary(period_search=3), radius=1.0)
    with pytest.raises(ValueError, match=r"te-pt-tnp .* period_search"):
        TEPTTNP(1, 1, kernel=Rotary(period_search=3))


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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("maps", [0, 2])
def test_sdpa_does_the_same(masked, maps):
    """What runs on other devices than a CPU."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, d, generator=g, dtype=torch.float64) for n, d in ((4, 6), (5, 6), (5, 2)))
    pairs = torch.rand(2, 4, 5, generator=g) < 0.5 if masked else None
    shared = tuple(
        (torch.randn(2, 3, 4, 1, generator=g).double(), torch.randn(2, 4, 5, generator=g).double()) for _ in range(maps)
    )
    if pairs is not None:
        pairs[0, 0] = False
    ours, torchs = (f(q, k, v, pairs, shared) for f in (attend_explicit, attend_sdpa))
    if pairs is not None:
        some = pairs.any(-1)[:, None, :, None]
        ours, torchs = ours * some, torchs * some  # queries without keys are left to the caller
    torch.testing.assert_close(ours, torchs)


def wrapped(n=30, wave=6.0, dx=1, seed=0):
    """Inputs, and a periodic function there whose second harmonic is stronger than the first."""
    g = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(2, n, dx, generator=g, dtype=torch.float64) - 2
    phase = wave * x[..., :1]
    return x, 0.6 * torch.sin(phase) + torch.cos(2 * phase)


def test_fold_errors_are_those_of_pairs():
    """With two outputs, each observed at other points."""
    x, y = wrapped()
    observed = torch.stack([torch.arange(30) % 5 > 0, torch.arange(30) % 3 > 0], -1).double().expand(2, -1, -1)
    y = torch.cat([y, x], -1) * observed
    angle = x * torch.linspace(0.5, 12, 7, dtype=torch.float64)
    weight = torch.cos((angle[:, :, None] - angle[:, None]) / 2) ** (2 * folding.SHARPNESS)
    weight = weight * (1 - torch.eye(30, dtype=torch.float64))[..., None]
    value, total = (torch.einsum("bijr,bjy->biyr", weight, t) for t in (y, observed))
    left = observed[..., None] * (y[..., None] - value / (total + folding.PSEUDO_COUNT))
    formula = left.square().sum((1, 2)) / observed.sum((1, 2))[:, None]
    torch.testing.assert_close(folding.fold_errors(angle, y, observed), formula, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dx", [1, 2])
def test_a_fundamental_is_found_though_its_second_harmonic_is_stronger(dx):
    """Between the candidates, too, and where data have noise and lie elsewhere. With two inputs as near as candidates
    in random directions come."""
    x, y = wrapped(60, wave=6.03, dx=dx)
    y = y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    torch.manual_seed(0)
    module = search(60 if dx == 1 else 3000, (0.1, 15.0), dx).double()
    summary = summarise(module, x, y)
    found, wanted = summary.fundamental.abs()[:, 0], torch.tensor(6.03).double().expand(2)
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0)
    vectors = module.candidates.vectors(torch.float64)[0]
    assert (vectors[summary.weights[:, 0].argmax(-1)].norm(dim=-1) - 12.06).abs().max() < 0.6
    torch.testing.assert_close(summarise(module, x + 100, y).fundamental, summary.fundamental)


def test_folding_finds_more_periods_than_the_power_does():
    """What docs/rotary.md says."""
    task = GPTask(kernels=("periodic",), points=(32, 32))
    batch, truth = task.sample_with_truth(300, generator_for(0, 0))
    x, y = batch.xc - batch.xc.mean(1, keepdim=True), batch.yc - batch.yc.sum(1, keepdim=True) / 33
    waves = torch.linspace(26 / 64, 26, 64)
    power = sum((y * wave(x * waves)).sum(1).square() for wave in (torch.cos, torch.sin))
    error = folding.fold_errors(x * waves, y, torch.ones_like(y))
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
    module = search(64, (0.1, 26.0))
    here, moved = summarise(module, x, y), summarise(module, x + 64, y)
    torch.testing.assert_close(moved.fundamental, here.fundamental, rtol=1e-3, atol=1e-3)
    assert here.fundamental.isfinite().all()


def test_candidates_have_one_sign():
    """Else neighbouring candidates would rotate harmonic heads in opposite directions."""
    assert (search(64, (0.1, 26.0)).candidates.flat > 0).all()


def test_a_fundamental_does_not_depend_on_the_unit_of_inputs():
    x, y = wrapped(40, wave=6.1)
    near, ones = torch.full((2, 1), 6.0, dtype=torch.float64), torch.ones_like(y)
    tuned = [
        folding.gauss_newton_step(near / unit, x * unit, y, ones, torch.tensor(0.3 / unit).double(), [0]) * unit
        for unit in (1, 1000)
    ]
    torch.testing.assert_close(tuned[0], tuned[1])
    assert ((tuned[0] - 6.1).abs() < 0.05).all()


@pytest.mark.parametrize("pairs", [1, 90, 1 << 22])
def test_gauss_newton_does_not_depend_on_chunks(pairs, monkeypatch):
    x, y = wrapped(40, wave=6.1)
    near, ones, reach = torch.full((2, 1), 6.0, dtype=torch.float64), torch.ones_like(y), torch.tensor(0.3).double()
    whole = folding.gauss_newton_step(near, x, y, ones, reach, [0])
    monkeypatch.setattr(folding, "MOST_PAIRS", pairs)
    torch.testing.assert_close(folding.gauss_newton_step(near, x, y, ones, reach, [0]), whole, rtol=1e-12, atol=0)


def test_a_fundamental_around_a_circle_is_a_harmonic():
    x, y = wrapped(40, wave=6.0, dx=2)
    module = search(300, (0.1, 9.0), 2, Geometry.of(2, (2 * math.pi, None), None)).double()
    multiple = summarise(module, x, y).fundamental[:, 0]
    torch.testing.assert_close(multiple, multiple.round())


def test_gradients_of_a_period_search_reach_the_data():
    """By finite differences."""
    x, y = (t[:1] for t in wrapped(12))
    module = search(20, (0.1, 15.0)).double()
    assert torch.autograd.gradcheck(
        lambda x, y: summarise(module, x, y).weights, (x.requires_grad_(), y.requires_grad_())
    )


def test_few_frequencies_fit_a_circle_too():
    """Though all of them may point in other directions by chance; not if the band is too short for any."""
    geometry = Geometry.of(2, (3.0, None), None)
    for seed in range(20):
        torch.manual_seed(seed)
        assert FrequencyBank(torch.tensor([[2.5]]), 2, geometry).harmonics.any()
    with pytest.raises(ValueError, match="must reach"):
        FrequencyBank(torch.tensor([[1.0]]), 2, geometry)
