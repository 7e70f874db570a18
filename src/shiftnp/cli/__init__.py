"""The command line `shiftnp`. Heavy imports are deferred until a command runs."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from tyro.conf import Positional, arg, subcommand

import shiftnp
from shiftnp._text import printable
from shiftnp.cli.arguments import check_command, names, options_first
from shiftnp.cli.bench import Bench
from shiftnp.cli.check import Check
from shiftnp.cli.data import Data, DataCommand
from shiftnp.cli.evaluate import Evaluate, Report
from shiftnp.cli.export import Export
from shiftnp.cli.messages import plain_warnings
from shiftnp.cli.play import Play
from shiftnp.cli.predict import Predict
from shiftnp.cli.settings import UsageError, usage
from shiftnp.cli.train import Train

Name = Annotated[str | None, arg(metavar="[NAME]")]


@dataclass(frozen=True)
class List:
    """Lists experiments with their models, all models and all tasks; or explains one model or task and its settings."""

    name: Positional[Name] = None
    """Name of a model or task to explain, such as table."""

    def run(self) -> None:
        """Runs the command."""
        from shiftnp.experiments import EXPERIMENTS
        from shiftnp.models import MODELS
        from shiftnp.tasks import TASKS

        if self.name is not None:
            print(explain(self.name))
            return
        print("experiments:")
        for name, experiment in EXPERIMENTS.items():
            print(f"  {name}: {experiment.title}")
            print(f"    --model {' | '.join(row.name for row in experiment.rows)} | all")
            if len(experiment.tasks) > 1:
                print(f"    --task {' | '.join(experiment.tasks)}")
        print(f"models: {', '.join(MODELS)}")
        print(f"tasks: {', '.join(TASKS)}")
        print("shiftnp list NAME explains a model or task and its settings.")


def explain(name: str) -> str:
    """The description of a model or task, with the defaults of its settings."""
    from inspect import Parameter, getdoc
    from textwrap import fill

    from shiftnp._arguments import parameters
    from shiftnp._registry import choose
    from shiftnp.experiments.settings import written
    from shiftnp.models import MODELS
    from shiftnp.tasks import TASKS, task_class

    with usage():
        make = choose(name, {**MODELS, **TASKS}, "model or task")
    prefix = "task." if name in TASKS else ""
    text = getdoc(task_class(name) if name in TASKS else make) or ""
    defaults = {key: parameter.default for key, parameter in parameters(make).items()}
    shown = [f"{prefix}{k}={written(v)}" for k, v in defaults.items() if v not in (None, (), Parameter.empty)]
    line = f"Defaults, unless a preset of `shiftnp train` has another value: {' '.join(shown)}"
    return f"{text.replace('Args:', 'Settings:')}\n\n{fill(line, 120, break_on_hyphens=False)}"


Command = (
    Annotated[Predict, subcommand("predict")]
    | Annotated[Check, subcommand("check")]
    | Annotated[List, subcommand("list")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Play, subcommand("play")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[DataCommand, subcommand("data")]
)


FIRST = """shiftnp predicts curves and maps, with error bars, from scattered observations.

  shiftnp predict stations.csv --x lon lat --y temperature --out map.nc
      a map with its uncertainty and a picture, from pretrained weights: no training
  shiftnp check stations.csv --x lon lat --y temperature
      how good that is: cross-validation beside a fitted GP and interpolation
  shiftnp play
      a page in the browser: set and drag points, and the prediction follows
  shiftnp train table --minutes 10 task.path=stations.csv task.inputs=lon,lat task.outputs=temperature task.group=day
      trains a model on many data sets of one kind
  shiftnp list
      experiments of the paper, models and tasks

shiftnp --help shows all commands, shiftnp predict --help the options of one."""

ABOUT = """Translation-equivariant transformer neural processes.

Exit codes: 0 success, 1 a problem with data or files, 2 a wrong command line, 130 stopped and saved. Errors are one
sentence; with SHIFTNP_DEBUG=1 in the environment they come with their traceback.

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
    """Parses the arguments and runs the command; errors are printed as one line, without a traceback unless
    SHIFTNP_DEBUG is set."""
    if sys.argv[1:] == ["--version"]:
        print(f"shiftnp {shiftnp.__version__}")
        return
    if not sys.argv[1:]:
        print(FIRST)
        return
    try:
        command = parse(sys.argv[1:])
        with plain_warnings():
            command.run()
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, ArithmeticError) as error:
        # Of several processes only the first one prints the error; the others just lose their connection to it.
        if int(os.environ.get("LOCAL_RANK", 0)):
            sys.exit(1)
        show_traceback()
        sentence = f"shiftnp: {printable(str(error))}"
        if isinstance(error, UsageError):
            print(sentence, file=sys.stderr)
            sys.exit(2)
        sys.exit(sentence)
    except Exception as error:
        show_traceback()
        what = f"{type(error).__name__}: {printable(str(error))[:200]}"
        sys.exit(
            f"shiftnp: unexpected error ({what}); please report it with the command and the traceback, which "
            "SHIFTNP_DEBUG=1 in the environment shows."
        )
    except KeyboardInterrupt:
        print("shiftnp: stopped.", file=sys.stderr)
        sys.exit(130)


def parse(arguments: list[str]) -> Any:
    """The command with its options."""
    check_command(arguments, (*names(Command), *(f"data {name}" for name in names(Data))))
    for words in (["train"], ["data", "preview"]):
        if arguments[: len(words)] == words:
            arguments = [*words, *options_first(arguments[len(words) :])]
    return tyro.cli(Command, prog="shiftnp", description=ABOUT, args=arguments)


def show_traceback() -> None:
    """Prints the traceback of the current exception if SHIFTNP_DEBUG is set."""
    if os.environ.get("SHIFTNP_DEBUG", "") not in ("", "0"):
        traceback.print_exc()
