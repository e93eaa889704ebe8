"""The model of one output: a Gaussian process that follows the records.

The kernel is learned when the lag says so (`Surrogate.learn`). Until then, new rows are appended to the process in
O(n²) each. New or changed values only change the right-hand side and need no factorisation. Reading the model
(`Surrogate.current`) changes nothing: if learning is due, it returns what `learn` would keep.

A restored surrogate gives the same numbers as the original, to the last bit. So every number here depends only on the
records and on `Fitted`, not on earlier calls: the process is *built* in chunks from the rows that existed when it was
learned, and later rows are appended one by one.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from lazybo.core import Array, one_thread
from lazybo.gp import (
    EarlierTasks,
    Fitted,
    Learner,
    Posterior,
    Priors,
    Process,
    Warping,
)
from lazybo.search.output import Learning, Output
from lazybo.search.records import Index
from lazybo.search.results import State
from lazybo.space import FeasibleSet, Space

# The points of the pool: they are spread over the space, and their posterior is updated as the factor grows.
POOL_POINTS = 512
# The warping is fitted again when the number of values has grown by this share.
REWARP_GROWTH = 0.02
# With this many measured values, the warping is fitted to them only: forecasts of trainings that were stopped early are
# often nearly equal, and would hide how the measured values are spread.
MEASURED = 5
# If there are known variances, the process is rebuilt when the slope of the warping has changed by this factor.
RESCALE = 2.0
# At most this many evaluations are repeated to find out whether there is noise: enough if values are discrete, too.
MOST_REPEATS = 3
# If the kernel is never learned, the values are compared with earlier tasks when they have grown by this factor.
RELATE_GROWTH = 1.25
# With more values the kernel is not learned more often than the lag says: factoring K takes more than a second.
FRESH_VALUES = 2000
# The particles are drawn again when the number of values has grown by STALE_GROWTH, and before that when they no longer
# explain the new values (`Posterior.explains`); but not before it has grown by FRESH_GROWTH. If no kernel suits the
# values, each new one is a surprise.
FRESH_GROWTH, STALE_GROWTH = 1.05, 1.1


@dataclass(frozen=True)
class Current:
    """A surrogate with all rows of its output, as the next suggestion needs it."""

    output: Output
    fitted: Fitted
    targets: Array
    priors: Priors
    posterior: Posterior

    @property
    def process(self) -> Process:
        """The process with the most probable parameters."""
        return self.posterior.leading

    @property
    def warping(self) -> Warping:
        """The warping from values to targets."""
        assert self.fitted.warping is not None, "values are warped before they are used"
        return self.fitted.warping

    @property
    def threshold(self) -> float:
        """The largest feasible value of the output, as a target."""
        return float(self.warping(np.array([self.output.threshold]))[0])

    @property
    def forecasts(self) -> Index:
        """The rows whose value is a forecast."""
        return np.setdiff1d(self.output.rows(State.COMPLETE), self.output.measured)

    def denoised(self) -> tuple[Index, Array]:
        """The rows with a value, best first, and the posterior mean there: their values without noise."""
        rows = self.output.rows(State.COMPLETE)
        mean = self.posterior.smoothed()[rows]
        order = np.argsort(mean, kind="stable")
        return rows[order], mean[order]

    def means(self) -> Array:
        """The values without noise of all rows, NaN where there is none, (n,)."""
        found = np.full(len(self.output.records), np.nan)
        rows, means = self.denoised()
        found[rows] = means
        return found

    @property
    def is_doubtful(self) -> bool:
        """Whether the model has found noise that no repeated evaluation has shown.

        A repeat tells whether there is noise, or a rugged objective without any. Repeats that failed count, too.
        """
        if not (self.fitted.is_noisy and self.priors.may_be_noisy):
            return False
        if self.output.noise_is_known() or self.fitted.noise_limits()[0] >= Priors.NOISY:
            return False
        groups = self.output.repeated
        if sum(len(group) - 1 for group in groups) >= MOST_REPEATS:
            return False
        pending = set(self.output.unfinished.tolist())
        if any(not pending.isdisjoint(group) for group in groups):
            return False
        return self._noise_shown is None

    @property
    def is_exact(self) -> bool:
        """Whether the values are known to have no noise: the priors exclude it, or repeats have shown that."""
        if self._noise_shown or self.priors.exclude_noise:
            return not self._noise_shown
        return self._noise_shown is False and not self.output.variances(self.output.measured).any()

    @property
    def _noise_shown(self) -> bool | None:
        """Whether repeated evaluations have shown noise, or that there is none (False)."""
        return self.priors.noise_shown(_measured(self.output, self.targets), self.output.repeated)


class Surrogate:
    """The model of one output. ``fitted`` is what it has learned; only `learn` changes it, and what users correct."""

    def __init__(
        self,
        space: Space,
        output: Output,
        learning: Learning,
        feasible: FeasibleSet | None = None,
        earlier: EarlierTasks | None = None,
    ) -> None:
        learning = output.learning(learning)
        self._space, self.output, self._feasible, self.earlier = space, output, feasible, earlier
        self._warping, self._thins, self._priors = learning.warping, learning.thins, learning.priors or Priors()
        self._learner = Learner(self._priors, learning.lag, learning.particles)
        self._earlier_means: dict[bytes, Array] = {}
        self._pool_points: Array | None = None
        self.fitted = self.prior = Fitted.start(learning.kernel, space.points.columns, learning.noise, self._priors)
        self._built: Posterior | None = None
        self._read: tuple[tuple[int, bool], Current] | None = None  # of which version of the records

    @property
    def learns(self) -> bool:
        """Whether the kernel and the noise are learned at all."""
        return self._learner.lag is not None

    def learn(self, *, fresh: bool = False) -> None:
        """Learn what is due, and keep it.

        With ``fresh`` the kernel is due after every new value, unless there are very many: `FRESH_VALUES`.
        """
        now = self.current(fresh=fresh)
        self.fitted, self._built = now.fitted, now.posterior
        self._read = (self.output.records.version, False), now

    def current(self, *, fresh: bool = False) -> Current:
        """The model with all rows and their current values, as `learn` would keep it. This changes nothing."""
        key = self.output.records.version, fresh
        if self._read is None or self._read[0] != key:
            self._read = key, self._updated(fresh)
        return self._read[1]

    def spread(self, now: Current, seed: int) -> Array:
        """Points spread over the space, or over its feasible part. They change whenever the kernel is learned.

        While earlier tasks count they stay the same: their means there take a while.
        """
        if now.posterior.pool is not None:
            return now.posterior.pool.points
        stay = now.fitted.related is not None and now.fitted.related.counts
        if stay and self._pool_points is not None:
            return self._pool_points
        rng = np.random.default_rng((seed, 0 if stay else now.fitted.learned_at, 1))
        if self._feasible is None:
            points = self._space.points.spread(rng, POOL_POINTS)
        else:
            points = self._feasible.spread(seed, rng, POOL_POINTS)
        self._pool_points = points if stay else None
        return points

    # ---------------------------------------------------------------- change

    @one_thread()
    def cut(self, row: int) -> None:
        """Take this row and all later ones out of the process, since they change; they are appended again later.

        Rows that were built together are taken out together: a part of a chunk would be rounded differently. What was
        learned stays as it is, so the process does not depend on how often it was cut.
        """
        self._read = None
        if self._built is None or row >= self._built.leading.n:
            return
        first = self._built.first(row)
        if first.leading.n == 0 or any(first.particles.refactorisations):  # also in the rows that remain
            self.release()
        else:
            self._built = first

    def remove(self, row: int) -> None:
        """Take out a row that is removed from the records; the rows after it move up."""
        self.cut(row)
        if row < self.fitted.built_rows:
            self.fitted = replace(self.fitted, built_rows=self.fitted.built_rows - 1)

    def revise(self, noise_range: tuple[float, float] | None) -> None:
        """Build the process again from all rows, since their values have changed, with another ``noise_range``."""
        self.release()
        self.fitted = self.fitted.unbuilt(noise_range=noise_range)

    def release(self) -> None:
        """Give the memory of the process back. The next use builds it again, to the same numbers."""
        self._built = self._read = None

    def restore(self, fitted: Fitted) -> None:
        """Continue with parameters that were learned before, unless the earlier tasks are others now."""
        tasks = 0 if fitted.related is None else len(fitted.related.weights)
        others = tasks != (0 if self.earlier is None else len(self.earlier))
        if fitted.is_noisy and self._priors.exclude_noise:  # it was learned before the objective was called exact
            fitted = replace(fitted, noise=self.prior.noise, others=(), learned_at=0, built_rows=0)
        self.fitted = replace(fitted, related=None, related_at=0, learned_at=0, built_rows=0) if others else fitted
        self.release()

    # --------------------------------------------------------------- private

    def _updated(self, fresh: bool) -> Current:
        """The model with what is due learned, and with all rows."""
        fitted = self._warped(self.fitted)
        targets, complete = self._targets(fitted), self.output.rows(State.COMPLETE)
        always = fresh and self.learns and len(complete) <= FRESH_VALUES
        due = self._learner.is_due(fitted.learned_at, len(complete), always=always)
        # Forecasts change between two suggestions, and a resumed run does not see what they were.
        settled = len(self.output.measured) == len(complete)
        if due and settled and fitted.others and not always:
            due = len(complete) >= STALE_GROWTH * fitted.learned_at
        if self.earlier is not None and (due or self._must_relate(fitted, len(complete))):
            fitted = self._related(self.earlier, fitted, targets, complete)
        if due:
            return self._relearned(fitted, targets, complete)
        if self._is_rescaled(fitted):
            fitted = fitted.unbuilt()
        now = self._with_rows(fitted, targets)
        new = len(complete) - fitted.learned_at
        soon = new < max((FRESH_GROWTH - 1.0) * fitted.learned_at, 1)
        if soon or not settled or now.posterior.explains(new, fitted.misfit):
            return now
        return self._relearned(fitted, targets, complete)

    def _relearned(self, fitted: Fitted, targets: Array, complete: Index) -> Current:
        """The model with new particles, whose weights are those of the draws: the likelihood is divided out."""
        now = self._with_rows(self._learned(fitted, targets, complete), targets)
        if not now.fitted.others:
            return now
        logs = [each.log_weight for each in now.fitted.particles] - now.posterior.log_likelihoods
        first, *others = (
            replace(each, log_weight=log) for each, log in zip(now.fitted.particles, logs.tolist(), strict=True)
        )
        fitted = replace(now.fitted, log_prior=first.log_weight, others=tuple(others), misfit=now.posterior.misfit)
        return replace(now, fitted=fitted, posterior=now.posterior.weighted(logs.tolist()))

    def _with_rows(self, fitted: Fitted, targets: Array) -> Current:
        """The model with these parameters and all rows."""
        n = len(self.output.records)
        if not fitted.built_rows:
            fitted, built = replace(fitted, built_rows=n, built_warping=fitted.warping), None
        else:
            built = self._built
            if built is None and fitted.built_rows > n:  # another process, which has learned this, had more rows
                fitted = replace(fitted, built_rows=n)
        is_kept = built is not None
        if built is None:
            related, earlier = fitted.related, self.earlier
            prior = None if earlier is None or related is None or not related.counts else earlier.prior(related)
            built = Posterior.of(fitted.particles, prior)
        new = slice(built.leading.n, n)
        points, known = self._points(new), self._target_variances(fitted, new)
        posterior = built.updated(points, known, targets, fitted.built_rows)
        if is_kept:
            self._built = posterior  # only a cache: the next rows are appended to these
        return Current(self.output, fitted, targets, self._priors, posterior)

    def _related(self, earlier: EarlierTasks, fitted: Fitted, targets: Array, rows: Index) -> Fitted:
        """With what these rows have in common with the earlier tasks."""
        points = self._points(rows)
        related = earlier.related(points, targets[rows], self._means_at(earlier, points))
        return fitted.unbuilt(related=related, related_at=len(rows))

    def _must_relate(self, fitted: Fitted, count: int) -> bool:
        """Whether to compare this many values with the earlier tasks although the kernel is not learned."""
        grown = count > RELATE_GROWTH * fitted.related_at if not self.learns else count < 2
        return fitted.related is None or (grown and count != fitted.related_at)

    def _means_at(self, earlier: EarlierTasks, points: Array) -> Array:
        """The means of the earlier tasks at some rows, (M, n); each is computed once."""
        keys = [point.tobytes() for point in points]
        for point, key in zip(points, keys, strict=True):
            if key not in self._earlier_means:
                self._earlier_means[key] = earlier.means(point[None])[:, 0]
        return np.array([self._earlier_means[key] for key in keys]).reshape(len(keys), len(earlier)).T

    def _learned(self, fitted: Fitted, targets: Array, rows: Index) -> Fitted:
        """What is learned from the evaluations with a value: particles with their weights."""
        assert fitted.warping is not None, "values are warped before they are used"
        variances = fitted.warping.variances(self.output.variances(rows))
        points, learned = self._points(rows), targets[rows]
        priors = self._priors.given(_measured(self.output, targets), self.output.repeated).within(
            *fitted.noise_limits()
        )
        if self.output.noise_is_known():
            priors = replace(self._priors, noisy_odds=0.0)
        related, earlier = fitted.related, self.earlier
        if related is not None and earlier is not None:
            learned = learned - (related.offset + related.weights @ self._means_at(earlier, points))
            priors = priors.like_others(earlier.learned.kernel, related.residual)
        learner, first = replace(self._learner, priors=priors), fitted.learned_at == 0
        leading, *others = learner.drawn(fitted.kernel, fitted.noise, points, learned, variances, first=first)
        return fitted.unbuilt(
            kernel=leading.kernel,
            noise=leading.noise,
            log_prior=leading.log_weight,
            others=tuple(others),
            learned_at=len(rows),
        )

    def _is_rescaled(self, fitted: Fitted) -> bool:
        """Whether the units of known variances in the built process differ too much from the current warping."""
        if fitted.built_warping is None or fitted.warping is None or not self.output.variances().any():
            return False
        return abs(fitted.warping.log_slope - fitted.built_warping.log_slope) > math.log(RESCALE)

    def _points(self, rows: slice | Index) -> Array:
        """The points of some rows, as the process has them."""
        return self._space.points.as_rows(self.output.records.points(rows))

    def _target_variances(self, fitted: Fitted, rows: slice) -> Array:
        """Known variances of some rows in units of the targets² of the built process; failures have no value."""
        assert fitted.built_warping is not None, "the process was built"
        known = fitted.built_warping.variances(self.output.variances(rows))
        failed = self.output.rows(State.FAILED)
        if len(failed):
            without = np.zeros(len(self.output.records), dtype=bool)
            without[failed] = True
            without[self.output.failed_repeats()] = False
            known[without[rows]] = Posterior.NO_VALUE
        return known

    def _warped(self, fitted: Fitted) -> Fitted:
        """With the warping fitted again if there are enough new values."""
        complete = self.output.rows(State.COMPLETE)
        if fitted.warping is not None and len(complete) <= fitted.warped_at * (1 + REWARP_GROWTH):
            return fitted
        measured = self.output.measured
        rows = measured if len(measured) >= MEASURED else complete
        points = self._points(rows) if self._thins else None
        made = Warping.fit(self._warping, self.output.values[rows], points, self._space.points.columns)
        return replace(fitted, warping=made, warped_at=len(complete))

    def _targets(self, fitted: Fitted) -> Array:
        """The targets of all rows: warped values, NaN for pending rows.

        A repeat that failed has the worst value. Other failures say nothing about values (`_target_variances`); where
        evaluations fail is an output of its own.
        """
        assert fitted.warping is not None, "values are warped before they are used"
        complete = self.output.rows(State.COMPLETE)
        warped = fitted.warping(self.output.values[complete])
        targets = np.full(len(self.output.records), np.nan)
        targets[complete] = warped
        targets[self.output.rows(State.FAILED)] = 0.0
        targets[self.output.failed_repeats()] = warped.max(initial=-np.inf)
        return targets


def _measured(output: Output, targets: Array) -> Array:
    """The targets that were measured; NaN for failures and forecasts, which do not count as repeats, (n,)."""
    measured = np.full(len(targets), np.nan)
    rows = output.measured
    measured[rows] = targets[rows]
    return measured
