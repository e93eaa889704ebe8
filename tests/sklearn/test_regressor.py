import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, WhiteKernel
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from lazybo import Column, Matern52, Priors
from lazybo.gp import Kernel as OwnKernel
from lazybo.gp import Learner
from lazybo.sklearn import LazyGPRegressor

KERNEL = ConstantKernel(1.7) * Matern([0.3, 0.9, 1.5], nu=2.5)
NOISY = KERNEL + WhiteKernel(0.05)


def wave(x: np.ndarray, outputs: int = 1) -> np.ndarray:
    y = np.column_stack([10 + np.sin(5 * x[:, 0] + i) + (1 + i) * x.sum(axis=1) ** 2 for i in range(outputs)])
    return y if outputs > 1 else y[:, 0]


def twin(regressor: LazyGPRegressor, x: np.ndarray, y: np.ndarray, **options: Any) -> GaussianProcessRegressor:
    """scikit-learn's, with the parameters that ours has now."""
    options = {"alpha": regressor.alpha, "normalize_y": regressor.normalize_y, **options}
    return GaussianProcessRegressor(regressor.kernel_, optimizer=None, **options).fit(x, y)


def assert_equal_predictions(ours: Any, theirs: Any, u: np.ndarray, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(ours.predict(u), theirs.predict(u), rtol=tolerance, atol=tolerance)
    for options in ({"return_std": True}, {"return_cov": True}):
        for a, b in zip(ours.predict(u, **options), theirs.predict(u, **options), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@parametrize_with_checks([LazyGPRegressor(), LazyGPRegressor(1.0 * Matern(nu=2.5) + WhiteKernel(), normalize_y=True)])
def test_scikit_learns_own_checks(estimator: LazyGPRegressor, check: Any) -> None:
    check(estimator)


# --------------------------------------------------------------- twins


@pytest.mark.parametrize("kernel", [KERNEL, NOISY], ids=["plain", "white"])
@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("outputs", [1, 3])
def test_fixed_parameters_give_scikit_learns_numbers(
    rng: np.random.Generator, kernel: Kernel, normalize_y: bool, outputs: int
) -> None:
    x, u = rng.random((80, 3)), rng.random((20, 3))
    y = wave(x, outputs)
    ours = LazyGPRegressor(kernel, alpha=1e-4, optimizer=None, normalize_y=normalize_y).fit(x, y)
    theirs = twin(ours, x, y)
    assert_equal_predictions(ours, theirs, u)
    for name in ("X_train_", "y_train_", "L_", "alpha_", "log_marginal_likelihood_value_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8, atol=1e-7, err_msg=name)
    theta = theirs.kernel_.theta + 0.1
    value, gradient = ours.log_marginal_likelihood(theta, eval_gradient=True)
    their_value, their_gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(their_value, rel=1e-8)
    np.testing.assert_allclose(gradient, their_gradient, rtol=1e-8)
    assert ours.log_marginal_likelihood(theta) == pytest.approx(theirs.log_marginal_likelihood(theta), rel=1e-10)
    assert ours.score(x, y) == pytest.approx(theirs.score(x, y))


@pytest.mark.parametrize("alpha", [np.linspace(1e-3, 1, 40), [0.01], 0.3])
def test_alpha_may_be_a_number_or_one_for_each_row(rng: np.random.Generator, alpha: Any) -> None:
    x, u = rng.random((40, 3)), rng.random((9, 3))
    ours = LazyGPRegressor(KERNEL, alpha=alpha, optimizer=None).fit(x, wave(x))
    assert_equal_predictions(ours, twin(ours, x, wave(x), alpha=np.broadcast_to(alpha, 40)), u)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 15), min_size=1, max_size=8), st.booleans(), st.integers(1, 2), st.integers(0, 999))
def test_any_split_of_the_rows_equals_one_fit(blocks: list[int], normalize_y: bool, outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, u, alpha = rng.random((sum(blocks), 3)), rng.random((5, 3)), 1e-3 + rng.random(sum(blocks))
    y = wave(x, outputs)
    options = {"optimizer": None, "normalize_y": normalize_y}
    whole = LazyGPRegressor(NOISY, alpha=alpha, **options).fit(x, y)
    pieces = LazyGPRegressor(NOISY, **options)
    for start, stop in pairwise([0, *np.cumsum(blocks)]):
        pieces.set_params(alpha=alpha[start:stop]).partial_fit(x[start:stop], y[start:stop])
        pieces.predict(u)
    assert_equal_predictions(pieces, whole, u)
    np.testing.assert_allclose(pieces.alpha_, whole.alpha_, rtol=1e-8, atol=1e-8)
    assert pieces.log_marginal_likelihood() == pytest.approx(whole.log_marginal_likelihood(), rel=1e-9)


@settings(max_examples=15)
@given(
    st.sampled_from([None, NOISY, 2.0 * (Matern(0.7, nu=2.5) + WhiteKernel(0.1))]),
    st.sampled_from(["auto", 1, 7, None]),
    st.sampled_from([1, 2]),
    st.integers(0, 999),
)
def test_whatever_was_learned_scikit_learn_agrees_with_the_result(
    kernel: Kernel | None, lag: Any, outputs: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, u = rng.random((24, 3)), rng.random((5, 3))
    y = wave(x, outputs) + 0.1 * rng.standard_normal((24, outputs)).squeeze()
    ours = LazyGPRegressor(kernel, alpha=1e-3, lag=lag, normalize_y=True)
    for start, stop in pairwise([0, 9, 10, 11, 20, 24]):
        ours.partial_fit(x[start:stop], y[start:stop])
    assert_equal_predictions(ours, twin(ours, x, y), u, 1e-6)
    assert ours.noise_ == pytest.approx(ours.kernel_(x[:1])[0, 0] - ours.kernel_(x[:1], x[:1])[0, 0])


def test_new_rows_cost_one_solve_each_and_no_factorisation(rng: np.random.Generator) -> None:
    n, t = 300, 5
    x = rng.random((n + t, 3))
    ours = LazyGPRegressor(KERNEL, alpha=1e-4, optimizer=None, normalize_y=True).fit(x[:n], wave(x[:n]))
    gp = ours.process_
    before = gp.factor.work
    ours.partial_fit(x[n:], wave(x[n:]))
    assert ours.process_ is gp
    assert gp.factor.work - before <= (0.5 * n**2 + t * n) * t + t**3
    before = gp.factor.work
    ours.predict(x[:2])
    ours.predict(x[:2])
    assert gp.factor.work - before <= 1.01 * (n + t) ** 2, "the weights take two solves, once"


# ------------------------------------------------------------------ prior


def test_the_default_kernel_begins_at_the_middle_of_the_priors(rng: np.random.Generator) -> None:
    _, std = LazyGPRegressor(priors=Priors(noise=0.5)).predict(rng.random((4, 2)), return_std=True)
    np.testing.assert_allclose(std, np.sqrt(1.5))


# ----------------------------------------------------------------- sample


@pytest.mark.parametrize("outputs", [1, 2])
def test_samples_have_the_mean_and_covariance_that_are_predicted(rng: np.random.Generator, outputs: int) -> None:
    x, u = rng.random((30, 3)), rng.random((4, 3))
    ours = LazyGPRegressor(NOISY, alpha=1e-3, optimizer=None, normalize_y=True).fit(x, wave(x, outputs))
    samples = ours.sample_y(u, 20_000, random_state=1).reshape(4, outputs, -1)
    mean, covariance = (
        part.reshape(*shape, outputs)
        for part, shape in zip(ours.predict(u, return_cov=True), [(4,), (4, 4)], strict=True)
    )
    for i in range(outputs):
        size = np.sqrt(np.diagonal(covariance[..., i]).max())
        np.testing.assert_allclose(samples[:, i].mean(axis=1), mean[:, i], atol=0.04 * size)
        np.testing.assert_allclose(np.cov(samples[:, i]), covariance[..., i], atol=0.04 * size**2)
    if outputs > 1:
        assert abs(np.corrcoef(samples[0, 0], samples[0, 1])[0, 1]) < 0.04, "outputs are independent"


# ------------------------------------------------------------------ learn


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(
    "kernel",
    [
        1.0 * Matern(0.5, nu=2.5) + WhiteKernel(0.1),
        WhiteKernel(0.1) + Matern([0.5, 0.5, 0.5], nu=2.5) * ConstantKernel(1.0),
        ConstantKernel(1.0, "fixed") * Matern([0.5, 0.5, 0.5], (0.3, 0.8), nu=2.5),
    ],
    ids=str,
)
def test_a_scikit_learn_kernel_is_learned_as_scikit_learn_does(
    rng: np.random.Generator, kernel: Kernel, outputs: int
) -> None:
    x = rng.random((50, 3))
    y = wave(x, outputs) + 0.2 * rng.standard_normal((50, outputs)).squeeze()
    options = {"alpha": 1e-2, "normalize_y": True, "n_restarts_optimizer": 1, "random_state": 0}
    ours = LazyGPRegressor(kernel, **options).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of theirs, that a bound is near
        theirs = GaussianProcessRegressor(kernel, **options).fit(x, y)
    np.testing.assert_allclose(ours.kernel_.theta, theirs.kernel_.theta, atol=1e-3)
    assert ours.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood(), abs=1e-5)
    assert ours.learned_at_ == 50


def test_what_is_fixed_stays_and_a_callable_optimizer_is_asked(rng: np.random.Generator) -> None:
    x, asked = rng.random((20, 3)), []

    def optimizer(objective: Any, start: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
        value, gradient = objective(start)
        assert value == objective(start, eval_gradient=False)
        np.testing.assert_allclose(gradient, approx_fprime(start, objective, 1e-6, False), rtol=1e-3)
        asked.append(bounds)
        return start + 0.5, value

    kernel = ConstantKernel(1.7, "fixed") * Matern(0.4, (0.1, 10), nu=2.5)
    ours = LazyGPRegressor(kernel, alpha=0.1, optimizer=optimizer).fit(x, wave(x))
    np.testing.assert_allclose(asked, [[np.log([0.1, 10])]])
    assert ours.kernel_.k1.constant_value == 1.7
    assert ours.kernel_.k2.length_scale == pytest.approx(0.4 * np.exp(0.5))
    assert kernel.k2.length_scale == 0.4


def test_the_default_kernel_follows_the_units_of_x_and_y(rng: np.random.Generator) -> None:
    x, u = rng.random((60, 3)), rng.random((9, 3))
    y = wave(x) + 0.1 * rng.standard_normal(60)
    mean, std = LazyGPRegressor(alpha=0.0).fit(x, y).predict(u, return_std=True)
    units, shift = np.array([1e-6, 1.0, 1e9]), np.array([0.0, 10.0, -1e9])
    scaled = LazyGPRegressor(alpha=0.0).fit(x * units + shift, 1e5 * y)
    for a, b in zip(scaled.predict(u * units + shift, return_std=True), (1e5 * mean, 1e5 * std), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


@pytest.mark.parametrize("normalize_y", [False, True])
def test_the_default_kernel_finds_the_noise(rng: np.random.Generator, normalize_y: bool) -> None:
    x, u = rng.random((150, 3)), rng.random((200, 3))
    ours = LazyGPRegressor(normalize_y=normalize_y).fit(x, wave(x) + 0.3 * rng.standard_normal(150))
    _, std = ours.predict(u, return_std=True)
    assert np.median(std) == pytest.approx(0.33, abs=0.06)
    assert ours.score(u, wave(u)) > 0.98


@pytest.mark.parametrize("lag", ["auto", 1, 10, None])
def test_partial_fit_learns_when_the_lag_says_so(rng: np.random.Generator, lag: Any) -> None:
    x = rng.random((90, 2))
    y = wave(x)
    ours, learned_at = LazyGPRegressor(lag=lag), 0
    for start, stop in pairwise([0, 1, 2, 3, 9, 10, 14, 60, 61, 89, 90]):
        learned_at = stop if Learner(lag=lag).is_due(learned_at, stop) else learned_at
        assert ours.partial_fit(x[start:stop], y[start:stop]).learned_at_ == learned_at
    assert ours.fit(x, y).learned_at_ == 90


@pytest.mark.parametrize("kernel", [None, Matern52(np.ones(3)), KERNEL])
def test_without_an_optimizer_nothing_is_learned(rng: np.random.Generator, kernel: Any) -> None:
    x = rng.random((30, 3))
    ours = LazyGPRegressor(kernel, optimizer=None, lag=1).fit(x, wave(x)).partial_fit(x, wave(x))
    assert ours.learned_at_ == 0
    assert ours.noise_ == (pytest.approx(Priors().noise) if kernel is None else 0.0)


@pytest.mark.parametrize("own", ["matern52", "additive"])
def test_our_own_kernels_may_have_choices_and_inactive_entries(rng: np.random.Generator, own: str) -> None:
    columns = (Column(), Column(categories=3), Column(conditional=True))
    x = np.column_stack((rng.random(60), rng.integers(0, 3, 60), rng.random(60)))
    x[x[:, 1] == 2, 2] = np.nan
    y = np.sin(5 * x[:, 0]) + x[:, 1] + np.nan_to_num(x[:, 2]) + 0.05 * rng.standard_normal(60)
    kernel = OwnKernel.chosen(own, columns)
    ours = LazyGPRegressor(kernel, normalize_y=True)
    assert get_tags(ours).input_tags.allow_nan
    ours.fit(x[:50], y[:50]).partial_fit(x[50:], y[50:])
    assert ours.score(x, y) > 0.98
    assert type(ours.kernel_) is type(kernel)
    assert ours.noise_ > 0
    value, gradient = ours.log_marginal_likelihood(ours.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(ours.log_marginal_likelihood(), rel=1e-6)
    difference = approx_fprime(ours.kernel_.theta, ours.log_marginal_likelihood, 1e-6)
    np.testing.assert_allclose(gradient, difference, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="row 0, column 0 is nan"):
        ours.predict([[np.nan, 0, 0.5]])


# ------------------------------------------------------------------ habits


def test_rows_that_repeat_are_learned(rng: np.random.Generator) -> None:
    x = rng.random((10, 3))
    ours = LazyGPRegressor(KERNEL, alpha=0.0, optimizer=None).fit(x, wave(x))
    for _ in range(3):
        ours.partial_fit(x, wave(x))
    np.testing.assert_allclose(ours.predict(x), wave(x), rtol=1e-4)


@pytest.mark.parametrize("y", [np.zeros(12), np.full(12, 3.5), np.full((12, 2), -1e8)])
@pytest.mark.parametrize("normalize_y", [False, True])
def test_values_that_are_all_the_same_are_predicted(rng: np.random.Generator, y: np.ndarray, normalize_y: bool) -> None:
    x = rng.random((12, 2))
    np.testing.assert_allclose(LazyGPRegressor(normalize_y=normalize_y).fit(x, y).predict(x), y, rtol=1e-2, atol=1e-12)


# --------------------------------------------------------------- bad input


BAD_PARAMETERS = {
    "kernel": (RBF(), "the kernel must be ConstantKernel"),
    "alpha": (-1.0, "alpha must not be negative"),
    "optimizer": ("adam", "optimizer must be"),
    "n_restarts_optimizer": (-1, "n_restarts_optimizer must be a whole number of at least 0"),
    "lag": (0, "lag must be a positive whole number"),
    "priors": ("flat", "priors must be lazybo.Priors"),
    "max_points": (1, "max_points must be a whole number of at least 2"),
}


def state(regressor: LazyGPRegressor) -> dict[str, Any]:
    return {name: id(value) for name, value in vars(regressor).items()}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters_are_one_clear_error_and_change_nothing(rng: np.random.Generator, name: str) -> None:
    value, message = BAD_PARAMETERS[name]
    x = rng.random((20, 3))
    used = LazyGPRegressor().fit(x, wave(x)).set_params(**{name: value})
    before, prediction = state(used), used.predict(x)
    with pytest.raises(ValueError, match=message):
        used.fit(x[:, :2], wave(x))
    assert state(used) == before
    np.testing.assert_array_equal(used.predict(x), prediction)


def test_other_mistakes_are_one_clear_error(rng: np.random.Generator) -> None:
    x = rng.random((20, 3))
    ours = LazyGPRegressor().fit(x, wave(x))
    before = state(ours)
    with pytest.raises(ValueError, match=r"as many columns as before, but has \(20, 2\) after \(20,\)"):
        ours.partial_fit(x, wave(x, 2))
    with pytest.raises(ValueError, match="2 features, but LazyGPRegressor is expecting 3"):
        ours.partial_fit(x[:, :2], wave(x))
    with pytest.raises(ValueError, match="one for each of the 20 rows, not 7"):
        ours.set_params(alpha=np.ones(7)).partial_fit(x, wave(x))
    with pytest.raises(RuntimeError, match="return_std and return_cov exclude each other"):
        ours.predict(x, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="the gradient needs theta"):
        ours.log_marginal_likelihood(eval_gradient=True)
    with pytest.raises(ValueError, match="theta"):
        ours.log_marginal_likelihood([0.0])
    with pytest.raises(ValueError, match="n_samples must be a whole number"):
        ours.sample_y(x, 0)
    with pytest.raises(ValueError, match="a callable optimizer needs a scikit-learn kernel"):
        LazyGPRegressor(optimizer=min).fit(x, wave(x))
    with pytest.raises(ValueError, match="bounds are finite"):
        LazyGPRegressor(Matern(1.0, (0.1, np.inf), nu=2.5), n_restarts_optimizer=1).fit(x, wave(x))
    assert {**state(ours), "alpha": before["alpha"]} == before


# ------------------------------------------------------------------ extremes


@pytest.mark.parametrize("factor", [1e-280, 1e-160, 1e160, 1.7e308])
def test_points_of_any_size_are_learned(rng: np.random.Generator, factor: float) -> None:
    x = rng.uniform(-1.0, 1.0, (40, 1))
    regressor = LazyGPRegressor().fit(factor * x, np.sin(3 * x[:, 0]))
    u = np.linspace(-0.8, 0.8, 9)[:, None]
    np.testing.assert_allclose(regressor.predict(factor * u), np.sin(3 * u[:, 0]), atol=0.05)


def test_a_kernel_that_cannot_hold_the_squares_of_y_says_what_to_do(rng: np.random.Generator) -> None:
    x = rng.random((5, 2))
    with pytest.raises(ValueError, match="set normalize_y=True, or leave the kernel out"):
        LazyGPRegressor(Matern(nu=2.5)).fit(x, 1e200 * x[:, 0])
    fixed = LazyGPRegressor(Matern(nu=2.5), optimizer=None).fit(x, 1e200 * x[:, 0])
    np.testing.assert_allclose(fixed.predict(x), 1e200 * x[:, 0], rtol=1e-3)
