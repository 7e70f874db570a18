"""The progress bar of all long-running commands."""

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

    It shows nothing if `quiet` is set or the console is not a terminal.

    Args:
        console: None: standard output.
        transient: whether the display is removed at the end.
        period: seconds over which the speed is averaged. Steps take different times, so a short period makes the
            estimate of the time left unstable.
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
