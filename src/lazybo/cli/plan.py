"""Settings -> one plan, validated before anything is changed."""

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.study import Study

from lazybo.cli.parameters import Requirement, examples, requirement_of, space_in
from lazybo.cli.settings import DEFAULT_STORAGE, OBJECTIVE, check_texts
from lazybo.core import Direction
from lazybo.programs import Program, Reading
from lazybo.run import Goals, Limits, RunPlan
from lazybo.search import Optimizer
from lazybo.space import Space
from lazybo.study import Definition, LazyPruner, LazySampler, Store

Settings = Mapping[str, Any]
PRUNERS: dict[str, type[BasePruner]] = {
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "none": optuna.pruners.NopPruner,
}
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
    program: Program | None
    space: Space
    goals: Goals
    directions: Direction | dict[str, Direction]  # a direction of one objective, or directions by name
    constraints: dict[str, tuple[float | None, float | None]]
    storage: str
    study: str
    executor: str | None
    checkpoints: Path | None
    pruner: BasePruner
    initial: list[dict[str, Any]]
    sampler: LazySampler
    limits: Limits

    @property
    def on_a_cluster(self) -> bool:
        """Whether evaluations may run on other machines."""
        return self.executor is not None and RunPlan.is_elsewhere(self.executor)


def make_plan(settings: Settings) -> Plan:
    """Make a plan from checked settings; raises one ValueError if they contradict each other."""
    space = space_in(settings)
    command = _command(settings)
    is_program = command is not None
    storage, study = settings.get("storage", DEFAULT_STORAGE), settings.get("study") or Definition.DEFAULT_NAME
    goals = goals_of(settings, is_program=is_program)
    output = Path(settings.get("output") or default_output(storage, study)).expanduser().absolute()
    program = None if command is None else _program(command, settings, goals, output, study)
    plan = Plan(
        settings=settings,
        program=program,
        space=space,
        goals=goals,
        directions=objectives_of(settings, is_program=is_program),
        constraints=parse_constraints(settings.get("constraints", [])),
        storage=storage,
        study=study,
        executor=_executor(settings, is_program=is_program),
        checkpoints=_checkpoints(settings, program, output),
        pruner=_pruner(settings, goals),
        initial=RunPlan.check_initial(settings.get("initial", []), space, Optimizer(space, seed=0)),
        sampler=LazySampler(**options_in(settings, goals, storage, study)),
        limits=_limits(settings, goals, is_program=is_program),
    )
    if program is None:
        for key in ("value_file", "value_key", "value_regex"):
            if settings.get(key) is not None:
                raise ValueError(f"{key} is for programs; a Python function returns its value")
        if settings.get("grace") is not None:
            raise ValueError("grace is for programs; a Python function is stopped between two steps")
        return plan
    program.check(
        examples(space),
        all_used=not settings.get("from_environment", False),
        devices="devices" in settings,
        several=_runs_several(plan),
        here=not plan.on_a_cluster,
    )
    return plan


def _program(command: tuple[str, ...], settings: Settings, goals: Goals, output: Path, study: str) -> Program:
    return Program(
        command=command,
        folder=output,
        cwd=Path.cwd(),
        study=study,
        value_file=settings.get("value_file"),
        reading=_reading(settings, goals),
        timeout=settings.get("trial_timeout"),
        grace=settings.get("grace"),
        steps=settings.get("steps"),
    )


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
    goals.check_pruner(pruner)
    return pruner


def _checkpoints(settings: Settings, program: Program | None, output: Path) -> Path | None:
    """The folder of all checkpoints; for a program it is inside its output folder."""
    given = settings.get("checkpoints")
    if given is not None and program is not None and not program.takes_checkpoint:
        raise ValueError("checkpoints is the folder of what the command gets as {checkpoint}; add this placeholder")
    if given is None:
        return output / "checkpoints" if program is not None and program.takes_checkpoint else None
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


def options_in(settings: Settings, goals: Goals, storage: str, study: str) -> dict[str, Any]:
    """The options of the model in the settings, without the seed; earlier studies are read."""
    given = {key: settings[key] for key in ("cost", "deterministic") if key in settings}
    earlier = definition_of(goals).earlier(settings.get("earlier", []), storage, study)
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
    return Goals.of(directions, parse_constraints(settings.get("constraints", [])))


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


def _runs_several(plan: Plan) -> bool:
    """Whether trials may run at the same time."""
    parallel = plan.settings.get("parallel") or len(plan.settings.get("devices", ()))
    return parallel != 1 and bool(parallel or plan.on_a_cluster)


def _executor(settings: Settings, *, is_program: bool) -> str | None:
    executor: str | None = settings.get("executor")
    if executor is None:
        # A thread that waits for a program costs nothing. A timeout can stop a Python function only with its process.
        return "threads" if is_program else "processes" if "trial_timeout" in settings else None
    RunPlan.is_elsewhere(executor)  # raises a ValueError if there is no such executor
    return executor


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
