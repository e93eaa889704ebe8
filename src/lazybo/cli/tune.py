"""`lazybo tune`: a plan is carried out by `lazybo.optimize`."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from optuna.study import Study

from lazybo.cli import console
from lazybo.cli.config import Plan
from lazybo.cli.progress import LogLines
from lazybo.cli.storages import COMMAND_KEY, OBJECTIVE_KEY
from lazybo.programs import Program, groups
from lazybo.run.optimize import STOPPED_KEY, optimize
from lazybo.study.model import Structure
from lazybo.study.storage import open_storage, open_study


def carry_out(plan: Plan, *, force: bool, progress: bool) -> tuple[Study, int]:
    """Run the trials of a plan; gives the study and the exit code."""
    with console.refusing():
        objective = _objective(plan)
        study, new = _open(plan, force=force)
    lines = LogLines(study)
    wants_lines = progress and not sys.stderr.isatty()
    groups.reopen()
    try:
        with _ending_on_signals():
            optimize(
                objective,
                plan.space,
                direction=plan.direction,
                conditions=plan.conditions,
                executor=plan.executor,
                n_parallel=plan.parallel or (None if plan.on_a_cluster else 1),
                storage=study._storage,
                study_name=plan.study,
                trial_timeout=None if plan.command else plan.trial_timeout,
                initial=plan.initial,
                pruner=plan.pruner,
                callbacks=[lines] if wants_lines else [],
                progress=progress,
                **plan.limits,
            )
    except KeyboardInterrupt:
        return study, console.INTERRUPTED
    except Exception as error:
        begun = lines.begun(study)
        if new and not study.get_trials(deepcopy=False):
            # A cluster that cannot be reached, for example: what was refused leaves no study behind.
            study._storage.delete_study(study._study_id)
        _explain(error, begun=begun)
    finally:
        groups.end_all()
    stopped = study._storage.get_study_system_attrs(study._study_id).get(STOPPED_KEY)
    return study, console.INTERRUPTED if stopped == "interrupted" else 0


def _explain(error: Exception, *, begun: bool) -> NoReturn:
    """One line: bad input if nothing has been begun, else a run that failed."""
    if os.environ.get("LAZYBO_DEBUG"):
        raise error
    if not begun and isinstance(error, ValueError | TypeError | ImportError | OSError):
        console.fail(error)
    kind = "" if isinstance(error, RuntimeError | TypeError) else f"{type(error).__name__}: "
    console.fail(f"the run failed: {kind}{error}", console.FAILED)


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
        timeout=plan.trial_timeout,
    )


def load(name: str, *, by_value: bool = False) -> Callable[..., Any]:
    """The function that ``module:function`` names, from this folder or what is installed.

    ``by_value`` for workers on other machines, which do not have this folder.
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
            raise ValueError(f"there is no {part!r} in {thing.__name__!r}")
        thing = getattr(thing, part)
    if not callable(thing):
        raise ValueError(f"{name} is no function but {thing!r}")
    return thing


def _open(plan: Plan, *, force: bool) -> tuple[Study, bool]:
    """The study, and whether it is new or resumed; a study of another command is refused."""
    storage = open_storage(plan.storage)
    key, what = (COMMAND_KEY, list(plan.command)) if plan.command else (OBJECTIVE_KEY, plan.objective)
    there = [summary for summary in storage.get_all_studies() if summary.study_name == plan.study]
    for summary in there:
        if not force:
            kept = storage.get_study_user_attrs(summary._study_id)
            _refuse_another(plan.study, {k: kept[k] for k in (COMMAND_KEY, OBJECTIVE_KEY) if k in kept}, {key: what})
    structure = Structure(plan.space, plan.conditions, frozenset())
    study, _ = open_study(storage, plan.study, plan.direction, structure, plan.limits.get("seed"))
    study.set_user_attr(key, what)
    return study, not there


def _refuse_another(study: str, kept: dict[str, Any], given: dict[str, Any]) -> None:
    if kept and kept != given:
        (there,) = list(kept.values())[:1]
        words = " ".join(there) if isinstance(there, list) else there
        raise ValueError(
            f"the study {study!r} tunes another command: {words}. "
            "Give another --study, or --force if the values of both can be compared"
        )


class _Signalled(KeyboardInterrupt):
    """A signal to end. As an interrupt, for any other exception in an objective is a failed trial."""


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """A polite end (SIGTERM, a closed terminal) stops now, as the second Ctrl-C does: no program is left behind."""

    def end(number: int, _: Any) -> None:
        raise _Signalled(number)

    numbers = [signal.SIGTERM, signal.SIGHUP] if hasattr(signal, "SIGHUP") else [signal.SIGTERM]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except _Signalled as ended:
        raise SystemExit(128 + ended.args[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_with(code: int) -> None:
    """End the command with this code."""
    if code:
        raise typer.Exit(code)
