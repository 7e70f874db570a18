"""Predictions at targets as tables and fields, and their files: CSV, TSV, Parquet, NetCDF, Zarr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import shiftnp
from shiftnp._io import aside
from shiftnp._optional import import_optional
from shiftnp.regressor.grid import POINTS, axis
from shiftnp.regressor.observations import Targets
from shiftnp.tasks.dates import in_utc, in_zone

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor

TABLES = (".csv", ".tsv", ".parquet", ".pq")
FIELDS = (".nc", ".nc4", ".zarr")
BLOCK = 1 << 13
"""Targets between two reports of progress."""


def grid_targets(model: Regressor, sizes: Sequence[int] = (), attributes: Mapping[str, Any] | None = None) -> Targets:
    """A grid that is evenly spread over the observations of a fitted model.

    Args:
        sizes: number of points along each input, or one number for all of them; none: 500 points for one input, 100 for
            two and 30 for three.
        attributes: attributes of the inputs, by name.
    """
    pd, xr = (import_optional(package, "A grid") for package in ("pandas", "xarray"))
    names = model._inputs.names
    sizes = list(sizes) or [POINTS[len(names)]]
    sizes = sizes * len(names) if len(sizes) == 1 else sizes
    if len(sizes) != len(names) or min(sizes) < 1:
        form = "x".join(["200"] * len(names))
        raise ValueError(f"A grid of {', '.join(names)} is written as {form}, got {'x'.join(map(str, sizes))}.")
    points = [model._inputs.restore(j, axis(model, j, n)) for j, n in enumerate(sizes)]
    about = {n: {**model._inputs.about(j), **(attributes or {}).get(n, {})} for j, n in enumerate(names)}
    like = xr.Dataset(coords={n: (n, p, about[n]) for n, p in zip(names, points, strict=True)})
    mesh = np.meshgrid(*points, indexing="ij")
    rows = pd.DataFrame({name: values.ravel() for name, values in zip(names, mesh, strict=True)})
    for j, name in enumerate(names):
        rows[name] = in_zone(rows[name], model._inputs.zone(j))
    return Targets(rows, like, tuple(names))


def predict(
    model: Regressor,
    targets: Targets,
    quantiles: Sequence[float] = (),
    advance: Callable[[int], object] = lambda n: None,
) -> Any:
    """Mean, standard deviation and quantiles at all targets, as the DataFrame of `Regressor.predict_table`; NaN where
    an input is missing.

    Args:
        advance: called after each block with the number of its targets.
    """
    pd = import_optional("pandas", "A table of predictions")
    complete = targets.rows.notna().all(axis=1).to_numpy()
    rows = targets.rows[complete]
    parts = []
    for i in range(0, max(len(rows), 1), BLOCK):
        parts.append(model.predict_table(rows.iloc[i : i + BLOCK], quantiles))
        advance(len(parts[-1]))
    found = pd.concat(parts)
    return found.reindex(targets.rows.index)


def column(outputs: Sequence[str], output: str, statistic: str) -> str:
    """Name of the column of a statistic: with the output's name before it if there are several."""
    return statistic if len(outputs) == 1 else f"{output} {statistic}"


def to_table(targets: Targets, predicted: Any) -> Any:
    """Predictions as a DataFrame: the columns of the targets, then those of the predictions."""
    pd = import_optional("pandas", "A table of predictions")
    first = targets.rows if targets.columns is None else targets.columns
    return pd.concat([first.drop(columns=[c for c in predicted.columns if c in first.columns]), predicted], axis=1)


def to_field(
    model: Regressor, targets: Targets, predicted: Any, quantiles: Sequence[float], about: Mapping[str, Any]
) -> Any:
    """Predictions as an `xarray.Dataset`: on the grid of the targets, or along a dimension `point`.

    It has `mean`, `std` and `quantiles`, for several outputs with their names before each (`zinc_mean`). On the grid of
    a field with holes it also has the field itself, with its holes filled by the mean.

    Args:
        about: attributes of the Dataset.
    """
    xr = import_optional("xarray", "A field of predictions")
    outputs = model._outputs.names
    if targets.like is not None:
        dims, shape, like = targets.dims, targets.shape, targets.like
    else:
        dims, shape = ("point",), (len(targets.rows),)
        about_x = {name: model._inputs.about(j) for j, name in enumerate(model._inputs.names)}
        like = xr.Dataset(coords={n: ("point", in_utc(targets.rows[n]).to_numpy(), about_x[n]) for n in about_x})
    fields: dict[str, Any] = {}
    for output in outputs:
        units = dict(model._outputs.attributes.get(output, {}))
        label = units.pop("long_name", output)
        units.pop("standard_name", None)

        def values(statistic: str, output: str = output) -> np.ndarray:
            found: np.ndarray = predicted[column(outputs, output, statistic)].to_numpy().reshape(shape)
            return found

        before = f"{output}_" if len(outputs) > 1 else ""
        fields[f"{before}mean"] = (dims, values("mean"), {**units, "long_name": f"mean of {label}"})
        fields[f"{before}std"] = (dims, values("std"), {**units, "long_name": f"standard deviation of {label}"})
        if quantiles:
            stacked = np.stack([values(f"q{q:g}") for q in quantiles])
            fields[f"{before}quantiles"] = (
                ("quantile", *dims),
                stacked,
                {**units, "long_name": f"quantiles of {label}"},
            )
        if output in targets.known and output not in (*fields, *dims):
            known = targets.known[output].reshape(shape)
            filled = np.where(np.isnan(known), values("mean"), known)
            fields[output] = (dims, filled, {**units, "long_name": f"{label}, with holes filled by the mean"})
    if quantiles:
        like = like.assign_coords(quantile=list(map(float, quantiles)))
    attributes = {
        "title": f"{', '.join(outputs)} predicted from {len(model._x)} observations",
        "source": f"shiftnp {shiftnp.__version__}, Regressor",
        "comment": model.report(),
        **about,
    }
    return like.assign({name: xr.Variable(*parts) for name, parts in fields.items()}).assign_attrs(attributes)


def check_output(path: Path) -> None:
    """Raises a ValueError if no result can be written under that name."""
    kind = path.suffix.lower()
    if kind not in (*TABLES, *FIELDS):
        raise ValueError(f"{path} must end in .csv, .tsv, .parquet, .nc or .zarr, by which its format is chosen.")
    if path.is_dir() and not (kind == ".zarr" and is_zarr(path)):
        raise ValueError(f"{path} is a folder that is no Zarr store: name another output.")


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def write_table(path: Path, table: Any) -> None:
    """Writes a DataFrame as CSV, TSV or Parquet, atomically."""
    with aside(path) as new:
        if path.suffix.lower() in (".parquet", ".pq"):
            import_optional("pyarrow", f"Writing {path.name}")
            table.to_parquet(new, index=False)
        else:
            table.to_csv(new, index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")


def write_field(path: Path, field: Any) -> None:
    """Writes an `xarray.Dataset` as NetCDF or Zarr, atomically."""
    with aside(path) as new:
        if path.suffix.lower() == ".zarr":
            import_optional("zarr", f"Writing {path.name}")
            field.to_zarr(new, consolidated=False)
        else:
            import_optional("h5netcdf", f"Writing {path.name}")
            field.to_netcdf(new, engine="h5netcdf")
