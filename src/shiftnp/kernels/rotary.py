"""The rotary kernel: relative scores from rotary embeddings with learned frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from shiftnp.attention import bias, local
from shiftnp.attention.bias import LowRankBias
from shiftnp.attention.mask import AttentionMask, PairMask, has_keys
from shiftnp.attention.rotary import Rotation, attend
from shiftnp.geometry import Geometry, Positions
from shiftnp.kernels.base import AttentionSize, Kernel
from shiftnp.kernels.frequencies import FrequencyBank, harmonic_phases, interleaved
from shiftnp.kernels.period import PeriodSearch, SpectralSummary
from shiftnp.nn.heads import Heads
from shiftnp.nn.tokens import Tokens


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

    def hook(self, size: AttentionSize) -> PeriodSearch | None:
        """The period search, or None if it is off."""
        if not self.period_search:
            return None
        if size.geometry.radius is not None:
            raise ValueError(
                f"period_search looks at the whole context and excludes a radius, got radius={size.geometry.radius}."
            )
        return PeriodSearch(self.period_search, self.band, size)


class RotaryAttention(nn.Module):
    """Translation-equivariant multi-head attention at the cost of plain attention, see `attention/rotary.py`.

    With a period search the last half of the heads rotate by harmonics of the data set's fundamental instead of by
    learned frequencies, and scores have the data's autocorrelation as a gated additive bias.
    """

    def __init__(self, kernel: Rotary, size: AttentionSize, location_update: bool) -> None:
        super().__init__()
        dz, heads, dims, geometry = size.dz, size.heads, size.dims, size.geometry
        self.geometry, self.frequencies = geometry, kernel.frequencies
        self.heads = Heads(dz, heads, size.head_dim)
        self.harmonic_heads = heads // 2 if kernel.period_search else 0
        learned, planes = heads - self.harmonic_heads, size.head_dim // 2
        self.score_frequencies = FrequencyBank(interleaved(kernel.band, learned, kernel.frequencies), dims, geometry)
        self.to_q_rotary = nn.Linear(dz, heads * 2 * kernel.frequencies)
        self.to_k_rotary = nn.Linear(dz, heads * 2 * kernel.frequencies)
        self.value_frequencies = (
            FrequencyBank(interleaved(kernel.band, learned, planes), dims, geometry) if planes else None
        )
        self.to_locality = nn.Linear(dz, heads) if kernel.window else None
        self.to_bias_gain = _bias_gains(dz, heads) if kernel.period_search else None
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
        rotate_k = self._rotation(self.score_frequencies, k, xk, centre, 1, dtype)
        rotate_q = rotate_k if shared else self._rotation(self.score_frequencies, q, xq, centre, 1, dtype)
        of_q = [zq * zq.shape[-1] ** -0.5, rotate_q(split(self.to_q_rotary(q.z)) * self.frequencies**-0.5)]
        of_k = [zk, rotate_k(split(self.to_k_rotary(k.z)))]
        if self.to_locality is not None:
            of_q.append(softplus(split(self.to_locality(q.z))))  # an extra channel, which `_attend` removes
        gains = None if self.to_bias_gain is None else split(self.to_bias_gain(q.z))
        rotation = None
        if self.value_frequencies is not None:
            rotation = self._rotation(self.value_frequencies, k, xk, centre, 0, dtype)
            v = rotation(v)
            if not shared:
                rotation = self._rotation(self.value_frequencies, q, xq, centre, 0, dtype)
        channels = v.shape[-1]
        if self.to_step is not None:  # positions are attended to as further values
            v = torch.cat([v, _to_heads(self.geometry.embed(xk), v)], -1)

        def dense(
            q_: Tensor, k_: Tensor, v_: Tensor, at_q: Positions, at_k: Positions, pairs: PairMask
        ) -> tuple[Tensor, None]:
            return self._attend(q_, k_, v_, at_q, at_k, pairs, gains, q.attention_bias), None

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

    def _rotation(
        self,
        bank: FrequencyBank,
        t: Tokens,
        x: Float[Tensor, "b n dx"],
        centre: Float[Tensor, "b 1 dx"],
        lowest: int,
        dtype: torch.dtype,
    ) -> Rotation:
        """Rotations by learned frequencies at the current positions of the tokens; in harmonic heads by harmonics of
        the fundamental, from `lowest` upwards with two planes each, at the initial positions. `dtype` is that of the
        rotated channels."""
        phase = bank(x).phase.to(dtype.to_complex())
        if not self.harmonic_heads:
            return Rotation(phase)
        assert isinstance(t.summary, SpectralSummary)
        start = x if t.offset is None else self.geometry.relative(Positions(t.positions.x), centre, x.dtype)
        multiples = torch.arange(phase.shape[-1], dtype=x.dtype, device=x.device) // 2 + lowest
        harmonics = harmonic_phases(t.summary.fundamental, start, multiples).to(phase.dtype)
        return Rotation(torch.cat([phase, harmonics.expand(-1, self.harmonic_heads, -1, -1)], 1))

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        at_q: Positions,
        at_k: Positions,
        pairs: PairMask,
        gains: Float[Tensor, "b h nq s"] | None,
        maps: LowRankBias | None,
    ) -> Float[Tensor, "b h nq dv"]:
        """Dense attention, in chunks of queries if there are too many scores to hold at once."""
        width = None
        if self.to_locality is not None:
            q, width = q[..., :-1], q[..., -1:]

        def attend_rows(rows: slice) -> Tensor:
            terms: list[tuple[Tensor, Tensor]] = []
            if gains is not None and maps is not None:
                terms += zip(gains[:, :, rows].split(1, -1), maps.rows(rows).unbind(1), strict=True)
            mask = pairs if pairs is None or pairs.shape[1] == 1 else pairs[:, rows]
            if width is not None:  # from displacements: squares of positions would round the distance away
                at = Positions(at_q.x[:, rows], None if at_q.offset is None else at_q.offset[:, rows])
                d = self.geometry.displacement(at, at_k, q.dtype)
                terms.append((-width[:, :, rows], self.geometry.squared_chord(d)))
            return attend(q[:, :, rows], k, v, mask, terms)

        b, h, nq, _ = q.shape
        if bias.in_one_piece(b * h * nq * k.shape[2]):
            return attend_rows(slice(None))
        size = max(1, bias.MOST_SCORES // (b * h * k.shape[2]))
        chunks = [slice(i, i + size) for i in range(0, nq, size)]
        if torch.is_grad_enabled():  # scores are recomputed in the backward pass, not kept
            return torch.cat([checkpoint(attend_rows, rows, use_reentrant=False) for rows in chunks], 2)
        return torch.cat([attend_rows(rows) for rows in chunks], 2)


def _bias_gains(dz: int, heads: int) -> nn.Linear:
    """Gains of the two autocorrelation maps: at initialisation half of the heads use the first, half the second, each
    head with a different gain."""
    layer, half = nn.Linear(dz, 2 * heads), (heads + 1) // 2
    bias = torch.zeros(heads, 2)
    bias[:half, 0] = torch.linspace(0, 2, half)
    bias[half:, 1] = torch.linspace(0, 4, heads - half)
    layer.bias = nn.Parameter(bias.flatten())
    return layer


def _to_heads(f: Float[Tensor, "b n c"], like: Float[Tensor, "b h m d"]) -> Float[Tensor, "b h n c"]:
    return f[:, None].expand(-1, like.shape[1], -1, -1).to(like.dtype)
