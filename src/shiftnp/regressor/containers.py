"""Predictions in the container of the targets: numpy, pandas or xarray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from shiftnp._optional import import_optional
from shiftnp.regressor.columns import Chunked, Columns, Table, is_xarray, loaded


def like(values: Any, targets: Table | Chunked, outputs: Columns, flat: bool) -> Any:
    """Values `[n, k]` at targets in the form of the targets: numpy, a pandas Series or DataFrame, an xarray DataArray.
    Those at `Chunked` targets are a dask array `[*shape, k]`.

    Args:
        flat: whether there is one output, without a dimension of its own.
    """
    names = outputs.names
    if targets.like is None:
        return values[:, 0] if flat else values
    if is_xarray(targets.like):
        cells = values.reshape(*targets.like.shape, len(names))
        fields = [targets.like.copy(data=cells[..., o]) for o in range(len(names))]
        if flat:
            return fields[0].rename(names[0]).assign_attrs(outputs.attributes.get(names[0], {}))
        xr = loaded("xarray")
        return xr.concat(fields, xr.IndexVariable("output", list(names)))
    pd = loaded("pandas")
    if flat:
        return pd.Series(values[:, 0], index=targets.like, name=names[0])
    return pd.DataFrame(values, index=targets.like, columns=list(names))


def join(parts: Sequence[Any], values: Sequence[float], name: str) -> Any:
    """Several results in the form of pandas or xarray as one: columns, or a new last dimension, with these values."""
    if is_xarray(parts[0]):
        xr = loaded("xarray")
        return xr.concat(parts, xr.IndexVariable(name, list(values))).transpose(..., name)
    pd = loaded("pandas")
    if parts[0].ndim == 1:
        return pd.concat([part.rename(value) for part, value in zip(parts, values, strict=True)], axis=1)
    return pd.concat(dict(zip(values, parts, strict=True)), axis=1).swaplevel(axis=1)[list(parts[0].columns)]


def frame(
    values: Float[np.ndarray, "s n k"], statistics: Sequence[str], targets: Table, names: Sequence[str], flat: bool
) -> Any:
    """Statistics at targets as a DataFrame; for several outputs with the output's name before each statistic."""
    pd = import_optional("pandas", "A table of predictions")
    index = targets.like if is_pandas_index(targets.like) else None
    cells = {
        statistic if flat else f"{output} {statistic}": values[i, :, j]
        for j, output in enumerate(names)
        for i, statistic in enumerate(statistics)
    }
    return pd.DataFrame(cells, index=index)


def is_pandas_index(index: Any) -> bool:
    """Whether an object is a pandas index."""
    pd = loaded("pandas")
    return pd is not None and isinstance(index, pd.Index)
