"""Overlapping windows along one input, which divide a long context into parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TAPER = 0.25
"""Points beyond the end of a window count less and less, up to this fraction of half its length."""
REGULAR = 3
"""Regular windows that a point may be in: half a length apart, and `1 + TAPER` long."""
MOST_WINDOWS = 1 << 40
"""Windows of a context, at most; only those with points in them take memory."""


class Windows(NamedTuple):
    """Windows of one length that cover each context: half a length apart from its lower end on, and a last one at its
    upper end. As a context grows, a new window is at first the same as the one before: nothing changes abruptly.

    Attributes:
        first: centre of the first window of each context.
        final: centre of the last one.
        last: index of the last one.
        step: half the length of a window, the distance between the centres of all but the last two.
        found: indices, over all contexts, of the windows that have points, in ascending order.
    """

    first: Float[Tensor, "b 1"]
    final: Float[Tensor, "b 1"]
    last: Float[Tensor, "b 1"]
    step: float
    found: Int[Tensor, " w"]

    @classmethod
    def cover(cls, x: Float[Tensor, "b n"], mask: Bool[Tensor, "b n"] | None, length: float) -> Windows | None:
        """The windows of that length for each context, or None if one is enough for each of them."""
        there = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
        some = there.any(1, keepdim=True)
        if not some.any():
            return None
        low = torch.where(some, x.masked_fill(~there, math.inf).amin(1, keepdim=True), 0.0)
        high = torch.where(some, x.masked_fill(~there, -math.inf).amax(1, keepdim=True), 0.0)
        if not (high - low > length).any():
            return None
        step, short = length / 2, high - low <= length
        last = ((high - low - length) / step).detach().ceil().clamp(0, MOST_WINDOWS)
        middle = (low + high) / 2
        first, final = torch.where(short, middle, low + step), torch.where(short, middle, high - step)
        windows = cls(first, final, last, step, last.new_empty(0).long())
        w, weight = windows._covering(x, there)
        return windows._replace(found=windows._number(w)[weight > 0].unique())

    def divide(
        self, x: Float[Tensor, "b n"], mask: Bool[Tensor, "b n"] | None
    ) -> tuple[Int[Tensor, "v m"], Float[Tensor, "v m"], Float[Tensor, "v m"]]:
        """The points in each of the `found` windows, and in one more without any.

        Returns:
            Indices over the points of all contexts, their weights in the window, 0 at padding, and their positions
            relative to its centre.
        """
        w, weight = self._covering(x, torch.ones_like(x, dtype=torch.bool) if mask is None else mask)
        inside = weight > 0
        window = torch.searchsorted(self.found, self._number(w)[inside])
        point = torch.arange(x.numel(), device=x.device).view_as(x)[..., None].expand_as(w)[inside]
        order = window.argsort(stable=True)
        window = window[order]
        count = torch.bincount(window, minlength=len(self.found))
        at = window, torch.arange(len(window), device=x.device) - (count.cumsum(0) - count)[window]
        shape = len(self.found) + 1, int(count.max())
        local = (x[..., None] - self._centre(w))[inside][order]
        return (
            point.new_zeros(shape).index_put(at, point[order]),
            weight.new_zeros(shape).index_put(at, weight[inside][order]),
            local.new_zeros(shape).index_put(at, local),
        )

    def around(
        self, x: Float[Tensor, "b n"]
    ) -> Iterator[tuple[Int[Tensor, "b n"], Float[Tensor, "b n"], Float[Tensor, "b n"]]]:
        """The windows whose centres are on either side of each point, for linear interpolation between them: rows as in
        `divide`, positions relative to the centre, and weights. Beyond the outer centres one of them has all weight."""
        lower = ((x - self.first) / self.step).detach().floor().clamp(min=0).minimum((self.last - 1).clamp(min=0))
        start, end = self._centre(lower[..., None])[..., 0], self._centre(lower[..., None] + 1)[..., 0]
        distance = end - start
        upper = ((x - start) / torch.where(distance > 0, distance, 1.0)).clamp(0, 1) * (distance > 0)
        for w, centre, weight in ((lower, start, 1 - upper), (lower + 1, end, upper)):
            number = self._number(w[..., None])[..., 0]
            row = torch.searchsorted(self.found, number).clamp(max=len(self.found) - 1)
            yield torch.where(self.found[row] == number, row, len(self.found)), x - centre, weight

    def _covering(
        self, x: Float[Tensor, "b n"], there: Bool[Tensor, "b n"]
    ) -> tuple[Float[Tensor, "b n v"], Float[Tensor, "b n v"]]:
        """Indices of the windows that may cover each point, and its weights in them: 1 inside a window, and falling to
        0 at its ends."""
        reach = (1 + TAPER) * self.step
        start = ((x - reach - self.first) / self.step).detach().ceil().clamp(min=0)
        w = start[..., None] + torch.arange(REGULAR, dtype=x.dtype, device=x.device)
        final = self.last[..., None].expand(-1, x.shape[1], -1)
        w = torch.cat([w, final], -1)
        weight = ((reach - (x[..., None] - self._centre(w)).abs()) / (TAPER * self.step)).clamp(0, 1)
        regular = torch.cat([w[..., :-1] < final, torch.ones_like(final, dtype=torch.bool)], -1)
        return w, weight * (regular & there[..., None])

    def _centre(self, w: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        return torch.where(w < self.last[..., None], self.first[..., None] + w * self.step, self.final[..., None])

    def _number(self, w: Float[Tensor, "b n v"]) -> Int[Tensor, "b n v"]:
        """Indices over the windows of all contexts."""
        each = int(self.last.max()) + 2
        return w.long() + each * torch.arange(len(w), device=w.device)[:, None, None]
