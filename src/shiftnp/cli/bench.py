"""`shiftnp bench`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Bench:
    """Measures how fast this machine is. Nothing else should run meanwhile.

    train: a training step of every model of the paper, as ratios to the TNP, beside the paper's own ratios.
    attention: the MLP kernel as a plain formula and in tiles, and the rotary kernel: time, memory, accuracy.
    scale: up to 100,000 context points and a million targets, with a local and a pseudo-token model: time, memory.
    """

    what: Positional[Literal["train", "attention", "scale"]]
    """What to measure."""
    preset: Literal["laptop", "paper"] = "laptop"
    """For train: whose precision to use; sizes are the paper's in both."""
    repeats: int | None = None
    """For train and attention: steps of each model. Default: 20 and 5."""
    seed: int = 0
    """Decides the batches."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write the result to this JSON file, too."""

    def run(self) -> None:
        if self.what == "train":
            from shiftnp.bench import train
            from shiftnp.experiments.timing import TIMING

            result = train.measure(TIMING.rows, self.preset, self.repeats or 20, self.seed)
            table = train.table(result)
        elif self.what == "attention":
            from shiftnp.bench import attention

            result = attention.measure(self.repeats or 5, self.seed)
            table = attention.table(result)
        else:
            from shiftnp.bench import scale

            result = scale.measure(seed=self.seed)
            table = scale.table(result)
        show(result, table, self.out)


def show(result: dict[str, Any], table: Any, out: Path | None) -> None:
    """Prints the table of a measurement, and writes the result with its command to a file."""
    from rich.console import Console

    from shiftnp._io import write_json

    Console().print(table)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, {"command": shlex.join(["shiftnp", *sys.argv[1:]]), **result})
        print(out.resolve())
