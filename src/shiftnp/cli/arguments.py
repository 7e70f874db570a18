"""Arguments of the command line before they are parsed: names of commands, and the order of settings and options."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

from shiftnp.cli.settings import UsageError

FLAGS = tuple(f"--{no}{name}" for name in ("gap", "tensorboard", "predict") for no in ("", "no-"))
"""Options of `train` and `data preview` that have no value."""


def names(commands: Any) -> tuple[str, ...]:
    """The names in a union of subcommands."""
    return tuple(get_args(command)[1].name for command in get_args(commands))


def check_command(arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Raises a UsageError that suggests the nearest command if the arguments begin with no command and no option.

    Args:
        commands: all commands, and those within commands as "data preview".
    """
    given = ""
    for word in arguments:
        among = {command.removeprefix(given).split(" ")[0]: None for command in commands if command.startswith(given)}
        if not among or word.startswith("-"):
            return
        if word not in among:
            by_end = {command.split(" ")[-1]: command for command in commands}
            close = get_close_matches(word.lower(), by_end, n=1)
            hint = f"did you mean `shiftnp {by_end[close[0]]}`?" if close else f"there are {', '.join(among)}."
            raise UsageError(f"There is no command `shiftnp {given}{word}`: {hint}")
        given += f"{word} "


def options_first(arguments: Sequence[str]) -> list[str]:
    """Arguments of `train` and `data preview` with all options before all settings, such as dz=64: the parser takes
    settings in one place only."""
    options: list[str] = []
    others: list[str] = []
    for before, word in zip(("", *arguments), arguments, strict=False):
        is_value = before.startswith("--") and "=" not in before and before not in FLAGS
        (options if word.startswith("-") or is_value else others).append(word)
    return options + others
