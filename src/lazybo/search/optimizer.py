"""Ask and tell: the optimiser. It knows no objective, clock, file or executor.

Inside, small is good: values are negated at the door when the direction is "maximize".

Every configuration that was asked for or observed is one row of the process, in that order. A row whose value is still
to come is pending: it lowers the variance around it and leaves the mean alone. When the value comes, only the
right-hand side changes. A failed row has the worst value so far.

An optimiser that was restored goes on as the original, to the last bit. So every number here is a function of the rows
and of what `model_state` says, never of the calls that led to it: the process is built in chunks from the rows that
were there when it was learned, and grows row by row after them.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from lazybo.blas import one_thread
from lazybo.checks import Array, as_number, one_of, positive, shortened, whole
from lazybo.model.fit import Data, Lag, Priors, check_lag, is_due, maximum_a_posteriori, prior_kernel
from lazybo.model.gp import CHUNK_ROWS, LazyGP
from lazybo.model.kernels import Kernel, kernel_for
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
# The process is built anew when the slope of the warping has changed by this factor, for known variances.
RESCALE = 2.0
# Startup points are listed up to this number; those after it are random.
MAX_SPREAD = 2**16
STATE_VERSION = 2
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
        self.direction = one_of("direction", direction, ("minimize", "maximize"))
        self.lag = check_lag(lag)
        self.batch = one_of("batch", batch, ("auto", "fantasy", "maxima"))
        self.seed = check_seed(seed)
        self.n_startup = default_startup(self.space.dim) if n_startup is None else whole("n_startup", n_startup, 0)
        self._make_warping = WARPINGS[one_of("targets", targets, tuple(WARPINGS))]
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
        self._taken_keys: Counter[bytes] = Counter()  # how many rows are at each point
        self._next_number = 0

        self._gp: LazyGP | None = None
        self._pool: Pool | None = None
        self._learned_at = 0
        self._built_rows = 0  # how many rows the process was last built from at once, 0: it is to be built
        self._built_warping: Warping | None = None  # known variances are in its units until the process is built anew
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

        As in `ask`, the kernel is learned if it is due. Random numbers depend on the seed and on ``number`` alone, so
        that a resumed or parallel run goes on alike.
        """
        return self.space.decode(self._propose(whole("number", number, 0), 1)[0])

    def propose_batch(self, number: int, n: int) -> list[dict[str, Any]]:
        """The configurations that ``ask(n)`` would suggest, the first under this number; nothing is recorded."""
        number, n, before, rows = whole("number", number, 0), whole("n", n, 1), self._next_number, len(self._values)
        try:
            return [suggestion.params for suggestion in self._ask(number, n)]
        finally:
            while len(self._values) > rows:
                self._remove(len(self._values) - 1)
            self._next_number = before

    def announce(self, params: Mapping[str, Any]) -> Suggestion:
        """An evaluation that was begun elsewhere: pending until told, as if it had been asked for."""
        return self._pend(self.space.plain(params))

    def maxima(self) -> list[tuple[dict[str, Any], float]]:
        """The distinct local maxima of the acquisition as it stands, best first: configurations and values."""
        if self._n_good() == 0:
            return []
        with self._looking():
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
            point = self._startup_point(number) if number < MAX_SPREAD else None
            return [self._random_point(rng) if point is None or self._taken(point[None])[0] else point]
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
        built = self._built_rows
        return find_maxima(gp, self.space, pool, self._acquisition, best, incumbents, self._taken, rng, starts, built)

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
        params, inside, variance = (
            self.space.plain(params, outside=outside),
            self._door(value),
            _check_variance(variance),
        )
        self._add(params, inside, variance, None)

    def forget(self, suggestion: Suggestion | int) -> None:
        """Give up a pending suggestion: it will never be told."""
        self._remove(self._pending_row(suggestion))

    def _remove(self, row: int) -> None:
        self._cut(row)
        key = self._points[row].tobytes()
        self._taken_keys[key] -= 1
        if not self._taken_keys[key]:
            del self._taken_keys[key]
        for column in (self._params, self._points, self._values, self._variances, self._numbers):
            del column[row]
        self._row_of = {number: i for i, number in enumerate(self._numbers) if number is not None}

    def _pending_row(self, suggestion: Suggestion | int) -> int:
        number = suggestion.number if isinstance(suggestion, Suggestion) else suggestion
        known = isinstance(number, int | np.integer) and not isinstance(number, bool)
        row = self._row_of.get(number) if known else None
        if row is None:
            given = shortened(number)
            raise ValueError(f"number {given} was never asked for; use observe() for results from elsewhere")
        if not math.isnan(self._values[row]):
            raise ValueError(f"number {number} was told already")
        return row

    def _door(self, value: float | None) -> float:
        """The value inside: small is good, infinity is a failure."""
        double = math.inf if value is None else as_number("the value (or None for a failure)", value)
        return self._sign * double if math.isfinite(double) else math.inf

    def _add(self, params: dict[str, Any], value: float, variance: float, number: int | None) -> None:
        x = self.space.encode(params)
        if number is not None:
            self._row_of[number] = len(self._values)
        self._params.append(params)
        self._points.append(x)
        self._values.append(value)
        self._variances.append(variance)
        self._numbers.append(number)
        self._taken_keys[x.tobytes()] += 1

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
        """The process with all that was told, and the warping from values to its targets; in both small is good.

        It is what the next `ask` would begin with; looking at it does not change what is suggested later.
        """
        if self._n_good() == 0:
            raise ValueError("there is no model yet: no evaluation has succeeded")
        with self._looking():
            gp = self._synchronise()
            assert self._warping is not None, "values are warped before they are used"
            return gp, self._warping

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """What is learned within is forgotten: when the kernel is learned depends on when it is asked."""
        learned = (self._kernel, self._noise, self._learned_at, self._warping, self._warped_at)
        built = (self._built_rows, self._built_warping, self._gp, self._pool)
        try:
            yield
        finally:
            self._kernel, self._noise, self._learned_at, self._warping, self._warped_at = learned
            self._built_rows, self._built_warping, self._gp, self._pool = built

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
                {"params": dict(params), "value": _plain(value), "variance": variance, "number": number}
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
            "parameters": self._kernel.values.tolist(),
            "noise": self._noise,
            "learned_at": self._learned_at,
            "built_rows": self._built_rows,
            "built_warping": list(astuple(self._built_warping)) if self._built_warping else None,
            "warping": list(astuple(self._warping)) if self._warping else None,
            "warped_at": self._warped_at,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken, in an optimiser made with the same arguments that has not been used yet."""
        if self._values or self._next_number:
            raise ValueError("restore() needs a new optimiser, but this one has been used")
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            found = state.get("version") if isinstance(state, Mapping) else state
            raise ValueError(f"the state must be of version {STATE_VERSION}, not {shortened(found)}")
        with _readable("state"):
            seed, next_number = whole("seed", state["seed"], 0), whole("next_number", state["next_number"], 0)
            rows = [self._read_row(row) for row in state["rows"]]
            numbers = [number for *_, number in rows if number is not None]
            if len(set(numbers)) < len(numbers) or max(numbers, default=-1) >= next_number:
                raise ValueError(f"a number twice, or one from {next_number} on")
            self.restore_model(state["model"])
        for row in rows:
            self._add(*row)
        self.seed, self._next_number = seed, next_number

    def _read_row(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], float, float, int | None]:
        """The arguments of `_add` for a row of `state`."""
        number = None if row["number"] is None else whole("number", row["number"], 0)
        params = self.space.plain(row["params"], outside=True)
        return params, _from_plain(row["value"]), _check_variance(row["variance"]), number

    def restore_model(self, state: Mapping[str, Any]) -> None:
        """Begin with what was learned when `model_state` was taken."""
        with _readable("model's state"):
            if not isinstance(state, Mapping):
                raise ValueError(f"it must be a mapping, not {shortened(state)}")
            if state["kernel"] != self._kernel.name:
                raise ValueError(f"it is one of the kernel {state['kernel']!r}, not of {self._kernel.name!r}")
            kernel = self._kernel.with_values(state["parameters"])
            noise, built_rows = positive("noise", state["noise"]), whole("built_rows", state["built_rows"], 0)
            learned_at, warped_at = (whole(name, state[name], 0) for name in ("learned_at", "warped_at"))
            warping, built = (Warping(*state[n]) if state[n] else None for n in ("warping", "built_warping"))
            if built_rows and not built:
                raise ValueError("a process that was built without a warping")
        self._kernel, self._noise, self._learned_at = kernel, noise, learned_at
        self._warping, self._warped_at = warping, warped_at
        self._built_rows, self._built_warping = built_rows, built
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
        elif self._rescaled():
            self._build_anew()
        gp = self._gp or self._build()
        for row in range(gp.n, len(self._points)):
            gp.append_alone(self._points[row], self._target_variances(slice(row, row + 1))[0])
        gp.replace_y(targets)
        self._gp = gp
        return gp

    def _build(self) -> LazyGP:
        """A process of the rows that it was built from before a restoration, or of all; their values come later."""
        gp = LazyGP(self._kernel, self._noise)
        if not self._built_rows:
            self._built_rows, self._built_warping = len(self._points), self._warping
        built = min(self._built_rows, len(self._points))
        for start in range(0, built, CHUNK_ROWS):
            rows = slice(start, min(start + CHUNK_ROWS, built))
            gp.append(self._points[rows], np.zeros(rows.stop - start), variance=self._target_variances(rows))
        return gp

    def _build_anew(self) -> None:
        """At the next use, from all rows."""
        self._gp = self._pool = None
        self._built_rows, self._built_warping = 0, None

    def _learn(self, targets: Array, rows: NDArray[np.intp]) -> None:
        """Learn from evaluations that succeeded; the process then is factored with what was learned."""
        assert self._warping is not None, "values are warped before they are used"
        variances = self._warping.variances(np.array(self._variances)[rows])
        data = Data(np.array(self._points)[rows], targets[rows], variances)
        learned = maximum_a_posteriori(data, self._kernel, self._noise, self._priors)
        self._kernel, self._noise, self._learned_at = learned.kernel, learned.noise, len(rows)
        self._build_anew()

    def _rescaled(self) -> bool:
        """Whether known variances in the units of the built process are far from what they are now."""
        if self._warping is None or self._built_warping is None or not any(self._variances):
            return False
        return abs(self._warping.log_slope - self._built_warping.log_slope) > math.log(RESCALE)

    def _target_variances(self, rows: slice) -> Array:
        """Known variances of some rows in units of the targets², as the process has them."""
        assert self._built_warping is not None, "the process is built"
        return self._built_warping.variances(np.array(self._variances[rows]))

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
        """Take this row and those after it out of the process; the next ask appends them again as they are then.

        Rows that were built in one chunk go together: what is left of a chunk has another rounding.
        """
        if row < self._built_rows:
            row = self._built_rows = row // CHUNK_ROWS * CHUNK_ROWS
        if self._built_rows == 0:
            self._build_anew()
        elif self._gp is not None and row < self._gp.n:
            if self._gp.factor.refactorisations:  # its jitter is on rows that stay
                self._gp = self._pool = None
                return
            self._gp.truncate(row)
            if self._pool is not None:
                self._pool.truncate(row, self._built_rows)

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
    return ACQUISITIONS[one_of("acquisition", acquisition, tuple(ACQUISITIONS))]


def _plain(value: float) -> float | str | None:
    """A value for JSON, which has no NaN and no infinity."""
    return None if math.isnan(value) else "failed" if math.isinf(value) else value


def _from_plain(value: float | str | None) -> float:
    if value is None or value == "failed":
        return math.nan if value is None else math.inf
    double = as_number("a value", value)
    if not math.isfinite(double):
        raise ValueError(f"a value must be finite, None or 'failed', not {value!r}")
    return double


def _check_variance(variance: float) -> float:
    double = as_number("variance", variance)
    if not (math.isfinite(double) and double >= 0):
        raise ValueError(f"variance must be a number that is not negative, not {shortened(variance)}")
    return double


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Whatever is wrong with plain data from elsewhere is one ValueError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"this {what} cannot be read: {reason}") from None
