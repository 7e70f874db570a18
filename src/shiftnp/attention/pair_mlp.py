"""MLPs of pairs of tokens, applied to one tile of pairs after the other in reused buffers.

Inputs and outputs have one row for each channel and one column for each pair, so that the scores of a head, the weights
of a head and the displacements along a dimension are contiguous and nothing is transposed. Hidden activations have one
row for each pair: matrix products are fastest so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shiftnp.attention.buffers import buffer


class MLPWeights(NamedTuple):
    """Weights of an MLP with two hidden layers: `w3 relu(w2 relu(w1 x + b1) + b2) + b3`."""

    w1: Float[Tensor, "w d_in"]
    b1: Float[Tensor, " w"]
    w2: Float[Tensor, "w w"]
    b2: Float[Tensor, " w"]
    w3: Float[Tensor, "d_out w"]
    b3: Float[Tensor, " d_out"] | None = None

    @staticmethod
    def of(layers: Iterable[Any]) -> MLPWeights:
        """The weights of three linear layers."""
        first, second, last = layers
        return MLPWeights(first.weight, first.bias, second.weight, second.bias, last.weight, last.bias)


class BufferedMLP:
    """An MLP applied to one tile after the other. A tile of more than `rows` pairs is split.

    Args:
        name: of its buffers; MLPs whose activations are needed at the same time have different names.
        dtype: that of the matrix products.
    """

    def __init__(self, name: str, net: MLPWeights, rows: int, dtype: torch.dtype) -> None:
        low: Any = (None if t is None else t.to(dtype) for t in net)
        self.net, self.rows = MLPWeights(*low), rows
        shape, device = (rows, len(net.b1)), net.b1.device
        self.first = buffer(f"{name} first", shape, dtype, device)
        self.second = buffer(f"{name} second", shape, dtype, device)
        self.scratch = buffer("scratch", shape, dtype, device)
        self.dtype, self.out_dtype = dtype, torch.promote_types(net.w1.dtype, torch.float32)
        shapes = [net.w1.T.shape, *(t.shape for t in net[1:] if t is not None)]
        self.sums = [net.w1.new_zeros(s, dtype=self.out_dtype) for s in shapes]
        """Gradients of the weights, summed over tiles; that of `w1` is transposed, as products are faster so."""

    def __call__(self, x: Float[Tensor, "d_in p"]) -> Float[Tensor, "d_out p"]:
        if x.shape[1] > self.rows:
            return torch.cat([self(part) for part in x.split(self.rows, 1)], 1)
        net = self.net
        out = torch.mm(net.w3, self.activations(x).T)
        out = out if net.b3 is None else out.add_(net.b3[:, None])
        return out.to(self.out_dtype)

    def activations(self, x: Float[Tensor, "d_in p"]) -> Float[Tensor, "p w"]:
        """The activations of the last hidden layer; those of both layers stay in the buffers."""
        net, n = self.net, x.shape[1]
        first = torch.addmm(net.b1, x.to(self.dtype).T, net.w1.T, out=self.first[:n]).relu_()
        return torch.addmm(net.b2, first, net.w2.T, out=self.second[:n]).relu_()

    def backward(
        self, x: Float[Tensor, "d_in p"], dout: Float[Tensor, "d_out p"], recompute: bool
    ) -> Float[Tensor, "d_in p"]:
        """VJP: returns the gradient of the inputs and adds that of the weights to `sums`.

        Args:
            recompute: whether activations are computed first; if not, they are those of the last call, which are still
                in the buffers. They are overwritten.
        """
        if x.shape[1] > self.rows:
            parts = zip(x.split(self.rows, 1), dout.split(self.rows, 1), strict=True)
            return torch.cat([self.backward(*part, recompute=True) for part in parts], 1)
        if recompute:
            self.activations(x)
        net, n = self.net, x.shape[1]
        x, dout = x.to(self.dtype), dout.to(self.dtype)
        first, second = self.first[:n], self.second[:n]
        self._add(4, dout, second)
        if net.b3 is not None:
            self.sums[5] += dout.sum(1)
        product = torch.mul if len(dout) == 1 else torch.mm
        dsecond = relu_backward(product(dout.T, net.w3, out=self.scratch[:n]), second)
        self._add(2, dsecond.T, first)
        self.sums[3] += dsecond.sum(0)
        dfirst = relu_backward(torch.mm(dsecond, net.w2, out=second), first)
        self._add(0, x, dfirst)
        self.sums[1] += dfirst.sum(0)
        return torch.mm(net.w1.T, dfirst.T).to(self.out_dtype)

    def _add(self, i: int, a: Float[Tensor, "m p"], b: Float[Tensor, "p n"]) -> None:
        """Adds the product to the sum number `i`."""
        if a.dtype == self.out_dtype:
            self.sums[i].addmm_(a, b)
        else:
            self.sums[i] += a @ b

    def gradients(self) -> list[Tensor]:
        """Gradients of all weights."""
        return [self.sums[0].T, *self.sums[1:]]


def relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    """VJP of a ReLU with this `output`, in place."""
    return torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
