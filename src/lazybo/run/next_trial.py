"""Where the next trial of a run comes from: the study's queue, a paused trial, or a proposal of the optimiser.

If trainings can be paused, the first trials are one bracket of successive halving:

======  ==============================================================================  =================
symbol  meaning                                                                         example
======  ==============================================================================  =================
r       rungs: the steps at which trainings of the bracket are paused                   (2, 6, 18) of 52
n       how many trainings reach each rung, and how many of them are finished           (27, 9, 3, 2)
======  ==============================================================================  =================

The model of curves forecasts nothing before two trainings have finished. Until then, values at the same step are
compared: many configurations are trained for a few steps, the best third continues, and the best two are finished.
Nothing is wasted: all curves teach the model, and paused trainings may be resumed later. The bracket depends only on
the trials in the study and the limits of the run, so resumed runs and other processes with the same limits continue it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState

from lazybo.gp import CurveModel
from lazybo.run.limits import Budget, GainLimit, Stopping, StopReason, or_inf
from lazybo.run.open_trials import OpenTrials, Started
from lazybo.study import (
    ATTEMPTS_KEY,
    FACTOR,
    REPEAT_KEY,
    TO_END_KEY,
    Entry,
    Ledger,
    Params,
    announced_params,
    as_given,
    count_of,
    is_paused,
    measured_seconds,
    paused_step,
    rungs,
    was_enqueued,
)

if TYPE_CHECKING:
    from lazybo.run.shared_study import SharedStudy
    from lazybo.study import StudyModel

# With this many workers or more, the next trial is proposed before a worker is free. Such a proposal cannot use the
# next value, as if there were one more worker. With few workers this would cost too much, and they do not wait long.
MANY_WORKERS = 8
# A resumed trial is not paused again before it has made this many times the steps that it had, since loading a
# checkpoint is not free.
RESUMED = 1.25


# ------------------------------------------------------------------------- bracket

# The bracket takes at most as many steps as MAX_TRAININGS whole trainings, and MAX_SHARE of a run's trials.
MAX_TRAININGS = 3.75
MAX_SHARE = 1 / 3
# With fewer trainings there is no bracket.
MIN_SIZE = 4


@dataclass(frozen=True)
class Bracket:
    """A bracket for trainings of ``max_step`` steps; ``size`` of them begin. ``sign`` is -1 to maximise."""

    max_step: int
    size: int
    sign: float = 1.0

    @property
    def rungs(self) -> tuple[int, ...]:
        """r."""
        return rungs(self.max_step)

    @property
    def counts(self) -> tuple[int, ...]:
        """n."""
        reached = (max(math.ceil(self.size / FACTOR**k), CurveModel.least) for k in range(len(self.rungs)))
        return (*reached, CurveModel.least)

    @property
    def steps(self) -> int:
        """The steps that the whole bracket takes."""
        ends = (*self.rungs, self.max_step)
        return sum(n * (end - start) for n, start, end in zip(self.counts, (0, *ends), ends, strict=False))

    def is_over(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether enough trainings have finished, with their curves, to learn from their ends."""
        curves = (trial for trial in trials if trial.state == TrialState.COMPLETE and trial.intermediate_values)
        return sum(1 for _ in curves) >= CurveModel.least

    def pause_at(self, step: int) -> float:
        """The rung at which a training that has made ``step`` steps is paused; ∞ after the last one."""
        return min((rung for rung in self.rungs if rung > step), default=inf)

    def next_of(self, trials: Sequence[FrozenTrial], *, needed: bool) -> FrozenTrial | None:
        """The paused trial to continue; None if a new one should begin first.

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
        return inf if math.isnan(value) else value


def bracket_for(max_step: int, n_trials: int | None, sign: float) -> Bracket | None:
    """The largest bracket that a run can afford; None if it has too few trials or steps."""
    largest = None
    for size in range(MIN_SIZE, int(min(or_inf(n_trials) * MAX_SHARE, MAX_TRAININGS * max_step)) + 1):
        bracket = Bracket(max_step, size, sign)
        if not bracket.rungs or bracket.steps > MAX_TRAININGS * max_step:
            break
        largest = bracket
    return largest


# ------------------------------------------------------------------------- source


class TrialSource:
    """Starts trials in the study, one at a time, until it has as many as the limits allow.

    The last trials of a run may be its final check, which repeats contenders until one of them leads. It begins when
    only ``confirm`` trials are left, or when a limit has ended the search earlier.
    """

    def __init__(
        self,
        model: "StudyModel",
        ledger: Ledger,
        shared: "SharedStudy",
        open_trials: OpenTrials,
        stopping: Stopping,
        gain: GainLimit,
        budget: Budget,
        bracket: Bracket | None = None,
    ) -> None:
        self._model, self._ledger, self._shared, self._open = model, ledger, shared, open_trials
        self._stopping, self._gain, self._budget = stopping, gain, budget
        self._bracket = bracket  # None when it is over
        self._defines = open_trials.options.defines
        self._confirm, self._n_trials = open_trials.options.limits.confirm, or_inf(open_trials.options.n_trials)
        self._ahead: list[Params] = []  # proposals for the numbers from ``_ahead_from`` on
        self._ahead_from = 0
        self._repeat: tuple[Params, int | None] | None = None  # the last proposal of the final check, and its original

    @property
    def has_proposal(self) -> bool:
        """Whether the next trial is proposed already."""
        return bool(self._ahead) and not self._is_checking

    @property
    def left(self) -> float:
        """How many trials are still to be started, here or elsewhere."""
        begun = len(self._shared.paused) + len(self._open.trials) + len(self._shared.elsewhere)
        left = self._n_trials - self._shared.finished - begun
        if self._stopping.search_ended is None:
            return left
        return min(left, self._confirm - self._shared.repeats) if self._model.optimizer.planner.n_feasible else 0

    @property
    def _is_checking(self) -> bool:
        """Whether new trials belong to the final check. There is none if nothing feasible has completed."""
        if not self._confirm or not self._model.optimizer.planner.n_feasible:
            return False
        return self._stopping.search_ended is not None or self.left <= self._confirm

    def start(self) -> Started | None:
        """Start a queued, paused or new trial; None if no more are needed, or while others must finish first."""
        while self._stopping.reason is None:
            if self._shared.elsewhere:
                self._shared.sync()
                self._shared.wait_for_earlier(self._shared.next_number)
            if self._shared.next_number != self._ahead_from:
                self._ahead = []  # these proposals do not know the trials of other processes
            needed = self.left > 0
            if needed:
                self._note_budget()
            if needed and self._shared.queued:
                started = self._start_queued(self._shared.queued.pop(0))
            elif needed and self._search_ends():
                continue
            else:
                first = self._next_of_bracket(needed)
                proposed = first is None and needed and self._has_next()
                paused = first or self._worth_resuming()
                if paused is not None:
                    started = self._start_paused(paused)
                elif proposed:
                    started = self._start_new()
                else:
                    self._end_check(StopReason.CONFIRMED if needed else None)
                    return None
            if started is not None:
                return started
            self._shared.sync()  # another process was faster, and may have started the last one that was needed
        return None

    # ----------------------------------------------------------------- proposals

    def propose_ahead(self) -> None:
        """With many workers: propose the trial of the next free worker while all of them are busy."""
        many = self._open.engine.workers >= MANY_WORKERS
        if many and not self._ahead and not self._shared.queued and self.left > 0 and not self._is_checking:
            self._ahead = self._propose(1)

    def _note_budget(self) -> None:
        """Tell the optimiser how much of the budget is left."""
        self._model.optimizer.planner.budget_left = self._budget.left(self.left)

    def _search_ends(self) -> bool:
        """Whether the model expects too little from the search, which then ends."""
        if self._ahead or self._is_checking:
            return False
        if self._open.options.limits.min_gain is not None:
            self._model.tell_forecasts()
        if not self._gain.is_reached(self._shared.searched):
            return False
        self._stopping.end_search(StopReason.GAIN)
        return True

    def _has_next(self) -> bool:
        """Propose the next trials, unless that was done already; False if the final check needs no more."""
        if self._is_checking:
            self._ahead = self._propose(1)
        elif not self._ahead:
            left = self.left - self._confirm
            self._ahead = self._propose(int(max(1, min(self._open.free_slots, left))))
        return bool(self._ahead)

    def _end_check(self, reason: StopReason | None = None) -> None:
        """The final check starts no more trials. It is over when nothing runs any more: each value may change that."""
        reason = self._stopping.search_ended or reason
        if reason is not None and not self._open.trials and not self._shared.elsewhere:
            self._stopping.stop(reason)

    def _start_new(self) -> Started | None:
        params = self._ahead.pop(0)
        self._ledger.note(self._model.unsaved_attributes())
        number = self._shared.next_number
        entry = self._ledger.begin(number, params, self._propose_again, self._end_of_numbers, self._attributes)
        if entry is None or entry.params is not params:
            self._ahead = []  # these proposals do not know the trials of other processes
        if entry is None:
            return None
        self._model.seen.written()
        self._shared.next_number = self._ahead_from = entry.number + 1
        repeat = bool(self._mark(entry.params))
        self._shared.repeats = self._shared.repeats + 1 if repeat else 0
        return Started(replace(entry, repeat=repeat), pause_at=inf if repeat else self._pause_at(0))

    def _attributes(self, params: Params) -> Mapping[str, Any]:
        """The attributes of a new trial with these parameters, which were proposed last."""
        # The sampler chooses the parameters that an objective names, so there is no proposal to replay.
        return {} if self._defines else {**self._mark(params), **self._model.seen.attributes()}

    def _mark(self, params: Params) -> Mapping[str, Any]:
        """The attribute of a trial that repeats another one."""
        return {REPEAT_KEY: self._repeat[1]} if self._repeat is not None and params is self._repeat[0] else {}

    def _propose(self, count: int) -> list[Params]:
        """At most ``count`` proposals; none if the final check needs no more."""
        number = self._ahead_from = self._shared.next_number
        if self._is_checking:
            repeat = self._model.next_repeat(self._shared.read())
            if repeat is None:
                return []  # keep the last one: a driver that has reserved a number still uses it
            self._repeat = repeat
            return [repeat[0]]
        for running, values in self._open.reported().items():
            self._model.watch(running, values)
        self._note_budget()
        return self._model.propose(number, count)[:count]

    def _propose_again(self, number: int) -> Params | None:
        """The proposal for ``number``, after other processes took the numbers before it."""
        self._shared.sync(number)
        if self._end_of_numbers() <= number:
            return None
        self._shared.wait_for_earlier(number)
        proposed = self._propose(1)
        return proposed[0] if proposed else None

    def _end_of_numbers(self) -> float:
        """New trials are needed below this number; queued trials already have numbers."""
        return self._shared.next_number + self.left - len(self._shared.queued)

    # ----------------------------------------------------------- paused and queued

    def _next_of_bracket(self, needed: bool) -> FrozenTrial | None:
        """The paused trial that continues in the bracket; None if a new one should begin, or the bracket is over."""
        trials = self._shared.read() if self._bracket is not None else []
        self._end_bracket(trials)
        return None if self._bracket is None else self._bracket.next_of(trials, needed=needed)

    def _end_bracket(self, trials: Sequence[FrozenTrial]) -> None:
        """End the bracket if it is over, judging by all trials."""
        if self._bracket is None:
            return
        if self._bracket.is_over(trials) or self._is_checking or self._stopping.search_ended is not None:
            self._bracket = None

    def _pause_at(self, step: int) -> float:
        """Where the bracket pauses a trial that was paused after ``step`` steps; 0: it is new."""
        return inf if self._bracket is None else self._bracket.pause_at(step)

    def _worth_resuming(self) -> FrozenTrial | None:
        """The paused trial to continue before a new one is started, if any."""
        if not self._shared.paused or self._is_checking or self._stopping.search_ended is not None:
            return None
        proposal = self._ahead[0] if self._ahead else None
        paused = [trial for _, trial in sorted(self._shared.paused.items())]
        return self._model.curves.best_to_resume(paused, proposal)

    def _start_paused(self, trial: FrozenTrial) -> Started | None:
        """Continue a paused trial; None if another process was faster."""
        self._ahead = []  # these proposals do not know the values that follow
        self._model.forget_unsaved()
        started = self._start_queued(trial)
        if started is not None:
            self._shared.paused.pop(trial.number, None)
            self._ledger.unpause(trial._trial_id)
        return started

    def _start_queued(self, trial: FrozenTrial) -> Started | None:
        """Run a trial that somebody enqueued, or whose driver died; None if another process was faster."""
        if not self._ledger.claim(trial._trial_id):
            return None
        optimizer, attributes = self._model.optimizer, trial.system_attrs
        # A driver that died while it wrote the parameters had announced all of them.
        announced = announced_params(trial, self._model.space.distributions)
        written = announced or trial.params or attributes.get("fixed_params", {})
        fixed = as_given(written, self._model.space.distributions)
        params = {} if self._defines else dict(fixed)
        try:
            if not self._defines and not optimizer.space.has(fixed):
                params = self._model.complete(fixed, trial.number)
                self._model.forget_unsaved()
            optimizer.planner.check_feasible(params)
        except ValueError as error:
            entry = Entry(trial._trial_id, trial.number, params)
            return Started(entry, invalid=f"it was enqueued with {fixed}: {error}")
        if not self._defines:
            self._ledger.fill_in(trial._trial_id, trial.params, params)
        # A training whose driver died is judged as if nothing had happened: by the step at which it was last paused.
        paused_at = paused_step(trial)
        if self._bracket is not None:
            self._end_bracket(self._shared.read())
        # The bracket compares configurations that the optimiser has chosen.
        chosen = was_enqueued(attributes) or attributes.get(TO_END_KEY)
        return Started(
            Entry(trial._trial_id, trial.number, params, REPEAT_KEY in attributes),
            count_of(trial, ATTEMPTS_KEY) if ATTEMPTS_KEY in attributes else None,
            trial.intermediate_values,
            judged_from=inf if attributes.get(TO_END_KEY) else RESUMED * paused_at,
            pause_at=inf if chosen else self._pause_at(paused_at),
            seconds=measured_seconds(trial) or 0.0,
        )
