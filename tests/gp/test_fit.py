import numpy as np
import pytest

from lazybo import Space
from lazybo.gp.fit import MAX_POINTS, SECOND_START_EVERY
from lazybo.gp.kernels import Column, Kernel, Matern52
from lazybo.gp.lazy_gp import LazyGP
from lazybo.gp.priors import NOISY, Priors
from lazybo.gp.targets import standardize


def drawn(rng: np.random.Generator, n: int, kernel: Matern52, noise: float) -> LazyGP:
    """A process at the middle of the priors that has seen a function drawn from ``kernel``."""
    x = rng.random((n, kernel.dim))
    y = np.linalg.cholesky(kernel(x) + noise * np.eye(n)) @ rng.standard_normal(n)
    gp = LazyGP(*Priors().start(kernel), transform=standardize)
    gp.append(x, y)
    return gp


def test_learning_recovers_what_the_data_was_drawn_from(rng: np.random.Generator) -> None:
    gp = drawn(rng, 300, Matern52([0.15, 0.6, 5.0]), 1e-3)
    learned = gp.learn()
    np.testing.assert_allclose(np.log(learned.kernel.length_scales[:2]), np.log([0.15, 0.6]), atol=0.5)
    assert learned.kernel.length_scales[2] > 2
    assert np.log10(gp.noise) == pytest.approx(np.log10(1e-3 / gp.targets.scale**2), abs=0.5)
    assert gp.kernel is learned.kernel
    assert gp.process.rebuilds == 1


def test_the_result_is_a_maximum_of_the_posterior(rng: np.random.Generator) -> None:
    gp = drawn(rng, 60, Matern52([0.3, 0.8]), 1e-2)
    gp.learn()
    hypotheses = [each.priors for each in Priors().hypotheses()]
    priors = min(hypotheses, key=lambda each: abs(np.log(each.noise / gp.noise)))
    phi = np.append(gp.kernel.theta, np.log(gp.noise))

    def log_posterior(value: np.ndarray) -> float:
        twin = LazyGP(gp.kernel.with_theta(value[:-1]), float(np.exp(value[-1])), transform=standardize)
        twin.append(gp.X, gp.y)
        deviation = (value - priors.center(gp.kernel)) / priors.deviations(gp.kernel)
        return twin.log_marginal_likelihood() - 0.5 * float(deviation @ deviation)

    here = log_posterior(phi)
    for j in range(len(phi)):
        for step in (-0.1, 0.1):
            assert log_posterior(phi + step * np.eye(len(phi))[j]) < here + 1e-3


def test_priors_hold_while_data_is_scarce(rng: np.random.Generator) -> None:
    gp = LazyGP(*Priors().start(Matern52(np.ones(5))), transform=standardize)
    gp.append(rng.random((2, 5)), [0.0, 1.0])
    gp.learn()
    center = Priors().center(gp.kernel)
    np.testing.assert_allclose(np.append(gp.kernel.theta, np.log(gp.noise)), center, atol=1.0)


@pytest.mark.parametrize(("dim", "median"), [(1, 0.5), (4, 1.0), (9, 1.5), (16, 1.25), (25, 1.25), (100, 2.5)])
def test_length_scale_prior_grows_with_the_dimension(dim: int, median: float) -> None:
    kernel, _ = Priors().start(Matern52(np.ones(dim)))
    np.testing.assert_allclose(kernel.length_scales, median)


def test_choices_have_a_length_scale_prior_of_their_own() -> None:
    columns = (Column(), Column(categories=3))
    kernel, _ = Priors(length_scale=0.4, choice_length_scale=1.6).start(Matern52(np.ones(2), columns=columns))
    np.testing.assert_allclose(kernel.length_scales, np.sqrt(2) * np.array([0.4, 1.6]))


def test_scaling_y_does_not_change_what_is_learned(rng: np.random.Generator) -> None:
    gp = drawn(rng, 50, Matern52([0.3, 0.8]), 1e-2)
    other = LazyGP(*Priors().start(gp.kernel), transform=standardize)
    other.append(gp.X, 1e9 * gp.y - 3.0)
    np.testing.assert_allclose(other.learn().kernel.theta, gp.learn().kernel.theta, rtol=1e-4, atol=1e-4)


def test_many_observations_are_learned_from_a_part_that_repeats(rng: np.random.Generator) -> None:
    x = rng.random((MAX_POINTS + 300, 2))
    y = np.sin(6 * x[:, 0]) + 0.1 * rng.standard_normal(len(x))
    thetas = []
    for _ in range(2):
        gp = LazyGP(*Priors().start(Matern52(np.ones(2))), transform=standardize)
        gp.append(x, y)
        learned = gp.learn()
        assert learned.points == MAX_POINTS
        thetas.append(learned.kernel.theta)
    np.testing.assert_array_equal(*thetas)
    assert gp.kernel.length_scales[0] < gp.kernel.length_scales[1]


@pytest.mark.parametrize("case", ["duplicates", "constant", "huge", "outlier", "fifty dimensions", "mixed"])
def test_learning_survives_hard_data(rng: np.random.Generator, case: str) -> None:
    dim = 50 if case == "fifty dimensions" else 3
    columns = (Column(), Column(conditional=True), Column(categories=4)) if case == "mixed" else ()
    x = np.full((120, dim), 0.5) if case == "duplicates" else rng.random((120, dim))
    y = rng.standard_normal(120)
    if case == "constant":
        y[:] = 3.0
    if case == "huge":
        y *= 1e140
    if case == "outlier":
        y[7] = 1e30
    if case == "mixed":
        x[:, 2] = rng.integers(0, 4, 120)
        x[::2, 1] = np.nan
    gp = LazyGP(*Priors().start(Matern52(np.ones(dim), 1.0, columns)), transform=standardize)
    gp.append(x, y)
    gp.learn()
    assert np.isfinite(gp.kernel.theta).all()
    assert np.isfinite(gp.posterior(x[:10]).mean).all()


@pytest.mark.parametrize("seed", [1, 3])
def test_learning_leaves_the_noisy_mode_when_the_rugged_one_is_better(seed: int) -> None:
    """With these points an ascent from the noisy mode stays there; the number is one at which the other is tried."""
    x = np.random.default_rng(seed).random((24 * SECOND_START_EVERY, 2))
    r = 8 * (x - 0.4)
    gp = LazyGP(Matern52(np.ones(2)), 0.3, transform=standardize)
    gp.append(x, np.sum(r * r + 4 * (1 - np.cos(np.pi * r)), axis=1))
    assert gp.learn().noise < NOISY


def test_learning_leaves_the_rugged_mode_when_the_noisy_one_is_better(rng: np.random.Generator) -> None:
    n = 60 * SECOND_START_EVERY
    x = rng.random((n, 2))
    y = np.sum((x - 0.4) ** 2, axis=1) + 0.2 * rng.standard_normal(n)
    gp = LazyGP(*Priors().start(Matern52([0.05, 0.05])), transform=standardize)
    gp.append(x, y)
    assert gp.learn().noise > 0.1


def test_known_variances_are_not_learned_as_noise(rng: np.random.Generator) -> None:
    x = rng.random((150, 1))
    y = np.sin(4 * x[:, 0]) + 0.5 * rng.standard_normal(150)
    noises = []
    for variance in (None, np.full(150, 0.25)):
        gp = LazyGP(*Priors().start(Matern52([1.0])), transform=standardize)
        gp.append(x, y, variance=variance)
        noises.append(gp.learn().noise)
    assert noises[1] < 0.1 * noises[0]


def test_a_second_start_saves_a_bad_first_one(rng: np.random.Generator) -> None:
    gp = drawn(rng, 25, Matern52([0.3, 0.8]), 1e-2)
    good = gp.learn().log_posterior
    gp.set_parameters(Matern52([1e3, 1e3], 1e-2), 1.0)
    assert gp.learn().log_posterior == pytest.approx(good, abs=0.1)


def test_a_spread_of_0_holds_a_parameter(rng: np.random.Generator) -> None:
    x = rng.random((40, 2))
    gp = LazyGP(*Priors().start(Matern52(np.ones(2))))
    gp.append(x, 30 * np.sin(9 * x[:, 0]))
    learned = gp.learn(Priors(output_scale=2.0, output_scale_spread=0.0, noise=1e-6, noise_spread=0.0))
    assert learned.kernel.output_scale == pytest.approx(2.0)
    assert learned.noise == pytest.approx(1e-6)
    assert learned.kernel.length_scales[0] < learned.kernel.length_scales[1]


def test_pending_rows_are_not_learned_from(rng: np.random.Generator) -> None:
    x, variance = rng.random((60, 2)), rng.random(60)
    y = np.sin(6 * x[:, 0])
    alone, mixed = (LazyGP(*Priors().start(Matern52(np.ones(2)))) for _ in range(2))
    alone.append(x, y, variance=variance)
    mixed.append(x[:20], y[:20], variance=variance[:20])
    mixed.append(rng.random((10, 2)), np.full(10, np.nan))
    mixed.append(x[20:], y[20:], variance=variance[20:])
    np.testing.assert_allclose(mixed.learn().kernel.theta, alone.learn().kernel.theta, rtol=1e-8)


@pytest.mark.parametrize("wrong", [{"noise_spread": -1.0}, {"length_scale": -1.0}, {"noise": 1e-12}, {"noise": "low"}])
def test_priors_that_are_none_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="the prior's"):
        Priors(**wrong)


def test_some_kinds_of_numbers_have_shorter_length_scales_than_others_in_the_same_space() -> None:
    space = Space({"lr": (1e-4, 0.1, "log"), "dropout": (0.0, 1.0), "layers": (1, 5), "kind": ["a", "b"]})
    scales = dict(
        zip(
            space.distributions, Priors().start(Kernel.chosen(None, space.points.columns))[0].length_scales, strict=True
        )
    )
    assert scales["lr"] < scales["layers"] < scales["dropout"]
    numbers = np.log([scales[name] for name in ("lr", "dropout", "layers")])
    plain, _ = Priors().start(Kernel.chosen(None, [Column(), Column(), Column(), Column(2)]))
    assert numbers.mean() == pytest.approx(np.log(plain.length_scales[:3]).mean())
    assert scales["kind"] == plain.length_scales[3]


def test_numbers_of_one_kind_have_equal_length_scales() -> None:
    space = Space({f"x{j}": (1e-3, 1.0, "log") for j in range(4)})
    np.testing.assert_array_equal(
        Priors().start(Kernel.chosen(None, space.points.columns))[0].length_scales,
        Priors().start(Kernel.chosen(None, [Column()] * 4))[0].length_scales,
    )
