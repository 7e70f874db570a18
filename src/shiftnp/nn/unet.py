"""Convolutional networks (CNN, U-Net) with a mask: cells outside the mask are set to zero after every layer.

The result for a task is therefore the same whether its lattice is alone or padded to the larger one of a batch.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, avg_pool2d, interpolate, pad


def convolution(dx: int, c_in: int, c_out: int, kernel: int) -> nn.Module:
    """A 1-D or 2-D convolution that keeps the size of the lattice."""
    if kernel % 2 == 0:
        raise ValueError(f"kernel_size must be odd, got {kernel}.")
    return (nn.Conv1d if dx == 1 else nn.Conv2d)(c_in, c_out, kernel, padding=kernel // 2)


class CNN(nn.Module):
    """`layers` convolutions with `channels` channels and ReLU activations."""

    multiple = 1  # the lattice may have any size

    def __init__(self, dx: int, c_in: int, channels: int, layers: int, kernel: int) -> None:
        super().__init__()
        self.lift = convolution(dx, c_in, channels, 1)
        self.convs = nn.ModuleList(convolution(dx, channels, channels, kernel) for _ in range(layers))

    def forward(self, h: Float[Tensor, "b c *cells"], mask: Bool[Tensor, " b *cells"]) -> Float[Tensor, "b d *cells"]:
        keep = mask[:, None]
        h = self.lift(h) * keep
        for conv in self.convs:
            h = conv(h.relu()) * keep
        return h


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015): `layers` convolutions, the first half down-sampling, the rest up-sampling.

    Average pooling by two between the down-sampling layers, linear interpolation between the up-sampling layers, and
    a skip connection at each resolution.
    """

    def __init__(self, dx: int, c_in: int, channels: int, layers: int, kernel: int) -> None:
        super().__init__()
        if layers % 2 == 0:
            raise ValueError(f"layers must be odd for a U-Net, got {layers}.")
        self.multiple = 2 ** (layers // 2)  # what the size of the lattice must be a multiple of
        self.pool = avg_pool1d if dx == 1 else avg_pool2d
        self.mode = "linear" if dx == 1 else "bilinear"
        self.lift = convolution(dx, c_in, channels, 1)
        self.down = nn.ModuleList(convolution(dx, channels, channels, kernel) for _ in range(layers // 2 + 1))
        self.up = nn.ModuleList(convolution(dx, 2 * channels, channels, kernel) for _ in range(layers // 2))

    def forward(self, h: Float[Tensor, "b c *cells"], mask: Bool[Tensor, " b *cells"]) -> Float[Tensor, "b d *cells"]:
        dx = mask.ndim - 1
        every_other = (slice(None), slice(None), *[slice(None, None, 2)] * dx)
        keep = mask[:, None]
        h = self.lift(h) * keep
        levels: list[tuple[Tensor, Tensor]] = []
        for conv in self.down:
            if levels:
                h, keep = self.pool(h, 2), keep[every_other]
            h = conv(h).relu() * keep
            levels.append((h, keep))
        for conv in self.up:
            levels.pop()
            skip, keep = levels[-1]
            # Padded with a zero cell on each side, so that the edge of a tensor is treated like the edge of a mask.
            inner = (slice(None), slice(None), *[slice(2, -2)] * dx)
            h = interpolate(pad(h, [1, 1] * dx), scale_factor=2, mode=self.mode)[inner] * keep
            h = conv(torch.cat([h, skip], 1)).relu() * keep
        return h
