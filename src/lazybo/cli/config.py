"""A TOML file and flags -> one plan, validated before anything is changed."""

import os
import re
import shlex
import shutil
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner

from lazybo.checks import finite_number, one_of, seconds, shortened, whole
from lazybo.cli.parameters import distributions_of, examples
from lazybo.programs import placeholders
from lazybo.programs.output import Reading
from lazybo.programs.placeholders import nearest
from lazybo.programs.program import kind_of
from lazybo.run.arguments import check_initial
from lazybo.search.space import Condition, Space
from lazybo.study.pruner import LazyPruner
from lazybo.study.storage import DEFAULT_NAME

DEFAULT_STORAGE = "lazybo.db"
PRUNERS: dict[str, type[BasePruner]] = {
    "lazy": LazyPruner,
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "none": optuna.pruners.NopPruner,
}
# The type of each setting, for isinstance and for messages.
_TEXT, _WHOLE, _SECONDS, _NUMBER = (
    (str, "a text"),
    (int, "a whole number"),
    (int | float, "seconds"),
    (int | float, "a number"),
)
SETTINGS: dict[str, tuple[Any, str]] = {
    "command": (list | str, "a list of texts, or one text"),
    "objective": (str, 'a text such as "module:function"'),
    "parameters": (dict, "a table"),
    "direction": _TEXT,
    "trials": _WHOLE,
    "parallel": _WHOLE,
    "storage": _TEXT,
    "study": _TEXT,
    "timeout": _SECONDS,
    "trial_timeout": _SECONDS,
    "target": _NUMBER,
    "patience": _WHOLE,
    "retries": _WHOLE,
    "max_failures": _WHOLE,
    "seed": _WHOLE,
    "executor": _TEXT,
    "initial": (list, "a list of tables"),
    "output": _TEXT,
    "value_file": _TEXT,
    "value_key": _TEXT,
    "value_regex": _TEXT,
    "pruner": _TEXT,
    "from_environment": (bool, "true or false"),
}
LEAST = {"trials": 1, "parallel": 1, "patience": 1, "max_failures": 1, "retries": 0, "seed": 0}
MOST = {"parallel": 10_000}
# Counts must fit into a database. Locks and queues reject longer timeouts.
LARGEST_COUNT, LONGEST_WAIT = 2**63 - 1, 1e9
LOCAL_EXECUTORS = ("serial", "threads", "processes")
CLUSTERS = ("dask", "ray", "mpi")
# A Python objective, not a program: module:function.
OBJECTIVE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Plan:
    """What `lazybo tune` was asked to do."""

    command: tuple[str, ...] | None
    objective: str | None
    space: dict[str, BaseDistribution]
    conditions: dict[str, Condition]
    direction: Literal["minimize", "maximize"]
    storage: str
    study: str
    executor: str | None
    parallel: int | None
    output: Path
    value_file: str | None
    reading: Reading
    trial_timeout: float | None
    pruner: BasePruner
    initial: list[dict[str, Any]]
    limits: dict[
        str, Any
    ]  # as optimize() takes them: n_trials, timeout, target_value, patience, retries, max_failures, seed

    @property
    def on_a_cluster(self) -> bool:
        """Whether evaluations may run on other machines."""
        return self.executor is not None and self.executor.startswith(CLUSTERS)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. The study is named after the file unless the file names it."""
    try:
        with path.open("rb") as file:
            settings = tomllib.load(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    for key, value in settings.items():
        if key not in SETTINGS:
            raise ValueError(f"{path}: unknown key {key!r}{nearest(key, SETTINGS)}")
        kind, text = SETTINGS[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{path}: {key} must be {text}, not {value!r}")
    return {"study": path.stem, **settings}


def settings_of(words: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a call: the TOML file, if it is the first word, then the other words, then the flags."""
    rest = list(words)
    settings: dict[str, Any] = read_settings(Path(rest.pop(0))) if rest and rest[0].endswith(".toml") else {}
    if len(rest) == 1 and OBJECTIVE.fullmatch(rest[0]):
        settings = {key: value for key, value in settings.items() if key != "command"} | {"objective": rest[0]}
    elif rest:
        settings = {key: value for key, value in settings.items() if key != "objective"} | {"command": rest}
    # value_key and value_regex exclude each other: a flag replaces whichever of them the file has.
    ways = {key for key in ("value_key", "value_regex") if flags.get(key) is not None}
    settings = {key: value for key, value in settings.items() if not ways or key not in ("value_key", "value_regex")}
    tables = {**settings.get("parameters", {}), **flags.get("parameters", {})}
    return {**settings, **{key: value for key, value in flags.items() if value is not None}, "parameters": tables}


def make_plan(settings: Mapping[str, Any]) -> Plan:
    """Make a plan from settings; raises one ValueError if they are wrong."""
    space, conditions = distributions_of(settings["parameters"])
    checked = Space(space, conditions)
    command = _command(settings)
    storage, study = settings.get("storage", DEFAULT_STORAGE), settings.get("study") or DEFAULT_NAME
    trial_timeout = _seconds("trial_timeout", settings)
    plan = Plan(
        command=command,
        objective=None if command else settings["objective"],
        space=space,
        conditions=conditions,
        direction=_choice("direction", settings.get("direction", "minimize"), ("minimize", "maximize")),
        storage=storage,
        study=study,
        executor=_executor(settings.get("executor"), is_program=command is not None, timed=trial_timeout is not None),
        parallel=_whole("parallel", settings),
        output=Path(settings.get("output") or default_output(storage, study)).expanduser().absolute(),
        value_file=settings.get("value_file"),
        reading=Reading(settings.get("value_key"), settings.get("value_regex")),
        trial_timeout=trial_timeout,
        pruner=PRUNERS[_choice("pruner", settings.get("pruner", "median"), tuple(PRUNERS))](),
        initial=check_initial(settings.get("initial", []), checked),
        limits=_limits(settings),
    )
    if command:
        _check_program(plan, all_used=not settings.get("from_environment", False))
    else:
        _check_function(settings)
    return plan


def default_output(storage: str, study: str) -> str:
    """The folder of a study's output, beside its storage."""
    name = re.sub(r"[^\w.-]", "_", study)
    if "://" in storage:
        return f"{name}-output"
    return str(Path(storage).with_name(f"{Path(storage).stem}-{name}-output"))


def _command(settings: Mapping[str, Any]) -> tuple[str, ...] | None:
    command, objective = settings.get("command"), settings.get("objective")
    if command and objective:
        raise ValueError("both a command and a Python objective were given; give one of them")
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"the command {command!r} cannot be split: {error}") from None
    if command:
        for word in command:
            if not isinstance(word, str):
                raise ValueError(f"the command must be a list of texts, but has {word!r}; write {str(word)!r}")
        return tuple(command)
    if not objective:
        raise ValueError("there is nothing to tune: give a command after --, a module:function, or a TOML file")
    if not OBJECTIVE.fullmatch(objective):
        raise ValueError(f"the objective must be named as module:function, not {objective!r}")
    return None


def _check_program(plan: Plan, *, all_used: bool) -> None:
    assert plan.command is not None, "a program has a command"
    values = examples(plan.space)
    placeholders.check(plan.command, values, all_used=all_used)
    if plan.output.exists() and not plan.output.is_dir():
        raise ValueError(f"output {str(plan.output)!r} is not a folder; give another one with --output")
    if plan.value_file is not None:
        placeholders.check([plan.value_file], values, all_used=False)
        _check_value_file(Path(plan.value_file))
        if not placeholders.names(plan.value_file) and plan.parallel != 1 and (plan.parallel or plan.on_a_cluster):
            raise ValueError(
                f"trials that run at the same time need a value file each, for example {plan.value_file}.{{trial}}"
            )
    program = plan.command[0]
    if os.name != "posix":
        raise ValueError("programs can only be run on POSIX systems (Linux, macOS); tune a module:function instead")
    if not placeholders.names(program) and not plan.on_a_cluster and shutil.which(program) is None:
        where = "is not an executable file" if os.sep in program else "was not found in PATH; give its full path"
        raise ValueError(f"the program {program!r} {where}")


def _check_value_file(path: Path) -> None:
    """Reject an existing path that is not a regular file. Opening a FIFO would block until a writer opens it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise ValueError(
            f"value_file {str(path)!r} is {kind_of(mode)}; give the path of a file that the program will write"
        )


def _check_function(settings: Mapping[str, Any]) -> None:
    for key in ("value_file", "value_key", "value_regex"):
        if settings.get(key) is not None:
            raise ValueError(f"{key} is for programs; a Python function returns its value")


def _executor(executor: str | None, *, is_program: bool, timed: bool) -> str | None:
    if executor is None:
        # A thread that waits for a program costs nothing. A timeout can stop a Python function only with its process.
        return "threads" if is_program else "processes" if timed else None
    known = (*LOCAL_EXECUTORS, *CLUSTERS)
    if executor in known or executor.startswith(("dask://", "ray://")):
        return executor
    raise ValueError(
        f"executor must be one of {', '.join(known)}, dask://host:port or ray://host:port, not {executor!r}"
        + nearest(executor, known)
    )


def _limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    target = settings.get("target")
    limits = {
        "n_trials": _whole("trials", settings),
        "timeout": _seconds("timeout", settings),
        "target_value": None if target is None else finite_number("target", target),
        "patience": _whole("patience", settings),
    }
    if all(limit is None for limit in limits.values()):
        raise ValueError("there is no limit: give --trials, --timeout, --target or --patience")
    for key in ("retries", "max_failures", "seed"):
        if settings.get(key) is not None:
            limits[key] = _whole(key, settings)
    return limits


def _whole(key: str, settings: Mapping[str, Any]) -> int | None:
    if settings.get(key) is None:
        return None
    value, most = whole(key, settings[key], LEAST[key]), MOST.get(key, LARGEST_COUNT)
    if value > most:
        raise ValueError(f"{key} must be at most {most}, not {shortened(value, 30)}")
    return value


def _seconds(key: str, settings: Mapping[str, Any]) -> float | None:
    if settings.get(key) is None:
        return None
    value = seconds(key, settings[key])
    if value > LONGEST_WAIT:
        given = shortened(settings[key], 30)
        raise ValueError(f"{key} must be at most {LONGEST_WAIT:g} seconds, not {given}; leave it out for none")
    return value


def _choice(key: str, value: str, known: tuple[str, ...]) -> Any:
    try:
        return one_of(key, value, known)
    except ValueError as error:
        raise ValueError(f"{error}{nearest(value, known)}") from None
