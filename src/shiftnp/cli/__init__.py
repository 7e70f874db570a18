"""The command line `shiftnp`. Heavy imports are deferred until a command runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

import shiftnp
from shiftnp._text import printable
from shiftnp.cli.bench import Bench
from shiftnp.cli.data import DataCommand
from shiftnp.cli.evaluate import Evaluate, Report
from shiftnp.cli.settings import UsageError
from shiftnp.cli.train import Train


@dataclass(frozen=True)
class List:
    """Lists experiments with their models, all models and all tasks."""

    def run(self) -> None:
        """Runs the command."""
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


ABOUT = """Translation-equivariant transformer neural processes.

Exit codes: 0 success, 1 a problem with data or files, 2 a wrong command line, 130 stopped and saved.

shiftnp --version prints the version.

Tab completion in bash (or zsh, tcsh): source <(shiftnp --tyro-print-completion bash)"""


def main() -> None:
    """Runs the command line."""
    try:
        run()
    except BrokenPipeError:  # standard output was closed, as in `shiftnp ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def run() -> None:
    """Parses the arguments and runs the command; errors are printed as one line, without a traceback."""
    if sys.argv[1:] == ["--version"]:
        print(f"shiftnp {shiftnp.__version__}")
        return
    command: Any = tyro.cli(Command, prog="shiftnp", description=ABOUT)
    try:
        command.run()
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, ArithmeticError) as error:
        # Of several processes only the first one prints the error; the others just lose their connection to it.
        if int(os.environ.get("LOCAL_RANK", 0)):
            sys.exit(1)
        sentence = f"shiftnp: {printable(str(error))}"
        if isinstance(error, UsageError):
            print(sentence, file=sys.stderr)
            sys.exit(2)
        sys.exit(sentence)
    except KeyboardInterrupt:
        print("shiftnp: stopped.", file=sys.stderr)
        sys.exit(130)
