"""Regression on samples of Gaussian processes (the paper's synthetic task); exact posteriors are in `gp_posterior`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.plots.comparison import Comparison, Predictor, Scene, draw_scenes
from shiftnp.plots.style import Style
from shiftnp.tasks.base import Task, TestSet, generator_for
from shiftnp.tasks.gp_kernels import COVARIANCES


class Truth(NamedTuple):
    """Kernel and length-scales from which each data set of a batch was drawn."""

    kernel: Int[Tensor, " b"]  # index into the task's `kernels`
    length: Float[Tensor, "b parts"]  # one length-scale for each term of a sum of kernels


@dataclass(frozen=True)
class GPTask(Task):
    """Samples of a Gaussian process with a random kernel and length-scale for every data set.

    `log l ~ U(log length[0], log length[1])`, `x_c ~ U(context)`, `x_t ~ U(target)` in every dimension, both shifted by
    `shift`; every observation has noise. The number of context points is drawn once per batch.

    Args:
        dx: number of inputs.
        kernels: some of "se", "periodic", "matern12", "matern32", "matern52", with equal probability. "se+periodic" is
            a sum, scaled to unit variance, whose terms have separate length-scales.
        length: range of length-scales; of the periodic kernel, the range of periods.
        noise: standard deviation of the observation noise.
        points: smallest and largest number of context points.
        targets: number of targets.
        context, target: ranges of inputs.
        bimodal: inputs come from `U(-4, -1)` or `U(1, 4)` instead, with equal probability (the paper's ablation).
        shift: added to all inputs (the paper's Delta).
        train_targets: number of targets in training (None: `targets`); fewer make a step cheaper. Test sets keep
            `targets`.
    """

    dx: int = 1
    kernels: Sequence[str] = ("se", "periodic", "matern52")
    length: tuple[float, float] = (0.25, 4.0)
    noise: float = 0.2
    points: tuple[int, int] = (1, 64)
    targets: int = 128
    context: tuple[float, float] = (-2.0, 2.0)
    target: tuple[float, float] = (-3.0, 3.0)
    bimodal: bool = False
    shift: float = 0.0
    train_targets: int | None = field(default=None, repr=False)  # test sets do not depend on it

    dy = 1
    sequence_settings: ClassVar[tuple[str, ...]] = ("kernels",)

    def __post_init__(self) -> None:
        if not isinstance(self.kernels, list | tuple) or not self.kernels:
            raise ValueError(f"kernels must be a tuple of names, got {self.kernels!r}.")
        for kernel in self.kernels:
            if not isinstance(kernel, str) or not all(part in COVARIANCES for part in kernel.split("+")):
                raise ValueError(f"kernels must be made of {', '.join(COVARIANCES)}, got {kernel!r}.")
        if not isinstance(self.bimodal, bool):
            raise ValueError(f"bimodal must be True or False, got {self.bimodal!r}.")
        counts = {"dx": self.dx, "targets": self.targets}
        if self.train_targets is not None:
            counts["train_targets"] = self.train_targets
        for name, count in counts.items():
            if not is_whole(count) or count < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}.")
        if not is_pair(self.points, is_whole) or not 0 <= self.points[0] <= self.points[1]:
            raise ValueError(f"points must be a range of counts, got {self.points!r}.")
        if not is_pair(self.length, is_finite) or not 0 < self.length[0] <= self.length[1]:
            raise ValueError(f"length must be a range of positive numbers, got {self.length!r}.")
        for name, span in (("context", self.context), ("target", self.target)):
            if not is_pair(span, is_finite) or not span[0] < span[1]:
                raise ValueError(f"{name} must be a range, the smaller number first, got {span!r}.")
        if not is_finite(self.noise) or self.noise <= 0:
            raise ValueError(f"noise must be positive, got {self.noise!r}.")
        if not is_finite(self.shift):
            raise ValueError(f"shift must be a finite number, got {self.shift!r}.")
        # Canonical types (JSON has lists, and ints are accepted for floats), since ceilings are cached by the repr.
        for name, kind in (("kernels", str), ("points", int), ("length", float), ("context", float), ("target", float)):
            object.__setattr__(self, name, tuple(map(kind, getattr(self, name))))
        for name in ("noise", "shift"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` data sets, each a sample of a Gaussian process."""
        return self.sample_with_truth(batch_size, generator)[0]

    def sample_with_truth(self, batch_size: int, generator: torch.Generator) -> tuple[Batch, Truth]:
        """A batch, with kernel and length-scales of each data set."""

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)

        def inputs(span: tuple[float, float], n: int) -> Tensor:
            shape = (batch_size, n, self.dx)
            if not self.bimodal:
                return uniform(*span, *shape)
            side = torch.randint(2, shape, generator=generator) * 2 - 1
            return side * uniform(1, 4, *shape)

        nc = int(torch.randint(self.points[0], self.points[1] + 1, (), generator=generator))
        parts = max(kernel.count("+") for kernel in self.kernels) + 1
        truth = Truth(
            kernel=torch.randint(len(self.kernels), (batch_size,), generator=generator),
            length=uniform(math.log(self.length[0]), math.log(self.length[1]), batch_size, parts).exp(),
        )
        x = torch.cat([inputs(self.context, nc), inputs(self.target, self.train_targets or self.targets)], 1)
        cov = self.covariance(x, x, truth)
        cov.diagonal(dim1=1, dim2=2).add_(self.noise**2)
        white = torch.randn(*x.shape[:2], 1, generator=generator, dtype=x.dtype)
        y = torch.linalg.cholesky(cov) @ white
        x, y = (x + self.shift).float(), y.float()
        return Batch(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:]), truth

    def covariance(
        self, x1: Float[Tensor, "b n dx"], x2: Float[Tensor, "b m dx"], truth: Truth
    ) -> Float[Tensor, "b n m"]:
        """Prior covariance of the functions, without noise."""
        out = x1.new_empty(len(x1), x1.shape[1], x2.shape[1])
        for i, kernel in enumerate(self.kernels):
            rows = (truth.kernel == i).nonzero()[:, 0]
            d = x1[rows, :, None] - x2[rows, None, :]
            terms = kernel.split("+")
            out[rows] = sum(
                COVARIANCES[term](d, truth.length[rows, j, None, None].expand(d.shape[:-1]))
                for j, term in enumerate(terms)
            ) / len(terms)
        return out

    def test_sets(self) -> dict[str, TestSet]:
        """`valid`, and `delta-0.0` to `delta-1.0`: the same data sets, shifted by Delta."""
        base = replace(self, shift=0.0, train_targets=None)
        deltas = {f"delta-{i / 5:.1f}": TestSet(replace(base, shift=i / 5), seed=1, tasks=1024) for i in range(6)}
        return {"valid": TestSet(base, seed=2, tasks=256), **deltas}

    def ceiling(self, test_set: TestSet, mixture: bool, folder: Path | None = None) -> Float[Tensor, " n"] | None:
        """The ceiling of `shiftnp.tasks.ceiling`; None if there are sums of kernels."""
        from shiftnp.tasks.ceiling import ceiling

        if any("+" in kernel for kernel in self.kernels):
            return None
        known = ceiling(test_set, folder)
        return known.mixture if mixture else known.gaussian

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """Curves over one input, with the exact posterior if it is known; coloured points for several inputs."""
        from shiftnp.plots.curves import draw_field, draw_task
        from shiftnp.tasks.gp_posterior import BayesOptimal

        figure = Figure(figsize=(7, 3.5) if self.dx == 1 else (9, 3), layout="constrained")
        if self.dx == 1:
            exact = None
            if not any("+" in kernel for kernel in self.kernels):
                exact = BayesOptimal(self, gaussian=True)(batch.xc, batch.yc, batch.xt, batch.mask_c)
            draw_task(figure, batch, prediction, index, exact)
        else:
            draw_field(figure, batch, prediction, index)
        return figure

    @property
    def is_side_by_side(self) -> bool:
        """True for a single input."""
        return self.dx == 1

    @torch.no_grad()
    def comparison(
        self,
        models: Mapping[str, Predictor],
        test_sets: Mapping[str, TestSet],
        looks: Mapping[str, Style] | None = None,
    ) -> list[Comparison]:
        """Curves of all models in one figure: a data set in the training range and the same one shifted by 2, as in the
        paper, or one of each test set, if these differ in more than the shift. With several inputs, a figure for each
        model."""
        if not self.is_side_by_side:
            return super().comparison(models, test_sets, looks)
        tasks = {title: replace(t.task, shift=0.0) for title, t in test_sets.items() if isinstance(t.task, GPTask)}
        caption = "The same data sets for all models. The truth is the posterior given kernel and length-scale."
        if len(set(tasks.values())) == 1:
            (one,) = set(tasks.values())
            scenes = [one.scene("Δ = 0"), one.scene("Δ = 2", move=2)]
            caption += " Above: in the training range. Below: the same data, shifted."
        else:
            scenes = [task.scene(title) for title, task in tasks.items()]
        return [Comparison(draw_scenes(scenes, models, looks), caption, drawn=True)]

    def scene(self, title: str, move: float = 0) -> Scene:
        """A data set of about twelve context points for a figure, shifted by `move`."""
        from shiftnp.tasks.gp_posterior import GPOracle

        low, high = self.points
        task = replace(self, points=(min(max(low, 12), high),) * 2)
        batch, truth = task.sample_with_truth(1, generator_for(3, 0))
        left, right = (-4, 4) if self.bimodal else self.target
        xt = torch.linspace(left, right, 300)[None, :, None]
        exact = GPOracle(task, truth)(batch.xc, batch.yc, xt)
        return Scene(title, batch.xc + move, batch.yc, xt + move, exact)


def is_whole(value: Any) -> bool:
    """Whether a value is an integer, and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether a value is a finite real number, and not a boolean."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_pair(value: Any, of: Callable[[Any], bool]) -> bool:
    """Whether a value is a list or tuple of two entries that satisfy the predicate `of`."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(of, value))
