"""The command `shiftnp data`: previews of data sets, ceilings, and generation of Kolmogorov flow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg, subcommand

from shiftnp._registry import choose
from shiftnp.cli.settings import check_least, check_needed, known_names, parse_setting, usage


@dataclass(frozen=True)
class Preview:
    """Draws one data set of a task, with --predict also the prediction of a Gaussian process fitted to its context."""

    task: Positional[str]
    """Name of the task, see `shiftnp list`."""
    settings: Positional[tuple[str, ...]] = ()
    """Arguments of the task as name=value, for instance dx=2 shift=1 for gp-1d, region=50,58,-10,2 for climate, or
    path=stations.csv inputs=lon,lat outputs=temperature group=day for table. task.path=... is the same. `shiftnp list
    TASK` explains all of them."""
    out: Path | None = None
    """Image file to write. Default: preview-TASK.png."""
    seed: int = 0
    """Random seed of the data set."""
    predict: bool = False
    """Also fit a Gaussian process to the context and draw its prediction."""

    def run(self) -> None:
        """Runs the command."""
        from shiftnp.tasks.base import generator_for

        check_least("--seed", self.seed, 0)
        task = make_task(self.task, self.settings)
        with known_names():
            batch = task.sample(1, generator_for(self.seed, 0))
        prediction = None
        if self.predict:
            from shiftnp.baselines.gp import GPBaseline

            # Large contexts get few iterations, so that a preview takes seconds.
            baseline = GPBaseline(iterations=200 if batch.xc.shape[1] <= 500 else 30)
            prediction = baseline(batch.xc, batch.yc, batch.xt, batch.mask_c)
        out = self.out or Path(f"preview-{self.task}.png")
        out.parent.mkdir(parents=True, exist_ok=True)
        task.draw(batch, prediction).savefig(out, dpi=130)
        print(out.resolve())


@dataclass(frozen=True)
class Ceiling:
    """Best possible log-likelihood on a test set of gp-1d: with known kernel, Bayes-optimal, and as a Gaussian."""

    test_set: Positional[str] = "delta-0.0"
    """Name of the test set: valid, or delta-0.0 to delta-1.0."""

    def run(self) -> None:
        """Runs the command."""
        from shiftnp.tasks.ceiling import ceiling
        from shiftnp.tasks.gp import GPTask

        with usage():
            test_set = choose(self.test_set, GPTask().test_sets(), "test set")
        result = ceiling(test_set)
        for name, score in result._asdict().items():
            print(f"{name:9} {score.mean():+.4f} ± {score.std() / len(score) ** 0.5:.4f}  ({len(score)} tasks)")


@dataclass(frozen=True)
class Kolmogorov:
    """Generates trajectories of Kolmogorov flow with the paper's settings; run it again to resume or to add more."""

    trajectories: int
    """Total number of trajectories (the paper: 1024). One takes about 20 seconds on one core."""
    out: Path
    """Folder for the trajectories, one file each."""
    seed: int = 0
    """Random seed; trajectory i depends on the seed and i only."""
    workers: int | None = None
    """Number of processes. Default: one per core."""
    resolution: int = 256
    """Grid points of the solver along each side, a multiple of 64. 128 is about five times as fast, and coarser than
    the paper."""

    def run(self) -> None:
        """Runs the command."""
        import signal

        from shiftnp.tasks.kolmogorov_files import generate
        from shiftnp.tasks.navier_stokes import Simulation

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM, as from a scheduler, acts like Ctrl-C
        with usage():
            simulation = Simulation(n=self.resolution)
        print(generate(self.trajectories, self.out, self.seed, self.workers, simulation).resolve())


Data = (
    Annotated[Preview, subcommand("preview")]
    | Annotated[Kolmogorov, subcommand("kolmogorov")]
    | Annotated[Ceiling, subcommand("ceiling")]
)


@dataclass(frozen=True)
class DataCommand:
    """Previews data sets, prints ceilings and generates Kolmogorov flow."""

    command: Annotated[Data, arg(name="")]

    def run(self) -> None:
        """Runs the subcommand."""
        self.command.run()


def make_task(name: str, settings: tuple[str, ...]) -> Any:
    """The task of that name with settings, each as name=value or task.name=value."""
    from shiftnp._arguments import build
    from shiftnp.tasks import TASKS, task_class

    with usage():
        make = choose(name, TASKS, "task")
        check_needed(name, settings, prefix="")
        for text in settings:
            parse_setting(text)  # an error shows the setting as it was given
        full = (text if text.startswith("task.") else f"task.{text}" for text in settings)
        chosen = dict(parse_setting(text, task_class(name)) for text in full)
        return build(make, {key.removeprefix("task."): value for key, value in chosen.items()}, name)
