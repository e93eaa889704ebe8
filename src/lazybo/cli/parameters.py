"""Parameters from flags or a TOML file -> Optuna distributions and conditions."""

import csv
import math
from collections.abc import Iterable, Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo.core.checks import is_number
from lazybo.core.text import shortened
from lazybo.programs.placeholders import nearest
from lazybo.space.space import Condition

NUMBER_KEYS = ("type", "low", "high", "log", "step", "if")
# The largest integer that a database can store.
LARGEST = 2**63 - 1
KEYS = {"float": NUMBER_KEYS, "int": NUMBER_KEYS, "choice": ("type", "choices", "if")}


def from_flags(floats: Iterable[str], ints: Iterable[str], choices: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The tables that a TOML file would contain for these flags."""
    tables: dict[str, dict[str, Any]] = {}
    for kind, texts in (("float", floats), ("int", ints), ("choice", choices)):
        for text in texts:
            name, is_given, rest = text.partition("=")
            name = name.strip()
            if not name or not is_given or not rest:
                form = "A,B,C" if kind == "choice" else "LOW:HIGH"
                raise ValueError(f"--{kind} {text!r}: write --{kind} NAME={form}")
            if name in tables:
                raise ValueError(f"--{kind} {text!r}: the parameter {name!r} was given twice")
            tables[name] = _choices(rest) if kind == "choice" else _range(kind, text, rest)
    return tables


def _choices(text: str) -> dict[str, Any]:
    """Choices are texts, taken literally. A choice with a comma is quoted as in a CSV file."""
    return {"type": "choice", "choices": next(csv.reader([text]))}


def _range(kind: str, text: str, rest: str) -> dict[str, Any]:
    number = int if kind == "int" else float
    try:
        low, high, *more = rest.split(":")
        table: dict[str, Any] = {"type": kind, "low": number(low), "high": number(high)}
        if more == ["log"]:
            table["log"] = True
        elif more:
            (step,) = more
            table["step"] = number(step)
    except ValueError:
        whole = " of whole numbers" if kind == "int" else ""
        raise ValueError(f"--{kind} {text!r}: write NAME=LOW:HIGH{whole}, then :log or :STEP if wanted") from None
    return table


def distributions_of(tables: Mapping[str, Any]) -> tuple[dict[str, BaseDistribution], dict[str, Condition]]:
    """The space that the tables describe."""
    if not tables:
        raise ValueError("there are no parameters: give --float, --int or --choice, or [parameters] in a TOML file")
    space: dict[str, BaseDistribution] = {}
    conditions: dict[str, Condition] = {}
    for name, table in tables.items():
        try:
            space[name] = _distribution(table)
            if "if" in table:
                conditions[name] = _condition(table["if"])
        except ValueError as error:
            raise ValueError(f"parameter {name!r}: {error}") from None
    return space, conditions


def examples(space: Mapping[str, BaseDistribution]) -> dict[str, list[Any]]:
    """Example values of every parameter: all choices, or both ends of a range."""
    return {
        name: list(d.choices) if isinstance(d, CategoricalDistribution) else [d.low, d.high]  # type: ignore[attr-defined]
        for name, d in space.items()
    }


def _distribution(table: Any) -> BaseDistribution:
    if not isinstance(table, dict) or "type" not in table:
        raise ValueError('write a table such as {type = "float", low = 0, high = 1}')
    kind = table["type"]
    if kind not in KEYS:
        raise ValueError(f"the type must be one of {sorted(KEYS)}, not {kind!r}")
    for key in table:
        if key not in KEYS[kind]:
            raise ValueError(f"unknown key {key!r}{nearest(key, KEYS[kind])}")
    return _categorical(table) if kind == "choice" else _number(kind, table)


def _number(kind: str, table: Mapping[str, Any]) -> BaseDistribution:
    for key in ("low", "high"):
        if key not in table:
            raise ValueError(f"{key!r} is missing")
    low, high, log, step = table["low"], table["high"], table.get("log", False), table.get("step")
    for key, value in (("low", low), ("high", high), ("step", step)):
        if value is not None and not _is_allowed(value, whole=kind == "int"):
            wanted = f"a whole number within ±{LARGEST}" if kind == "int" else "a finite number"
            raise ValueError(f"{key} must be {wanted}, not {shortened(repr(value), 30)}")
    if not isinstance(log, bool):
        raise ValueError(f"log must be true or false, not {log!r}")
    _check_range(low, high, log, step)
    if kind == "int":
        return IntDistribution(low, high, log=log, step=step or 1)
    return FloatDistribution(float(low), float(high), log=log, step=step)


def _check_range(low: float, high: float, log: bool, step: float | None) -> None:
    if low > high:
        raise ValueError(f"low ({low:g}) is greater than high ({high:g}); swap them")
    if log and low <= 0:
        raise ValueError(f"a logarithmic range begins above 0, not at {low:g}")
    if step is not None and step <= 0:
        raise ValueError(f"step must be positive, not {step:g}")
    if log and step is not None:
        raise ValueError("a range is logarithmic or has a step, not both")


def _is_allowed(value: Any, *, whole: bool) -> bool:
    if not is_number(value) or (whole and not isinstance(value, int)):
        return False
    # Larger integers do not fit into a database, and the largest not even into a double.
    return abs(value) <= LARGEST if isinstance(value, int) else math.isfinite(value)


def _categorical(table: Mapping[str, Any]) -> BaseDistribution:
    choices = table.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ValueError('choices must be a list such as ["sgd", "adam"]')
    for choice in choices:
        if not isinstance(choice, str | int | float):
            raise ValueError(f"a choice must be a text, a number, true or false, not {choice!r}")
        if choices.count(choice) > 1:
            raise ValueError(f"the choice {choice!r} is given twice")
    return CategoricalDistribution(choices)


def _condition(table: Any) -> Condition:
    if not isinstance(table, dict) or len(table) != 1:
        raise ValueError('"if" must name one parameter and its values, such as {opt = ["sgd"]}')
    ((parent, values),) = table.items()
    return Condition(parent, tuple(values) if isinstance(values, list) else (values,))
