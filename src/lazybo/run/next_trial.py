"""Where the next trial of a run comes from: the study's queue, a paused trial, a dead process, or a proposal.

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

An orphan is a running trial whose driver died. It is run again, until it has died more often than ``retries`` allows. A
trial costs two commits. A third one, to record when a worker starts it, would be too slow. Without it:

- A driver that evaluates in its own process starts an evaluation as soon as its trial is written: its death counts.
- A driver with workers may die while they start: the first death of a trial's driver does not count.
- For a trial that is run again, and for every trial if retries is 0, the start is recorded before the objective is
  called. The death of the driver counts only if that record is there.

A training with a checkpoint continues where it was. Deaths after which it got further do not count.

So a trial never fails without having been evaluated, and a trial that kills its driver each time does fail in the end.
"""

import math
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from lazybo.gp import CurveModel
from lazybo.run.limits import Budget, GainLimit, Stopping, StopReason, or_inf
from lazybo.run.open_trials import OpenTrials
from lazybo.run.presence import Drivers
from lazybo.run.reports import OpenTrial
from lazybo.study import LazyPruner, Result, Session, TrialView

Params = dict[str, Any]

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
        return LazyPruner.rungs(self.max_step)

    @property
    def counts(self) -> tuple[int, ...]:
        """n."""
        reached = (max(math.ceil(self.size / LazyPruner.FACTOR**k), CurveModel.least) for k in range(len(self.rungs)))
        return (*reached, CurveModel.least)

    @property
    def steps(self) -> int:
        """The steps that the whole bracket takes."""
        ends = (*self.rungs, self.max_step)
        return sum(n * (end - start) for n, start, end in zip(self.counts, (0, *ends), ends, strict=False))

    def is_over(self, trials: Sequence[TrialView]) -> bool:
        """Whether enough trainings have finished, with their curves, to learn from their ends."""
        curves = (trial for trial in trials if trial.state == "complete" and trial.reported)
        return sum(1 for _ in curves) >= CurveModel.least

    def pause_at(self, step: int) -> float:
        """The rung at which a training that has made ``step`` steps is paused; ∞ after the last one."""
        return min((rung for rung in self.rungs if rung > step), default=inf)

    def next_of(self, trials: Sequence[TrialView], *, needed: bool) -> TrialView | None:
        """The paused trial to continue; None if a new one should begin first.

        If no new trial is ``needed``, a rung is complete when no more trials are on their way to it.
        """
        known = [trial for trial in trials if not trial.has_failed and trial.state != "pruned"]
        for k in reversed(range(len(self.rungs))):
            here = self._to_promote(known, k, needed=needed)
            if here:
                return min(here, key=lambda trial: (self._value(trial, self.rungs[k]), trial.number))
        return None

    def _to_promote(self, trials: Sequence[TrialView], k: int, *, needed: bool) -> list[TrialView]:
        """The trials that are paused at a rung, if it is complete and fewer than its share have continued."""
        here = [trial for trial in trials if trial.is_paused and self._rungs_of(trial) == k + 1]
        reached = [trial for trial in trials if self._rungs_of(trial) > k]
        coming = needed or any(trial.state == "running" and self._rungs_of(trial) <= k for trial in trials)
        is_full = len(reached) >= self.counts[k] or not coming
        return here if is_full and len(reached) - len(here) < self.counts[k + 1] else []

    def _rungs_of(self, trial: TrialView) -> int:
        """How many rungs a trial has reached."""
        return sum((trial.last_step or 0) >= rung for rung in self.rungs)

    def _value(self, trial: TrialView, rung: int) -> float:
        """The value at a rung, or at the first step after it; small is good."""
        value = self.sign * trial.reported[min(step for step in trial.reported if step >= rung)]
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


# ------------------------------------------------------------------- shared study

# What a driver writes about itself: it evaluates in its own process; it records the start of every evaluation.
EVALUATES_HERE = "evaluates_here"
RECORDS_ALL = "records_all"


class Orphans:
    """The trials of drivers that died, as the driver of a session finds them."""

    def __init__(self, session: Session, retries: int, *, checkpoints: bool = False) -> None:
        self._session, self._retries, self._checkpoints = session, retries, checkpoints
        self._drivers = Drivers(session.study, session.driver or "")

    def living(self) -> set[str]:
        """The other drivers that work on the study."""
        return self._drivers.living() - {self._session.driver or ""}

    def take_over(self, trial: TrialView) -> None:
        """Queue a trial to be run again, or fail it if it died too often."""
        driver = trial.handling.driver
        now = TrialView(self._session.store.trial(trial.id))
        if driver is None or now.state != "running" or now.handling.driver != driver:
            return  # another process was faster
        counts = self._had_begun(now, driver)
        deaths = self._earlier_deaths(now) + counts
        if deaths <= self._retries or not counts:
            self._session.put_back(trial, deaths, driver)
            return
        reason = f"the process that ran it died, {deaths} times in all"
        self._session.finish(trial, Result(TrialState.FAIL, reason=reason, traceback=reason))

    def _earlier_deaths(self, trial: TrialView) -> int:
        """How often a trial has died before. A training that has got further since it last died is not at fault."""
        steps = len(trial.reported)
        if not self._checkpoints or steps <= trial.handling.steps_at_death:
            return trial.handling.attempts or 0
        with suppress(UpdateFinishedTrialError):
            self._session.note(trial, steps=steps)
        return 0

    def _had_begun(self, trial: TrialView, driver: str) -> bool:
        """Whether the death of a trial's driver counts."""
        if trial.handling.began == f"{driver} {trial.handling.attempts or 0}":
            return True
        here = self._drivers.fact(driver, EVALUATES_HERE)
        if here is None:
            return True  # the driver wrote nothing about itself
        return bool(here) and trial.handling.attempts is None and not self._drivers.fact(driver, RECORDS_ALL)


class SharedStudy:
    """How far a study is, as of the last `sync` and what has happened here since.

    ``own`` has the numbers of the trials that run here. What runs elsewhere is queued if another process took this one
    for dead, after a suspension for example.
    """

    def __init__(self, session: Session, orphans: Orphans, own: Container[int]) -> None:
        self._session, self._orphans, self._own = session, orphans, own
        self.finished = 0  # how many trials ended
        self.repeats = 0  # how many trials of the final check there are: those after the last other trial
        self.searched = 0  # how many of the finished trials are no repeats
        self.queued: list[TrialView] = []  # to run before new ones are proposed
        self.paused: dict[int, TrialView] = {}  # by number
        self.running: list[TrialView] = []  # elsewhere
        self.elsewhere = 0  # how many of these are run by other living drivers
        self.next_number = 0

    def sync(self, except_number: int = -1) -> None:
        """Read what other processes have done, and take over the trials of those that died.

        ``except_number`` is the number of a trial that this process is creating; it may have reserved that number.
        """
        while True:
            view = self._session.read()
            ours = [t.number for t in view.trials if t.state == "running" and t.handling.driver == self._session.driver]
            reserved = except_number if except_number in ours else -1
            self._count([trial for trial in view.trials if trial.number != reserved])
            living = self._orphans.living() if self.running else set()
            orphans = [trial for trial in self.running if trial.handling.driver not in {None, *living}]
            if not orphans:
                break
            for trial in orphans:
                self._orphans.take_over(trial)
        self.elsewhere = sum(trial.handling.driver in living for trial in self.running)
        self._session.model.absorb(view.frozen, reserved)

    def _count(self, trials: Sequence[TrialView]) -> None:
        elsewhere = [trial for trial in trials if not trial.has_ended and trial.number not in self._own]
        ended = [trial for trial in trials if trial.has_ended]
        self.finished, self.next_number = len(ended), len(trials)
        self.repeats = len([*takewhile(lambda trial: trial.repeat_of is not None, reversed(trials))])
        self.searched = sum(trial.repeat_of is None for trial in ended)
        self.queued = [trial for trial in elsewhere if trial.state == "waiting"]
        self.paused = {trial.number: trial for trial in elsewhere if trial.is_paused}
        self.running = [trial for trial in elsewhere if trial.state == "running"]

    def wait_for_earlier(self, number: int) -> None:
        """Wait until other processes have written the parameters of all trials before ``number``, the next one here.

        They may begin later ones in the meantime. ``number`` is then taken, unless this process has reserved it.
        """
        self._session.wait_for_earlier(
            lambda: [trial for trial in self.running if trial.number < number], lambda: self.sync(number)
        )
        self.next_number = number

    def begun(self, trial: TrialView) -> None:
        """A new trial runs here."""
        self.next_number = trial.number + 1
        self.repeats = self.repeats + 1 if trial.repeat_of is not None else 0

    def ended(self, trial: TrialView) -> None:
        """A trial that ran here has ended."""
        self.finished += 1
        self.searched += trial.repeat_of is None


# ------------------------------------------------------------------------- source


class TrialSource:
    """Starts trials in the study, one at a time, until it has as many as the limits allow.

    The last trials of a run may be its final check, which repeats contenders until one of them leads. It begins when
    only ``confirm`` trials are left, or when a limit has ended the search earlier.
    """

    def __init__(
        self,
        session: Session,
        shared: SharedStudy,
        open_trials: OpenTrials,
        stopping: Stopping,
        gain: GainLimit,
        budget: Budget,
        bracket: Bracket | None = None,
    ) -> None:
        self._session, self._model, self._shared, self._open = session, session.model, shared, open_trials
        self._stopping, self._gain, self._budget = stopping, gain, budget
        self._bracket = bracket  # None when it is over
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
        now = self._shared
        left = self._n_trials - now.finished - len(now.paused) - len(self._open.trials) - now.elsewhere
        if self._stopping.search_ended is None:
            return left
        return min(left, self._confirm - now.repeats) if self._model.optimizer.planner.n_feasible else 0

    @property
    def _is_checking(self) -> bool:
        """Whether new trials belong to the final check. There is none if nothing feasible has completed."""
        if not self._confirm or not self._model.optimizer.planner.n_feasible:
            return False
        return self._stopping.search_ended is not None or self.left <= self._confirm

    def start(self) -> OpenTrial | None:
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
                if not self._shared.queued and self._search_ends():
                    continue
            if needed and self._shared.queued:
                started = self._start_queued(self._shared.queued.pop(0))
            elif (paused := self._next_paused(needed)) is not None:
                started = self._start_paused(paused)
            elif needed and self._ahead:
                started = self._start_new()
            else:
                self._end_check(StopReason.CONFIRMED if needed else None)
                return None
            if started is not None:
                return started
            self._shared.sync()  # another process was faster, and may have started the last one that was needed
        return None

    def _next_paused(self, needed: bool) -> TrialView | None:
        """The paused trial to continue; None if a new one is worth more, which is then proposed if it is ``needed``."""
        trials = self._end_bracket()
        first = None if self._bracket is None else self._bracket.next_of(trials, needed=needed)
        if first is None and needed:
            self._propose_next()
        paused = [trial for _, trial in sorted(self._shared.paused.items())]
        if first is not None or not paused or self._is_checking or self._stopping.search_ended is not None:
            return first
        return self._model.curves.best_to_resume(paused, self._ahead[0] if self._ahead else None)

    def _end_check(self, reason: StopReason | None) -> None:
        """No more trials start. The final check is over when nothing runs any more: each value may change that."""
        reason = self._stopping.search_ended or reason
        if reason is not None and not self._open.trials and not self._shared.elsewhere:
            self._stopping.stop(reason)

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

    def _propose_next(self) -> None:
        """Propose the next trials, unless that was done already; none if the final check needs no more."""
        if self._is_checking:
            self._ahead = self._propose(1)
        elif not self._ahead:
            slots = self._open.free_workers // (self._open.options.folds or 1)
            self._ahead = self._propose(int(max(1, min(slots, self.left - self._confirm))))

    def _start_new(self) -> OpenTrial | None:
        params, number = self._ahead.pop(0), self._shared.next_number
        begun = self._session.begin(number, params, self._propose_again, self._end_of_numbers, self._repeated)
        if begun is None or begun.params is not params:
            self._ahead = []  # these proposals do not know the trials of other processes
        if begun is None:
            return None
        self._shared.begun(begun)
        self._ahead_from = begun.number + 1
        return OpenTrial(begun, stop_at=inf if begun.repeat_of is not None else self._pause_at(0))

    def _repeated(self, params: Params) -> int | None:
        """The trial that a new one with these parameters, which were proposed last, repeats."""
        return self._repeat[1] if self._repeat is not None and params is self._repeat[0] else None

    def _propose(self, count: int) -> list[Params]:
        """At most ``count`` proposals; none if the final check needs no more."""
        number = self._ahead_from = self._shared.next_number
        if self._is_checking:
            repeat = self._model.next_repeat(self._session.read().frozen)
            if repeat is None:
                return []  # keep the last one: a driver that has reserved a number still uses it
            self._repeat = repeat
            return [repeat[0]]
        for running, values in self._open.reported().items():
            self._model.watch(running, values)
        self._note_budget()
        return self._session.propose(number, count)[:count]

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

    def _end_bracket(self) -> Sequence[TrialView]:
        """End the bracket if it is over, judging by all trials, which are returned."""
        if self._bracket is None:
            return ()
        trials = self._session.read().trials
        if self._bracket.is_over(trials) or self._is_checking or self._stopping.search_ended is not None:
            self._bracket = None
        return trials

    def _pause_at(self, step: int) -> float:
        """Where the bracket pauses a trial that was paused after ``step`` steps; 0: it is new."""
        return inf if self._bracket is None else self._bracket.pause_at(step)

    def _start_paused(self, trial: TrialView) -> OpenTrial | None:
        """Continue a paused trial; None if another process was faster."""
        self._ahead = []  # these proposals do not know the values that follow
        self._model.memory.forget_unsaved()
        started = self._start_queued(trial)
        if started is not None:
            self._shared.paused.pop(trial.number, None)
            self._session.unpause(trial)
        return started

    def _start_queued(self, trial: TrialView) -> OpenTrial | None:
        """Run a trial that somebody enqueued, or whose driver died; None if another process was faster."""
        taken = self._session.claim(trial)
        if taken is None:
            return None
        claimed, why_not = taken
        if why_not:
            return OpenTrial(claimed, invalid=why_not)
        self._end_bracket()
        # The bracket compares configurations that the optimiser has chosen.
        chosen = trial.handling.was_enqueued or trial.handling.runs_to_end
        # A training whose driver died is judged as if nothing had happened: by the step at which it was last paused.
        return OpenTrial(
            claimed,
            trial.handling.attempts or 0,
            records_begin=trial.handling.attempts is not None,
            values=dict(trial.reported),
            judged_from=inf if trial.handling.runs_to_end else RESUMED * trial.handling.paused_step,
            stop_at=inf if chosen else self._pause_at(trial.handling.paused_step),
            earlier_seconds=trial.handling.measured_seconds or 0.0,
        )
