"""Forecasts of where learning curves end, by a Gaussian process of all curves seen so far.

======  ==========================================================================================  ========
symbol  meaning                                                                                     shape
======  ==========================================================================================  ========
p       position of a step: 1, 2, … for steps at the smallest distance seen                         scalar
t, T    log p, and log p of the last step                                                           scalar
m       how many curves the process was learned from                                                scalar
τ       scales: how much a curve changes, compared with what the process expects                    (s,)
π       how many curves have each scale, as shares                                                  (s,)
ρ       the same for one curve, given its values                                                    (s,)
======  ==========================================================================================  ========

Values are warped as ends are spread, since ends are what is forecast; values far outside are compressed. Of each curve
some ten values are kept, at geometrically growing steps.

Some trainings hardly change and some change a lot, so one variance does not fit all. The innovations of a curve (its
values minus what was predicted from those before, in standard deviations) are normal with deviation τ; τ is one of
`SCALES`, with shares π that are learned from all curves. A forecast is a mixture of normal distributions: one mean,
the deviations τ σ, the weights ρ ∝ π Π N(innovation; 0, τ²).

Everything here depends only on the curves and their order, not on when forecasts were asked for.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from lazybo.blas import one_thread
from lazybo.checks import Array
from lazybo.model.curves import CurveKernel, CurveProcess, Rows, learn
from lazybo.model.kernels import Column
from lazybo.model.targets import Warping, warping

# Positions that are kept grow by this factor.
THINNING = 1.5
# The process is learned again when the number of curves has grown by this factor, from at most so many rows.
GROWTH = 1.2
LEARN_ROWS = 300
# Fewer completed curves than this give no forecast. The warping is fitted to at least WARPED curves: the longest.
MIN_COMPLETE = 2
WARPED = 5
# Warped values beyond this are compressed to the logarithm.
LINEAR = 3.0
SCALES = 2.0 ** np.arange(-8, 3.0)
# Curves that each scale has before any is seen.
SCALE_PRIOR = 0.2
EM_STEPS = 30
BLOCK_ROWS = 512


class Curve(NamedTuple):
    """A learning curve: its configuration as a row of the kernel, (d,), and its values by step. Small is good.

    ``complete`` says that its last value is where it ends. Values that are not finite count as the worst seen.
    """

    x: Array
    values: Mapping[int, float]
    complete: bool


class Forecast(NamedTuple):
    """Where a curve ends: a mixture of normal distributions of the warped value, with one mean."""

    mean: float
    deviations: Array
    weights: Array
    targets: "Targets"

    @property
    def value(self) -> float:
        """The median, in the units of the values."""
        return float(self.targets.inverse(np.array(self.mean)))

    @property
    def variance(self) -> float:
        """The variance, in the units of the values: by the values one standard deviation to either side."""
        deviation = math.sqrt(float(self.weights @ self.deviations**2))
        low, high = self.targets.inverse(self.mean + deviation * np.array([-1.0, 1.0]))
        return min(float(high / 2 - low / 2), 1e150) ** 2

    def below(self, value: float) -> float:
        """The probability that the curve ends below a value."""
        return float(self.weights @ ndtr((self._warped(value) - self.mean) / self.deviations))

    def improvement(self, value: float) -> float:
        """The expected improvement on a value, in units of the warped values."""
        gap = self._warped(value) - self.mean
        z = gap / self.deviations
        density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return float(self.weights @ (gap * ndtr(z) + self.deviations * density))

    def _warped(self, value: float) -> float:
        return float(self.targets(np.array([value]))[0])


class Targets(NamedTuple):
    """From values to targets of the process: warped, then compressed far outside; not finite: the worst."""

    warping: Warping
    worst: float

    def __call__(self, values: Array) -> Array:
        """Targets of values, (n,)."""
        known = np.isfinite(values)
        targets = np.full(len(values), self.worst)
        targets[known] = np.minimum(_compressed(self.warping(values[known])), self.worst)
        return targets

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

    ``max_step`` is the step at which curves end; None: the largest seen.
    """

    def __init__(self, columns: Sequence[Column], *, max_step: int | None = None) -> None:
        self._columns = columns
        self._max_step = max_step
        self._curves: list[Curve] = []
        self.learned_at = 0  # m
        self._fitted: _Fitted | None = None
        self._forecasts: dict[int, Forecast] = {}

    def __len__(self) -> int:
        return len(self._curves)

    def add(self, curve: Curve) -> int:
        """Add a curve that has ended; gives its number."""
        self._curves.append(curve)
        return len(self._curves) - 1

    @one_thread()
    def forecasts(self) -> dict[int, Forecast]:
        """By number, where the curves that did not complete would have ended. Empty while too few have completed.

        A forecast changes only when the process is learned again (`learned_at`).
        """
        self._sync()
        return self._forecasts

    @one_thread()
    def forecast(self, curve: Curve) -> Forecast | None:
        """Where another curve will end; None while too few have completed. The curve is not added."""
        fitted = self._sync()
        if fitted is None or not curve.values:
            return None
        n = fitted.process.n
        try:
            rows = fitted.append(curve, len(self._curves))
            return fitted.ends([(curve, len(self._curves), rows)])[0]
        finally:
            fitted.process.truncate(n)

    @one_thread()
    def unseen(self, x: Array) -> list[Forecast]:
        """Where trainings of configurations (m, d) that have not begun will end; empty while too few have completed."""
        fitted = self._sync()
        if fitted is None:
            return []
        points = Rows(x, np.full(len(x), fitted.clock.end), np.full(len(x), len(self._curves)))
        means, variances = fitted.process.posterior(points)
        deviations = np.sqrt(variances + fitted.process.kernel.noise)
        return [Forecast(float(m), d[None], np.ones(1), fitted.targets) for m, d in zip(means, deviations, strict=True)]

    def left(self, curve: Curve) -> float:
        """The share of the steps of a curve that are left."""
        fitted = self._sync()
        if fitted is None:
            return 1.0
        done, all_of_them = math.exp(fitted.clock(max(curve.values))), math.exp(fitted.clock.end)
        return max(1.0 - done / all_of_them, 0.0)

    def _sync(self) -> "_Fitted | None":
        m = learn_point(len(self._curves))
        if m != self.learned_at:
            self.learned_at, self._forecasts = m, {}
            curves = self._curves[:m]
            complete = sum(curve.complete for curve in curves)
            self._fitted = _fitted(curves, self._columns, self._max_step) if complete >= MIN_COMPLETE else None
            if self._fitted is not None:
                self._forecast(range(m))
        if self._fitted is not None:
            for i in range(len(self._fitted.rows), len(self._curves)):
                self._fitted.rows.append(self._fitted.append(self._curves[i], i))
                self._forecast([i])
        return self._fitted

    def _forecast(self, numbers: Sequence[int]) -> None:
        assert self._fitted is not None
        open_ones = [i for i in numbers if not self._curves[i].complete]
        asked = [(self._curves[i], i, self._fitted.rows[i]) for i in open_ones]
        self._forecasts.update(zip(open_ones, self._fitted.ends(asked), strict=True))


def learn_point(n: int) -> int:
    """The last number of curves up to n at which the process is learned: 1, 2, … and then growing by `GROWTH`."""
    m = 0
    while (after := max(m + 1, math.ceil(m * GROWTH - 1e-9))) <= n:
        m = after
    return m


class _Fitted:
    """A process of curves with what is learned beside its kernel: positions of steps, targets, shares of scales."""

    def __init__(self, clock: "_Clock", targets: Targets, kernel: CurveKernel) -> None:
        self.clock, self.targets = clock, targets
        self.process = CurveProcess(kernel)
        self.shares = np.full(len(SCALES), 1.0 / len(SCALES))
        self.rows: list[slice] = []  # of each curve

    def append(self, curve: Curve, number: int) -> slice:
        """Add the rows of a curve."""
        rows, targets = table([curve], [number], self.clock, self.targets)
        start = self.process.n
        self.process.append(rows, targets)
        return slice(start, self.process.n)

    def learn_shares(self) -> None:
        """π by expectation maximisation over all curves."""
        logs = np.array([self._log_likelihood(rows) for rows in self.rows])
        for _ in range(EM_STEPS):
            logits = logs + np.log(self.shares)
            weights = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
            self.shares = (weights.sum(axis=0) + SCALE_PRIOR) / (len(logs) + SCALE_PRIOR * len(SCALES))

    def ends(self, asked: Sequence[tuple[Curve, int, slice]]) -> list[Forecast]:
        """Forecasts of curves with their numbers and rows."""
        if not asked:
            return []
        at = np.array([max(self.clock.end, self.clock(max(curve.values))) for curve, _, _ in asked])
        points = Rows(np.array([curve.x for curve, _, _ in asked]), at, np.array([number for _, number, _ in asked]))
        means, variances = self.process.posterior(points)
        found = []
        for mean, variance, (_, _, rows) in zip(means, variances, asked, strict=True):
            logits = self._log_likelihood(rows) + np.log(self.shares)
            weights = np.exp(logits - logsumexp(logits))
            deviations = SCALES * math.sqrt(variance + self.process.kernel.noise)
            found.append(Forecast(float(mean), deviations, weights, self.targets))
        return found

    def _log_likelihood(self, rows: slice) -> Array:
        """log Π N(innovation; 0, τ²) of a curve, without its first value, which is the level and no change, (s,)."""
        innovations = self.process.innovations[rows][1:]
        return -0.5 * float(innovations @ innovations) / SCALES**2 - len(innovations) * np.log(SCALES)


class _Clock(NamedTuple):
    """Log positions of steps."""

    first: int
    stride: int
    end: float = 0.0

    def __call__(self, step: int) -> float:
        return math.log(max((step - self.first) / self.stride, 0.0) + 1.0)


def _clock(curves: Sequence[Curve], max_step: int | None) -> _Clock:
    steps = sorted({step for curve in curves for step in curve.values})
    stride = min((b - a for a, b in zip(steps, steps[1:], strict=False)), default=1)
    clock = _Clock(steps[0], stride)
    return clock._replace(end=clock(steps[-1] if max_step is None else max_step))


def _fitted(curves: Sequence[Curve], columns: Sequence[Column], max_step: int | None) -> _Fitted:
    """The process of these curves."""
    clock = _clock(curves, max_step)
    targets = _targets(curves)
    numbers = range(len(curves))
    rows, values = table(curves, numbers, clock, targets)
    chosen = np.isin(rows.curve, _to_learn_from(np.bincount(rows.curve)))
    kernel = learn(CurveKernel.prior(columns), rows.part(chosen), values[chosen])
    fitted = _Fitted(clock, targets, kernel)
    for start in range(0, len(values), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        fitted.process.append(rows.part(block), values[block])
    stops = np.cumsum(np.bincount(rows.curve))
    fitted.rows = [slice(a, b) for a, b in zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True)]
    fitted.learn_shares()
    return fitted


def _to_learn_from(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """The numbers of the curves to learn from, by their numbers of rows: half of the rows from the longest curves."""
    if counts.sum() <= LEARN_ROWS:
        return np.arange(len(counts))
    longest = np.argsort(-counts, kind="stable")
    half = int(np.searchsorted(np.cumsum(counts[longest]), LEARN_ROWS / 2)) + 1
    others = np.random.default_rng(len(counts)).permutation(longest[half:])
    left = LEARN_ROWS - counts[longest[:half]].sum()
    return np.concatenate((longest[:half], others[: np.searchsorted(np.cumsum(counts[others]), left)]))


def _targets(curves: Sequence[Curve]) -> Targets:
    """The warping of ends, and the worst target of any value."""
    by_length = sorted(curves, key=lambda curve: (curve.complete, max(curve.values)), reverse=True)
    count = max(WARPED, sum(curve.complete for curve in curves))
    ends = np.array([curve.values[max(curve.values)] for curve in by_length[:count]])
    values = np.array([value for curve in curves for value in curve.values.values()])
    bend = warping(ends[np.isfinite(ends)])
    worst = _compressed(bend(values[np.isfinite(values)])).max(initial=0.0)
    return Targets(bend, max(float(worst), LINEAR))


def table(curves: Sequence[Curve], numbers: Sequence[int], clock: _Clock, targets: Targets) -> tuple[Rows, Array]:
    """The rows of curves that are kept, and their targets."""
    kept = [kept_steps(curve, clock) for curve in curves]
    counts = [len(steps) for steps in kept]
    t = [clock.end if at is None else at for steps in kept for _, at in steps]
    values = [curve.values[step] for curve, steps in zip(curves, kept, strict=True) for step, _ in steps]
    x = np.repeat([curve.x for curve in curves], counts, axis=0)
    return Rows(x, np.array(t), np.repeat(numbers, counts)), targets(np.array(values))


def kept_steps(curve: Curve, clock: _Clock) -> list[tuple[int, float | None]]:
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
