"""The study as all its processes change it: what is finished, queued, and run by other processes."""

from collections.abc import Container
from itertools import takewhile

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.run.orphans import Orphans
from lazybo.study import ledger
from lazybo.study.attributes import DRIVER_KEY, REPEAT_KEY
from lazybo.study.model import StudyModel
from lazybo.study.paused import is_paused
from lazybo.study.waiting import Unannounced, wait_for_earlier


class SharedStudy:
    """The trials of a study as of the last `sync`. ``own`` are the numbers of the trials that run here."""

    def __init__(self, study: Study, model: StudyModel, orphans: Orphans, own: Container[int]) -> None:
        self.finished = 0  # how many trials ended
        self.repeats = 0  # how many trials of the final check there are: those after the last other trial
        self.searched = 0  # how many of the finished trials are no repeats
        self.queued: list[FrozenTrial] = []  # trials to run before new ones are proposed
        self.paused: dict[int, FrozenTrial] = {}  # by number
        self.elsewhere: set[int] = set()  # numbers of the trials that other processes run
        self.next_number = 0
        self._study, self._model, self._orphans, self._own = study, model, orphans, own
        self._unannounced = Unannounced()
        self._running_elsewhere: list[FrozenTrial] = []

    def sync(self, except_number: int = -1) -> None:
        """Read what other processes have done, and take over the trials of those that died.

        ``except_number`` is the number of a trial that this process is creating; it may have reserved that number.
        """
        trials = ledger.read(self._study)
        reserved = [each.number for each in trials if each.number == except_number and self._orphans.is_ours(each)]
        others = [trial for trial in trials if trial.number not in reserved]
        elsewhere = [trial for trial in others if trial.state == TrialState.RUNNING and trial.number not in self._own]
        living = self._orphans.living() if elsewhere else set()
        orphans = [trial for trial in elsewhere if trial.system_attrs.get(DRIVER_KEY) not in {None, *living}]
        if orphans:
            for trial in orphans:
                self._orphans.take_over(trial)
            self.sync(except_number)
            return
        self.elsewhere = {trial.number for trial in elsewhere if trial.system_attrs.get(DRIVER_KEY) in living}
        self._running_elsewhere = elsewhere
        # A process that took this one for dead, after a suspension for example, queues trials that still run here.
        waiting = [trial for trial in others if trial.state == TrialState.WAITING and trial.number not in self._own]
        self.queued = [trial for trial in waiting if not is_paused(trial)]
        self.paused = {trial.number: trial for trial in waiting if is_paused(trial)}
        self.next_number = len(others)
        self.finished = sum(trial.state.is_finished() for trial in others)
        repeats = [REPEAT_KEY in trial.system_attrs for trial in others]
        self.repeats = len(list(takewhile(bool, reversed(repeats))))
        self.searched = sum(trial.state.is_finished() and REPEAT_KEY not in trial.system_attrs for trial in others)
        self._model.absorb(trials, except_number if reserved else -1)

    def read(self) -> list[FrozenTrial]:
        """All trials as they are now."""
        return ledger.read(self._study)

    def wait_for_earlier(self, number: int) -> None:
        """Wait until other processes have written the parameters of all trials before ``number``, the next one here.

        They may begin later ones in the meantime. ``number`` is then taken, unless this process has reserved it.
        """

        def is_awaited() -> bool:
            return self._unannounced.any_awaited(trial for trial in self._running_elsewhere if trial.number < number)

        wait_for_earlier(is_awaited, lambda: self.sync(number))
        self.next_number = number
