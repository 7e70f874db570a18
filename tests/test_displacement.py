from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import random_batch
from shiftnp.displacement import Geometry

angles = st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6)


def test_flat_displacement_is_a_difference():
    x = random_batch(dx=2)
    d = Geometry().displacement(x.xc, x.xt)
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


def test_centre_of_a_circle_ignores_the_seam():
    g = Geometry.of(1, 360.0, None)
    x = torch.tensor([[[350.0], [10.0], [30.0]]], dtype=torch.float64)
    expected = torch.tensor([[[10.0]]], dtype=torch.float64)
    torch.testing.assert_close(g.wrap(g.centre(x, None) - expected), torch.zeros_like(expected), rtol=0, atol=1e-9)
    torch.testing.assert_close(g.centre(x + 100.0, None), expected + 100.0)


def test_pairs():
    x = torch.tensor([[[0.0], [1.0], [9.5]]])
    mask = torch.tensor([[True, False, True]])
    assert Geometry().pairs(x, x, None) is None
    assert torch.equal(Geometry().pairs(x, x, mask), mask[:, None])
    near = Geometry.of(1, None, 1.0).pairs(x, x, None)
    assert near.tolist() == [[[True, True, False], [True, True, False], [False, False, True]]]
    around = Geometry.of(1, 10.0, 1.0).pairs(x, x, mask)
    assert around.tolist() == [[[True, False, True], [True, False, False], [True, False, True]]]


def test_no_period_at_all_is_flat():
    assert Geometry.of(2, (None, None), None) == Geometry()
