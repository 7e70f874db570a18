"""The pretrained weights in the package."""

from __future__ import annotations

import numpy as np
import pytest

from shiftnp import Regressor
from shiftnp.regressor.weights import CARD, CONFIG, SHIPPED, WEIGHTS, load

SHIPPED_INPUTS = sorted(int(folder.name[0]) for folder in SHIPPED.glob("?d"))


def test_weights_for_one_to_three_inputs_are_there():
    assert SHIPPED_INPUTS == [1, 2, 3]


@pytest.mark.parametrize("dx", SHIPPED_INPUTS)
def test_a_folder_is_small_and_complete(dx):
    folder = SHIPPED / f"{dx}d"
    assert sorted(file.name for file in folder.iterdir()) == sorted([CONFIG, WEIGHTS, CARD])
    assert (folder / WEIGHTS).stat().st_size < 5_000_000
    assert load(folder).dx == dx
    card = (folder / CARD).read_text()
    for word in ("Data", "Training", "Command", "Limits", "Terms"):
        assert word in card


@pytest.mark.parametrize("dx", SHIPPED_INPUTS)
def test_they_predict_a_smooth_function_far_better_than_its_mean_and_cover_it(dx):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, size=(120, dx))
    y = np.sin(x[:, 0]) + (np.cos(0.7 * x[:, 1]) if dx > 1 else 0.3 * np.sin(3 * x[:, 0]))
    noisy = y + 0.1 * rng.normal(size=len(y))
    model = Regressor().fit(x[:80], noisy[:80])
    mean, std = model.predict(x[80:], return_std=True)
    assert np.abs(mean - y[80:]).mean() < 0.25 * y.std()
    inside = np.abs(mean - noisy[80:]) < 1.645 * std
    assert inside.mean() > 0.75
    moved = Regressor().fit(x[:80] + 10_000, noisy[:80]).predict(x[80:] + 10_000)
    np.testing.assert_allclose(moved, mean, atol=1e-3 * y.std())
