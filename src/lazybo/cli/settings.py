"""A TOML file and flags -> the settings of a call, and single settings, validated."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lazybo.core.checks import one_of, seconds, shortened, whole
from lazybo.programs.placeholders import nearest

DEFAULT_STORAGE = "lazybo.db"
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
    "directions": (dict, 'a table such as {accuracy = "maximize", latency = "minimize"}'),
    "constraints": (list, 'a list of texts such as "memory<=4000"'),
    "cost": _TEXT,
    "deterministic": (bool, "true or false"),
    "earlier": (list, 'a list of texts such as "study@other.db"'),
    "trials": _WHOLE,
    "parallel": _WHOLE,
    "storage": _TEXT,
    "study": _TEXT,
    "timeout": _SECONDS,
    "trial_timeout": _SECONDS,
    "target": _NUMBER,
    "patience": _WHOLE,
    "min_gain": _NUMBER,
    "confirm": _WHOLE,
    "retries": _WHOLE,
    "max_failures": _WHOLE,
    "seed": _WHOLE,
    "executor": _TEXT,
    "initial": (list, "a list of tables"),
    "require": (list | str, 'a text such as "a + b <= 1", or a list of texts'),
    "steps": _WHOLE,
    "grace": _SECONDS,
    "checkpoints": _TEXT,
    "output": _TEXT,
    "value_file": _TEXT,
    "value_key": _TEXT,
    "value_regex": _TEXT,
    "pruner": _TEXT,
    "from_environment": (bool, "true or false"),
}
LEAST = {
    "steps": 1,
    "trials": 1,
    "parallel": 1,
    "patience": 1,
    "max_failures": 1,
    "confirm": 0,
    "retries": 0,
    "seed": 0,
}
MOST = {"parallel": 10_000}
# Counts must fit into a database. Locks and queues reject longer timeouts.
LARGEST_COUNT, LONGEST_WAIT = 2**63 - 1, 1e9
# A Python objective, not a program: module:function.
OBJECTIVE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. The study is named after the file unless the file names it."""
    try:
        with path.open("rb") as file:
            settings = tomllib.load(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
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
    # One direction and several exclude each other, too.
    if flags.get("direction") is not None or flags.get("directions") is not None:
        settings = {key: value for key, value in settings.items() if key not in ("direction", "directions")}
    # value_key and value_regex exclude each other: a flag replaces whichever of them the file has.
    ways = {key for key in ("value_key", "value_regex") if flags.get(key) is not None}
    settings = {key: value for key, value in settings.items() if not ways or key not in ("value_key", "value_regex")}
    tables = {**settings.get("parameters", {}), **flags.get("parameters", {})}
    required = [*texts_of(settings.get("require")), *texts_of(flags.get("require"))]
    given = {key: value for key, value in flags.items() if value is not None}
    return {**settings, **given, "parameters": tables, "require": required}


def texts_of(require: Any) -> list[Any]:
    """The setting "require", which may be one text, as a list."""
    return [require] if isinstance(require, str) else list(require or ())


def whole_of(key: str, settings: Mapping[str, Any]) -> int | None:
    """A setting that is a whole number; None if it is not given."""
    if settings.get(key) is None:
        return None
    value, most = whole(key, settings[key], LEAST[key]), MOST.get(key, LARGEST_COUNT)
    if value > most:
        raise ValueError(f"{key} must be at most {most}, not {shortened(value, 30)}")
    return value


def seconds_of(key: str, settings: Mapping[str, Any]) -> float | None:
    """A setting that is a time; None if it is not given."""
    if settings.get(key) is None:
        return None
    value = seconds(key, settings[key])
    if value > LONGEST_WAIT:
        given = shortened(settings[key], 30)
        raise ValueError(f"{key} must be at most {LONGEST_WAIT:g} seconds, not {given}; leave it out for none")
    return value


def choice_of(key: str, value: str, known: tuple[str, ...]) -> Any:
    """A setting that is one of a few texts. The error names the nearest one."""
    try:
        return one_of(key, value, known)
    except ValueError as error:
        raise ValueError(f"{error}{nearest(value, known)}") from None
