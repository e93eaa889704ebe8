"""`lazybo tune`: run a plan, and print how its trials end."""

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from optuna.study import Study, load_study
from optuna.trial import FrozenTrial

from lazybo.cli import console
from lazybo.cli.plan import (
    COMMAND_KEY,
    OBJECTIVE_KEY,
    READING_KEY,
    Plan,
    definition_of,
    in_stored_order,
    keep_requirement,
    make_plan,
)
from lazybo.cli.settings import open_checked
from lazybo.core import texts
from lazybo.programs import why_no_value
from lazybo.report import reason_of
from lazybo.run import Goals, Limits, RunFailed
from lazybo.study import Definition, Store, StudyView, TrialView

# The length of a reason in a trial's line.
REASON_LENGTH = 160
# If the exception of a signal has not ended the run after this many seconds, it was lost.
LOST_AFTER = 2.0


def run_plan(plan: Plan, *, force: bool, progress: bool) -> tuple[Study, int]:
    """Run the trials of a plan and return the study and the exit code."""
    with console.exit_on_bad_input():
        plan, study, new = _open(plan, force=force)
    lines = LogLines(study, plan.run.goals, only_failures=not progress or texts.shows_bar())
    first = FirstValue(study)
    run = replace(
        plan.run,
        storage=Store(study).storage,
        n_trials=_trials_with_failures(study, plan.run.n_trials),
        callbacks=[lines, first] if plan.program and "max_failures" not in plan.settings else [lines],
        progress=progress and texts.shows_bar(),  # otherwise each trial has a line
    )
    try:
        with ending_on_signals():
            run.run()
    except KeyboardInterrupt:
        return study, console.INTERRUPTED
    except Exception as error:
        if not (isinstance(error, RunFailed) and error.nothing_completed):  # the summary says that
            begun = lines.begun(study)
            if new and not Store(study).trials():
                # For example, the cluster cannot be reached: a call that ran nothing leaves no study behind.
                Store(study).delete()
            _explain(error, begun=begun)
        return study, console.FAILED
    finally:
        if plan.program is not None:
            plan.program.end()
    if not first.missing:
        return study, 0
    Limits.keep_reason(study, "no_first_value")
    *said, advice = first.missing
    for line in said:
        console.say(line)
    console.say(f"lazybo: the run stopped because its first trial gave no value. {advice}")
    return study, console.FAILED


class FirstValue:
    """A callback that stops a run whose first trial gave no value: later trials would give none either."""

    def __init__(self, study: Study) -> None:
        self.missing: list[str] = []
        self._known = any(_has_value(trial) for trial in StudyView.of(study).trials)

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Check a trial that has ended."""
        self._known = self._known or _has_value(TrialView(trial))
        if not self._known and not self.missing and (why := why_no_value(trial)):
            self.missing = why
            study.stop()


def _has_value(trial: TrialView) -> bool:
    return trial.state in ("complete", "pruned") or bool(trial.reported)


def _trials_with_failures(study: Study, n_trials: int | None) -> int | None:
    """``n_trials`` plus the trials that failed before the first value, which do not count as ``--trials``.

    So a user can fix a program that never worked, and the same command still runs all trials.
    """
    if n_trials is None:
        return None
    before = itertools.takewhile(lambda trial: not _has_value(trial), StudyView.of(study).trials)
    return n_trials + sum(trial.has_failed for trial in before)


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


def _open(plan: Plan, *, force: bool) -> tuple[Plan, Study, bool]:
    """Open or create the study, and tell whether it is new. A study of another command raises a ValueError.

    The objectives of the plan get the order that they have in the study.
    """
    storage = open_checked(plan.storage)
    is_new = plan.study not in {found.study_name for found in storage.get_all_studies()}
    if not is_new:
        there = load_study(study_name=plan.study, storage=storage)
        if (ordered := in_stored_order(plan.settings, there)) is not None:
            plan = make_plan(ordered)
        if not force:
            _check_same_command(there, _about(plan))
    try:
        study, _ = definition_of(plan.run.goals).open(storage, plan.study, plan.run.space, plan.run.seed)
    except ValueError as error:
        raise ValueError(str(error).replace(Definition.REMEDY, "give another --study")) from error
    for key, what in _about(plan).items():
        study.set_user_attr(key, what)
    keep_requirement(study, plan.run.space.feasible)
    return plan, study, is_new


def _about(plan: Plan) -> dict[str, Any]:
    """The attributes that decide whether values are comparable: what is run, and how its value is read."""
    if plan.program is None:
        return {OBJECTIVE_KEY: plan.settings["objective"]}
    reading, value_file = plan.program.reading, plan.program.value_file
    ways = {"value_key": reading.key, "value_regex": reading.regex, "value_file": value_file}
    ways["objectives"] = " and ".join(reading.names) or None
    known = {key: way for key, way in ways.items() if way is not None}
    return {COMMAND_KEY: list(plan.program.command), READING_KEY: known}


def _check_same_command(study: Study, about: dict[str, Any]) -> None:
    """Reject a study of another command. If it has no value yet, the command may change: it never worked."""
    if not any(_has_value(trial) or trial.state == "running" for trial in StudyView.of(study).trials):
        return
    kept, name = study.user_attrs, study.study_name
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
def ending_on_signals(lost_after: float = LOST_AFTER) -> Iterator[None]:
    """SIGTERM and SIGHUP stop the run at once, as a second Ctrl-C does, and leave no program running."""
    timers: list[threading.Timer] = []

    def end(number: int, _: Any) -> None:
        if _is_unwinding(sys.exception()):
            return
        # Python ignores an exception that is raised while it runs a finaliser. So the signal is sent once more.
        timers.append(threading.Timer(lost_after, os.kill, (os.getpid(), number)))
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


# ------------------------------------------------------------------------------------- progress


class LogLines:
    """A callback that prints how each trial ended and the best value. A repeated reason is shortened."""

    def __init__(self, study: Study, goals: Goals, *, only_failures: bool) -> None:
        view = StudyView.of(study)
        self._names, self._tally = view.objectives, goals.tally()
        self._only_failures = only_failures
        self._best: TrialView | None = None
        self._failed = 0
        self._reasons: dict[str, int] = {}
        for trial in view.trials:
            self._count(trial)
        self._before = sum(trial.has_ended for trial in view.trials)

    def begun(self, study: Study) -> bool:
        """Whether any trial has ended since this object was made."""
        return sum(trial.has_ended for trial in StudyView.of(study).trials) > self._before

    def __call__(self, _: Study, trial: FrozenTrial) -> None:
        """Print the line of a trial that has ended."""
        ended = TrialView(trial)
        self._count(ended)
        if ended.has_failed or not self._only_failures:
            console.say(self.line(ended))

    def line(self, trial: TrialView) -> str:
        """For example ``trial 12  value 0.931  best 0.940 (trial 9)  3 failed``."""
        parts = [f"trial {trial.number}"]
        if trial.state == "complete":
            parts += [f"{name} {value:.6g}" for name, value in zip(self._names, trial.values, strict=True)]
            if trial.is_infeasible:
                parts.append("infeasible")
        elif trial.state == "pruned":
            parts.append(f"pruned at step {trial.last_step}")
        elif trial.is_paused:
            parts.append(f"paused at step {trial.last_step}")
        else:
            parts.append(self._failure(trial))
        if trial.repeat_of is not None:
            parts.append(f"repeat of trial {trial.repeat_of}")
        if self._best is not None:
            parts.append(f"best {self._best.value:.6g} (trial {self._best.number})")
        elif self._tally.front:
            parts.append(f"front of {self._tally.front}")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return "  ".join(parts)

    def _failure(self, trial: TrialView) -> str:
        reason = reason_of(trial)
        self._reasons[reason] = times = self._reasons.get(reason, 0) + 1
        short = texts.shortened(reason, REASON_LENGTH)
        return f"failed: {short}" if times == 1 else f"failed: {texts.shortened(reason, 40)} again ({times} times)"

    def _count(self, trial: TrialView) -> None:
        """Count a trial; the best is the first of the best feasible ones."""
        self._failed += trial.has_failed
        if not trial.is_complete:
            return
        before = self._tally.best
        self._tally.count(trial.frozen.state, trial.values, feasible=not trial.is_infeasible)
        if self._tally.best != before:
            self._best = trial
