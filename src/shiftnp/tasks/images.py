"""Image completion on MNIST and CIFAR-10, plain or translated: pixel values from pixel coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution

from shiftnp.batch import Batch
from shiftnp.plots.comparison import Comparison, Predictor, draw_strips
from shiftnp.plots.style import Style
from shiftnp.tasks import checks
from shiftnp.tasks.base import Task, TestSet, generator_for
from shiftnp.tasks.download import data_folder
from shiftnp.tasks.image_files import DATASETS, read_images

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class ImageTask(Task):
    """Images on a black canvas: some pixels are the context, the others the targets.

    Inputs are (row, column) of a pixel, standardised over the canvas; outputs are grey or RGB in [0, 1]. The number of
    context pixels is drawn once per batch, the pixels for every image. The translation of an image is fixed.

    Args:
        dataset: "mnist" or "cifar10".
        translated: whether the image is at a uniformly random position on the canvas, never cut off, or centred.
        split: "train", "valid" (the last tenth of the training images) or "test".
        canvas: side of the canvas in pixels (None: that of the image, and twice that if translated, as in the paper).
        limit: largest number of images of the split, the first ones (None: all).
        targets: maximum number of targets (None: all pixels that are not context).
        context: minimum and maximum fraction of the pixels of the canvas that are context.
        seed: random seed of the translations.
        path: data folder (None: SHIFTNP_DATA, then the user's cache, then a download).
    """

    dataset: str = "mnist"
    translated: bool = False
    split: str = "train"
    canvas: int | None = None
    limit: int | None = None
    targets: int | None = None
    context: tuple[float, float] = (1 / 100, 1 / 3)
    seed: int = 0
    path: Path | str | None = field(default=None, repr=False, compare=False)

    dx = 2
    path_settings: ClassVar[tuple[str, ...]] = ("path",)

    def __post_init__(self) -> None:
        checks.one_of("dataset", self.dataset, tuple(DATASETS))
        checks.one_of("split", self.split, SPLITS)
        checks.flag("translated", self.translated)
        for name in ("canvas", "limit", "targets"):
            checks.whole(name, getattr(self, name), least=1, optional=True)
        checks.whole("seed", self.seed)
        object.__setattr__(self, "context", checks.numbers("context", self.context, 2))
        object.__setattr__(self, "path", checks.path_or_none("path", self.path))
        if self.side < self._width:
            raise ValueError(f"canvas must not be smaller than the images of {self._width} pixels, got {self.canvas}.")
        low, high = self._points
        if not (0 <= low <= high and self.context[1] < 1):
            raise ValueError(f"context must be a range of shares of the pixels, below one, got {self.context}.")

    @property
    def dy(self) -> int:  # type: ignore[override]
        """Number of channels."""
        return DATASETS[self.dataset].channels

    @property
    def side(self) -> int:
        """Side of the canvas in pixels."""
        return self.canvas if self.canvas is not None else self._width * (2 if self.translated else 1)

    @property
    def pitch(self) -> float:
        """Distance between adjacent pixels in units of the inputs. (`1 / pitch` is the `points_per_unit` of an on-grid
        ConvCNP.)"""
        return 1 / math.sqrt((self.side**2 - 1) / 12)  # the variance of 0, 1, ..., side - 1

    @property
    def count(self) -> int:
        """Number of images of the split."""
        return len(self._split_range())

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` random images of the split, with random context pixels."""
        return self.complete(torch.randint(self.count, (batch_size,), generator=generator), generator)

    def complete(self, index: Int[Tensor, " b"], generator: torch.Generator) -> Batch:
        """A batch of the images with these indices in the split, with random context pixels."""
        n = self.side**2
        low, high = self._points
        nc = int(torch.randint(low, high + 1, (), generator=generator))
        keep = n if self.targets is None else nc + self.targets
        order = torch.stack([torch.randperm(n, generator=generator)[:keep] for _ in index])
        pixel = order + n * torch.arange(len(index))[:, None]  # index into the flattened canvases
        x = pixel_grid(self.side).index_select(0, order.flatten()).unflatten(0, order.shape)
        y = self.images(index).flatten(0, 2).index_select(0, pixel.flatten()).unflatten(0, order.shape)
        return Batch(x[:, :nc], y[:, :nc], x[:, nc:], y[:, nc:])

    def images(self, index: Int[Tensor, " b"]) -> Float[Tensor, "b side side dy"]:
        """The canvases of these images of the split."""
        width = self._width
        out = torch.zeros(len(index), self.side, self.side, self.dy, dtype=torch.uint8)
        images = self._all_images()[self._rows(index)]
        for canvas, image, (top, left) in zip(out, images, self.offsets(index).tolist(), strict=True):
            canvas[top : top + width, left : left + width] = image
        return out.float() / 255

    def offsets(self, index: Int[Tensor, " b"]) -> Int[Tensor, "b 2"]:
        """Row and column of the upper left corner of these images of the split."""
        positions = self.side - self._width + 1
        if not self.translated:
            return torch.full((len(index), 2), (positions - 1) // 2)
        return translations(self.seed, self._part, len(self._all_images()), positions)[self._rows(index)]

    @property
    def _width(self) -> int:
        return DATASETS[self.dataset].side

    @property
    def _points(self) -> tuple[int, int]:
        """Smallest and largest number of context pixels."""
        return math.ceil(self.context[0] * self.side**2), math.floor(self.context[1] * self.side**2)

    @property
    def data(self) -> str:
        """Number of images at hand, of how many there are."""
        counts = {part: len(load(self.dataset, part, self.path, data_folder())) for part in ("train", "test")}
        shares = (f"{n:,} of {DATASETS[self.dataset].counts[part]:,} {part} images" for part, n in counts.items())
        return f"{', '.join(shares)} of {self.dataset}."

    @property
    def _part(self) -> str:
        return "test" if self.split == "test" else "train"

    def _all_images(self) -> UInt8[Tensor, "n w w dy"]:
        return load(self.dataset, self._part, self.path, data_folder())

    def _split_range(self) -> range:
        """Indices of the images of the split in the file."""
        n = len(self._all_images())
        trained = n - n // 10
        split = {"train": range(trained), "valid": range(trained, n), "test": range(n)}[self.split][: self.limit]
        if not split:
            raise ValueError(
                f"split {self.split!r} of {self.dataset} is empty, as its file has {n} images: get them all."
            )
        return split

    def _rows(self, index: Int[Tensor, " b"]) -> Int[Tensor, " b"]:
        split = self._split_range()
        if not 0 <= int(index.min()) <= int(index.max()) < len(split):
            raise ValueError(
                f"index must be in 0 to {len(split) - 1}, the images of split {self.split!r}, got {index}."
            )
        return split.start + index

    def test_sets(self) -> dict[str, TestSet]:
        """`valid` and `test`: the first images of these splits, each once, with all their pixels.

        Batches are small, because images have many pixels and each batch has one number of context pixels.
        """

        def images(split: str, seed: int, tasks: int) -> TestSet:
            return ImageTestSet(replace(self, split=split, limit=None, targets=None), seed, tasks, batch_size=4)

        return {"valid": images("valid", 2, 256), "test": images("test", 1, 1024)}

    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """The context pixels, the image and, if given, the mean and standard deviation of a prediction."""
        from shiftnp.plots.images import draw_completions

        figure = Figure(figsize=(4, 2.2) if prediction is None else (8, 2.1), layout="constrained")
        draw_completions(figure, batch, self.side, self.pitch, prediction, [index])
        return figure

    @property
    def is_side_by_side(self) -> bool:
        """True: images of all models are in one figure."""
        return True

    @torch.no_grad()
    def comparison(
        self,
        models: Mapping[str, Predictor],
        test_sets: Mapping[str, TestSet],
        looks: Mapping[str, Style] | None = None,
    ) -> list[Comparison]:
        """Three images of the last test set, completed by the mean of each model."""
        last = list(test_sets.values())[-1]
        caption = "Test images: the context, the truth, and for each model the pixels of the context together with the"
        figure = draw_strips(models, last.examples(3), self.side, self.pitch)
        return [Comparison(figure, f"{caption} predicted mean of all others.", drawn=False)]


@dataclass(frozen=True)
class ImageTestSet(TestSet):
    """The first `tasks` images of a split in their order, while other test sets are random samples."""

    def __iter__(self) -> Iterator[Batch]:
        task = self.task
        assert isinstance(task, ImageTask)
        if self.tasks > task.count:
            raise ValueError(
                f"tasks must not exceed the {task.count} images of split {task.split!r}, got {self.tasks}."
            )
        for i in range(len(self)):
            first = i * self.batch_size
            index = torch.arange(first, min(first + self.batch_size, self.tasks))
            yield task.complete(index, generator_for(self.seed, i))


@lru_cache(maxsize=4)
def load(dataset: str, part: str, folder: Path | str | None, root: Path | None = None) -> UInt8[Tensor, "n w w dy"]:
    """The images of a file, cached; read again if `root`, the folder in SHIFTNP_DATA, changes."""
    return torch.from_numpy(read_images(dataset, part, folder))


@lru_cache(maxsize=16)
def translations(seed: int, part: str, n: int, places: int) -> Int[Tensor, "n 2"]:
    """Offsets in {0, ..., places - 1} of the first `n` images of a file. Those of image `i` do not depend on `n`."""
    # numpy guarantees a reproducible stream across versions for raw bits only, not for distributions.
    raw = np.random.PCG64(np.random.SeedSequence((seed, ("train", "test").index(part)))).random_raw(2 * n)
    return torch.from_numpy((raw % np.uint64(places)).astype(np.int64)).reshape(n, 2)


@lru_cache(maxsize=16)
def pixel_grid(side: int) -> Float[Tensor, "n 2"]:
    """Coordinates of the pixels of a square canvas, row by row, with mean zero and variance one per dimension."""
    axis = torch.arange(side, dtype=torch.float64)
    axis = (axis - axis.mean()) / axis.std(correction=0)
    return torch.cartesian_prod(axis, axis).float()
