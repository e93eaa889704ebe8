"""optimize(): one call from a training function to an optimised study, on a laptop or a cluster."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from optuna.pruners import BasePruner
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import Direction, check_cost, check_seed, hinting, renamed, warn, whole
from lazybo.gp.fit import Lag, Priors, priors_for
from lazybo.gp.kernels.base import Kernel
from lazybo.run.arguments import (
    check_initial,
    check_initial_feasible,
    check_limits,
    check_objects,
    check_pruner,
    check_repeats,
    check_steps,
    check_supported,
)
from lazybo.run.call import Call, call_of
from lazybo.run.channel import StudyReporter, listening
from lazybo.run.checkpoints import checkpoint_root
from lazybo.run.driver import Callback, Driver, RunOptions
from lazybo.run.engines import Engine, make_engine
from lazybo.run.engines.local import SerialEngine
from lazybo.run.evaluate import Reporter
from lazybo.run.failure import attach_study
from lazybo.run.goals import check_goals
from lazybo.run.kfold import KFold
from lazybo.run.limits import Limits, StopReason
from lazybo.run.orphans import EVALUATES_HERE, RECORDS_ALL
from lazybo.run.presence import present
from lazybo.run.steps import Steps
from lazybo.run.warm_start import known_results
from lazybo.search.acquisition import Acquisition
from lazybo.space.space import Condition, Predicate, Space
from lazybo.study import ledger
from lazybo.study.attributes import STOPPED_KEY
from lazybo.study.costs import SECONDS
from lazybo.study.earlier import read_earlier
from lazybo.study.factory import ModelOptions, keep_options, open_model
from lazybo.study.model import StudyModel
from lazybo.study.pruner import LazyPruner
from lazybo.study.retry import with_retries
from lazybo.study.sampler import LazySampler
from lazybo.study.storage import DEFAULT_NAME, About, explained, open_storage, open_study
from lazybo.study.structure import Structure

# What to use instead of arguments that other libraries have.
HINTS = {
    "n_jobs": "use n_parallel= for several evaluations at the same time (in processes; executor='threads' for threads)",
    "sampler": "it always uses lazybo's model. For other samplers use Optuna's study.optimize(), where "
    "lazybo.LazySampler() is ours",
    "study": "give storage= and study_name=; the same ones resume the study",
    "load_if_exists": "the same storage= and study_name= always resume the study",
    "catch": "every exception fails its trial only; max_failures= says how many failures in a row end the run",
    "show_progress_bar": "use progress=",
    "verbose": "use progress=",
    "random_state": "use seed=",
    "maximize": "use direction='maximize'",
    "mode": "use direction='minimize' or 'maximize'",
    "metric": "return a dict with 'value', or name the objective with directions={name: 'minimize'}",
    **dict.fromkeys(("n_calls", "n_iter", "max_evals", "maxiter", "num_samples", "iterations"), "use n_trials="),
}


@renamed(target="target_value", targets="value_transform")
@hinting(HINTS)
def optimize(
    objective: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    n_trials: int | None = None,
    direction: Direction | None = None,
    directions: Sequence[Direction] | Mapping[str, Direction] | None = None,
    constraints: Mapping[str, float | tuple[float | None, float | None]] | None = None,
    n_parallel: int | None = None,
    executor: Any = None,
    storage: str | Path | BaseStorage | None = None,
    study_name: str | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    target_value: float | None = None,
    patience: int | None = None,
    min_gain: float | None = None,
    confirm: int = 0,
    trial_timeout: float | None = None,
    retries: int = 2,
    max_failures: int | None = 10,
    initial: Iterable[Mapping[str, Any]] = (),
    warm_start: Any = None,
    callbacks: Sequence[Callback] = (),
    pruner: BasePruner | None = None,
    max_steps: int | None = None,
    checkpoints: str | Path | None = None,
    reports: str | int | None = None,
    synchronous: bool = False,
    conditions: Mapping[str, Condition] | None = None,
    feasible: Predicate | None = None,
    lag: Lag = "auto",
    acquisition: str | Acquisition = "auto",
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
    progress: bool = True,
) -> Study:
    """Minimise (or maximise) an objective over a space, and return the study with all trials.

    ``objective`` takes the parameters by their names or as one dict. An argument called ``trial`` gets the trial. It
    returns a number, or a dict with ``value`` and metrics to keep. `lazybo.kfold` makes an objective of folds.
    ``space`` is a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna distributions;
    ``conditions`` says when each parameter is active (`lazybo.Condition`). ``feasible`` says which configurations may
    be evaluated: ``lambda params: params["a"] + params["b"] <= 1``. It is called in this process only.

    **Several objectives and constraints.** ``directions`` is a list of directions; the objective then returns a tuple
    or list of values, and ``study.best_trials`` has the front. If it is a dict of names and directions, the objective
    returns a dict with these names. ``constraints`` bounds metrics that the objective returns: ``{"memory": 4e9}`` is
    the largest feasible value, a pair is a range. Or the objective calls ``trial.set_constraint``. Only feasible trials
    count for the best trial, ``target_value`` and ``patience``.

    **Where it runs.** ``executor`` is None (here; in processes if ``n_parallel`` is more than 1), "threads",
    "processes", "dask://host:port", "ray", "mpi", a Dask client, an ``MPIPoolExecutor``, or any
    ``concurrent.futures.Executor``. A free worker gets the next evaluation at once; with ``synchronous``, evaluations
    run in rounds of ``n_parallel``, and each round waits for its slowest.

    **What is kept.** ``storage`` is a path (an SQLite file), a URL, or an Optuna storage. The same call again resumes
    the study, up to ``n_trials`` in total. An evaluation whose worker or whole process died is run again with the same
    parameters, ``retries`` times at most.

    **When it ends.** After ``n_trials``, after ``timeout`` seconds, at ``target_value`` or a better value, after
    ``patience`` trials without a better value, when the model expects the next 10 evaluations to improve the best value
    by less than ``min_gain``. An evaluation that takes longer than ``trial_timeout`` seconds fails. Ctrl-C waits for
    the running evaluations and then raises KeyboardInterrupt; a second Ctrl-C stops at once.

    **When it fails.** `lazybo.RunFailed` is raised after ``max_failures`` failures in a row, at the end if no trial has
    completed, and at once if the first evaluations fail with an error that looks like a bug, such as a NameError. Its
    ``__cause__`` is what the objective raised. None: failures never end the run.

    **Cost.** With ``cost="seconds"`` evaluations that are expected to take less time are preferred, the more the more
    of ``n_trials`` or ``timeout`` is left. Any other name is that of a metric that the objective returns, a positive
    number.

    **A final check.** With ``confirm=k`` up to k of the ``n_trials``, the last ones, evaluate the configurations that
    may be the best once more, until one of them leads with a probability of 95 %. If the search ends earlier, the check
    follows then.

    **No noise.** With ``deterministic`` the same parameters always give the same value: nothing is evaluated twice, and
    the best trial is the recommended one.

    **What it starts with.** ``initial`` configurations are evaluated first; the optimiser chooses the parameters that
    they leave out. ``warm_start`` gives known results: studies, or tables of parameters and ``value``. ``earlier`` is a
    list of earlier studies of *related* problems, whose values are not ours: studies, ``"name@storage"``, or tables.
    The search starts from what was good there (docs/earlier.md). ``seed`` makes a run with one worker repeatable.

    **Step by step.** A generator function ``def train(params, checkpoint): ... yield value`` reports the value of each
    step. ``checkpoint`` is a folder of the trial that outlives the process: a training that was killed continues from
    there. With ``max_steps``, the last step of a training, one that promises little is paused, and resumed when it
    promises more than a new one (docs/curves.md). ``checkpoints`` is the folder for all of them; by default one beside
    the storage.

    ``callbacks`` are called as ``f(study, trial)`` after each trial, also when it is paused. ``pruner`` decides on
    trials that report (default: `lazybo.LazyPruner`). ``reports`` is the name or position of the objective that trials
    report, by default the first. ``lag``, ``acquisition``, ``batch``, ``n_startup_trials``, ``kernel``, ``noise``,
    ``priors``, ``value_transform`` and ``local_after`` are those of `lazybo.Optimizer`.
    """
    limits = check_limits(
        n_trials, timeout, target_value, patience, trial_timeout, retries, max_failures, min_gain, confirm
    )
    goals = replace(
        check_goals(direction, directions, constraints, reports), cost=None if cost == SECONDS else check_cost(cost)
    )
    check_supported(goals, limits, warm_start, folds=isinstance(objective, KFold))
    check_repeats(limits, deterministic=deterministic)
    checked = Space(space, conditions=conditions)
    structure = Structure(checked.distributions, checked.conditions, checked.optional)
    options = ModelOptions(
        seed=check_seed(seed),
        lag=lag,
        acquisition=acquisition,
        batch=batch,
        n_startup=None if n_startup_trials is None else whole("n_startup_trials", n_startup_trials, 0),
        kernel=kernel,
        noise=noise,
        priors=priors_for(priors, noise, deterministic=deterministic),
        value_transform=value_transform,
        feasible=feasible,
        cost=cost,
        earlier=read_earlier(earlier, goals.directions, storage, study_name or DEFAULT_NAME),
        local_after=local_after,
    )
    optimizer = options.optimizer(structure, *goals.directions)  # refuses wrong options
    first = check_initial(initial, checked)
    check_initial_feasible(first, optimizer)
    known = known_results(warm_start, checked, goals.directions[0])
    call = _call(objective, checked)
    check_steps(call, max_steps, checkpoints)
    check_objects(callbacks, pruner, study_name)
    check_pruner(pruner, goals)

    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(_attaching_study())
        engine = stack.enter_context(_engine(executor, n_parallel, limits))
        payload = _sendable(call) if engine.remote else call
        backend = open_storage(storage)
        stack.enter_context(explained(backend))
        about = About(goals.directions, goals.names, tuple(bound.name for bound in goals.bounds), goals.reports)
        study, seed = open_study(backend, study_name, about, structure, seed)
        opened.append(study)
        run = RunOptions(
            objective=payload,
            folds=objective.k if isinstance(objective, KFold) else None,
            limits=limits,
            synchronous=synchronous,
            callbacks=callbacks,
            progress=progress,
            reports=call.reports or math.isfinite(limits.trial_timeout),
            goals=goals,
            steps=Steps(
                max_steps,
                checkpoint_root(study, checkpoints) if call.takes_checkpoint else None,
                pauses=not goals.several,
            ),
        )
        options, trials = replace(options, seed=seed), ledger.read(study)
        _warn_of_repeats(checked, limits, trials)
        keep_options(study, options, structure, trials)
        # A kernel object has the columns of this space; the sampler infers its own space from the trials.
        by_name = kernel if isinstance(kernel, str) else None
        study.sampler = LazySampler.with_options(replace(options, kernel=by_name))
        study.pruner = pruner or LazyPruner(max_steps)
        model = open_model(study, options, structure, trials)
        for params, value in known:
            model.optimizer.observe(params, value, outside=True)
        ledger.open_ledger(study, structure.distributions, driver="").enqueue(first)
        failure = _drive(study, model, engine, run)
    if failure is not None:  # raised when nothing runs any more and the engine is closed
        attach_study(failure, study)
        raise failure
    return study


def _drive(study: Study, model: StudyModel, engine: Engine, run: RunOptions) -> BaseException | None:
    """Run the trials under a name that other processes can see, and keep why no more were started.

    What the run ends with is returned, if it is an error or an interrupt.
    """
    facts = {EVALUATES_HERE: not engine.remote, RECORDS_ALL: run.limits.retries == 0}
    with contextlib.ExitStack() as stack:

        def connect(reporter: StudyReporter) -> Reporter:
            return stack.enter_context(listening(reporter, engine.host)) if engine.remote else reporter

        driver = Driver(study, model, engine, run, name=stack.enter_context(present(study, **facts)), connect=connect)
        driver.run()
        reason = driver.stopping.reason
        code = None if reason is None else reason.value
        # What a final check has learned of the noise decides what is recommended.
        learned = model.unsaved_attributes() if run.limits.confirm else {}
        for key, value in {**learned, STOPPED_KEY: code}.items():
            with_retries(partial(study._storage.set_study_system_attr, study._study_id, key, value))
        if reason != StopReason.INTERRUPTED:
            return driver.stopping.error
        interrupt = KeyboardInterrupt()
        interrupt.__cause__ = driver.stopping.error
        return interrupt


def _warn_of_repeats(space: Space, limits: Limits, trials: Sequence[FrozenTrial]) -> None:
    """Warn if the search has more trials than there are configurations; those that failed may be repeated."""
    wanted = limits.n_trials - limits.confirm - sum(trial.state == TrialState.FAIL for trial in trials)
    if space.size < wanted < math.inf:
        count = f"{space.size:g} configuration{'s' * (space.size > 1)}"
        warn(f"the space has only {count}, so some of {wanted:g} trials repeat others; give fewer if that is not meant")


def _call(objective: Callable[..., Any], space: Space) -> Call:
    """How to call an objective of this space. A `Call` is used as it is."""
    if isinstance(objective, Call):
        return objective
    if isinstance(objective, KFold):
        return call_of(objective.objective, space.distributions, space.conditions, folds=True)
    return replace(call_of(objective, space.distributions, space.conditions), space=space.distributions)


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
def _engine(executor: Any, n_parallel: int | None, limits: Limits) -> Iterator[Engine]:
    """The engine of a run; closed at the end, unless the caller opened it."""
    engine = make_engine(executor, n_parallel)
    try:
        if math.isfinite(limits.trial_timeout) and isinstance(engine, SerialEngine):
            raise ValueError("trial_timeout cannot end an evaluation in this process; use executor='processes'")
        yield engine
    except BaseException:
        if engine is not executor:
            engine.shutdown(wait=False, cancel_futures=True)
        raise
    # Wait until it is closed: a cluster that is still closing when the interpreter exits prints errors.
    if engine is not executor:
        engine.shutdown(wait=True, cancel_futures=True)


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
