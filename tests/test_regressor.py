"""`Regressor`: what its predictions do and do not depend on, edge cases, statistics, scikit-learn's conventions."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from regressors import folder, observations, regressor, same, weights
from shiftnp import Regressor

XT = np.random.default_rng(1).uniform(-1, 9, size=(23, 2))


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*observations())


# --- invariances -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, 120])
def test_a_shift_of_all_inputs_changes_nothing(n):
    x, y = observations(n)
    there, here = (regressor(neighbours=64).fit(x + d, y).predict(XT + d, return_std=True) for d in (10_000, 0))
    same(there, here, 1e-7)


@pytest.mark.parametrize("n", [40, 120])
def test_the_units_of_inputs_do_not_matter(n):
    x, y = observations(n)
    metres = regressor(neighbours=64).fit(x * [1024, 0.25], y).predict(XT * [1024, 0.25], return_std=True)
    same(metres, regressor(neighbours=64).fit(x, y).predict(XT, return_std=True))


def test_predictions_scale_with_the_outputs(fitted):
    x, y = observations()
    mean, std = fitted.predict(XT, return_std=True)
    for a, b in ((1e6, -3.0), (1e-6, 5e-7)):
        other = regressor().fit(x, a * y + b).predict(XT, return_std=True)
        same(other[0] / a, mean + b / a, 1e-7)
        same(other[1] / a, std, 1e-7)


@pytest.mark.parametrize("n", [40, 120])
def test_the_order_of_observations_does_not_matter(n):
    x, y = observations(n)
    order = np.random.default_rng(2).permutation(n)
    one, other = regressor(neighbours=64).fit(x, y), regressor(neighbours=64).fit(x[order], y[order])
    assert np.array_equal(one.predict(XT), other.predict(XT))
    assert one.scores_ == other.scores_


@pytest.mark.parametrize("n", [40, 120])
def test_targets_may_be_split_into_calls(n):
    model = regressor(neighbours=64).fit(*observations(n))
    whole = np.stack(model.predict(XT, return_std=True))
    for parts in (2, 23):
        split = [model.predict(part, return_std=True) for part in np.array_split(XT, parts)]
        same(np.concatenate(split, 1), whole, 1e-12)


# --- many observations, periods --------------------------------------------------------------------------------------


def assert_continuous(model, line):
    """The largest steps along a line become smaller on a finer grid."""
    for which in (0, 1):
        steps = np.abs(np.diff(model.predict(line, return_std=True)[which]))
        for i in np.argsort(steps)[-5:]:
            finer = np.linspace(line[i], line[i + 1], 201)
            assert np.abs(np.diff(model.predict(finer, return_std=True)[which])).max() < 0.05 * steps[i]


def test_predictions_are_continuous_between_anchors():
    model = regressor(neighbours=32, scales=1).fit(*observations(200))
    assert len(model._tiles.anchors) > 10
    line = np.stack([np.linspace(0, 8, 2001), np.full(2001, 3.3)], 1)
    assert_continuous(model, line)


def test_many_observations_are_predicted_from_neighbours():
    x, y = observations(300)
    model = regressor(neighbours=32, scales=1, calibrate=False)
    corner, far = np.zeros((1, 2)), x.sum(1) > 10
    before, everywhere = model.fit(x, y).predict(corner), model.predict(x)
    model._y[model._x.sum(1) > 10] += 0.01
    assert far.any()
    assert model.predict(corner) == before
    assert (model.predict(x) != everywhere).any()


def test_a_hundred_thousand_observations():
    x, y = observations(100_000)
    model = regressor(neighbours=64, scales=1).fit(x, y)
    assert len(model._tiles.anchors) > 3000
    assert model._tiles.chunk * len(model._tiles.anchors) <= 1 << 22
    mean, std = model.predict(XT[:3], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize("n", [40, 120])
def test_a_periodic_input_has_no_seam(n):
    x, y = observations(n)
    model = regressor(period={0: 8}, neighbours=64, scales=1).fit(x, y)
    targets = XT.copy()
    mean, std = model.predict(targets, return_std=True)
    for turns in (-1, 3):
        same(model.predict(targets + np.array([8 * turns, 0]), return_std=True), (mean, std))
    other = regressor(period={0: 8}, neighbours=64, scales=1).fit(x + np.array([8, 0]), y)
    same(other.predict(targets, return_std=True), (mean, std))
    circle = np.stack([np.linspace(-4, 12, 2001), np.full(2001, 3.0)], 1)
    assert_continuous(model, circle)
    assert not np.allclose(regressor(neighbours=64, scales=1).fit(x, y).predict(targets), mean, rtol=1e-3)


def test_data_across_the_seam_are_one_piece():
    x, y = observations()
    across = np.stack([(x[:, 0] + 356) % 360, x[:, 1]], 1)
    targets = XT + np.array([356, 0])
    model, plain = (regressor(period=p).fit(a, y) for p, a in (({0: 360}, across), (None, x)))
    same(model._box.unit, plain._box.unit)
    assert model.predict(targets).std() > 0


def test_periods_by_name_position_and_duration():
    import pandas as pd

    t = pd.date_range("2020-01-01", periods=40, freq="7h")
    y = np.sin(np.arange(40) * 7 / 24 * 2 * np.pi)
    one = regressor(1, period=1.0).fit(t, y)
    for period in ({0: 1}, {"x0": np.timedelta64(24, "h")}, {"x0": pd.Timedelta(days=1)}):
        same(regressor(1, period=period).fit(t, y).predict(t), one.predict(t))
    for period, message in (
        ({"lom": 360}, "did you mean"),
        ({"x0": -1}, "positive"),
        (360, "must name its input"),
        ({5: 1}, "positions"),
    ):
        frame = pd.DataFrame(observations()[0], columns=["lon", "lat"] if "lom" in str(period) else ["x0", "x1"])
        with pytest.raises(ValueError, match=message):
            regressor(2, period=period).fit(frame, observations()[1])


# --- edge cases ------------------------------------------------------------------------------------------------------


def test_without_observations():
    model = regressor().fit(np.zeros((0, 2)), np.zeros(0))
    mean, std = model.predict(XT, return_std=True)
    assert (mean == 0).all()
    same(std, np.ones(23))
    assert "unknown" in model.report()
    x, y = observations()
    late = model.update(1e6 * x, y).predict(1e6 * XT)
    same(late, regressor(scales=1, calibrate=False).fit(x, y).predict(XT))


def test_one_observation():
    model = regressor().fit([[1.0, 2.0]], [300.0])
    mean, std = model.predict(XT, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize("value", [0.0, 5.0, -1e7])
def test_constant_outputs(value):
    x, _ = observations(20)
    mean, std = regressor().fit(x, np.full(20, value)).predict(XT, return_std=True)
    size = abs(value) or 1.0
    assert np.abs(mean - value).max() < 1e-4 * size
    assert (std > 0).all()
    assert std.max() < 1e-4 * size


def test_outputs_with_a_large_offset():
    x, y = observations()
    mean = regressor().fit(x, y).predict(XT)
    same(regressor().fit(x, y + 1.7e9).predict(XT) - 1.7e9, mean, 1e-4)


def test_repeated_places_and_constant_inputs():
    x, y = observations(30)
    for inputs in (np.repeat(x[:10], 3, axis=0), np.repeat(x[:1], 30, axis=0), x * [1, 0]):
        mean, std = regressor().fit(inputs, y).predict(XT, return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()


def test_repeated_places_are_held_out_together():
    from shiftnp.regressor.folds import make_folds

    x, y = observations(10)
    model = regressor().fit(np.repeat(x, 3, axis=0), np.repeat(y, 3))
    folds = make_folds(model._tiles, 4, np.random.default_rng(0))
    assert sum(len(fold.held_out) for fold in folds) == 30
    for fold in folds:
        known = {tuple(place) for place in model._x[fold.context]}
        assert not known & {tuple(place) for place in model._x[fold.held_out]}


def test_missing_outputs_are_left_out():
    x, y = observations(40, outputs=2)
    y[3] = np.nan
    y[5, 0] = np.nan
    model = regressor().fit(x, y)
    assert model.dropped_ == 1
    assert "1 without any output left out" in model.report()
    keep = np.delete(np.arange(40), 3)
    same(model.predict(XT), regressor().fit(x[keep], y[keep]).predict(XT))
    alone = regressor(scales=1, calibrate=False).fit(x, y[:, 0])
    assert len(alone._x) == 38
    assert np.isfinite(model.predict(XT)).all()


def test_outputs_are_predicted_each_by_itself():
    x, y = observations(40, outputs=3)
    together = regressor().fit(x, y)
    mean, std = together.predict(XT, return_std=True)
    assert mean.shape == (23, 3)
    for k in range(3):
        alone = regressor().fit(x, y[:, k])
        same(alone.predict(XT, return_std=True), (mean[:, k], std[:, k]))
    assert together.sample(XT, 2).shape == (2, 23, 3)
    assert together.predict_quantiles(XT, [0.1, 0.9]).shape == (23, 3, 2)


def test_an_output_without_observations_has_the_prior():
    x, y = observations(20, outputs=2)
    y[:, 1] = np.nan
    mean, std = regressor().fit(x, y).predict(XT, return_std=True)
    assert (mean[:, 1] == 0).all()
    same(std[:, 1], np.ones(23))
    same(mean[:, 0], regressor().fit(x, y[:, 0]).predict(XT))


@pytest.mark.parametrize("dx", [1, 2, 3])
def test_one_to_three_inputs(dx):
    x, y = observations(25, dx)
    model = regressor(dx).fit(x, y)
    assert model.n_features_in_ == dx
    assert model.predict(x[:4]).shape == (4,)
    assert model.predict(x[:0]).shape == (0,)
    assert model.scales_[0].factors.shape[1] == dx


def test_update_adds_observations():
    x, y = observations(40)
    model = regressor().fit(x[:30], y[:30])
    before = model.scales_
    model.update(x[30:], y[30:])
    assert model.scales_ is before
    one = regressor().fit(x, y)
    one.scales_, one.spread_factors_, one._box = model.scales_, model.spread_factors_, model._box
    one._make_tiles()
    assert np.array_equal(one.predict(XT), model.predict(XT))


# --- statistics ------------------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_the_mixture(fitted):
    levels = [0.01, 0.3, 0.5, 0.975]
    quantiles = fitted.predict_quantiles(XT, levels)
    assert quantiles.shape == (23, 4)
    assert (np.diff(quantiles, axis=1) > 0).all()
    for rows, mixture in fitted._predictor.blocks(XT):
        for j, level in enumerate(levels):
            same(mixture.cdf(torch.from_numpy(quantiles[rows, j])[None]), np.full((1, len(rows)), level), 1e-10)
    same(fitted.predict_quantiles(XT, 0.3), quantiles[:, 1])


@pytest.mark.parametrize("n", [40, 120])
def test_moments_density_and_quantiles_agree(n):
    model = regressor(neighbours=64).fit(*observations(n))
    mean, std = model.predict(XT[:3], return_std=True)
    low, high = model.predict_quantiles(XT[:3], [0.158655253931457, 0.841344746068543]).T
    same(std, 0.5 * (high - low))
    grid = np.linspace(-30, 30, 60_001)
    assert np.exp(model.log_likelihood(XT[:1], mean[:1])) > 0
    ((rows, mixture),) = model._predictor.blocks(XT[:3])
    density = mixture.log_prob(torch.from_numpy(grid)[:, None, None].expand(-1, 1, 3)).exp().numpy()[:, 0]
    step = grid[1] - grid[0]
    same(density.sum(0) * step, np.ones(3), 1e-6)
    same((density * grid[:, None]).sum(0) * step, mean[rows], 1e-6)
    same((density * (grid[:, None] - mean[rows]) ** 2).sum(0) * step, mixture.std[0] ** 2, 1e-6)


def test_samples_have_the_predicted_moments(fitted):
    drawn = fitted.sample(XT, n=20_000)
    mean, std = fitted.predict(XT, return_std=True)
    assert drawn.shape == (20_000, 23)
    assert np.abs((drawn.mean(0) - mean) / std).max() < 5 / np.sqrt(20_000)
    ends = np.quantile(drawn, [0.158655253931457, 0.841344746068543], axis=0)
    same(0.5 * (ends[1] - ends[0]), std, 0.05)
    assert np.array_equal(fitted.sample(XT, 2), fitted.sample(XT, 2))
    assert not np.array_equal(fitted.sample(XT, 2), fitted.sample(XT, 2, seed=1))


def test_joint_samples(fitted):
    drawn = fitted.sample(XT, n=5, joint=True)
    assert drawn.shape == (5, 23)
    assert np.isfinite(drawn).all()
    # One target at a time is the marginal.
    one = fitted.sample(XT[:1], n=1000, joint=True)[:, 0]
    mean, std = fitted.predict(XT[:1], return_std=True)
    assert abs(one.mean() - mean[0]) < 5 * std[0] / np.sqrt(1000)
    with pytest.raises(ValueError, match="joint=False"):
        regressor(neighbours=32).fit(*observations(60)).sample(XT, joint=True)


def test_crps_is_that_of_metrics(fitted):
    from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

    from shiftnp import metrics

    ((_, mixture),) = fitted._predictor.blocks(XT)
    y = torch.linspace(-2, 2, 23, dtype=torch.float64)[None]
    parts = Independent(Normal(mixture.means[..., None], mixture.stds[..., None]), 1)
    dist = MixtureSameFamily(Categorical(mixture.weight), parts)
    same(mixture.crps(y).mean(-1), metrics.crps(dist, y[..., None]))
    same(mixture.log_prob(y).mean(-1), metrics.log_likelihood(dist, y[..., None]))


def test_score_is_that_of_sklearn(fitted):
    from sklearn.metrics import r2_score

    x, y = observations(30, seed=5)
    assert fitted.score(x, y) == pytest.approx(r2_score(y, fitted.predict(x)))
    weight = np.arange(30.0)
    assert fitted.score(x, y, weight) == pytest.approx(r2_score(y, fitted.predict(x), sample_weight=weight))


# --- scales and calibration ------------------------------------------------------------------------------------------


def test_held_out_predictions_are_those_of_a_fit_without_them():
    """The batched passes of the search are the same as a fit to each fold and a prediction."""
    from shiftnp.regressor.folds import make_folds
    from shiftnp.regressor.scales import score

    x, y = observations(30)
    model = regressor(scales=1, calibrate=False).fit(x, y)
    folds = make_folds(model._tiles, 4, np.random.default_rng(0))
    candidates = np.array([[0.5, 2.0, 0], [1.0, 1.0, 0], [1.0, 1.0, 2]])
    (scored,) = score(model._model, folds, model._y, [candidates], variants=2)
    start = 0
    for fold in folds:
        alone = regressor(scales=1, calibrate=False).fit(model._x[fold.context], model._y[fold.context, 0])
        alone._box = model._box
        rows = slice(start, start + len(fold.held_out))
        for s, (*factor, degree) in enumerate(candidates):
            alone.scales_[0].factors[:], alone.scales_[0].degrees[:] = factor, degree
            alone._make_tiles()
            same(alone.predict(model._x[fold.held_out]), scored.prediction.mean[s, rows])
        start = rows.stop
    assert start == 30


def test_the_search_scores_the_best_candidates_on_all_folds():
    """Scores of the first folds are kept from the rounds before; together they are those of one pass."""
    from shiftnp.regressor.folds import make_folds
    from shiftnp.regressor.scales import score, search, weigh

    model = regressor(scales=1, calibrate=False).fit(*observations(100))
    folds = make_folds(model._tiles, 8, np.random.default_rng(0))
    (found,) = search(model._model, folds, model._y, np.array([0.5, 1.0, 2.0]))
    (once,) = score(model._model, folds, model._y, [np.column_stack([found.factors, found.degrees])])
    expected = weigh(once, found.y)
    assert len(found.y) == 100
    same(found.weights, expected.weights)
    same(found.held_out.mean, expected.held_out.mean)


def test_a_trend_is_found_and_reported():
    """Around a quadratic trend of one input; random weights know nothing of it."""
    x, y = observations(60)
    x, xt = x[:, :1], XT[:, :1]
    trend, expected = (2 * v[:, 0] + 0.3 * v[:, 0] ** 2 for v in (x, xt))
    model = regressor(1).fit(x, trend + 0.01 * y)
    assert model.scales_[0].trend == 2
    assert "quadratic trend" in model.report()
    error = np.abs(model.predict(xt) - expected).mean()
    without = regressor(1, trend=False).fit(x, trend + 0.01 * y)
    assert error < 0.2 * np.abs(without.predict(xt) - expected).mean()
    for other in (without, regressor(1, period={0: 100.0}).fit(x, trend)):
        assert not other.scales_[0].degrees.any()


def test_beyond_the_data_the_spread_around_a_trend_grows():
    x = np.linspace(0, 10, 60)[:, None]
    model = regressor(1).fit(x, 3 * x[:, 0] + np.sin(9 * x[:, 0]))
    assert model.scales_[0].degrees.all()
    mean, std = model.predict(np.array([[12.0], [30.0], [300.0]]), return_std=True)
    assert np.allclose(mean, [36, 90, 900], rtol=0.2)
    assert std[0] < std[1] < std[2]


def test_the_spread_factor_corrects_the_spread():
    from shiftnp.regressor.calibration import scores, spread_factor
    from shiftnp.regressor.mixture import Mixture

    y = torch.from_numpy(np.random.default_rng(0).normal(size=4000))
    zero = torch.zeros(4000, 1, dtype=torch.float64)
    for std in (0.5, 2.0):
        prediction = Mixture(zero + 1, zero, zero + std)
        factor = spread_factor(prediction, y)
        assert factor == pytest.approx(1 / std, rel=0.05)
        assert scores(prediction.spread(torch.full_like(y, factor)), y).coverage == pytest.approx(0.9, abs=0.02)
        few = spread_factor(Mixture(*(part[:5] for part in prediction)), y[:5])
        assert abs(np.log(few)) < abs(np.log(factor))
    assert spread_factor(Mixture(zero[:0], zero[:0], zero[:0]), y[:0]) == 1


def test_intervals_of_few_observations_get_a_margin():
    from shiftnp.regressor.calibration import spread_factor
    from shiftnp.regressor.mixture import Mixture

    for n in (8, 200):
        zero = torch.zeros(n, 1, dtype=torch.float64)
        y = torch.linspace(-1, 1, n, dtype=torch.float64)
        y = y / y.square().mean().sqrt()  # as far from the prediction as it says
        assert spread_factor(Mixture(zero + 1, zero, zero + 1), y) == pytest.approx(
            np.exp(0.5 / (2 * n) ** 0.5), rel=0.01
        )


def test_calibration_is_reported_and_optional(fitted):
    x, y = observations()
    raw = regressor(calibrate=False).fit(x, y)
    assert raw.spread_factors_ == [1.0]
    same(raw.predict(XT), fitted.predict(XT))
    ratio = fitted.predict(XT, return_std=True)[1] / raw.predict(XT, return_std=True)[1]
    same(ratio, np.full(23, fitted.spread_factors_[0]))
    assert f"spread x{fitted.spread_factors_[0]:.2f}" in fitted.report()
    assert "spread" not in raw.report()


def test_the_search_finds_the_scale_of_the_weights():
    """Data that a random model predicts well in one unit: the search returns to it from another."""
    found = {}
    x, y = observations(60)
    for stretch in (1.0, 3.0):
        model = regressor(scales=7, calibrate=False).fit(x, y)
        unit = np.array(model._box.unit) * stretch
        model._box = type(model._box)(model._box.centre, tuple(unit), model._box.period)
        scales, _, _ = model._search(np.geomspace(1 / 9, 9, 13))
        found[stretch] = scales[0].typical / unit
    assert np.allclose(np.log(found[1.0]), np.log(found[3.0]), atol=0.8)


def test_variants_are_averaged():
    """Two variants treat a data set and its reflection alike, four also an exchange of the inputs."""
    x, y = observations()
    fixed = {"scales": 1, "calibrate": False}
    for variants, exact in ((1, False), (2, True)):
        here = regressor(variants=variants, **fixed).fit(x, y).predict(XT, return_std=True)
        there = regressor(variants=variants, **fixed).fit(-x, -y).predict(-XT, return_std=True)
        assert np.allclose(here[0], -there[0], rtol=1e-9) == exact
        assert np.allclose(here[1], there[1], rtol=1e-9) == exact
    for variants, exact in ((2, False), (4, True)):
        here = regressor(variants=variants, **fixed).fit(x, y).predict(XT)
        there = regressor(variants=variants, **fixed).fit(x[:, ::-1], -y).predict(XT[:, ::-1])
        assert np.allclose(here, -there, rtol=1e-9) == exact


def test_weights_of_scales_sum_to_one(fitted):
    for scale in fitted.scales_:
        assert float(scale.weights.sum()) == pytest.approx(1)
        assert (scale.weights > 0).all()
        assert len(scale.weights) <= 3


def test_the_report_names_several_outputs():
    model = regressor(scales=1).fit(*observations(outputs=2))
    one, two = model.spread_factors_
    assert f"(spread y0 x{one:.2f}; y1 x{two:.2f})" in model.report()


def test_the_report_has_five_lines(fitted):
    lines = fitted.report().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "points",
        "scales",
        "cross-validated CRPS",
        "90 % intervals cover",
        "seconds",
    ]


# --- scikit-learn ----------------------------------------------------------------------------------------------------


NOT_APPLICABLE = {
    "check_fit1d": "a one-dimensional X is a single input, such as the times of a series",
    "check_estimators_empty_data_messages": "a fit without observations predicts the prior",
    "check_dataframe_column_names_consistency": "columns of a DataFrame are found by their names, in any order",
}


def test_check_estimator():
    """In a process of its own, since some checks pass arguments of wrong types, which the checks of types in these
    tests refuse. Many checks use more than three inputs."""
    code = f"""
import json, warnings
warnings.simplefilter("ignore")
from sklearn.utils.estimator_checks import check_estimator
from shiftnp import Regressor
model = Regressor(weights={str(folder())!r}, dtype="float64", scales=1, folds=2)
results = check_estimator(model, on_fail=None, on_skip=None)
def reasons(error):
    return [] if error is None else [str(error), *reasons(error.__cause__)]
print(json.dumps([(r["check_name"], r["status"], reasons(r["exception"])) for r in results]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    results = json.loads(run.stdout)
    failed = {
        name: reasons
        for name, status, reasons in results
        if status == "failed" and not any("takes 1 to 3 inputs" in reason for reason in reasons)
    }
    assert failed.keys() <= NOT_APPLICABLE.keys(), failed
    assert sum(status == "passed" for _, status, _ in results) >= 20


def test_clone_and_cross_validation():
    from sklearn.base import clone, is_regressor
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = regressor(period={0: 100})
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert is_regressor(model)
    x, y = observations()
    assert cross_val_score(regressor(), x, y, cv=3).shape == (3,)
    same(make_pipeline(StandardScaler(), regressor()).fit(x, y).predict(x), regressor().fit(x, y).predict(x), 1e-6)
    assert GridSearchCV(regressor(), {"calibrate": [True, False]}, cv=2).fit(x, y).best_params_
    with pytest.raises(ValueError, match="did you mean 'period'"):
        model.set_params(perod=3)
    assert repr(Regressor(seed=3)) == "Regressor(seed=3)"


def test_an_unfitted_regressor_says_so():
    from sklearn.exceptions import NotFittedError

    for call in (
        lambda m: m.predict(XT),
        lambda m: m.report(),
        lambda m: m.predict_grid(),
        lambda m: m.save("nowhere"),
        lambda m: m.update(*observations()),
    ):
        with pytest.raises(NotFittedError, match="call `fit`"):
            call(Regressor())


def test_a_pickled_regressor_predicts_the_same(fitted):
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(XT), fitted.predict(XT))


def test_without_sklearn_pandas_xarray_and_scipy():
    code = f"""
import sys
sys.modules.update(dict.fromkeys(["sklearn", "pandas", "xarray", "scipy"]))
import numpy as np
from shiftnp import Regressor
model = Regressor(weights={str(weights(1))!r}, scales=3)
try:
    model.predict([1.0])
except ValueError as error:
    assert "call `fit`" in str(error), error
t = np.arange("2020-01-01", "2020-02-01", dtype="datetime64[D]")
mean, std = model.fit(t, np.sin(np.arange(31.0))).predict(t, return_std=True)
assert mean.shape == std.shape == (31,)
assert model.fit(["20200101", "20200105"], [1, 2]).predict(["2020-01-02"]).shape == (1,)
try:
    model.predict_grid()
except ImportError as error:
    assert "xarray" in str(error), error
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_global_random_state_is_untouched():
    state = torch.get_rng_state()
    regressor(seed=1).fit(*observations()).sample(XT)
    assert torch.equal(state, torch.get_rng_state())


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x * np.nan, y), "X contains NaN: 'x0' is missing in 20 of 20 rows"),
        (lambda x, y: (x / 0.0, y), "infinity"),
        (lambda x, y: (x, y / 0.0), "'y0' of y contains infinity"),
        (lambda x, y: (x, np.where(np.arange(20) == 3, 9.97e36, y)), "too large"),
        (lambda x, y: (x[:10], y), "10 rows and y has 20"),
        (lambda x, y: (x[:, :1], y), "are for 2 inputs, and X has 1"),
        (lambda x, y: (x[None], y), "Reshape your data"),
        (lambda x, y: (x, None), "requires y"),
        (lambda x, y: (x, ["a"] * 20), "must hold numbers, has 'a'"),
        (lambda x, y: (x + 1j, y), "Complex data not supported"),
        (lambda x, y: (x[:, :0], y), "0 feature"),
    ],
)
def test_wrong_data(change, message):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        regressor().fit(*change(*observations(20)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float16"}, "dtype must be"),
        ({"folds": 1}, "folds must be"),
        ({"neighbours": 2.5}, "neighbours must be"),
        ({"variants": 3}, "variants must be"),
        ({"scales": 0}, "scales must be"),
        ({"scales": [1, -2]}, "scales must be"),
        ({"scales": "many"}, "scales must be"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        regressor().set_params(**arguments).fit(*observations(20))


def test_fill_values_are_pointed_out():
    x, y = observations(30)
    y[:3] = -9999
    with pytest.warns(UserWarning, match="-9999 in 3 places"):
        regressor(scales=1).fit(x, y)


def test_wrong_targets_and_levels(fitted):
    for call, message in (
        (lambda: fitted.predict(XT[:, :1]), "expecting 2 features"),
        (lambda: fitted.predict(XT * np.nan), "X contains NaN"),
        (lambda: fitted.predict_quantiles(XT, [0.0]), "between 0 and 1"),
        (lambda: fitted.sample(XT, 0), "at least 1"),
        (lambda: fitted.score(XT, [1.0]), "must have 23 rows"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
