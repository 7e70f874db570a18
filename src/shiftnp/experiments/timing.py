"""Time of a training step, relative to the TNP (the paper's table of training times).

    shiftnp bench train --out timing.json     # prints the table, and writes it
    shiftnp train timing                      # the same into runs/timing/laptop/timing.json

Nothing is trained: steps of all models are timed in rounds, see `shiftnp.bench.train`. Cost: a few minutes for 20
rounds on two idle cores. Ratios to expect: TE-TNP 2.39 and TE-PT-TNP-M32 1.69 times the TNP in the paper, on a GPU;
16 and 15 on two cores of an AMD EPYC.
"""

from __future__ import annotations

import math

from shiftnp.experiments.base import Column, Experiment, Row
from shiftnp.experiments.gp_1d import GP_1D

HOURS = {
    "tnp": 3.249,
    "pt-tnp-m32": 3.565,
    "cnp": 1.672,
    "rcnp": 2.326,
    "convcnp": 3.466,
    "te-tnp": 7.767,
    "te-pt-tnp-m32": 5.502,
}
"""The paper's table "1d-training-times": hours for the first 200 epochs of 16,000 data sets."""


def timed(name: str) -> Row:
    """The row of gp-1d with the paper's training time relative to the TNP, for which the paper gives no error."""
    row = GP_1D.row(name)
    return Row(row.name, row.title, row.model, row.settings, paper=((HOURS[name] / HOURS["tnp"], math.nan),))


TIMING = Experiment(
    name="timing",
    title="Training time",
    about="Time of a training step of every model on gp-1d at the paper's sizes, in one run, as a ratio to the TNP's.",
    tasks=("gp-1d",),
    rows=tuple(timed(name) for name in HOURS),
    main="te-tnp",
    columns=(Column("Relative time", "gp-1d", "time"),),
    presets={"laptop": GP_1D.presets["paper"], "paper": GP_1D.presets["paper"]},  # nothing is trained
    test_sets=lambda task: {},
    unit="training time, relative to TNP",
    bench="train",
)
