"""Figures hold any text a user may write, and any model that a newcomer may add."""

from __future__ import annotations

import math
import pkgutil
import subprocess
import sys
from io import BytesIO

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from shiftnp import plots
from shiftnp.metrics import COVERAGE
from shiftnp.models import MODELS
from shiftnp.plots.calibration import draw_calibration
from shiftnp.plots.comparison import Scene, draw_scenes
from shiftnp.plots.learning import Curve, draw_learning
from shiftnp.plots.maps import draw_table
from shiftnp.plots.scores import Series, draw_bins, draw_dots, draw_sweep
from shiftnp.plots.style import COLOURS, OTHERS, styles
from shiftnp.plots.timing import draw_times
from shiftnp.scaling import Scaling
from shiftnp.tasks.gp import GPTask
from shiftnp.tasks.gp_posterior import BayesOptimal, GPOracle

ODD = "$_{$"  # no formula, and as one an error
SERIES = [Series(ODD, styles(["tnp"])[0], [-0.5, -0.4, -0.3], [0.1, 0.1, 0.1])]


def table(dx: int) -> Figure:
    task = GPTask(dx=dx, kernels=("se",), points=(3, 3), targets=4)
    batch, truth = task.sample_with_truth(1, torch.Generator().manual_seed(0))
    scaling = Scaling([ODD] * dx, [ODD], [0.0] * dx, [1.0] * dx, [0.0], [1.0])
    figure = Figure()
    draw_table(figure, batch, scaling, GPOracle(task, truth)(batch.xc, batch.yc, batch.xt))
    return figure


def scenes() -> Figure:
    task = GPTask(kernels=("se",), points=(3, 3), targets=4)
    batch, truth = task.sample_with_truth(1, torch.Generator().manual_seed(0))
    exact = GPOracle(task, truth)(batch.xc, batch.yc, batch.xt)
    return draw_scenes([Scene(ODD, batch.xc, batch.yc, batch.xt, exact)], {ODD: BayesOptimal(task, gaussian=True)})


FIGURES = {
    "sweep": lambda: draw_sweep([0.0, 1.0, 2.0], {ODD: SERIES}, ODD, ODD, [0.0, 0.0, 0.0]),
    "bins": lambda: draw_bins([ODD, "2", "3"], {ODD: SERIES}, ODD, ODD),
    "dots": lambda: draw_dots([ODD, "b", "c"], SERIES, [[-0.4, None, -40.0]], ODD),
    "calibration": lambda: draw_calibration({ODD: SERIES}),
    "learning": lambda: draw_learning([Curve(ODD, SERIES[0].style, [0, 5], [-2.0, -1.0], [0.0, 1.0])], ODD),
    "times": lambda: draw_times({ODD: (1.0, 2.0)}, ODD),
    "table": lambda: table(2),
    "curve": lambda: table(1),
    "scenes": scenes,
}


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_drawn_as_it_is_written(name):
    figure = FIGURES[name]()
    figure.savefig(BytesIO(), format="svg")  # as mathematics, the text would be an error here
    shown = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    assert any(ODD in text for text in shown)


def test_calibration_is_coverage_less_its_nominal_value():
    achieved = [40.0, 92.0, math.nan]
    (ax,) = draw_calibration({"": [SERIES[0]._replace(values=achieved)]}).axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [f"{name} %" for name in COVERAGE]
    drawn = ax.containers[0].lines[0].get_ydata()
    assert drawn[:2] == pytest.approx([-10.0, 2.0])


def test_every_model_has_a_look():
    """Those without a colour of their own have one that no other model has, the same for each of their runs."""
    names = [*MODELS, "mine", "yours", "mine"]
    looks = dict(zip(names[:-1], styles(names[:-1]), strict=True))
    assert len({look.colour for look in looks.values()}) == len(looks)
    assert not set(OTHERS) & set(COLOURS.values())
    first, second = (styles(names)[i] for i in (names.index("mine"), -1))
    assert first.colour == looks["mine"].colour
    assert first.marker != second.marker


def test_solid_lines_are_equivariant_models(monkeypatch):
    mine = type("Mine", (), {"is_equivariant": True})
    monkeypatch.setitem(MODELS, "mine", mine)
    assert [look.line for look in styles(["mine", "yours"])] == ["-", "--"]


def test_plots_know_nothing_of_tasks():
    """Tasks import plots, so that the other way round would be a cycle."""
    names = [f"shiftnp.plots.{module.name}" for module in pkgutil.iter_modules(plots.__path__)]
    code = f"import sys, {', '.join(names)}; sys.exit(any(name.startswith('shiftnp.tasks') for name in sys.modules))"
    assert len(names) > 5
    subprocess.run([sys.executable, "-c", code], check=True)
