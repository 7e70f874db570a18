"""`shiftnp bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Bench:
    """Measures how fast this machine is. Nothing else should run meanwhile.

    train: time of a training step of every model of the paper, as ratios to the TNP, beside the paper's own.
    """

    what: Positional[Literal["train"]]
    """What to measure."""
    preset: Literal["laptop", "paper"] = "laptop"
    """Whose precision to use; sizes are the paper's in both."""
    repeats: int = 20
    """Steps of each model."""
    seed: int = 0
    """Decides the batches."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the result to this JSON file, too."""

    def run(self) -> None:
        from rich.console import Console

        from shiftnp.bench.train import measure, table
        from shiftnp.checkpoint import write_json
        from shiftnp.experiments.timing import TIMING

        result = measure(TIMING.rows, self.preset, self.repeats, self.seed)
        Console().print(table(result))
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.out, result)
            print(self.out.resolve())
