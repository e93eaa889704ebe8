"""optimize(): one call for a person with a training function, from a laptop to a cluster."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, MedianPruner
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import Study
from optuna.trial import TrialState, create_trial

from lazybo.checks import whole
from lazybo.model.fit import Lag, Priors
from lazybo.model.kernels import Kernel
from lazybo.run import ledger
from lazybo.run.channel import StudyReporter, listening
from lazybo.run.driver import Callback, Driver
from lazybo.run.evaluate import Call, Reporter, call_of
from lazybo.run.executors import Engine, make_engine
from lazybo.run.executors.local import SerialEngine
from lazybo.run.kfold import KFold
from lazybo.run.limits import Limits
from lazybo.run.presence import present
from lazybo.run.warm_start import known_results
from lazybo.search.acquisition import Acquisition
from lazybo.search.optimizer import Optimizer
from lazybo.search.space import Condition, Space
from lazybo.study.model import Structure, StudyModel
from lazybo.study.sampler import LazySampler
from lazybo.study.storage import Direction, open_storage, open_study

# Why the last run on a study began no more trials: None if it had all of them.
STOPPED_KEY = "lazybo:stopped"


def optimize(
    objective: Callable[..., Any],
    space: Mapping[str, BaseDistribution],
    *,
    n_trials: int | None = None,
    direction: Direction = "minimize",
    n_parallel: int | None = None,
    executor: Any = None,
    storage: str | Path | BaseStorage | None = None,
    study_name: str | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    target: float | None = None,
    patience: int | None = None,
    trial_timeout: float | None = None,
    retries: int = 2,
    max_failures: int | None = 10,
    initial: Iterable[Mapping[str, Any]] = (),
    warm_start: Any = None,
    callbacks: Sequence[Callback] = (),
    pruner: BasePruner | None = None,
    synchronous: bool = False,
    conditions: Mapping[str, Condition] | None = None,
    lag: Lag = "auto",
    acquisition: str | Acquisition = "logei",
    batch: Literal["auto", "fantasy", "maxima"] = "auto",
    n_startup_trials: int | None = None,
    kernel: str | Kernel | None = None,
    noise: float | None = None,
    priors: Priors | None = None,
    targets: Literal["warped", "scaled", "centred"] = "warped",
    progress: bool = True,
) -> Study:
    """Minimise (or maximise) an objective over a space, and return the study with all trials.

    ``objective`` takes the parameters as a dict, or its trial (if the argument is called ``trial``), or both, and
    returns a number, or a dict with ``value`` and metrics to keep. `lazybo.kfold` makes one of folds. ``space`` is a
    dict of Optuna distributions; ``conditions`` says which are active when (`lazybo.Condition`).

    **Where it runs.** ``executor`` is None (here; in processes if ``n_parallel`` is more than 1), "threads",
    "processes", "dask://host:port", "ray", "mpi", a Dask client, an ``MPIPoolExecutor``, or any
    ``concurrent.futures.Executor``. A free worker gets the next evaluation at once; with ``synchronous`` rounds of
    ``n_parallel`` wait for their slowest.

    **What is kept.** ``storage`` is a path (an SQLite file), a URL, or an Optuna storage. The same call again goes on
    to ``n_trials`` in total. An evaluation whose worker or whole process died is run again with the same parameters,
    ``retries`` times at most.

    **When it ends.** After ``n_trials``, or ``timeout`` seconds, at the ``target`` value, when ``patience`` trials
    brought nothing better, or with an error after ``max_failures`` failures in a row. An evaluation that takes longer
    than ``trial_timeout`` seconds fails. Ctrl-C waits for what runs, twice stops now.

    **What it begins with.** ``initial`` configurations are evaluated first; ``warm_start`` gives results from
    elsewhere: studies, or tables of parameters and ``value``. ``seed`` makes a run with one worker repeatable.

    ``callbacks`` are called as ``f(study, trial)`` after each trial. ``pruner`` decides on trials that report (default:
    Optuna's MedianPruner). ``lag``, ``acquisition``, ``batch``, ``n_startup_trials``, ``kernel``, ``noise``, ``priors``
    and ``targets`` are those of the optimiser.
    """
    limits = _limits(n_trials, timeout, target, patience, trial_timeout, retries, max_failures)
    options: dict[str, Any] = {"lag": lag, "acquisition": acquisition}
    structure = Structure(dict(space), dict(conditions or {}), frozenset())
    model_options: dict[str, Any] = {"kernel": kernel, "noise": noise, "priors": priors, "targets": targets}
    optimizer = Optimizer(
        space,
        conditions=conditions,
        direction=direction,
        seed=seed,
        batch=batch,
        n_startup=n_startup_trials,
        **options,
        **model_options,
    )
    first = check_initial(initial, optimizer.space)
    known = known_results(warm_start, optimizer.space, direction)
    call = Call(objective.objective, "params and fold") if isinstance(objective, KFold) else call_of(objective)
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(f"a callback must be a function of (study, trial), not {callback!r}")

    with _engine(executor, n_parallel, limits) as engine, contextlib.ExitStack() as stack:
        payload = _sendable(call) if engine.remote else call
        study, optimizer.seed = open_study(open_storage(storage), study_name, direction, structure, seed)
        # A kernel object has the columns of this space; the sampler finds its own space in the trials.
        by_name = kernel if isinstance(kernel, str) else None
        study.sampler = LazySampler(seed=optimizer.seed, n_startup_trials=n_startup_trials, kernel=by_name, **options)
        study.pruner = pruner or MedianPruner()
        model = StudyModel(structure, optimizer)
        model.recall(study._storage.get_study_system_attrs(study._study_id))
        for params, value in known:
            optimizer.observe(params, value, outside=True)
        _enqueue(study, first, space)
        driver = Driver(
            study,
            model,
            engine,
            payload,
            folds=objective.k if isinstance(objective, KFold) else None,
            limits=limits,
            synchronous=synchronous,
            callbacks=callbacks,
            name=stack.enter_context(_presence(study)),
            progress=progress,
        )
        if "trial" in call.takes or limits.trial_timeout < math.inf:
            driver.worker_reporter = stack.enter_context(_reachable(driver.reporter, engine))
        driver.run()
        study._storage.set_study_system_attr(study._study_id, STOPPED_KEY, driver.stopped)
    return study


def _limits(
    n_trials: int | None,
    timeout: float | None,
    target: float | None,
    patience: int | None,
    trial_timeout: float | None,
    retries: int,
    max_failures: int | None,
) -> Limits:
    if n_trials is None and timeout is None and target is None and patience is None:
        raise ValueError("say when to stop: n_trials, timeout, target or patience")
    if target is not None and not (_is_number(target) and math.isfinite(target)):
        raise ValueError(f"target must be a finite number, not {target!r}")
    return Limits(
        n_trials=_count("n_trials", n_trials),
        timeout=_seconds("timeout", timeout),
        target=target,
        patience=_count("patience", patience),
        max_failures=_count("max_failures", max_failures),
        trial_timeout=_seconds("trial_timeout", trial_timeout),
        retries=whole("retries", retries, 0),
    )


def _count(name: str, value: int | None) -> float:
    return math.inf if value is None else whole(name, value, 1)


def _seconds(name: str, value: float | None) -> float:
    if value is None:
        return math.inf
    if not _is_number(value) or not value > 0:
        raise ValueError(f"{name} must be a positive number of seconds, not {value!r}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def check_initial(initial: Iterable[Mapping[str, Any]], space: Space) -> list[dict[str, Any]]:
    """Configurations to begin with; the first that is none of this space is named."""
    first = list(initial)
    for i, params in enumerate(first):
        try:
            space.check(params)
        except ValueError as error:
            raise ValueError(f"initial configuration {i}: {error}") from None
    return [dict(params) for params in first]


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
    # Nothing runs any more. A cluster of our own that is still closing when the interpreter ends makes a noise.
    if engine is not executor:
        engine.shutdown(wait=True, cancel_futures=True)


def _sendable(call: Call) -> bytes:
    """The objective as workers get it: functions of notebooks, lambdas and closures too."""
    import cloudpickle

    try:
        payload: bytes = cloudpickle.dumps(call)
    except Exception as error:  # whatever the objective holds decides what goes wrong
        raise ValueError(
            f"the objective cannot be sent to workers: {error}. Open what cannot be sent (files, connections, locks) "
            "inside the objective, or use executor='threads'"
        ) from error
    return payload


@contextlib.contextmanager
def _reachable(reporter: StudyReporter, engine: Engine) -> Iterator[Reporter]:
    """The way of news from workers to the driver."""
    if not engine.remote:
        yield reporter
        return
    with listening(reporter, engine.host) as remote:
        yield remote


@contextlib.contextmanager
def _presence(study: Study) -> Iterator[str]:
    """A name to run trials under; other processes can see it where they can see the study."""
    if isinstance(study._storage, InMemoryStorage):
        yield "here"
        return
    with present(study) as name:
        yield name


def _enqueue(study: Study, first: Sequence[dict[str, Any]], space: Mapping[str, BaseDistribution]) -> None:
    """Let configurations wait for their evaluation, but those that the study has already."""
    seen = [trial.params or trial.system_attrs.get("fixed_params") for trial in ledger.read(study)]
    for params in first:
        if params not in seen:
            waiting = create_trial(
                state=TrialState.WAITING, params=params, distributions={name: space[name] for name in params}
            )
            study._storage.create_new_trial(study._study_id, waiting)
