"""LazySampler: the optimiser as an Optuna sampler.

The sampler keeps an optimiser for each study (`Memory`) and tells it what is new: finished trials as observations,
running ones as pending, whichever process runs them. What was learned is kept with the trials, so that a resumed study
or a second process continues with it.

A trial gets one attribute, as it does from Optuna's TPESampler: what it will evaluate, and what was learned for its
suggestion. It is not written if nothing was learned and no other process has a trial running.

The space is the union of all parameters seen. When each of them is active is inferred from the trials
(`infer_structure`).
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.samplers._base import _process_constraints_after_trial
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import check_seed, shortened, whole
from lazybo.gp.fit import Lag, Priors
from lazybo.gp.kernels import Kernel, check_choice
from lazybo.search.acquisition import Acquisition
from lazybo.search.earlier import best_of
from lazybo.space.axis import contains
from lazybo.space.space import Predicate, Space
from lazybo.study.costs import check_returned
from lazybo.study.earlier import read_earlier
from lazybo.study.factory import ModelOptions, directions_of, open_model
from lazybo.study.memory import Memories, Memory
from lazybo.study.one_by_one import OneByOne, allows
from lazybo.study.retry import with_retries
from lazybo.study.structure import Structure

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# The initial noise and the spread of its prior for an objective that is said to be deterministic.
DETERMINISTIC = Priors(noise=1e-7, noise_spread=0.1).without_noise()


# How often a parameter that is asked for alone is drawn if the constraint does not hold.
INDEPENDENT_TRIES = 256


class LazySampler(BaseSampler):
    """Gaussian-process Bayesian optimisation for Optuna, without torch, at the speed of TPE.

    The first ``n_startup_trials`` are spread over the space without a model (default: one for each parameter, 5 to 10).
    ``lag``, ``acquisition`` and ``kernel`` are those of `lazybo.Optimizer`; a kernel object must have the columns of
    the space, a name fits any. A parameter that no trial has had before comes from ``independent_sampler``, an Optuna
    sampler (default: random). ``deterministic_objective`` says that values have no noise.

    Studies may have several objectives, and trials may set constraints (``trial.set_constraint``). As in Optuna's own
    samplers, ``constraints_func`` computes them from a trial that has finished: a list of numbers, each satisfied if it
    is at most 0.

    ``feasible`` is a function of the parameters (a dict) that says which configurations may be evaluated. Suggestions
    of all parameters at once are always feasible. Parameters that are asked for one by one, as in the first trial, are
    drawn again while they make the predicate false, which may not suffice: enqueue a feasible configuration first.

    With ``cost="seconds"`` trials that are expected to take less time are preferred, by Optuna's times of the trials so
    far. Any other name is that of a user attribute (``trial.set_user_attr``) with the cost of a trial.

    ``earlier`` is a list of earlier studies of related problems: Optuna studies, ``"name@storage"``, or tables of
    parameters and ``value``. The first trials come from what was good there (docs/earlier.md).

    From ``local_after`` trials on, local models take over from the one with all trials; by default when they are
    better, with None never (docs/dimensions.md).
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        lag: Lag = "auto",
        n_startup_trials: int | None = None,
        acquisition: str | Acquisition = "auto",
        kernel: str | Kernel | None = None,
        independent_sampler: BaseSampler | None = None,
        warn_independent_sampling: bool = True,
        deterministic_objective: bool = False,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        feasible: Predicate | None = None,
        cost: str | None = None,
        earlier: Sequence[Any] = (),
        local_after: int | Literal["auto"] | None = "auto",
    ) -> None:
        if not isinstance(independent_sampler, BaseSampler | None):
            raise TypeError(
                f"independent_sampler must be one of optuna.samplers, such as RandomSampler(), not "
                f"{shortened(independent_sampler)}"
            )
        if constraints_func is not None and not callable(constraints_func):
            raise TypeError(f"constraints_func must be a function of a trial, not {shortened(constraints_func)}")
        priors = DETERMINISTIC if deterministic_objective else None
        n_startup = None if n_startup_trials is None else whole("n_startup_trials", n_startup_trials, 0)
        options = ModelOptions(check_seed(seed), lag, acquisition, n_startup=n_startup, priors=priors, cost=cost)
        options = replace(options, local_after=local_after)
        # Reject wrong arguments now, not in the first trial.
        options.optimizer(Structure({"x": IntDistribution(0, 1)}, {}, frozenset()), "minimize")
        if feasible is not None and not callable(feasible):
            raise ValueError(f"feasible must be a function of the parameters (a dict), not {shortened(feasible)}")
        if isinstance(earlier, str | bytes) or not isinstance(earlier, Sequence):
            raise ValueError(f"earlier must be a list of studies and tables, not {shortened(earlier)}")
        self._options = replace(options, kernel=check_choice(kernel), feasible=feasible)
        self._earlier = list(earlier)
        self._independent_sampler = independent_sampler
        self._constraints_func = constraints_func
        self._warn_independent_sampling = warn_independent_sampling
        self._memories = Memories()

    @classmethod
    def with_options(cls, options: ModelOptions) -> "LazySampler":
        """A sampler that continues with the options of a run."""
        sampler = cls(seed=options.seed)
        sampler._options = options
        return sampler

    def __getstate__(self) -> dict[str, Any]:
        """Without the memories: a copy reads what it needs from the study. A predicate may be a lambda."""
        state = {**self.__dict__, "_memories": None}
        if self._options.feasible is not None:
            import cloudpickle

            state["_options"] = replace(self._options, feasible=None)
            state["feasible"] = cloudpickle.dumps(self._options.feasible)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        predicate = state.pop("feasible", None)
        self.__dict__.update(state)
        self._memories = Memories()
        if predicate is not None:
            import cloudpickle

            self._options = replace(self._options, feasible=cloudpickle.loads(predicate))

    def reseed_rng(self) -> None:
        """Nothing to do for suggestions: they depend on the seed and the trial's number, which no two trials share."""
        if self._independent_sampler is not None:
            self._independent_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Note that this sampler has begun the trial."""
        # Without the memory's lock: a thread that holds it may wait for this trial until it is noted.
        self._memories.of(study).own.add(trial.number)
        if self._independent_sampler is not None:
            self._independent_sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Keep the constraints of a trial. The model reads finished trials when the next one begins."""
        if self._options.cost is not None and state == TrialState.COMPLETE:
            check_returned(trial, self._options.cost)
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)
        if self._independent_sampler is not None:
            self._independent_sampler.after_trial(study, trial, state, values)

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,
    ) -> dict[str, BaseDistribution]:
        """All parameters that any trial has had and that vary, each as in its latest trial."""
        memory = self._memories.of(study)
        with memory.lock:
            memory.read(study, trial.number)
            return memory.space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The suggestion for a trial: values of all parameters that will be active, judging by the trials so far."""
        if not search_space:
            return {}
        memory = self._memories.of(study)
        memory.own.add(trial.number)  # also if it was begun without `before_trial`
        with memory.lock:
            memory.read_once(study, trial.number)
            memory.wait_for_earlier(study)
            options = ours = self._options_for(study, memory)
            if options.feasible is not None:
                options = replace(options, feasible=OneByOne(options.feasible, memory.note_constants()))
            model = memory.model_for(search_space, partial(open_model, study, options))
            params = model.optimizer.propose(trial.number)
            model.announce(trial.number, {**params, **trial.system_attrs.get("fixed_params", {})})
            # Other processes know what this trial will evaluate before it has asked for its parameters.
            unkept = memory.unkept_options(study, ours)
            always = memory.others_run or unkept.needed
            written = model.announcement(trial.number, always=always, extra=unkept.attributes)
            for key, text in written.items():
                with_retries(partial(study._storage.set_trial_system_attr, trial._trial_id, key, text))
            if written:
                memory.note_kept_options()
            return params

    def _options_for(self, study: Study, memory: Memory) -> ModelOptions:
        """The options for a study: what its earlier studies say depends on its directions."""
        if not self._earlier:
            return self._options
        if memory.earlier is None:
            memory.earlier = read_earlier(self._earlier, directions_of(study))
        return replace(self._options, earlier=memory.earlier)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that is new or was expected to be inactive, or whose range has changed: independently sampled.

        In the first trials it is that of the best configuration of an earlier study, if it has the parameter.
        """
        memory = self._memories.of(study)
        known = memory.distributions
        warns = self._warn_independent_sampling and param_name in known and not param_distribution.single()
        if warns and memory.is_first_warning(param_name):
            _logger.warning(_why_independent(trial, param_name, known[param_name], param_distribution))
        if self._independent_sampler is None and param_name not in known:
            value = self._earlier_value(study, trial, param_name, param_distribution)
            if value is not None:
                return value
        # Random, but repeatable, and different in every trial of every process.
        rng = np.random.default_rng((self._options.seed, trial.number, zlib.crc32(param_name.encode())))
        space = Space({param_name: param_distribution})
        feasible = self._options.feasible
        for _ in range(1 if feasible is None else INDEPENDENT_TRIES):
            if self._independent_sampler is not None:
                value = self._independent_sampler.sample_independent(study, trial, param_name, param_distribution)
            else:
                value = space.decode(space.sample(rng, 1)[0])[param_name]
            if feasible is None or allows(feasible, {**trial.params, param_name: value}):
                break
        return value

    def _earlier_value(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The parameter of the best configuration of an earlier study; None if it has none that may be evaluated."""
        earlier = self._options_for(study, self._memories.of(study)).earlier
        found = best_of(earlier, trial.number, param_name)
        if found is None or not contains(param_distribution, found):
            return None
        value = param_distribution.to_external_repr(param_distribution.to_internal_repr(found))
        feasible = self._options.feasible
        return value if feasible is None or allows(feasible, {**trial.params, param_name: value}) else None


def _why_independent(trial: FrozenTrial, name: str, known: BaseDistribution, asked: BaseDistribution) -> str:
    """Why a parameter that earlier trials had is sampled independently, and what that means."""
    end = "This is said once for each parameter; warn_independent_sampling=False turns it off."
    if known != asked:
        return (
            f"Trial {trial.number}: the range of {name!r} changes between trials. The model suggests from the range of "
            "the latest trial and learns from all of them; where a suggestion is not in the range of its own trial, "
            f"as here, the value is sampled independently. {end}"
        )
    return (
        f"Trial {trial.number}: {name!r} is new here: no trial so far had it with the other parameters as they are. It "
        f"is sampled independently, and modelled as soon as trials have shown when it is active. {end}"
    )
