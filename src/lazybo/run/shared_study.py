"""The study as all its processes change it: what is finished, queued and run elsewhere, and trials whose driver died.

An orphan is a running trial whose driver died. It is run again, until it has died more often than ``retries`` allows. A
trial costs two commits. A third one, to record when a worker starts it, would be too slow. Without it:

- A driver that evaluates in its own process starts an evaluation as soon as its trial is written: its death counts.
- A driver with workers may die while they start: the first death of a trial's driver does not count.
- For a trial that is run again, and for every trial if retries is 0, the start is recorded before the objective is
  called. The death of the driver counts only if that record is there.

A training with a checkpoint continues where it was. Deaths after which it got further do not count.

So a trial never fails without having been evaluated, and a trial that kills its driver each time does fail in the end.
"""

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from lazybo.run.presence import Drivers
from lazybo.study import Result, Session, TrialView

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


@dataclass(frozen=True)
class Standing:
    """How far a study is, as a driver needs to know it. ``running`` are the trials that run elsewhere."""

    finished: int = 0  # how many trials ended
    repeats: int = 0  # how many trials of the final check there are: those after the last other trial
    searched: int = 0  # how many of the finished trials are no repeats
    queued: Sequence[TrialView] = ()  # trials to run before new ones are proposed
    paused: Mapping[int, TrialView] = field(default_factory=dict)  # by number
    running: Sequence[TrialView] = ()
    elsewhere: int = 0  # how many trials other living drivers run
    next_number: int = 0

    @staticmethod
    def of(trials: Sequence[TrialView], own: Container[int]) -> "Standing":
        """The standing of these trials. ``own`` has the numbers of those that run here."""
        # A process that took this one for dead, after a suspension for example, queues trials that still run here.
        elsewhere = [trial for trial in trials if not trial.has_ended and trial.number not in own]
        ended = [trial for trial in trials if trial.has_ended]
        return Standing(
            finished=len(ended),
            repeats=len([*takewhile(lambda trial: trial.repeat_of is not None, reversed(trials))]),
            searched=sum(trial.repeat_of is None for trial in ended),
            queued=[trial for trial in elsewhere if trial.state == "waiting"],
            paused={trial.number: trial for trial in elsewhere if trial.is_paused},
            running=[trial for trial in elsewhere if trial.state == "running"],
            next_number=len(trials),
        )


class SharedStudy:
    """A study as of the last `sync`, and what has happened here since. ``own`` has the numbers of the trials here."""

    def __init__(self, session: Session, orphans: Orphans, own: Container[int]) -> None:
        self._session, self._orphans, self._own = session, orphans, own
        self.now = Standing()

    def sync(self, except_number: int = -1) -> None:
        """Read what other processes have done, and take over the trials of those that died.

        ``except_number`` is the number of a trial that this process is creating; it may have reserved that number.
        """
        while True:
            view = self._session.read()
            ours = [t.number for t in view.trials if t.state == "running" and t.handling.driver == self._session.driver]
            reserved = except_number if except_number in ours else -1
            now = Standing.of([trial for trial in view.trials if trial.number != reserved], self._own)
            living = self._orphans.living() if now.running else set()
            orphans = [trial for trial in now.running if trial.handling.driver not in {None, *living}]
            if not orphans:
                break
            for trial in orphans:
                self._orphans.take_over(trial)
        self.now = replace(now, elsewhere=sum(trial.handling.driver in living for trial in now.running))
        self._session.model.absorb(view.frozen, reserved)

    def wait_for_earlier(self, number: int) -> None:
        """Wait until other processes have written the parameters of all trials before ``number``, the next one here.

        They may begin later ones in the meantime. ``number`` is then taken, unless this process has reserved it.
        """
        self._session.wait_for_earlier(
            lambda: [trial for trial in self.now.running if trial.number < number], lambda: self.sync(number)
        )
        self.now = replace(self.now, next_number=number)

    # ------------------------------------------------------------- what happens here

    def next_queued(self) -> TrialView:
        """The first trial of the queue, which is no longer there."""
        first, *rest = self.now.queued
        self.now = replace(self.now, queued=rest)
        return first

    def begun(self, trial: TrialView) -> None:
        """A new trial runs here."""
        repeats = self.now.repeats + 1 if trial.repeat_of is not None else 0
        self.now = replace(self.now, next_number=trial.number + 1, repeats=repeats)

    def paused(self, trial: TrialView) -> None:
        """A trial that ran here is paused."""
        self.now = replace(self.now, paused={**self.now.paused, trial.number: trial})

    def resumed(self, trial: TrialView) -> None:
        """A paused trial runs here."""
        left = {number: each for number, each in self.now.paused.items() if number != trial.number}
        self.now = replace(self.now, paused=left)

    def ended(self, trial: TrialView) -> None:
        """A trial that ran here has ended."""
        searched = self.now.searched + (trial.repeat_of is None)
        self.now = replace(self.now, finished=self.now.finished + 1, searched=searched)
