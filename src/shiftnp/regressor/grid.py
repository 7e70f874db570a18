"""Predictions on a grid, as an xarray Dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

import shiftnp
from shiftnp._optional import import_optional
from shiftnp._registry import choose
from shiftnp.regressor import columns
from shiftnp.regressor.box import unwrap

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor

POINTS = {1: 500, 2: 100, 3: 30}
"""Points along each input by default, by the number of inputs."""
BLOCK = 1 << 16


def predict_grid(model: Regressor, axes: Mapping[str, Any], quantiles: Sequence[float]) -> Any:
    """Implements `Regressor.predict_grid`."""
    xr = import_optional("xarray", "predict_grid")
    names = model._inputs.names
    for name in axes:
        choose(name, dict.fromkeys(names), "input")
    if not all(0 < q < 1 for q in quantiles):
        raise ValueError(f"Quantiles must be between 0 and 1, for instance 0.05, got {quantiles!r}.")
    points = [axis(model, j, axes.get(name, POINTS[len(names)])) for j, name in enumerate(names)]
    shape = tuple(map(len, points))
    outputs = len(model._outputs.names)
    values = np.empty((2 + len(quantiles), int(np.prod(shape)), outputs))
    for i in range(0, values.shape[1], BLOCK):
        cells = np.arange(i, min(i + BLOCK, values.shape[1]))
        x = np.stack([p[j] for p, j in zip(points, np.unravel_index(cells, shape), strict=True)], -1)
        values[:, cells] = model._reduce(x, lambda p: torch.stack([p.mean, p.std, *(p.quantile(q) for q in quantiles)]))

    dims = list(names)
    coordinates: dict[str, Any] = {
        name: (name, model._inputs.restore(j, p), model._inputs.attributes.get(name, {}))
        for j, (name, p) in enumerate(zip(names, points, strict=True))
    }
    found = values.reshape(len(values), *shape, outputs)
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
    if quantiles:
        coordinates["quantile"] = list(map(float, quantiles))
        fields["quantiles"] = (["quantile", *dims], found[2:], {**about, "long_name": f"quantiles of {label}"})
    attributes = {
        "title": f"{', '.join(model._outputs.names)} predicted from {len(model._x)} observations",
        "source": f"shiftnp {shiftnp.__version__}, Regressor",
        "comment": model.report(),
    }
    return xr.Dataset(fields, coordinates, attributes)


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
        period = model._box.period[j]
        known = known if period is None else unwrap(known, period)
        if period is not None and np.ptp(known) > 0.9 * period:  # the whole circle, once
            return _even(float(known.min()), float(known.min()) + period, int(wanted) + 1, name)[:-1]
        return _even(float(known.min()), float(known.max()), int(wanted), name)
    return points(wanted, name, kind)


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
    columns.check_inputs(table, f"the grid along {name}")
    return table.values[:, 0]
