import copy
import pickle
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import TypeAlias, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from lazybo.gp.fit import Learner
from lazybo.gp.kernels import AdditiveMatern52, Column, Kernel, Matern52
from lazybo.gp.kernels.base import as_kernel, upper
from lazybo.gp.lazy_gp import LazyGP
from lazybo.gp.priors import Priors
from lazybo.gp.targets import standardize

NUMERIC, CHOICE = Column(), Column(categories=3)
MIXED = (NUMERIC, Column(conditional=True), CHOICE, Column(categories=5, conditional=True))
# The same with so many choices that these are labels.
LABELLED = (NUMERIC, Column(conditional=True), Column(categories=100), Column(categories=1000, conditional=True))
# The same with blocks of numbers that share a length scale.
BLOCKS = (NUMERIC, Column(conditional=True), Column(size=3), CHOICE, Column(size=2, conditional=True))

# One column of each kind: numbers, choices as corners and as labels, blocks with and without a unit, conditional ones.
KINDS = (
    NUMERIC,
    Column(conditional=True),
    CHOICE,
    Column(categories=90),
    Column(categories=90, conditional=True),
    Column(size=3),
    Column(size=3, unit=0.25),
)


def mixed_points(rng: np.random.Generator, n: int, columns: tuple[Column, ...] = MIXED) -> np.ndarray:
    # Of many choices only a few, so that some points have the same.
    parts = [
        rng.integers(0, min(c.categories, 7), n)
        if c.categories
        else rng.integers(0, 5, (n, c.size)) * c.unit
        if c.unit
        else rng.random((n, c.size))
        for c in columns
    ]
    x = np.column_stack(parts).astype(float)
    for j, column in zip(starts(columns), columns, strict=True):
        if column.conditional:
            x[rng.random(n) < 0.4, j : j + column.size] = np.nan
    return x


def starts(columns: tuple[Column, ...]) -> list[int]:
    """Where each column begins in a point."""
    return np.cumsum([0, *(column.size for column in columns)])[:-1].tolist()


def weighted_sum(kernel: Kernel, x: np.ndarray, weights: np.ndarray, theta: np.ndarray) -> float:
    return float(np.vdot(weights, kernel.with_theta(theta)(x)))


def mixed_kernel(rng: np.random.Generator, columns: tuple[Column, ...] = MIXED) -> Matern52:
    return Matern52(np.exp(rng.normal(0, 1, len(columns))), float(np.exp(rng.normal())), columns)


def additive_kernel(rng: np.random.Generator, columns: tuple[Column, ...] = MIXED) -> AdditiveMatern52:
    plain = mixed_kernel(rng, columns)
    return AdditiveMatern52(plain.length_scales, plain.output_scale, float(rng.uniform(0.05, 0.95)), columns)


Make: TypeAlias = Callable[[np.random.Generator, tuple[Column, ...]], Kernel]


@pytest.fixture(params=[mixed_kernel, additive_kernel], ids=["matern52", "additive"], scope="module")
def make(request: pytest.FixtureRequest) -> Make:
    return cast(Make, request.param)


@pytest.fixture(params=[MIXED, LABELLED, BLOCKS], ids=["mixed", "labelled", "blocks"], scope="module")
def columns(request: pytest.FixtureRequest) -> tuple[Column, ...]:
    return cast(tuple[Column, ...], request.param)


def test_numeric_columns_equal_scikit_learn(rng: np.random.Generator) -> None:
    scales = np.array([0.3, 1.0, 4.0])
    x, u = rng.random((30, 3)), rng.random((20, 3))
    theirs = ConstantKernel(2.5) * Matern(scales, nu=2.5)
    np.testing.assert_allclose(Matern52(scales, 2.5)(x, u), theirs(x, u), atol=1e-13)
    np.testing.assert_allclose(Matern52(scales, 2.5)(x), theirs(x), atol=1e-13)


def test_mixed_distance_follows_its_definition(rng: np.random.Generator, columns: tuple[Column, ...]) -> None:
    """The textbook double loop: differences, equal or not, inactive or not."""
    x = mixed_points(rng, 40, columns)
    kernel = mixed_kernel(rng, columns)
    for a in range(0, 40, 3):
        for b in range(40):
            squares = 0.0
            for j, start, column in zip(range(len(columns)), starts(columns), columns, strict=True):
                va, vb = (x[row, start : start + column.size] for row in (a, b))
                if np.isnan(va[0]) or np.isnan(vb[0]):
                    if np.isnan(va[0]) and np.isnan(vb[0]):
                        continue
                    active = vb if np.isnan(va[0]) else va
                    inside = 0.5 * (1 - 1 / column.categories) if column.categories else ((active - 0.5) ** 2).sum()
                    square = 1.0 + inside
                else:
                    square = float(va[0] != vb[0]) if column.categories else ((va - vb) ** 2).sum()
                squares += square / kernel.length_scales[j] ** 2
            s = np.sqrt(5 * squares)
            expected = kernel.output_scale * (1 + s + s**2 / 3) * np.exp(-s)
            assert kernel(x[[a]], x[[b]])[0, 0] == pytest.approx(expected, rel=1e-12)


def test_inactive_entries_are_equal_to_each_other_and_far_from_active_ones() -> None:
    for column in (Column(conditional=True), Column(categories=4, conditional=True), LABELLED[-1]):
        kernel = Matern52([0.7], 1.0, [column])
        inactive, active = np.array([[np.nan]]), np.array([[0.0], [1.0]])
        assert kernel(inactive, inactive)[0, 0] == 1.0
        assert kernel(inactive, active).max() <= kernel(active)[0, 1]


class TestEveryKernel:
    """The laws of `lazybo.gp.kernels.base.Kernel`, for each kernel there is."""

    def test_very_many_choices_need_few_numbers(self, make: Make, rng: np.random.Generator) -> None:
        points = mixed_points(rng, 9, LABELLED)
        assert make(rng, LABELLED).features(points).shape == (9, 5)

    def test_it_is_a_kernel_with_a_name(self, make: Make, rng: np.random.Generator) -> None:
        kernel = make(rng, MIXED)
        assert as_kernel(kernel) is kernel
        assert type(Kernel.chosen(kernel.name, MIXED)) is type(kernel)
        assert len(kernel.layout) == len(kernel.theta)
        assert kernel.ranges.shape == (kernel.dim,) == (len(kernel.columns),)
        with pytest.raises(ValueError, match="U must have"):
            kernel.check(np.zeros((1, 99)), "U")

    @given(seed=st.integers(0, 10_000))
    def test_positive_semidefinite_on_random_mixed_data(self, make: Make, seed: int) -> None:
        rng = np.random.default_rng(seed)
        width = rng.integers(1, 7)
        columns = tuple(Column(int(rng.choice([0, 0, 2, 7, 90])), bool(rng.random() < 0.5)) for _ in range(width))
        kernel = make(rng, columns)
        x = mixed_points(rng, 60, columns)
        x = np.vstack((x, x[:10]))
        k = kernel(x)
        diagonal = kernel.diagonal(kernel.features(x))
        np.testing.assert_array_equal(k, k.T)
        assert np.linalg.eigvalsh(k).min() >= -1e-12 * diagonal.max() * len(k)
        np.testing.assert_allclose(np.diagonal(k), diagonal)

    def test_k_is_the_same_with_and_without_its_slope(
        self, make: Make, columns: tuple[Column, ...], rng: np.random.Generator
    ) -> None:
        kernel = make(rng, columns)
        z, u = kernel.features(mixed_points(rng, 25, columns)), kernel.features(mixed_points(rng, 8, columns))
        np.testing.assert_array_equal(kernel.with_slope(u, z)[0], kernel.between(u, z))
        np.testing.assert_allclose(kernel.between(z, u), kernel.between(u, z).T, rtol=1e-14)
        assert kernel.between(z[:0], u).shape == (0, 8)

    def test_an_entry_does_not_depend_on_the_others(self, make: Make, rng: np.random.Generator) -> None:
        """To the last bit: a process that is built again must be the same, whatever its rows came with."""
        for columns in (MIXED, LABELLED, (NUMERIC,) * 9):
            kernel = make(rng, columns)
            z, u = (kernel.features(mixed_points(rng, n, columns)) for n in (12, 5))
            k = kernel.between(z, u)
            for i in range(12):
                np.testing.assert_array_equal(kernel.between(z[[i]], u), k[[i]])
                for j in range(5):
                    assert kernel.between(z[[i]], u[[j]]) == k[i, j]

    def test_gradient_by_the_points(self, make: Make, columns: tuple[Column, ...], rng: np.random.Generator) -> None:
        kernel, x, u = make(rng, columns), mixed_points(rng, 25, columns), mixed_points(rng, 8, columns)
        weights = rng.standard_normal((8, 25))
        _, slope = kernel.with_slope(kernel.features(u), kernel.features(x))
        gradient = slope.by_points(weights)
        every = [column for column in columns for _ in range(column.size)]
        assert gradient.shape == u.shape == (8, len(kernel.ranges))
        for i in range(len(u)):
            for j, column in enumerate(every):
                if column.categories or column.size > 1 or np.isnan(u[i, j]):
                    assert gradient[i, j] == 0.0
                    continue

                def along(value: np.ndarray, i: int = i, j: int = j) -> float:
                    point = u[[i]].copy()
                    point[0, j] = value[0]
                    return float(weights[i] @ kernel(point, x)[0])

                assert gradient[i, j] == pytest.approx(approx_fprime(u[i, [j]], along, 1e-7)[0], abs=1e-5)
        alike = rng.standard_normal(25)
        np.testing.assert_allclose(
            slope.by_points(alike), slope.by_points(np.tile(alike, (8, 1))), rtol=1e-9, atol=1e-15
        )

    def test_gradient_by_theta(self, make: Make, columns: tuple[Column, ...], rng: np.random.Generator) -> None:
        kernel, x = make(rng, columns), mixed_points(rng, 25, columns)
        weights = rng.standard_normal((25, 25))
        weights += weights.T
        pairs = make(rng, columns).pairs(x)
        pairs.covariance(make(rng, columns).values[None])  # what was computed for another kernel is not used again
        (k,) = pairs.covariance(kernel.values[None])
        np.testing.assert_allclose(k, kernel(x)[upper(25)], rtol=1e-12, atol=1e-14)
        (gradient,) = pairs.by_theta(weights[None, upper(25)], np.diagonal(weights)[None])
        numeric = approx_fprime(kernel.theta, lambda theta: np.vdot(weights, kernel.with_theta(theta)(x)), 1e-7)
        np.testing.assert_allclose(gradient, numeric, atol=1e-4)

    def test_gradient_by_theta_of_every_mix_of_columns(self, make: Make, rng: np.random.Generator) -> None:
        """Also without any numeric column: then all distances are those of labels or blocks."""
        for count in range(1, len(KINDS) + 1):
            for columns in combinations(KINDS, count):
                kernel, x = make(rng, columns), mixed_points(rng, 12, columns)
                weights = rng.standard_normal((12, 12))
                weights += weights.T
                pairs = kernel.pairs(x)
                pairs.covariance(kernel.values[None])
                (gradient,) = pairs.by_theta(weights[None, upper(12)], np.diagonal(weights)[None])
                value = partial(weighted_sum, kernel, x, weights)
                numeric = approx_fprime(kernel.theta, value, 1e-7)
                np.testing.assert_allclose(gradient, numeric, atol=1e-4, err_msg=str(columns))

    def test_gradients_of_a_process_with_it(
        self, make: Make, columns: tuple[Column, ...], rng: np.random.Generator
    ) -> None:
        """Those of the posterior by the point, and of the likelihood by θ and the noise."""
        gp, u = LazyGP(make(rng, columns), 1e-2), mixed_points(rng, 4, columns)
        x = mixed_points(rng, 30, columns)
        gp.append(x, np.sin(np.nan_to_num(x).sum(axis=1)))
        slopes = gp.posterior_gradient(u)
        for j in np.flatnonzero(~np.isnan(u[:, 1])):

            def along(value: np.ndarray, j: int = j) -> tuple[float, float]:
                mean, variance = gp.posterior([[u[j, 0], value[0], *u[j, 2:]]])
                return mean[0], variance[0]

            mean, variance = approx_fprime(u[j, [1]], along, 1e-6)[:, 0]
            assert slopes.mean_gradient[j, 1] == pytest.approx(mean, rel=1e-3, abs=1e-4)
            assert slopes.variance_gradient[j, 1] == pytest.approx(variance, rel=1e-3, abs=1e-4)

        def likelihood(phi: np.ndarray) -> float:
            return Learner.evidence(gp.kernel.with_theta(phi[:-1]), float(np.exp(phi[-1])), x, gp.y, np.zeros(30))[0]

        _, gradient = Learner.evidence(gp.kernel, gp.noise, x, gp.y, np.zeros(30))
        phi = np.append(gp.kernel.theta, np.log(gp.noise))
        np.testing.assert_allclose(gradient, approx_fprime(phi, likelihood, 1e-6), rtol=1e-3, atol=1e-3)

    def test_several_at_once_are_those_one_by_one(
        self, make: Make, columns: tuple[Column, ...], rng: np.random.Generator
    ) -> None:
        """Between points, between pairs with their gradients; and an entry does not depend on the other points."""
        kernels = [make(rng, columns).with_theta(rng.normal(size=len(make(rng, columns).theta))) for _ in range(3)]
        x, u = mixed_points(rng, 40, columns), mixed_points(rng, 30, columns)
        coordinates = kernels[0].coordinates
        several, c, o = kernels[0].several, coordinates.of(x), coordinates.of(u)
        found = several(kernels, c, o)
        np.testing.assert_allclose(found, [each.between(c, o) for each in kernels], rtol=1e-10, atol=1e-14)
        np.testing.assert_array_equal(several(kernels, c[7:8], o[3:9]), found[:, 7:8, 3:9])
        pairs, values = kernels[0].pairs(x), np.array([each.values for each in kernels])
        weights, diagonal = rng.normal(size=(3, 780)), rng.normal(size=(3, 40))
        together = pairs.covariance(values), pairs.by_theta(weights, diagonal)
        for i in range(3):
            one = slice(i, i + 1)
            np.testing.assert_allclose(together[0][one], pairs.covariance(values[one]), rtol=1e-10)
            np.testing.assert_allclose(together[1][one], pairs.by_theta(weights[one], diagonal[one]), rtol=1e-8)

    @pytest.mark.parametrize("scale", [1e-90, 1e-3, 1e3])
    def test_extreme_distances_give_numbers(
        self, make: Make, columns: tuple[Column, ...], scale: float, rng: np.random.Generator
    ) -> None:
        kernel = make(rng, columns)
        theta = kernel.theta
        theta[:4] = np.log(scale)
        x = mixed_points(rng, 12, columns)
        x[:, :2] *= 1e3
        kernel = kernel.with_theta(theta)
        z = kernel.features(x)
        k, slope = kernel.with_slope(z, z)
        pairs = kernel.pairs(x)
        np.testing.assert_allclose(pairs.covariance(kernel.values[None])[0], k[upper(12)], rtol=1e-12)
        for numbers in (k, slope.by_points(np.ones((12, 12))), pairs.by_theta(np.ones((1, 66)), np.ones((1, 12)))):
            assert np.isfinite(numbers).all()
        np.testing.assert_allclose(np.diagonal(k), kernel.diagonal(z))

    def test_theta_round_trip(self, make: Make, columns: tuple[Column, ...], rng: np.random.Generator) -> None:
        kernel, x = make(rng, columns), mixed_points(rng, 10, columns)
        again = kernel.with_theta(kernel.theta)
        np.testing.assert_allclose(again(x), kernel(x), rtol=1e-12)
        assert again.columns == kernel.columns
        with pytest.raises(ValueError, match="theta must have shape"):
            kernel.with_theta(kernel.theta[:-1])

    def test_the_priors_know_its_parameters(self, make: Make, rng: np.random.Generator) -> None:
        kernel, priors = make(rng, MIXED), Priors()
        lower, upper = priors.bounds(kernel)
        center = priors.center(kernel)
        assert (lower < center).all()
        assert (center < upper).all()
        assert priors.deviations(kernel).shape == center.shape == (len(kernel.theta) + 1,)
        np.testing.assert_allclose(priors.start(kernel)[0].theta, center[:-1], rtol=1e-12)

    def test_a_copy_is_as_immutable_as_its_original(self, make: Make, rng: np.random.Generator) -> None:
        kernel = make(rng, MIXED)
        x = mixed_points(rng, 5)
        for same in (kernel, copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
            np.testing.assert_array_equal(same(x), kernel(x))
            with pytest.raises(ValueError, match="read-only"):
                same.ranges[0] = 3.0

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (np.zeros(3), "must have 2 dimension"),
            (np.zeros((2, 3)), "must have 4 columns"),
            ([[np.nan, 0.5, 0, 0]], "row 0, column 0 is nan .*not conditional"),
            ([[0.1, np.inf, 0, 0]], "row 0, column 1 is inf"),
            ([[0.1, 0.5, np.nan, 0]], "column 2 is nan"),
            ([[0.1, 0.5, 3, 0]], "column 2 must have choices from 0 to 2, not 3"),
            ([[0.1, 0.5, 0.5, 0]], "column 2 must have choices"),
            ([[0.1, 0.5, -1, 0]], "column 2 must have choices"),
            ([["a", 0, 0, 0]], "array of numbers"),
        ],
    )
    def test_points_that_do_not_fit_are_refused(self, make: Make, x: object, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make(np.random.default_rng(0), MIXED)(x)  # type: ignore[arg-type]


@pytest.mark.parametrize("far", [1.0, 1e4])
def test_additive_kernel_follows_its_definition(
    columns: tuple[Column, ...], rng: np.random.Generator, far: float
) -> None:
    """A Matérn kernel of all columns and one of each column alone, added up; also where exponentials overflow."""
    x, u, d = mixed_points(rng, 30, columns), mixed_points(rng, 20, columns), len(columns)
    x[0, 0] = u[0, 0] = far
    kernel = additive_kernel(rng, columns)
    joint = Matern52(kernel.length_scales, 1.0, columns)(x, u)
    alone = [
        Matern52(kernel.length_scales[[j]] / np.sqrt(d), 1.0, [column])(
            x[:, start : start + column.size], u[:, start : start + column.size]
        )
        for j, start, column in zip(range(d), starts(columns), columns, strict=True)
    ]
    expected = kernel.output_scale * ((1 - kernel.share) * joint + kernel.share / d * sum(alone))
    np.testing.assert_allclose(kernel(x, u), expected, rtol=1e-12)


def test_the_share_of_a_sum_is_learned_and_a_sum_is_predicted_from_few_points(rng: np.random.Generator) -> None:
    """40 points of a sum over 6 columns: the additive kernel predicts it better than Matérn 5/2."""
    x, u = rng.random((40, 6)), rng.random((100, 6))

    def f(points: np.ndarray) -> np.ndarray:
        return np.sin(7 * points).sum(axis=1)

    errors = {}
    for name in ("matern52", "additive"):
        gp = LazyGP(*Priors().start(Kernel.chosen(name, (NUMERIC,) * 6)), transform=standardize)
        gp.append(x, f(x))
        gp.learn()
        errors[name] = np.abs(gp.posterior(u).mean - f(u)).mean()
    assert isinstance(gp.kernel, AdditiveMatern52)
    assert gp.kernel.share > 0.8
    assert errors["additive"] < 0.5 * errors["matern52"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "length_scales"),
        (([1.0, 0.0],), "length_scales"),
        (([1.0, np.nan],), "length_scales"),
        (([1.0], -1.0), "output_scale"),
        (([1.0], "big"), "output_scale"),
        (([1.0], 1.0, [Column(), Column()]), "1 length scales but 2 columns"),
        (([1.0], 1.0, [3]), "must be Column objects"),
    ],
)
def test_parameters_that_make_no_kernel_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Matern52(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, np.nan, "half"])
def test_a_share_lies_between_0_and_1(share: object) -> None:
    with pytest.raises(ValueError, match="share must"):
        AdditiveMatern52([1.0], share=share)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", ["rbf", 3, Matern, Column()])
def test_what_is_no_kernel_is_refused(kernel: object) -> None:
    with pytest.raises(ValueError, match="kernel"):
        Kernel.check_choice(kernel)


def test_a_kernel_of_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="columns of the space"):
        Kernel.chosen(Matern52([1.0]), (CHOICE,))


def test_a_column_needs_a_number_of_choices() -> None:
    with pytest.raises(ValueError, match="number of choices"):
        Column(categories=-2)


def test_distances_of_whole_numbers_are_those_of_differences_and_exact_for_equal_rows() -> None:
    """Blocks of whole numbers are compared by matrix products; the same columns without a unit by differences."""
    rng, unit = np.random.default_rng(0), 0.37
    counted = (Column(3), Column(size=40, unit=unit), Column(), Column(size=9, unit=unit))
    plain = (Column(3), Column(size=40), Column(), Column(size=9))
    counts = rng.integers(0, 5, (30, 51)) * unit
    counts[:, 0], counts[:, 41] = rng.integers(0, 3, 30), rng.random(30)
    counts[7] = counts[3]
    scales = np.array([0.7, 3.0, 1.3, 0.01])
    for make in (Matern52, AdditiveMatern52):
        one, other = make(scales, columns=counted), make(scales, columns=plain)
        assert np.allclose(one(counts), other(counts), rtol=1e-12, atol=1e-15)
        z = one.features(counts)
        assert one.coordinates.distances(z, z, scales)[3, 7] == 0.0
        assert np.array_equal(one.between(z[4:5], z[:11])[0], one(counts)[4, :11])
        x, pairs = one.check(counts), one.pairs(counts)
        assert np.allclose(pairs.covariance(one.values[None])[0], one(x)[pairs.upper], rtol=1e-12)


def test_numbers_before_a_column_are_not_seen() -> None:
    rng = np.random.default_rng(1)
    x = rng.random((12, 5))
    hiding = (Column(before=2), Column(before=1))
    unseen = x.copy()
    unseen[:, [0, 1, 3]] = rng.random((12, 3))
    unseen[0, 3] = np.nan
    for make in (Matern52, AdditiveMatern52):
        kernel, twin = make([0.5, 0.8], columns=hiding), make([0.5, 0.8])
        assert kernel.width == 5
        assert np.allclose(kernel(x), twin(x[:, [2, 4]]), rtol=1e-13)
        assert np.array_equal(kernel(x), kernel(unseen))
        weights = rng.random(12)
        slope, expected = (
            each.with_slope(each.features(points[:3]), each.features(points))[1].by_points(weights)
            for each, points in ((kernel, x), (twin, x[:, [2, 4]]))
        )
        assert np.allclose(slope[:, [2, 4]], expected, rtol=1e-12)
        assert not slope[:, [0, 1, 3]].any()
    x[0, 2] = np.nan
    with pytest.raises(ValueError, match="row 0, column 2 is nan"):
        kernel(x)
