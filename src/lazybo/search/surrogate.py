"""The surrogate of the objective: a Gaussian process that is kept in sync with the observations.

The kernel is learned when the lag says so. Until then, new rows are appended to the process in O(n²) each. New or
changed values only change the right-hand side and need no factorisation.

A restored surrogate gives the same numbers as the original, to the last bit. So every number here depends only on the
observations and on `Fitted`, not on earlier calls: the process is *built* in chunks from the rows that existed when it
was learned, and later rows are appended one by one.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array, positive, shortened, whole
from lazybo.gp.cholesky import CHUNK_ROWS
from lazybo.gp.earlier import EarlierTasks, Related
from lazybo.gp.fit import NOISY, Data, Lag, Priors, check_priors, is_due, maximum_a_posteriori, prior_kernel
from lazybo.gp.kernels import Kernel, kernel_for
from lazybo.gp.kernels.base import PriorMean
from lazybo.gp.posterior import NO_VALUE
from lazybo.gp.process import Process
from lazybo.gp.targets import PROOF_IF_DISCRETE, Repeats, Warping, repeats_of
from lazybo.search.pool import POOL_POINTS, Pool, groups_of_rows, sobol_points
from lazybo.search.results import State
from lazybo.search.views import Rows
from lazybo.space.feasible import FeasibleSet
from lazybo.space.space import Space

# The warping is fitted again when the number of values has grown by this share.
REWARP_GROWTH = 0.02
# With this many measured values, the warping is fitted to them only: forecasts of trainings that were stopped early are
# often nearly equal, and would hide how the measured values are spread.
MEASURED = 5
# If there are known variances, the process is rebuilt when the slope of the warping has changed by this factor.
RESCALE = 2.0
# At most so many evaluations are repeated to find out whether there is noise.
MOST_REPEATS = PROOF_IF_DISCRETE
# If the kernel is never learned, the values are compared with earlier tasks when they have grown by this factor.
RELATE_GROWTH = 1.25
# With more values the kernel is not learned more often than the lag says: factoring K takes more than a second.
FRESH_VALUES = 2000
# No study has more rows. A state that was edited may say so.
MAX_COUNT = 2**53
# Kernels with other parameters overflow.
SMALLEST, LARGEST = 1e-100, 1e100


@dataclass(frozen=True, slots=True)
class Fitted:
    """The learned parameters, and all that is needed to build the same process again, to the last bit.

    ``learned_at`` and ``warped_at`` are the numbers of values at that time. ``built_rows`` is the number of rows that
    the process was last built from at once; 0 means that it must be built. Known variances are in units of
    ``built_warping`` until it is built again. ``related`` says what the first ``related_at`` values have in common with
    earlier tasks. ``noise_range`` is the least and the most variance that noise may give to measured values.
    """

    kernel: Kernel
    noise: float
    learned_at: int = 0
    warping: Warping | None = None
    warped_at: int = 0
    built_rows: int = 0
    built_warping: Warping | None = None
    related: Related | None = None
    related_at: int = 0
    noise_range: tuple[float, float] | None = None

    @property
    def is_noisy(self) -> bool:
        """Whether the model takes the values for noisy; not at the limit of values that are known to have no noise."""
        return self.noise > NOISY * (1.0 + 1e-9)

    def state(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "kernel": self.kernel.name,
            "parameters": self.kernel.values.tolist(),
            "noise": self.noise,
            "learned_at": self.learned_at,
            "built_rows": self.built_rows,
            "built_warping": list(astuple(self.built_warping)) if self.built_warping else None,
            "warping": list(astuple(self.warping)) if self.warping else None,
            "warped_at": self.warped_at,
            **({} if self.related is None else {"related": self.related.state(), "related_at": self.related_at}),
            **({} if self.noise_range is None else {"noise_range": list(self.noise_range)}),
        }

    def parse(self, state: Mapping[str, Any]) -> "Fitted":
        """The inverse of `state`. The kernel gets the columns of this one."""
        if not isinstance(state, Mapping):
            raise ValueError(f"it must be a mapping, not {shortened(state)}")
        if state["kernel"] != self.kernel.name:
            found = state["kernel"]
            raise ValueError(f"it has the kernel {found!r}, not {self.kernel.name!r}; give kernel={found!r}")
        counts = {name: whole(name, state[name], 0, MAX_COUNT) for name in ("learned_at", "warped_at", "built_rows")}
        warpings = {name: Warping(*state[name]) if state[name] else None for name in ("warping", "built_warping")}
        if counts["built_rows"] and not warpings["built_warping"]:
            raise ValueError("its process was built, but there is no built_warping")
        kernel = _usable(self.kernel.with_values(state["parameters"]))
        found = Fitted(kernel, positive("noise", state["noise"]), **counts, **warpings)  # type: ignore[arg-type]
        if "noise_range" in state:
            least, most = (positive("noise_range", each) for each in state["noise_range"])
            found = replace(found, noise_range=(least, most))
        if "related" not in state:
            return found
        return replace(
            found,
            related=Related.parse(state["related"]),
            related_at=whole("related_at", state["related_at"], 0, MAX_COUNT),
        )


class Surrogate:
    """The Gaussian process of the observations; it is learned and extended as they are added."""

    def __init__(
        self,
        space: Space,
        observations: Rows,
        *,
        lag: Lag,
        kernel: str | Kernel | None,
        noise: float | None,
        priors: Priors | None,
        make_warping: Callable[[Array], Warping],
        feasible: FeasibleSet | None = None,
        earlier: EarlierTasks | None = None,
    ) -> None:
        self._space = space
        self._observations = observations
        self._lag = lag
        self._priors = check_priors(priors)
        self._make_warping = make_warping
        self._feasible = feasible
        self.earlier = earlier
        self._earlier_means: dict[bytes, Array] = {}
        self._pool_points: Array | None = None
        self.fitted = _first(kernel_for(kernel, space.columns), kernel, noise, self._priors)
        self._prior_noise = self.fitted.noise
        self._process: Process | None = None
        self._pool: Pool | None = None

    def sync(self, *, fresh: bool = False) -> Process:
        """Update the process to all rows and their current values; learn the kernel first if that is due.

        With ``fresh`` it is due after every new value, unless there are very many: `FRESH_VALUES`.
        """
        targets = self._targets()
        complete = self._observations.rows(State.COMPLETE)
        lag = 1 if fresh and self.learns and len(complete) <= FRESH_VALUES else self._lag
        due = is_due(lag, self.fitted.learned_at, len(complete))
        if self.earlier is not None and (due or self._must_relate(len(complete))):
            self._relate(self.earlier, targets, complete)
        if due:
            self._learn(targets, complete)
        elif self._is_rescaled():
            self.discard()
        process = self._process or self._begun()
        self._extend(process, targets)
        process.set_targets(targets)
        self._process = process
        return process

    @property
    def learns(self) -> bool:
        """Whether the kernel and the noise are learned at all."""
        return self._lag is not None

    @property
    def warping(self) -> Warping:
        """The warping from values to targets."""
        assert self.fitted.warping is not None, "values are warped before they are used"
        return self.fitted.warping

    @property
    def forecasts(self) -> NDArray[np.intp]:
        """The rows whose value is a forecast."""
        return np.setdiff1d(self._observations.rows(State.COMPLETE), self._observations.measured)

    def pool(self, seed: int) -> Pool:
        """Points spread over the space, or over its feasible part. They change whenever the kernel is learned."""
        if self._pool is None:
            self._pool = Pool(self._spread(seed))
        return self._pool

    def _spread(self, seed: int) -> Array:
        """The points of the pool. While earlier tasks count they stay the same: their means there take a while."""
        stay = self.fitted.related is not None and self.fitted.related.counts
        if stay and self._pool_points is not None:
            return self._pool_points
        rng = np.random.default_rng((seed, 0 if stay else self.fitted.learned_at, 1))
        if self._feasible is None:
            points = sobol_points(self._space, rng, POOL_POINTS)
        else:
            points = self._feasible.spread(seed, rng, POOL_POINTS)
        self._pool_points = points if stay else None
        return points

    def pool_at(self, points: Array) -> Pool:
        """The pool of another surrogate's points, with the posterior of this one."""
        if self._pool is None or self._pool.points is not points:
            self._pool = Pool(points)
        return self._pool

    def denoised(self, process: Process) -> tuple[NDArray[np.intp], Array]:
        """The rows with a value, best first, and the posterior mean there: their values without noise.

        At the observations the posterior mean is t - noise ∘ α, which needs no solve.
        """
        rows = self._observations.rows(State.COMPLETE)
        mean = (process.targets - (process.noise + process.known_variances) * process.alpha)[rows]
        order = np.argsort(mean, kind="stable")
        return rows[order], mean[order]

    def doubtful(self) -> bool:
        """Whether the model has found noise that no repeated evaluation has shown.

        A repeat tells whether there is noise, or a rugged objective without any. Repeats that failed count, too.
        """
        if not (self.fitted.is_noisy and self._priors.may_be_noisy):
            return False
        if self._noise_is_known() or self._noise_range()[0] >= NOISY:
            return False
        groups = self._observations.repeated
        if sum(len(group) - 1 for group in groups) >= MOST_REPEATS:
            return False
        pending = set(self._observations.unfinished.tolist())
        if any(not pending.isdisjoint(group) for group in groups):
            return False
        repeats = self._repeats(self._targets())
        return not (repeats.differ or repeats.agree)

    @property
    def is_exact(self) -> bool:
        """Whether the values are known to have no noise: the priors exclude it, or repeats have shown that."""
        repeats = self._repeats(self._targets())
        if repeats.differ or self._priors.exclude_noise:
            return not repeats.differ
        return repeats.agree and not self._observations.variances(self._observations.measured).any()

    @one_thread()
    def cut(self, row: int) -> None:
        """Take this row and all later ones out of the process, since they change; the next `sync` adds them again.

        Rows that were built together are taken out together: a part of a chunk would be rounded differently. What was
        learned stays as it is, so the process does not depend on how often it was cut.
        """
        if self._process is None or row >= self._process.n:
            return
        if row < self.fitted.built_rows:
            row = row // CHUNK_ROWS * CHUNK_ROWS
        if row == 0 or self._process.factor.refactorisations:  # the rows that remain have jitter
            self.release()
            return
        self._process.truncate(row)
        if self._pool is not None:
            self._pool.truncate(row, self.fitted.built_rows)

    def remove(self, row: int) -> None:
        """Take out a row that is removed from the observations; the rows after it move up."""
        self.cut(row)
        if row < self.fitted.built_rows:
            self.fitted = replace(self.fitted, built_rows=self.fitted.built_rows - 1)

    def discard(self) -> None:
        """Discard the process, so that the next `sync` builds it from all rows, in units of the current warping."""
        self.release()
        self.fitted = replace(self.fitted, built_rows=0, built_warping=None)

    @contextmanager
    def without_changes(self) -> Iterator[None]:
        """Undo at the end what this block learns: when the kernel is learned must depend only on `ask`."""
        before = self.fitted, self._process, self._pool
        try:
            yield
        finally:
            self.fitted, self._process, self._pool = before

    def release(self) -> None:
        """Give the memory of the process back. The next use builds it again, to the same numbers."""
        self._process = self._pool = None

    def restore(self, fitted: Fitted) -> None:
        """Continue with parameters that were learned before, unless the earlier tasks are others now."""
        tasks = 0 if fitted.related is None else len(fitted.related.weights)
        others = tasks != (0 if self.earlier is None else len(self.earlier))
        if fitted.is_noisy and self._priors.exclude_noise:  # it was learned before the objective was called exact
            fitted = replace(fitted, noise=self._prior_noise, learned_at=0, built_rows=0)
        self.fitted = replace(fitted, related=None, related_at=0, learned_at=0, built_rows=0) if others else fitted
        self._process = self._pool = None

    # --------------------------------------------------------------- private

    def _begun(self) -> Process:
        """A process without rows. It is built from all rows at once, or from those that it was built from before."""
        n = len(self._observations)
        if not self.fitted.built_rows:
            self.fitted = replace(self.fitted, built_rows=n, built_warping=self.fitted.warping)
        elif self.fitted.built_rows > n:  # another process, which has learned this, may have had more rows
            self.fitted = replace(self.fitted, built_rows=n)
        return Process(self.fitted.kernel, self.fitted.noise, self._prior_mean())

    def _extend(self, process: Process, targets: Array) -> None:
        """Add the rows that a process lacks: in chunks those that it was built from, one by one the later ones."""
        for rows in groups_of_rows(process.n, len(self._observations), self.fitted.built_rows):
            points, variances = self._rows(rows), self._target_variances(rows)
            if rows.start < self.fitted.built_rows:
                process.append(points, targets[rows], variance=variances)
            else:
                process.append_alone(points[0], targets[rows.start], variance=variances[0])

    def _must_relate(self, count: int) -> bool:
        """Whether to compare so many values with the earlier tasks although the kernel is not learned."""
        grown = count > RELATE_GROWTH * self.fitted.related_at if self._lag is None else count < 2
        return self.fitted.related is None or (grown and count != self.fitted.related_at)

    def _relate(self, earlier: EarlierTasks, targets: Array, rows: NDArray[np.intp]) -> None:
        """Compare the values with the earlier tasks, and discard the process with the old prior mean."""
        points = self._rows(rows)
        related = earlier.related(points, targets[rows], self._means_at(earlier, points))
        self.fitted = replace(self.fitted, related=related, related_at=len(rows))
        self.discard()

    def _means_at(self, earlier: EarlierTasks, points: Array) -> Array:
        """The means of the earlier tasks at some rows, (M, n); each is computed once."""
        keys = [point.tobytes() for point in points]
        for point, key in zip(points, keys, strict=True):
            if key not in self._earlier_means:
                self._earlier_means[key] = earlier.means(point[None])[:, 0]
        return np.array([self._earlier_means[key] for key in keys]).reshape(len(keys), len(earlier)).T

    def _prior_mean(self) -> PriorMean | None:
        related = self.fitted.related
        return None if self.earlier is None or related is None or not related.counts else self.earlier.prior(related)

    def _learn(self, targets: Array, rows: NDArray[np.intp]) -> None:
        """Learn from the evaluations with a value, and discard the process of the old parameters."""
        variances = self.warping.variances(self._observations.variances(rows))
        data = Data(self._rows(rows), targets[rows], variances)
        priors = self._priors.given(self._repeats(targets)).within(*self._noise_range())
        if self._noise_is_known():
            priors = replace(self._priors, noisy_odds=0.0)
        related, earlier = self.fitted.related, self.earlier
        if related is not None and earlier is not None:
            expected = related.offset + related.weights @ self._means_at(earlier, data.x)
            data = data._replace(targets=data.targets - expected)
            priors = priors.like_others(earlier.learned.kernel, related.residual)
        first = self.fitted.learned_at == 0
        learned = maximum_a_posteriori(data, self.fitted.kernel, self.fitted.noise, priors, first=first)
        self.fitted = replace(self.fitted, kernel=learned.kernel, noise=learned.noise, learned_at=len(rows))
        self.discard()

    def _repeats(self, targets: Array) -> Repeats:
        """What repeated evaluations show. Failures and forecasts do not count."""
        groups = self._observations.repeated
        if not groups:
            return Repeats()
        measured = np.full(len(targets), np.nan)
        rows = self._observations.measured
        measured[rows] = targets[rows]
        return repeats_of(measured, groups)

    def _noise_range(self) -> tuple[float, float]:
        """The least and the most noise of measured values, in units of the targets²."""
        if self.fitted.noise_range is None:
            return 0.0, np.inf
        least, most = self.warping.variances(np.array(self.fitted.noise_range)).tolist()
        return least, most

    def _noise_is_known(self) -> bool:
        """Whether the noise of most measured values is known: then hardly any is left to learn.

        Forecasts do not count. Their variances say how much a curve leaves open, not how noisy its end is.
        """
        variances = self._observations.variances(self._observations.measured)
        return bool(2 * np.count_nonzero(variances) > len(variances))

    def _is_rescaled(self) -> bool:
        """Whether the units of known variances in the built process differ too much from the current warping."""
        built = self.fitted.built_warping
        if built is None or not self._observations.variances().any():
            return False
        return abs(self.warping.log_slope - built.log_slope) > math.log(RESCALE)

    def _rows(self, rows: slice | NDArray[np.intp]) -> Array:
        """The points of some rows, as the process has them."""
        return self._space.as_rows(self._observations.points(rows))

    def _target_variances(self, rows: slice) -> Array:
        """Known variances of some rows in units of the targets² of the built process; failures have no value."""
        assert self.fitted.built_warping is not None, "the process was built"
        known = self.fitted.built_warping.variances(self._observations.variances(rows))
        failed = self._failed()
        if len(failed):
            without = np.zeros(len(self._observations), dtype=bool)
            without[failed] = True
            without[self._failed_repeats()] = False
            known[without[rows]] = NO_VALUE
        return known

    def _failed(self) -> NDArray[np.intp]:
        return self._observations.rows(State.FAILED)

    def _failed_repeats(self) -> NDArray[np.intp]:
        """The rows that failed at a point where an earlier one has a value."""
        if not len(self._failed()):
            return np.zeros(0, dtype=np.intp)
        failed, complete = (set(self._observations.rows(state).tolist()) for state in (State.FAILED, State.COMPLETE))
        found = [
            row
            for group in self._observations.repeated
            for i, row in enumerate(group)
            if row in failed and not complete.isdisjoint(group[:i])
        ]
        return np.array(found, dtype=np.intp)

    def _targets(self) -> Array:
        """The targets of all rows: warped values, NaN for pending rows.

        A repeat that failed has the worst value. Other failures say nothing about values (`_target_variances`); where
        evaluations fail is learned beside them (`lazybo.search.failures`).
        """
        complete = self._observations.rows(State.COMPLETE)
        values, count = self._observations.values[complete], len(complete)
        if self.fitted.warping is None or count > self.fitted.warped_at * (1 + REWARP_GROWTH):
            measured = self._observations.measured
            to_fit = self._observations.values[measured] if len(measured) >= MEASURED else values
            self.fitted = replace(self.fitted, warping=self._make_warping(to_fit), warped_at=count)
        warped = self.warping(values)
        targets = np.full(len(self._observations), np.nan)
        targets[complete] = warped
        targets[self._failed()] = 0.0
        targets[self._failed_repeats()] = warped.max(initial=-np.inf)
        return targets


def _usable(kernel: Kernel) -> Kernel:
    """The kernel itself; a ValueError if its parameters are so extreme that covariances overflow."""
    extreme = [value for value in kernel.values.tolist() if not SMALLEST <= value <= LARGEST]
    if extreme:
        raise ValueError(f"the parameters of the kernel must be from {SMALLEST:g} to {LARGEST:g}, not {extreme[0]}")
    return kernel


def _first(chosen: Kernel, given: str | Kernel | None, noise: float | None, priors: Priors) -> Fitted:
    """The start: a kernel object as it was given, or a kernel chosen by name with the medians of the priors."""
    median, median_noise = prior_kernel(chosen, priors)
    first = median if given is None or isinstance(given, str) else _usable(chosen)
    return Fitted(first, median_noise if noise is None else positive("noise", noise))
