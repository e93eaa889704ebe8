"""Where the next trial of a run comes from: the study's queue, or a proposal of the optimiser."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.run.budget import Budget
from lazybo.run.gain import GainLimit
from lazybo.run.limits import Limits, StopReason
from lazybo.run.open_trials import OpenTrials
from lazybo.run.opening import Opening
from lazybo.run.shared import SharedStudy
from lazybo.run.stopping import Stopping
from lazybo.study.attributes import ATTEMPTS_KEY, REPEAT_KEY, TO_END_KEY, announced_params, count_of
from lazybo.study.costs import measured_seconds
from lazybo.study.ledger import Entry, Ledger, Params, was_enqueued
from lazybo.study.model import StudyModel
from lazybo.study.structure import as_given

# With this many workers or more, the next trial is proposed before a worker is free. Such a proposal cannot use the
# next value, as if there were one more worker. With few workers this would cost too much, and they do not wait long.
MANY_WORKERS = 8
# A paused trial that is resumed is not paused again before it has made this many times the steps that it had: loading a
# checkpoint is not free.
RESUMED = 1.25


@dataclass(frozen=True)
class Started:
    """A trial that is running in the study under this driver's name."""

    entry: Entry
    deaths: int | None = None  # None: it never ran before
    values: Mapping[int, float] = field(default_factory=dict)  # its recorded intermediate values
    invalid: str = ""  # why it cannot be evaluated
    judged_from: float = 0  # the step before which it is not paused
    pause_at: float = inf  # the step at which it is paused in any case
    seconds: float = 0.0  # what its parts took before it was paused, if the time counts


class TrialSource:
    """Starts trials in the study, one at a time, until it has as many as the limits allow.

    The last trials of a run may be its final check: they repeat contenders until one of them leads. It begins when only
    ``limits.confirm`` trials are left, or when a limit has ended the search earlier.
    """

    def __init__(
        self,
        model: StudyModel,
        ledger: Ledger,
        shared: SharedStudy,
        open_trials: OpenTrials,
        limits: Limits,
        stopping: Stopping,
        gain: GainLimit,
        budget: Budget,
        opening: Opening | None = None,
    ) -> None:
        self._model, self._ledger, self._shared, self._open = model, ledger, shared, open_trials
        self._limits, self._stopping, self._gain, self._budget = limits, stopping, gain, budget
        self._opening = opening  # None when it is over
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
        left = self._limits.n_trials - self._shared.finished - begun
        if self._stopping.search_ended is None:
            return left
        return min(left, self._limits.confirm - self._shared.repeats) if self._model.optimizer.n_feasible else 0

    @property
    def _is_checking(self) -> bool:
        """Whether new trials are those of the final check. There is none if nothing has completed and is feasible."""
        if not self._limits.confirm or not self._model.optimizer.n_feasible:
            return False
        return self._stopping.search_ended is not None or self.left <= self._limits.confirm

    def start(self) -> Started | None:
        """Start a queued, paused or new trial; None if no more are needed, or none as long as others run."""
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
                first = self._next_of_opening(needed)
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

    def propose_ahead(self) -> None:
        """With many workers: propose the trial of the next free worker while all of them are busy."""
        many = self._open.engine.workers >= MANY_WORKERS
        if many and not self._ahead and not self._shared.queued and self.left > 0 and not self._is_checking:
            self._ahead = self._propose(1)

    def _note_budget(self) -> None:
        """Tell the optimiser how much of the budget is left."""
        self._model.optimizer.budget_left = self._budget.left(self.left)

    def _search_ends(self) -> bool:
        """Whether the model expects too little of the search, which then ends."""
        if self._ahead or self._is_checking or not self._gain.is_reached(self._shared.searched):
            return False
        self._stopping.end_search(StopReason.GAIN)
        return True

    def _has_next(self) -> bool:
        """Propose the next trials, unless that was done already; False if the final check needs no more."""
        if self._is_checking:
            self._ahead = self._propose(1)
        elif not self._ahead:
            left = self.left - self._limits.confirm
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
        entry = self._ledger.begin(number, params, self._propose_again, self._end_of_numbers, self._mark)
        if entry is None or entry.params is not params:
            self._ahead = []  # these proposals do not know the trials of other processes
        if entry is None:
            return None
        self._shared.next_number = self._ahead_from = entry.number + 1
        repeat = bool(self._mark(entry.params))
        self._shared.repeats = self._shared.repeats + 1 if repeat else 0
        return Started(replace(entry, repeat=repeat), pause_at=inf if repeat else self._pause_at(0))

    def _mark(self, params: Params) -> Mapping[str, Any]:
        """The attributes of a trial with these parameters, which were proposed last."""
        return {REPEAT_KEY: self._repeat[1]} if self._repeat is not None and params is self._repeat[0] else {}

    def _propose(self, count: int) -> list[Params]:
        """At most ``count`` proposals; none if the final check needs no more."""
        number = self._ahead_from = self._shared.next_number
        if self._is_checking:
            repeat = self._model.next_repeat(self._shared.read())
            if repeat is None:
                return []  # the last one is remembered: a driver that has reserved a number still uses it
            self._repeat = repeat
            return [repeat[0]]
        for running, values in self._open.reported().items():
            self._model.watch(running, values)
        self._note_budget()
        if count > 1:
            return self._model.optimizer.propose_batch(number, count)
        return [self._model.optimizer.propose(number)]

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

    def _next_of_opening(self, needed: bool) -> FrozenTrial | None:
        """The paused trial that continues in the opening; None if a new one is to begin, or if the opening is over."""
        if self._opening is None:
            return None
        trials = self._shared.read()
        if self._opening.is_over(trials) or self._is_checking or self._stopping.search_ended is not None:
            self._opening = None
            return None
        return self._opening.next_of(trials, needed=needed)

    def _pause_at(self, step: int) -> float:
        """Where the opening pauses a trial that has made so many steps."""
        return inf if self._opening is None else self._opening.pause_at(step)

    def _worth_resuming(self) -> FrozenTrial | None:
        """The paused trial to continue before a new one is started, if any."""
        if not self._shared.paused or self._is_checking or self._stopping.search_ended is not None:
            return None
        proposal = self._ahead[0] if self._ahead else None
        return self._model.curves.best_to_resume(list(self._shared.paused.values()), proposal)

    def _start_paused(self, trial: FrozenTrial) -> Started | None:
        """Continue a paused trial; None if another process was faster."""
        self._ahead = []  # these proposals do not know the values that follow
        started = self._start_queued(trial)
        if started is None:
            return None
        self._shared.paused.pop(trial.number, None)
        self._ledger.unpause(trial._trial_id)
        return replace(started, judged_from=max(started.judged_from, RESUMED * (trial.last_step or 0)))

    def _start_queued(self, trial: FrozenTrial) -> Started | None:
        """Run a trial that somebody enqueued, or whose driver died; None if another process was faster."""
        if not self._ledger.claim(trial._trial_id):
            return None
        optimizer = self._model.optimizer
        # A driver that died while it wrote the parameters had announced all of them.
        announced = announced_params(trial, self._model.space.distributions)
        written = announced or trial.params or trial.system_attrs.get("fixed_params", {})
        fixed = as_given(written, self._model.space.distributions)
        params = dict(fixed)
        try:
            if not optimizer.is_complete(fixed):
                params = optimizer.complete(fixed, trial.number)
            optimizer.check_feasible(params)
        except ValueError as error:
            entry = Entry(trial._trial_id, trial.number, params)
            return Started(entry, invalid=f"it was enqueued with {fixed}: {error}")
        self._ledger.fill_in(trial._trial_id, trial.params, params)
        entry = Entry(trial._trial_id, trial.number, params, REPEAT_KEY in trial.system_attrs)
        attributes = trial.system_attrs
        judged_from = inf if attributes.get(TO_END_KEY) else 0
        # The opening compares configurations that the optimiser has chosen.
        chosen = was_enqueued(attributes) or judged_from
        pause_at = inf if chosen else self._pause_at(trial.last_step or 0)
        return Started(
            entry,
            count_of(trial, ATTEMPTS_KEY) if ATTEMPTS_KEY in attributes else None,
            trial.intermediate_values,
            judged_from=judged_from,
            pause_at=pause_at,
            seconds=measured_seconds(trial) or 0.0,
        )
