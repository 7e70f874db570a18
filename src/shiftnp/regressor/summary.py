"""What a fit has found, in a few lines of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiftnp.regressor.estimator import Regressor


def summary(model: Regressor) -> str:
    """The text of `Regressor.report`."""
    k = len(model._outputs.names)
    left_out = f"; {model.dropped_} without any output left out" if model.dropped_ else ""
    lines = [
        f"points: {len(model._x)} ({', '.join(model._inputs.names)} -> {', '.join(model._outputs.names)}){left_out}"
    ]

    def each(show: Callable[[int], str]) -> str:
        return "; ".join((f"{model._outputs.names[o]} " if k > 1 else "") + show(o) for o in range(k))

    def factors(o: int) -> str:
        found = ", ".join(
            f"{name} x{f:.2f}" for name, f in zip(model._inputs.names, model.scales_[o].typical, strict=True)
        )
        scale = model.scales_[o]
        mixed, trend = len(scale.weights), ("", "linear trend", "quadratic trend")[scale.trend]
        process = f"{scale.share:.0%} Gaussian process" if scale.process else ""
        notes = ", ".join(filter(None, (f"mixture of {mixed}" if mixed > 1 else "", trend, process)))
        return found + (f" ({notes})" if notes else "")

    lines.append(f"scales: {each(factors)}")
    if model.scores_ is None:
        lines += ["cross-validated CRPS: unknown, too few observations", "90 % intervals cover: unknown"]
    else:
        found = model.scores_
        lines.append(
            "cross-validated CRPS: "
            + each(lambda o: f"{found[o].crps:.4g} (log-likelihood {found[o].log_likelihood:.4g})")
        )
        lines.append(
            "90 % intervals cover: "
            + each(lambda o: f"{found[o].coverage:.0%} of {found[o].held_out}")
            + (f" (spread {each(lambda o: f'x{model.spread_factors_[o]:.2f}')})" if model.calibrate else "")
        )
    lines += [] if model.tuning_ is None else [str(model.tuning_)]
    return "\n".join([*lines, f"seconds: {model.seconds_:.2f}"])
