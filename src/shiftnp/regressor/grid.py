"""Predictions on a grid, as an xarray Dataset: in memory, or block by block, also into a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

import shiftnp
from shiftnp._io import aside
from shiftnp._optional import import_optional
from shiftnp._registry import choose
from shiftnp.regressor import blocks, checks, columns
from shiftnp.regressor.box import unwrap
from shiftnp.regressor.columns import Chunked, Columns, Kind
from shiftnp.regressor.mixture import check_levels

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor

POINTS = {1: 500, 2: 100, 3: 30}
"""Points along each input by default, by the number of inputs."""
BLOCK = 1 << 16
"""Cells in a block of a grid that is written to a file, about, unless the user chooses."""
ARC = 0.75
"""A grid follows the arc of values that wrap if it is shorter than this fraction of their range."""
FORMATS = {".zarr": "zarr", ".nc": "netcdf", ".nc4": "netcdf"}
"""Formats of files, by extension."""


def predict_grid(
    model: Regressor,
    axes: Mapping[str, Any],
    quantiles: Sequence[float] = (),
    chunks: Any = None,
    out: Path | None = None,
) -> Any:
    """Implements `Regressor.predict_grid`."""
    xr = import_optional("xarray", "predict_grid")
    names = model._inputs.names
    for name in axes:
        choose(name, dict.fromkeys(names), "input")
    if out is not None:
        choose(out.suffix, FORMATS, "format of a grid")
    points = [axis(model, j, axes.get(name, POINTS[len(names)])) for j, name in enumerate(names)]
    shape = tuple(map(len, points))
    levels = check_levels(quantiles)
    if chunks is None and out is None:
        x = np.stack([p.ravel() for p in np.meshgrid(*points, indexing="ij")], -1)
        found = model._predictor.statistics(x, levels).reshape(2 + len(levels), *shape, -1)
    else:
        found = blocks.statistics(model._predictor, _chunked(points, model._inputs, chunks), levels)

    dims = list(names)
    coordinates: dict[str, Any] = {
        name: (name, model._inputs.restore(j, p), model._inputs.about(j))
        for j, (name, p) in enumerate(zip(names, points, strict=True))
    }
    if model._flat:
        found = found[..., 0]
    else:
        dims.append("output")
        coordinates["output"] = list(model._outputs.names)
    about = model._outputs.attributes.get(model._outputs.names[0], {}) if model._flat else {}
    label = about.get("long_name", model._outputs.names[0]) if model._flat else "outputs"
    fields = {
        "mean": (dims, found[0], {**about, "long_name": f"mean of {label}"}),
        "std": (dims, found[1], {**about, "long_name": f"standard deviation of {label}"}),
    }
    if levels:
        coordinates["quantile"] = list(levels)
        fields["quantiles"] = (["quantile", *dims], found[2:], {**about, "long_name": f"quantiles of {label}"})
    attributes = {
        "title": f"{', '.join(model._outputs.names)} predicted from {len(model._x)} observations",
        "source": f"shiftnp {shiftnp.__version__}, Regressor",
        "comment": model.report(),
    }
    field = xr.Dataset(fields, coordinates, attributes)
    return field if out is None else _written(field, out)


def _chunked(points: Sequence[Float[np.ndarray, " _"]], known: Columns, chunks: Any) -> Chunked:
    """The grid in blocks."""
    da = import_optional("dask.array", "A grid in blocks", "dask")
    if isinstance(chunks, Mapping):
        places = {name: j for j, name in enumerate(known.names)}
        chunks = {choose(name, places, "input"): size for name, size in chunks.items()}
    shape = tuple(map(len, points))
    try:
        sizes = da.core.normalize_chunks("auto" if chunks is None else chunks, shape, limit=8 * BLOCK, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"chunks must be the size of a block along each input, got {chunks!r} ({error}).") from error
    arrays = tuple(da.from_array(p, (size,)) for p, size in zip(points, sizes, strict=True))
    axes = tuple((j,) for j in range(len(points)))
    numbers: tuple[Kind, ...] = tuple("number" for _ in points)
    return Chunked(arrays, axes, replace(known, kinds=numbers))


def _written(field: Any, out: Path) -> Any:
    """The grid, computed block by block into a file, which takes its place at the end; opened again."""
    xr = import_optional("xarray", "predict_grid")
    zarr = FORMATS[out.suffix] == "zarr"
    import_optional("zarr" if zarr else "h5netcdf", f"A {out.suffix} file")
    with aside(out) as new, blocks.own_threads():
        if zarr:
            field.to_zarr(new, zarr_format=2)  # whose metadata can be in one place, so that it opens fast
        else:
            field.to_netcdf(new, engine="h5netcdf")
    return xr.open_zarr(out) if zarr else xr.open_dataset(out, engine="h5netcdf", chunks={})


def axis(model: Regressor, j: int, wanted: Any) -> Float[np.ndarray, " n"]:
    """Points along input `j` as numbers: evenly spread over the data, or between two ends, or as given."""
    name, kind = model._inputs.names[j], model._inputs.kinds[j]
    known = model._x[:, j]
    if isinstance(wanted, tuple) and len(wanted) == 3 and isinstance(wanted[2], int):
        ends = points(wanted[:2], name, kind)
        return _even(float(ends[0]), float(ends[1]), wanted[2], name)
    if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool):
        if not len(known):
            raise ValueError(f"There are no observations: give the ends of {name!r} as {name}=(low, high, number).")
        return _even(*ends_of(known, model._box.period[j]), int(wanted), name)
    return points(wanted, name, kind)


def ends_of(values: Float[np.ndarray, " n"], period: float | None) -> tuple[float, float]:
    """Smallest and largest value. Of values that wrap, the ends of the arc that holds them, if it is clearly shorter:
    -20 and 20 of longitudes from 340 to 360 and from 0 to 20."""
    low, high = float(values.min()), float(values.max())
    if period is None:
        return low, high
    arc = unwrap(values, period)
    if np.ptp(arc) > ARC * (high - low):
        return low, high
    off = float(arc.min() + arc.max() - low - high) / 2 / period
    turns = math.floor(off + 0.6) * period  # close to the values, and below them if both sides are as close
    return float(arc.min()) - turns, float(arc.max()) - turns


def _even(low: float, high: float, n: int, name: str) -> Float[np.ndarray, " n"]:
    if n < 1:
        raise ValueError(f"The grid needs at least 1 point along {name!r}, got {n}.")
    return np.linspace(low, high, n)


def points(values: Any, name: str, kind: str) -> Float[np.ndarray, " n"]:
    """Points that a user gave for an input, as numbers."""
    values = np.asarray(list(values) if isinstance(values, tuple | list) else values)
    table = columns.read(values, f"the grid along {name}", "x")
    if table.values.shape[1] != 1 or table.columns.kinds[0] != kind:
        raise ValueError(f"The grid along {name!r} must be a list of {kind}s or their number, got {values!r}.")
    checks.check_inputs(table, f"the grid along {name}")
    return table.values[:, 0]
