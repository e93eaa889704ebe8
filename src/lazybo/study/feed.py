"""What is new in a study: `Feed` for those who are given its trials, `StudyReader` for samplers and pruners.

Suggestions are made one after the other in the order of the trials' numbers, and each knows those before it. So a
process waits for trials that have just begun elsewhere and have not announced yet what they evaluate (`Unannounced`).
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import ref

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.study.attributes import Key
from lazybo.study.store import Store
from lazybo.study.trial import TrialView

# Studies that one sampler keeps in memory at a time. It reads the others again from their storages.
MAX_READERS = 8

_T = TypeVar("_T")


class Feed:
    """A cursor over the trials of a study: gives each trial until it is settled.

    A trial that runs for long, or whose process died, costs no more than itself: the finished trials after it are not
    given again.
    """

    def __init__(self) -> None:
        self._seen = 0  # number of trials given so far
        self._open: list[int] = []  # the positions of those that were not settled
        self._settled: set[int] = set()  # numbers of trials

    def news(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """The trials that are new or not settled, by number. ``trials`` are all trials of the study, by number."""
        positions = [*self._open, *range(self._seen, len(trials))]
        self._open = [position for position in positions if trials[position].number not in self._settled]
        self._seen = len(trials)
        return [trials[position] for position in self._open]

    def settle(self, trial: FrozenTrial) -> bool:
        """Note that a finished trial was handled and does not change any more; False if it was settled before."""
        if trial.number in self._settled:
            return False
        self._settled.add(trial.number)
        return True

    def is_settled(self, trial: FrozenTrial) -> bool:
        """Whether a trial was settled."""
        return trial.number in self._settled

    def __len__(self) -> int:  # of settled trials
        return len(self._settled)


# --------------------------------------------------------------- wait for others


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for announcements."""

    announcement: float = 2.0
    driver: float = 30.0  # for a trial of one of our drivers: it is computing its proposal, or it is dead
    first_pause: float = 0.0005  # between two reads of the study; it doubles up to the last
    last_pause: float = 0.02
    longest_pause: float = 1.0


class Unannounced:
    """Running trials without an announcement, and since when each is awaited.

    The time counts from when a trial was first seen here, since clocks of other hosts may differ, or from when one with
    a lower number was announced, since each waits for those before it. So a trial whose process died is awaited once.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._since: dict[int, float] = {}

    def is_awaited(self, trial: FrozenTrial) -> bool:
        """Whether to wait for this trial."""
        now = time.monotonic()
        view = TrialView(trial)
        if view.state != "running" or trial.params or f"{Key.SUGGESTION}:0" in trial.system_attrs:
            self._drop(trial.number, now)
            return False
        timeout = self._patience.announcement if view.handling.driver is None else self._patience.driver
        return now - self._since.setdefault(trial.number, now) < timeout

    def awaited(self, trials: Iterable[FrozenTrial]) -> int:
        """For how many of these to wait. The time of all of them begins; those that are not among them have ended."""
        listed = {trial.number: trial for trial in trials}
        for number in [each for each in self._since if each not in listed and each < max(listed, default=0)]:
            self._drop(number, time.monotonic())
        return sum([self.is_awaited(trial) for trial in listed.values()])

    def _drop(self, number: int, now: float) -> None:
        """Await a trial no longer. The time of those after it, which waited for it, begins again."""
        if self._since.pop(number, None) is not None:
            self._since |= {later: now for later in self._since if later > number}

    def wait(self, trials: Callable[[], Iterable[FrozenTrial]], sync: Callable[[], object]) -> None:
        """Sync with the study until none of these trials is awaited any more, or the time is over."""
        start, pause, before = time.monotonic(), self._patience.first_pause, 0
        while (elapsed := time.monotonic() - start) < self._patience.driver and (count := self.awaited(trials())):
            before = max(before, count)
            # They announce one after the other: half of the time that the others take at this pace passes unread.
            each = elapsed / (before - count) if count < before else 0.0
            time.sleep(max(pause, min(each * max((count - 1) / 2, 0.1), self._patience.longest_pause)))
            pause = min(2 * pause, self._patience.last_pause)
            sync()


# ------------------------------------------------------------ samplers and pruners


class StudyReader(Generic[_T]):
    """The trials of one study as a sampler or pruner has read them, and derived ``state``.

    Hold the lock to read or change it, except for ``own``. If the study was deleted and its number is used again, the
    state is made again.
    """

    def __init__(self, make_state: Callable[[], _T]) -> None:
        self.lock = threading.RLock()
        self.own: set[int] = set()  # trials that this sampler began
        self._make_state = make_state
        self._unannounced = Unannounced()
        self._begin()

    def _begin(self) -> None:
        self.state = self._make_state()
        self.trials: list[FrozenTrial] = []
        self.distributions: dict[str, BaseDistribution] = {}  # as in the latest trials
        self.number = -1  # the trial that is being sampled or judged
        self.others_run = False  # whether trials run that were begun elsewhere
        self._feed = Feed()
        self._noted: dict[str, int] = {}  # the trials that the distributions are from
        self._asked: set[str] = set()  # parameters that a trial of ours has asked for: their kinds are settled
        self._disputed: set[str] = set()  # parameters whose kind differs between trials, none of them ours
        self._read_for = -1  # the trial that the study was last read for, until it is sampled
        self._last_finished = -1  # the highest number of a finished trial

    def read(self, study: Study, number: int) -> None:
        """Read the trials that are new or had not finished, to sample or judge the trial with this number."""
        trials = Store(study).trials()
        if not self._continues(trials):
            self._begin()
            self.own = {number}
        self.trials, self.number, self.others_run = trials, number, False
        self._read_for = number
        for trial in self._feed.news(trials):
            if trial.state.is_finished():
                self._last_finished = max(self._last_finished, trial.number)
            if trial.number == number:
                continue
            self._note_distributions(trial)
            if trial.state == TrialState.RUNNING and trial.number not in self.own:
                self.others_run = True
            if trial.state.is_finished():
                self._feed.settle(trial)

    def read_once(self, study: Study, number: int) -> None:
        """Read the study for a trial that is sampled, unless that was just done to tell Optuna its space."""
        if self._read_for != number:
            self.read(study, number)
        self._read_for = -1

    def _continues(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether these trials continue the known ones: a study may be deleted, and its number used again."""
        if len(trials) < len(self.trials):
            return False
        last = self._last_finished
        return last < 0 or _stamp(trials[last]) == _stamp(self.trials[last])

    def _note_distributions(self, trial: FrozenTrial) -> None:
        """Keep the latest distribution of each parameter.

        Added trials may have a parameter of any kind. Optuna refuses a suggestion of another kind than the objective
        asks for, so our own trials decide the kind. Without any, a parameter of several kinds is not suggested.
        """
        own = trial.number in self.own
        for name, distribution in trial.distributions.items():
            if own:
                self._asked.add(name)
                self._disputed.discard(name)
            elif not _is_compatible(self.distributions.get(name, distribution), distribution):
                if name in self._asked:
                    continue
                self._disputed.add(name)
            if trial.number >= self._noted.get(name, 0):
                self.distributions[name], self._noted[name] = distribution, trial.number

    @property
    def space(self) -> dict[str, BaseDistribution]:
        """The parameters to suggest: those that vary, each as in its latest trial."""
        return {name: d for name, d in self.distributions.items() if not d.single() and name not in self._disputed}

    def wait_for_earlier(self, study: Study) -> None:
        """Wait until earlier trials that have just begun elsewhere have announced what they evaluate."""
        if self.others_run:
            self._unannounced.wait(
                lambda: [
                    t for t in self._feed.news(self.trials) if t.number < self.number and t.number not in self.own
                ],
                lambda: self.read(study, self.number),
            )


class StudyReaders(Generic[_T]):
    """The readers of the last few studies."""

    def __init__(self, make_state: Callable[[], _T]) -> None:
        self._make_state = make_state
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        # By storage, without Optuna's cache around it, and study; the last one used comes first.
        self._readers: dict[tuple[ref[BaseStorage], int], StudyReader[_T]] = {}

    def of(self, study: Study) -> StudyReader[_T]:
        """The reader of a study, a new one if there is none."""
        if self._process != os.getpid():
            # This process was forked. Threads that hold the locks are not here, and the trials of the other process are
            # not our own.
            self._begin()
        store = Store(study)
        with self._lock:
            key = ref(store.backend), store.study_id
            found = self._readers.pop(key, None) or StudyReader(self._make_state)
            others = [each for each in self._readers.items() if each[0][0]() is not None]  # its storage is there
            self._readers = dict([(key, found), *others[: MAX_READERS - 1]])
            return found


def _is_compatible(one: BaseDistribution, other: BaseDistribution) -> bool:
    """Whether Optuna takes both for the same parameter: the same kind, scale and choices."""
    if isinstance(one, CategoricalDistribution) and isinstance(other, CategoricalDistribution):
        if one.choices == other.choices:  # much faster than Optuna's comparison
            return True
    elif isinstance(one, FloatDistribution | IntDistribution):
        return type(one) is type(other) and one.log == other.log
    try:
        check_distribution_compatibility(one, other)
    except ValueError:
        return False
    return True


def _stamp(trial: FrozenTrial) -> tuple[object, ...]:
    """Identifies a finished trial, also among those with its number in studies that were deleted."""
    return trial._trial_id, trial.state, trial.datetime_start, trial.datetime_complete
