"""`lazybo tune`: run a plan with `lazybo.optimize`."""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import typer
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.cli import console
from lazybo.cli.config import Plan
from lazybo.cli.progress import LogLines
from lazybo.cli.storages import keep_requirement, open_checked
from lazybo.programs import Program, groups
from lazybo.programs.program import NO_VALUE, last_lines
from lazybo.run.failure import NothingCompleted
from lazybo.run.limits import Limits, StopReason
from lazybo.run.open_trials import Callback
from lazybo.run.optimize import optimize
from lazybo.space.space import Space
from lazybo.study.attributes import COMMAND_KEY, OBJECTIVE_KEY, READING_KEY, STOPPED_KEY, failure_of
from lazybo.study.databases import fill_cache
from lazybo.study.sampler import LazySampler
from lazybo.study.storage import REMEDY, About, open_study

# How many lines of output are shown if a program gave no value.
LINES_SHOWN = 5
# Seconds after which the exception of a signal that has not ended the run must have been lost.
LOST_AFTER = 2.0


def run_plan(plan: Plan, *, force: bool, progress: bool) -> tuple[Study, int]:
    """Run the trials of a plan and return the study and the exit code."""
    with console.exit_on_bad_input():
        objective = _objective(plan)
        study, new = _open(plan, force=force)
    lines = LogLines(study, only_failures=not progress or sys.stderr.isatty())
    first = FirstValue(study)
    callbacks: list[Callback] = [lines]
    if plan.command and "max_failures" not in plan.limits:
        callbacks.append(first)
    groups.reopen()
    names, given = {each.name for each in fields(Limits)}, _with_failures(study, plan.limits)
    limits = {name: value for name, value in given.items() if name in names}
    others = {name: value for name, value in given.items() if name not in names}
    try:
        with _ending_on_signals():
            optimize(
                objective,
                Space(plan.space, conditions=plan.conditions, feasible=plan.require),
                direction=plan.directions,
                constraints=plan.constraints or None,
                sampler=LazySampler(cost=plan.cost, earlier=plan.earlier, deterministic=plan.deterministic),
                executor=plan.executor,
                n_parallel=plan.parallel or (None if plan.on_a_cluster else 1),
                storage=study._storage,
                study_name=plan.study,
                limits=Limits(**limits, trial_timeout=None if plan.command else plan.trial_timeout),
                initial=plan.initial,
                pruner=plan.pruner,
                max_steps=plan.steps,
                checkpoints=plan.checkpoints,
                callbacks=callbacks,
                progress=progress,
                **others,
            )
    except KeyboardInterrupt:
        return study, console.INTERRUPTED
    except NothingCompleted:
        return study, console.FAILED  # the summary says so
    except Exception as error:
        begun = lines.begun(study)
        if new and not study.get_trials(deepcopy=False):
            # For example, the cluster cannot be reached: a call that ran nothing leaves no study behind.
            study._storage.delete_study(study._study_id)
        _explain(error, begun=begun)
    finally:
        groups.end_all(plan.grace)
    if first.missing is not None:
        _no_value(study, first.missing)
        return study, console.FAILED
    return study, 0


class FirstValue:
    """A callback that stops a run whose first trial gave no value: later trials would give none either."""

    def __init__(self, study: Study) -> None:
        self.missing: FrozenTrial | None = None
        self._known = any(_has_value(trial) for trial in study.get_trials(deepcopy=False))

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Check a trial that has ended."""
        self._known = self._known or _has_value(trial)
        if not self._known and self.missing is None and failure_of(trial).get("kind") == NO_VALUE:
            self.missing = trial
            study.stop()


def _has_value(trial: FrozenTrial) -> bool:
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or bool(trial.intermediate_values)


def _with_failures(study: Study, limits: dict[str, Any]) -> dict[str, Any]:
    """The limits for `optimize`: trials that failed before the first value do not count as ``--trials``.

    So a user can fix a program that never worked, and the same command still runs all trials.
    """
    if limits["n_trials"] is None:
        return limits
    failed = 0
    for trial in study.get_trials(deepcopy=False):
        if _has_value(trial):
            break
        failed += trial.state == TrialState.FAIL
    return {**limits, "n_trials": limits["n_trials"] + failed}


def _no_value(study: Study, trial: FrozenTrial) -> None:
    """Print the last lines of a trial that gave no value, and the flags that may help."""
    study._storage.set_study_system_attr(study._study_id, STOPPED_KEY, StopReason.NO_FIRST_VALUE.value)
    folder = Path(str(trial.user_attrs.get("output", "")))
    for name in ("stdout", "stderr"):
        said = last_lines(folder / name, LINES_SHOWN)
        if said:
            console.say(f"the last lines of {os.path.relpath(folder / name)}:")
        for line in said:
            console.say(f"  | {line}")
    console.say(
        "lazybo: the run stopped because its first trial gave no value. Print the value last on standard output, "
        "as a number or as JSON with \"value\", or tell lazybo where it is: --value-regex 'accuracy: (\\S+)', "
        "--value-key accuracy for JSON, or --value-file PATH"
    )


def _explain(error: Exception, *, begun: bool) -> NoReturn:
    """Exit with one line: bad input if no trial has run, otherwise a failed run."""
    if os.environ.get("LAZYBO_DEBUG"):
        raise error
    if not begun and isinstance(error, ValueError | TypeError | ImportError | OSError):
        console.fail(error)
    kind = "" if isinstance(error, RuntimeError | TypeError) else f"{type(error).__name__}: "
    # The lines after the first one are for callers of the Python function.
    what = str(error).partition("\n")[0]
    remedy = "The study keeps its trials; run the same command again to resume"
    console.fail(f"the run failed: {kind}{what}. {remedy}", console.FAILED)


def _objective(plan: Plan) -> Callable[..., Any]:
    if plan.command is None:
        assert plan.objective is not None, "a plan has a command or an objective"
        return load(plan.objective, by_value=plan.on_a_cluster)
    return Program(
        command=plan.command,
        folder=plan.output,
        cwd=Path.cwd(),
        study=plan.study,
        value_file=plan.value_file,
        reading=plan.reading,
        timeout=plan.trial_timeout,
        grace=plan.grace,
        steps=plan.steps,
    ).call()


def load(name: str, *, by_value: bool = False) -> Callable[..., Any]:
    """Import the function ``module:function``, from this folder or an installed package.

    ``by_value`` pickles the module itself, for workers on other machines that do not have this folder.
    """
    module_name, _, path = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        thing: Any = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's: anything can go wrong in it
        raise ValueError(f"the module {module_name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if by_value:
        import cloudpickle

        cloudpickle.register_pickle_by_value(thing)
    for part in path.split("."):
        if not hasattr(thing, part):
            where = getattr(thing, "__name__", type(thing).__name__)
            raise ValueError(f"there is no {part!r} in {where!r}")
        thing = getattr(thing, part)
    if not callable(thing):
        raise ValueError(f"{name} is not a function but {thing!r}")
    return thing


def _open(plan: Plan, *, force: bool) -> tuple[Study, bool]:
    """Open or create the study, and tell whether it is new. A study of another command raises a ValueError."""
    storage = open_checked(plan.storage)
    about = _about(plan)
    there = [summary for summary in storage.get_all_studies() if summary.study_name == plan.study]
    for summary in there:
        fill_cache(storage, summary._study_id)
        if not force:
            _check_same_command(storage, summary._study_id, plan.study, about)
    structure = Space(plan.space, conditions=plan.conditions)
    try:
        goals = plan.goals
        optimised = About(goals.directions, goals.names, tuple(bound.name for bound in goals.bounds))
        study, _ = open_study(storage, plan.study, optimised, structure, plan.limits.get("seed"))
    except ValueError as error:
        raise ValueError(str(error).replace(REMEDY, "give another --study")) from error
    for key, what in about.items():
        study.set_user_attr(key, what)
    keep_requirement(study, plan.require)
    return study, not there


def _about(plan: Plan) -> dict[str, Any]:
    """The attributes that decide whether values are comparable: what is run, and how its value is read."""
    if not plan.command:
        return {OBJECTIVE_KEY: plan.objective}
    names = " and ".join(plan.reading.names) or None
    ways = {
        "value_key": plan.reading.key,
        "value_regex": plan.reading.regex,
        "value_file": plan.value_file,
        "objectives": names,
    }
    return {COMMAND_KEY: list(plan.command), READING_KEY: {key: way for key, way in ways.items() if way is not None}}


def _check_same_command(storage: BaseStorage, study_id: int, name: str, about: dict[str, Any]) -> None:
    """Reject a study of another command. If it has no value yet, the command may change: it never worked."""
    trials = storage.get_all_trials(study_id, deepcopy=False)
    if not any(_has_value(trial) or trial.state == TrialState.RUNNING for trial in trials):
        return
    kept = storage.get_study_user_attrs(study_id)
    remedy = "Give another --study, or --force if the values of both can be compared"
    there = {key: kept[key] for key in (COMMAND_KEY, OBJECTIVE_KEY) if key in kept}
    if there and there != {key: what for key, what in about.items() if key != READING_KEY}:
        what = next(iter(there.values()))
        words = " ".join(what) if isinstance(what, list) else what
        raise ValueError(f"the study {name!r} tunes another command: {words}. {remedy}")
    # Studies of earlier versions have no such attribute: they used the default, or a value file.
    ours = about.get(READING_KEY, {})
    theirs = kept.get(READING_KEY, {key: way for key, way in ours.items() if key == "value_file"})
    if there and theirs != ours:
        raise ValueError(f"the study {name!r} reads its values {_way(theirs)}, not {_way(ours)}. {remedy}")


def _way(reading: dict[str, str]) -> str:
    return " and ".join(f"by {key} '{way}'" for key, way in reading.items()) or "by default"


class _Signalled(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived. It is a KeyboardInterrupt because other exceptions only fail the trial."""


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP stop the run at once, as a second Ctrl-C does, and leave no program running."""
    timers: list[threading.Timer] = []

    def end(number: int, _: Any) -> None:
        if _is_unwinding(sys.exception()):
            return
        # Python ignores an exception that is raised while it runs a finaliser. So the signal is sent once more.
        timers.append(threading.Timer(LOST_AFTER, os.kill, (os.getpid(), number)))
        timers[-1].daemon = True
        timers[-1].start()
        raise _Signalled(number)

    numbers = [signal.SIGTERM, signal.SIGHUP] if hasattr(signal, "SIGHUP") else [signal.SIGTERM]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except _Signalled as ended:
        raise SystemExit(128 + ended.args[0]) from None
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_unwinding(error: BaseException | None) -> bool:
    """Whether the exception of an earlier signal is being handled: it was not lost."""
    while error is not None:
        if isinstance(error, _Signalled):
            return True
        error = error.__context__
    return False


def exit_with(code: int) -> None:
    """End the command with this code."""
    if code:
        raise typer.Exit(code)
