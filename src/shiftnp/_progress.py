"""One progress bar for everything that takes long."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def progress(
    *extra: ProgressColumn,
    quiet: bool = False,
    console: Console | None = None,
    transient: bool = True,
    period: float = 600.0,
) -> Progress:
    """A progress display: description, bar, "M of N", `extra` columns, time elapsed and time left.

    It shows nothing where `quiet` is set or the console is not a terminal.

    Args:
        console: None: standard output.
        transient: the display vanishes when it is done.
        period: seconds over which the speed is averaged. Steps differ in size, so that a short period gives a time
            left that jumps.
    """
    console = console or Console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *extra,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=transient,
        disable=quiet or not console.is_terminal,
        speed_estimate_period=period,
    )
