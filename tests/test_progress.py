from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import TextColumn

from shiftnp._progress import progress


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (True, True), (False, False)])
def test_progress_is_shown_in_a_terminal_only(terminal: bool, quiet: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100)
    with progress(TextColumn("{task.fields[score]}"), console=console, quiet=quiet) as shown:
        bar = shown.add_task("tasks", total=7, score="")
        shown.update(bar, advance=3, score="loss 0.5")
        shown.refresh()
    if terminal and not quiet:
        assert "tasks" in file.getvalue()
        assert "3/7" in file.getvalue()
        assert "loss 0.5" in file.getvalue()
    else:
        assert file.getvalue().strip() == ""
