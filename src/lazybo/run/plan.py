"""optimize(): one call from a training function to an optimised study, on a laptop or a cluster.

It checks its arguments, makes a `RunPlan`, and runs it. Nothing is written before all of it was checked.
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from optuna.pruners import BasePruner
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.core import Direction, checks
from lazybo.run.arguments import (
    HINTS,
    Known,
    check_combination,
    check_initial,
    check_objects,
    check_steps,
    checked_call,
    checked_limits,
    checked_options,
    checked_space,
    completed_pruner,
    known_results,
)
from lazybo.run.checkpoints import checkpoint_root
from lazybo.run.devices import Devices, check_devices, check_visible, parsed_devices
from lazybo.run.engines import LOCAL, Engine, SerialEngine, is_cluster, make_engine
from lazybo.run.goals import Goals
from lazybo.run.limits import Limits, attach_study, check_count, or_inf
from lazybo.run.loop import drive
from lazybo.run.objective import Call, KFold
from lazybo.run.open_trials import Callback, RunOptions
from lazybo.run.worker import Steps
from lazybo.search import Optimizer, Options
from lazybo.space import Space
from lazybo.study import Definition, LazyPruner, LazySampler, Session, Store, StudyView


@checks.hinting(HINTS)
def optimize(
    objective: Callable[..., Any],
    space: Space | Mapping[str, Any] | None = None,
    *,
    n_trials: int | None = None,
    direction: Direction | Sequence[Direction] | Mapping[str, Direction] = "minimize",
    constraints: Mapping[str, float | tuple[float | None, float | None]] | None = None,
    sampler: LazySampler | None = None,
    seed: int | None = None,
    n_parallel: int | None = None,
    executor: Any = None,
    devices: Sequence[int | str | Sequence[int | str]] | None = None,
    synchronous: bool = False,
    storage: str | Path | BaseStorage | None = None,
    study_name: str | None = None,
    limits: Limits | None = None,
    initial: Iterable[Mapping[str, Any]] = (),
    warm_start: Any = None,
    max_steps: int | None = None,
    checkpoints: str | Path | None = None,
    pruner: BasePruner | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Study:
    """Minimise (or maximise) an objective over a space, and return the study with all trials.

    ``objective`` takes the parameters by their names or as one dict. An argument called ``trial`` gets the trial. It
    returns a number, or a dict with ``value`` and metrics to keep. `lazybo.kfold` makes an objective from folds.
    ``space`` is a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna distributions;
    or a `lazybo.Space`, if some parameters are not always active or not all configurations are feasible. Without one,
    the objective takes the trial and names its parameters by ``trial.suggest_*``.

    **Several objectives and constraints.** If ``direction`` is a list of directions, the objective returns a tuple or
    list of values, and ``study.best_trials`` has the front. If it is a dict of names and directions, the objective
    returns a dict with these names. ``constraints`` bounds metrics that the objective returns: ``{"memory": 4e9}`` is
    the largest feasible value, a pair is a range. Or the objective calls ``trial.set_constraint``. Only feasible trials
    can be the best.

    **How it chooses.** ``sampler=lazybo.LazySampler(...)`` has the options of the model: kernel, noise, cost, earlier
    studies and others. ``seed`` makes a run with one worker repeatable.

    **Where it runs.** ``executor`` is None (here; in processes if ``n_parallel`` is more than 1), "threads",
    "processes", "dask://host:port", "ray", "mpi", a Dask client, an ``MPIPoolExecutor``, or any
    ``concurrent.futures.Executor``. A free worker gets the next evaluation at once; with ``synchronous``, evaluations
    run in rounds of ``n_parallel``, and each round waits for its slowest. With ``devices=[0, 1]`` each running
    evaluation owns one of these GPUs and sees no other; ``(0, 1)`` as an entry is two GPUs for one evaluation.

    **What is kept.** ``storage`` is a path (an SQLite file), a URL, or an Optuna storage. The same call again resumes
    the study, up to ``n_trials`` in total. An evaluation whose worker or whole process died is run again with the same
    parameters.

    **When it ends.** After ``n_trials``, or at one of the ``limits`` (`lazybo.Limits`): a time, a target, no progress,
    failures. Ctrl-C waits for the running evaluations and then raises KeyboardInterrupt; a second Ctrl-C stops at once.

    **When it fails.** `lazybo.RunFailed` is raised after too many failures in a row, at the end if no trial has
    completed, and at once if the first evaluations fail with an error that looks like a bug, such as a NameError. Its
    ``__cause__`` is what the objective raised.

    **What it starts with.** ``initial`` configurations are evaluated first; the optimiser chooses the parameters that
    they leave out. ``warm_start`` gives known results of the same problem: studies, or tables of parameters and
    ``value``.

    **Step by step.** A generator function ``def train(params, checkpoint): ... yield value`` reports the value of each
    step. ``checkpoint`` is a folder of the trial that outlives the process: a training that was killed continues from
    there. With ``max_steps``, the last step of a training, unpromising ones are paused, and resumed when they look
    better than a new one (docs/curves.md). ``checkpoints`` is the folder for all of them; by default one next to the
    storage. ``pruner`` decides on trials that report (default: `lazybo.LazyPruner`).

    ``callbacks`` are called as ``f(study, trial)`` after each trial, and when it is paused. If one has a method
    ``report(study, trial, step, value)``, that is called for every reported value: so the trackers of `lazybo.track`
    show trials in MLflow, TensorBoard or Weights & Biases while they run.
    """
    return RunPlan.of(**locals()).run()


# The arguments that a run keeps as they were given.
AS_GIVEN = ("synchronous", "callbacks", "progress", "executor", "n_parallel", "storage", "study_name", "checkpoints")


@dataclass(frozen=True, kw_only=True)
class RunPlan(RunOptions):
    """A run that can begin: `of` checks the arguments of `lazybo.optimize`, and `run` evaluates.

    ``space`` is empty if the objective names its parameters itself. ``known`` are results to start from.
    """

    space: Space
    options: Options
    seed: int | None
    initial: Sequence[Mapping[str, Any]]
    known: Sequence[Known]
    executor: Any
    n_parallel: int | None
    storage: str | Path | BaseStorage | None
    study_name: str | None
    checkpoints: str | Path | None
    pruner: BasePruner

    @staticmethod
    def of(*arguments: Any, **named: Any) -> "RunPlan":
        """The plan for arguments of `lazybo.optimize`. Raises a ValueError or a TypeError if they are wrong."""
        bound = inspect.signature(optimize).bind(*arguments, **named)
        bound.apply_defaults()
        given: Any = SimpleNamespace(**bound.arguments)
        limits, n_trials = checked_limits(given.limits), check_count("n_trials", given.n_trials)
        limits.check_ends(n_trials)
        options, pruner = checked_options(given.sampler, given.seed), given.pruner
        check_objects(given.callbacks, pruner, given.study_name)
        reports = pruner.reports if isinstance(pruner, LazyPruner) else None
        goals = Goals.of(given.direction, given.constraints).reporting(reports)
        goals = replace(goals, cost=None if options.cost == checks.SECONDS else options.cost)
        folds = given.objective.k if isinstance(given.objective, KFold) else None
        check_combination(goals, limits, options, given.warm_start, pruner, folds=folds is not None)
        space, options = checked_space(given.space, options, limits, given.warm_start, given.max_steps)
        definition = Definition(goals.directions, goals.names)
        name = given.study_name or definition.DEFAULT_NAME
        options = replace(options, earlier=definition.earlier(options.earlier, given.storage, name))
        optimizer = Optimizer.with_options(space, goals.directions, options)  # refuses wrong options
        first = check_initial(given.initial, space, optimizer)
        known = known_results(given.warm_start, space, goals.directions[0])
        call, devices = checked_call(given.objective, space), check_devices(given.devices)
        check_steps(call, given.max_steps, given.checkpoints)
        seed = given.seed if given.sampler is None or given.seed is not None else given.sampler.seed
        return RunPlan(
            objective=call,
            folds=folds,
            n_trials=n_trials,
            limits=limits,
            reports=call.reports or limits.trial_timeout is not None or devices is not None,
            goals=goals,
            steps=Steps(given.max_steps, pauses=not goals.several),
            values=space.values,
            devices=devices,
            claims=call.claims,
            defines=call.defines,
            space=space,
            options=options,
            seed=seed,
            initial=first,
            known=known,
            pruner=completed_pruner(pruner, given.max_steps),
            **{name: bound.arguments[name] for name in AS_GIVEN},
        )

    # Checks that can be made alone.
    check_initial = staticmethod(check_initial)
    parsed_devices = staticmethod(parsed_devices)
    is_elsewhere = staticmethod(is_cluster)

    # -------------------------------------------------------------------- run

    def run(self) -> Study:
        """Evaluate, and return the study with all trials."""
        study: Study | None = None
        try:
            with self._engine() as engine, contextlib.ExitStack() as stack:
                assert isinstance(self.objective, Call), "it has not been sent"
                payload = _sendable(self.objective) if engine.remote else self.objective
                backend = Store.open(self.storage)
                stack.enter_context(Store.explained(backend))
                bounds = tuple(bound.name for bound in self.goals.bounds)
                definition = Definition(self.goals.directions, self.goals.names, bounds, self.goals.reports)
                study, seed = definition.open(backend, self.study_name, self.space, self.seed)
                root = checkpoint_root(study, self.checkpoints) if self.objective.takes_checkpoint else None
                run = replace(
                    self,
                    objective=payload,
                    steps=replace(self.steps, checkpoints=root),
                    devices=None if self.devices is None else replace(self.devices, by_engine=engine.assigns_devices),
                )
                session = self._begin(study, replace(self.options, seed=seed))
                failure = drive(session, engine, run)
                if self.defines and failure is None:
                    _warn_of_names(study, self.initial, self.options)
            if failure is not None:  # now nothing runs any more, and the engine is closed
                raise failure
        except BaseException as error:
            if study is not None:
                attach_study(error, study)
            raise
        return study

    @contextlib.contextmanager
    def _engine(self) -> Iterator[Engine]:
        """The engine of the run; closed at the end, unless the caller opened it.

        With devices, evaluations run in processes, unless the objective claims its device itself.
        """
        executor, n_parallel, gpus = self.executor, self.n_parallel, 0.0
        if self.devices is not None:
            executor = "processes" if executor is None else executor
            if isinstance(executor, str) and executor in LOCAL:
                n_parallel = _check_places(self.devices, n_parallel)
            elif executor != "mpi" and not isinstance(executor, Executor):
                gpus = self.devices.gpus
        engine = make_engine(executor, n_parallel, gpus)
        try:
            self._check_engine(engine)
            yield engine
        except BaseException:
            if engine is not executor:
                engine.shutdown(wait=False, cancel_futures=True)
            raise
        # Wait until it is closed: a cluster that is still closing when the interpreter exits prints errors.
        if engine is not executor:
            engine.shutdown(wait=True, cancel_futures=True)

    def _check_engine(self, engine: Engine) -> None:
        if self.devices is not None and not engine.remote and not self.claims:
            raise ValueError("devices need processes of their own; use executor='processes', or a cluster")
        if self.limits.trial_timeout is not None and isinstance(engine, SerialEngine):
            raise ValueError("trial_timeout cannot end an evaluation in this process; use executor='processes'")

    def _begin(self, study: Study, options: Options) -> Session:
        """Write what the study keeps of the run, queue the initial configurations, and open the model."""
        view = StudyView.of(study)
        if not self.defines:
            _warn_of_repeats(self.space, self.n_trials, self.limits, view)
        view.keep_options(options, self.space)
        # A kernel object has the columns of this space; the sampler infers its own space from the trials.
        by_name = options.kernel if isinstance(options.kernel, str) else None
        study.sampler = LazySampler.with_options(replace(options, kernel=by_name), self.space.feasible)
        study.pruner = self.pruner
        session = Session(study, self.space, driver="", options=options, known=self.known)
        if self.defines:
            for each in self.initial:
                study.enqueue_trial(dict(each), skip_if_exists=True)
        else:
            session.enqueue([dict(each) for each in self.initial])
        return session


def _sendable(call: Call) -> bytes:
    """The objective as workers get it. Functions of notebooks, lambdas and closures can be sent too."""
    import cloudpickle

    try:
        payload: bytes = cloudpickle.dumps(call)
    except Exception as error:  # what can go wrong depends on what the objective holds
        raise ValueError(
            f"the objective cannot be sent to workers: {error}. Open what cannot be sent (files, connections, locks) "
            "inside the objective, or use executor='threads'"
        ) from error
    return payload


def _check_places(devices: Devices, n_parallel: int | None) -> int:
    """How many evaluations run at once on the devices of this machine."""
    check_visible(devices)
    count = len(devices.entries)
    if n_parallel is not None and checks.whole("n_parallel", n_parallel, 1) > count:
        raise ValueError(
            f"n_parallel={n_parallel}, but devices has {count} entries: {devices}; name a device twice for two "
            "evaluations on it"
        )
    return n_parallel or count


def _warn_of_names(study: Study, initial: Sequence[Mapping[str, Any]], options: Options) -> None:
    completed = [trial for trial in StudyView.of(study).trials if trial.state == "complete"]
    asked = {name for trial in completed for name in trial.params}
    if not completed:
        return
    if not asked:
        checks.warn(
            "the objective has asked its trial for no parameter, so nothing is optimised; use trial.suggest_float, ..."
        )
        return
    given = {"initial": {name for each in initial for name in each}, **options.about()}
    for what, names in given.items():
        if names - asked:
            unknown = ", ".join(map(repr, sorted(names - asked)))
            checks.warn(
                f"{what} has {unknown}, but the objective has asked for {', '.join(map(repr, sorted(asked)))} only"
            )


def _warn_of_repeats(space: Space, n_trials: int | None, limits: Limits, view: StudyView) -> None:
    """Warn if the search has more trials than there are configurations; failed ones may be repeated."""
    wanted = or_inf(n_trials) - limits.confirm - sum(trial.has_failed for trial in view.trials)
    if space.size < wanted < math.inf:
        count = f"{space.size:g} configuration{'s' * (space.size > 1)}"
        checks.warn(
            f"the space has only {count}, so some of {wanted:g} trials repeat others; give fewer if that is not meant"
        )
