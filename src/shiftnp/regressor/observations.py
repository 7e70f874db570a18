"""What is read from files: observations, and inputs to predict at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Targets:
    """Inputs to predict at.

    Args:
        rows: a DataFrame with a column for each input and a row for each target.
        like: for a grid an `xarray.Dataset` without variables, whose coordinates results have.
        dims: dimensions of the grid, in the order of the rows.
        columns: for points a DataFrame with all columns of their file.
        known: observed values on the grid, by output; NaN in its holes.
    """

    rows: Any
    like: Any = None
    dims: tuple[str, ...] = ()
    columns: Any = None
    known: dict[str, Float[np.ndarray, " n"]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of targets along each dimension of the grid."""
        return tuple(self.like.sizes[dim] for dim in self.dims)


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations from a file, with all inputs and at least one output each.

    Args:
        inputs, outputs: DataFrames with a row for each observation; NaN where an output is missing.
        places: number of each observation in its file: the row of a table, counted from 1, or the cell of a field.
        attributes: attributes of each variable, such as its units, by name.
        grid: the grid of the file, if it has one.
        notes: sentences about what was read, for the user.
    """

    inputs: Any
    outputs: Any
    places: Any
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    grid: Targets | None = None
    notes: tuple[str, ...] = ()

    @property
    def y(self) -> Any:
        """The outputs as `Regressor.fit` takes them: a Series if there is one, with its attributes."""
        if self.outputs.shape[1] > 1:
            return self.outputs
        name = str(self.outputs.columns[0])
        column = self.outputs[name]
        column.attrs = dict(self.attributes.get(name, {}))
        return column
