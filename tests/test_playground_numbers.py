"""The JavaScript of the playground that needs no browser, beside the Python that it follows. Skipped without node."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
import torch

from shiftnp.play.server import PAGE
from shiftnp.regressor.box import SIDE, Box
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.standardise import moments

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node: install Node.js 20 or later to test the playground")


def evaluate(body, **values):
    """What JavaScript returns that uses the page's modules and `given`, an object with these values."""
    code = f"""
    import * as numbers from {json.dumps(str(PAGE / "numbers.js"))};
    import * as table from {json.dumps(str(PAGE / "table.js"))};
    const given = {json.dumps(values)};
    const found = (() => {{ {body} }})();
    console.log(JSON.stringify(found, (_, v) => ArrayBuffer.isView(v) ? Array.from(v) : v));"""
    command = [NODE, "--no-warnings", "--experimental-default-type=module", "--input-type=module", "-e", code]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_mixtures_have_the_moments_and_quantiles_of_python():
    g = torch.Generator().manual_seed(0)
    weight = torch.rand(50, 4, generator=g, dtype=torch.float64).softmax(-1)
    means, stds = (torch.randn(50, 4, generator=g, dtype=torch.float64) for _ in range(2))
    stds = (2 * stds).exp()  # from very narrow components to very wide ones
    mixture, levels = Mixture(weight, means, stds), (0.05, 0.25, 0.5, 0.95)
    body = """const m = new numbers.Mixture(4, ...given.parts.map((p) => Float64Array.from(p)));
    return {mean: m.mean(), std: m.std(), halfWidth: m.halfWidth(), quantiles: given.levels.map((q) => m.quantile(q)),
            density: Array.from({length: m.n}, (_, i) => m.logDensity(i, 0.3))}"""
    found = evaluate(body, parts=[t.flatten().tolist() for t in mixture], levels=levels)
    np.testing.assert_allclose(found["mean"], mixture.mean)
    np.testing.assert_allclose(found["std"], mixture.std)
    np.testing.assert_allclose(found["halfWidth"], mixture.half_width, rtol=1e-5)
    np.testing.assert_allclose(found["density"], mixture.log_prob(torch.full((50,), 0.3, dtype=torch.float64)))
    for values, level in zip(found["quantiles"], levels, strict=True):
        # The error function has seven digits.
        np.testing.assert_allclose(mixture.cdf(torch.tensor(values, dtype=torch.float64)), level, atol=1e-6)


@pytest.mark.parametrize("y", [[], [3.0], [0.0], [2.0, 2.0, 2.0], [0.0, 0.0], [1.0, 2.0, 4.0], [1e9, 1e9 + 1]])
def test_outputs_are_standardised_as_in_python(y):
    found = evaluate("return numbers.moments(given.y)", y=y)
    mean, std = moments(torch.tensor(y, dtype=torch.float64))
    assert (found["mean"], found["std"]) == pytest.approx((float(mean), float(std)), rel=1e-12)


@pytest.mark.parametrize("x", [[1.0], [2.0, 5.0], [0.0, 0.0, 7.0], [*range(100), 1e4]])
def test_the_box_is_that_of_python(x):
    found = evaluate("return {...numbers.box(given.x), side: numbers.SIDE}", x=x)
    box = Box.around(np.array(x, dtype=float)[:, None], [None], 512)
    assert found == pytest.approx({"centre": box.centre[0], "unit": box.unit[0], "side": SIDE})


def test_tables_with_quotes_semicolons_and_dates():
    text = 'day;"a ""b""";c\r\n1970-01-03;1,5;x\r\n1970-01-02T12:00Z;;"y;z"\r\n'
    body = """const t = table.parse(given.text);
    return [t.names, t.rows, t.rows.map((r) => r.slice(0, 2).map((cell) => table.number(cell, t.separator)))]"""
    names, rows, values = evaluate(body, text=text)
    assert names == ["day", 'a "b"', "c"]
    assert rows[1][2] == "y;z"
    assert values == [[2, 1.5], [1.5, None]]  # NaN is null in JSON


def test_random_numbers_are_standard_normal():
    body = "const r = new numbers.Random(1); return Array.from({length: 20000}, () => r.normal())"
    drawn = np.array(evaluate(body))
    assert abs(drawn.mean()) < 0.03
    assert drawn.std() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("file", sorted(path.name for path in PAGE.glob("*.js")))
def test_syntax(file):
    command = [NODE, "--experimental-default-type=module", "--check", str(PAGE / file)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
