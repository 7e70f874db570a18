"""The rotary kernel: relative scores from rotary embeddings with learned frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from shiftnp.attention import local
from shiftnp.attention.mask import AttentionMask, PairMask, has_keys
from shiftnp.attention.rotary import attend
from shiftnp.geometry import Geometry, Positions
from shiftnp.kernels.base import AttentionSize, Kernel
from shiftnp.kernels.frequencies import FrequencyBank, interleaved
from shiftnp.kernels.period import PeriodSearch
from shiftnp.nn.heads import Heads
from shiftnp.nn.tokens import Tokens

MOST_SCORES = 1 << 24
"""Attention scores held in memory at once; if there are more, they are computed in blocks."""
CACHED_SCORES = 1 << 17
"""The same for a CPU without gradients, where a block that fits into the processor's cache takes half the time."""
FEWEST_QUERIES = 32
"""Queries in a block without gradients, at least: products with fewer rows are slow."""


@dataclass(frozen=True)
class Rotary(Kernel):
    """`kernel="rotary"`: scores and values rotated by learned frequencies, see `attention/rotary.py`.

    Args:
        frequencies: number of frequencies in the scores of a head.
        band: smallest and largest frequency at initialisation, in radians per unit of input.
        window: whether scores have a query-dependent Gaussian locality bias.
        period_search: number of candidate frequencies of the period search, see `PeriodSearch` (0: none). It uses the
            whole context, so it cannot be combined with a `radius`.
    """

    name: ClassVar[str] = "rotary"

    frequencies: int = 16
    band: tuple[float, float] = (0.2, 6.0)
    window: bool = True
    period_search: int = 0

    def __post_init__(self) -> None:
        for name, least in (("frequencies", 1), ("period_search", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
        numbers = isinstance(self.band, tuple) and all(isinstance(w, int | float) for w in self.band)
        if not numbers or len(self.band) != 2 or not 0 < self.band[0] <= self.band[1] < float("inf"):
            raise ValueError(f"band must be a range of positive frequencies, got {self.band}.")
        if not isinstance(self.window, bool):
            raise ValueError(f"window must be true or false, got {self.window!r}.")

    def attention(self, size: AttentionSize, location_update: bool) -> RotaryAttention:
        """A new attention module; with `location_update` each head shifts queries along the displacement to the mean
        position of the keys it attends to."""
        return RotaryAttention(self, size, location_update)

    def hook(self, size: AttentionSize, dy: int) -> PeriodSearch | None:
        """The period search, or None if it is off."""
        if not self.period_search:
            return None
        if size.geometry.radius is not None:
            raise ValueError(
                f"period_search looks at the whole context and excludes a radius, got radius={size.geometry.radius}."
            )
        return PeriodSearch(self.period_search, self.band, size, dy)


class RotaryAttention(nn.Module):
    """Translation-equivariant multi-head attention at the cost of plain attention, see `attention/rotary.py`."""

    def __init__(self, kernel: Rotary, size: AttentionSize, location_update: bool) -> None:
        super().__init__()
        dz, heads, dims, geometry = size.dz, size.heads, size.dims, size.geometry
        self.geometry, self.frequencies = geometry, kernel.frequencies
        self.heads = Heads(dz, heads, size.head_dim)
        planes = size.head_dim // 2
        self.score_frequencies = FrequencyBank(interleaved(kernel.band, heads, kernel.frequencies), dims, geometry)
        self.to_q_rotary = nn.Linear(dz, heads * 2 * kernel.frequencies)
        self.to_k_rotary = nn.Linear(dz, heads * 2 * kernel.frequencies)
        self.value_frequencies = (
            FrequencyBank(interleaved(kernel.band, heads, planes), dims, geometry) if planes else None
        )
        self.to_locality = nn.Linear(dz, heads) if kernel.window else None
        self.to_step = nn.Linear(dz, heads) if location_update else None

    def forward(
        self, q: Tokens, k: Tokens, mask: AttentionMask
    ) -> tuple[Float[Tensor, "b nq dz"], Float[Tensor, "b nq dx"] | None]:
        # In float32 at least: phases and distances are differences of large numbers, too coarse in bfloat16.
        dtype = torch.promote_types(q.z.dtype, torch.float32)

        def split(z: Tensor) -> Tensor:
            return self.heads.split(z).to(dtype)

        zq, zk, v = (t.to(dtype) for t in self.heads.project(q.z, k.z))
        # Only displacements matter, so any translation-equivariant origin will do. Phases are computed in the precision
        # of the inputs: on a long domain, positions relative to the origin are large, too.
        centre, precise = Geometry.centre(k.positions.x, k.mask), torch.promote_types(dtype, k.positions.x.dtype)
        xk = self.geometry.relative(k.positions, centre, precise)
        shared = q.x is k.x and q.offset is k.offset  # self-attention
        xq = xk if shared else self.geometry.relative(q.positions, centre, precise)
        rotate_k = self.score_frequencies(xk).to(dtype)
        rotate_q = rotate_k if shared else self.score_frequencies(xq).to(dtype)
        of_q = [zq * zq.shape[-1] ** -0.5, rotate_q(split(self.to_q_rotary(q.z)) * self.frequencies**-0.5)]
        of_k = [zk, rotate_k(split(self.to_k_rotary(k.z)))]
        if self.to_locality is not None:
            of_q.append(softplus(split(self.to_locality(q.z))))  # an extra channel, which `_attend` removes
        rotation = None
        if self.value_frequencies is not None:
            rotation = self.value_frequencies(xk).to(dtype)
            v = rotation(v)
            if not shared:
                rotation = self.value_frequencies(xq).to(dtype)
        channels = v.shape[-1]
        if self.to_step is not None:  # positions are attended to as further values
            v = torch.cat([v, _to_heads(self.geometry.embed(xk), v)], -1)

        def dense(
            q_: Tensor, k_: Tensor, v_: Tensor, at_q: Positions, at_k: Positions, pairs: PairMask
        ) -> tuple[Tensor, None]:
            return self._attend(q_, k_, v_, at_q, at_k, pairs), None

        with torch.autocast(v.device.type, enabled=False):
            tokens = torch.cat(of_q, -1), torch.cat(of_k, -1), v
            out, _ = local.attend(dense, *tokens, q.positions, k.positions, mask)
        offset = q.offset
        if self.to_step is not None:
            out, mean = out[..., :channels], out[..., channels:]
            towards = self.geometry.mean_displacement(xq.to(dtype)[:, None], mean)
            step = (split(self.to_step(q.z)) * towards).mean(1)
            some = has_keys(mask)
            step = step if some is None else step * some
            offset = step if offset is None else offset + step
        if rotation is not None:
            out = rotation(out, inverse=True)
        return self.heads.merge(out.to(q.z.dtype), mask), offset

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, at_q: Positions, at_k: Positions, pairs: PairMask
    ) -> Float[Tensor, "b h nq dv"]:
        """Dense attention, in blocks of tasks and queries if there are too many scores to hold at once."""
        width = None
        if self.to_locality is not None:
            q, width = q[..., :-1], q[..., -1:]

        def attend_block(tasks: slice, rows: slice) -> Tensor:
            terms: list[tuple[Tensor, Tensor]] = []
            mask = None if pairs is None else pairs[tasks, rows if pairs.shape[1] > 1 else slice(None)]
            if width is not None:
                at = _positions(at_q, tasks, rows), _positions(at_k, tasks, slice(None))
                terms.append((-width[tasks, :, rows], self.geometry.squared_chord(*at, q.dtype)))
            return attend(q[tasks, :, rows], k[tasks], v[tasks], mask, terms)

        b, h, nq, _ = q.shape
        whole, graded = slice(None), torch.is_grad_enabled()
        most, each = MOST_SCORES if graded or q.device.type != "cpu" else CACHED_SCORES, h * k.shape[2]
        if torch.compiler.is_exporting() or b * nq * each <= most:  # sizes of a program are dynamic
            return attend_block(whole, whole)
        tasks = [slice(i, i + max(1, most // (each * nq))) for i in range(0, b, max(1, most // (each * nq)))]
        size = max(1 if graded else FEWEST_QUERIES, most // each)
        rows = [slice(i, i + size) for i in range(0, nq, size)]
        if graded:  # scores are recomputed in the backward pass, not kept
            parts = [[checkpoint(attend_block, t, r, use_reentrant=False) for r in rows] for t in tasks]
            return torch.cat([torch.cat(part, 2) for part in parts])
        out = v.new_empty(b, h, nq, v.shape[-1])
        for t, r in product(tasks, rows):
            out[t, :, r] = attend_block(t, r)
        return out


def _positions(at: Positions, tasks: slice, rows: slice) -> Positions:
    return Positions(at.x[tasks, rows], None if at.offset is None else at.offset[tasks, rows])


def _to_heads(f: Float[Tensor, "b n c"], like: Float[Tensor, "b h m d"]) -> Float[Tensor, "b h n c"]:
    return f[:, None].expand(-1, like.shape[1], -1, -1).to(like.dtype)
