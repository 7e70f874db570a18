"""The whole predictive distribution at targets is that of `predict` and `log_likelihood`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regressors import observations, regressor, same
from shiftnp.regressor.distribution import distribution

XT = np.random.default_rng(1).uniform(-1, 9, size=(150, 2))


@pytest.mark.parametrize("n", [0, 40, 120])
def test_it_is_the_prediction(n):
    x, y = observations(n, outputs=2)
    model = regressor(neighbours=64, scales=1).fit(x, y)
    mean, std = model.predict(XT, return_std=True)
    found = [distribution(model, XT, output) for output in (0, 1)]
    same(np.stack([f.mean for f in found], 1), mean)
    same(np.stack([f.half_width for f in found], 1), std)
    truth = torch.linspace(-1, 1, len(XT), dtype=torch.float64)
    each = [float(f.log_prob(truth).mean()) for f in found]
    same(np.mean(each), model.log_likelihood(XT, np.stack([truth, truth], 1)))
