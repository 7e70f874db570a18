"""How many cases a fuzzer tries: few in `make test`, as many as asked for in `make fuzz`."""

from __future__ import annotations

import os

VARIABLE = "SHIFTNP_FUZZ"
"""Environment variable with the number of cases of every fuzz test."""


def cases(default: int) -> range:
    """Seeds of the cases: `default` of them, or as many as SHIFTNP_FUZZ says. Case `i` is the same everywhere."""
    return range(int(os.environ.get(VARIABLE) or default))
