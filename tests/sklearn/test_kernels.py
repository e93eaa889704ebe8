import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Kernel,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from lazybo import Matern52
from lazybo.sklearn.kernels import composed, parse, validate

DIM = 3


class Louder(Matern):
    """A subclass that computes something else."""

    def __call__(self, *arguments: object, **options: object) -> object:
        return 2 * super().__call__(*arguments, **options)


@st.composite
def constants(draw: st.DrawFn) -> Kernel:
    """A constant, or a sum or product of two."""
    leaf = st.builds(ConstantKernel, st.floats(0.1, 10), st.sampled_from(["fixed", (1e-5, 1e5)]))
    return draw(leaf | st.builds(lambda a, b: a + b, leaf, leaf) | st.builds(lambda a, b: a * b, leaf, leaf))


@st.composite
def expressions(draw: st.DrawFn) -> Kernel:
    """Some way to write a constant times a Matern plus white noise."""
    scales = draw(st.floats(0.1, 10) | st.lists(st.floats(0.1, 10), min_size=DIM, max_size=DIM))
    kernel = Matern(scales, draw(st.sampled_from(["fixed", (1e-5, 1e5)])), nu=2.5)
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            other = draw(constants())
            kernel = kernel * other if draw(st.booleans()) else other * kernel
        else:
            other = WhiteKernel(draw(st.floats(1e-3, 1)), draw(st.sampled_from(["fixed", (1e-5, 1e5)])))
            other = draw(st.just(other) | constants().map(lambda constant, white=other: constant * white))
            kernel = kernel + other if draw(st.booleans()) else other + kernel
    return kernel


def phi(kernel: Kernel) -> np.ndarray:
    parsed = parse(kernel, DIM)
    return np.append(parsed.kernel.theta, np.log(max(parsed.noise, 1e-300)))


@settings(max_examples=50)
@given(expressions())
def test_the_jacobian_is_that_of_scikit_learns_theta(kernel: Kernel) -> None:
    own = validate(kernel)
    jacobian, theta = parse(own, DIM).jacobian, own.theta
    assert jacobian.shape == (DIM + 2, len(theta))
    for j in range(len(theta)):
        step = 1e-5 * np.eye(len(theta))[j]
        difference = (phi(own.clone_with_theta(theta + step)) - phi(own.clone_with_theta(theta - step))) / 2e-5
        np.testing.assert_allclose(jacobian[:, j], difference, atol=1e-6)


def test_one_object_used_twice_is_two_parameters() -> None:
    constant = ConstantKernel(2.0)
    own = validate(constant * Matern(nu=2.5) + constant * WhiteKernel(0.5))
    parsed = parse(own, 1)
    assert (parsed.kernel.output_scale, parsed.noise) == (2.0, 1.0)
    np.testing.assert_array_equal(parsed.jacobian, [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]])


@pytest.mark.parametrize("dim", [1, 3])
def test_composed_is_parsed_back(dim: int) -> None:
    kernel = Matern52(np.linspace(0.5, 2, dim), 1.7)
    parsed = parse(composed(kernel, 0.25), dim)
    np.testing.assert_array_equal(parsed.kernel.length_scales, kernel.length_scales)
    assert (parsed.kernel.output_scale, parsed.noise) == (1.7, 0.25)


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(),
        Matern(nu=1.5),
        ConstantKernel() * RBF() + WhiteKernel(),
        Matern(nu=2.5) + Matern(nu=2.5),
        Matern(nu=2.5) * Matern(nu=2.5),
        Matern(nu=2.5) * WhiteKernel(),
        Matern(nu=2.5) + ConstantKernel(),
        Matern(nu=2.5) * DotProduct(),
        Exponentiation(Matern(nu=2.5), 2),
        RationalQuadratic(),
        ConstantKernel(),
        WhiteKernel(),
        Louder(nu=2.5),
        Matern,
        "matern",
        1.0,
    ],
    ids=str,
)
def test_other_kernels_are_refused_with_what_is_supported(kernel: object) -> None:
    with pytest.raises(ValueError, match=r"must be ConstantKernel \* Matern\(nu=2\.5\) \+ WhiteKernel in any"):
        validate(kernel)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Matern([1.0, 2.0], nu=2.5), "the kernel has 2 length scales, but X has 3 columns"),
        (Matern52([1.0, 2.0]), "the kernel has 2 columns, but X has 3"),
        (Matern(-1.0, nu=2.5), "length_scales must be positive finite numbers"),
        (0.0 * Matern(nu=2.5), "output_scale must be a positive finite number"),
        (Matern(nu=2.5) + WhiteKernel(-1.0), "noise level of a WhiteKernel must not be negative"),
    ],
    ids=str,
)
def test_wrong_parameters_are_one_clear_error(kernel: Kernel | Matern52, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(validate(kernel), DIM)
