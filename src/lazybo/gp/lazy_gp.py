"""The lazy Gaussian process in units of the observed values.

======  ===================================================================  ========
symbol  meaning                                                              shape
======  ===================================================================  ========
X, y    observed points and values; y is NaN where pending                   (n, d), (n,)
t       targets: y after its transform (`lazybo.gp.targets`)                 (n,)
v       known noise variance of each observation, in units of y²             (n,)
σₙ²     noise variance that all observations share, in units of t² (`noise`) scalar
U       points to predict at                                                 (m, d)
======  ===================================================================  ========

`lazybo.gp.process` does all inference, in units of t. This module converts values to targets, and predictions back.
"""

import numpy as np
from numpy.typing import ArrayLike

from lazybo.core import Array, one_thread
from lazybo.gp.fit import MAX_POINTS, Learned, Learner
from lazybo.gp.kernels.base import Kernel
from lazybo.gp.posterior import MomentGradients, Moments, root_of
from lazybo.gp.priors import Priors
from lazybo.gp.process import Process, as_targets, as_variances, read_only
from lazybo.gp.targets import Targets, Transform, identity, product, relative_variances


class LazyGP:
    """Gaussian process with a zero prior mean (in units of the targets) that adds t rows in O(t n²).

    ``noise`` is the variance of the noise that all observations share, in units of the transformed values.
    ``transform`` is a function of `lazybo.gp.targets`. ``process`` is the process of the targets, with its factor.
    """

    def __init__(self, kernel: Kernel, noise: float = 1e-6, *, transform: Transform = identity) -> None:
        self.process = Process(kernel, noise)
        self._transform = transform
        self._y = np.zeros(0)
        self._known = np.zeros(0)
        # The process holds known variances in the scale that the targets had when K was last factored, or when the
        # first of these variances was given: with another scale, K would change.
        self._known_scale = 1.0
        self._targets = Targets(np.zeros(0), 0.0, 1.0)

    @property
    def n(self) -> int:
        """Number of observations."""
        return self.process.n

    @property
    def kernel(self) -> Kernel:
        """The kernel with its current parameters."""
        return self.process.kernel

    @property
    def noise(self) -> float:
        """σₙ², the shared noise variance in units of the transformed values."""
        return self.process.noise

    @property
    def X(self) -> Array:  # noqa: N802 - the name everyone gives it
        """Observed points, (n, d); a read-only view."""
        return self.process.X

    @property
    def y(self) -> Array:
        """Observed values, NaN where pending, (n,); a read-only view."""
        return read_only(self._y)

    @property
    def targets(self) -> Targets:
        """The transformed values of all observations, NaN where pending, with the inverse transform."""
        return self._targets

    @property
    def known_variances(self) -> Array:
        """v, the known noise variances in units of y², (n,)."""
        return read_only(self._known)

    # ----------------------------------------------------------------- change

    @one_thread()
    def append(self, x: ArrayLike, y: ArrayLike, *, variance: ArrayLike | None = None) -> None:
        """Add rows X, (t, d), with values y, (t,), in O(t n²).

        NaN means that a value is pending: the row lowers the variance and does not change the mean. ``variance`` is the
        known noise variance of each value, in addition to the shared noise, in units of y², (t,).
        """
        new_x = self.kernel.check(x)
        y = np.concatenate((self._y, as_targets("y", y, (len(new_x),))))
        known = np.zeros(len(new_x)) if variance is None else as_variances(variance, len(new_x))
        targets = self._transformed(y)
        scale = self._known_scale if self._known.any() else targets.scale
        self.process.append(new_x, targets.values[self.n :], variance=relative_variances(known, scale))
        self._known, self._known_scale = np.concatenate((self._known, known)), scale
        self._set(y, targets)

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` observations, in O(1) for the factor."""
        self.process.truncate(n)
        self._known = self._known[:n]
        self._set(self._y[:n], self._transformed(self._y[:n]))

    def replace_y(self, y: ArrayLike) -> None:
        """Replace all values (NaN: pending). Needs no factorisation, only a few solves at the next posterior."""
        values = as_targets("y", y, (self.n,)).copy()
        self._set(values, self._transformed(values))

    @one_thread()
    def set_parameters(self, kernel: Kernel, noise: float) -> None:
        """Change the kernel (with the same columns) and the noise. Only this factors all of K again, O(n³)."""
        scale = self._targets.scale
        self.process.set_parameters(kernel, noise, variance=relative_variances(self._known, scale))
        self._known_scale = scale

    @one_thread()
    def learn(self, priors: Priors | None = None, *, max_points: int = MAX_POINTS) -> Learned[Kernel]:
        """Set the maximum a posteriori parameters, learned from all rows with a value. K is factored once."""
        rows, scale = np.flatnonzero(~np.isnan(self._y)), self._targets.scale
        known = relative_variances(self._known[rows], scale)
        learner = Learner(priors or Priors(), max_points=max_points)
        learned = learner.best(self.kernel, self.noise, self.X[rows], self._targets.values[rows], known)
        self.set_parameters(learned.kernel, learned.noise)
        return learned

    # ---------------------------------------------------------------- predict

    @one_thread()
    def posterior(self, u: ArrayLike) -> Moments:
        """Mean and variance of the latent function at the rows of U, in units of y."""
        mean, variance = self.process.posterior(u)
        return Moments(self._targets.mean(mean), self._targets.variance(variance))

    @one_thread()
    def posterior_gradient(self, u: ArrayLike) -> MomentGradients:
        """`posterior` and its derivatives with respect to U; categorical and inactive entries have derivative 0."""
        found, targets = self.process.posterior_gradient(u), self._targets
        return MomentGradients(
            targets.mean(found.mean),
            targets.variance(found.variance),
            product(found.mean_gradient, targets.scale),
            targets.variance(found.variance_gradient),
        )

    @one_thread()
    def posterior_covariance(self, u: ArrayLike) -> tuple[Array, Array]:
        """Mean, (m,), and joint covariance, (m, m), of the latent function at the rows of U, in units of y."""
        mean, covariance = self.process.posterior_covariance(u)
        return self._targets.mean(mean), self._targets.variance(covariance)

    @one_thread()
    def sample(self, u: ArrayLike, size: int, rng: np.random.Generator) -> Array:
        """Functions drawn jointly from the posterior, at the rows of U, (size, m)."""
        mean, covariance = self.process.posterior_covariance(u)
        draws = rng.standard_normal((size, len(mean))) @ root_of(covariance).T
        return self._targets.mean(mean) + product(draws, self._targets.scale)

    @one_thread()
    def log_marginal_likelihood(self) -> float:
        """log p(t | X) of the transformed values."""
        return self.process.log_marginal_likelihood()

    def _transformed(self, y: Array) -> Targets:
        """The targets for these values, NaN where pending."""
        known = ~np.isnan(y)
        values, shift, scale = self._transform(y[known])
        targets = np.full(len(y), np.nan)
        targets[known] = values
        targets.flags.writeable = False
        return Targets(targets, shift, scale)

    def _set(self, y: Array, targets: Targets) -> None:
        self._y, self._targets = y, targets
        self.process.set_targets(targets.values)
