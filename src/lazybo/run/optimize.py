"""optimize(): one call for a person with a training function, from a laptop to a cluster."""

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from optuna.pruners import BasePruner, MedianPruner
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.checks import finite_number, seconds, whole
from lazybo.model.fit import Priors
from lazybo.model.kernels import Kernel
from lazybo.model.lag import Lag
from lazybo.run import ledger
from lazybo.run.call import Call, call_of
from lazybo.run.channel import StudyReporter, listening
from lazybo.run.driver import Callback, Driver
from lazybo.run.evaluate import Reporter
from lazybo.run.executors import Engine, make_engine
from lazybo.run.executors.local import SerialEngine
from lazybo.run.failure import carry
from lazybo.run.kfold import KFold
from lazybo.run.limits import Limits
from lazybo.run.orphans import EVALUATES_HERE, NOTES_ALL
from lazybo.run.presence import present
from lazybo.run.warm_start import known_results
from lazybo.search.acquisition import Acquisition
from lazybo.search.optimizer import check_seed
from lazybo.search.shorthand import as_distributions
from lazybo.search.space import Condition, Space
from lazybo.study.factory import ModelOptions, keep_options, open_model
from lazybo.study.retry import patiently
from lazybo.study.sampler import LazySampler
from lazybo.study.storage import Direction, explained, open_storage, open_study
from lazybo.study.structure import Structure

# Why the last run on a study began no more trials: None if it had all of them.
STOPPED_KEY = "lazybo:stopped"


def optimize(
    objective: Callable[..., Any],
    space: Mapping[str, Any],
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

    ``objective`` takes the parameters by their names or as one dict, or its trial (if the argument is called
    ``trial``), or both, and returns a number, or a dict with ``value`` and metrics to keep. `lazybo.kfold` makes one of
    folds. ``space`` is a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna
    distributions; ``conditions`` says which are active when (`lazybo.Condition`).

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

    **What it begins with.** ``initial`` configurations are evaluated first; parameters that one lacks are chosen by the
    optimiser. ``warm_start`` gives results from elsewhere: studies, or tables of parameters and ``value``. ``seed``
    makes a run with one worker repeatable.

    ``callbacks`` are called as ``f(study, trial)`` after each trial. ``pruner`` decides on trials that report (default:
    Optuna's MedianPruner). ``lag``, ``acquisition``, ``batch``, ``n_startup_trials``, ``kernel``, ``noise``, ``priors``
    and ``targets`` are those of the optimiser.
    """
    limits = _limits(n_trials, timeout, target, patience, trial_timeout, retries, max_failures)
    structure = Structure(as_distributions(space), dict(conditions or {}), frozenset())
    options = ModelOptions(
        seed=check_seed(seed),
        lag=lag,
        acquisition=acquisition,
        batch=batch,
        n_startup=n_startup_trials,
        kernel=kernel,
        noise=noise,
        priors=priors,
        targets=targets,
    )
    checked = options.optimizer(structure, direction).space
    first = check_initial(initial, checked)
    known = known_results(warm_start, checked, direction)
    call = _call(objective, checked)
    n_parallel = None if n_parallel is None else whole("n_parallel", n_parallel, 1)
    _check_objects(callbacks, pruner, study_name)

    with _carrying() as kept, _engine(executor, n_parallel, limits) as engine, contextlib.ExitStack() as stack:
        payload = _sendable(call) if engine.remote else call
        opened = open_storage(storage)
        stack.enter_context(explained(opened))
        study, seed = open_study(opened, study_name, direction, structure, seed)
        kept.append(study)
        options, trials = replace(options, seed=seed), ledger.read(study)
        keep_options(study, options, structure, trials)
        # A kernel object has the columns of this space; the sampler finds its own space in the trials.
        by_name = kernel if isinstance(kernel, str) else None
        study.sampler = LazySampler.with_options(replace(options, kernel=by_name))
        study.pruner = pruner or MedianPruner()
        model = open_model(study, options, structure, trials)
        for params, value in known:
            model.optimizer.observe(params, value, outside=True)
        ledger.open_ledger(study, structure.distributions, driver="").enqueue(first)
        driver = Driver(
            study,
            model,
            engine,
            payload,
            folds=objective.k if isinstance(objective, KFold) else None,
            limits=limits,
            synchronous=synchronous,
            callbacks=callbacks,
            name=stack.enter_context(_presence(study, engine, limits)),
            progress=progress,
        )
        driver.reach = lambda: stack.enter_context(_reachable(driver.reporter, engine))
        if call.takes_trial or limits.trial_timeout < math.inf:
            driver.worker_reporter = driver.reach()
        driver.run()
        patiently(partial(study._storage.set_study_system_attr, study._study_id, STOPPED_KEY, driver.stopped))
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
    limits = Limits(
        n_trials=_count("n_trials", n_trials),
        timeout=seconds("timeout", timeout),
        target=None if target is None else finite_number("target", target),
        patience=_count("patience", patience),
        max_failures=_count("max_failures", max_failures),
        trial_timeout=seconds("trial_timeout", trial_timeout),
        retries=whole("retries", retries, 0),
    )
    if target is None and math.inf == limits.n_trials == limits.timeout == limits.patience:
        raise ValueError("say when to stop: n_trials, timeout, target or patience")
    return limits


def _check_objects(callbacks: object, pruner: object, study_name: object) -> None:
    """Refuse what would only be noticed, or go unnoticed, while trials run."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise TypeError(f"callbacks must be a list of functions of (study, trial), not {callbacks!r}")
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(f"a callback must be a function of (study, trial), not {callback!r}")
    if not isinstance(pruner, BasePruner | None):
        raise TypeError(f"pruner must be one of optuna.pruners, such as MedianPruner(), not {pruner!r}")
    if not isinstance(study_name, str | None):
        raise TypeError(f"study_name must be a text, not {study_name!r}")


def _count(name: str, value: int | None) -> float:
    # Nobody counts further than the largest index, and a double can hold it.
    return math.inf if value is None else min(whole(name, value, 1), sys.maxsize)


def _call(objective: Callable[..., Any], space: Space) -> Call:
    """How to call an objective of this space; one of our own knows it already."""
    if isinstance(objective, Call):
        return objective
    if isinstance(objective, KFold):
        return call_of(objective.objective, space.distributions, space.conditions, folds=True)
    return call_of(objective, space.distributions, space.conditions)


def check_initial(initial: Iterable[Mapping[str, Any]], space: Space) -> list[dict[str, Any]]:
    """Configurations to begin with, or parts of some; the first that is none of this space is named.

    A parameter that is only active while another has one certain value brings that value along.
    """
    if isinstance(initial, Mapping | str) or not isinstance(initial, Iterable):
        raise ValueError(f"initial must be a list of dicts of parameters, not {initial!r}")
    first = []
    for i, params in enumerate(initial):
        try:
            first.append(_known_part(params, space))
        except ValueError as error:
            raise ValueError(f"initial configuration {i}: {error}") from None
    return first


def _known_part(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    if not isinstance(params, Mapping):
        raise ValueError(f"it must be a dict of parameters, not {params!r}")
    known = dict(params)
    for name in params:
        while (condition := space.conditions.get(name)) is not None and condition.parent not in known:
            if len(condition.values) > 1:
                raise ValueError(
                    f"{name!r} is only active while {condition.parent!r} is one of {condition.values}; say which"
                )
            known[condition.parent], name = condition.values[0], condition.parent
    # Completed with anything: refuses what no completion can make a configuration.
    space.complete(known, np.full(space.dim, np.nan), np.random.default_rng(0))
    distributions = {name: space.distributions[name] for name in known}
    return {name: d.to_external_repr(d.to_internal_repr(known[name])) for name, d in distributions.items()}


@contextlib.contextmanager
def _carrying() -> Iterator[list[Study]]:
    """An exception that leaves here holds the study that was put into the list."""
    kept: list[Study] = []
    try:
        yield kept
    except BaseException as error:
        for study in kept:
            carry(error, study)
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
def _presence(study: Study, engine: Engine, limits: Limits) -> Iterator[str]:
    """A name to run trials under; other threads and processes can see it where they can see the study."""
    facts = {EVALUATES_HERE: not engine.remote, NOTES_ALL: limits.retries == 0}
    with present(study, **facts) as name:
        yield name
