"""The settings of `lazybo tune` and `lazybo ask`: one table of flags, TOML keys, types, checks and help.

Commands get their flags from the table (`with_settings`), and it says what a TOML file may contain. The
help and the checks of model options and limits come from `Options` and `Limits`.
"""

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import optuna
import typer
from optuna.pruners import BasePruner
from optuna.storages import BaseStorage
from optuna.study import Study

import lazybo
from lazybo.cli.console import exit_on_bad_input
from lazybo.cli.parameters import tables_of
from lazybo.core import checks, codec, texts
from lazybo.run import Limits, RunPlan
from lazybo.search import Options
from lazybo.study import Store

Command: TypeAlias = Callable[..., None]
Check: TypeAlias = Callable[[str, Any], Any]

# Larger TOML files are rejected.
MOST_BYTES = 2**22
DEFAULT_STORAGE = "lazybo.db"
WHAT, WHEN, WHERE, KEPT = "What is tuned", "When it ends", "Where it runs", "What is kept"
# Those of Optuna besides "lazy".
PRUNERS: dict[str, type[BasePruner]] = {
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "none": optuna.pruners.NopPruner,
}
# Counts must fit into a database. Locks and queues reject longer timeouts.
LARGEST_COUNT, LONGEST_WAIT = 2**63 - 1, 1e9
# A Python objective, not a program: module:function.
OBJECTIVE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# Of these settings a call has one: what is given replaces the others of the file.
EXCLUSIVE = (("command", "objective"), ("direction", "directions"), ("value_key", "value_regex"))

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
StorageArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORAGE", help=f"An SQLite file, a URL, or the TOML file of a study (default: {DEFAULT_STORAGE})."
    ),
]
StudyArgument = Annotated[
    str | None, typer.Argument(metavar="STUDY", help="The study's name; not needed if there is only one.")
]
StorageFlag = Annotated[str | None, typer.Option("--storage", help="The storage, as lazybo tune takes it.")]
StudyFlag = Annotated[str | None, typer.Option("--study", help="The study's name, as lazybo tune takes it.")]
# The storage and the study of a call, as `with_place` gives them to a command.
Where = tuple[str, str | None]


# --------------------------------------------------------------------------------------- checks


def _wait(name: str, value: Any) -> float:
    limit = checks.seconds(name, value)
    if limit > LONGEST_WAIT:
        given = checks.shortened(value, 30)
        raise ValueError(f"{name} must be at most {LONGEST_WAIT:g} seconds, not {given}; leave it out for none")
    return limit


def _choice(name: str, value: Any, known: Sequence[str]) -> Any:
    """One of a few strings. The error names the nearest one."""
    try:
        return checks.one_of(name, value, known)
    except ValueError as error:
        raise ValueError(f"{error}{texts.nearest(str(value), known)}") from None


def check_texts(name: str, value: Any, like: str = "'a + b <= 1'") -> list[str]:
    """A list of strings, or one string."""
    texts = [value] if isinstance(value, str) else list(value)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a list of strings such as {like}, not {checks.shortened(text)}")
    return texts


# ---------------------------------------------------------------------------------------- table


class Kind(NamedTuple):
    """The type of a setting: as a TOML file has it, in words, and as an option of a command."""

    in_file: Any
    words: str
    option: Any


TEXT = Kind(str, "a string", str | None)
WHOLE = Kind(int, "a whole number", int | None)
SECONDS = Kind(int | float, "seconds", float | None)
NUMBER = Kind(int | float, "a number", float | None)
SWITCH = Kind(bool, "true or false", bool | None)


COUNT, AT_ONCE = partial(checks.whole, least=1, most=LARGEST_COUNT), partial(checks.whole, least=1, most=10_000)


def _list(words: str) -> Kind:
    return Kind(list, words, list[str] | None)


@dataclass(frozen=True)
class Setting:
    """A row of the table. Without ``help`` it is only a key of a file, without ``in_file`` only a flag."""

    key: str
    kind: Kind
    help: str = ""
    panel: str = WHAT
    metavar: str | None = None
    check: Check = lambda _, value: value
    flag: str = ""
    in_file: bool = True
    in_ask: bool = False

    def parameter(self) -> inspect.Parameter:
        """The option of a command."""
        flag = self.flag or f"--{self.key.replace('_', '-')}"
        option = typer.Option(flag, metavar=self.metavar, help=self.help, rich_help_panel=self.panel)
        annotation: Any = Annotated[self.kind.option, option]
        return inspect.Parameter(self.key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag(key: str, metavar: str, text: str) -> Setting:
    return Setting(key, _list(""), text, metavar=metavar, in_file=False, in_ask=True)


def _defined(
    owner: type[Options] | type[Limits],
    name: str,
    kind: Kind,
    panel: str = WHAT,
    *,
    key: str = "",
    check: Check | None = None,
) -> Setting:
    """An option of the model, or a limit of the run, with its help and its check unless the command is stricter."""
    field = owner.__dataclass_fields__[name]
    about, default = field.metadata, f" (default: {field.default})" if field.default else ""
    return Setting(
        key or name,
        kind,
        f"{about['help'].rstrip('.')}{default}.",
        panel,
        about["metavar"] or None,
        check or (lambda _, value: about["check"](value)),
        in_ask=owner is Options,
    )


_option = partial(_defined, Options)
_limit = partial(_defined, Limits, panel=WHEN)


SETTINGS = (
    Setting("command", Kind(list | str, "a list of strings, or one string", None)),
    Setting("objective", Kind(str, 'a string such as "module:function"', None)),
    Setting("parameters", Kind(dict, "a table", None)),
    Setting("direction", TEXT, check=partial(_choice, known=checks.DIRECTIONS)),
    Setting("directions", Kind(dict, 'a table such as {accuracy = "maximize", latency = "minimize"}', None)),
    Setting("initial", Kind(list, "a list of tables", None)),
    _flag("float", "NAME=LOW:HIGH[:log|:STEP]", "A number."),
    _flag("int", "NAME=LOW:HIGH[:log|:STEP]", "A whole number."),
    _flag("choice", "NAME=A,B,C", "One of these strings."),
    Setting(
        "require",
        Kind(list | str, 'a string such as "a + b <= 1", or a list of strings', list[str] | None),
        "Only suggest configurations for which this holds, for example 'a + b <= 1'. All of them, if several.",
        metavar="EXPRESSION",
        in_ask=True,
    ),
    Setting(
        "beliefs",
        _list('a list of strings such as "lr=1e-3x3"'),
        "Where the best value of a parameter is expected: lr=1e-3x3 within a factor, dropout=0.2+-0.1 within a "
        "distance, opt=adam:3 by weights. The first trials follow it; it fades as values arrive.",
        metavar="NAME=BELIEF",
        check=partial(check_texts, like="'lr=1e-3x3'"),
        flag="--belief",
        in_ask=True,
    ),
    _flag(
        "maximize",
        "[METRIC]",
        "Larger values are better. With a name: an objective, in the JSON that a program prints.",
    ),
    _flag("minimize", "[METRIC]", "Smaller values are better (default). Give several objectives by their names."),
    Setting(
        "constraints",
        _list('a list of strings such as "memory<=4000"'),
        "Only trials with such a metric are feasible and count; also METRIC>=NUMBER.",
        metavar="METRIC<=NUMBER",
        flag="--constraint",
        in_ask=True,
    ),
    _option("cost", TEXT),
    _option("deterministic", SWITCH),
    _option(
        "earlier",
        _list('a list of strings such as "study@other.db"'),
        check=partial(check_texts, like="NAME or NAME@STORAGE"),
    ),
    Setting("value_file", TEXT, "The file that holds the value; may have placeholders.", metavar="PATH"),
    Setting(
        "value_key",
        TEXT,
        "The program prints JSON objects with the value under this key; metrics.acc is a nested key.",
        metavar="KEY",
    ),
    Setting(
        "value_regex",
        TEXT,
        "The value is the group of this regular expression, for example 'Accuracy: (\\S+)'; the last match counts. "
        "With groups called step and value every match is an intermediate value.",
        metavar="REGEX",
    ),
    Setting("from_environment", SWITCH, "The program reads LAZYBO_PARAMS: parameters need no placeholders."),
    Setting("trials", WHOLE, "Total number of trials, earlier runs included.", WHEN, check=COUNT),
    _limit("timeout", SECONDS, check=_wait),
    _limit("target_value", NUMBER, key="target", check=checks.finite_number),
    _limit("patience", WHOLE),
    _limit("min_gain", NUMBER),
    _limit("confirm", WHOLE),
    _limit("trial_timeout", SECONDS, check=_wait),
    _limit("max_failures", WHOLE),
    _limit("retries", WHOLE),
    Setting(
        "pruner",
        TEXT,
        "lazy (default), median, hyperband, halving or none.",
        WHEN,
        check=partial(_choice, known=("lazy", *PRUNERS)),
    ),
    Setting(
        "steps",
        WHOLE,
        "The last step that a training reports. One with a checkpoint is paused and resumed by a model of all curves: "
        "{checkpoint} in the command is a folder of the trial that outlives the program.",
        WHEN,
        "N",
        COUNT,
    ),
    Setting(
        "grace",
        SECONDS,
        "How long a program that is stopped may take after SIGTERM (default: 5; with {checkpoint} 30).",
        WHEN,
        "SECONDS",
        _wait,
    ),
    Setting(
        "parallel",
        WHOLE,
        "Trials at the same time (default: 1).",
        WHERE,
        check=AT_ONCE,
    ),
    Setting("executor", TEXT, "threads (default for commands), processes, dask://host:port, ray, mpi.", WHERE),
    Setting(
        "devices",
        Kind(list | str, "a list such as [0, 1] or [[0, 1], [2, 3]]", str | None),
        "GPUs, one for each trial that runs; 0+1,2+3 are two for each. The program sees no others; {device} and {slot} "
        "in the command are its own (default for --parallel: as many).",
        WHERE,
        "0,1",
        lambda _, value: RunPlan.parsed_devices(value),
    ),
    Setting("storage", TEXT, f"An SQLite file or a URL (default: {DEFAULT_STORAGE}).", KEPT),
    Setting("study", TEXT, "The study's name (default: the name of the TOML file, or lazybo).", KEPT),
    Setting("output", TEXT, "The folder for the output of all trials.", KEPT, "DIR"),
    Setting("checkpoints", TEXT, "The folder for all checkpoints (default: in --output).", KEPT, "DIR"),
    _option("seed", WHOLE, KEPT, check=partial(checks.whole, least=0, most=LARGEST_COUNT)),
)
KEYS = {setting.key: setting for setting in SETTINGS if setting.in_file}


# -------------------------------------------------------------------------------------- commands


def with_settings(*, before: str, in_ask: bool = False) -> Callable[[Command], Command]:
    """Give a command the flags of the table, or those that `lazybo ask` has, as the parameters of its ``**given``.

    In the help they come before the command's own parameter ``before``.
    """
    table = [setting.parameter() for setting in SETTINGS if setting.help and (setting.in_ask or not in_ask)]

    def decorate(command: Command) -> Command:
        own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        place = [p.name for p in own].index(before)
        return _with_parameters(command, [*own[:place], *table, *own[place:]])

    return decorate


def with_place(command: Command) -> Command:
    """Give a command STORAGE, STUDY, --storage and --study in place of its parameter ``where``."""
    given = {"storage": StorageArgument, "study": StudyArgument, "place": StorageFlag, "name": StudyFlag}
    own = list(inspect.signature(command).parameters.values())
    at = [p.name for p in own].index("where")
    four = [own[at].replace(name=name, annotation=kind, default=None) for name, kind in given.items()]

    @wraps(command)
    def called(storage: str | None, study: str | None, place: str | None, name: str | None, **rest: Any) -> None:
        with exit_on_bad_input():
            where = named_place((storage, study), place, name)
        command(where=where, **rest)

    return _with_parameters(called, [*own[:at], *four, *own[at + 1 :]])


def _with_parameters(command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    by_name = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return command


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *lines])


def from_flags(given: Mapping[str, Any], objectives: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of a command's flags; those that were not given are left out. ``objectives`` have this order."""
    flags = {key: value for key, value in given.items() if value is not None and value != []}
    tables = tables_of(**{kind: flags.pop(kind, ()) for kind in ("float", "int", "choice")})
    direction = _direction_of(flags.pop("maximize", []), flags.pop("minimize", []), objectives)
    return {"parameters": tables, **direction, **flags}


def _direction_of(maximize: Sequence[str], minimize: Sequence[str], order: Sequence[str]) -> dict[str, Any]:
    """The setting ``direction`` or ``directions`` of these flags, if there are any. A flag without a name has ""."""
    given = [*((name, "maximize") for name in maximize), *((name, "minimize") for name in minimize)]
    named = dict(given)
    for name, flag in given:
        if flag != named[name]:
            flags = " and ".join(f"--{each} {name}".rstrip() for each in (flag, named[name]))
            raise ValueError(
                f"{flags} exclude each other{'' if name else '; name the objectives if there are several'}"
            )
        if name and given.count((name, flag)) > 1:
            raise ValueError(f"the objective {name} is given twice; give each objective once")
    bare = named.pop("", None)
    if bare is None:
        return {"directions": {name: named[name] for name in [*order, *named] if name in named}} if named else {}
    if named:
        raise ValueError(f"--{bare} needs the name of its objective, as --{next(iter(named.values()))} has one")
    return {"direction": bare}


# ----------------------------------------------------------------------------------------- files


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. The study is named after the file unless the file names it."""
    try:
        content = codec.read_at_most(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        settings = tomllib.loads(content.decode("utf-8-sig"))  # some editors write a byte order mark first
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    for key, value in settings.items():
        if key not in KEYS:
            newer = f"; lazybo {lazybo.__version__} does not know it, a newer one may"
            raise ValueError(f"{path}: unknown key {key!r}{texts.nearest(key, KEYS) or newer}")
        kind = KEYS[key].kind
        if not isinstance(value, kind.in_file) or (isinstance(value, bool) and kind is not SWITCH):
            raise ValueError(f"{path}: {key} must be {kind.words}, not {value!r}")
    return {"study": path.stem, **settings}


def settings_of(words: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a call, checked: the TOML file, if it is the first word, then the other words, then the flags."""
    rest = list(words)
    in_file: dict[str, Any] = read_settings(Path(rest.pop(0))) if rest and rest[0].endswith(".toml") else {}
    given: dict[str, Any] = {**flags}
    if rest:
        is_function = len(rest) == 1 and OBJECTIVE.fullmatch(rest[0])
        given |= {"objective": rest[0]} if is_function else {"command": rest}
    replaced = {key for group in EXCLUSIVE if not given.keys().isdisjoint(group) for key in group}
    settings = {key: value for key, value in in_file.items() if key not in replaced} | given
    settings["parameters"] = in_file.get("parameters", {}) | given.get("parameters", {})
    both = [check_texts("require", part.get("require", [])) for part in (in_file, given)]
    settings["require"] = both[0] + both[1]
    return {key: KEYS[key].check(key, value) for key, value in settings.items()}


# ---------------------------------------------------------------------------- storages and studies

# Databases that Optuna supports, and what a valid storage looks like.
SCHEMES = ("sqlite", "postgresql", "mysql", "mariadb", "oracle", "mssql")
EXAMPLES = "a file such as study.db, or postgresql+psycopg://user@host/database"


class Place(NamedTuple):
    """An existing storage with its name, and the name of the study that the user asked for, if any."""

    storage: BaseStorage
    name: str
    study_name: str | None

    def study(self) -> Study:
        """The study that the user asked for, or the only one."""
        known = sorted(summary.study_name for summary in self.storage.get_all_studies())
        if not known:
            raise ValueError(f"there is no study in {self.name}")
        if self.study_name is None and len(known) > 1:
            raise ValueError(f"there are {len(known)} studies in {self.name}; give the name of one: {', '.join(known)}")
        name = self.study_name or known[0]
        if name not in known:
            raise ValueError(
                f"there is no study {name!r} in {self.name}{texts.nearest(name, known)}; it has {', '.join(known)}"
            )
        return optuna.load_study(study_name=name, storage=self.storage)

    def studies(self) -> list[Study]:
        """All studies of the storage."""
        names = [summary.study_name for summary in self.storage.get_all_studies()]
        return [optuna.load_study(study_name=name, storage=self.storage) for name in names]


def named_place(words: Sequence[str | None], storage: str | None, study: str | None) -> tuple[str, str | None]:
    """The storage and the study of a call: by position, STORAGE STUDY, or as --storage and --study."""
    left = [word for word in words if word is not None]
    if storage is None:
        storage = left.pop(0) if left else DEFAULT_STORAGE
    if study is None:
        study = left.pop(0) if left else None
    if left:
        raise ValueError(
            f"{left[0]!r} is one too many: the storage is {texts.without_password(storage)!r} and the study "
            f"{study!r}; give "
            "each once, STORAGE STUDY or --storage STORAGE --study STUDY"
        )
    return storage, study


def find(storage: str, study: str | None) -> Place:
    """Open an existing storage: a file, a URL, or the storage that a TOML file names. No study is created."""
    if storage.endswith(".toml"):
        settings = read_settings(Path(storage))
        storage, study = settings.get("storage", DEFAULT_STORAGE), study or settings["study"]
    if "://" not in storage and not Path(storage).expanduser().exists():
        raise ValueError(f"there is no storage {storage!r}; give the file that lazybo tune wrote to with --storage")
    return Place(open_checked(storage), texts.without_password(storage), study)


def open_checked(storage: str) -> BaseStorage:
    """Open a storage. An invalid URL raises a ValueError that says what is wrong with it."""
    if "://" not in storage:
        return Store.open(storage)
    scheme, _, place = storage.partition("://")
    database = scheme.partition("+")[0].replace("postgresql", "postgres").replace("postgres", "postgresql")
    if database not in SCHEMES:
        raise ValueError(
            f"the storage {texts.without_password(storage)!r} begins with {scheme!r}"
            f"{texts.nearest(database, SCHEMES)}; give {EXAMPLES} (databases: {', '.join(SCHEMES)})"
        )
    if database == "sqlite" and place and not place.startswith("/") and "@" not in place:
        raise ValueError(f"the storage {storage!r} needs a third slash: give 'sqlite:///{place}', or {place!r} alone")
    if place.partition("?")[0].count("@") > 1:
        # SQLAlchemy would take the text after the first @ as the host, and print it in messages.
        raise ValueError(f"the storage {texts.without_password(storage)!r} has a password with an @; write %40 for it")
    try:
        return Store.open(storage)
    except ValueError as error:
        raise ValueError(_driver_error(texts.without_password(str(error)), database, scheme)) from error


def _driver_error(message: str, database: str, scheme: str) -> str:
    """SQLAlchemy's error about a missing driver, with what to do."""
    missing = re.search(r"No module named '(\w+)'", message)
    if missing and database != "postgresql":
        return f"the storage needs the package {missing[1]}, the driver of {scheme}: install it, or use another driver"
    if "Can't load plugin" in message:
        return f"SQLAlchemy does not know the driver in {scheme!r}; give {EXAMPLES}"
    return message
