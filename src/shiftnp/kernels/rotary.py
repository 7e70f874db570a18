"""The rotary kernel: relative scores from rotary embeddings with learned frequencies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, softplus
from torch.utils.checkpoint import checkpoint

from shiftnp.attention import local
from shiftnp.attention.chunks import slices
from shiftnp.attention.mask import AttentionMask, BlockMask, PairMask, has_keys
from shiftnp.attention.rotary import Rotation, attend
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
KEYS_AT_ONCE = 1 << 13
"""Keys that are projected and rotated at once without gradients."""


@dataclass(frozen=True)
class Rotary(Kernel):
    """`kernel="rotary"`: scores and values rotated by learned frequencies, see `attention/rotary.py`.

    Args:
        frequencies: number of frequencies in the scores of a head.
        band: smallest and largest frequency at initialisation, in radians per unit of input.
        window: whether scores have a query-dependent Gaussian locality bias.
        period_search: number of candidate frequencies of the period search, see `PeriodSearch` (0: none). It uses the
            whole context, so it cannot be combined with a `radius`.
        period_span: longest context that is searched as a whole (None: any); a longer one is searched in overlapping
            windows of that length, see `PeriodSearch`. Set it to the length of the training domain to predict on longer
            ones. Only for one input without a `period`.
    """

    name: ClassVar[str] = "rotary"

    frequencies: int = 16
    band: tuple[float, float] = (0.2, 6.0)
    window: bool = True
    period_search: int = 0
    period_span: float | None = None

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
        span = self.period_span
        if span is not None and (
            isinstance(span, bool) or not isinstance(span, int | float) or not 0 < span < math.inf
        ):
            raise ValueError(f"period_span must be a positive number or None, got {span!r}.")

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
        if self.period_span is not None and (size.dims > 1 or size.geometry.circular):
            raise ValueError(
                f"period_span is for models with one input that is not periodic, got period_span={self.period_span}."
            )
        return PeriodSearch(self.period_search, self.band, size, dy, self.period_span)


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
        # Only displacements matter, so any translation-equivariant origin will do. Phases are computed in the precision
        # of the inputs: on a long domain, positions relative to the origin are large, too.
        centre, precise = Geometry.centre(k.positions.x, k.mask), torch.promote_types(dtype, k.positions.x.dtype)
        xk = self.geometry.relative(k.positions, centre, precise)
        if q.z is k.z:  # self-attention: all projections as one matrix product, the same rotations
            xq, parts = xk, self._linear(q.z, self._of_queries() + self._of_keys(), dtype)
            rotate, rotation = self._rotations(xk, dtype)
            key, v = self._rotated_keys(parts[-3:], rotate, rotation)
        else:
            key, v = self._many_keys(k.z, xk, dtype)
            xq = self.geometry.relative(q.positions, centre, precise)
            parts = self._linear(q.z, self._of_queries(), dtype)
            rotate, rotation = self._rotations(xq, dtype)
        query = rotate(parts[0], parts[1])
        channels = v.shape[-1]
        if self.to_step is not None:  # positions are attended to as further values
            v = torch.cat([v, _to_heads(self.geometry.embed(xk), v)], -1)
        width = None if self.to_locality is None else softplus(parts[2].contiguous()).transpose(1, 2)
        if width is not None and isinstance(mask, BlockMask):
            query = torch.cat([query, width], -1)  # an extra channel, which `dense` removes

        def dense(
            q_: Tensor, k_: Tensor, v_: Tensor, at_q: Positions, at_k: Positions, pairs: PairMask
        ) -> tuple[Tensor, None]:
            if not isinstance(mask, BlockMask):
                return self._attend(q_, k_, v_, width, at_q, at_k, pairs), None
            if width is None:  # blocks are small problems already
                return attend(q_, k_, v_, pairs), None
            distance = self.geometry.squared_chord(at_q, at_k, q_.dtype)
            return attend(q_[..., :-1], k_, v_, pairs, q_[..., -1:], distance), None

        with torch.autocast(v.device.type, enabled=False):
            out, _ = local.attend(dense, query, key, v, q.positions, k.positions, mask)
        offset = q.offset
        if self.to_step is not None:
            out, mean = out[..., :channels], out[..., channels:]
            towards = self.geometry.mean_displacement(xq.to(dtype)[:, None], mean)
            step = (self.heads.split(self.to_step(q.z)).to(dtype) * towards).mean(1)
            some = has_keys(mask)
            step = step if some is None else step * some
            offset = step if offset is None else offset + step
        back, weight = None if rotation is None else rotation.transpose(), None
        out = out.transpose(1, 2) if back is None else back(*_pairs(out, channels), inverse=True)
        if back is not None and torch.compiler.is_exporting():
            weight = _halves(self.heads.to_out.weight.mT, self.heads.heads).mT
        return self.heads.merge(out.to(q.z.dtype), mask, weight), offset

    def _of_queries(self) -> list[tuple[nn.Linear, float]]:
        """Projections of the query tokens, each with a factor: channels to be rotated, other channels, locality."""
        plain, relative = self.heads.head_dim**-0.5, self.frequencies**-0.5
        layers = [(self.to_q_rotary, relative), (self.heads.to_q, plain)]
        return layers if self.to_locality is None else [*layers, (self.to_locality, 1.0)]

    def _of_keys(self) -> list[tuple[nn.Linear, float]]:
        """Projections of the key tokens: channels to be rotated, other channels, and values."""
        return [(layer, 1.0) for layer in (self.to_k_rotary, self.heads.to_k, self.heads.to_v)]

    def _rotations(self, x: Float[Tensor, "b n dx"], dtype: torch.dtype) -> tuple[Rotation, Rotation | None]:
        """Rotations of scores and of values for tokens at `x`."""
        values = self.value_frequencies
        return self.score_frequencies(x, dtype), None if values is None else values(x, dtype)

    def _rotated_keys(
        self, of_keys: list[Float[Tensor, "b n h _"]], rotate: Rotation, rotation: Rotation | None
    ) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h n dv"]]:
        """Rotated keys and values."""
        rotary, plain, v = of_keys
        return rotate(rotary, plain), v.transpose(1, 2) if rotation is None else rotation(*_pairs(v, v.shape[-1]))

    def _many_keys(
        self, z: Float[Tensor, "b n dz"], x: Float[Tensor, "b n dx"], dtype: torch.dtype
    ) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h n dv"]]:
        """Rotated keys and values of any number of tokens; without gradients some after the other, so that projections
        and phases of all of them are never held at once."""

        def some(rows: slice) -> tuple[Tensor, Tensor]:
            return self._rotated_keys(
                self._linear(z[:, rows], self._of_keys(), dtype), *self._rotations(x[:, rows], dtype)
            )

        if torch.is_grad_enabled() or torch.compiler.is_exporting() or z.shape[1] <= KEYS_AT_ONCE:
            return some(slice(None))
        h, d = self.heads.heads, self.heads.head_dim
        key, value = (z.new_empty(len(z), h, z.shape[1], size, dtype=dtype) for size in (2 * self.frequencies + d, d))
        for rows in slices(z.shape[1], KEYS_AT_ONCE):
            key[:, :, rows], value[:, :, rows] = some(rows)
        return key, value

    def _linear(
        self, z: Float[Tensor, "b n dz"], layers: list[tuple[nn.Linear, float]], dtype: torch.dtype
    ) -> list[Float[Tensor, "b n h c"]]:
        """Linear layers of the same input, with their outputs multiplied by a factor, as one matrix product."""
        weights = [layer.weight if s == 1 else layer.weight * s for layer, s in layers]
        biases = [layer.bias if s == 1 or layer.bias is None else layer.bias * s for layer, s in layers]
        if torch.compiler.is_exporting():  # products of their own: other runtimes copy the parts of a single one
            rotated = (
                self.to_q_rotary,
                self.to_k_rotary,
                *([] if self.value_frequencies is None else [self.heads.to_v]),
            )
            parts = [
                linear(z, _halves(w, self.heads.heads), None if b is None else _halves(b, self.heads.heads))
                if layer in rotated
                else linear(z, w, b)
                for (layer, _), w, b in zip(layers, weights, biases, strict=True)
            ]
            return [part.to(dtype).unflatten(-1, (self.heads.heads, -1)) for part in parts]
        every = [w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases, strict=True)]
        sizes = [len(w) for w in weights]
        if sum(sizes) % 2:  # an even number of channels, so that pairs of them can be read as complex numbers
            weights.append(weights[0].new_zeros(1, weights[0].shape[1]))
            every.append(every[0].new_zeros(1))
        out = linear(z, torch.cat(weights), torch.cat(every)).to(dtype)
        parts = out.split([*sizes, out.shape[-1] - sum(sizes)], -1)[: len(sizes)]
        return [part.unflatten(-1, (self.heads.heads, -1)) for part in parts]

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        width: Tensor | None,
        at_q: Positions,
        at_k: Positions,
        pairs: PairMask,
    ) -> Float[Tensor, "b h nq dv"]:
        """Dense attention, in blocks of tasks and queries if there are too many scores to hold at once."""

        def attend_block(tasks: slice, rows: slice) -> Tensor:
            distance = None
            if width is not None:
                at = _positions(at_q, tasks, rows), _positions(at_k, tasks, slice(None))
                distance = self.geometry.squared_chord(*at, q.dtype)
            mask = None if pairs is None else pairs[tasks, rows if pairs.shape[1] > 1 else slice(None)]
            some = None if width is None else width[tasks, :, rows]
            return attend(q[tasks, :, rows], k[tasks], v[tasks], mask, some, distance)

        b, h, nq, _ = q.shape
        whole, graded = slice(None), torch.is_grad_enabled()
        most, each = MOST_SCORES if graded or q.device.type != "cpu" else CACHED_SCORES, h * k.shape[2]
        if torch.compiler.is_exporting() or b * nq * each <= most:  # sizes of a program are dynamic
            return attend_block(whole, whole)
        tasks = slices(b, max(1, most // (each * nq)))
        rows = slices(nq, max(1 if graded else FEWEST_QUERIES, most // each))
        if graded:  # scores are recomputed in the backward pass, not kept
            parts = [[checkpoint(attend_block, t, r, use_reentrant=False) for r in rows] for t in tasks]
            return torch.cat([torch.cat(part, 2) for part in parts])
        out = v.new_empty(b, h, nq, v.shape[-1])
        for t, r in product(tasks, rows):
            out[t, :, r] = attend_block(t, r)
        return out


def _pairs(z: Float[Tensor, "*any c"], channels: int) -> tuple[Float[Tensor, "*any d"], Float[Tensor, "*any e"] | None]:
    """The channels as pairs, and the last one if their number is odd."""
    even = channels // 2 * 2
    return (z, None) if even == z.shape[-1] else (z[..., :even], z[..., even:])


def _halves(rows: Float[Tensor, " c *any"], heads: int) -> Float[Tensor, " c *any"]:
    """Weights of a linear layer with the rows of each head in another order, see `rotate_real`: the first rows of all
    pairs before the second ones; an odd row last."""
    each = rows.unflatten(0, (heads, -1))
    even = each.shape[1] // 2 * 2
    return torch.cat([each[:, :even:2], each[:, 1:even:2], each[:, even:]], 1).flatten(0, 1)


def _positions(at: Positions, tasks: slice, rows: slice) -> Positions:
    return Positions(at.x[tasks, rows], None if at.offset is None else at.offset[tasks, rows])


def _to_heads(f: Float[Tensor, "b n c"], like: Float[Tensor, "b h m d"]) -> Float[Tensor, "b h n c"]:
    return f[:, None].expand(-1, like.shape[1], -1, -1).to(like.dtype)
