"""Many data sets of one kind in one table, such as the days of a network of stations: their labels and rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from shiftnp._registry import choose

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor


@dataclass(frozen=True, eq=False)
class Groups:
    """The data set of each observation.

    Args:
        labels: names of the data sets.
        code: position in `labels`, for each observation.
    """

    labels: tuple[str, ...]
    code: Int[np.ndarray, " n"]

    @staticmethod
    def of(labels: Sequence[str]) -> Groups:
        """Groups of rows with these labels, in the order of the labels."""
        found, code = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
        return Groups(tuple(map(str, found)), code.reshape(-1).astype(np.int64))

    def take(self, rows: Int[np.ndarray, " m"]) -> Groups:
        """The groups of some of the rows, in that order."""
        return Groups(self.labels, self.code[rows])

    def join(self, other: Groups) -> Groups:
        """The groups of these rows followed by others; equal labels are one group."""
        return Groups.of([self.labels[c] for c in self.code] + [other.labels[c] for c in other.code])

    def codes(self, wanted: Any, n: int) -> Int[np.ndarray, " n"]:
        """Positions in `labels` for `n` targets, from one label for all of them or one for each."""
        known = {label: i for i, label in enumerate(self.labels)}
        single = isinstance(wanted, str) or np.ndim(wanted) == 0
        given = read_labels([wanted] if single else wanted, 1 if single else n, "groups")
        each = {label: choose(label, known, "group") for label in dict.fromkeys(given)}
        codes = np.array([each[label] for label in given], dtype=np.int64)
        return np.repeat(codes, n) if single else codes


def read_labels(values: Any, n: int, what: str) -> list[str]:
    """Labels as text: whole numbers without a point, dates in ISO form, without a time at midnight.

    Args:
        what: the argument, for error messages.
    """
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{what} must have one label for each of the {n} rows, got the shape {values.shape}.")
    return [_label(value, i, what) for i, value in enumerate(values.tolist() if values.dtype.kind != "M" else values)]


def _label(value: Any, row: int, what: str) -> str:
    if value is None or (not isinstance(value, str) and str(value) in ("nan", "NaT", "<NA>")):
        raise ValueError(f"{what} has no label in row {row}: fill it in, or drop the row.")
    if isinstance(value, np.datetime64):
        text = str(value.astype("datetime64[us]"))
        return text.removesuffix(".000000").removesuffix("T00:00:00")
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def select(model: Regressor, code: int) -> Regressor:
    """A regressor for one of the data sets of a model that was fitted to several, with the same weights and scales."""
    assert model._groups is not None
    part = copy.copy(model)
    rows = model._groups.code == code
    part._x, part._y, part._groups = model._x[rows], model._y[rows], None
    part._make_tiles()
    return part


def by_group(codes: Int[np.ndarray, " m"]) -> Iterator[tuple[int, Int[np.ndarray, " r"]]]:
    """The rows of each code, one code after the other."""
    order = np.argsort(codes, kind="stable")
    found, first = np.unique(codes[order], return_index=True)
    for code, rows in zip(found, np.split(order, first[1:]), strict=True):
        yield int(code), rows
