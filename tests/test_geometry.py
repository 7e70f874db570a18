from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_batch
from shiftnp.geometry import Geometry, Positions

angles = st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6)


def test_flat_displacement_is_a_difference():
    x = random_batch(dx=2)
    d = Geometry().displacement(Positions(x.xc), Positions(x.xt), x.xc.dtype)
    assert torch.equal(d[1, 2, 3], x.xc[1, 2] - x.xt[1, 3])


@given(angles)
def test_wrapped_displacement_is_the_shorter_way(values):
    g = Geometry.of(1, 360.0, None)
    d = torch.tensor(values, dtype=torch.float64)[:, None]
    wrapped = g.wrap(d)
    assert (wrapped.abs() <= 180.0 + 1e-9).all()
    turns = (d - wrapped) / 360.0
    torch.testing.assert_close(turns, turns.round(), rtol=0, atol=1e-9)


def test_only_circles_wrap():
    g = Geometry.of(2, (10.0, None), None)
    assert torch.equal(g.wrap(torch.tensor([[9.0, 9.0]])), torch.tensor([[-1.0, 9.0]]))


def test_centre_is_the_mean_of_what_is_there():
    x = random_batch(b=1, dx=2).xc
    mask = torch.tensor([[True, True, False, True, False, False]])
    torch.testing.assert_close(Geometry().centre(x, mask), x[:, [0, 1, 3]].mean(1, keepdim=True))
    assert torch.equal(Geometry().centre(x, ~mask & mask), torch.zeros(1, 1, 2, dtype=x.dtype))


def test_reach():
    x = torch.tensor([[[0.0], [1.0], [9.5]]])
    near, around = Geometry.of(1, None, 1), Geometry.of(1, 10, 1)
    assert near.within_reach(near.displacement(Positions(x), Positions(x), x.dtype)).tolist() == [
        [[True, True, False], [True, True, False], [False, False, True]]
    ]
    assert around.within_reach(around.displacement(Positions(x), Positions(x), x.dtype)).tolist() == [
        [[True, True, True], [True, True, False], [True, False, True]]
    ]


def test_nothing_jumps_half_a_period_away():
    g = Geometry.of(2, (10.0, None), None)
    a, b = (torch.tensor([[d, 1.0]], dtype=torch.float64) for d in (5.0 - 1e-9, -5.0 + 1e-9))
    for f in (g.features, g.smooth):
        torch.testing.assert_close(f(a), f(b), rtol=0, atol=1e-8)
    small = torch.tensor([[1e-3, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(g.smooth(small), small, rtol=1e-6, atol=0)
    assert g.features(small).shape[-1] == 2 + g.extra_features


def test_average_on_a_circle():
    g = Geometry.of(1, 360.0, None)
    x = torch.tensor([[[350.0], [10.0]]], dtype=torch.float64)
    psi = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]], dtype=torch.float64)
    turned = g.wrap(g.average(psi, x) - torch.tensor([[[0.0], [350.0]]], dtype=torch.float64))
    torch.testing.assert_close(turned, torch.zeros_like(turned), rtol=0, atol=1e-9)
    ring = (torch.arange(4, dtype=torch.float64) * 90.0)[None, :, None].requires_grad_()
    g.average(torch.full((1, 1, 4), 0.25, dtype=torch.float64), ring).sum().backward()
    assert ring.grad.isfinite().all()  # no direction, but no NaN either


def test_no_period_at_all_is_flat():
    assert Geometry.of(2, (None, None), None) == Geometry()
