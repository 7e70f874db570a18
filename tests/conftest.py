"""Small models and data for all tests. Nothing here touches a global random state for longer than a constructor."""

from __future__ import annotations

import inspect
from typing import Any

import shiftnp  # noqa: F401 (before torch, because it may have to limit what torch uses of the processor)

# isort: split
import torch
from hypothesis import settings

from shiftnp.batch import Batch
from shiftnp.models import MODELS, NeuralProcess

# The same examples on every machine, and no time limit for each: two slow cores must not fail a test.
settings.register_profile("shiftnp", derandomize=True, deadline=None, max_examples=10)
settings.load_profile("shiftnp")

torch.set_num_threads(1)  # tensors here are too small to share

SMALL: dict[str, Any] = {
    "dz": 16,
    "heads": 2,
    "head_dim": 8,
    "layers": 2,
    "hidden": 2,
    "pseudo": 4,
    "channels": 8,
    "points_per_unit": 8,
    "margin": 1.0,
    "kernel_size": 3,
}


def small_model(name: str, dx: int = 1, dy: int = 1, seed: int = 0, dtype: Any = torch.float64, **kwargs: Any) -> Any:
    """The model of that name in a size that runs in milliseconds."""
    cls = MODELS[name]
    sizes = {k: v for k, v in SMALL.items() if k in inspect.signature(cls).parameters}
    if name == "convcnp":
        sizes["layers"] = 3  # a U-Net has an odd number
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: NeuralProcess = cls(dx=dx, dy=dy, **{**sizes, **kwargs})
        for key, p in model.named_parameters():  # fresh weights give predictions that hardly depend on anything
            if not p.any():  # zero at first, so that what lies before it would never matter
                p.data.normal_(std=0.1)
            elif p.ndim > 1 and not key.endswith("frequencies.flat") and ".rho." not in key:
                p.data *= 2  # neither frequencies nor logits: higher ones would amplify rounding
    return model.to(dtype)


def random_batch(
    b: int = 2, nc: int = 6, nt: int = 5, dx: int = 1, dy: int = 1, seed: int = 0, dtype: Any = torch.float64
) -> Batch:
    """Gaussian data whose inputs are multiples of 2^-16, so that shifts by whole numbers are exact."""
    g = torch.Generator().manual_seed(seed)

    def gauss(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    def places(n: int) -> torch.Tensor:
        return (gauss(b, n, dx) * 2**16).round() / 2**16

    return Batch(places(nc), gauss(b, nc, dy), places(nt), gauss(b, nt, dy)).to(dtype=dtype)
