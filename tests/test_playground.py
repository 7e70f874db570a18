"""The playground in a real browser: its numbers beside Python's, pointer, keyboard, CSV, and narrow and dark screens.

Skipped with a reason where there is no browser. The page is built first (`make play`) if it is not there.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from browser import ensure_built, missing, open_page, set_screen, wait
from shiftnp.likelihoods import components_of
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.standardise import moments
from shiftnp.regressor.weights import load, pretrained

WHY = missing()
pytestmark = pytest.mark.skipif(WHY is not None, reason=str(WHY))
QUANTILES = {"q05": 0.05, "q25": 0.25, "q75": 0.75, "q95": 0.95}


@pytest.fixture(scope="module")
def page():
    why = ensure_built()
    if why is not None:
        pytest.skip(why)
    with open_page() as driver:
        yield driver


@pytest.fixture
def curve(page):
    """The curve without points, samples and overlays."""
    set_screen(page, 1100, 900)
    wait(page, "shiftnp.show('curve')")
    for name in ("shift", "functions", "noise", "scale"):
        page.execute_script(f"shiftnp.views.curve.input('{name}').value = 0")
    for name in ("plain", "gp", "all"):
        page.execute_script(f"shiftnp.views.curve.input('{name}').checked = false")
    wait(page, "shiftnp.views.curve.points.set([])")
    wait(page, "shiftnp.views.curve.update()")
    return page


def numbers(page):
    """What the canvas shows, once it is up to date."""
    wait(page, "shiftnp.views.curve.update()")
    script = """return Object.fromEntries(Object.entries(shiftnp.views.curve.numbers)
        .map(([name, v]) => [name, typeof v === "number" ? [v] : Array.from(v)]))"""
    return {name: np.array(values) for name, values in page.execute_script(script).items()}


def click(page, x, y, *, to=None, shift=False):
    """Presses the pointer at a place of the curve's axes and drags it to another one."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    canvas = page.find_element("css selector", "#curve canvas")
    size = canvas.size

    def offset(x, y):  # from the middle of the canvas
        return round(x / 8 * size["width"]), round(-y / 6 * size["height"])

    chain = ActionChains(page, duration=0)
    if shift:
        chain.key_down(Keys.SHIFT)
    chain.move_to_element_with_offset(canvas, *offset(x, y)).click_and_hold()
    if to is not None:
        chain.move_to_element_with_offset(canvas, *offset(*to))
    chain.release()
    if shift:
        chain.key_up(Keys.SHIFT)
    chain.perform()


def test_clicks_add_points_and_numbers_are_those_of_the_copied_python(curve):
    for x, y in ((-2, 0.5), (-1, 1.5), (0, -0.5), (0.5, -1), (1.5, 1)):
        click(curve, x, y)
    shown = numbers(curve)
    assert curve.execute_script("return shiftnp.views.curve.points.list.length") == 5
    names = {}
    exec(curve.execute_script("return shiftnp.views.curve.python()"), names)
    np.testing.assert_allclose(names["x"], (-2, -1, 0, 0.5, 1.5), atol=0.03)
    np.testing.assert_allclose(shown["mean"], names["mean"], atol=1e-3)
    for j, name in enumerate(QUANTILES):
        np.testing.assert_allclose(shown[name], names["bands"][:, j], atol=1e-3)


def test_shift_drag_moves_all_points_and_only_the_equivariant_prediction_follows(curve):
    for x, y in ((-1, 1), (-0.4, -1), (0.2, 0.5)):
        click(curve, x, y)
    curve.execute_script("shiftnp.views.curve.input('plain').checked = true")
    wait(curve, "shiftnp.views.curve.changed()")
    before = numbers(curve)
    # 50 steps between targets, so that values can be compared target by target.
    step = 8 / 399 * 50
    wait(curve, f"shiftnp.views.curve.points.shift({step}, 0, true)")
    after = numbers(curve)
    np.testing.assert_allclose(after["mean"][50:], before["mean"][:-50], atol=1e-3)
    np.testing.assert_allclose(after["q95"][50:], before["q95"][:-50], atol=1e-3)
    assert np.abs(after["plain"][50:] - before["plain"][:-50]).max() > 0.05
    # And by the pointer: all points move, by the same distance.
    x = np.array(curve.execute_script("return shiftnp.views.curve.data().x"))
    click(curve, 0, -2, to=(1, -2), shift=True)
    wait(curve, "shiftnp.views.curve.update()")
    moved = np.array(curve.execute_script("return shiftnp.views.curve.data().x"))
    np.testing.assert_allclose(moved - x, 1.0, atol=0.03)
    assert np.ptp(moved - x) < 1e-9


def test_drag_moves_one_point_and_undo_takes_it_back(curve):
    click(curve, -1, 1)
    click(curve, 1, 1)
    click(curve, 1, 1, to=(2, -1))
    data = curve.execute_script("return shiftnp.views.curve.data()")
    np.testing.assert_allclose(data["x"], (-1, 2), atol=0.03)
    curve.execute_script("shiftnp.views.curve.points.undo()")
    data = curve.execute_script("return shiftnp.views.curve.data()")
    np.testing.assert_allclose(data["x"], (-1, 1), atol=0.03)


def test_keyboard(curve):
    from selenium.webdriver.common.keys import Keys

    canvas = curve.find_element("css selector", "#curve canvas")
    canvas.send_keys(Keys.ENTER)
    canvas.send_keys(Keys.ARROW_RIGHT * 4)
    canvas.send_keys(Keys.ENTER)
    x = curve.execute_script("return shiftnp.views.curve.data().x")
    np.testing.assert_allclose(x, (0.2, 0), atol=0.03)
    canvas.send_keys(Keys.SHIFT + Keys.ARROW_LEFT)
    np.testing.assert_allclose(curve.execute_script("return shiftnp.views.curve.data().x"), np.array(x) - 0.05)
    canvas.send_keys("n")
    canvas.send_keys(Keys.DELETE)
    np.testing.assert_allclose(curve.execute_script("return shiftnp.views.curve.data().x"), [x[1] - 0.05])
    canvas.send_keys("u")
    assert curve.execute_script("return shiftnp.views.curve.points.list.length") == 2


def test_joint_samples_pass_near_the_data_and_the_gp_is_exact(curve):
    for x, y in ((-2, -1), (-1.5, 0), (-1, 1), (-0.5, 1.2), (0, 1), (0.5, 0.2), (1, -0.6)):
        click(curve, x, y)
    curve.execute_script("shiftnp.views.curve.input('functions').value = 3")
    curve.execute_script("shiftnp.views.curve.input('gp').checked = true")
    shown = numbers(curve)
    wait(curve, "shiftnp.views.curve.sample()")
    drawn = curve.execute_script(
        "const {x, functions} = shiftnp.views.curve.samples; return {x, functions: functions.map((f) => Array.from(f))}"
    )
    functions = np.array(drawn["functions"])
    assert functions.shape == (3, 67)
    assert np.abs(functions[0] - functions[1]).max() > 1e-3
    low, high = (np.interp(drawn["x"], shown["x"], shown[q]) for q in ("q05", "q95"))
    inside = (functions > low) & (functions < high)
    assert 0.6 < inside.mean() <= 1

    data = curve.execute_script("return shiftnp.views.curve.data()")
    x, y = np.array(data["x"]), np.array(data["y"])
    z = (y - y.mean()) / y.std(ddof=1)
    found = wait(curve, f"import('./gp.js').then((gp) => gp.fit({x.tolist()}, {z.tolist()}))")

    def gram(a, b):
        return np.exp(-0.5 * ((a[:, None] - b) / found["length"]) ** 2)

    mean = gram(shown["x"], x) @ np.linalg.solve(gram(x, x) + found["noise"] * np.eye(len(x)), z)
    np.testing.assert_allclose(shown["gp"], mean * y.std(ddof=1) + y.mean(), atol=1e-6)


def test_map_is_that_of_the_model_in_python(page):
    set_screen(page, 1100, 900)
    wait(page, "shiftnp.show('map')")
    wait(page, "shiftnp.views.map.example('bumps')")
    wait(page, "shiftnp.views.map.changed()")
    script = """const {numbers, points} = shiftnp.views.map;
    return {x: points.list.map((p) => p.x), y: points.list.map((p) => p.y), axis: Array.from(numbers.axis),
            factor: numbers.factor, mean: Array.from(numbers.mean), std: Array.from(numbers.std)}"""
    shown = page.execute_script(script)
    y = torch.tensor(shown["y"], dtype=torch.float64)
    mean, std = moments(y)
    axis = torch.tensor(shown["axis"])
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1).view(1, -1, 2)
    xc, factor = torch.tensor(shown["x"])[None], shown["factor"]
    with torch.no_grad():
        dist = load(pretrained(2))(xc * factor, ((y - mean) / std).float()[None, :, None], grid * factor)
    weight, means, stds = components_of(dist)
    mixture = Mixture(weight, means[..., 0], stds[..., 0])
    np.testing.assert_allclose(shown["mean"], (mixture.mean[0] * std + mean).numpy(), atol=1e-3)
    np.testing.assert_allclose(shown["std"], (mixture.half_width[0] * std).numpy(), atol=1e-3)


def test_csv_with_dates_gives_a_table_to_download(page):
    wait(page, "shiftnp.show('table')")
    lines = [
        "day;level",
        *(f"2024-01-{d:02d};{np.sin(d / 3):.3f}".replace(".", ",") for d in range(1, 29)),
        "2024-02-03;",
    ]
    page.execute_script("shiftnp.views.table.read(arguments[0], 'levels.csv')", "\n".join(lines))
    wait(page, "shiftnp.views.table.predict()")
    text = page.execute_script("return shiftnp.views.table.csv()")
    table = np.genfromtxt(io.StringIO(text), delimiter=",", names=True)
    assert len(table) == 400
    day = (np.datetime64("2024-01-10") - np.datetime64("1970-01-01")).astype(int)
    assert np.interp(day, table["day"], table["mean"]) == pytest.approx(np.sin(10 / 3), abs=0.1)
    assert (table["q005"] < table["mean"]).all()
    assert "Nothing leaves your machine" in page.find_element("id", "table").text
    # The only addresses that the page has asked are its own.
    asked = page.execute_script("return performance.getEntriesByType('resource').map((e) => new URL(e.name).origin)")
    assert set(asked) == {page.execute_script("return location.origin")}


def test_fits_a_phone_and_is_dark_where_the_system_is(page):
    set_screen(page, 400, 800, dark=True)
    for view in ("curve", "map", "table"):
        wait(page, f"shiftnp.show('{view}')")
        assert page.execute_script("return document.documentElement.scrollWidth") <= 400
    back = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert back == "rgb(18, 22, 27)"
