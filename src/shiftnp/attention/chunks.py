"""Splitting work along one dimension, so that what is in memory at once stays bounded."""

from __future__ import annotations


def slices(n: int, size: int) -> list[slice]:
    """Slices of `size` entries each, out of `n`; the last one may have fewer."""
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]
