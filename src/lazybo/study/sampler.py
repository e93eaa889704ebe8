"""LazySampler: the optimiser as an Optuna sampler.

The sampler has a model for each study (`StudyModel`), which learns from finished trials and takes running ones as
pending, whichever process runs them. What was learned is stored with the trials, so that a resumed study or a second
process continues with it.

A trial gets one attribute, as it does from Optuna's TPESampler: what it will evaluate, and what was learned for its
suggestion. It is not written if nothing was learned and no other process has a trial running.

The space is the union of all parameters seen. When each of them is active is inferred from the trials
(`infer_structure`).
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import check_seed, shortened, whole
from lazybo.gp.fit import Priors
from lazybo.gp.kernels import Kernel, check_choice
from lazybo.gp.lag import Lag
from lazybo.search.acquisition import Acquisition
from lazybo.search.earlier import EarlierStudy, best_of
from lazybo.space.axis import contains, only_value
from lazybo.space.feasibility import Predicate
from lazybo.space.space import Space
from lazybo.study.earlier import read_earlier
from lazybo.study.factory import ModelOptions, UnstoredOptions, open_model, unstored_options
from lazybo.study.feed import StudyReader, StudyReaders
from lazybo.study.model import StudyModel
from lazybo.study.store import Store, store_constraints
from lazybo.study.trial import Structure, check_returned, directions_of, infer_structure

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# The initial noise and the spread of its prior for an objective that is said to be deterministic.
DETERMINISTIC = Priors(noise=1e-7, noise_spread=0.1).without_noise()
# How often a parameter that is asked for alone is drawn again if the predicate is false.
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
        self._readers = StudyReaders(_Known)

    @classmethod
    def with_options(cls, options: ModelOptions) -> "LazySampler":
        """A sampler that continues with the options of a run."""
        sampler = cls(seed=options.seed)
        sampler._options = options
        return sampler

    def __getstate__(self) -> dict[str, Any]:
        """Without the readers: a copy reads the study itself. A predicate may be a lambda."""
        state = {**self.__dict__, "_readers": None}
        if self._options.feasible is not None:
            import cloudpickle

            state["_options"] = replace(self._options, feasible=None)
            state["feasible"] = cloudpickle.dumps(self._options.feasible)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        predicate = state.pop("feasible", None)
        self.__dict__.update(state)
        self._readers = StudyReaders(_Known)
        if predicate is not None:
            import cloudpickle

            self._options = replace(self._options, feasible=cloudpickle.loads(predicate))

    def model(self, study: Study) -> StudyModel | None:
        """The model of a study as of its last suggestion; None while this sampler has not made any with a model."""
        return self._readers.of(study).state.model

    def reseed_rng(self) -> None:
        """Nothing to do for suggestions: they depend on the seed and the trial's number, which no two trials share."""
        if self._independent_sampler is not None:
            self._independent_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Note that this sampler has begun the trial."""
        # Without the lock: a thread that holds it may wait for this trial until it is noted.
        self._readers.of(study).own.add(trial.number)
        if self._independent_sampler is not None:
            self._independent_sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Store the constraints of a trial. The model reads finished trials when the next one begins."""
        if self._options.cost is not None and state == TrialState.COMPLETE:
            check_returned(trial, self._options.cost)
        if self._constraints_func is not None:
            store_constraints(self._constraints_func, study, trial, state)
        if self._independent_sampler is not None:
            self._independent_sampler.after_trial(study, trial, state, values)

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,
    ) -> dict[str, BaseDistribution]:
        """All parameters that any trial has had and that vary, each as in its latest trial."""
        reader = self._readers.of(study)
        with reader.lock:
            reader.read(study, trial.number)
            return reader.space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The suggestion for a trial: values of all parameters that will be active, judging by the trials so far."""
        if not search_space:
            return {}
        reader = self._readers.of(study)
        reader.own.add(trial.number)  # also if it was begun without `before_trial`
        with reader.lock:
            reader.read_once(study, trial.number)
            reader.wait_for_earlier(study)
            options, known = self._options_for(study, reader.state), reader.state
            model = self._model(study, reader, options, search_space)
            params = model.optimizer.propose(trial.number)
            model.announce(trial.number, {**params, **trial.system_attrs.get("fixed_params", {})})
            # Other processes know what this trial will evaluate before it has asked for its parameters.
            known.unstored = known.unstored or unstored_options(study, options, reader.trials)
            always = reader.others_run or known.unstored.needed
            written = model.announcement(trial.number, always=always, extra=known.unstored.attributes)
            if written:
                Store(study).set_trial_attributes(trial._trial_id, written)
                known.unstored = UnstoredOptions({}, needed=False)
            return params

    def _options_for(self, study: Study, known: "_Known") -> ModelOptions:
        """The options for a study: the results of its earlier studies depend on its directions."""
        if not self._earlier:
            return self._options
        if known.earlier is None:
            known.earlier = read_earlier(self._earlier, directions_of(study))
        return replace(self._options, earlier=known.earlier)

    def _model(
        self,
        study: Study,
        reader: "StudyReader[_Known]",
        options: ModelOptions,
        search_space: dict[str, BaseDistribution],
    ) -> StudyModel:
        """The model of this space with all trials; a new one if trials have shown another structure."""
        known, trials = reader.state, reader.trials
        if options.feasible is not None:
            constants = {name: only_value(d) for name, d in reader.distributions.items() if d.single()}
            options = replace(options, feasible=PartialPredicate(options.feasible, constants))
            if constants != known.constants:  # the predicate needs them
                known.constants, known.model = constants, None
        if known.model is None or known.model.structure.distributions != search_space:
            known.model = open_model(study, options, infer_structure(search_space, trials), trials)
        known.model.absorb(trials, reader.number)
        if known.model.structure_outdated:
            known.model.structure_outdated = False
            structure = infer_structure(search_space, trials)
            if structure != known.model.structure:
                known.model = open_model(study, options, structure, trials)
                known.model.absorb(trials, reader.number)
                known.model.structure_outdated = False
        return known.model

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value for a parameter that is new or was expected to be inactive, or whose range has changed.

        In the first trials it comes from the best configuration of an earlier study, if it has the parameter.
        """
        reader = self._readers.of(study)
        known = reader.distributions
        if self._warn_independent_sampling and param_name in known and not param_distribution.single():
            mark = object()
            if reader.state.warned.setdefault(param_name, mark) is mark:  # without the lock
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
        earlier = self._options_for(study, self._readers.of(study).state).earlier
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


class PartialPredicate:
    """A predicate of configurations that may be incomplete: true while a parameter that it needs is missing.

    Optuna's objectives ask for their parameters one by one, and the parameters of a study are known only from its
    trials. So a predicate may need one that no trial has had yet.
    """

    def __init__(self, predicate: Predicate, constants: Mapping[str, Any]) -> None:
        self._predicate = predicate
        self._constants = dict(constants)  # parameters with one value, which the model's space does not have
        self._warned = False

    def __call__(self, params: Mapping[str, Any]) -> bool:
        """The predicate of a suggestion."""
        try:
            return self._predicate({**self._constants, **params})
        except KeyError as error:
            if not self._warned:
                self._warned = True
                _logger.warning(
                    f"feasible needs the parameter {error}, which is not among {sorted({*self._constants, *params})}; "
                    "suggestions without it count as feasible."
                )
            return True


def allows(predicate: Predicate, params: Mapping[str, Any]) -> bool:
    """Whether the parameters that a trial has so far may be part of a feasible configuration."""
    try:
        return bool(predicate(dict(params)))
    except Exception:  # without all parameters the user's predicate may fail in any way
        return True


@dataclass
class _Known:
    """What the sampler has made of the trials of a study."""

    model: StudyModel | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)  # parameters with one value that the predicate knows
    earlier: tuple[EarlierStudy, ...] | None = None  # once they were read
    unstored: UnstoredOptions | None = None
    warned: dict[str, object] = field(default_factory=dict)  # parameters that a warning was given about
