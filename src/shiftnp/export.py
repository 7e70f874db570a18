"""Export of models with `torch.export`, with dynamic numbers of tasks, context points and targets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributions import MixtureSameFamily
from torch.export import Dim, ExportedProgram

from shiftnp.likelihoods import components_of
from shiftnp.models import ConvCNP, NeuralProcess
from shiftnp.models.inputs import make_context

INPUTS = ("xc", "yc", "xt", "mask")
OUTPUTS = ("mean", "std", "weight", "means", "stds")
"""Outputs of an exported model; the last three only for a mixture likelihood."""


class PredictiveTensors(nn.Module):
    """A model without input validation, with tensors as outputs: `(xc, yc, xt, mask) -> (mean, std)`.

    If the prediction is a mixture of `k` Gaussians, from which quantiles follow, their weights `[b, nt, k]`, means and
    standard deviations `[b, nt, k, dy]` are outputs as well.
    """

    def __init__(self, model: NeuralProcess) -> None:
        super().__init__()
        self.model = model

    def forward(self, xc: Tensor, yc: Tensor, xt: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        dist = self.model.distribution(make_context(xc, yc, mask, self.model.dtype), xt)
        moments = dist.mean, dist.stddev
        return (*moments, *components_of(dist)) if isinstance(dist, MixtureSameFamily) else moments


def export_model(model: NeuralProcess, lattice_cells: int = 1024) -> ExportedProgram:
    """Exports a model for any number of tasks, and any numbers of context points and targets from two on.

    The program takes `(xc, yc, xt, mask)` with the shapes of `model.forward`, in the dtype of the weights, and returns
    mean and standard deviation, and the components of a mixture, see `PredictiveTensors`. Unlike there, the mask is
    required and nothing is checked: pad a smaller context and mask the padding out.

    Args:
        lattice_cells: size of a ConvCNP's lattice along each input, which is static in a program; it must cover the
            context and the margin around it, and be a multiple of `model.net.multiple`. Other models ignore it.
    """
    b, nc, nt = 2, 5, 4  # different sizes, so that torch.export does not assume that they are equal

    def points(n: int, d: int) -> Tensor:
        return torch.linspace(-1, 1, b * n * d, dtype=model.dtype, device=device).view(b, n, d)

    device, training = next(model.parameters()).device, model.training
    mask = torch.ones(b, nc, dtype=torch.bool, device=device)
    example = points(nc, model.dx), points(nc, model.dy), points(nt, model.dx), mask
    tasks, context, targets = Dim("tasks", min=1), Dim("context", min=2), Dim("targets", min=2)
    shapes = {
        "xc": {0: tasks, 1: context},
        "yc": {0: tasks, 1: context},
        "xt": {0: tasks, 1: targets},
        "mask": {0: tasks, 1: context},
    }
    try:
        with fixed_lattice(model, lattice_cells), torch.no_grad():
            return torch.export.export(PredictiveTensors(model.eval()), example, dynamic_shapes=shapes)
    finally:
        model.train(training)


@contextmanager
def fixed_lattice(model: NeuralProcess, cells: int) -> Iterator[None]:
    """Context manager that gives a ConvCNP a lattice of fixed size for all contexts."""
    if not isinstance(model, ConvCNP):
        yield
        return
    if cells % model.net.multiple:
        raise ValueError(f"lattice_cells must be a multiple of {model.net.multiple}, got {cells}.")
    model.lattice_cells = cells
    try:
        yield
    finally:
        model.lattice_cells = None
