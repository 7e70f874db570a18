"""The specification against the paper's formulas written out as loops over single numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from shiftnp.attention.reference import location_step, softmax_over_keys, te_attention
from shiftnp.nn.mlp import MLP

B, H, NQ, NK, D, DX = 2, 3, 4, 5, 2, 2


@pytest.fixture
def setup():
    g = torch.Generator().manual_seed(0)

    def gauss(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()

    with torch.random.fork_rng():
        torch.manual_seed(0)
        rho, phi = MLP(H + DX, H, 7, bias_out=False).double(), MLP(H, H, 7).double()
    q, k, v = gauss(B, H, NQ, D), gauss(B, H, NK, D), gauss(B, H, NK, D)
    xq, xk = gauss(B, NQ, DX), gauss(B, NK, DX)
    pairs = torch.rand(B, NQ, NK, generator=g) < 0.6
    pairs[0, 0] = False  # a query that sees nothing
    return q, k, v, xq, xk, rho, phi, pairs


def by_hand(q, k, v, xq, xk, rho, phi, pairs):
    """Eqs. 5, 6 and 8, pair by pair."""
    out, moved = torch.zeros(B, H, NQ, D, dtype=q.dtype), []
    for b in range(B):
        for n in range(NQ):
            seen = [m for m in range(NK) if pairs is None or pairs[b, n, m]]
            logits = []
            for m in seen:
                score = [sum(q[b, h, n, i] * k[b, h, m, i] for i in range(D)) / math.sqrt(D) for h in range(H)]
                logits.append(rho(torch.cat([torch.stack(score), xq[b, n] - xk[b, m]])))
            step = torch.zeros(DX, dtype=q.dtype)
            if seen:
                exps = torch.stack(logits).exp()
                alpha = exps / exps.sum(0)
                for h in range(H):
                    out[b, h, n] = sum(alpha[i, h] * v[b, h, m] for i, m in enumerate(seen))
                step = sum((xq[b, n] - xk[b, m]) * phi(alpha[i]).sum() for i, m in enumerate(seen)) / len(seen)
            moved.append(step)
    return out, torch.stack(moved).view(B, NQ, DX)


@pytest.mark.parametrize("masked", [False, True])
def test_against_loops(setup, masked):
    q, k, v, xq, xk, rho, phi, pairs = setup
    pairs = pairs if masked else None
    displacement = xq[:, :, None] - xk[:, None]
    out, alpha = te_attention(q, k, v, displacement, rho, pairs)
    step = location_step(displacement, alpha, phi, pairs)
    out_hand, step_hand = by_hand(q, k, v, xq, xk, rho, phi, pairs)
    torch.testing.assert_close(out, out_hand)
    torch.testing.assert_close(step, step_hand)
    leaves = [q, k, v, xq, xk, *rho.parameters(), *phi.parameters()]
    grads, grads_hand = (
        torch.autograd.grad((o.square().sum() + s.sin().sum()), leaves, retain_graph=True)
        for o, s in ((out, step), (out_hand, step_hand))
    )
    for a, b in zip(grads, grads_hand, strict=True):
        torch.testing.assert_close(a, b)


def test_weights_sum_to_one_or_to_nothing(setup):
    *_, pairs = setup
    logits = torch.randn(B, H, NQ, NK, generator=torch.Generator().manual_seed(1))
    alpha = softmax_over_keys(logits, pairs)
    total = alpha.sum(-1)
    assert torch.equal(alpha == 0, ~pairs[:, None].expand_as(alpha))
    torch.testing.assert_close(total, pairs.any(-1).float()[:, None].expand_as(total))


def test_mlp_without_last_bias():
    assert [layer.bias is None for layer in MLP(2, 3, 4, bias_out=False).layers] == [False, False, True]
    assert isinstance(MLP(2, 3, 4, hidden=0).layers[0], nn.Linear)
