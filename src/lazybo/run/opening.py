"""The first trials of a run whose trainings can be paused: one bracket of successive halving.

======  ==============================================================================  =================
symbol  meaning                                                                         example
======  ==============================================================================  =================
r       rungs: the steps at which trainings of the opening are paused                   (2, 6, 18) of 52
n       how many trainings reach each rung, and how many of them are finished           (27, 9, 3, 2)
======  ==============================================================================  =================

The model of curves forecasts nothing before two trainings have finished. Until then, values at the same step are
compared: many configurations are trained for a few steps, the best third of them goes on, and the best two are
finished. Nothing is thrown away: all curves teach the model, and those that were paused may be resumed later.

What comes next depends only on the trials in the study and on the limits of the run, so a resumed run and other
processes with the same limits continue the same bracket.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from lazybo.search.curve_forecasts import MIN_COMPLETE
from lazybo.study.paused import is_paused

# One of so many trainings goes on at each rung, and each rung has so many times the steps of the one before.
FACTOR = 3
# How many rungs there are, at most.
RUNGS = 3
# The last rung, as a share of a whole training.
LAST_RUNG = 0.35
# The first value of a training says little.
MIN_STEPS = 2
# The bracket takes as many steps as so many whole trainings, at most.
MAX_TRAININGS = 3.75
# It has this share of a run's trials, at most.
MAX_SHARE = 1 / 3
# With fewer trainings there is no opening.
MIN_SIZE = 4


@dataclass(frozen=True)
class Opening:
    """A bracket for trainings of ``max_step`` steps, in which ``size`` of them begin. ``sign`` is -1 to maximise."""

    max_step: int
    size: int
    sign: float = 1.0

    @property
    def rungs(self) -> tuple[int, ...]:
        """r."""
        steps = {max(round(LAST_RUNG * self.max_step / FACTOR**k), MIN_STEPS) for k in range(RUNGS)}
        return tuple(sorted(step for step in steps if step < self.max_step))

    @property
    def counts(self) -> tuple[int, ...]:
        """n."""
        reached = (max(math.ceil(self.size / FACTOR**k), MIN_COMPLETE) for k in range(len(self.rungs)))
        return (*reached, MIN_COMPLETE)

    @property
    def steps(self) -> int:
        """The steps that the whole bracket takes."""
        ends = (*self.rungs, self.max_step)
        return sum(n * (end - start) for n, start, end in zip(self.counts, (0, *ends), ends, strict=False))

    def is_over(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether enough trainings have finished, with their curves, to learn from their ends."""
        curves = (trial for trial in trials if trial.state == TrialState.COMPLETE and trial.intermediate_values)
        return sum(1 for _ in curves) >= MIN_COMPLETE

    def pause_at(self, step: int) -> float:
        """The rung at which a training that has made ``step`` steps is paused; ∞ after the last one."""
        return min((rung for rung in self.rungs if rung > step), default=math.inf)

    def next_of(self, trials: Sequence[FrozenTrial], *, needed: bool) -> FrozenTrial | None:
        """The paused trial to continue; None if a new one is to begin first.

        If no new trial is ``needed``, a rung is complete when no more trials are on their way to it.
        """
        known = [trial for trial in trials if trial.state not in (TrialState.FAIL, TrialState.PRUNED)]
        for k in reversed(range(len(self.rungs))):
            reached = [trial for trial in known if (trial.last_step or 0) >= self.rungs[k]]
            here = [trial for trial in reached if is_paused(trial) and self._rung_of(trial) == k]
            below = (trial for trial in known if (trial.last_step or 0) < self.rungs[k])
            coming = needed or any(trial.state == TrialState.RUNNING for trial in below)
            is_full = len(reached) >= self.counts[k] or not coming
            if here and is_full and len(reached) - len(here) < self.counts[k + 1]:
                return min(here, key=lambda trial: (self._value(trial, self.rungs[k]), trial.number))
        return None

    def _rung_of(self, trial: FrozenTrial) -> int:
        return sum(rung <= (trial.last_step or 0) for rung in self.rungs) - 1

    def _value(self, trial: FrozenTrial, rung: int) -> float:
        """The value at a rung, or at the first step after it; small is good."""
        value = self.sign * trial.intermediate_values[min(s for s in trial.intermediate_values if s >= rung)]
        return math.inf if math.isnan(value) else value


def opening_of(max_step: int, n_trials: float, sign: float) -> Opening | None:
    """The largest opening that a run can afford; None if it has too few trials or steps."""
    largest = None
    for size in range(MIN_SIZE, int(min(n_trials * MAX_SHARE, MAX_TRAININGS * max_step)) + 1):
        opening = Opening(max_step, size, sign)
        if not opening.rungs or opening.steps > MAX_TRAININGS * max_step:
            break
        largest = opening
    return largest
