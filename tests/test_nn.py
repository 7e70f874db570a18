"""Parts of models whose formulas can be checked on their own."""

from __future__ import annotations

import pytest
import torch

from conftest import random_batch, small_model
from shiftnp.geometry import Geometry
from shiftnp.models.base import NeuralProcess
from shiftnp.nn.pseudo import RelativePseudo
from shiftnp.nn.setconv import SetConv, interpolate, lay_lattice
from shiftnp.nn.tokens import Context, Tokens
from shiftnp.nn.unet import UNet


@pytest.mark.parametrize("initialiser", ["attention", "mean"])
def test_pseudo_locations_follow_the_context(initialiser):
    """Eq. 9: weights sum to one, so a single context point carries all pseudo-tokens with it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pseudo = RelativePseudo(4, 8, Geometry(), 2, heads=2, head_dim=4, initialiser=initialiser).double()
    z = torch.randn(1, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.tensor([[[3.0, -5.0]]], dtype=torch.float64)

    def places(c):
        u = pseudo(c)
        return u.x + u.offset

    torch.testing.assert_close(places(Tokens(z, x)), pseudo.v0 + x)
    two = Tokens(z.expand(-1, 2, -1), torch.cat([x, x + 2], 1))  # equal tokens, equal weights
    torch.testing.assert_close(places(two), pseudo.v0 + x + 1)
    nothing = Tokens(z, x, mask=torch.zeros(1, 1, dtype=torch.bool))
    assert not pseudo(nothing).mask.any()


def pixels(step=0.5):
    """Three points of a lattice with two channels, one of which is missing once."""
    x = torch.tensor([[[0.0, 0.0], [2.0, 1.0], [1.0, 3.0]]]) * step + 7.25
    y = torch.tensor([[[1.0, 2.0], [3.0, 0.0], [5.0, 6.0]]])
    observed = torch.tensor([[[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]])
    return Context(x, y, observed, None)


def test_points_of_a_lattice_go_to_their_own_cells():
    c = pixels()
    lattice = lay_lattice(c, 0.5, margin=1, multiple=1, follow_points=True)
    assert lattice.mask.shape == (1, 5, 6)
    h = SetConv(2, smooth=False)(c, lattice)
    density, data = h[0, :2], h[0, 2:]
    assert density.sum((1, 2)).tolist() == [3.0, 2.0]
    torch.testing.assert_close(data[:, 1, 1], torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(data[:, 3, 2], torch.tensor([3.0, 0.0]))
    torch.testing.assert_close(data[:, 2, 4], torch.tensor([5.0, 6.0]))
    back = interpolate(h[:, 2:], lattice, c.x)
    torch.testing.assert_close(back, c.y * c.observed, rtol=1e-5, atol=1e-5)
    assert interpolate(h, lattice, c.x + 100).abs().max() == 0


def test_interpolation_is_linear():
    c = pixels()
    lattice = lay_lattice(c, 0.5, margin=2, multiple=4, follow_points=False)
    cells = torch.stack(torch.meshgrid(*[torch.arange(float(n)) for n in lattice.mask.shape[1:]], indexing="ij"))
    plane = (2 * cells[0] - 3 * cells[1])[None, None]
    position = lattice.position(c.x, torch.float32)
    torch.testing.assert_close(
        interpolate(plane, lattice, c.x)[..., 0], 2 * position[..., 0] - 3 * position[..., 1], rtol=1e-4, atol=1e-4
    )


def test_a_smooth_lattice_covers_the_data():
    c = pixels()
    lattice = lay_lattice(c, 0.1, margin=3, multiple=8, follow_points=False)
    low = lattice.corner + lattice.offset
    high = low + 0.1 * (torch.tensor(lattice.mask.shape[1:]) - 1)
    assert (low <= c.x.amin(1) - 0.3 + 1e-4).all()
    assert (high >= c.x.amax(1) + 0.3 - 1e-4).all()
    assert all(n % 8 == 0 for n in lattice.mask.shape[1:])


def test_a_lattice_that_would_not_fit_is_refused():
    model, batch = small_model("convcnp", dx=2), random_batch(dx=2)
    with pytest.raises(ValueError, match="xc spans so much") as caught:
        model(batch.xc * 1e6, batch.yc, batch.xt)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dx", [1, 2])
def test_unet_has_the_layers_it_says(dx):
    net = UNet(dx, 2, 4, layers=11, kernel=9)
    assert (len(net.down), len(net.up), net.multiple) == (6, 5, 32)
    assert all(conv.in_channels == 8 and conv.out_channels == 4 for conv in net.up)


class Echo(NeuralProcess):
    """Predicts the value already known at a place, almost surely, and a wide normal where none is."""

    def __init__(self, dx: int = 1, dy: int = 1) -> None:
        super().__init__(dx, dy, 1, 4, "heteroscedastic", 3, 1e-8)

    def embed_context(self, c):
        return c

    def embed_targets(self, memory, xt):
        same = (xt[:, :, None] == memory.x[:, None]).all(-1) & memory.present[:, None]
        known = (same.to(memory.y.dtype) @ memory.y) / same.sum(-1, keepdim=True).clamp(min=1)
        return torch.cat([known, torch.where(same.any(-1, keepdim=True), -40.0, 1.0).to(known.dtype)], -1)


def test_samples_are_coherent():
    """A value drawn at a place is what the same function says when it comes to that place again."""
    model = Echo()
    model.decoder = torch.nn.Identity()
    model.decoder.dtype = torch.float64
    xc, yc = torch.zeros(1, 1, 1, dtype=torch.float64), torch.full((1, 1, 1), 2.0, dtype=torch.float64)
    xt = torch.tensor([[[1.0], [5.0], [1.0], [0.0], [5.0]]], dtype=torch.float64)
    functions = model.sample(xc, yc, xt, 50, torch.Generator().manual_seed(0))[:, 0, :, 0]
    torch.testing.assert_close(functions[:, 0], functions[:, 2], rtol=0, atol=1e-3)
    torch.testing.assert_close(functions[:, 1], functions[:, 4], rtol=0, atol=1e-3)
    torch.testing.assert_close(functions[:, 3], torch.full((50,), 2.0, dtype=torch.float64), rtol=0, atol=1e-3)
    assert (functions[:, 0] - functions[:, 1]).std() > 0.5  # different places, different values
    assert functions[:, 0].std() > 0.5  # different functions, different values
