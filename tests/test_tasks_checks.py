"""Arguments of the wrong type or size are refused in one sentence that names the argument."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# In a process of its own, as users have it: in this one, annotations are checked before the tasks see anything.
CODE = """
import json, sys
import numpy as np, pandas as pd
from shiftnp.tasks.climate import ClimateTask
from shiftnp.tasks.images import ImageTask
from shiftnp.tasks.kolmogorov import KolmogorovTask
from shiftnp.tasks.kolmogorov_files import generate
from shiftnp.tasks.table import TableTask

frame = pd.DataFrame({"lon": [1.0], "lat": [1.0], "t": [1.0]})
roles = {"inputs": ("lon", "lat"), "outputs": ("t",)}
answers = []
for call in json.load(sys.stdin):
    try:
        eval(call)
        answers.append("accepted")
    except ValueError as error:
        answers.append(str(error))
    except Exception as error:
        answers.append(repr(error))
json.dump(answers, sys.stdout)
"""

REFUSED = {
    "TableTask(2024, **roles)": "path must be the name of a file or folder, as text or pathlib.Path, got 2024 (int).",
    "TableTask('', **roles)": "path must be the name of a file or folder, got '' (str).",
    "TableTask(frame, **roles)": "path must name a file, got a DataFrame: pass it as frame=...",
    "TableTask(frame=[1, 2], **roles)": "frame must be a pandas DataFrame, got list.",
    "TableTask(frame=frame, inputs=('lon',), outputs=2)": "outputs must be a list of names of columns, as text, got 2",
    "TableTask(frame=frame, inputs=(0, 1), outputs=('t',))": "inputs must be a list of names of columns, as text, got",
    "TableTask(frame=frame, inputs=('lon', 'lon'), outputs=('t',))": "inputs must name each column once, got lon, lon.",
    "TableTask(frame=frame, context=(), **roles)": "context must have 2 entries, got ().",
    "TableTask(frame=frame, context=('a', 'b'), **roles)": "context must be 2 numbers, got ('a', 'b') (tuple).",
    "TableTask(frame=frame, shares=(1, 2), **roles)": "shares must have 3 entries, got (1, 2).",
    "TableTask(frame=frame, points=2.5, **roles)": "points must be a whole number of at least 2, got 2.5 (float).",
    "TableTask(frame=frame, points=1, **roles)": "points must be a whole number of at least 2, got 1 (int).",
    "TableTask(frame=frame, seed='a', **roles)": "seed must be a whole number of at least 0, got 'a' (str).",
    "TableTask(frame=frame, group=1, **roles)": "group must be text, got 1 (int).",
    "TableTask(frame=frame, order=['random'], **roles)": "order must be one of random, sorted, got ['random'] (list).",
    "TableTask(frame=frame, drop_missing='no', **roles)": "drop_missing must be True or False, got 'no' (str).",
    "TableTask(frame=frame, missing='NA', **roles)": "missing must be numbers, got 'NA' (str).",
    "TableTask(frame=frame, fixed_scaling=5, **roles)": "fixed_scaling must be a Scaling, got 5.",
    "ClimateTask(fixed_scaling={'mean': 1})": "fixed_scaling must be a Scaling, got {'mean': 1}.",
    "ClimateTask(2024)": "path must be the name of a file or folder",
    "ClimateTask(elevation=1)": "elevation must be the name of a file or folder",
    "ClimateTask(region=5)": "region must be one of central, west, north or a box of four numbers, got 5.",
    "ClimateTask(region=(1, 2, 3))": "region must have 4 entries, got (1, 2, 3).",
    "ClimateTask(region=None)": "region must be given.",
    "ClimateTask(size=(15, 15))": "size must have 3 entries, got (15, 15) (tuple).",
    "ClimateTask(size=(15, 1.5, 5))": "each entry of size must be a whole number of at least 1, got 1.5 (float).",
    "ClimateTask(size=7)": "size must have 3 entries, got 7 (int).",
    "ClimateTask(stride=(None, 1, 1))": "stride must be whole numbers for latitude and longitude, got (None, 1, 1).",
    "ClimateTask(context=())": "context must have 2 entries, got ().",
    "ClimateTask(context=0.5)": "context must be 2 numbers, got 0.5 (float).",
    "ClimateTask(rounds=0)": "rounds must be a whole number of at least 1, got 0 (int).",
    "ClimateTask(gap=0.5)": "gap must be a whole number of at least 0, got 0.5 (float).",
    "ClimateTask(min_share='a')": "min_share must be a number, got 'a' (str).",
    "ClimateTask(variable=3)": "variable must be text, got 3 (int).",
    "ImageTask(dataset=3)": "dataset must be one of mnist, cifar10, got 3 (int).",
    "ImageTask(context=(0.1,))": "context must have 2 entries, got (0.1,).",
    "ImageTask(limit=1.5)": "limit must be a whole number of at least 1 or None, got 1.5 (float).",
    "ImageTask(targets='all')": "targets must be a whole number of at least 1 or None, got 'all' (str).",
    "ImageTask(canvas=True)": "canvas must be a whole number of at least 1 or None, got True (bool).",
    "ImageTask(seed=None)": "seed must be a whole number of at least 0, got None (NoneType).",
    "ImageTask(translated=1)": "translated must be True or False, got 1 (int).",
    "ImageTask(path=3)": "path must be the name of a file or folder",
    "KolmogorovTask(3)": "path must be the name of a file or folder",
    "KolmogorovTask(points=5)": "points must have 2 entries, got 5 (int).",
    "KolmogorovTask(points=(1, 2.5))": "each entry of points must be a whole number of at least 0, got 2.5 (float).",
    "KolmogorovTask(crop=(16, 16))": "crop must have 3 entries, got (16, 16) (tuple).",
    "KolmogorovTask(targets='all')": "targets must be a whole number of at least 1 or None, got 'all' (str).",
    "generate(1.5, 'x')": "trajectories must be a whole number of at least 1, got 1.5 (float).",
    "generate(1, 'x', workers=0)": "workers must be a whole number of at least 1 or None, got 0 (int).",
}

ACCEPTED = [
    "TableTask(frame=frame, points=np.int64(7), context=[0, 1], missing=-9999, **roles)",
    "TableTask(frame=frame, inputs=['lon'], outputs=['t'], missing=[-9999, 1e20])",
    "ClimateTask(region=[42, 53, 8, 28], size=[4, 4, 2], stride=[1, 1, None], missing=[-9999])",
    "ImageTask(context=[0.1, 0.2], limit=5)",
]


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    pytest.importorskip("pandas")
    calls = [*REFUSED, *ACCEPTED]
    done = subprocess.run([sys.executable, "-c", CODE], input=json.dumps(calls), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(calls, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("call", REFUSED)
def test_wrong_arguments_are_named(answers, call):
    assert answers[call].startswith(REFUSED[call])
    assert "\n" not in answers[call]


@pytest.mark.parametrize("call", ACCEPTED)
def test_lists_and_whole_numbers_of_numpy_are_accepted(answers, call):
    assert answers[call] == "accepted"
