"""LazyGPRegressor: the lazy Gaussian process with the interface of scikit-learn's GaussianProcessRegressor.

======  ==============================================================  ======================
symbol  meaning                                                         shape
======  ==============================================================  ======================
X, y    observed points and values, q outputs                           (n, d), (n,) or (n, q)
t       targets: y, or y normalised column by column                    (n,) or (n, q)
v       known noise variance of each row, in units of t²                (n,)
U       points to predict at                                            (m, d)
======  ==============================================================  ======================

K does not depend on y: all outputs share one factor, and a new normalisation of y needs no factorisation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data

from lazybo import Matern52
from lazybo.core import Array, Lag, checks, one_thread
from lazybo.gp import Kernel as OwnKernel
from lazybo.gp import Learner, Posterior, Priors, Process, Targets
from lazybo.sklearn.kernels import Data, Learning, Minimizer, Parameters, composed, log_likelihood, parse, validate

# Regression data is noisier than objectives are, so the prior of the noise is wider than the optimiser's.
PRIORS = Priors(noise_spread=2.0, noisy_odds=0.0)
# The squares of larger values overflow.
MAX_TARGET = 1e150
# `Process` needs some noise; this much is lost in rounding.
NO_NOISE = float(np.finfo(np.float64).tiny)


class Observations(NamedTuple):
    """Rows in the units of the user: X, y and v."""

    x: Array
    y: Array
    known: Array


@dataclass(frozen=True)
class Model:
    """A fitted model. `with_rows` extends its process in place: after that, only the new model may be used."""

    process: Process
    parameters: Parameters
    y: Array
    targets: Targets

    @classmethod
    def build(cls, rows: Observations, targets: Targets, parameters: Parameters) -> "Model":
        """A model of all rows, O(n³)."""
        process = Process(parse(parameters.kernel, rows.x.shape[1]).kernel, max(parameters.noise, NO_NOISE))
        process.append(rows.x, targets.values, variance=rows.known)
        return cls(process, parameters, rows.y, targets)

    def with_rows(self, new: Observations, targets: Targets) -> "Model":
        """A model with t more rows, in O(t n²). ``targets`` has all rows."""
        self.process.append(new.x, targets.values[len(self.y) :], variance=new.known)
        self.process.set_targets(targets.values)
        return replace(self, y=np.concatenate((self.y, new.y)), targets=targets)

    @property
    def data(self) -> Data:
        """The data to learn parameters from."""
        return Data(self.process.X, self.targets.values, self.process.known_variances)

    def mean(self, u: Array) -> Array:
        """Mean at the rows of U, (m,) or (m, q)."""
        return self.targets.mean(self.process.mean(u))

    def variance(self, u: Array) -> Array:
        """Variance at the rows of U, with the white noise, in units of t², (m,)."""
        return self.process.posterior(u).variance + self.parameters.noise

    def covariance(self, u: Array) -> Array:
        """Joint covariance at the rows of U, with the white noise, in units of t², (m, m)."""
        _, covariance = self.process.posterior_covariance(u)
        covariance[np.diag_indices_from(covariance)] += self.parameters.noise
        return covariance


def fitted(read: Callable[[Model], Any]) -> property:
    """An attribute of the estimator that is read from its fitted model."""
    return property(one_thread()(lambda estimator: read(estimator._fitted())))


class LazyGPRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Gaussian process regression with `partial_fit`, which adds t rows to n in O(t n²).

    With the same kernel parameters it gives the same numbers as scikit-learn's GaussianProcessRegressor. Several
    outputs share the kernel and its factor.

    Parameters
    ----------
    kernel : scikit-learn kernel, kernel of lazybo.gp.kernels or None, default=None
        ``ConstantKernel * Matern(nu=2.5) + WhiteKernel`` in any order (only the Matern is required). It is
        learned by maximum likelihood within its bounds. None: this kernel with a length scale for each column, learned
        with ``priors`` in units of the columns' ranges and of the size of y. A kernel of lazybo.gp.kernels may have
        categorical and conditional columns (NaN: inactive). It is learned together with a white noise, with ``priors``
        in the units of X, so X should lie in the unit cube.
    alpha : float or array of shape (n_samples,), default=1e-10
        Noise variance of the rows in a call of `fit` or `partial_fit`, in units of the normalised y: one number for
        all of them, or one for each row.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        None: the parameters are not learned. A callable is called as scikit-learn calls it, and needs one of its
        kernels.
    n_restarts_optimizer : int, default=0
        Number of restarts when parameters are learned, drawn from the kernel's bounds or from the priors.
    normalize_y : bool, default=False
        Whether each column of y is scaled to mean 0 and standard deviation 1, over all rows so far. If it is False and
        no ``kernel`` is given, y above 1e100 or below 1e-100 is divided by a power of two; "the normalised y" is then
        the result of that division.
    lag : "auto", int or None, default="auto"
        When `partial_fit` learns the parameters again, as in `lazybo.gp.fit.is_due`. None: only `fit` learns them.
    priors : lazybo.gp.priors.Priors or None, default=None
        Priors of the parameters, for kernels that are not scikit-learn's.
    max_points : int or None, default=400
        Parameters are learned from at most this many rows, drawn at random. None: all rows, O(n³) each evaluation.
    random_state : int, RandomState instance or None, default=None
        For the restarts.

    Attributes
    ----------
    kernel_ : scikit-learn kernel or kernel of lazybo.gp.kernels
        The kernel with its current parameters; a scikit-learn kernel if ``kernel`` is None.
    noise_ : float
        The variance of the white noise, in units of the normalised y. As in scikit-learn, predicted deviations include
        it, but not ``alpha``.
    X_train_, y_train_ : ndarray
        All rows so far, their values normalised if ``normalize_y``.
    L_ : ndarray of shape (n_samples, n_samples)
        The lower factor, as a copy: O(n²) each time it is read.
    alpha_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        The weights of the rows in the mean.
    log_marginal_likelihood_value_ : float
        The log marginal likelihood of all rows with the current parameters.
    learned_at_ : int
        The number of rows when the parameters were last learned; 0: never.
    process_ : lazybo.gp.process.Process
        The process of the normalised y.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.

    """

    def __init__(
        self,
        kernel: Kernel | OwnKernel | None = None,
        *,
        alpha: ArrayLike = 1e-10,
        optimizer: str | Minimizer | None = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        normalize_y: bool = False,
        lag: Lag = "auto",
        priors: Priors | None = None,
        max_points: int | None = 400,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.alpha = alpha
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.normalize_y = normalize_y
        self.lag = lag
        self.priors = priors
        self.max_points = max_points
        self.random_state = random_state

    _model: Model

    # ------------------------------------------------------------------ learn

    @one_thread()
    def fit(self, X: ArrayLike, y: ArrayLike) -> "LazyGPRegressor":
        """Discard all earlier rows, learn the kernel parameters from these rows, and factor K."""
        with _all_or_nothing(self):
            rows = self._rows(X, y, self.kernel, reset=True)
            self._build(rows, self._first_parameters(rows.x.shape[1]), learn=len(rows.y) > 1)
        return self

    @one_thread()
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> "LazyGPRegressor":
        """Add t rows in O(t n²). If the ``lag`` says so, learn the kernel parameters again, which takes O(n³).

        To use another ``kernel``, call `fit`.
        """
        with _all_or_nothing(self):
            if not self.__sklearn_is_fitted__():
                rows = self._rows(X, y, self.kernel, reset=True)
                self._build(
                    rows, self._first_parameters(rows.x.shape[1]), learn=Learner(lag=self.lag).is_due(0, len(rows.y))
                )
            else:
                self._extend(self._rows(X, y, self.kernel_, reset=False))
        return self

    def _build(self, rows: Observations, parameters: Parameters, *, learn: bool) -> None:
        """Build a new model of all rows; ``learn`` its parameters first."""
        targets = self._targets(rows.y)
        if learn and self.optimizer is not None and parameters.free:
            parameters = self._learning(len(rows.y)).learned(parameters, Data(rows.x, targets.values, rows.known))
        self._model = Model.build(rows, targets, parameters)

    def _extend(self, new: Observations) -> None:
        """Add rows to the model; build a new one if its parameters are due to be learned."""
        old, parameters = self._model, self._model.parameters
        if new.y.shape[1:] != old.y.shape[1:]:
            raise ValueError(f"y must have as many columns as before, but has {new.y.shape} after {old.y.shape}")
        y = np.concatenate((old.y, new.y))
        if (
            self.optimizer is not None
            and parameters.free
            and Learner(lag=self.lag).is_due(parameters.learned_at, len(y))
        ):
            x, known = np.concatenate((old.process.X, new.x)), np.concatenate((old.process.known_variances, new.known))
            self._build(Observations(x, y, known), parameters, learn=True)
        else:
            self._model = old.with_rows(new, self._targets(y))

    def _targets(self, y: Array) -> Targets:
        if self.normalize_y:
            return Targets.standardized(y)
        return Targets.in_units(y) if self.kernel is None else Targets.identity(y)

    # ---------------------------------------------------------------- predict

    @one_thread()
    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean at the rows of X, (m,).

        ``return_std`` adds the standard deviations, (m,); ``return_cov`` adds the joint covariance, (m, m). With
        several outputs each has one more axis. Before `fit` the prior predicts.
        """
        if return_std and return_cov:
            raise RuntimeError("return_std and return_cov exclude each other; set only one")
        model, u = self._at(X)
        scale = model.targets.scale
        if return_std:
            return model.mean(u), np.multiply.outer(np.sqrt(model.variance(u)), scale)
        if return_cov:
            with np.errstate(over="ignore"):
                return model.mean(u), np.multiply.outer(model.covariance(u), scale) * scale
        return model.mean(u)

    @one_thread()
    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> Array:
        """Values drawn jointly at the rows of X, (m, n_samples), or (m, q, n_samples) with several outputs.

        The root of the covariance is computed from its eigenvalues, so points may coincide.
        """
        count, rng = checks.whole("n_samples", n_samples, 1), check_random_state(random_state)
        model, u = self._at(X)
        mean = model.mean(u)
        drawn = np.tensordot(Posterior.root_of(model.covariance(u)), rng.standard_normal((*mean.shape, count)), axes=1)
        return mean[..., None] + drawn * np.asarray(model.targets.scale)[..., None]

    @one_thread()
    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> Any:
        """log p(t | X), summed over all outputs, with the current parameters or with another θ of `kernel_` (O(n³)).

        With ``eval_gradient`` also the derivatives by θ. ``clone_kernel`` exists for compatibility and has no effect:
        `kernel_` is never changed.
        """
        del clone_kernel
        if theta is None:
            if eval_gradient:
                raise ValueError("the gradient needs theta; kernel_.theta has the current parameters")
            return self.log_marginal_likelihood_value_
        model, theta = self._fitted(), checks.as_array("theta", theta, 1)
        kernel, data = model.parameters.kernel, model.data
        if isinstance(kernel, Kernel):
            kernel = kernel.clone_with_theta(theta)
        else:
            kernel, data = kernel.with_theta(theta), data._replace(known=data.known + model.parameters.noise)
        value, gradient = log_likelihood(kernel, data)
        return (value, gradient) if eval_gradient else value

    # ------------------------------------------------------------------ state

    kernel_ = fitted(lambda model: model.parameters.kernel)
    noise_ = fitted(lambda model: model.parameters.noise)
    learned_at_ = fitted(lambda model: model.parameters.learned_at)
    process_ = fitted(lambda model: model.process)
    X_train_ = fitted(lambda model: model.process.X)
    y_train_ = fitted(lambda model: model.targets.values)
    L_ = fitted(lambda model: model.process.factor.factor)
    alpha_ = fitted(lambda model: model.process.alpha)
    log_marginal_likelihood_value_ = fitted(lambda model: model.process.log_marginal_likelihood())

    def _fitted(self) -> Model:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this LazyGPRegressor is not fitted yet: call fit or partial_fit first")
        return self._model

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False  # without a fit, the prior predicts
        tags.input_tags.allow_nan = _finite_only(self.kernel) == "allow-nan"
        return tags

    # -------------------------------------------------------------- validate

    def _at(self, points: ArrayLike) -> tuple[Model, Array]:
        """The model to predict with, and the validated points."""
        if self.__sklearn_is_fitted__():
            finite_only = _finite_only(self.kernel_)
            with _no_overflow_warnings():
                u = validate_data(self, points, dtype=float, ensure_all_finite=finite_only, reset=False)
            return self._model, u
        with _no_overflow_warnings():
            u = check_array(points, dtype=float, ensure_all_finite=_finite_only(self.kernel))
        nothing = Observations(np.zeros((0, u.shape[1])), np.zeros(0), np.zeros(0))
        return Model.build(nothing, Targets.identity(nothing.y), self._first_parameters(u.shape[1])), u

    def _rows(self, x: ArrayLike, y: ArrayLike, kernel: object, *, reset: bool) -> Observations:
        """Validate the rows and the estimator's parameters, before anything is changed. Each row gets its ``alpha``."""
        self._check_parameters()
        finite_only = _finite_only(kernel)
        with _no_overflow_warnings():
            points, values = validate_data(
                self, x, y, reset=reset, dtype=float, ensure_all_finite=finite_only, multi_output=True, y_numeric=True
            )
        values = np.array(values, dtype=float)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        learned = self.kernel is not None and self.optimizer is not None and not self.normalize_y
        if learned and np.abs(values).max() > MAX_TARGET:
            raise ValueError(
                f"with a kernel, y must lie within ±{MAX_TARGET:g}, but y has {values.flat[np.abs(values).argmax()]}: "
                "set normalize_y=True, or leave the kernel out"
            )
        alpha = checks.finite("alpha", checks.as_array("alpha", np.atleast_1d(self.alpha), 1))
        if len(alpha) not in (1, len(values)):
            raise ValueError(
                f"alpha must be a number or one for each of the {len(values)} rows, not {len(alpha)} numbers"
            )
        if (alpha < 0).any():
            raise ValueError(f"alpha must not be negative, but its smallest entry is {alpha.min()}")
        return Observations(np.array(points), values, np.broadcast_to(alpha, len(values)))

    def _check_parameters(self) -> None:
        checks.check_lag(self.lag)
        checks.whole("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        if self.max_points is not None:
            checks.whole("max_points", self.max_points, 2)
        Priors.check(self.priors)
        if not (self.optimizer is None or self.optimizer == "fmin_l_bfgs_b" or callable(self.optimizer)):
            raise ValueError(f'optimizer must be "fmin_l_bfgs_b", a callable or None, not {self.optimizer!r}')
        if callable(self.optimizer) and not isinstance(self.kernel, Kernel):
            raise ValueError("a callable optimizer needs a scikit-learn kernel, which has bounds for its parameters")

    def _first_parameters(self, dim: int) -> Parameters:
        own = self.kernel is None
        kernel = composed(*(self.priors or Priors()).start(Matern52(np.ones(dim)))) if own else validate(self.kernel)
        return Parameters(kernel, parse(kernel, dim).noise, own=own)

    def _learning(self, count: int) -> Learning:
        return Learning(
            self.optimizer if callable(self.optimizer) else None,
            self.n_restarts_optimizer,
            check_random_state(self.random_state),
            int(self.max_points or count),
            self.priors or PRIORS,
        )


@contextmanager
def _all_or_nothing(estimator: LazyGPRegressor) -> Iterator[None]:
    """Undo all changes to the estimator and its process if the block raises, even on Ctrl-C."""
    before = estimator.__dict__.copy()
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        model = before.get("_model")
        if model is not None:
            model.process.truncate(len(model.y))
            model.process.set_targets(model.targets.values)
        raise


def _no_overflow_warnings() -> np.errstate:
    """scikit-learn's checks sum all entries. The sum may overflow although each entry is finite."""
    return np.errstate(over="ignore", invalid="ignore")


def _finite_only(kernel: object) -> bool | str:
    """The argument ``ensure_all_finite`` of scikit-learn's checks."""
    return "allow-nan" if any(column.conditional for column in getattr(kernel, "columns", ())) else True
