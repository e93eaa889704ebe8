"""LazySampler: the optimiser as an Optuna sampler.

A study's trials are its memory. The sampler keeps an optimiser beside it and tells it what is new: trials that ended,
whoever ran them, as observations; trials that run, here or elsewhere, as pending. What was learned is kept with the
trials, so that a resumed study or a second process goes on where the first one is.

A trial gets one attribute where Optuna's TPESampler writes one, too: what it will evaluate, and what was learned for
its suggestion. It is not written while nothing was learned and no other process has a trial running.

The space is the union of all parameters seen. Which of them are active is found out from the trials
(`infer_structure`).
"""

import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lazybo.model.fit import Priors
from lazybo.model.kernels import Kernel, check_choice
from lazybo.model.lag import Lag
from lazybo.search.acquisition import Acquisition
from lazybo.search.optimizer import Optimizer, check_seed
from lazybo.search.space import Condition, Space
from lazybo.study.model import PATIENCE, Patience, Structure, StudyModel

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# The noise to begin with, and its prior's spread, when the objective is said to be deterministic.
DETERMINISTIC = Priors(noise=1e-7, noise_spread=0.1)
# Studies that one sampler remembers at a time; what it forgets it finds again in the study.
MEMORIES = 8
# Seconds between looks at a trial that has just begun elsewhere, at first and at most.
FIRST_LOOK, LAST_LOOK = 0.0005, 0.02


class LazySampler(BaseSampler):
    """Gaussian-process Bayesian optimisation for Optuna, without torch, at the speed of TPE.

    ``n_startup_trials`` are spread over the space before the model speaks (default: one for each parameter, 5 to 10).
    ``lag``, ``acquisition`` and ``kernel`` are those of `lazybo.Optimizer`; a kernel object must have the columns of
    the space, a name fits any. A parameter that no trial has had before comes from
    ``independent_sampler`` (default: random). ``deterministic_objective`` says that values have no noise.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        lag: Lag = "auto",
        n_startup_trials: int | None = None,
        acquisition: str | Acquisition = "logei",
        kernel: str | Kernel | None = None,
        independent_sampler: BaseSampler | None = None,
        warn_independent_sampling: bool = True,
        deterministic_objective: bool = False,
    ) -> None:
        self._options: dict[str, Any] = {"lag": lag, "n_startup": n_startup_trials, "acquisition": acquisition}
        if deterministic_objective:
            self._options["priors"] = DETERMINISTIC
        self._seed = check_seed(seed)
        # Refuses wrong arguments here and now, not in the first trial.
        Optimizer({"x": IntDistribution(0, 1)}, seed=self._seed, **self._options)
        self._options["kernel"] = check_choice(kernel)
        self._independent_sampler = independent_sampler
        self._warn_independent_sampling = warn_independent_sampling
        self._memories = _Memories()

    def __getstate__(self) -> dict[str, Any]:
        """Without the memories: a copy finds all it needs in the study."""
        return {**self.__dict__, "_memories": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._memories = _Memories()

    def reseed_rng(self) -> None:
        """Nothing to do for suggestions: they depend on the seed and the trial's number, which no two trials share."""
        if self._independent_sampler is not None:
            self._independent_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Note that the trial is one of this process; the rest is the independent sampler's."""
        # Without the memory's lock: a suggestion that is being made here waits for trials that are not noted.
        self._memories.of(study).own.add(trial.number)
        if self._independent_sampler is not None:
            self._independent_sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Nothing is learned here: what trials teach is read when the next one begins."""
        if self._independent_sampler is not None:
            self._independent_sampler.after_trial(study, trial, state, values)

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,
    ) -> dict[str, BaseDistribution]:
        """All parameters that any trial has had, each as in its latest trial."""
        _refuse_several_objectives(study)
        memory = self._memories.of(study)
        with memory.lock:
            memory.read(study, trial.number)
            return {name: d for name, d in memory.distributions.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The suggestion for a trial: values of all parameters that will be active, as far as trials have shown."""
        _refuse_several_objectives(study)
        if not search_space:
            return {}
        memory = self._memories.of(study)
        with memory.lock:
            memory.read(study, trial.number)
            memory.wait_for_earlier(study)
            model = memory.model_for(search_space, partial(self._make_model, study))
            params = model.optimizer.propose(trial.number)
            model.announce(trial.number, {**params, **trial.system_attrs.get("fixed_params", {})})
            # Other processes know what this trial will evaluate before it has asked for its parameters.
            for key, text in model.announcement(trial.number, always=memory.others_run).items():
                study._storage.set_trial_system_attr(trial._trial_id, key, text)
            return params

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that is new, or was thought inactive: from the independent sampler."""
        _refuse_several_objectives(study)
        known = self._memories.of(study).distributions
        if self._warn_independent_sampling and param_name in known and not param_distribution.single():
            _logger.warning(
                f"Trial {trial.number}: {param_name!r} was not expected here and is sampled independently. "
                "It is modelled once trials have shown when it is active."
            )
        if self._independent_sampler is not None:
            return self._independent_sampler.sample_independent(study, trial, param_name, param_distribution)
        # Random, but repeatable, and different in every trial of every process.
        rng = np.random.default_rng((self._seed, trial.number, zlib.crc32(param_name.encode())))
        space = Space({param_name: param_distribution})
        return space.decode(space.sample(rng, 1)[0])[param_name]

    def _make_model(self, study: Study, structure: Structure, trials: Sequence[FrozenTrial]) -> StudyModel:
        optimizer = Optimizer(
            structure.distributions,
            conditions=structure.conditions,
            optional=structure.optional,
            direction="maximize" if study.direction == StudyDirection.MAXIMIZE else "minimize",
            seed=self._seed,
            **self._options,
        )
        model = StudyModel(structure, optimizer)
        model.recall(study._storage.get_study_system_attrs(study._study_id), trials)
        return model


class _Memories:
    """What is remembered of the last few studies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memories: list[_Memory] = []  # the last one used comes first

    def of(self, study: Study) -> "_Memory":
        """The memory of a study, a new one if there is none."""
        with self._lock:
            found = next((memory for memory in self._memories if memory.is_of(study)), None) or _Memory(study)
            # A storage that is gone will not come back, whatever later has its address.
            others = [memory for memory in self._memories if memory is not found and memory.storage() is not None]
            self._memories = [found, *others[: MEMORIES - 1]]
            return found


class _Memory:
    """What the trials of one study have shown so far. Whoever reads or changes it holds its lock, but for ``own``."""

    def __init__(self, study: Study) -> None:
        self.storage: weakref.ref[BaseStorage] = weakref.ref(study._storage)
        self.lock = threading.RLock()
        self.own: set[int] = set()  # trials that were begun by this sampler
        self._study_id = study._study_id
        self._patience = Patience()
        self._warned = False
        self._begin()

    def _begin(self) -> None:
        self.trials: list[FrozenTrial] = []
        self.distributions: dict[str, BaseDistribution] = {}
        self.model: StudyModel | None = None
        self.except_number = -1  # the trial that is being sampled
        self.others_run = False  # whether trials run that were begun elsewhere
        self._settled = 0  # trials before this number have ended

    def is_of(self, study: Study) -> bool:
        """Whether this is the memory of a study."""
        return self.storage() is study._storage and self._study_id == study._study_id

    def read(self, study: Study, except_number: int) -> None:
        """Look at the trials that were not finished at the last look, and at new ones."""
        trials = study._get_trials(deepcopy=False, use_cache=False)
        if not self._continues(trials):
            self._begin()
            self.own = {except_number}
        self.trials, self.except_number, self.others_run = trials, except_number, False
        settled = True
        for trial in trials[self._settled :]:
            if trial.number != except_number:
                self.distributions.update(trial.distributions)
            if trial.state == TrialState.RUNNING and trial.number not in self.own:
                self.others_run = self.others_run or trial.number != except_number
            elif trial.state.is_finished():
                self._warn_of_constraints(study, trial)
            settled = settled and trial.state.is_finished()
            self._settled += settled

    def _continues(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether these trials go on from those that are known: a study may be deleted, and its number used again."""
        if len(trials) < len(self.trials):
            return False
        last = self._settled - 1
        return last < 0 or _stamp(trials[last]) == _stamp(self.trials[last])

    def wait_for_earlier(self, study: Study) -> None:
        """Let trials before this one that have just begun elsewhere say what they evaluate.

        So suggestions are made one after the other in the order of their numbers, each knowing those before it. A
        process that died on the way is waited for once.
        """
        deadline, pause = time.monotonic() + PATIENCE, FIRST_LOOK
        while time.monotonic() < deadline and self._patience.any_undecided(self._earlier_elsewhere()):
            time.sleep(pause)
            pause = min(2 * pause, LAST_LOOK)
            self.read(study, self.except_number)

    def _earlier_elsewhere(self) -> list[FrozenTrial]:
        unsettled = self.trials[self._settled : self.except_number]
        return [trial for trial in unsettled if trial.number not in self.own]

    def _warn_of_constraints(self, study: Study, trial: FrozenTrial) -> None:
        if trial.constraints and not self._warned:
            self._warned = True
            warnings.warn(
                f"the study {study.study_name!r} sets constraints, but LazySampler does not use them yet: it optimises "
                "the value alone, and suggests what is not feasible too. Use optuna.samplers.TPESampler or GPSampler, "
                "which use constraints, or return a bad value where a constraint is violated.",
                stacklevel=2,
            )

    def model_for(self, space: Mapping[str, BaseDistribution], make: "_Make") -> StudyModel:
        """The model of this space, told of all trials; a new one where trials have shown another structure."""
        if self.model is None or self.model.structure.distributions != space:
            self.model = make(infer_structure(space, self.trials), self.trials)
        self.model.absorb(self.trials, self.except_number)
        if self.model.surprised:
            self.model.surprised = False
            structure = infer_structure(space, self.trials)
            if structure != self.model.structure:
                self.model = make(structure, self.trials)
                self.model.absorb(self.trials, self.except_number)
                self.model.surprised = False
        return self.model


_Make = Callable[[Structure, Sequence[FrozenTrial]], StudyModel]


def _stamp(trial: FrozenTrial) -> tuple[object, ...]:
    """What tells a trial that ended from any other, also from one that has its number after it was deleted."""
    return trial._trial_id, trial.state, trial.datetime_start, trial.datetime_complete


def infer_structure(space: Mapping[str, BaseDistribution], trials: Sequence[FrozenTrial]) -> Structure:
    """When each parameter is active, as far as the trials that completed or were pruned show it.

    A parameter that some trials lack hangs on the first choice or whole number whose values tell the trials that have
    it from those that do not. Where there is none, it is optional.
    """
    done = (TrialState.COMPLETE, TrialState.PRUNED)
    seen = [trial.params for trial in trials if trial.state in done and trial.params]
    conditions: dict[str, Condition] = {}
    optional = set()
    for name in space:
        if all(name in params for params in seen):
            continue
        for parent in _possible_parents(name, space, conditions):
            with_it = {params[parent] for params in seen if name in params and parent in params}
            without = {params[parent] for params in seen if name not in params and parent in params}
            orphans = any(name in params and parent not in params for params in seen)
            if with_it and not with_it & without and not orphans:
                conditions[name] = Condition(parent, tuple(sorted(with_it, key=repr)))
                break
        else:
            optional.add(name)
    return Structure(dict(space), conditions, frozenset(optional))


def _possible_parents(
    name: str, space: Mapping[str, BaseDistribution], conditions: Mapping[str, Condition]
) -> list[str]:
    """Discrete parameters that do not themselves hang on this one."""

    def hangs_on(child: str) -> bool:
        while child in conditions:
            child = conditions[child].parent
            if child == name:
                return True
        return False

    discrete = (CategoricalDistribution, IntDistribution)
    return [p for p, d in space.items() if p != name and isinstance(d, discrete) and not hangs_on(p)]


def _refuse_several_objectives(study: Study) -> None:
    if study._is_multi_objective():
        raise ValueError(
            "LazySampler optimises one objective, but this study has "
            f"{len(study.directions)}. Use optuna.samplers.NSGAIISampler or TPESampler for several."
        )
