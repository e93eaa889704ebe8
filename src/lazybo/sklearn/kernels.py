"""Parse a scikit-learn kernel: a constant times Matérn 5/2, plus white noise.

======  =======================================================================  ========
symbol  meaning                                                                  shape
======  =======================================================================  ========
θ       scikit-learn's: logarithms of all parameters that are not "fixed"         (p,)
φ       (log ℓ₁, …, log ℓ_d, log σ², log σₙ²), as in `lazybo.fit`                (d + 2,)
J       ∂φ/∂θ                                                                    (d + 2, p)
c       product of the constants in a term                                       scalar
======  =======================================================================  ========

Sums and products are multiplied out, so ``2.0 * (WhiteKernel() + Matern(nu=2.5))`` is accepted too. Each term must then
be a product of constants and either a WhiteKernel or the Matern, of which there must be exactly one. Then σ² = Σ c over
the terms with the Matern, and σₙ² = Σ c · level over the others.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, Product, Sum, WhiteKernel

from lazybo.core.checks import Array
from lazybo.gp.kernels import Kernel as OwnKernel
from lazybo.gp.kernels import Matern52

SUPPORTED = (
    "ConstantKernel * Matern(nu=2.5) + WhiteKernel in any order, of which only the Matern is required; "
    "a kernel of lazybo.kernels; or None"
)


class Parsed(NamedTuple):
    """A parsed kernel expression: our kernel, the noise variance (0 if there is none), and J."""

    kernel: OwnKernel
    noise: float
    jacobian: Array


class _Term(NamedTuple):
    """A product of constants and at most one other kernel."""

    constants: tuple[ConstantKernel, ...]
    base: Any  # Matern, WhiteKernel or None

    @property
    def value(self) -> float:
        """c, or c · level for white noise."""
        level = self.base.noise_level if type(self.base) is WhiteKernel else 1.0
        return float(np.prod([constant.constant_value for constant in self.constants]) * level)


def validate(kernel: Any) -> Kernel | OwnKernel:
    """Raise a ValueError if the kernel is not supported. Returns a copy, or the kernel itself if it is immutable."""
    # scikit-learn's class first: the check of our protocol reads properties, and theirs may warn.
    if not isinstance(kernel, Kernel) and isinstance(kernel, OwnKernel):
        return kernel
    # An object that occurs twice has two entries in θ; cloning makes it two objects.
    own = clone(kernel) if isinstance(kernel, Kernel) else kernel
    terms = _terms(own)
    if terms is None or None in (term.base for term in terms) or len(_materns(terms)) != 1:
        raise ValueError(f"the kernel must be {SUPPORTED}; not {kernel!r}")
    return own


def parse(kernel: Kernel | OwnKernel, dim: int) -> Parsed:
    """Parse a kernel that `validate` returned, for points with ``dim`` columns."""
    if not isinstance(kernel, Kernel):
        if kernel.dim != dim:
            raise ValueError(f"the kernel has {kernel.dim} columns, but X has {dim}")
        return Parsed(kernel, 0.0, np.eye(len(kernel.theta) + 1)[:, :-1])
    terms = _terms(kernel)
    assert terms is not None, "validate accepted it"
    (matern,) = _materns(terms)
    signal = [term for term in terms if term.base is matern]
    white = [term for term in terms if term.base is not matern]
    output_scale, noise = (float(sum(term.value for term in part)) for part in (signal, white))
    if not 0 <= noise < np.inf:
        raise ValueError(f"the noise level of a WhiteKernel must not be negative, but is {noise}")
    own = Matern52(_length_scales(matern, dim), output_scale)

    place, size = _places(kernel)
    jacobian = np.zeros((dim + 2, size))
    here = jacobian[:dim, place[id(matern)]]
    here[:] = np.eye(dim) if here.shape[1] > 1 else 1.0
    for term in signal:
        for leaf in term.constants:
            jacobian[dim, place[id(leaf)]] += term.value / output_scale
    for term in white:
        for leaf in (*term.constants, term.base):
            jacobian[dim + 1, place[id(leaf)]] += term.value / noise if noise else 0.0
    return Parsed(own, noise, jacobian)


def composed(kernel: Matern52, noise: float) -> Kernel:
    """The scikit-learn kernel for our kernel and noise, for numeric columns: the inverse of `parse`."""
    scales = kernel.length_scales.copy() if kernel.dim > 1 else float(kernel.length_scales[0])
    return ConstantKernel(kernel.output_scale) * Matern(scales, nu=2.5) + WhiteKernel(noise)


def _terms(kernel: Any) -> list[_Term] | None:
    """The terms of an expression, or None if it is not supported. Subclasses are not: they may compute anything."""
    if type(kernel) is ConstantKernel:
        return [_Term((kernel,), None)]
    if type(kernel) is WhiteKernel or (type(kernel) is Matern and kernel.nu == 2.5):
        return [_Term((), kernel)]
    if type(kernel) not in (Sum, Product):
        return None
    left, right = _terms(kernel.k1), _terms(kernel.k2)
    if left is None or right is None:
        return None
    if type(kernel) is Sum:
        return left + right
    if any(a.base is not None and b.base is not None for a in left for b in right):
        return None
    return [_Term(a.constants + b.constants, b.base if a.base is None else a.base) for a in left for b in right]


def _materns(terms: list[_Term]) -> list[Matern]:
    """The different Matern objects, by id: scikit-learn's kernels are not hashable, and equal ones count twice."""
    return list({id(term.base): term.base for term in terms if type(term.base) is Matern}.values())


def _places(kernel: Kernel) -> tuple[dict[int, slice], int]:
    """The slice of θ for each leaf, by the id of the leaf, and the length of θ. Fixed parameters are not in θ."""
    places, start = {}, 0
    for leaf in _leaves(kernel):
        size = sum(parameter.n_elements for parameter in leaf.hyperparameters if not parameter.fixed)
        places[id(leaf)] = slice(start, start + size)
        start += size
    return places, start


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    if type(kernel) in (Sum, Product):
        yield from _leaves(kernel.k1)
        yield from _leaves(kernel.k2)
    else:
        yield kernel


def _length_scales(kernel: Matern, dim: int) -> Array:
    scales = np.atleast_1d(np.asarray(kernel.length_scale, dtype=np.float64))
    if scales.shape not in ((1,), (dim,)):
        raise ValueError(f"the kernel has {scales.size} length scales, but X has {dim} columns")
    return np.broadcast_to(scales, dim)
