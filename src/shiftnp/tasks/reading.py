"""Error handling for data files: errors of third-party readers become one message that names the file."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Context manager that converts every error of a third-party reader into one that names the file.

    It should enclose only the calls that read the file, so that shiftnp's own errors pass unchanged.

    Args:
        path: the file or folder that is read.
        what: the expected format, with its article: "a Parquet file".
    """
    try:
        yield
    except Exception as error:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # readers warn about files that they leave open themselves
            traceback.clear_frames(error.__traceback__)
        if isinstance(error, FileNotFoundError) and not path.exists():
            raise FileNotFoundError(f"No file {path}.") from error
        system = isinstance(error, OSError) and error.errno is not None  # no permission, a failing disk
        if system and not isinstance(error, FileNotFoundError):
            raise OSError(f"{path} cannot be read ({reason(error)}).") from error
        raise ValueError(f"{path} is damaged or not {what} ({reason(error)}): get it again or convert it.") from error


def reason(error: BaseException) -> str:
    """The first line of an error message, or the name of the error if there is none."""
    lines = str(error).strip().splitlines()
    return shorten(lines[0].rstrip(".: ") if lines else "") or type(error).__name__


def shorten(text: str, length: int = 150) -> str:
    """Text from a file for an error message: control characters escaped, at most `length` characters."""
    printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: length + 1])
    return printable if len(printable) <= length else printable[: length - 3] + "..."


def listed(names: Iterable[object], most: int = 20) -> str:
    """Names from a file, separated by commas; only the first `most` of them."""
    words = [shorten(str(name), 40) for name in names]
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
