"""Attention with `kernel="separable"`: equivariance at the cost of plain attention."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from shiftnp.attention import local, rotary
from shiftnp.attention.local import Neighbourhood, Sight
from shiftnp.attention.reference import Pairs
from shiftnp.attention.tiled import Places
from shiftnp.geometry import Geometry
from shiftnp.nn.heads import Heads
from shiftnp.nn.tokens import Tokens
from shiftnp.nn.waves import Waves, harmonics, shared_out


class SeparableAttention(nn.Module):
    """Translation-equivariant multi-head attention at the cost of the plain one, see `attention/rotary.py`.

    Args:
        moves: whether queries move, each head pulling them towards the mean place of what it attends to.
        frequencies: number of waves in the scores of a head.
        band: smallest and largest wave number at first, in radians per unit of input. They are learned, but not along
            circles, where only whole numbers of waves fit.
        window: whether a query can dim distant keys.
        spectrum: whether tokens come with what is known of the spectrum of their data set. Queries then can attend by
            their likeness to keys, and the last half of the heads has harmonics of the fundamental for waves.
        turned: share of the value channels that carry the relative phase.
    """

    def __init__(
        self,
        dz: int,
        heads: int,
        head_dim: int,
        geometry: Geometry,
        dims: int,
        moves: bool,
        frequencies: int = 16,
        band: tuple[float, float] = (0.2, 6.0),
        window: bool = True,
        spectrum: bool = False,
        turned: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 < band[0] <= band[1]:
            raise ValueError(f"band must be a range of positive wave numbers, got {band}.")
        if not 0 <= turned <= 1:
            raise ValueError(f"turned must be a share between 0 and 1, got {turned}.")
        self.geometry, self.frequencies = geometry, frequencies
        self.heads = Heads(dz, heads, head_dim)
        self.folded = heads // 2 if spectrum else 0
        self.waves = Waves(shared_out(band, heads - self.folded, frequencies), dims, geometry)
        self.to_q_waves = nn.Linear(dz, heads * 2 * frequencies)
        self.to_k_waves = nn.Linear(dz, heads * 2 * frequencies)
        planes = int(turned * head_dim) // 2
        self.value_waves = Waves(shared_out(band, heads - self.folded, planes), dims, geometry) if planes else None
        self.to_window = nn.Linear(dz, heads) if window else None
        self.to_gain = _gains(dz, heads) if spectrum else None
        self.to_pull = nn.Linear(dz, heads) if moves else None

    def forward(
        self, q: Tokens, k: Tokens, sight: Sight
    ) -> tuple[Float[Tensor, "b nq dz"], Float[Tensor, "b nq dx"] | None]:
        assert q.x is not None
        assert k.x is not None
        # In float32 at least: distances are differences of large numbers, which bfloat16 does not have.
        dtype = torch.promote_types(q.z.dtype, torch.float32)

        def split(z: Tensor) -> Tensor:
            return self.heads.split(z).to(dtype)

        zq, zk, v = (t.to(dtype) for t in self.heads.project(q.z, k.z))
        # Only differences count, so that places may be taken relative to anything that moves with the data.
        centre = Geometry.centre(k.x, k.mask)
        xk = self._place(k, centre)
        alike = q.x is k.x and q.moved is k.moved  # self-attention
        xq = xk if alike else self._place(q, centre)
        turn_k = self._turn(self.waves, k, xk, centre, 1)
        turn_q = turn_k if alike else self._turn(self.waves, q, xq, centre, 1)
        of_q = [zq * zq.shape[-1] ** -0.5, turn_q(split(self.to_q_waves(q.z)) * self.frequencies**-0.5)]
        of_k = [zk, turn_k(split(self.to_k_waves(k.z)))]
        if self.to_window is not None:
            of_q.append(softplus(split(self.to_window(q.z))))  # for `_attend`, which knows what is near
        more: rotary.More = ()
        if self.to_gain is not None:
            assert not isinstance(sight, Neighbourhood)
            more = tuple(zip(split(self.to_gain(q.z)).split(1, -1), q.likeness, strict=True))
        if self.value_waves is not None:
            turn = self._turn(self.value_waves, k, xk, centre, 0)
            v, turn = turn(v), turn if alike else self._turn(self.value_waves, q, xq, centre, 0)
        if self.to_pull is not None:
            v, channels = torch.cat([v, _to_heads(self.geometry.embed(xk), v)], -1), v.shape[-1]
        with torch.autocast(v.device.type, enabled=False):
            tokens = torch.cat(of_q, -1), torch.cat(of_k, -1), v
            kernel = partial(self._attend, more=more)
            out, _ = local.attend(kernel, *tokens, Places(q.x, q.moved), Places(k.x, k.moved), sight)
        moved = q.moved
        if self.to_pull is not None:
            out, place = out[..., :channels], out[..., channels:]
            pull = split(self.to_pull(q.z))
            step = (pull * self.geometry.towards(xq[:, None], place)).mean(1)
            some = local.seen(sight)
            if some is not None:
                step = step * some
            moved = step if moved is None else moved + step
        if self.value_waves is not None:
            out = turn(out, back=True)
        return self.heads.join(out, sight), moved

    def _turn(
        self, waves: Waves, t: Tokens, x: Float[Tensor, "b n dx"], centre: Float[Tensor, "b 1 dx"], lowest: int
    ) -> rotary.Turn:
        """By learned waves where tokens are now; in folded heads by harmonics of the data, two by two from the lowest
        one, where tokens were when these were found."""
        turn = waves(x)
        if not self.folded:
            return turn
        assert t.lines is not None
        start = x if t.moved is None else self._place(t._replace(moved=None), centre)
        multiples = torch.arange(turn.phase.shape[-1], dtype=x.dtype, device=x.device) // 2 + lowest
        folded = harmonics(t.lines.fundamental, start, multiples).expand(-1, self.folded, -1, -1)
        return rotary.Turn(torch.cat([turn.phase, folded], 1))

    def _place(self, t: Tokens, centre: Float[Tensor, "b 1 dx"]) -> Float[Tensor, "b n dx"]:
        assert t.x is not None
        return self._relative(Places(t.x, t.moved), centre, torch.promote_types(t.z.dtype, torch.float32))

    def _relative(self, at: Places, centre: Float[Tensor, "b 1 dx"], dtype: torch.dtype) -> Float[Tensor, "b n dx"]:
        x = self.geometry.wrap(at.x - centre).to(dtype)
        return x if at.moved is None else x + at.moved

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, at_q: Places, at_k: Places, pairs: Pairs, more: rotary.More
    ) -> tuple[Tensor, None]:
        """With the window: as a product where all see all; else pair by pair, since near pairs may lie in a domain so
        long that the squares of its places leave nothing of theirs."""
        if self.to_window is not None:
            q, width = q[..., :-1], q[..., -1:]
            if pairs is None:
                centre = Geometry.centre(at_k.x, None)
                places = (self._relative(at, centre, q.dtype) for at in (at_q, at_k))
                near_q, near_k = (_to_heads(f, q) for f in self.geometry.factors(*places))
                q, k = torch.cat([q, width * near_q], -1), torch.cat([k, near_k], -1)
            else:
                d = self.geometry.between(at_q.x, at_k.x, at_q.moved, at_k.moved, q.dtype)
                more = (*more, (-width, self.geometry.squared_line(d)))
        return rotary.attend(q, k, v, pairs, more), None


def _gains(dz: int, heads: int) -> nn.Linear:
    """How much each head heeds either kind of likeness: at first half of the heads the one, half the other, and every
    one to another degree."""
    layer, half = nn.Linear(dz, 2 * heads), (heads + 1) // 2
    bias = torch.zeros(heads, 2)
    bias[:half, 0] = torch.linspace(0, 2, half)
    bias[half:, 1] = torch.linspace(0, 4, heads - half)
    layer.bias = nn.Parameter(bias.flatten())
    return layer


def _to_heads(f: Float[Tensor, "b n c"], like: Float[Tensor, "b h m d"]) -> Float[Tensor, "b h n c"]:
    return f[:, None].expand(-1, like.shape[1], -1, -1).to(like.dtype)
