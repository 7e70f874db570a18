"""The command `shiftnp bench`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Bench:
    """Runs a benchmark. Nothing else should run on the machine meanwhile.

    train: time of a training step of every model of the paper, relative to the TNP, and the paper's ratios.
    attention: time, memory and accuracy of the MLP kernel, as a plain formula and tiled, and of the rotary kernel.
    scale: time and memory of a local and a pseudo-token model for up to 100,000 context points and a million targets.
    sample: time of joint samples of 100 functions at 100 targets, exact and in steps.
    """

    what: Positional[Literal["train", "attention", "scale", "sample"]]
    """The benchmark."""
    preset: Literal["laptop", "paper"] = "laptop"
    """For train: both presets have the paper's sizes, as nothing is trained."""
    repeats: int | None = None
    """For train and attention: number of steps of each model. Default: 20 and 5."""
    size: Literal["small", "paper"] = "small"
    """For scale: small is `D_z` 32 and 3 layers, paper `D_z` 128 and 5 layers, with the largest context only."""
    targets: int = 1_000_000
    """For scale: number of targets."""
    longest: float = 30.0
    """For sample: CPU seconds above which a time is scaled from that of few functions."""
    seed: int = 0
    """Random seed of weights and data."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Also write the result to this JSON file."""

    def run(self) -> None:
        """Runs the command."""
        if self.what == "train":
            from shiftnp.bench import train
            from shiftnp.experiments.timing import TIMING

            result = train.measure(TIMING.rows, self.preset, self.repeats or 20, self.seed)
            table = train.table(result)
        elif self.what == "attention":
            from shiftnp.bench import attention

            result = attention.measure(self.repeats or 5, self.seed)
            table = attention.table(result)
        elif self.what == "sample":
            from shiftnp.bench import sample

            result = sample.measure(seed=self.seed, longest=self.longest)
            table = sample.table(result)
        else:
            from shiftnp.bench import scale

            result = scale.measure(targets=self.targets, seed=self.seed, paper=self.size == "paper")
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
