"""The base class `Task`, its test sets and its stream of training batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.data import IterableDataset, get_worker_info

from shiftnp.batch import Batch
from shiftnp.plots.comparison import Comparison, Predictor
from shiftnp.plots.style import Style
from shiftnp.scaling import Scaling


class Unit(NamedTuple):
    """A unit of outputs: its name, and the number of such units in one unit of the outputs that `sample` returns."""

    name: str
    factor: float


class Task(ABC):
    """A distribution over small data sets, each split into context and targets.

    A new task is a frozen dataclass that inherits from this class, in a file of its own, and a line in `TASKS`
    (`shiftnp.tasks`). Its fields are its settings: plain values that can be written as JSON, tuples instead of
    lists. `__post_init__` checks them and raises a ValueError that names the invalid setting.

    It has to define `dx`, `dy`, `sample`, `test_sets` and `draw`. The rest has defaults:

    - `scaling`, if inputs and outputs are standardised;
    - `ceiling`, if the best possible prediction is known;
    - `origins`, if several data sets of a test set are made from the same observations, and `unit`, if scores are
      reported in the units of the data;
    - `comparison`, if several models fit into one figure (then `is_side_by_side` is True), or `for_comparison`, if the
      default figures need another batch or a longer caption;
    - `path_settings` and `sequence_settings`, for the command line.

    `tests/test_tasks_contract.py` tests all of this for every task in `TASKS`.
    """

    dx: int
    """Number of inputs."""
    dy: int
    """Number of outputs."""
    path_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that are files or folders: a run stores them as absolute paths."""
    sequence_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that are sequences of names: a single name on the command line is a sequence of one."""

    # --- every task defines these --------------------------------------------------------------------------------

    @abstractmethod
    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """`batch_size` new data sets, in float32 on the CPU. They depend on the generator and the settings only."""

    @abstractmethod
    def test_sets(self) -> dict[str, TestSet]:
        """The data sets on which results are reported, by name. "valid" must be among them: training validates on it,
        and on others whose names start with "valid-". They share no data with training, nor with each other unless they
        differ in a shift or, of a table, in the stations that are targets."""

    @abstractmethod
    def draw(self, batch: Batch, prediction: Distribution | None = None, index: int = 0) -> Figure:
        """A figure of data set `index` of a batch and, if given, of a prediction at its targets."""

    # --- these have defaults -------------------------------------------------------------------------------------

    @property
    def scaling(self) -> Scaling | None:
        """How inputs and outputs are standardised; None: they are not. A run stores it in `scaling.json` and passes it
        to the task as the setting `fixed_scaling`, so that predictions stay in the units of the training data."""
        return None

    @property
    def data(self) -> str | None:
        """Which data the task reads, as a sentence for reports; None: it generates them."""
        return None

    def ceiling(self, test_set: TestSet, mixture: bool, folder: Path | None = None) -> Float[Tensor, " n"] | None:
        """Log-likelihood per target of the best possible predictor on each data set of a test set; None: not known.

        Args:
            test_set: a test set of this task, or of this task with other settings.
            mixture: whether predictions are mixtures of Gaussians; otherwise the ceiling is the best Gaussian.
            folder: folder in which the result is cached. None: the user's cache.
        """
        return None

    def origins(self, test_set: TestSet) -> Int[Tensor, " n"] | None:
        """For each data set of a test set, the number of the independent sample that it was made from, such as a day
        that was split several times; standard errors are over these. None: the data sets are independent."""
        return None

    @property
    def unit(self) -> Unit | None:
        """The unit in which scores are reported, if that is not the one of the outputs of `sample`."""
        return None

    @property
    def is_side_by_side(self) -> bool:
        """Whether `comparison` returns one figure for all models, not one for each."""
        return False

    @torch.no_grad()
    def comparison(
        self,
        models: Mapping[str, Predictor],
        test_sets: Mapping[str, TestSet],
        looks: Mapping[str, Style] | None = None,
    ) -> list[Comparison]:
        """Figures that compare predictions of several models on the same data sets. Default: for each model, the figure
        of `draw` for one data set of the last test set.

        Args:
            models: the models, by their labels in the figure.
            test_sets: the test sets, by their titles; at least one.
            looks: plot styles of the models, by the same labels.
        """
        title, test_set = list(test_sets.items())[-1]
        batch, more = test_set.task.for_comparison(test_set.examples(1)[0])
        count = len(present(batch.xc, batch.mask_c))
        found = []
        for name, model in models.items():
            figure = test_set.task.draw(batch, model(batch.xc, batch.yc, batch.xt, batch.mask_c))
            above = figure.get_suptitle()
            figure.suptitle(f"{name}: {above}" if above else name, parse_math=False)
            caption = f"{name} on a test data set ({title}) with {count} context points{more}."
            found.append(Comparison(figure, caption, drawn=False))
        return found

    def for_comparison(self, batch: Batch) -> tuple[Batch, str]:
        """The batch of one data set that the default `comparison` draws, and the text that follows the number of
        context points in its caption."""
        return batch, ""


@dataclass(frozen=True)
class TestSet:
    """`tasks` data sets in batches of `batch_size`, the same on every machine.

    A smaller number of `tasks` gives the first of the same data sets if it is a multiple of `batch_size`; an incomplete
    last batch holds other data sets.

    Args:
        task: the task that they are sampled from.
        seed: random seed. Test sets with the same seed differ in the task's settings only.
    """

    __test__ = False  # tells pytest that this is not a test class

    task: Task
    seed: int
    tasks: int
    batch_size: int = 16

    def __len__(self) -> int:
        return -(-self.tasks // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for i in range(len(self)):
            size = min(self.batch_size, self.tasks - i * self.batch_size)
            yield self.task.sample(size, generator_for(self.seed, i))

    def examples(self, count: int) -> list[Batch]:
        """A few data sets for figures, each a batch of one, from fewer to more context points; a single one has the
        median number."""
        found = sorted(islice(self, 5), key=lambda batch: batch.xc.shape[1])
        ranks = np.linspace(0, len(found) - 1, count) if count > 1 else [(len(found) - 1) / 2]
        chosen = [found[round(float(rank))] for rank in ranks]
        return [replace(batch, **{k: v[:1] for k, v in vars(batch).items() if v is not None}) for batch in chosen]


def reported_test_sets(task: Task) -> dict[str, TestSet]:
    """All test sets of a task except the validation sets."""
    return {name: test_set for name, test_set in task.test_sets().items() if not is_validation(name)}


def validation_sets(task: Task) -> dict[str, TestSet]:
    """The test sets of a task that training validates on."""
    return {name: test_set for name, test_set in task.test_sets().items() if is_validation(name)}


def is_validation(name: str) -> bool:
    """Whether a test set of that name is for validation."""
    return name == "valid" or name.startswith("valid-")


TRAINING = 1  # spawn key that separates training batches from those of test sets, for any seeds


def generator_for(seed: int, index: int, *purpose: int) -> torch.Generator:
    """The random generator of batch `index`, independent of those of all other batches."""
    state = np.random.SeedSequence((seed, index), spawn_key=purpose).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


class Stream(IterableDataset[Batch]):
    """An infinite sequence of training batches, determined by the seed.

    Batch `i` is the same with any number of loader workers. With `world` processes, process `rank` gets its shard of
    every batch, so that together they train on the same batches as one process would.

    Args:
        batch_size: global batch size, over all processes.
        start: index of the first batch, to resume a run.
    """

    def __init__(self, task: Task, batch_size: int, seed: int, rank: int = 0, world: int = 1, start: int = 0) -> None:
        if batch_size % world:
            raise ValueError(f"batch_size must be a multiple of the {world} processes, got {batch_size}.")
        self.task, self.batch_size, self.seed = task, batch_size, seed
        self.rank, self.world, self.start = rank, world, start

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        index, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        index += self.start
        while True:
            batch = self.task.sample(self.batch_size, generator_for(self.seed, index, TRAINING))
            yield batch if self.world == 1 else batch.shard(self.rank, self.world)
            index += step


def present(x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None, index: int = 0) -> Float[Tensor, "m d"]:
    """The points of data set `index` of a batch, without padding."""
    return x[index] if mask is None else x[index, mask[index]]
