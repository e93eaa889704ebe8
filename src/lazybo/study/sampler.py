"""LazySampler: the optimiser as an Optuna sampler.

The sampler has a model for each study (`StudyModel`), which learns from finished trials and takes running ones as
pending, whichever process runs them. What was learned is stored with the trials, so that a resumed study or a second
process continues with it.

A trial gets one attribute, as it does from Optuna's TPESampler: what it will evaluate, and what was learned for its
suggestion. It is not written if nothing was learned and no other process has a trial running.

The space is the union of all parameters seen. When each of them is active is inferred from the trials
(`infer_space`).

Every process has its own model. Processes know of each other by the trials in the study alone.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import BaseTrial, FixedTrial, FrozenTrial, TrialState

from lazybo.core import Lag, checks, codec
from lazybo.gp import Kernel, Priors
from lazybo.search import EarlierStudy, Options
from lazybo.space import Belief, Space, Structured
from lazybo.study.definition import Definition, directions_of, infer_space, unstored_options
from lazybo.study.feed import StudyReader, StudyReaders
from lazybo.study.model import StudyModel, open_model
from lazybo.study.store import Store, store_constraints

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# How often a parameter that is asked for alone is drawn again if the predicate is false.
INDEPENDENT_TRIES = 256


class LazySampler(BaseSampler):
    """Gaussian-process Bayesian optimisation for Optuna, without torch, at the speed of TPE.

    ``seed``, ``lag``, ``acquisition``, ``batch``, ``kernel``, ``noise``, ``priors``, ``value_transform``, ``cost``,
    ``earlier``, ``local_after`` and ``deterministic`` are the options of the model, described in
    `lazybo.search.options.Options`. A kernel object must have the columns of the space, a name fits any. The first
    ``n_startup_trials`` are spread over the space without a model (default: one for each parameter, 5 to 10).

    ``beliefs`` says where you expect the best values, by the names of parameters: ``{"lr": lazybo.Belief(around=1e-3,
    within=3)}``. One that does not fit the latest range of its parameter is ignored.

    ``cost="seconds"`` goes by Optuna's times of the trials. Any other name is a user attribute
    (``trial.set_user_attr``) with the cost of a trial. ``earlier`` also takes ``"name@storage"``.

    Studies may have several objectives, and trials may set constraints (``trial.set_constraint``). As in Optuna's own
    samplers, ``constraints_func`` computes them from a trial that has finished: a list of numbers, each satisfied if it
    is at most 0.

    ``feasible`` is a function of the parameters (a dict) that says which configurations may be evaluated. Suggestions
    of all parameters at once are always feasible. Parameters that are asked for one by one, as in the first trial, are
    drawn again while they make the predicate false, which may not be enough: enqueue a feasible configuration first.

    A parameter that no trial has had before comes from ``independent_sampler``, an Optuna sampler (default: random).
    """

    @checks.hinting({"deterministic_objective": "use deterministic=", "n_startup": "use n_startup_trials="})
    def __init__(
        self,
        *,
        seed: int | None = None,
        lag: Lag = "auto",
        acquisition: Any = "auto",
        batch: Literal["auto", "fantasy", "maxima"] = "auto",
        n_startup_trials: int | None = None,
        kernel: str | Kernel | None = None,
        noise: float | None = None,
        priors: Priors | None = None,
        value_transform: Literal["warped", "scaled", "centred"] = "warped",
        cost: str | None = None,
        earlier: Sequence[Any] = (),
        local_after: int | Literal["auto"] | None = "auto",
        deterministic: bool = False,
        beliefs: Mapping[str, Belief] | None = None,
        feasible: Callable[[dict[str, Any]], bool] | None = None,
        independent_sampler: BaseSampler | None = None,
        warn_independent_sampling: bool = True,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
    ) -> None:
        if not isinstance(independent_sampler, BaseSampler | None):
            raise TypeError(
                f"independent_sampler must be one of optuna.samplers, such as RandomSampler(), not "
                f"{checks.shortened(independent_sampler)}"
            )
        if constraints_func is not None and not callable(constraints_func):
            raise TypeError(f"constraints_func must be a function of a trial, not {checks.shortened(constraints_func)}")
        if feasible is not None and not callable(feasible):
            raise ValueError(f"feasible must be a function of a dict of parameters, not {checks.shortened(feasible)}")
        self.options = Options(
            seed=checks.check_seed(seed),
            lag=lag,
            acquisition=acquisition,
            batch=batch,
            n_startup=None if n_startup_trials is None else checks.whole("n_startup_trials", n_startup_trials, 0),
            kernel=kernel,
            noise=noise,
            priors=priors,
            value_transform=value_transform,
            cost=cost,
            earlier=earlier,  # type: ignore[arg-type]
            local_after=local_after,
            deterministic=deterministic,
            beliefs=Belief.by_name(beliefs),
        )
        self.seed = seed  # as it was given; the seed in the options is random if there was none
        self.feasible = feasible
        self._independent_sampler = independent_sampler
        self._constraints_func = constraints_func
        self._warn_independent_sampling = warn_independent_sampling
        self._readers = StudyReaders(_Known)

    @classmethod
    def with_options(cls, options: Options, feasible: Callable[[dict[str, Any]], bool] | None = None) -> "LazySampler":
        """A sampler that continues with the options of a run."""
        sampler = cls(seed=options.seed, feasible=feasible)
        sampler.options = options
        return sampler

    def __getstate__(self) -> dict[str, Any]:
        """Without the readers: a copy reads the study itself. A predicate may be a lambda."""
        state = {**self.__dict__, "_readers": None}
        if self.feasible is not None:
            import cloudpickle

            state["feasible"] = cloudpickle.dumps(self.feasible)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._readers = StudyReaders(_Known)
        if self.feasible is not None:
            import cloudpickle

            self.feasible = cloudpickle.loads(state["feasible"])

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
        if self.options.cost is not None and state == TrialState.COMPLETE:
            _check_cost(trial, self.options.cost)
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
            params = model.propose(trial.number)[0]
            model.announce(trial.number, {**params, **trial.system_attrs.get("fixed_params", {})})
            # Other processes know what this trial will evaluate before it has asked for its parameters.
            if known.unstored is None:
                known.unstored = unstored_options(study, options, reader.trials)
            unstored, needed = known.unstored
            written = model.announcement(trial.number, always=reader.others_run or needed, extra=unstored)
            if written:
                Store(study).set_trial_attributes(trial._trial_id, written)
                known.unstored = {}, False
            return params

    def _options_for(self, study: Study, known: "_Known") -> Options:
        """The options for a study: the results of its earlier studies depend on its directions."""
        if not self.options.earlier:
            return self.options
        if known.earlier is None:
            definition = Definition(directions_of(study), tuple(study.metric_names or ()) or None)
            known.earlier = definition.earlier(self.options.earlier)
        return replace(self.options, earlier=known.earlier)

    def _model(
        self,
        study: Study,
        reader: "StudyReader[_Known]",
        options: Options,
        search_space: dict[str, BaseDistribution],
    ) -> StudyModel:
        """The model of this space with all trials; a new one if trials have shown another space."""
        known, trials = reader.state, reader.trials
        if self.feasible is not None:
            singles = {name: d for name, d in reader.distributions.items() if d.single()}
            constants = Space(singles).points.decode(np.zeros(0)) if singles else {}
            if known.predicate is None or constants != known.predicate.constants:
                known.predicate, known.model = PartialPredicate(self.feasible, constants), None
        model = known.model
        if model is not None and model.space.distributions == search_space:
            model.absorb(trials, reader.number)
        if model is None or model.space.distributions != search_space or model.space_outdated:
            space = infer_space(search_space, trials, known.predicate, Store(study).kinds())
            if model is None or options.informed(space) != model.space:
                model = open_model(study, options, space, trials)
                model.absorb(trials, reader.number)
            model.space_outdated = False
        known.model = model
        return model

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value for a parameter that is new or was expected to be inactive, or whose range has changed.

        In the first trials it comes from the best configuration of an earlier study, if it has the parameter.
        """
        reader = self._readers.of(study)
        known = reader.distributions
        if self._warn_independent_sampling and param_name in known and not param_distribution.single():
            mark = object()  # this runs without the lock, and says so once for each parameter
            if reader.state.warned.setdefault(param_name, mark) is mark:
                _logger.warning(_why_independent(trial, param_name, known[param_name], param_distribution))
        if self._independent_sampler is None and param_name not in known:
            value = self._earlier_value(study, trial, param_name, param_distribution)
            if value is not None:
                return value
        space = self._space_of(param_name, param_distribution, is_new=param_name not in known)
        # Random, but repeatable, and different in every trial of every process.
        rng = np.random.default_rng((self.options.seed, trial.number, zlib.crc32(param_name.encode())))
        feasible = self.feasible
        for tried in range(1 if feasible is None else INDEPENDENT_TRIES):
            if self._independent_sampler is not None:
                value = self._independent_sampler.sample_independent(study, trial, param_name, param_distribution)
            else:
                most = trial.number == 0 and not tried  # where a belief expects the optimum most
                u = rng.random((1, space.points.draws))
                believed = space.believed
                point = space.points.from_uniform(u) if believed is None else believed.points(u, most=most)
                value = space.points.decode(point[0])[param_name]
            if feasible is None or allows(feasible, {**trial.params, param_name: value}):
                break
        return value

    def _space_of(self, name: str, distribution: BaseDistribution, *, is_new: bool) -> Space:
        """The space of one parameter, with the belief about it."""
        space = Space({name: distribution})
        beliefs = {name: self.options.beliefs[name]} if name in self.options.beliefs else {}
        # A belief about a new parameter is checked; later its range may change.
        return space.changed(beliefs=beliefs) if is_new else space.believing(beliefs)

    def _earlier_value(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The parameter of the best configuration of an earlier study; None if it has none that may be evaluated."""
        earlier = self._options_for(study, self._readers.of(study).state).earlier
        found = EarlierStudy.best_of(earlier, trial.number, param_name)
        if found is None or not Space({param_name: param_distribution}).allows(param_name, found):
            return None
        value = param_distribution.to_external_repr(param_distribution.to_internal_repr(found))
        feasible = self.feasible
        return value if feasible is None or allows(feasible, {**trial.params, param_name: value}) else None


def _check_cost(trial: FrozenTrial, name: str) -> None:
    """Raise a ValueError if a complete trial lacks the metric that is the cost."""
    found = codec.metric_at(trial.user_attrs, name)
    if name != checks.SECONDS and not checks.is_cost(found):
        given = "there is none" if found is None else f"not {checks.shortened(found)}"
        raise ValueError(
            f"trial {trial.number}: cost={name!r} needs a positive number under this name in every trial, {given}; "
            f"call trial.set_user_attr({name!r}, ...), or use cost='seconds', which is measured"
        )


def _why_independent(trial: FrozenTrial, name: str, known: BaseDistribution, asked: BaseDistribution) -> str:
    """Why a parameter that earlier trials had is sampled independently, and what that means."""
    end = "Shown once for each parameter; warn_independent_sampling=False turns it off."
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

    def __init__(self, predicate: Callable[[dict[str, Any]], bool], constants: Mapping[str, Any]) -> None:
        self._predicate = predicate
        self.constants = dict(constants)  # parameters with one value, which the model's space does not have
        self._warned = False

    def __call__(self, params: Mapping[str, Any]) -> bool:
        """The predicate of a suggestion."""
        try:
            return self._predicate({**self.constants, **params})
        except KeyError as error:
            if not self._warned:
                self._warned = True
                _logger.warning(
                    f"feasible needs the parameter {error}, which is not among {sorted({*self.constants, *params})}; "
                    "suggestions without it count as feasible."
                )
            return True


def allows(predicate: Callable[[dict[str, Any]], bool], params: Mapping[str, Any]) -> bool:
    """Whether the parameters that a trial has so far may be part of a feasible configuration."""
    try:
        return bool(predicate(dict(params)))
    except Exception:  # without all parameters the user's predicate may fail in any way
        return True


@dataclass
class _Known:
    """What the sampler has made of the trials of a study."""

    model: StudyModel | None = None
    predicate: PartialPredicate | None = None
    earlier: tuple[EarlierStudy, ...] | None = None  # once they were read
    unstored: tuple[dict[str, Any], bool] | None = None  # `unstored_options`
    warned: dict[str, object] = field(default_factory=dict)  # parameters that a warning was given about


# ------------------------------------------------------- parameters with structure


def suggest(trial: Any, name: str, kind: Structured) -> Any:
    """The value of a parameter with structure in an objective: ``lazybo.suggest(trial, "order", Permutation([…]))``.

    It works with every sampler: the value is made of ordinary parameters, and an attribute of the study says of which
    kind they are.
    """
    if not isinstance(kind, Structured):
        raise ValueError(f"lazybo.suggest takes a kind such as lazybo.Permutation([...]), not {checks.shortened(kind)}")
    known: object = trial
    if not isinstance(known, BaseTrial):
        raise ValueError(f"lazybo.suggest takes the trial of an objective, not {checks.shortened(trial)}")
    if not isinstance(name, str):
        raise ValueError(f"the name of a parameter must be a text, not {checks.shortened(name)}")
    if callable(getattr(trial, "suggest", None)):  # of `lazybo.optimize`, which has chosen before
        return trial.suggest(name, kind)
    if not isinstance(trial, FixedTrial | FrozenTrial):
        Store(trial.study).keep_kinds({name: kind})
    return kind.read([_suggested(trial, each, d) for each, d in kind.stored(name).items()])


def _suggested(trial: BaseTrial, name: str, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    assert isinstance(distribution, FloatDistribution), "kinds are stored as choices and numbers"
    return trial.suggest_float(name, distribution.low, distribution.high)
