"""Settings -> one plan, validated before anything is changed."""

import importlib
import math
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.pruners import BasePruner
from optuna.study import Study

from lazybo.cli.parameters import Requirement, examples, requirement_of, space_in
from lazybo.cli.settings import DEFAULT_STORAGE, OBJECTIVE, PRUNERS, check_texts
from lazybo.core import Direction
from lazybo.programs import Program, Reading
from lazybo.run import Goals, Limits, RunPlan
from lazybo.space import Space
from lazybo.study import Definition, LazyPruner, LazySampler, Store

Settings = Mapping[str, Any]
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
CONSTRAINT = re.compile(rf"\s*(?P<metric>[^\s<>=]+)\s*(?P<sign><=|>=)\s*(?P<limit>{NUMBER})\s*")
# Settings that a Python function cannot have, and why.
FOR_PROGRAMS = {
    **dict.fromkeys(("value_file", "value_key", "value_regex"), "returns its value"),
    "grace": "is stopped between two steps",
}
# The options of the model among the settings, and the limits with their names in `Limits`.
OPTIONS = ("cost", "deterministic", "earlier")
LIMITS = {name: name for name in Limits.__dataclass_fields__ if name != "target_value"} | {"target": "target_value"}
# What messages of `lazybo.optimize` call its arguments, and what these are called here.
RENAMED = {
    "or limits=lazybo.Limits(...) with ": "",
    "n_trials": "trials",
    "target_value": "target",
    "max_steps": "steps",
    "n_parallel": "parallel",
}

# User: what `lazybo tune` tunes: the words of a command, or the name of a Python function.
COMMAND_KEY = "lazybo:command"
OBJECTIVE_KEY = "lazybo:objective"
# User: where the value of a program comes from if not from the default: the key, the regular expression, the file.
READING_KEY = "lazybo:value"
# The conditions on parameters that must hold (`--require`), as strings.
REQUIRE_KEY = "lazybo:require"


@dataclass(frozen=True)
class Plan:
    """What `lazybo tune` was asked to do: the checked settings, and the run that is made from them."""

    settings: Settings
    program: Program | None
    run: RunPlan
    storage: str
    study: str


def make_plan(settings: Settings) -> Plan:
    """Make a plan from checked settings; raises one ValueError if they contradict each other."""
    space, command = space_in(settings), _command(settings)
    storage, study = settings.get("storage", DEFAULT_STORAGE), settings.get("study") or Definition.DEFAULT_NAME
    executor = _executor(settings, is_program=command is not None)
    elsewhere = executor is not None and RunPlan.is_elsewhere(executor)
    parallel = settings.get("parallel") or (None if elsewhere or "devices" in settings else 1)
    program = None
    if command is not None:
        output = Path(settings.get("output") or default_output(storage, study)).expanduser().absolute()
        program = _program(command, settings, output, study)
        program.check(
            examples(space),
            all_used=not settings.get("from_environment", False),
            devices="devices" in settings,
            several=(parallel or len(settings.get("devices", ())) or math.inf) > 1,
            here=not elsewhere,
        )
    run = run_of(
        program or _function(settings, elsewhere=elsewhere),
        space,
        settings,
        n_trials=settings.get("trials"),
        n_parallel=parallel,
        executor=executor,
        devices=settings.get("devices"),
        storage=storage,
        study_name=study,
        limits=_limits(settings, is_program=program is not None),
        max_steps=settings.get("steps"),
        checkpoints=_checkpoints(settings, program),
        pruner=_pruner(settings),
    )
    return Plan(settings, program, run, storage, study)


def run_of(objective: Callable[..., Any], space: Space, settings: Settings, **more: Any) -> RunPlan:
    """The run that settings describe. What is wrong with them is said in their names."""
    try:
        return RunPlan.of(
            objective,
            space,
            direction=_direction(settings, is_program=isinstance(objective, Program)),
            constraints=parse_constraints(settings.get("constraints", [])) or None,
            sampler=LazySampler(**{name: settings[name] for name in OPTIONS if name in settings}),
            seed=settings.get("seed"),
            initial=settings.get("initial", []),
            **more,
        )
    except ValueError as error:
        names = "|".join(map(re.escape, RENAMED))
        raise ValueError(re.sub(names, lambda found: RENAMED[found[0]], str(error))) from error


def _command(settings: Settings) -> tuple[str, ...] | None:
    """The words of the command; None for a Python objective."""
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


def _program(command: tuple[str, ...], settings: Settings, output: Path, study: str) -> Program:
    key, names = settings.get("value_key"), tuple(settings.get("directions") or ())
    if len(names) == 1:  # the one objective that has a name is read under that name
        key, names = names[0] if key is None else key, ()
    return Program(
        command=command,
        folder=output,
        cwd=Path.cwd(),
        study=study,
        value_file=settings.get("value_file"),
        reading=Reading(key, settings.get("value_regex"), names),
        timeout=settings.get("trial_timeout"),
        grace=settings.get("grace"),
        steps=settings.get("steps"),
    )


def _function(settings: Settings, *, elsewhere: bool) -> Callable[..., Any]:
    """The Python objective."""
    for key, why in FOR_PROGRAMS.items():
        if settings.get(key) is not None:
            raise ValueError(f"{key} is for programs; a Python function {why}")
    return load(settings["objective"], by_value=elsewhere)


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


def _executor(settings: Settings, *, is_program: bool) -> str | None:
    if "executor" in settings:
        return settings["executor"]
    # A thread that waits for a program costs nothing. A timeout can stop a Python function only with its process.
    return "threads" if is_program else "processes" if "trial_timeout" in settings else None


def _pruner(settings: Settings) -> BasePruner:
    name = settings.get("pruner", "lazy")
    return LazyPruner(settings.get("steps")) if name == "lazy" else PRUNERS[name]()


def _checkpoints(settings: Settings, program: Program | None) -> Path | None:
    """The folder of all checkpoints; for a program it is inside its output folder."""
    given = settings.get("checkpoints")
    if given is None:
        return program.folder / "checkpoints" if program is not None and program.takes_checkpoint else None
    if program is not None and not program.takes_checkpoint:
        raise ValueError("checkpoints is the folder of what the command gets as {checkpoint}; add this placeholder")
    return Path(given).expanduser().absolute()


def _limits(settings: Settings, *, is_program: bool) -> Limits:
    """When the run ends. A program has its own timeout."""
    given = {name: settings[key] for key, name in LIMITS.items() if key in settings}
    return Limits(**(given | {"trial_timeout": None} if is_program else given))


def default_output(storage: str, study: str) -> str:
    """The folder of a study's output, next to its storage."""
    name = re.sub(r"[^\w.-]", "_", study)
    if "://" in storage:
        return f"{name}-output"
    return str(Path(storage).with_name(f"{Path(storage).stem}-{name}-output"))


# ---------------------------------------------------------------------- goals


def _direction(settings: Settings, *, is_program: bool) -> Direction | dict[str, Direction]:
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
        match = CONSTRAINT.fullmatch(str(text))
        if match is None:
            raise ValueError(f"a constraint must be METRIC<=NUMBER or METRIC>=NUMBER, not {text!r}")
        at_least, name, number = match["sign"] == ">=", match["metric"], float(match["limit"])
        low, high = found.get(name, (None, None))
        if (low if at_least else high) is not None:
            raise ValueError(f"there are two constraints {name}{match['sign']}...; give one of them")
        found[name] = (number, high) if at_least else (low, number)
    return found


def definition_of(goals: Goals) -> Definition:
    """What a study with these goals stores."""
    return Definition(goals.directions, goals.names, tuple(bound.name for bound in goals.bounds))


def in_stored_order(settings: Settings, study: Study) -> Settings | None:
    """The settings with the objectives in the order of an existing study; None if they are, or are other ones."""
    given, names = settings.get("directions") or {}, study.metric_names or []
    if list(given) == names or given.keys() != set(names):
        return None
    return {**settings, "directions": {name: given[name] for name in names}}


# --------------------------------------------------------------- requirements


def keep_requirement(study: Study, feasible: Callable[[dict[str, Any]], bool] | None) -> None:
    """Store the expressions that must hold with the study; `lazybo ask` reads them."""
    texts = list(feasible.texts) if isinstance(feasible, Requirement) else None
    store = Store(study)
    if store.attributes().get(REQUIRE_KEY) != texts:
        store.set_attributes({REQUIRE_KEY: texts})


def with_stored_requirement(space: Space, study: Study) -> Space:
    """The space with the expressions that must hold, as they are stored with a study."""
    with Store(study).reading(REQUIRE_KEY, "set it to a list of strings such as ['a + b <= 1']") as stored:
        texts = check_texts("it", stored or [])
        required = requirement_of(texts, space.distributions)
    return space.changed(feasible=required)
