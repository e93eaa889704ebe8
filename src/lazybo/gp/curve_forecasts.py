"""Forecasts of where learning curves end, by a Gaussian process of all curves seen so far.

======  ==========================================================================================  ========
symbol  meaning                                                                                     shape
======  ==========================================================================================  ========
p       position of a step: 1, 2, … for steps at the smallest distance seen                         scalar
t, T    log p, and log p of the last step                                                           scalar
m       how many curves the process was learned from                                                scalar
τ       scales: how much a curve changes, compared with what the process expects                    (s,)
π       share of curves at each scale                                                               (s,)
ρ       the same for one curve, given its values                                                    (s,)
======  ==========================================================================================  ========

The warp is fitted to final values, which are what is forecast; values far outside are compressed. Before that,
the median way that completed curves still had to go is subtracted from early values, so that they are not far outside.
Of each curve some ten values are kept, at geometrically growing steps.

Some trainings hardly change and some change a lot, so one variance does not fit all. The innovations of a curve (its
values minus what was predicted from those before, in standard deviations) are normal with deviation τ; τ is one of
`SCALES`, with shares π that are learned from all curves. A forecast is a mixture of normal distributions: one mean,
the deviations τ σ, the weights ρ ∝ π [Π N(innovation; 0, τ²)]^(t/T) with t of the last value.

Everything here depends only on the curves and their order, not on when forecasts were asked for.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from lazybo.core import Array, one_thread
from lazybo.gp.kernels.base import Column
from lazybo.gp.learning_curves import CurveProcess
from lazybo.gp.targets import Warping

# Positions that are kept grow by this factor.
THINNING = 1.5
# The process is learned again when the number of curves has grown by this factor, from at most this many rows.
GROWTH = 1.2
LEARN_ROWS = 300
# Fewer completed curves than this give no forecast. The warping is fitted to at least WARPED curves: the longest.
MIN_COMPLETE = 2
WARPED = 5
# Warped values beyond this are compressed to the logarithm.
LINEAR = 10.0
SCALES = 2.0 ** np.arange(-8, 3.0)
# Curves that each scale has before any is seen. Most of them are no surer than the process: with few curves it is not
# known how sure it may be.
SCALE_PRIOR = np.where(SCALES >= 1.0, 1.0, 0.1)
EM_STEPS = 30
BLOCK_ROWS = 512
# What curves have for themselves is learned, so noise may be more by this factor.
MOST_NOISE = 2.0
# A forecast lies outside of the values seen by at most this share of their range.
BEYOND = 0.5
# Halvings to find the ends of an interval.
BISECTIONS = 50
LARGEST = float(np.finfo(np.float64).max)


class Curve(NamedTuple):
    """A learning curve: its configuration as a row of the kernel, (d,), and its values by step. Small is good.

    ``complete`` says that its last value is where it ends. Values that are not finite count as the worst seen.
    """

    x: Array
    values: Mapping[int, float]
    complete: bool


class Forecast(NamedTuple):
    """Where a curve ends: a mixture of normal distributions of the warped value, with one mean.

    ``scatter`` is the share of each variance that is noise of the last value.
    """

    mean: float
    deviations: Array
    weights: Array
    scatter: float
    targets: "CurveTargets"

    @property
    def value(self) -> float:
        """The median, in the units of the values, and not far outside of what was seen."""
        return float(np.clip(self.targets.inverse(np.array(self.mean)), self.targets.low, self.targets.high))

    @property
    def variance(self) -> float:
        """The variance of the warped value without its noise, in units of the values at the median of the ends.

        So an optimiser that warps values in the same way gets back the variance of the warped value. The variance of
        the value itself is larger where the warping is flat: a bad end may be bad or very bad, and for an optimiser
        that is the same.
        """
        return (1.0 - self.scatter) * float(self.weights @ self.deviations**2) * self.targets.unit**2

    @property
    def is_beyond(self) -> bool:
        """Whether the curve ends far outside of what was seen, so that ``value`` is only a bound."""
        return not self.targets.low <= float(self.targets.inverse(np.array(self.mean))) <= self.targets.high

    def interval(self, share: float = 0.95) -> tuple[float, float]:
        """The middle interval with this probability, in the units of the values, and not far outside of what was seen.

        The mixture has one mean, so the interval of the warped value is symmetric: mean ± h with Σ ρ (2 Φ(h/τσ) - 1) =
        share.
        """
        low, high = 0.0, 10.0 * float(self.deviations.max())
        for _ in range(BISECTIONS):
            half = (low + high) / 2
            inside = float(self.weights @ (2 * ndtr(half / self.deviations) - 1))
            low, high = (half, high) if inside < share else (low, half)
        ends = self.targets.inverse(np.array([self.mean - high, self.mean + high]))
        first, last = np.clip(ends, self.targets.low, self.targets.high).tolist()
        # An inverse rounds, so the ends of a narrow interval may be on the wrong side of the median by a rounding.
        return min(first, self.value), max(last, self.value)

    def below(self, value: float) -> float:
        """The probability that the curve ends below a value."""
        return float(self.weights @ ndtr((self._warped(value) - self.mean) / self.deviations))

    def improvement(self, value: float) -> float:
        """The expected improvement on a value, in units of the warped values. Luck at the end is no improvement."""
        deviations = math.sqrt(1.0 - self.scatter) * self.deviations
        return float(self.weights @ _improvement(self._warped(value) - self.mean, deviations))

    def _warped(self, value: float) -> float:
        return float(self.targets(np.array([value]))[0])


def _improvement(gap: Array | float, deviation: Array) -> Array:
    """E max(gap - deviation · z, 0) for a normal z."""
    z = gap / deviation
    improvement: Array = gap * ndtr(z) + deviation * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return improvement


class CurveTargets(NamedTuple):
    """From values to targets of the process: warped, then compressed far outside; not finite: the worst.

    ``low`` and ``high`` bound forecasts: a warping of a long tail ends at a finite target, and the inverse of anything
    beyond it is huge.
    """

    warping: Warping
    worst: float
    low: float
    high: float

    def __call__(self, values: Array) -> Array:
        """CurveTargets of values, (n,)."""
        known = np.isfinite(values)
        targets = np.full(len(values), self.worst)
        targets[known] = np.minimum(_compressed(self.warping(values[known])), self.worst)
        return targets

    @property
    def unit(self) -> float:
        """How much values differ if their targets differ by 1, at the median of the ends."""
        return math.exp(min(-self.warping.log_slope, 300.0))

    def inverse(self, targets: Array) -> Array:
        """Values of targets."""
        size = np.abs(targets)
        far = LINEAR - 1.0 + np.exp(np.minimum(np.maximum(size - LINEAR, 0.0), 50.0))
        return self.warping.inverse(np.where(size <= LINEAR, targets, np.sign(targets) * far))


def _compressed(warped: Array) -> Array:
    size = np.abs(warped)
    return np.where(size <= LINEAR, warped, np.sign(warped) * (LINEAR + np.log(np.maximum(size - LINEAR + 1.0, 1.0))))


class CurveModel:
    """All curves that have ended, completed or not, and a process that is learned from them when it is needed.

    A curve is given as the fields of `Curve`. ``max_step`` is the step at which curves end; None: the largest seen.
    """

    least = MIN_COMPLETE  # with fewer completed curves there are no forecasts

    def __init__(self, columns: Sequence[Column], *, max_step: int | None = None) -> None:
        self._columns = columns
        self._max_step = max_step
        self._curves: list[Curve] = []
        self._learned_at = 0  # m
        self._fitted: FittedCurves | None = None
        self._forecasts: dict[int, Forecast] = {}

    def __len__(self) -> int:
        return len(self._curves)

    @property
    def learned_at(self) -> int:
        """The number of curves that the process is learned from; all forecasts depend on them."""
        return learn_point(len(self._curves))

    def add(self, x: Array, values: Mapping[int, float], complete: bool) -> int:
        """Add a curve that has ended; gives its number."""
        self._curves.append(Curve(x, values, complete))
        return len(self._curves) - 1

    def remove(self, number: int) -> None:
        """Remove a curve; the curves after it move up. The process is learned again when it is next needed."""
        del self._curves[number]
        self._learned_at, self._fitted, self._forecasts = 0, None, {}

    def noise(self) -> tuple[float, float] | None:
        """The least and the most variance that noise may give to the end of a curve; None if it cannot be said yet.

        At least the scatter of single values. At most all that curves have for themselves: the rest is shared with
        curves of similar configurations. The units are those of the values at the median of the ends.
        """
        fitted = self._sync()
        if fitted is None:
            return None
        kernel, unit = fitted.process.kernel, fitted.targets.unit**2
        return kernel.noise * unit, MOST_NOISE * kernel.own(fitted.clock.end) * unit

    @one_thread()
    def forecasts(self) -> dict[int, Forecast]:
        """By number, where the curves that did not complete would have ended. Empty while too few have completed.

        A forecast changes only when the process is learned again (`learned_at`).
        """
        self._sync()
        return self._forecasts

    @one_thread()
    def forecast(self, x: Array, values: Mapping[int, float], complete: bool = False) -> Forecast | None:
        """Where another curve will end; None while too few have completed. The curve is not added."""
        fitted, curve = self._sync(), Curve(x, values, complete)
        if fitted is None or not curve.values:
            return None
        fitted.append(curve)
        try:
            return fitted.forecasts([len(self._curves)])[0]
        finally:
            fitted.pop()

    @one_thread()
    def improvements(self, x: Array, value: float) -> Array:
        """The improvements on a value that are expected of curves of configurations (m, d) that have not begun, (m,).

        In units of the warped values; 0 while too few curves have completed.
        """
        return self.improvements_on(x, np.full((len(x), 1), value))

    @one_thread()
    def improvements_on(self, x: Array, values: Array) -> Array:
        """The same for several values of each configuration, (m, s): the means of the improvements on them, (m,)."""
        fitted = self._sync()
        if fitted is None:
            return np.zeros(len(x))
        points = np.column_stack((x, np.full(len(x), fitted.clock.end), np.full(len(x), len(self._curves))))
        means, variances = fitted.process.posterior(points)
        gaps = fitted.targets(values.ravel()).reshape(values.shape) - means[:, None]
        return _improvement(gaps, np.sqrt(variances)[:, None]).mean(axis=1)

    def left(self, step: int) -> float:
        """The share of the steps of a curve that are left after this one."""
        fitted = self._sync()
        if fitted is None:
            return 1.0
        return max(1.0 - math.exp(fitted.clock(step) - fitted.clock.end), 0.0)

    def _sync(self) -> "FittedCurves | None":
        m = self.learned_at
        if m != self._learned_at:
            self._learned_at, self._forecasts = m, {}
            curves = self._curves[:m]
            complete = sum(curve.complete for curve in curves)
            self._fitted = FittedCurves(curves, self._columns, self._max_step) if complete >= MIN_COMPLETE else None
            if self._fitted is not None:
                self._forecast(range(m))
        if self._fitted is not None:
            for i in range(len(self._fitted), len(self._curves)):
                self._fitted.append(self._curves[i])
                self._forecast([i])
        return self._fitted

    def _forecast(self, numbers: Sequence[int]) -> None:
        assert self._fitted is not None
        unfinished = [i for i in numbers if not self._curves[i].complete]
        self._forecasts.update(zip(unfinished, self._fitted.forecasts(unfinished), strict=True))


def learn_point(n: int) -> int:
    """The last number of curves up to n at which the process is learned: 1, 2, … and then growing by `GROWTH`."""
    m = 0
    while (after := max(m + 1, math.ceil(m * GROWTH - 1e-9))) <= n:
        m = after
    return m


class Clock(NamedTuple):
    """Converts steps to t; knows how far completed curves are from their ends at some times, in the median."""

    first: int
    stride: int
    end: float = 0.0  # T
    times: tuple[float, ...] = ()
    gaps: tuple[float, ...] = ()

    def gap(self, t: Array) -> Array:
        """How far completed curves are from their ends, (n,)."""
        return np.interp(t, self.times, self.gaps) if self.times else np.zeros(len(t))

    def __call__(self, step: int) -> float:
        """t of a step."""
        return math.log(max((step - self.first) / self.stride, 0.0) + 1.0)

    def seen(self, curve: Curve) -> float:
        """How much of a curve was seen, as a share of T."""
        return 1.0 if curve.complete or self.end == 0 else min(self(max(curve.values)) / self.end, 1.0)

    def end_of(self, curve: Curve) -> float:
        """Where a curve ends: at T, or at its last value if that is later."""
        return max(self.end, self(max(curve.values)))


class FittedCurves:
    """A process of curves, and what is learned besides its kernel: positions of steps, targets, shares of scales."""

    def __init__(self, curves: Sequence[Curve], columns: Sequence[Column], max_step: int | None) -> None:
        self.clock = _clock(curves, max_step)
        self.targets = _targets(curves, self.clock)
        rows, values = table(curves, range(len(curves)), self.clock, self.targets)
        counts = np.bincount(rows[:, -1].astype(np.intp))
        chosen = np.isin(rows[:, -1], _to_learn_from(counts))
        self.process = CurveProcess.learned(columns, rows[chosen], values[chosen])
        for start in range(0, len(values), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            self.process.append(rows[block], values[block])
        self._curves, self._stops = [*curves], np.cumsum(counts).tolist()  # where the rows of each curve end
        self._learn_shares()

    def __len__(self) -> int:
        return len(self._curves)

    def append(self, curve: Curve) -> None:
        """Add a curve."""
        self.process.append(*table([curve], [len(self)], self.clock, self.targets))
        self._curves.append(curve)
        self._stops.append(self.process.n)

    def pop(self) -> None:
        """Remove the last curve, which was appended."""
        del self._curves[-1], self._stops[-1]
        self.process.truncate(self._stops[-1])

    def _learn_shares(self) -> None:
        """π by expectation maximisation over all curves."""
        self._shares = np.full(len(SCALES), 1.0 / len(SCALES))
        logs = np.array([self._log_likelihood(i) for i in range(len(self))])
        seen = [self.clock.seen(curve) for curve in self._curves]
        for _ in range(EM_STEPS):
            logits = logs + np.log(self._shares)
            weights = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
            counts = seen @ weights + SCALE_PRIOR
            self._shares = counts / counts.sum()

    def forecasts(self, numbers: Sequence[int]) -> list[Forecast]:
        """Forecasts of the ends of the curves with these numbers."""
        if not len(numbers):
            return []
        curves = [self._curves[i] for i in numbers]
        ends = [self.clock.end_of(curve) for curve in curves]
        means, variances = self.process.posterior(np.column_stack(([curve.x for curve in curves], ends, numbers)))
        totals = variances + self.process.kernel.noise
        return [
            Forecast(mean, math.sqrt(total) * SCALES, self._weights(i), self.process.kernel.noise / total, self.targets)
            for i, mean, total in zip(numbers, means.tolist(), totals.tolist(), strict=True)
        ]

    def _weights(self, number: int) -> Array:
        """ρ, (s,)."""
        logits = self._log_likelihood(number) + np.log(self._shares)
        weights: Array = np.exp(logits - logsumexp(logits))
        return weights

    def _log_likelihood(self, number: int) -> Array:
        """log Π N(innovation; 0, τ²) of a curve, (s,), without its first value, which is the level and no change.

        It counts as much as of the curve was seen, in log steps: how much a training changes from its first epoch to
        its second says little about how much it will have changed in the end.
        """
        first = self._stops[number - 1] if number else 0
        innovations = self.process.innovations[first : self._stops[number]][1:]
        log_density = -0.5 * float(innovations @ innovations) / SCALES**2 - len(innovations) * np.log(SCALES)
        log_likelihood: Array = self.clock.seen(self._curves[number]) * log_density
        return log_likelihood


def _clock(curves: Sequence[Curve], max_step: int | None) -> Clock:
    steps = sorted({step for curve in curves for step in curve.values})
    stride = min((b - a for a, b in pairwise(steps)), default=1)
    clock = Clock(steps[0], stride)
    clock = clock._replace(end=clock(steps[-1] if max_step is None else max_step))
    complete = [known for curve in curves if curve.complete and len(known := _finite(curve, clock)) > 1]
    if len(complete) < MIN_COMPLETE:
        return clock
    times = sorted({t for known in complete for t, _ in known})
    gaps = [np.interp(times, *np.array(known).T) - known[-1][1] for known in complete]
    return clock._replace(times=tuple(times), gaps=tuple(np.median(gaps, axis=0).tolist()))


def _finite(curve: Curve, clock: Clock) -> list[tuple[float, float]]:
    """The finite values of the kept steps of a completed curve, each with its t."""
    kept = [(clock.end if t is None else t, curve.values[step]) for step, t in kept_steps(curve, clock)]
    return [(t, value) for t, value in kept if math.isfinite(value)]


def _to_learn_from(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """The numbers of the curves to learn from, by their numbers of rows: half of the rows from the longest curves."""
    if counts.sum() <= LEARN_ROWS:
        return np.arange(len(counts))
    longest = np.argsort(-counts, kind="stable")
    half = int(np.searchsorted(np.cumsum(counts[longest]), LEARN_ROWS / 2)) + 1
    others = np.random.default_rng(len(counts)).permutation(longest[half:])
    left = LEARN_ROWS - counts[longest[:half]].sum()
    return np.concatenate((longest[:half], others[: np.searchsorted(np.cumsum(counts[others]), left)]))


def _targets(curves: Sequence[Curve], clock: Clock) -> CurveTargets:
    """The warping of ends, and the worst target of any value."""
    by_length = sorted(curves, key=lambda curve: (curve.complete, max(curve.values)), reverse=True)
    halfway = clock.end - math.log(2.0)
    count = max(WARPED, sum(curve.complete or clock(max(curve.values)) >= halfway for curve in curves))
    ends = np.array([curve.values[max(curve.values)] for curve in by_length[:count]])
    shifted = [
        curve.values[step] - float(clock.gap(np.array([clock(step)]))[0]) for curve in curves for step in curve.values
    ]
    values = np.array(shifted)
    values = values[np.isfinite(values)]
    bend = Warping.fit("warped", ends[np.isfinite(ends)])
    worst = _compressed(bend(values)).max(initial=0.0)
    low, high = (float(end) for end in (values.min(initial=LARGEST), values.max(initial=-LARGEST)))
    margin = BEYOND * high - BEYOND * low
    return CurveTargets(bend, max(float(worst), LINEAR), max(low - margin, -LARGEST), min(high + margin, LARGEST))


def table(curves: Sequence[Curve], numbers: Sequence[int], clock: Clock, targets: CurveTargets) -> tuple[Array, Array]:
    """The rows of curves that are kept, as `CurveProcess` has them, and their targets."""
    kept = [kept_steps(curve, clock) for curve in curves]
    counts = [len(steps) for steps in kept]
    t = [clock.end if at is None else at for steps in kept for _, at in steps]
    values = [curve.values[step] for curve, steps in zip(curves, kept, strict=True) for step, _ in steps]
    x = np.repeat([curve.x for curve in curves], counts, axis=0)
    times = np.array(t)
    return np.column_stack((x, times, np.repeat(numbers, counts))), targets(np.array(values) - clock.gap(times))


def kept_steps(curve: Curve, clock: Clock) -> list[tuple[int, float | None]]:
    """The steps of a curve that are rows, with their t; always the last one. None: the end of a completed curve."""
    kept: list[tuple[int, float | None]] = []
    following = 0.0
    last = max(curve.values)
    for step in sorted(curve.values):
        t = clock(step)
        if step == last:
            kept.append((step, None if curve.complete else t))
        elif t >= following and (not curve.complete or t < clock.end):
            kept.append((step, t))
            following = max(t + math.log(THINNING) - 1e-9, math.log(math.exp(t) + 1) - 1e-9)
    return kept
