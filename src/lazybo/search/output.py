"""Outputs: what evaluations show, each with its own model: objectives, measured constraints, failures, the cost.

An output is a view of the records: which rows have a value, the values, their known variances. It says with which
warping and priors it is learned. A row without a value is pending in the model of that output.

Failures are labels: 1 for an evaluation that failed, 0 for one with a value. They have a process of their own, a
regression: new labels are cheap rows, while a classifier would factor K again for each of them. With t the scaled ½,
P(success) = Φ((t - μ) / σ) is the probability that less than half of the evaluations at a point fail. The labels are
scaled to mean 0 and variance 1, so far from all evaluations it follows from the share of failures: about 0.98 if 5 %
have failed, and 0.67 if 30 % have.

The labels have noise (`LABELS`). Without it, a region that always fails would be a step, which a smooth kernel follows
only with length scales near 0. With it the border is somewhat blurred, and random crashes are noise: P(success) is near
1 everywhere and does not change what is suggested.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from lazybo.core import Array, Lag
from lazybo.gp import Kernel, Priors
from lazybo.search.records import Index, Records
from lazybo.search.results import State

# The noise of the labels, in units of their variance: not small, and the length scales vary less than those of values.
LABELS = Priors(noise=0.2, noise_spread=0.5, length_scale_spread=0.5, noisy_odds=0.0)
# The factors of the caution after an evaluation, and its limit.
AFTER_FAILURE = 2.0
AFTER_SUCCESS = 2.0 ** (-1.0 / 3.0)
MOST_CAUTION = 64.0


@dataclass(frozen=True)
class Learning:
    """How the model of an output is learned: these are options of the optimiser, which an output may change.

    If ``thins``, crowded points count less in the warping. At most this many ``particles`` are drawn.
    """

    lag: Lag
    kernel: str | Kernel | None
    noise: float | None
    priors: Priors | None
    warping: str
    thins: bool = True
    particles: int = 1


@dataclass(frozen=True)
class Output(ABC):
    """What evaluations show, as its model sees it. Where it is not known, a row is pending.

    ``threshold`` is the largest value that is feasible, if the output limits what is feasible.
    """

    records: Records
    threshold = 0.0

    @property
    @abstractmethod
    def values(self) -> Array:
        """The values, NaN where there is none, (n,)."""

    def learning(self, given: Learning) -> Learning:
        """How this output is learned, given the options."""
        return given

    def rows(self, state: State) -> Index:
        """The rows in this state; never FAILED here."""
        missing = np.isnan(self.values)
        return np.flatnonzero({State.COMPLETE: ~missing, State.PENDING: missing}.get(state, np.zeros(0, dtype=bool)))

    @property
    def measured(self) -> Index:
        """The complete rows whose value is a measurement, not a forecast."""
        return self.rows(State.COMPLETE)

    @property
    def unfinished(self) -> Index:
        """The rows whose evaluation has not ended, also those with a forecast."""
        return self.rows(State.PENDING)

    def variances(self, rows: slice | Index = slice(None)) -> Array:
        """The known variances of some rows: none is known."""
        return np.zeros(len(np.arange(len(self.records))[rows]))

    @property
    def repeated(self) -> list[list[int]]:
        """The rows at each point that has several."""
        return self.records.places.repeated

    def failed_repeats(self) -> Index:
        """The rows that failed at a point where an earlier one has a value."""
        if not len(self.rows(State.FAILED)):
            return np.zeros(0, dtype=np.intp)
        failed, complete = (set(self.rows(state).tolist()) for state in (State.FAILED, State.COMPLETE))
        found = [
            row
            for group in self.repeated
            for i, row in enumerate(group)
            if row in failed and not complete.isdisjoint(group[:i])
        ]
        return np.array(found, dtype=np.intp)

    def noise_is_known(self) -> bool:
        """Whether the noise of most measured values is known: then hardly any is left to learn.

        Forecasts do not count. Their variances say how much a curve leaves open, not how noisy its end is.
        """
        variances = self.variances(self.measured)
        return bool(2 * np.count_nonzero(variances) > len(variances))


@dataclass(frozen=True)
class Objective(Output):
    """One objective. An evaluation with a forecast of it counts as complete."""

    index: int = 0

    @property
    def values(self) -> Array:
        return self.records.values(self.index)

    def rows(self, state: State) -> Index:
        """The rows in this state: failed, complete with a value, or pending without one."""
        if state is State.FAILED:
            return self.records.rows(state)
        open_rows = np.concatenate((self.unfinished, self.records.rows(State.STOPPED)))
        if not len(open_rows):
            return self.records.rows(state)
        forecast = ~np.isnan(self.values[open_rows])
        if state is State.PENDING:
            return np.sort(open_rows[~forecast])
        return np.sort(np.concatenate((self.measured, open_rows[forecast])))

    @property
    def measured(self) -> Index:
        return self.records.rows(State.COMPLETE)

    @property
    def unfinished(self) -> Index:
        return self.records.rows(State.PENDING)

    def variances(self, rows: slice | Index = slice(None)) -> Array:
        return self.records.variances(rows, self.index)


@dataclass(frozen=True)
class Constraint(Output):
    """A measured constraint, which is satisfied if it is at most 0."""

    name: str = ""

    @property
    def values(self) -> Array:
        return self.records.violations[self.name]


@dataclass(frozen=True)
class Cost(Output):
    """The logarithm of the cost.

    A failed evaluation counts only if it cost more than all others, as one that ran into a timeout does. One that broke
    down after a second says little about what an evaluation costs there.
    """

    @property
    def values(self) -> Array:
        costs, failed = self.records.costs, self.records.rows(State.FAILED)
        largest = np.nanmax(np.delete(costs, failed), initial=0.0)
        costs[failed[~(costs[failed] > largest)]] = np.nan
        return np.log(costs)

    def learning(self, given: Learning) -> Learning:
        """Measured costs have noise even if the objective has none."""
        return replace(given, noise=None, priors=None, warping="scaled", particles=1)


@dataclass(frozen=True)
class FailureLabels(Output):
    """1 for an evaluation that failed, 0 for one with a value or stopped early."""

    threshold = 0.5

    @property
    def values(self) -> Array:
        labels = np.full(len(self.records), np.nan)
        labels[self.records.rows(State.COMPLETE)] = labels[self.records.rows(State.STOPPED)] = 0.0
        labels[self.records.rows(State.FAILED)] = 1.0
        return labels

    def learning(self, given: Learning) -> Learning:
        return replace(given, noise=None, priors=LABELS, warping="scaled", particles=1)

    @property
    def repeated(self) -> list[list[int]]:
        """None: successful repeats do not show that failures are not random."""
        return []

    @property
    def caution(self) -> float:
        """c: the weight of log P(success) in the acquisition.

        Where the objective's model is sure that all improvements are beyond the border, log EI elsewhere is so small
        that no P(success) would keep the search from trying again and again. So c doubles with each failure, and three
        successes undo that: in the long run at most about a quarter of the evaluations fail because of where they are.
        """
        weight, labels = 1.0, self.values
        for failed in labels[~np.isnan(labels)]:
            weight = min(weight * AFTER_FAILURE, MOST_CAUTION) if failed else max(weight * AFTER_SUCCESS, 1.0)
        return weight
