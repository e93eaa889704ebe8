"""Ask and tell: the optimiser. It knows no objective, clock, file or executor.

Inside, small is good: values are negated at the door when the direction is "maximize".

Every configuration that was asked for or observed is one row of the process, in that order. A row whose value is still to come is
pending: it lowers the variance around it and leaves the mean alone. When the value comes, only the right-hand side changes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution

from lazybo.acquisition import ACQUISITIONS, Acquisition
from lazybo.checks import Array
from lazybo.fit import Lag, Priors, check_lag, is_due, learn, prior_kernel
from lazybo.gp import LazyGP
from lazybo.kernels import Matern52
from lazybo.propose import POOL_POINTS, Maximum, Pool, find_maxima, spread_points
from lazybo.space import MAX_LISTED, Condition, Space
from lazybo.targets import Scaling, robust_scaling

# The transform of the values is made anew when their number has grown by this share.
RESCALE_GROWTH = 0.02
# Draws of random points before the rest of a nearly exhausted space is listed.
RANDOM_TRIES = 64


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A configuration to evaluate, and the number to tell its value under."""

    number: int
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Best:
    """The best observation so far; ``number`` is None if it was observed rather than asked for."""

    params: dict[str, Any]
    value: float
    number: int | None


@dataclass(slots=True)
class _Row:
    """One configuration: its point, and its value (small is good; None: pending; infinity: failed)."""

    params: dict[str, Any]
    x: Array
    number: int | None
    value: float | None = None
    variance: float = 0.0


class Optimizer:
    """Bayesian optimisation with a lazy Gaussian process.

    ``space`` is a dict of Optuna distributions; ``conditions`` says when a parameter is active. ``lag`` is how often the
    kernel is learned: 1, an integer, None (never) or "auto". ``batch`` is how ``ask(n)`` chooses several points: "fantasy"
    (one after the other, each pending for the next) or "maxima" (the n best local maxima, as in the paper).
    """

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        *,
        conditions: Mapping[str, Condition] | None = None,
        direction: Literal["minimize", "maximize"] = "minimize",
        seed: int | None = None,
        lag: Lag = "auto",
        acquisition: str | Acquisition = "logei",
        batch: Literal["fantasy", "maxima"] = "fantasy",
        n_startup: int | None = None,
        kernel: Matern52 | None = None,
        noise: float | None = None,
        priors: Priors | None = None,
    ) -> None:
        self.space = Space(space, conditions)
        self.direction = _one_of("direction", direction, ("minimize", "maximize"))
        self._sign = -1.0 if direction == "maximize" else 1.0
        self.lag = check_lag(lag)
        self.batch = _one_of("batch", batch, ("fantasy", "maxima"))
        self._acquisition = (
            ACQUISITIONS[_one_of("acquisition", acquisition, tuple(ACQUISITIONS))]
            if isinstance(acquisition, str)
            else acquisition
        )
        self.seed = int(np.random.SeedSequence(seed).generate_state(1)[0]) if seed is None else int(seed)
        self.n_startup = default_startup(self.space.dim) if n_startup is None else n_startup
        self._priors = priors or Priors()
        self._rows: list[_Row] = []
        self._by_number: dict[int, _Row] = {}
        self._keys: set[bytes] = set()
        self._next_number = 0
        self._startup: Array | None = None
        self._gp: LazyGP | None = None
        self._learned_at = 0
        self._scaling: Scaling | None = None
        self._scaled_at = 0
        self._pool: Pool | None = None

    # ------------------------------------------------------------------- ask

    @overload
    def ask(self) -> Suggestion: ...
    @overload
    def ask(self, n: int) -> list[Suggestion]: ...
    def ask(self, n: int | None = None) -> Suggestion | list[Suggestion]:
        """One suggestion, or a list of n; each is pending until told, and every later one takes it into account."""
        if n is None:
            return self._suggest(self._propose(1)[0])
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"n must be a positive whole number, not {n!r}")
        suggestions: list[Suggestion] = []
        while len(suggestions) < n:
            left = n - len(suggestions) if self.batch == "maxima" else 1
            suggestions += [self._suggest(x) for x in self._propose(left)]
        return suggestions

    def _suggest(self, x: Array) -> Suggestion:
        params = self.space.decode(x)
        row = _Row(params, self.space.encode(params), self._next_number)
        self._next_number += 1
        self._add(row)
        assert row.number is not None
        return Suggestion(row.number, dict(params))

    def _propose(self, count: int) -> list[Array]:
        """At least one and at most ``count`` points."""
        rng = np.random.default_rng((self.seed, self._next_number))
        if self.space.dim == 0:
            return [np.zeros(0)]
        if len(self._rows) < self.n_startup:
            point = self._startup_point(len(self._rows))
            return [point if not self._taken(point[None])[0] else self._random_point(rng)]
        if self._remaining() <= 1 or not any(row.value is not None for row in self._rows):
            return [self._random_point(rng)]
        maxima = self._maxima(rng, count)[:count]
        return [maximum.x for maximum in maxima] or [self._random_point(rng)]

    def _maxima(self, rng: np.random.Generator, count: int) -> list[Maximum]:
        gp = self._synchronise()
        clean, told = self._denoised(gp)
        order = told[np.argsort(clean, kind="stable")]
        return find_maxima(
            gp,
            self.space,
            self._current_pool(),
            self._acquisition,
            float(clean.min()),
            gp.X[order[:8]],
            self._taken,
            rng,
            max(8, 2 * count),
        )

    def _denoised(self, gp: LazyGP) -> tuple[Array, NDArray[np.intp]]:
        """The posterior mean at the rows that have a value and did not fail, and those rows: K α - t = -noise ∘ α."""
        told = np.flatnonzero([row.value is not None and math.isfinite(row.value) for row in self._rows])
        if len(told) == 0:
            told = np.flatnonzero([row.value is not None for row in self._rows])
        return (gp.y - gp.noise_variances * gp.alpha)[told], told

    # ------------------------------------------------------------------ tell

    def tell(self, suggestion: Suggestion | int, value: float | None, *, variance: float = 0.0) -> None:
        """The value of a suggestion. None, NaN or infinity: the evaluation failed.

        ``variance`` is the known variance of the noise in this value, if any.
        """
        number = suggestion.number if isinstance(suggestion, Suggestion) else suggestion
        row = self._by_number.get(number)
        if row is None:
            raise ValueError(f"number {number!r} was never asked for; use observe() for results from elsewhere")
        if row.value is not None:
            raise ValueError(f"number {number} was told already")
        value, variance = self._door(value), _check_variance(variance)
        if variance and self._gp is not None and self._rows.index(row) < self._gp.n:
            self._restart()
        row.value, row.variance = value, variance

    def observe(self, params: Mapping[str, Any], value: float | None, *, variance: float = 0.0) -> None:
        """A result from elsewhere: a warm start. None, NaN or infinity: the evaluation failed."""
        self.space.check(params)
        row = _Row(dict(params), self.space.encode(params), None, self._door(value), _check_variance(variance))
        self._add(row)

    def forget(self, suggestion: Suggestion | int) -> None:
        """Give up a pending suggestion: it will not be told."""
        number = suggestion.number if isinstance(suggestion, Suggestion) else suggestion
        row = self._by_number.get(number)
        if row is None or row.value is not None:
            raise ValueError(f"number {number!r} is not pending")
        index = self._rows.index(row)
        if self._gp is not None and index < self._gp.n:
            self._gp.truncate(index)
            self._pool = None
        del self._rows[index], self._by_number[number]
        self._keys.discard(row.x.tobytes())

    def _door(self, value: float | None) -> float:
        """The value inside: small is good, infinity is a failure."""
        if value is None:
            return math.inf
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"the value must be a number, or None for a failure, not {value!r}") from None
        return self._sign * number if math.isfinite(number) else math.inf

    def _add(self, row: _Row) -> None:
        self._rows.append(row)
        self._keys.add(row.x.tobytes())
        if row.number is not None:
            self._by_number[row.number] = row

    # ------------------------------------------------------------------ look

    @property
    def pending(self) -> list[Suggestion]:
        """What was asked for and not told yet."""
        return [
            Suggestion(row.number, dict(row.params))
            for row in self._rows
            if row.value is None and row.number is not None
        ]

    @property
    def best(self) -> Best:
        """The best value told or observed; failures do not count."""
        good = [row for row in self._rows if row.value is not None and math.isfinite(row.value)]
        if not good:
            raise ValueError("there is no best yet: no evaluation has succeeded")
        row = min(good, key=lambda row: row.value or 0.0)
        assert row.value is not None
        return Best(dict(row.params), self._sign * row.value, row.number)

    # ----------------------------------------------------------------- model

    def _synchronise(self) -> LazyGP:
        """The process with all rows, their present values, and kernel parameters that are not overdue."""
        if self._gp is None:
            self._gp = LazyGP(
                *prior_kernel(Matern52(np.ones(self.space.dim), columns=self.space.columns), self._priors)
            )
        gp, new = self._gp, self._rows[self._gp.n :]
        if new:
            gp.append([row.x for row in new], np.zeros(len(new)), variance=[self._scaled_variance(row) for row in new])
        gp.replace_y(self._targets())
        good = np.flatnonzero([row.value is not None and math.isfinite(row.value) for row in self._rows])
        if is_due(self.lag, self._learned_at, len(good)):
            learn(gp, self._priors, rows=good)
            self._learned_at = len(good)
            self._pool = None
        return gp

    def _targets(self) -> Array:
        """What the process sees: scaled values, the worst of them for failures, NaN where pending."""
        good = np.array([row.value for row in self._rows if row.value is not None and math.isfinite(row.value)])
        if self._scaling is None or len(good) > self._scaled_at * (1 + RESCALE_GROWTH):
            self._scaling, self._scaled_at = robust_scaling(good), len(good)
        scaled = self._scaling(good)
        targets = np.full(len(self._rows), np.nan)
        told = np.array([math.nan if row.value is None else row.value for row in self._rows])
        targets[np.isfinite(told)] = scaled
        targets[np.isinf(told)] = scaled.max(initial=0.0)
        return targets

    def _scaled_variance(self, row: _Row) -> float:
        return row.variance / self._scaling.scale**2 if self._scaling is not None and row.variance else 0.0

    def _restart(self) -> None:
        self._gp = None
        self._pool = None

    def _current_pool(self) -> Pool:
        if self._pool is None:
            rng = np.random.default_rng((self.seed, self._learned_at, 1))
            self._pool = Pool(spread_points(self.space, rng, POOL_POINTS))
        return self._pool

    # ------------------------------------------------------- points without a model

    def _startup_point(self, index: int) -> Array:
        if self._startup is None:
            self._startup = spread_points(self.space, np.random.default_rng(self.seed), self.n_startup)
        return self._startup[index]

    def _taken(self, points: Array) -> NDArray[np.bool_]:
        """Which points were asked for or observed already; none, once every configuration was."""
        if self._remaining() <= 0:
            return np.zeros(len(points), dtype=bool)
        return np.array([point.tobytes() in self._keys for point in points], dtype=bool)

    def _remaining(self) -> float:
        return self.space.size - len(self._keys)

    def _random_point(self, rng: np.random.Generator) -> Array:
        """A point not taken yet: by luck, or from the list of those that are left."""
        points = self.space.sample(rng, RANDOM_TRIES)
        free = points[~self._taken(points)]
        if len(free) or self.space.size > MAX_LISTED:
            return free[0] if len(free) else points[0]
        left = [x for x in self.space.listed() if x.tobytes() not in self._keys]
        return left[int(rng.integers(len(left)))] if left else points[0]


def default_startup(dim: int) -> int:
    """How many points are spread over the space before the model speaks."""
    return min(5 + dim // 4, 10)


def _one_of(name: str, value: Any, choices: Sequence[str]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, not {value!r}")
    return value


def _check_variance(variance: float) -> float:
    if not (isinstance(variance, int | float | np.floating) and math.isfinite(variance) and variance >= 0):
        raise ValueError(f"variance must be a number that is not negative, not {variance!r}")
    return float(variance)
