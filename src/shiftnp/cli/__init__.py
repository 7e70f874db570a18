"""The command line: `shiftnp --help`. Heavy imports wait until a command runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

from shiftnp.cli.bench import Bench
from shiftnp.cli.data import DataCommand
from shiftnp.cli.evaluate import Evaluate, Report
from shiftnp.cli.train import Train


@dataclass(frozen=True)
class List:
    """What there is: experiments with their models, all models and all tasks by name."""

    def run(self) -> None:
        from shiftnp.experiments import EXPERIMENTS
        from shiftnp.models import MODELS
        from shiftnp.tasks import TASKS

        print("experiments:")
        for name, experiment in EXPERIMENTS.items():
            print(f"  {name}: {experiment.title}")
            print(f"    --model {' | '.join(row.name for row in experiment.rows)} | all")
            if len(experiment.tasks) > 1:
                print(f"    --task {' | '.join(experiment.tasks)}")
        print(f"models: {', '.join(MODELS)}")
        print(f"tasks: {', '.join(TASKS)}")


Command = (
    Annotated[List, subcommand("list")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[DataCommand, subcommand("data")]
)


def main() -> None:
    about = "Translation-equivariant transformer neural processes."
    command: Any = tyro.cli(Command, prog="shiftnp", description=about)
    try:
        command.run()
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, ArithmeticError) as error:
        # Of several processes the first one tells what went wrong; the others merely lose their connection to it.
        sys.exit(1 if int(os.environ.get("LOCAL_RANK", 0)) else f"shiftnp: {error}")
    except KeyboardInterrupt:
        sys.exit("shiftnp: stopped.")
