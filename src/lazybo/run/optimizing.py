"""optimize(): one call from a training function to an optimised study, on a laptop or a cluster."""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import Direction, checks
from lazybo.run.channel import StudyReporter, listening
from lazybo.run.checkpoints import checkpoint_root
from lazybo.run.devices import Devices, check_devices, check_visible
from lazybo.run.engines import LOCAL, Engine, SerialEngine, make_engine
from lazybo.run.failure import attach_study
from lazybo.run.goals import Goals, check_goals, check_pruner
from lazybo.run.limits import STOPPED_KEY, Limits, StopReason, check_count, or_inf
from lazybo.run.loop import Driver
from lazybo.run.objective import Call, KFold, call_of, defining_call
from lazybo.run.open_trials import Callback, RunOptions
from lazybo.run.presence import present
from lazybo.run.shared_study import EVALUATES_HERE, RECORDS_ALL
from lazybo.run.trial import Reporter
from lazybo.run.warm_start import check_initial, check_initial_feasible, known_results
from lazybo.run.worker import Steps
from lazybo.search import Optimizer, Options
from lazybo.space import Space
from lazybo.study import (
    DEFAULT_NAME,
    SECONDS,
    Definition,
    LazyPruner,
    LazySampler,
    Store,
    StudyModel,
    explained,
    keep_options,
    open_ledger,
    open_model,
    open_storage,
    open_study,
    options_digest,
    read_earlier,
)

_IN_SAMPLER = ["n_startup_trials", *(each.name for each in fields(Options) if each.name not in ("seed", "n_startup"))]
# What to use instead of arguments that moved, or that other libraries have.
HINTS = {
    **{each.name: f"use limits=lazybo.Limits({each.name}=...)" for each in fields(Limits)},
    **{name: f"use sampler=lazybo.LazySampler({name}=...)" for name in _IN_SAMPLER},
    **{name: f"use lazybo.Space({{...}}, {name}=...) as the space" for name in Space.KNOWLEDGE},
    "directions": "use direction=, which also takes a list or a dict of names",
    "reports": "use pruner=lazybo.LazyPruner(reports=...)",
    "n_startup": "use sampler=lazybo.LazySampler(n_startup_trials=...)",
    "n_jobs": "use n_parallel= for several evaluations at the same time (in processes; executor='threads' for threads)",
    "study": "give storage= and study_name=; the same ones resume the study",
    **dict.fromkeys(
        ("track", "tracker", "trackers", "tracking", "logger", "loggers"),
        "use callbacks=[...] with a tracker, such as lazybo.track.mlflow.MLflow()",
    ),
    "load_if_exists": "the same storage= and study_name= always resume the study",
    "catch": "every exception fails its trial only; limits=lazybo.Limits(max_failures=...) says how many failures in a "
    "row end the run",
    "show_progress_bar": "use progress=",
    "verbose": "use progress=",
    "random_state": "use seed=",
    "maximize": "use direction='maximize'",
    "mode": "use direction='minimize' or 'maximize'",
    "metric": "return a dict with 'value', or name the objective with direction={name: 'minimize'}",
    **dict.fromkeys(("n_calls", "n_iter", "max_evals", "maxiter", "num_samples", "iterations"), "use n_trials="),
}


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
    limits, n_trials = _check_limits(limits), check_count("n_trials", n_trials)
    limits.check_ends(n_trials)
    options = _check_sampler(sampler, seed)
    seed = seed if sampler is None or seed is not None else sampler.seed
    _check_objects(callbacks, pruner, study_name)
    goals = check_goals(direction, constraints, pruner.reports if isinstance(pruner, LazyPruner) else None)
    goals = replace(goals, cost=None if options.cost == SECONDS else options.cost)
    _check_combination(goals, limits, options, warm_start, pruner, folds=isinstance(objective, KFold))
    defines = space is None
    if space is None:
        _check_undeclared(limits, warm_start, max_steps)
        space = Space.undeclared()
    else:
        space, options = options.joined(Space.of(space))
    earlier = read_earlier(options.earlier, goals.directions, storage, study_name or DEFAULT_NAME, goals.names)
    options = replace(options, earlier=earlier)
    first = check_initial(initial, None if defines else space)
    check_initial_feasible(
        [] if defines else first, Optimizer.with_options(space, goals.directions, options)
    )  # refuses wrong options
    known = known_results(warm_start, space, goals.directions[0])
    call = _call(objective, space)
    places = check_devices(devices)
    _check_steps(call, max_steps, checkpoints)

    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(_attaching_study())
        engine = stack.enter_context(_engine(executor, n_parallel, limits, places, claims=call.claims))
        payload = _sendable(call) if engine.remote else call
        backend = open_storage(storage)
        stack.enter_context(explained(backend))
        bounds = tuple(bound.name for bound in goals.bounds)
        definition = Definition(goals.directions, goals.names, bounds, goals.reports)
        study, seed = open_study(backend, study_name, definition, space, seed)
        opened.append(study)
        root = checkpoint_root(study, checkpoints) if call.takes_checkpoint else None
        run = RunOptions(
            objective=payload,
            folds=objective.k if isinstance(objective, KFold) else None,
            n_trials=n_trials,
            limits=limits,
            synchronous=synchronous,
            callbacks=callbacks,
            progress=progress,
            reports=call.reports or limits.trial_timeout is not None or places is not None,
            goals=goals,
            steps=Steps(max_steps, root, pauses=not goals.several),
            values=space.values,
            devices=None if places is None else replace(places, by_engine=engine.assigns_devices),
            claims=call.claims,
            defines=defines,
        )
        options, trials = replace(options, seed=seed), Store(study).trials()
        if not defines:
            _warn_of_repeats(space, n_trials, limits, trials)
        keep_options(study, options, space, trials)
        # A kernel object has the columns of this space; the sampler infers its own space from the trials.
        by_name = options.kernel if isinstance(options.kernel, str) else None
        study.sampler = LazySampler.with_options(replace(options, kernel=by_name), space.feasible)
        study.pruner = _pruner(pruner, max_steps)
        model = open_model(study, options, space, trials)
        model.seen.record(options_digest(options), len(known), predicate=space.feasible is not None)
        for params, value in known:
            model.optimizer.observe(params, value, outside=True)
        for params in first if defines else ():
            study.enqueue_trial(params, skip_if_exists=True)
        open_ledger(study, space.distributions, driver="").enqueue([] if defines else first)
        failure = _drive(study, model, engine, run)
        if defines and failure is None:
            _warn_of_names(study, first, options)
    if failure is not None:  # raised when nothing runs any more and the engine is closed
        attach_study(failure, study)
        raise failure
    return study


def _drive(study: Study, model: StudyModel, engine: Engine, run: RunOptions) -> BaseException | None:
    """Run the trials under a name that other processes can see, and record why no more were started.

    Returns the error or interrupt that the run ends with, if any.
    """
    facts = {EVALUATES_HERE: not engine.remote, RECORDS_ALL: run.limits.retries == 0}
    with contextlib.ExitStack() as stack:

        def connect(reporter: StudyReporter) -> Reporter:
            return stack.enter_context(listening(reporter, engine.host)) if engine.remote else reporter

        driver = Driver(study, model, engine, run, name=stack.enter_context(present(study, **facts)), connect=connect)
        driver.run()
        reason = driver.stopping.reason
        # The noise that a final check has learned decides what is recommended.
        learned = model.unsaved_attributes() if run.limits.confirm else {}
        learned |= model.seen.rest() if learned else {}
        Store(study).set_attributes({**learned, STOPPED_KEY: None if reason is None else reason.value})
        if reason != StopReason.INTERRUPTED:
            return driver.stopping.error
        interrupt = KeyboardInterrupt()
        interrupt.__cause__ = driver.stopping.error
        return interrupt


def _call(objective: Callable[..., Any], space: Space) -> Call:
    """How to call an objective over this space. A `Call` is used as it is."""
    if isinstance(objective, Call):
        return objective
    if not space.declared:
        return defining_call(objective)
    if isinstance(objective, KFold):
        return call_of(objective.objective, space.parameters, space.conditions, folds=True)
    return replace(call_of(objective, space.parameters, space.conditions), space=space.parameters)


def _pruner(pruner: BasePruner | None, max_steps: int | None) -> BasePruner:
    """The pruner of a run. Ours knows the last step of a training."""
    if pruner is None or (isinstance(pruner, LazyPruner) and pruner.max_step is None):
        return LazyPruner(max_steps, None if pruner is None else pruner.reports)
    return pruner


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


@contextlib.contextmanager
def _attaching_study() -> Iterator[list[Study]]:
    """An exception that leaves this block gets the study that was put into the list."""
    opened: list[Study] = []
    try:
        yield opened
    except BaseException as error:
        for study in opened:
            attach_study(error, study)
        raise


@contextlib.contextmanager
def _engine(
    executor: Any, n_parallel: int | None, limits: Limits, devices: Devices | None, *, claims: bool
) -> Iterator[Engine]:
    """The engine of a run; closed at the end, unless the caller opened it.

    With ``devices``, evaluations run in processes, unless the objective ``claims`` its device itself.
    """
    gpus = 0.0
    if devices is not None:
        executor = "processes" if executor is None else executor
        if isinstance(executor, str) and executor in LOCAL:
            n_parallel = _check_places(devices, n_parallel)
        elif executor != "mpi" and not isinstance(executor, Executor):
            gpus = devices.gpus
    engine = make_engine(executor, n_parallel, gpus)
    try:
        if devices is not None and not engine.remote and not claims:
            raise ValueError("devices need processes of their own; use executor='processes', or a cluster")
        if limits.trial_timeout is not None and isinstance(engine, SerialEngine):
            raise ValueError("trial_timeout cannot end an evaluation in this process; use executor='processes'")
        yield engine
    except BaseException:
        if engine is not executor:
            engine.shutdown(wait=False, cancel_futures=True)
        raise
    # Wait until it is closed: a cluster that is still closing when the interpreter exits prints errors.
    if engine is not executor:
        engine.shutdown(wait=True, cancel_futures=True)


# ------------------------------------------------------------------------- checks


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


def _check_limits(limits: object) -> Limits:
    if not isinstance(limits, Limits | None):
        raise TypeError(f"limits must be lazybo.Limits(...), such as lazybo.Limits(timeout=60), not {limits!r}")
    return limits or Limits()


def _check_undeclared(limits: Limits, warm_start: object, max_steps: int | None) -> None:
    """Reject what needs a space that is known before the first trial."""
    given = {
        "warm_start": warm_start is not None,
        "max_steps": max_steps is not None,
        "min_gain": limits.min_gain is not None,
        "confirm": bool(limits.confirm),
    }
    for name, is_given in given.items():
        if is_given:
            raise ValueError(f"{name} needs a space: give the parameters as the second argument of optimize()")


def _check_sampler(sampler: object, seed: int | None) -> Options:
    """The options of the model."""
    if sampler is None:
        return Options(seed=checks.check_seed(seed))
    if not isinstance(sampler, LazySampler):
        advice = "optimize() always uses lazybo's model; for other samplers use Optuna's study.optimize()"
        if sampler is LazySampler:
            raise TypeError("sampler is the class LazySampler; write lazybo.LazySampler(), with parentheses")
        kind = BaseSampler.__name__ if isinstance(sampler, type) else type(sampler).__name__
        raise TypeError(f"sampler must be lazybo.LazySampler(...), not {kind}: {advice}")
    if sampler.feasible is not None:
        raise ValueError("give feasible to the space: lazybo.Space({...}, feasible=...), not to the sampler")
    if None not in (seed, sampler.seed) and seed != sampler.seed:
        raise ValueError(f"seed={seed} here, and seed={sampler.seed} in the sampler; leave one of them out")
    return sampler.options if seed is None else replace(sampler.options, seed=checks.check_seed(seed))


def _check_combination(
    goals: Goals, limits: Limits, options: Options, warm_start: object, pruner: BasePruner | None, *, folds: bool
) -> None:
    """Reject arguments that contradict each other."""
    several = goals.several
    wrong: list[tuple[object, str]] = [
        (
            several and limits.target_value is not None,
            "target_value is for one objective; use patience or a callback that calls study.stop()",
        ),
        (several and limits.min_gain is not None, "min_gain is for one objective; use patience"),
        (several and limits.confirm, "confirm is for one objective; with several there is no single best to confirm"),
        (several and warm_start is not None, "warm_start has the values of one objective; there are several here"),
        (
            folds and (several or goals.names or goals.bounds),
            "kfold is for one objective without constraints on metrics; evaluate all folds in one call and return "
            "their means",
        ),
        (
            folds and goals.cost,
            f"with kfold the cost can be 'seconds', not the metric {goals.cost!r} of one fold; evaluate all folds in "
            "one call and return it",
        ),
        (
            options.deterministic and limits.confirm,
            "confirm evaluates the best configurations again, and deterministic says that this gives the same values; "
            "leave one of them out",
        ),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise ValueError(message)
    check_pruner(pruner, goals)


def _check_objects(callbacks: object, pruner: object, study_name: object) -> None:
    """Reject wrong types, which would otherwise be noticed while trials run, or never."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise TypeError(f"callbacks must be a list of functions of (study, trial), not {callbacks!r}")
    for callback in callbacks:
        if isinstance(callback, type):
            raise TypeError(f"a callback must be a function of (study, trial); make one: {callback.__name__}(...)")
        if not _takes(callback, 2):
            raise TypeError(f"a callback must be a function of (study, trial), not {callback!r}")
        if hasattr(callback, "report") and not _takes(callback.report, 4):
            raise TypeError(
                f"the report of a callback must be a method of (study, trial, step, value), not {callback!r}"
            )
    if isinstance(pruner, type) and issubclass(pruner, BasePruner):
        raise TypeError(f"pruner is the class {pruner.__name__}; write {pruner.__name__}(), with parentheses")
    if not isinstance(pruner, BasePruner | None):
        raise TypeError(f"pruner must be one of optuna.pruners or lazybo.LazyPruner(), not {pruner!r}")
    if not isinstance(study_name, str | None):
        raise TypeError(f"study_name must be a string, not {study_name!r}")


def _takes(function: object, count: int) -> bool:
    """Whether something can be called with this many arguments, as far as Python knows."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # functions in C have no signature
        return True
    return True


def _check_steps(call: Call, max_steps: int | None, checkpoints: object) -> None:
    """Reject steps and checkpoints that the objective cannot have."""
    if max_steps is not None:
        checks.whole("max_steps", max_steps, 1)
        if not call.reports:
            raise ValueError(
                "max_steps is for objectives that report: a generator function that yields the value of each step, or "
                "a function that takes trial and calls trial.report"
            )
    if checkpoints is None:
        return
    if not isinstance(checkpoints, str | PathLike):
        raise TypeError(f"checkpoints must be the path of a folder, not {checkpoints!r}")
    if Path(checkpoints).expanduser().exists() and not Path(checkpoints).expanduser().is_dir():
        raise ValueError(f"checkpoints must be a folder, but {str(checkpoints)!r} is not one")
    if not call.takes_checkpoint:
        raise ValueError(
            "checkpoints is for objectives that have some: a generator function with an argument called checkpoint"
        )


def _warn_of_names(study: Study, initial: Sequence[Mapping[str, Any]], options: Options) -> None:
    """Warn if an objective without a space has not asked for what is known about it."""
    completed = [trial for trial in Store(study).trials() if trial.state == TrialState.COMPLETE]
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


def _warn_of_repeats(space: Space, n_trials: int | None, limits: Limits, trials: Sequence[FrozenTrial]) -> None:
    """Warn if the search has more trials than there are configurations; failed ones may be repeated."""
    wanted = or_inf(n_trials) - limits.confirm - sum(trial.state == TrialState.FAIL for trial in trials)
    if space.size < wanted < math.inf:
        count = f"{space.size:g} configuration{'s' * (space.size > 1)}"
        checks.warn(
            f"the space has only {count}, so some of {wanted:g} trials repeat others; give fewer if that is not meant"
        )
