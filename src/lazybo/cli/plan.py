"""Settings -> one plan, validated before anything is changed."""

import math
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.study import Study

from lazybo.cli.parameters import Requirement, examples, requirement_of, space_of
from lazybo.cli.settings import DEFAULT_STORAGE, OBJECTIVE, check_texts
from lazybo.core import Direction, codec
from lazybo.programs import GRACE, Reading, kind_of, nearest, placeholders
from lazybo.run import (
    ADDRESSES,
    CLUSTERS,
    LOCAL,
    Goals,
    Limits,
    check_goals,
    check_initial,
    check_initial_feasible,
    check_pruner,
)
from lazybo.search import Optimizer
from lazybo.space import Predicate, Space
from lazybo.study import DEFAULT_NAME, Definition, LazyPruner, LazySampler, Store, of_study, read_earlier

Settings = Mapping[str, Any]
PRUNERS: dict[str, type[BasePruner]] = {
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "none": optuna.pruners.NopPruner,
}
# Seconds between SIGTERM and SIGKILL for a program that has a checkpoint, unless grace is given.
CHECKPOINT_GRACE = 30.0
CONSTRAINT = re.compile(r"\s*(?P<metric>[^\s<>=]+)\s*(?P<sign><=|>=)\s*(?P<limit>\S+)\s*")


# User: what `lazybo tune` tunes: the words of a command, or the name of a Python function.
COMMAND_KEY = "lazybo:command"
OBJECTIVE_KEY = "lazybo:objective"
# User: where the value of a program comes from if not from the default: the key, the regular expression, the file.
READING_KEY = "lazybo:value"
# The conditions on parameters that must hold (`--require`), as strings.
REQUIRE_KEY = "lazybo:require"


@dataclass(frozen=True)
class Plan:
    """What `lazybo tune` was asked to do. ``settings`` are the checked settings; the rest is made from them."""

    settings: Settings
    command: tuple[str, ...] | None
    space: Space
    goals: Goals
    directions: Direction | dict[str, Direction]  # a direction of one objective, or directions by name
    constraints: dict[str, tuple[float | None, float | None]]
    storage: str
    study: str
    executor: str | None
    output: Path
    reading: Reading
    grace: float
    checkpoints: Path | None
    pruner: BasePruner
    initial: list[dict[str, Any]]
    sampler: LazySampler
    limits: Limits

    @property
    def on_a_cluster(self) -> bool:
        """Whether evaluations may run on other machines."""
        return self.executor is not None and self.executor.startswith(CLUSTERS)


def make_plan(settings: Settings) -> Plan:
    """Make a plan from checked settings; raises one ValueError if they contradict each other."""
    space = space_of(settings["parameters"], settings["require"], settings.get("beliefs", []))
    command = _command(settings)
    storage, study = settings.get("storage", DEFAULT_STORAGE), settings.get("study") or DEFAULT_NAME
    goals = goals_of(settings, is_program=command is not None)
    output = Path(settings.get("output") or default_output(storage, study)).expanduser().absolute()
    plan = Plan(
        settings=settings,
        command=command,
        space=space,
        goals=goals,
        directions=objectives_of(settings, is_program=command is not None),
        constraints=parse_constraints(settings.get("constraints", [])),
        storage=storage,
        study=study,
        executor=_executor(settings, is_program=command is not None),
        output=output,
        reading=_reading(settings, goals) if command else Reading(),
        grace=_grace(settings, command),
        checkpoints=_checkpoints(settings, command, output),
        pruner=_pruner(settings, goals),
        initial=check_initial(settings.get("initial", []), space),
        sampler=LazySampler(**options_in(settings, goals, storage, study)),
        limits=_limits(settings, goals, is_program=command is not None),
    )
    check_initial_feasible(plan.initial, Optimizer(space, seed=0))
    if command:
        _check_program(plan, command)
    else:
        _check_function(settings)
    return plan


def _reading(settings: Settings, goals: Goals) -> Reading:
    """How to read the output of a program. The one objective that has a name is read under that name."""
    key, named = settings.get("value_key"), settings.get("directions") or {}
    if key is None and len(named) == 1:
        key = next(iter(named))
    return Reading(key, settings.get("value_regex"), goals.names or ())


def _pruner(settings: Settings, goals: Goals) -> BasePruner:
    """The pruner. With several objectives the rules of Optuna are rejected: they compare one objective only."""
    name = settings.get("pruner", "lazy")
    pruner = LazyPruner(settings.get("steps")) if name == "lazy" else PRUNERS[name]()
    check_pruner(pruner, goals)
    return pruner


def _has_checkpoint(command: Sequence[str] | None) -> bool:
    return any(placeholders.CHECKPOINT in placeholders.names(word) for word in command or ())


def _grace(settings: Settings, command: Sequence[str] | None) -> float:
    """The seconds that a program has to end. One with a checkpoint needs time to write it."""
    given: float | None = settings.get("grace")
    if given is not None and command is None:
        raise ValueError("grace is for programs; a Python function is stopped between two steps")
    return given if given is not None else CHECKPOINT_GRACE if _has_checkpoint(command) else GRACE


def _checkpoints(settings: Settings, command: Sequence[str] | None, output: Path) -> Path | None:
    """The folder of all checkpoints; for a program it is inside its output folder."""
    given = settings.get("checkpoints")
    if given is not None and command is not None and not _has_checkpoint(command):
        raise ValueError("checkpoints is the folder of what the command gets as {checkpoint}; add this placeholder")
    if given is None:
        return output / "checkpoints" if _has_checkpoint(command) else None
    return Path(given).expanduser().absolute()


def objectives_of(settings: Settings, *, is_program: bool) -> Direction | dict[str, Direction]:
    """The direction of one objective, or the directions of several by name."""
    directions: dict[str, Direction] | None = settings.get("directions")
    if directions is None:
        direction: Direction = settings.get("direction", "minimize")
        return direction
    if settings.get("direction") is not None:
        raise ValueError("give the direction of one objective, or the directions of several by name, not both")
    return next(iter(directions.values())) if is_program and len(directions) == 1 else directions


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


def keep_requirement(study: Study, feasible: Predicate | None) -> None:
    """Store the expressions that must hold with the study; `lazybo ask` reads them."""
    texts = list(feasible.texts) if isinstance(feasible, Requirement) else None
    store = Store(study)
    if store.attributes().get(REQUIRE_KEY) != texts:
        store.set_attributes({REQUIRE_KEY: texts})


def with_stored_requirement(space: Space, study: Study) -> Space:
    """The space with the expressions that must hold, as they are stored with a study."""
    with codec.readable(of_study(REQUIRE_KEY, study.study_name), "set it to a list of strings such as ['a + b <= 1']"):
        texts = check_texts("it", Store(study).attributes().get(REQUIRE_KEY) or [])
        required = requirement_of(texts, space.distributions)
    return space.changed(feasible=required)


def options_in(settings: Settings, goals: Goals, storage: str, study: str) -> dict[str, Any]:
    """The options of the model in the settings, without the seed; earlier studies are read."""
    given = {key: settings[key] for key in ("cost", "deterministic") if key in settings}
    earlier = read_earlier(settings.get("earlier", []), goals.directions, storage, study, goals.names)
    return {**given, "earlier": earlier}


def definition_of(goals: Goals) -> Definition:
    """What a study with these goals stores."""
    return Definition(goals.directions, goals.names, tuple(bound.name for bound in goals.bounds))


def in_stored_order(settings: Settings, study: Study) -> Settings | None:
    """The settings with the objectives in the order of an existing study; None if they are, or are other ones."""
    given, names = settings.get("directions") or {}, study.metric_names or []
    if list(given) == names or given.keys() != set(names):
        return None
    return {**settings, "directions": {name: given[name] for name in names}}


def goals_of(settings: Settings, *, is_program: bool) -> Goals:
    """What the settings say is optimised."""
    directions = objectives_of(settings, is_program=is_program)
    return check_goals(directions, parse_constraints(settings.get("constraints", [])))


def default_output(storage: str, study: str) -> str:
    """The folder of a study's output, next to its storage."""
    name = re.sub(r"[^\w.-]", "_", study)
    if "://" in storage:
        return f"{name}-output"
    return str(Path(storage).with_name(f"{Path(storage).stem}-{name}-output"))


def _command(settings: Settings) -> tuple[str, ...] | None:
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
                raise ValueError(f"the command must be a list of strings, but has {word!r}; write {str(word)!r}")
        return tuple(command)
    if not objective:
        raise ValueError("there is nothing to tune: give a command after --, a module:function, or a TOML file")
    if not OBJECTIVE.fullmatch(objective):
        raise ValueError(f"the objective must be named as module:function, not {objective!r}")
    return None


def _check_program(plan: Plan, command: Sequence[str]) -> None:
    values = examples(plan.space)
    without = [name for word in command for name in placeholders.names(word) if name in placeholders.PLACES]
    if without and "devices" not in plan.settings:
        raise ValueError(f"the placeholder {{{without[0]}}} needs --devices, for example --devices 0,1")
    placeholders.check(command, values, all_used=not plan.settings.get("from_environment", False))
    if plan.output.exists() and not plan.output.is_dir():
        raise ValueError(f"output {str(plan.output)!r} is not a folder; give another one with --output")
    value_file = plan.settings.get("value_file")
    if value_file is not None:
        placeholders.check([value_file], values, all_used=False)
        _check_value_file(Path(value_file))
        if not placeholders.names(value_file) and _runs_several(plan):
            raise ValueError(
                f"trials that run at the same time need a value file each, for example {value_file}.{{trial}}"
            )
    program = command[0]
    if os.name != "posix":
        raise ValueError("programs can only be run on POSIX systems (Linux, macOS); tune a module:function instead")
    if not placeholders.names(program) and not plan.on_a_cluster and shutil.which(program) is None:
        where = "is not an executable file" if os.sep in program else "was not found in PATH; give its full path"
        raise ValueError(f"the program {program!r} {where}")


def _runs_several(plan: Plan) -> bool:
    """Whether trials may run at the same time."""
    parallel = plan.settings.get("parallel") or len(plan.settings.get("devices", ()))
    return parallel != 1 and bool(parallel or plan.on_a_cluster)


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


def _check_function(settings: Settings) -> None:
    for key in ("value_file", "value_key", "value_regex"):
        if settings.get(key) is not None:
            raise ValueError(f"{key} is for programs; a Python function returns its value")


def _executor(settings: Settings, *, is_program: bool) -> str | None:
    executor: str | None = settings.get("executor")
    if executor is None:
        # A thread that waits for a program costs nothing. A timeout can stop a Python function only with its process.
        return "threads" if is_program else "processes" if "trial_timeout" in settings else None
    known, addresses = (*LOCAL, *CLUSTERS), " or ".join(f"{each}host:port" for each in ADDRESSES)
    if executor in known or executor.startswith(ADDRESSES):
        return executor
    raise ValueError(
        f"executor must be one of {', '.join(known)}, {addresses}, not {executor!r}" + nearest(executor, known)
    )


def _limits(settings: Settings, goals: Goals, *, is_program: bool) -> Limits:
    """When the run ends. A program has its own timeout."""
    names = {"target": "target_value"} | {each.name: each.name for each in fields(Limits)}
    given = {names[key]: settings[key] for key in names if key in settings}
    ends = [key for key in ("trials", "target", "patience", "min_gain") if key in settings]
    if not ends and "timeout" not in settings:
        raise ValueError("there is no limit: give --trials, --timeout, --target, --patience or --min-gain")
    limits = Limits(**{**given, **({"trial_timeout": None} if is_program else {})})
    if limits.confirm and not ends:
        raise ValueError(
            "--confirm needs to know when the search ends: give --trials, --target, --patience, --min-gain"
        )
    trials = settings.get("trials", math.inf)
    if limits.confirm >= trials:
        raise ValueError(f"confirm is a part of trials: it must be less than {trials}, not {limits.confirm}")
    single = {"target": limits.target_value, "min_gain": limits.min_gain, "confirm": limits.confirm or None}
    for name, limit in single.items():
        if goals.several and limit is not None:
            raise ValueError(f"{name} is for one objective; use patience or trials")
    if limits.confirm and settings.get("deterministic"):
        raise ValueError(
            "--confirm runs the best trials again, and --deterministic says that this gives the same values; leave one "
            "of them out"
        )
    return limits
