"""Ask and tell: the optimiser. It knows no objective, clock, file or executor.

Inside, small is good: values are negated at the door when the direction is "maximize".

Every configuration that was asked for or observed is one row of the process, in that order. A row whose value is still
to come is pending: it lowers the variance around it and leaves the mean alone. When the value comes, only the
right-hand side changes. A failed row has the worst value so far.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from lazybo.blas import one_thread
from lazybo.checks import Array, positive, whole
from lazybo.model.fit import Data, Lag, Priors, check_lag, is_due, maximum_a_posteriori, prior_kernel
from lazybo.model.gp import LazyGP
from lazybo.model.kernels import Kernel, Matern52, kernel_for
from lazybo.model.targets import WARPINGS, Warping
from lazybo.search.acquisition import ACQUISITIONS, Acquisition
from lazybo.search.propose import BEST_CENTRES, POOL_POINTS, STARTS, Maximum, Pool, find_maxima, spread_points
from lazybo.search.shorthand import as_distributions
from lazybo.search.space import MAX_LISTED, Condition, Space

# The warping of the values is made anew when their number has grown by this share.
REWARP_GROWTH = 0.02
# Draws of random points before the rest of a nearly exhausted space is listed.
RANDOM_TRIES = 64
# Nearer than this to a pending point, in length scales, nothing is suggested.
PENDING_GAP = 0.02
# From this many at once the local maxima make the better batch (`python -m benchmarks.batch`: better for 20, worse
# for 5).
LARGE_BATCH = 10
STATE_VERSION = 1
# As many bits as NumPy's own seeds have; every storage and JSON can hold them.
MAX_SEED = 2**128 - 1


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


class Optimizer:
    """Bayesian optimisation with a lazy Gaussian process.

    ``space`` is a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna distributions
    (`lazybo.search.shorthand`); ``conditions`` says when a parameter is active, and ``optional`` names
    those that observations may lack for other reasons. ``lag`` is how often
    the kernel is learned: 1, an integer, None (never) or "auto". ``acquisition`` is "logei", "ei", "pi", "ucb" or a
    function as in `lazybo.acquisition`. ``batch`` is how ``ask(n)`` chooses several points: "fantasy" (one after the
    other, each pending for the next), "maxima" (the n best local maxima, as in the paper) or "auto" (maxima for large
    batches). ``n_startup`` points are
    spread over the space before the model speaks. ``kernel`` is "matern52" (the default), "additive" (a share of the
    variance is a sum over single parameters) or a kernel of `lazybo.kernels`; such a kernel and ``noise`` are what to
    begin with, and to stay with if the lag is None. ``targets`` is what the model sees of the values: "warped" (bent
    towards a normal sample), "scaled" (mean 0, standard deviation 1) or "centred" (mean 0 in their own units, as in the
    paper).
    """

    def __init__(
        self,
        space: Mapping[str, Any],
        *,
        conditions: Mapping[str, Condition] | None = None,
        optional: Collection[str] = (),
        direction: Literal["minimize", "maximize"] = "minimize",
        seed: int | None = None,
        lag: Lag = "auto",
        acquisition: str | Acquisition = "logei",
        batch: Literal["auto", "fantasy", "maxima"] = "auto",
        n_startup: int | None = None,
        kernel: str | Kernel | None = None,
        noise: float | None = None,
        priors: Priors | None = None,
        targets: Literal["warped", "scaled", "centred"] = "warped",
    ) -> None:
        self.space = Space(as_distributions(space), conditions, optional)
        self.direction = _one_of("direction", direction, ("minimize", "maximize"))
        self.lag = check_lag(lag)
        self.batch = _one_of("batch", batch, ("auto", "fantasy", "maxima"))
        self.seed = check_seed(seed)
        self.n_startup = default_startup(self.space.dim) if n_startup is None else whole("n_startup", n_startup, 0)
        self._make_warping = WARPINGS[_one_of("targets", targets, tuple(WARPINGS))]
        self._acquisition = _check_acquisition(acquisition)
        self._priors = priors or Priors()
        self._kernel, self._noise = self._first_kernel(kernel, noise)
        self._sign = -1.0 if direction == "maximize" else 1.0

        self._params: list[dict[str, Any]] = []
        self._points: list[Array] = []
        self._values: list[float] = []  # small is good; NaN: pending; infinity: failed
        self._variances: list[float] = []
        self._numbers: list[int | None] = []
        self._row_of: dict[int, int] = {}
        self._taken_keys: set[bytes] = set()
        self._next_number = 0

        self._gp: LazyGP | None = None
        self._pool: Pool | None = None
        self._learned_at = 0
        self._built_rows = 0  # how many rows the process was last built from at once
        self._warping: Warping | None = None
        self._warped_at = 0

    # ------------------------------------------------------------------- ask

    @overload
    def ask(self) -> Suggestion: ...
    @overload
    def ask(self, n: int) -> list[Suggestion]: ...
    def ask(self, n: int | None = None) -> Suggestion | list[Suggestion]:
        """One suggestion, or a list of n; each is pending until told, and every later one takes it into account."""
        if n is None:
            return self._suggest(self._propose(self._next_number, 1)[0])
        return self._ask(self._next_number, whole("n", n, 1))

    def propose(self, number: int) -> dict[str, Any]:
        """The configuration that `ask` would suggest under this number; nothing is recorded.

        Random numbers depend on the seed and on ``number`` alone, so that a resumed or parallel run goes on alike.
        """
        return self.space.decode(self._propose(whole("number", number, 0), 1)[0])

    def propose_batch(self, number: int, n: int) -> list[dict[str, Any]]:
        """The configurations that ``ask(n)`` would suggest, the first under this number; nothing is recorded."""
        suggestions = self._ask(whole("number", number, 0), whole("n", n, 1))
        for suggestion in reversed(suggestions):
            self.forget(suggestion)
        return [suggestion.params for suggestion in suggestions]

    def announce(self, params: Mapping[str, Any]) -> Suggestion:
        """An evaluation that was begun elsewhere: pending until told, as if it had been asked for."""
        self.space.check(params)
        return self._pend(dict(params))

    def maxima(self) -> list[tuple[dict[str, Any], float]]:
        """The distinct local maxima of the acquisition as it stands, best first: configurations and values."""
        if self._n_good() == 0:
            return []
        found = self._maxima(np.random.default_rng((self.seed, self._next_number)), POOL_POINTS // 16)
        return [(self.space.decode(maximum.x), maximum.value) for maximum in found]

    def _ask(self, number: int, wanted: int) -> list[Suggestion]:
        """A batch, its random numbers from ``number`` on."""
        suggestions: list[Suggestion] = []
        by_maxima = self.batch == "maxima" or (self.batch == "auto" and wanted >= LARGE_BATCH)
        while len(suggestions) < wanted:
            count = wanted - len(suggestions) if by_maxima else 1
            suggestions += [self._suggest(x) for x in self._propose(number + len(suggestions), count)]
        return suggestions

    def _suggest(self, x: Array) -> Suggestion:
        return self._pend(self.space.decode(x))

    def _pend(self, params: dict[str, Any]) -> Suggestion:
        number = self._next_number
        self._next_number += 1
        self._add(params, math.nan, 0.0, number)
        return Suggestion(number, dict(params))

    @one_thread()
    def _propose(self, number: int, count: int) -> list[Array]:
        """At least one and at most ``count`` points."""
        rng = np.random.default_rng((self.seed, number))
        if self.space.dim == 0:
            return [np.zeros(0)]
        if len(self._values) < self.n_startup or self._n_good() == 0:
            point = self._startup_point(number)
            return [self._random_point(rng) if self._taken(point[None])[0] else point]
        if self._remaining() == 1:
            return [self._random_point(rng)]
        maxima = self._maxima(rng, count)
        return [maximum.x for maximum in maxima[:count]] or [self._random_point(rng)]

    @one_thread()
    def _maxima(self, rng: np.random.Generator, count: int) -> list[Maximum]:
        gp = self._synchronise()
        good = np.flatnonzero(np.isfinite(self._values))
        # The posterior mean at the observations is t - noise ∘ α: the incumbent is a denoised value, not the luckiest.
        denoised = (gp.y - gp.noise_variances * gp.alpha)[good]
        incumbents = self.space.clip(gp.X[good[np.argsort(denoised, kind="stable")[:BEST_CENTRES]]])
        starts = max(STARTS, 2 * count)
        best, pool = float(denoised.min()), self._current_pool()
        return find_maxima(gp, self.space, pool, self._acquisition, best, incumbents, self._taken, rng, starts)

    # ------------------------------------------------------------------ tell

    def tell(self, suggestion: Suggestion | int, value: float | None, *, variance: float = 0.0) -> None:
        """The value of a suggestion. None, NaN or infinity: the evaluation failed.

        ``variance`` is the known variance of the noise in this value, if any.
        """
        row = self._pending_row(suggestion)
        inside, variance = self._door(value), _check_variance(variance)
        if variance:
            self._cut(row)
        self._values[row], self._variances[row] = inside, variance

    def observe(
        self, params: Mapping[str, Any], value: float | None, *, variance: float = 0.0, outside: bool = False
    ) -> None:
        """A result from elsewhere: a warm start. None, NaN or infinity: the evaluation failed.

        With ``outside`` numbers may lie outside their range, as they do after it was narrowed.
        """
        self.space.check(params, outside=outside)
        self._add(dict(params), self._door(value), _check_variance(variance), None)

    def forget(self, suggestion: Suggestion | int) -> None:
        """Give up a pending suggestion: it will never be told."""
        row = self._pending_row(suggestion)
        self._cut(row)
        self._taken_keys.discard(self._points[row].tobytes())
        for column in (self._params, self._points, self._values, self._variances, self._numbers):
            del column[row]
        self._row_of = {number: i for i, number in enumerate(self._numbers) if number is not None}

    def _pending_row(self, suggestion: Suggestion | int) -> int:
        number = suggestion.number if isinstance(suggestion, Suggestion) else suggestion
        row = self._row_of.get(number) if isinstance(number, int | np.integer) else None
        if row is None:
            raise ValueError(f"number {number!r} was never asked for; use observe() for results from elsewhere")
        if not math.isnan(self._values[row]):
            raise ValueError(f"number {number} was told already")
        return row

    def _door(self, value: float | None) -> float:
        """The value inside: small is good, infinity is a failure."""
        if value is None:
            return math.inf
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"the value must be a number, or None for a failure, not {value!r}") from None
        return self._sign * number if math.isfinite(number) else math.inf

    def _add(self, params: dict[str, Any], value: float, variance: float, number: int | None) -> None:
        x = self.space.encode(params)
        if number is not None:
            self._row_of[number] = len(self._values)
        self._params.append(params)
        self._points.append(x)
        self._values.append(value)
        self._variances.append(variance)
        self._numbers.append(number)
        self._taken_keys.add(x.tobytes())

    # ------------------------------------------------------------------ look

    @property
    def pending(self) -> list[Suggestion]:
        """What was asked for and not told yet."""
        rows = zip(self._numbers, self._params, self._values, strict=True)
        return [Suggestion(n, dict(p)) for n, p, value in rows if n is not None and math.isnan(value)]

    @property
    def best(self) -> Best:
        """The best value told or observed; failures do not count."""
        if self._n_good() == 0:
            raise ValueError("there is no best yet: no evaluation has succeeded")
        row = int(np.nanargmin(self._values))
        return Best(dict(self._params[row]), self._sign * self._values[row], self._numbers[row])

    @one_thread()
    def surrogate(self) -> tuple[LazyGP, Warping]:
        """The process with all that was told, and the warping from values to its targets; in both small is good."""
        if self._n_good() == 0:
            raise ValueError("there is no model yet: no evaluation has succeeded")
        gp = self._synchronise()
        assert self._warping is not None, "values are warped before they are used"
        return gp, self._warping

    def _n_good(self) -> int:
        return int(np.isfinite(self._values).sum())

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as plain data for JSON: what was seen, kernel parameters, counters."""
        return {
            "version": STATE_VERSION,
            "seed": self.seed,
            "next_number": self._next_number,
            "rows": [
                {"params": params, "value": _plain(value), "variance": variance, "number": number}
                for params, value, variance, number in zip(
                    self._params, self._values, self._variances, self._numbers, strict=True
                )
            ],
            "model": self.model_state(),
        }

    def model_state(self) -> dict[str, Any]:
        """What was learned, as plain data for JSON: kernel parameters, warping, counters."""
        return {
            "kernel": self._kernel.name,
            "theta": self._kernel.theta.tolist(),
            "noise": self._noise,
            "learned_at": self._learned_at,
            "built_rows": self._built_rows,
            "warping": [*astuple(self._warping), self._warped_at] if self._warping else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken, in an optimiser made with the same arguments that has not been used yet."""
        if self._values or self._next_number:
            raise ValueError("restore() needs a new optimiser, but this one has been used")
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"the state must be of version {STATE_VERSION}, not {state.get('version')!r}")
        for row in state["rows"]:
            self.space.check(row["params"], outside=True)
        self.restore_model(state["model"])
        for row in state["rows"]:
            self._add(dict(row["params"]), _from_plain(row["value"]), float(row["variance"]), row["number"])
        self.seed, self._next_number = int(state["seed"]), int(state["next_number"])

    def restore_model(self, state: Mapping[str, Any]) -> None:
        """Begin with what was learned when `model_state` was taken."""
        kernel = state.get("kernel", Matern52.name)  # states had no name while there was one kernel
        if kernel != self._kernel.name:
            raise ValueError(f"the state is one of the kernel {kernel!r}, but this one is {self._kernel.name!r}")
        self._kernel = self._kernel.with_theta(state["theta"])
        self._noise = positive("noise", state["noise"])
        self._learned_at, self._built_rows = int(state["learned_at"]), int(state["built_rows"])
        if state["warping"] is not None:
            *numbers, self._warped_at = state["warping"]
            self._warping = Warping(*numbers)
        self._gp = self._pool = None

    # ----------------------------------------------------------------- model

    def _first_kernel(self, kernel: str | Kernel | None, noise: float | None) -> tuple[Kernel, float]:
        """A kernel that was given as it is, one that was named at the middle of the priors."""
        chosen = kernel_for(kernel, self.space.columns)
        middle, middle_noise = prior_kernel(chosen, self._priors)
        first = middle if kernel is None or isinstance(kernel, str) else chosen
        return first, middle_noise if noise is None else positive("noise", noise)

    def _synchronise(self) -> LazyGP:
        """The process with all rows, their present values, and kernel parameters that are not overdue."""
        targets = self._targets()
        good = np.flatnonzero(np.isfinite(self._values))
        if is_due(self.lag, self._learned_at, len(good)):
            self._learn(targets, good)
        if self._gp is None:
            self._gp = LazyGP(self._kernel, self._noise)
            # A restored optimiser appends as the original did, so that not even rounding differs.
            for _ in range(len(self._points) - self._built_rows if self._built_rows else 0):
                self._append_rows(self._gp, self._built_rows if self._gp.n == 0 else self._gp.n + 1)
            self._built_rows = self._built_rows or len(self._points)
        self._append_rows(self._gp, len(self._points))
        self._gp.replace_y(targets)
        return self._gp

    def _append_rows(self, gp: LazyGP, upto: int) -> None:
        """The rows that the process does not have yet, as one block; their values come with all others."""
        if gp.n < upto:
            new = slice(gp.n, upto)
            gp.append(self._points[new], np.zeros(upto - gp.n), variance=self._target_variances()[new])

    def _learn(self, targets: Array, rows: NDArray[np.intp]) -> None:
        """Learn from evaluations that succeeded; the process then is factored with what was learned."""
        variances = self._target_variances()
        data = Data(np.array(self._points)[rows], targets[rows], variances[rows])
        learned = maximum_a_posteriori(data, self._kernel, self._noise, self._priors)
        self._kernel, self._noise, self._learned_at = learned.kernel, learned.noise, len(rows)
        self._gp = self._pool = None
        self._built_rows = 0

    def _target_variances(self) -> Array:
        """Known variances in units of the targets², (n,)."""
        assert self._warping is not None, "values are warped before they are used"
        return np.array(self._variances) * self._warping.slope**2

    def _targets(self) -> Array:
        """What the process sees: warped values, the worst of them for failures, NaN where pending."""
        values = np.array(self._values)
        good = np.isfinite(values)
        count = int(good.sum())
        if self._warping is None or count > self._warped_at * (1 + REWARP_GROWTH):
            self._warping, self._warped_at = self._make_warping(values[good]), count
        warped = self._warping(values[good])
        targets = np.full(len(values), np.nan)
        targets[good] = warped
        targets[np.isinf(values)] = warped.max()
        return targets

    def _cut(self, row: int) -> None:
        """Take this row and those after it out of the process; the next ask appends them again as they are then."""
        if self._gp is not None and row < self._gp.n:
            self._gp.truncate(row)
            self._pool = None

    def _current_pool(self) -> Pool:
        if self._pool is None:
            rng = np.random.default_rng((self.seed, self._learned_at, 1))
            self._pool = Pool(spread_points(self.space, rng, POOL_POINTS))
        return self._pool

    # ------------------------------------------------------- points without a model

    def _startup_point(self, number: int) -> Array:
        """The point under this number of a sequence that fills the space: parallel runs share it without repetition."""
        return spread_points(self.space, np.random.default_rng(self.seed), number + 1)[number]

    def _taken(self, points: Array) -> NDArray[np.bool_]:
        """Which points were asked for or observed already, or are next to a pending one; none, once every one was."""
        if self._remaining() <= 0:
            return np.zeros(len(points), dtype=bool)
        data, width = points.tobytes(), 8 * self.space.dim
        same = np.array([data[i : i + width] in self._taken_keys for i in range(0, len(data), width)], dtype=bool)
        pending = np.flatnonzero(np.isnan(self._values))
        if len(pending) and len(points):
            waiting = self._kernel.features(np.array([self._points[row] for row in pending]))
            same |= cdist(self._kernel.features(points), waiting).min(axis=1) < PENDING_GAP
        return same

    def _remaining(self) -> float:
        return self.space.size - len(self._taken_keys)

    def _random_point(self, rng: np.random.Generator) -> Array:
        """A point not taken yet: by luck, or from the list of those that are left."""
        points = self.space.sample(rng, RANDOM_TRIES)
        free = points[~self._taken(points)]
        if len(free) or self.space.size > MAX_LISTED:
            return free[0] if len(free) else points[0]
        left = [x for x in self.space.listed() if x.tobytes() not in self._taken_keys]
        return left[int(rng.integers(len(left)))] if left else points[0]


def default_startup(dim: int) -> int:
    """How many points are spread over the space before the model speaks."""
    return min(max(dim, 5), 10)


def _one_of(name: str, value: Any, choices: Sequence[str]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, not {value!r}")
    return value


def check_seed(seed: int | None) -> int:
    """The seed, or a new one."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    number = whole("seed", seed, 0)
    if number > MAX_SEED:
        raise ValueError("seed must be below 2**128")
    return number


def _check_acquisition(acquisition: str | Acquisition) -> Acquisition:
    if callable(acquisition):
        return acquisition
    return ACQUISITIONS[_one_of("acquisition", acquisition, tuple(ACQUISITIONS))]


def _plain(value: float) -> float | str | None:
    """A value for JSON, which has no NaN and no infinity."""
    return None if math.isnan(value) else "failed" if math.isinf(value) else value


def _from_plain(value: float | str | None) -> float:
    return math.nan if value is None else math.inf if value == "failed" else float(value)


def _check_variance(variance: float) -> float:
    if not (isinstance(variance, int | float | np.floating) and math.isfinite(variance) and variance >= 0):
        raise ValueError(f"variance must be a number that is not negative, not {variance!r}")
    return float(variance)
