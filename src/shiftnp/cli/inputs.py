"""What `shiftnp predict` and `shiftnp check` have in common: parsing of options, messages and the file of pictures."""

from __future__ import annotations

import contextlib
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftnp.cli.evaluate import say
from shiftnp.cli.messages import plain_warnings
from shiftnp.cli.settings import UsageError, check_least, known_names

if TYPE_CHECKING:
    from shiftnp.regressor import Regressor
    from shiftnp.regressor.observations import Observations


def command() -> str:
    """The command that was given, as text."""
    return shlex.join(["shiftnp", *sys.argv[1:]])


def parse_pairs(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    """Options of the form name=value."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f"{option} takes name=value, such as {example}, got {text!r}.")
        pairs[name.strip()] = value.strip()
    return pairs


def parse_periods(texts: Sequence[str]) -> dict[str, float] | None:
    """Periods of inputs, such as lon=360."""
    found: dict[str, float] = {}
    for name, value in parse_pairs(texts, "--period", "lon=360").items():
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] < float("inf"):
            raise UsageError(f"The period of {name!r} must be a positive number (of dates: of days), got {value!r}.")
    return found or None


@contextlib.contextmanager
def plain_messages() -> Iterator[None]:
    """Warnings as one line each, and unknown names as errors of the command line."""
    with plain_warnings(), known_names():
        warnings.simplefilter("default")
        for said in ("looks like a fill value", "absurdly far from all other values"):  # when the file is read
            warnings.filterwarnings("ignore", message=f".*{said}")
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        yield


def read(file: Path, x: Sequence[str], y: Sequence[str], select: Sequence[str], missing: Sequence[str]) -> Observations:
    """Reads the observations, and says what the user should know about them."""
    from shiftnp.regressor.files import read_observations

    found = read_observations(file, x, y, parse_pairs(select, "--select", "day=2024-01-31"), missing)
    for note in found.notes:
        say(note)
    return found


def check_outputs(out: Path, picture: bool, report: Path | None, read: Sequence[Path | None]) -> None:
    """Checks, before the work, that all results can be written, and that none would replace a file that is read."""
    from shiftnp._io import check_writable

    for path in (out, out.with_suffix(".png") if picture else None, report):
        if path is None:
            continue
        if path.absolute() in [other.absolute() for other in read if other is not None]:
            raise UsageError(f"{path} is read: write to another file.")
        if not (path == out and path.suffix.lower() == ".zarr" and path.is_dir()):  # a store is replaced
            check_writable(path)


def check_names(x: Sequence[str], seed: int) -> None:
    """Raises a UsageError for options that no data can satisfy."""
    if len(x) > 3:
        raise UsageError(f"--x takes one to three inputs, got {len(x)}: choose those that matter most.")
    check_least("--seed", seed, 0)


def fit(observations: Observations, period: dict[str, float] | None, weights: Path | None, seed: int) -> Regressor:
    """A Regressor fitted to all observations."""
    from shiftnp.regressor import Regressor
    from shiftnp.regressor.grid import ends_of

    for name, values in observations.inputs.items():
        if name[:3].lower() == "lon" and name not in (period or {}) and values.dtype.kind in "if" and len(values):
            low, high = float(values.min()), float(values.max())
            if low >= 0 and high <= 360 and ends_of(values.to_numpy(), 360.0) != (low, high):
                say(f"{name!r} has values close to 0 and to 360, few in between: say --period {name}=360 if it wraps.")
    try:
        return Regressor(period=period, weights=weights, seed=seed).fit(observations.inputs, observations.y)
    except FileNotFoundError as error:
        raise FileNotFoundError(str(error).replace("Regressor(weights=...)", "--weights")) from error


def write_picture(path: Path, figure: Any) -> None:
    """Writes a figure as PNG, atomically."""
    from shiftnp._io import aside

    with aside(path) as new:
        figure.savefig(new, format="png", dpi=150, bbox_inches="tight", pad_inches=0.1)


def stem(file: Path) -> str:
    """The name of a file without its suffixes."""
    return file.name.split(".")[0] or "data"
