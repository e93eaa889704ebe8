"""What a sampler remembers of a study between two trials: the trials that it has read, and the model."""

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.storages import BaseStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.search.earlier_studies import EarlierStudy
from lazybo.space.axis import only_value
from lazybo.study.curves import StudyCurves
from lazybo.study.factory import ModelOptions, Unkept, unkept_options
from lazybo.study.model import StudyModel
from lazybo.study.retry import with_retries
from lazybo.study.rivals import Rivals
from lazybo.study.structure import Structure, infer_structure
from lazybo.study.unsettled import Unsettled
from lazybo.study.waiting import Unannounced, wait_for_earlier

# Studies that one sampler remembers at a time. It reads the others again from their storages.
MAX_MEMORIES = 8

Make = Callable[[Structure, Sequence[FrozenTrial]], StudyModel]


class Memories:
    """The memories of the last few studies."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._memories: list[Memory] = []  # the last one used comes first

    def of(self, study: Study) -> "Memory":
        """The memory of a study, a new one if there is none."""
        if self._process != os.getpid():
            # This process was forked. Threads that hold the locks are not here, and the trials of the other process are
            # not our own.
            self._begin()
        with self._lock:
            found = next((memory for memory in self._memories if memory.is_of(study)), None) or Memory(study)
            # A storage that is gone does not come back, but a new one may get its address.
            others = [memory for memory in self._memories if memory is not found and memory.storage() is not None]
            self._memories = [found, *others[: MAX_MEMORIES - 1]]
            return found


class Memory:
    """What is known of one study. Hold its lock to read or change it, unless it says that it needs none."""

    def __init__(self, study: Study) -> None:
        self.storage: weakref.ref[BaseStorage] = weakref.ref(_backend(study))
        self.lock = threading.RLock()
        self.own: set[int] = set()  # trials that this sampler began; needs no lock
        self._study_id = study._study_id
        self._unannounced = Unannounced()
        self._begin()

    def _begin(self) -> None:
        self.trials: list[FrozenTrial] = []
        self.distributions: dict[str, BaseDistribution] = {}  # as in the latest trials
        self._noted: dict[str, int] = {}  # the numbers of these trials
        self._asked: set[str] = set()  # parameters that a trial of ours has asked for: their kinds are settled
        self._disputed: set[str] = set()  # parameters whose kind differs between trials, none of them ours
        self.model: StudyModel | None = None
        self.constants: dict[str, Any] = {}  # parameters with one value, as the model's constraint knows them
        self.curves: StudyCurves | None = None  # used by LazyPruner
        self.rivals: Rivals | None = None  # used by LazyPruner if there are several objectives
        self.earlier: tuple[EarlierStudy, ...] | None = None  # the sampler's earlier studies, once they were read
        self._unkept: Unkept | None = None
        self._warned: dict[str, object] = {}  # parameters for which a warning was given
        self.except_number = -1  # the trial that is being sampled
        self.others_run = False  # whether trials run that were begun elsewhere
        self._unsettled = Unsettled()
        self._read_for = -1  # the trial that the study was last read for, until it is sampled
        self._last_finished = -1  # the highest number of a finished trial

    def is_of(self, study: Study) -> bool:
        """Whether this is the memory of a study."""
        return self.storage() is _backend(study) and self._study_id == study._study_id

    def read(self, study: Study, except_number: int) -> None:
        """Read new trials, and those that had not finished when they were last read."""
        trials = with_retries(partial(study._get_trials, deepcopy=False, use_cache=False))
        if not self._continues(trials):
            self._begin()
            self.own = {except_number}
        self.trials, self.except_number, self.others_run = trials, except_number, False
        self._read_for = except_number
        for trial in self._unsettled.among(trials):
            if trial.number != except_number:
                self._note_distributions(trial)
            if trial.state == TrialState.RUNNING and trial.number not in self.own:
                self.others_run = self.others_run or trial.number != except_number
            if trial.state.is_finished():
                self._last_finished = max(self._last_finished, trial.number)
        self._unsettled.note(trials, except_number)

    def read_once(self, study: Study, number: int) -> None:
        """Read the study for a trial that is sampled, unless that was just done to tell Optuna its space."""
        if self._read_for != number:
            self.read(study, number)
        self._read_for = -1

    def _note_distributions(self, trial: FrozenTrial) -> None:
        """Keep the latest distribution of each parameter.

        Added trials may have a parameter of any kind. Optuna refuses a suggestion of another kind than the objective
        asks for, so the kind is that of our own trials. Without any, a parameter of several kinds is not suggested.
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

    def _continues(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether these trials continue the known ones: a study may be deleted, and its number used again."""
        if len(trials) < len(self.trials):
            return False
        last = self._last_finished
        return last < 0 or _stamp(trials[last]) == _stamp(self.trials[last])

    def wait_for_earlier(self, study: Study) -> None:
        """Wait until earlier trials that have just begun elsewhere have announced what they evaluate."""
        wait_for_earlier(
            lambda: self._unannounced.any_awaited(self._earlier_elsewhere()),
            lambda: self.read(study, self.except_number),
        )

    def _earlier_elsewhere(self) -> list[FrozenTrial]:
        unsettled = self._unsettled.among(self.trials)
        return [trial for trial in unsettled if trial.number < self.except_number and trial.number not in self.own]

    def unkept_options(self, study: Study, options: ModelOptions) -> Unkept:
        """The options of the sampler, until they are kept with the study."""
        self._unkept = self._unkept or unkept_options(study, options, self.trials)
        return self._unkept

    def note_kept_options(self) -> None:
        """Note that the options of the sampler were written."""
        self._unkept = Unkept({}, needed=False)

    def is_first_warning(self, name: str) -> bool:
        """Whether no warning about this parameter was given yet; it then counts as given. Needs no lock."""
        mark = object()
        return self._warned.setdefault(name, mark) is mark

    def note_constants(self) -> dict[str, Any]:
        """The parameters with one value. If there are new ones, the model is made again: its constraint needs them."""
        constants = {name: only_value(d) for name, d in self.distributions.items() if d.single()}
        if constants != self.constants:
            self.constants, self.model = constants, None
        return constants

    def model_for(self, space: Mapping[str, BaseDistribution], make: Make) -> StudyModel:
        """The model of this space, told of all trials; a new one if trials have shown another structure."""
        if self.model is None or self.model.structure.distributions != space:
            self.model = make(infer_structure(space, self.trials), self.trials)
        self.model.absorb(self.trials, self.except_number)
        if self.model.structure_outdated:
            self.model.structure_outdated = False
            structure = infer_structure(space, self.trials)
            if structure != self.model.structure:
                self.model = make(structure, self.trials)
                self.model.absorb(self.trials, self.except_number)
                self.model.structure_outdated = False
        return self.model


def _backend(study: Study) -> BaseStorage:
    """The storage itself. Optuna puts a new cache around a database each time that a study of it is opened."""
    storage = study._storage
    return storage._backend if isinstance(storage, _CachedStorage) else storage


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
    """What distinguishes a finished trial from any other, also from one with its number in a study deleted since."""
    return trial._trial_id, trial.state, trial.datetime_start, trial.datetime_complete
