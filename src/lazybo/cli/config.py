"""Settings -> one plan, validated before anything is changed."""

import math
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner

from lazybo.cli.parameters import distributions_of, examples
from lazybo.cli.require import Requirement
from lazybo.cli.settings import DEFAULT_STORAGE, OBJECTIVE, choice_of, seconds_of, texts_of, whole_of
from lazybo.core.checks import DIRECTIONS, Direction, check_cost, finite_number, positive, shortened
from lazybo.programs import groups, placeholders
from lazybo.programs.output import Reading
from lazybo.programs.placeholders import nearest
from lazybo.programs.program import kind_of
from lazybo.run.arguments import check_initial, check_initial_feasible, check_pruner
from lazybo.run.goals import Goals, check_goals
from lazybo.search.earlier import EarlierStudy
from lazybo.search.optimizer import Optimizer
from lazybo.space.space import Condition, Space
from lazybo.study.earlier import read_earlier
from lazybo.study.pruner import LazyPruner
from lazybo.study.storage import DEFAULT_NAME

PRUNERS: dict[str, type[BasePruner]] = {
    "lazy": LazyPruner,
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "none": optuna.pruners.NopPruner,
}
# Seconds between SIGTERM and SIGKILL for a program that has a checkpoint, unless grace is given.
CHECKPOINT_GRACE = 30.0
# The limits that end a search before its final check.
ENDS_SEARCH = ("n_trials", "target_value", "patience", "min_gain")
LOCAL_EXECUTORS = ("serial", "threads", "processes")
CLUSTERS = ("dask", "ray", "mpi")
CONSTRAINT = re.compile(r"\s*(?P<metric>[^\s<>=]+)\s*(?P<sign><=|>=)\s*(?P<limit>\S+)\s*")


@dataclass(frozen=True)
class Plan:
    """What `lazybo tune` was asked to do."""

    command: tuple[str, ...] | None
    objective: str | None
    space: dict[str, BaseDistribution]
    conditions: dict[str, Condition]
    goals: Goals
    directions: Direction | dict[str, Direction]  # a direction of one objective, or directions by name
    constraints: dict[str, tuple[float | None, float | None]]
    storage: str
    study: str
    executor: str | None
    parallel: int | None
    output: Path
    value_file: str | None
    reading: Reading
    trial_timeout: float | None
    steps: int | None
    grace: float
    checkpoints: Path | None
    pruner: BasePruner
    initial: list[dict[str, Any]]
    require: Requirement | None
    cost: str | None  # "seconds" or a metric
    deterministic: bool
    earlier: tuple[EarlierStudy, ...]
    limits: dict[str, Any]  # as optimize() takes them: n_trials, timeout, target_value, patience, min_gain and others

    @property
    def on_a_cluster(self) -> bool:
        """Whether evaluations may run on other machines."""
        return self.executor is not None and self.executor.startswith(CLUSTERS)


def make_plan(settings: Mapping[str, Any]) -> Plan:
    """Make a plan from settings; raises one ValueError if they are wrong."""
    space, conditions = distributions_of(settings["parameters"])
    checked = Space(space, conditions=conditions)
    command = _command(settings)
    storage, study = settings.get("storage", DEFAULT_STORAGE), settings.get("study") or DEFAULT_NAME
    trial_timeout = seconds_of("trial_timeout", settings)
    directions = objectives_of(settings, is_program=command is not None)
    constraints = parse_constraints(settings.get("constraints", []))
    by_name = directions if isinstance(directions, dict) else None
    goals = check_goals(None if by_name else directions, by_name, constraints)
    # The one objective of a program that has a name is read under that name.
    output = Path(settings.get("output") or default_output(storage, study)).expanduser().absolute()
    key = settings.get("value_key")
    key = _only_name(settings.get("directions")) if key is None else key
    plan = Plan(
        command=command,
        objective=None if command else settings["objective"],
        space=space,
        conditions=conditions,
        goals=goals,
        directions=directions,
        constraints=constraints,
        storage=storage,
        study=study,
        executor=_executor(settings.get("executor"), is_program=command is not None, timed=trial_timeout is not None),
        parallel=whole_of("parallel", settings),
        output=output,
        value_file=settings.get("value_file"),
        reading=Reading(key if command else None, settings.get("value_regex"), (goals.names or ()) if command else ()),
        trial_timeout=trial_timeout,
        steps=whole_of("steps", settings),
        grace=_grace(settings, command),
        checkpoints=_checkpoints(settings, command, output),
        pruner=_pruner(settings, goals),
        initial=check_initial(settings.get("initial", []), checked),
        require=requirement_of(settings.get("require"), space),
        cost=check_cost(settings.get("cost")),
        deterministic=settings.get("deterministic", False),
        earlier=earlier_of(settings, goals, storage, study),
        limits=_limits(settings),
    )
    if goals.several:
        _check_several(plan.limits)
    if plan.deterministic and plan.limits.get("confirm"):
        raise ValueError(
            "--confirm runs the best trials again, and --deterministic says that this gives the same values; leave one "
            "of them out"
        )
    if plan.require is not None:
        check_initial_feasible(
            plan.initial, Optimizer(Space(space, conditions=conditions, feasible=plan.require), seed=0)
        )
    if command:
        _check_program(plan, all_used=not settings.get("from_environment", False))
    else:
        _check_function(settings)
    return plan


def earlier_of(settings: Mapping[str, Any], goals: Goals, storage: str, study: str) -> tuple[EarlierStudy, ...]:
    """The results of earlier studies, by their names."""
    names = settings.get("earlier") or []
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise ValueError(f"earlier must be a list of texts, NAME or NAME@STORAGE, not {shortened(wrong[0])}")
    return read_earlier(names, goals.directions, storage, study)


def _pruner(settings: Mapping[str, Any], goals: Goals) -> BasePruner:
    """The pruner. With several objectives the rules of Optuna are rejected: they compare one objective only."""
    steps = whole_of("steps", settings)
    name = choice_of("pruner", settings.get("pruner", "lazy"), tuple(PRUNERS))
    pruner = LazyPruner(steps) if name == "lazy" else PRUNERS[name]()
    check_pruner(pruner, goals)
    return pruner


def _has_checkpoint(command: Sequence[str] | None) -> bool:
    return any(placeholders.CHECKPOINT in placeholders.names(word) for word in command or ())


def _grace(settings: Mapping[str, Any], command: Sequence[str] | None) -> float:
    """The seconds that a program has to end. One with a checkpoint needs time to write it."""
    given = seconds_of("grace", settings)
    if given is not None and command is None:
        raise ValueError("grace is for programs; a Python function is stopped between two steps")
    return given if given is not None else CHECKPOINT_GRACE if _has_checkpoint(command) else groups.GRACE


def _checkpoints(settings: Mapping[str, Any], command: Sequence[str] | None, output: Path) -> Path | None:
    """The folder of all checkpoints; that of a program is in the folder of its output."""
    given = settings.get("checkpoints")
    if given is not None and command is not None and not _has_checkpoint(command):
        raise ValueError("checkpoints is the folder of what the command gets as {checkpoint}; add this placeholder")
    if given is None:
        return output / "checkpoints" if _has_checkpoint(command) else None
    return Path(given).expanduser().absolute()


def objectives_of(settings: Mapping[str, Any], *, is_program: bool) -> Direction | dict[str, Direction]:
    """The direction of one objective, or the directions of several by name."""
    given = settings.get("directions")
    if given is None:
        direction: Direction = choice_of("direction", settings.get("direction", "minimize"), DIRECTIONS)
        return direction
    if settings.get("direction") is not None:
        raise ValueError("give the direction of one objective, or the directions of several by name, not both")
    directions: dict[str, Direction] = {
        name: choice_of(f"the direction of {name}", each, DIRECTIONS) for name, each in given.items()
    }
    # By name, so that the order of flags does not matter when a study is resumed.
    ordered = dict(sorted(directions.items()))
    return next(iter(ordered.values())) if is_program and len(ordered) == 1 else ordered


def _only_name(directions: Mapping[str, Any] | None) -> str | None:
    """The name of the objective if there is one and it has a name."""
    return next(iter(directions)) if directions is not None and len(directions) == 1 else None


def parse_constraints(texts: Sequence[Any]) -> dict[str, tuple[float | None, float | None]]:
    """Texts such as ``memory<=4000`` and ``accuracy>=0.9`` as ranges of metrics."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for text in texts:
        match = CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
        number = _finite(match["limit"]) if match else None
        if match is None or number is None:
            raise ValueError(f"a constraint must be METRIC<=NUMBER or METRIC>=NUMBER, not {text!r}")
        at_least, name = match["sign"] == ">=", match["metric"]
        low, high = found.get(name, (None, None))
        if (low if at_least else high) is not None:
            raise ValueError(f"there are two constraints {name}{match['sign']}...; give one of them")
        found[name] = (number, high) if at_least else (low, number)
    return found


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def requirement_of(require: Any, space: Mapping[str, BaseDistribution]) -> Requirement | None:
    """The expressions that every configuration must fulfil, all of them."""
    texts = texts_of(require)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"require must be a text such as 'a + b <= 1', or a list of texts, not {shortened(text)}")
    return Requirement(texts, list(space)) if texts else None


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
        "n_trials": whole_of("trials", settings),
        "timeout": seconds_of("timeout", settings),
        "target_value": None if target is None else finite_number("target", target),
        "patience": whole_of("patience", settings),
        "min_gain": None if settings.get("min_gain") is None else positive("min_gain", settings["min_gain"]),
    }
    if all(limit is None for limit in limits.values()):
        raise ValueError("there is no limit: give --trials, --timeout, --target, --patience or --min-gain")
    for key in ("confirm", "retries", "max_failures", "seed"):
        if settings.get(key) is not None:
            limits[key] = whole_of(key, settings)
    if limits.get("confirm"):
        _check_confirm(limits)
    return limits


def _check_several(limits: Mapping[str, Any]) -> None:
    """Reject the limits that are for one objective."""
    given = {"target": limits["target_value"], "min_gain": limits["min_gain"], "confirm": limits.get("confirm") or None}
    for name, limit in given.items():
        if limit is not None:
            raise ValueError(f"{name} is for one objective; use patience or trials")


def _check_confirm(limits: Mapping[str, Any]) -> None:
    trials, confirm = limits["n_trials"], limits["confirm"]
    if all(limit is None for name, limit in limits.items() if name in ENDS_SEARCH):
        raise ValueError(
            "--confirm needs to know when the search ends: give --trials, --target, --patience, --min-gain"
        )
    if trials is not None and confirm >= trials:
        raise ValueError(f"confirm is a part of trials: it must be less than {trials}, not {confirm}")
