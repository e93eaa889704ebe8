import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from lazybo.gp.fit import Learner
from lazybo.gp.kernels import Column, Matern52
from lazybo.gp.lazy_gp import LazyGP
from lazybo.gp.process import Process
from lazybo.gp.targets import Targets, Transform, identity, standardize

MIXED = (Column(), Column(conditional=True), Column(categories=3), Column())


def wave(x: np.ndarray) -> np.ndarray:
    return np.sin(5 * x[:, 0]) + x.sum(axis=1) ** 2


def filled(rng: np.random.Generator, n: int = 60, dim: int = 3, **options: object) -> LazyGP:
    x = rng.random((n, dim))
    gp = LazyGP(Matern52(np.linspace(0.3, 1.5, dim), 1.7), 1e-4, **options)  # type: ignore[arg-type]
    gp.append(x, wave(x))
    return gp


def mixed(rng: np.random.Generator, n: int = 40) -> tuple[LazyGP, np.ndarray]:
    def points(count: int) -> np.ndarray:
        x = rng.random((count, 4))
        x[:, 2] = rng.integers(0, 3, count)
        x[rng.random(count) < 0.4, 1] = np.nan
        return x

    gp = LazyGP(Matern52([0.4, 0.6, 1.0, 2.0], 1.3, MIXED), 1e-3, transform=standardize)
    x = points(n)
    gp.append(x, wave(np.nan_to_num(x)))
    return gp, points(7)


# --------------------------------------------------------------- twins


@pytest.mark.parametrize("normalize", [False, True])
def test_posterior_equals_scikit_learn(rng: np.random.Generator, normalize: bool) -> None:
    gp = filled(rng, 120, transform=standardize if normalize else identity)
    u = rng.random((50, 3))
    kernel = ConstantKernel(gp.kernel.output_scale) * Matern(gp.kernel.length_scales, nu=2.5)
    theirs = GaussianProcessRegressor(kernel, alpha=gp.noise, optimizer=None, normalize_y=normalize).fit(gp.X, gp.y)
    mean, covariance = theirs.predict(u, return_cov=True)
    np.testing.assert_allclose(gp.posterior(u).mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(gp.posterior(u).variance, np.diagonal(covariance), rtol=1e-8, atol=1e-8)
    joint_mean, joint = gp.posterior_covariance(u)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(joint, covariance, rtol=1e-8, atol=1e-8)
    assert gp.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-8)


@given(st.lists(st.integers(1, 15), min_size=1, max_size=12), st.integers(0, 1000))
def test_rows_appended_in_any_blocks_give_the_same_posterior(blocks: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, u = rng.random((sum(blocks), 3)), rng.random((5, 3))
    whole = LazyGP(Matern52(np.ones(3)), 1e-4, transform=standardize)
    whole.append(x, wave(x))
    pieces = LazyGP(Matern52(np.ones(3)), 1e-4, transform=standardize)
    for part in np.split(x, np.cumsum(blocks)[:-1]):
        pieces.append(part, wave(part))
        pieces.posterior(u)
    np.testing.assert_allclose(pieces.posterior(u), whole.posterior(u), atol=1e-8)


def test_known_variances_equal_scikit_learn(rng: np.random.Generator) -> None:
    x, u = rng.random((40, 3)), rng.random((9, 3))
    variance = rng.random(40)
    gp = LazyGP(Matern52(np.ones(3)), 1e-3)
    gp.append(x[:25], wave(x[:25]), variance=variance[:25])
    gp.append(x[25:], wave(x[25:]), variance=variance[25:])
    theirs = GaussianProcessRegressor(Matern(np.ones(3), nu=2.5), alpha=1e-3 + variance, optimizer=None).fit(x, wave(x))
    mean, std = theirs.predict(u, return_std=True)
    np.testing.assert_allclose(gp.posterior(u).mean, mean, atol=1e-8)
    np.testing.assert_allclose(gp.posterior(u).variance, std**2, atol=1e-8)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_known_variances_follow_the_scale_of_y(rng: np.random.Generator, factor: float) -> None:
    x, u = rng.random((30, 3)), rng.random((9, 3))
    variance = np.full(30, 0.01)
    plain, scaled = (LazyGP(Matern52(np.ones(3)), 1e-3, transform=standardize) for _ in range(2))
    plain.append(x, wave(x), variance=variance)
    scaled.append(x, factor * wave(x), variance=factor**2 * variance)
    np.testing.assert_allclose(scaled.posterior(u).mean, factor * plain.posterior(u).mean, rtol=1e-6)
    before = plain.posterior(u)
    plain.set_parameters(plain.kernel, plain.noise)
    np.testing.assert_allclose(plain.posterior(u), before, atol=1e-10)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.booleans()), min_size=1, max_size=25), st.integers(0, 99)
)
def test_any_history_of_equal_values_gives_the_posterior_of_a_new_process(history: list, seed: int) -> None:
    """Appends, truncations and pending rows, asked in between or not, with values so few that caches are tempted."""
    rng = np.random.default_rng(seed)
    gp, u = LazyGP(Matern52([0.3, 0.5]), 1e-4, transform=standardize), rng.random((4, 2))
    rows: list[tuple[np.ndarray, float]] = []
    for grow, count, look in history:
        if grow:
            x = rng.random((count, 2))
            y = rng.integers(0, 2, count).astype(float)
            if rng.random() < 0.3:
                y[:] = np.nan
                gp.append(x, np.full(len(x), np.nan))
            else:
                gp.append(x, y)
            rows += list(zip(x, y, strict=True))
        else:
            keep = max(0, len(rows) - count)
            gp.truncate(keep)
            del rows[keep:]
        if look:
            gp.posterior(u)
            gp.process.alpha  # noqa: B018 - fills a cache
    fresh = LazyGP(gp.kernel, gp.noise, transform=standardize)
    told = [(x, y) for x, y in rows if not np.isnan(y)]
    if told:
        fresh.append(np.array([x for x, _ in told]), np.array([y for _, y in told]))
    np.testing.assert_allclose(gp.posterior(u).mean, fresh.posterior(u).mean, atol=1e-6)
    if len(told) < len(rows):
        fresh.append(
            np.array([x for x, y in rows if np.isnan(y)]),
            np.full(len(np.array([x for x, y in rows if np.isnan(y)])), np.nan),
        )
    np.testing.assert_allclose(gp.posterior(u).variance, fresh.posterior(u).variance, atol=1e-6)


def test_pending_rows_lower_the_variance_and_leave_the_mean(rng: np.random.Generator) -> None:
    gp, u = filled(rng), rng.random((9, 3))
    before = gp.posterior(u)
    gp.append(u[:3], np.full(len(u[:3]), np.nan))
    after = gp.posterior(u)
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-8)
    assert (after.variance[:3] < 2e-4).all()
    assert not gp.process.alpha[-3:].any()
    gradient = gp.posterior_gradient(u)
    np.testing.assert_allclose(gradient.mean, before.mean, atol=1e-8)
    without = LazyGP(gp.kernel, gp.noise)
    without.append(gp.X[:60], gp.y[:60])
    assert gp.log_marginal_likelihood() == pytest.approx(without.log_marginal_likelihood(), abs=1e-6)
    told = np.concatenate((gp.y[:60], [1.0, 2.0, 3.0]))
    work = gp.process.factor.work
    gp.replace_y(told)
    assert gp.process.factor.work == work
    fresh = LazyGP(gp.kernel, gp.noise)
    fresh.append(gp.X, told)
    np.testing.assert_allclose(gp.posterior(u), fresh.posterior(u), atol=1e-8)


# ------------------------------------------------------ several outputs


def test_several_outputs_share_a_factor_and_each_is_as_alone(rng: np.random.Generator) -> None:
    x, u = rng.random((90, 3)), rng.random((9, 3))
    targets = rng.standard_normal((90, 2))
    targets[40:43] = np.nan
    process = Process(Matern52(np.ones(3)), 1e-3)
    for part in (slice(0, 50), slice(50, 90)):
        process.append(x[part], targets[part])
        process.posterior(u)
    for output in range(2):
        alone = Process(Matern52(np.ones(3)), 1e-3)
        alone.append(x, targets[:, output])
        np.testing.assert_allclose(process.posterior(u).mean[:, output], alone.posterior(u).mean, atol=1e-9)
        np.testing.assert_allclose(process.mean(u)[:, output], alone.mean(u), atol=1e-9)
        np.testing.assert_allclose(process.alpha[:, output], alone.alpha, atol=1e-7)
    np.testing.assert_allclose(process.posterior(u).variance, alone.posterior(u).variance, atol=1e-12)
    with pytest.raises(ValueError, match=r"targets must have shape \(1, 2\), but has shape \(1, 3\)"):
        process.append(u[:1], np.zeros((1, 3)))
    assert process.n == 90


# ----------------------------------------------------------- gradients


def test_posterior_gradient(rng: np.random.Generator) -> None:
    gp, u = mixed(rng)
    mean, variance, mean_gradient, variance_gradient = gp.posterior_gradient(u)
    np.testing.assert_allclose((mean, variance), gp.posterior(u), atol=1e-12)
    free = [0, 1, 3]
    for i, point in enumerate(u):
        active = [j for j in free if not np.isnan(point[j])]

        def posterior(values: np.ndarray, point: np.ndarray = point, active: list[int] = active) -> np.ndarray:
            moved = point.copy()
            moved[active] = values
            return np.ravel(gp.posterior(moved[None]))

        numeric = approx_fprime(point[active], posterior, 1e-7)
        np.testing.assert_allclose(mean_gradient[i, active], numeric[0], atol=1e-4)
        np.testing.assert_allclose(variance_gradient[i, active], numeric[1], atol=1e-4)
        rest = np.setdiff1d(np.arange(4), active)
        assert not mean_gradient[i, rest].any()
        assert not variance_gradient[i, rest].any()


def test_the_gradient_of_the_evidence(rng: np.random.Generator) -> None:
    gp, _ = mixed(rng)
    known = rng.random(gp.n)

    def value(phi: np.ndarray) -> float:
        other = Process(gp.kernel.with_theta(phi[:-1]), float(np.exp(phi[-1])))
        other.append(gp.X, gp.targets.values, variance=known)
        return other.log_marginal_likelihood()

    phi = np.append(gp.kernel.theta, np.log(gp.noise))
    likelihood, gradient = Learner.evidence(gp.kernel, gp.noise, gp.X, gp.targets.values, known)
    assert likelihood == pytest.approx(value(phi), rel=1e-10)
    np.testing.assert_allclose(gradient, approx_fprime(phi, value, 1e-6), rtol=1e-3, atol=1e-3)


# ----------------------------------------------------- counted work, draws


@pytest.mark.parametrize("variance", [None, [0.5]])
def test_after_append_nothing_of_cubic_order_runs(rng: np.random.Generator, variance: list[float] | None) -> None:
    gp, u = filled(rng, 600, transform=standardize), rng.random((1, 3))
    gp.posterior_gradient(u)
    for _ in range(5):
        work, n = gp.process.factor.work, gp.n
        x = rng.random((1, 3))
        gp.append(x, 100 * wave(x), variance=variance)
        gp.posterior_gradient(u)
        # append, w, α, V and β: five passes over half of the n² entries.
        assert gp.process.factor.work - work <= 2.5 * (n + 2) ** 2
    assert gp.process.rebuilds == 0
    assert gp.process.factor.refactorisations == 0
    gp.set_parameters(gp.kernel, gp.noise)
    assert gp.process.rebuilds == 1


def test_samples_have_the_posterior_moments(rng: np.random.Generator) -> None:
    gp = filled(rng, 12)
    u = np.vstack((rng.random((5, 3)), gp.X[:2], gp.X[:1]))
    mean, covariance = gp.posterior_covariance(u)
    draws = gp.sample(u, 20_000, rng)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05)
    np.testing.assert_allclose(draws[:, 5], draws[:, 7], atol=1e-6)


def test_without_data_the_posterior_is_the_prior() -> None:
    gp = LazyGP(Matern52([1.0, 1.0], 2.0))
    np.testing.assert_array_equal(gp.posterior([[0.5, 0.5]]), [[0.0], [2.0]])
    assert gp.posterior_gradient([[0.5, 0.5]]).mean_gradient.shape == (1, 2)
    assert gp.log_marginal_likelihood() == 0.0


# ------------------------------------------------------- hard, and bad, input


@pytest.mark.parametrize("dim", [1, 2, 10, 50])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_dimensions_and_scales(rng: np.random.Generator, dim: int, scale: float) -> None:
    x, u = rng.random((80, dim)), rng.random((10, dim))
    plain, scaled = (LazyGP(Matern52(np.full(dim, np.sqrt(dim))), 1e-6, transform=standardize) for _ in range(2))
    plain.append(x, wave(x))
    scaled.append(x, scale * wave(x))
    np.testing.assert_allclose(scaled.posterior(u).mean, scale * plain.posterior(u).mean, rtol=1e-6)
    np.testing.assert_allclose(scaled.posterior(u).variance, scale**2 * plain.posterior(u).variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "variance", "message"),
    [
        (np.zeros((2, 2)), np.zeros(2), None, "must have 3 columns"),
        (np.zeros(3), np.zeros(1), None, "must have 2 dimension"),
        (np.zeros((2, 3)), np.zeros(3), None, r"y must have shape \(2,\)"),
        (np.zeros((2, 3)), np.zeros((2, 1)), None, "y must have 1 dimension"),
        (np.full((1, 3), np.nan), np.zeros(1), None, "column 0 is nan"),
        (np.full((1, 3), np.inf), np.zeros(1), None, "column 0 is inf"),
        (np.zeros((1, 3)), [-np.inf], None, "y must be finite"),
        (np.zeros((1, 3)), [0.0], [-1.0], "must not be negative"),
        (np.zeros((1, 3)), [0.0], [np.nan], "variance must be finite"),
        (np.zeros((1, 3)), [0.0], [0.0, 0.0], r"variance must have shape \(1,\)"),
    ],
)
def test_garbage_is_refused_and_changes_nothing(
    rng: np.random.Generator, x: object, y: object, variance: object, message: str
) -> None:
    gp, u = filled(rng), rng.random((5, 3))
    factor, posterior = gp.process.factor.factor, gp.posterior(u)
    with pytest.raises(ValueError, match=message):
        gp.append(x, y, variance=variance)  # type: ignore[arg-type]
    assert gp.n == 60
    np.testing.assert_array_equal(gp.process.factor.factor, factor)
    np.testing.assert_array_equal(gp.posterior(u), posterior)


class Impossible(Matern52):
    """A kernel whose covariances are larger than its variances."""

    def between(self, z: np.ndarray, other: np.ndarray) -> np.ndarray:
        return super().between(z, other) + 5.0 * (1.0 - np.eye(len(z), len(other)))


def test_a_failure_in_the_middle_changes_nothing(rng: np.random.Generator) -> None:
    def picky(y: np.ndarray) -> Targets:
        if len(y) > 60:
            raise RuntimeError("no more")
        return standardize(y)

    gp, u = filled(rng, transform=picky), rng.random((5, 3))
    before = gp.posterior(u)
    with pytest.raises(RuntimeError, match="no more"):
        gp.append(u, np.ones(5))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        gp.set_parameters(Impossible([1.0, 1.0, 1.0]), 1e-3)
    assert gp.n == gp.process.factor.n == 60
    np.testing.assert_array_equal(gp.posterior(u), before)


def test_points_far_away_see_the_prior(rng: np.random.Generator) -> None:
    gp = filled(rng)
    np.testing.assert_allclose(gp.posterior([[1e160, 0.0, 0.0]]), [[0.0], [1.7]])


@pytest.mark.parametrize("transform", [identity, standardize])
@pytest.mark.parametrize("exponent", [-1060, -1000, -500, 500, 1000, 1020])
def test_values_of_any_size_give_the_same_process_in_other_units(
    rng: np.random.Generator, exponent: int, transform: Transform
) -> None:
    x, y, u = rng.random((12, 3)), rng.standard_normal(12), rng.random((5, 3))
    one, other = (LazyGP(Matern52(np.ones(3)), 1e-4, transform=transform) for _ in range(2))
    one.append(x, y)
    other.append(x, np.ldexp(y, exponent))
    other.append(u[:1], np.full(len(u[:1]), np.nan))
    one.append(u[:1], np.full(len(u[:1]), np.nan))
    atol = 1e-9 if exponent > -1020 else 1e-3  # there are few digits left
    np.testing.assert_allclose(np.ldexp(other.posterior(u).mean, -exponent), one.posterior(u).mean, atol=atol)
    gradient = np.ldexp(other.posterior_gradient(u).mean_gradient, -exponent)
    np.testing.assert_allclose(gradient, one.posterior_gradient(u).mean_gradient, atol=100 * atol)
    assert np.isfinite(other.sample(u, 2, rng)).all()
    assert not np.isnan(other.posterior(u).variance).any()
    assert not np.isnan(other.posterior_covariance(u)[1]).any()


def test_learning_from_values_whose_squares_overflow_says_what_to_do(rng: np.random.Generator) -> None:
    gp = LazyGP(Matern52(np.ones(3)))
    gp.append(rng.random((4, 3)), [1.0, 2.0, 3.0, -1e300])
    with pytest.raises(ValueError, match="standardise the values"):
        gp.learn()
    assert gp.n == 4


def test_data_given_is_copied_and_data_shown_is_read_only(rng: np.random.Generator) -> None:
    x, y, u = rng.random((10, 3)), rng.random(10), rng.random((5, 3))
    gp = LazyGP(Matern52(np.ones(3)), 1e-3)
    gp.append(x, y)
    before = gp.posterior(u)
    x[:], y[:] = 0.0, 0.0
    gp.set_parameters(gp.kernel, gp.noise)
    np.testing.assert_array_equal(gp.posterior(u), before)
    other = rng.random(10)
    gp.replace_y(other)
    after = gp.posterior(u)
    other[:] = 0.0
    np.testing.assert_array_equal(gp.posterior(u), after)
    for shown in (gp.X, gp.y, gp.process.alpha, gp.process.whitened, gp.targets.values):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 1.0
