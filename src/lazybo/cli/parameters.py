"""Parameters and requirements from flags or a TOML file -> a space.

`--require 'a + b <= 1'` is an expression of the parameters. It is parsed here and never evaluated by Python. Allowed
are names of parameters, numbers, texts, true and false, arithmetic, comparisons (chained too), and, or, not, ``in`` a
literal tuple, and some functions of numbers. Texts are short, and numbers that could grow are doubles, so evaluating
one takes microseconds.

A comparison that uses an inactive parameter counts as satisfied, also under ``not``: it is *unknown*, which is None
here. ``not`` of unknown is unknown; ``and`` and ``or`` use what is known; unknown at the end is feasible.
"""

import ast
import csv
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo.core import checks, texts
from lazybo.space import Belief, Condition, Space, Structured

Params: TypeAlias = Mapping[str, Any]
Value: TypeAlias = Callable[[Params], Any]
Truth: TypeAlias = Callable[[Params], bool | None]

# A sum of n parameters is nested n times.
MAX_LENGTH, MAX_DEPTH = 2000, 150
ALLOWED = (
    "write a comparison of parameters such as 'a + b <= 1', with + - * / // % **, and, or, not, "
    "in ('x', 'y'), and the functions abs, min, max, sqrt, log, log2, log10, exp, floor, ceil, round"
)

NUMBER_KEYS = ("type", "low", "high", "log", "step", "if", "belief")
# The largest integer that a database can store.
LARGEST = 2**63 - 1
KEYS = {"float": NUMBER_KEYS, "int": NUMBER_KEYS, "choice": ("type", "choices", "if", "belief")} | {
    name: ("type", *kind.arguments(), "if") for name, kind in Structured.kinds.items()
}


def tables_of(**flags: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The tables that a TOML file would contain for the flags ``float``, ``int`` and ``choice``."""
    tables: dict[str, dict[str, Any]] = {}
    for kind, given in flags.items():
        for text in given:
            name, is_given, rest = text.partition("=")
            name = name.strip()
            if not name or not is_given or not rest:
                form = "A,B,C" if kind == "choice" else "LOW:HIGH"
                raise ValueError(f"--{kind} {text!r}: write --{kind} NAME={form}")
            if name in tables:
                raise ValueError(f"--{kind} {text!r}: the parameter {name!r} was given twice")
            # Choices are texts, taken literally. A choice with a comma is quoted as in a CSV file.
            choices = {"type": kind, "choices": next(csv.reader([rest]))} if kind == "choice" else None
            tables[name] = choices or _range(kind, text, rest)
    return tables


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


def space_in(settings: Mapping[str, Any]) -> Space:
    """The space that the settings describe."""
    return space_of(settings["parameters"], settings["require"], settings.get("beliefs", []))


def space_of(tables: Mapping[str, Any], require: Sequence[str] = (), beliefs: Sequence[str] = ()) -> Space:
    """The space that the tables describe, with the requirements as its feasible configurations.

    ``beliefs`` are those of flags, which count in place of those of the tables.
    """
    if not tables:
        raise ValueError("there are no parameters: give --float, --int or --choice, or [parameters] in a TOML file")
    parameters: dict[str, BaseDistribution | Structured] = {}
    conditions: dict[str, Condition] = {}
    expected: dict[str, Belief] = {}
    for name, table in tables.items():
        try:
            parameters[name] = _parameter(table)
            if "if" in table:
                conditions[name] = _condition(table["if"])
            if "belief" in table:
                expected[name] = Belief.of(table["belief"], parameters[name])
        except ValueError as error:
            raise ValueError(f"parameter {name!r}: {error}") from None
    plain = [name for name, each in parameters.items() if not isinstance(each, Structured)]
    expected |= _beliefs(beliefs, parameters)
    return Space(parameters, conditions=conditions, feasible=requirement_of(require, plain), beliefs=expected)


def _beliefs(given: Sequence[str], parameters: Mapping[str, Any]) -> dict[str, Belief]:
    """The beliefs of the flags ``--belief``."""
    found: dict[str, Belief] = {}
    for text in given:
        name, _, rest = text.partition("=")
        try:
            if name in found:
                raise ValueError(f"there is a belief about {name!r} already")
            if name not in parameters:
                form = "write NAME=AROUND+-DISTANCE, NAME=AROUNDxFACTOR or NAME=CHOICE:WEIGHT"
                raise ValueError(f"there is no parameter {name!r}{texts.nearest(name, parameters)}; {form}")
            found[name] = Belief.parsed(rest, parameters[name])
        except ValueError as error:
            raise ValueError(f"--belief {text!r}: {error}") from None
    return found


def requirement_of(given: Sequence[str], names: Collection[str]) -> "Requirement | None":
    """The expressions that every configuration must fulfil, all of them; None if there is none."""
    return Requirement(given, names) if given else None


def examples(space: Space) -> dict[str, list[Any]]:
    """Example values of every parameter: all choices, both ends of a range, or the first value of a kind."""
    found: dict[str, list[Any]] = {}
    for name, each in space.parameters.items():
        if isinstance(each, Structured):
            found[name] = [each.read([d.to_external_repr(0.0) for d in each.stored("").values()])]
        elif isinstance(each, CategoricalDistribution):
            found[name] = list(each.choices)
        else:
            found[name] = [each.low, each.high]  # type: ignore[attr-defined]
    return found


def _parameter(table: Any) -> BaseDistribution | Structured:
    if not isinstance(table, dict) or "type" not in table:
        raise ValueError('write a table such as {type = "float", low = 0, high = 1}')
    kind = table["type"]
    if kind not in KEYS:
        raise ValueError(f"the type must be one of {sorted(KEYS)}, not {kind!r}")
    for key in table:
        if key not in KEYS[kind]:
            raise ValueError(f"unknown key {key!r}{texts.nearest(key, KEYS[kind])}; it has {', '.join(KEYS[kind])}")
    if kind in Structured.kinds:
        return Structured.of_plain(
            {"kind": kind} | {key: value for key, value in table.items() if key not in ("type", "if")}
        )
    return _categorical(table) if kind == "choice" else _number(kind, table)


def _number(kind: str, table: Mapping[str, Any]) -> BaseDistribution:
    for key in ("low", "high"):
        if key not in table:
            raise ValueError(f"{key!r} is missing")
    low, high, log, step = table["low"], table["high"], table.get("log", False), table.get("step")
    for key, value in (("low", low), ("high", high), ("step", step)):
        if value is not None and not _is_allowed(value, whole=kind == "int"):
            wanted = f"a whole number within ±{LARGEST}" if kind == "int" else "a finite number"
            raise ValueError(f"{key} must be {wanted}, not {checks.shortened(value, 30)}")
    if not isinstance(log, bool):
        raise ValueError(f"log must be true or false, not {log!r}")
    # Optuna checks the rest.
    if kind == "int":
        return IntDistribution(low, high, log=log, step=1 if step is None else step)
    return FloatDistribution(float(low), float(high), log=log, step=step)


def _is_allowed(value: Any, *, whole: bool) -> bool:
    if not checks.is_number(value) or (whole and not isinstance(value, int)):
        return False
    # Larger integers do not fit into a database, and the largest not even into a double.
    return abs(value) <= LARGEST if isinstance(value, int) else math.isfinite(value)


def _categorical(table: Mapping[str, Any]) -> BaseDistribution:
    choices = table.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ValueError('choices must be a list such as ["sgd", "adam"]')
    for choice in choices:
        if not isinstance(choice, str | int | float):
            raise ValueError(f"a choice must be text, a number, true or false, not {choice!r}")
        if choices.count(choice) > 1:
            raise ValueError(f"the choice {choice!r} is given twice")
    return CategoricalDistribution(choices)


def _condition(table: Any) -> Condition:
    if not isinstance(table, dict) or len(table) != 1:
        raise ValueError('"if" must name one parameter and its values, such as {opt = ["sgd"]}')
    ((parent, values),) = table.items()
    return Condition(parent, tuple(values) if isinstance(values, list) else (values,))


# ---------------------------------------------------------------------------------- requirements


class _Inactive(Exception):
    """A parameter is not active."""


class Requirement:
    """Several expressions as a function of a configuration: true if all of them hold."""

    def __init__(self, given: Sequence[str], names: Collection[str]) -> None:
        self.texts, names = tuple(given), tuple(names)
        self._truths = [_parsed(text, names) for text in self.texts]

    def __call__(self, params: Params) -> bool:
        """Whether no expression is false. Raises an exception where one cannot be computed, such as 1 / 0."""
        return all(truth(params) is not False for truth in self._truths)

    def __repr__(self) -> str:
        return " and ".join(f"({text})" for text in self.texts)


def _parsed(text: str, names: Collection[str]) -> Truth:
    def error_of(reason: str) -> ValueError:
        return ValueError(f"require {checks.shortened(text, 200)}: {reason}")

    if len(text) > MAX_LENGTH:
        raise error_of(f"it has {len(text):,} characters, more than {MAX_LENGTH:,}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise error_of(f"it cannot be read ({getattr(error, 'msg', None) or error}); {ALLOWED}") from None
    parser = _Parser(names, error_of)
    truth = parser.truth(tree.body, 0)
    if not parser.used:
        raise error_of(f"it uses no parameter; the parameters are {', '.join(names)}")
    return truth


class _Parser:
    """Makes functions of the nodes of a syntax tree."""

    def __init__(self, names: Collection[str], error_of: Callable[[str], ValueError]) -> None:
        self._names, self._error = names, error_of
        self.used: set[str] = set()

    def truth(self, node: ast.AST, depth: int) -> Truth:
        """A node that is true, false or unknown."""
        self._check_depth(depth)
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(part, depth + 1) for part in node.values]
            return _joined(parts, decisive=isinstance(node.op, ast.Or))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            part = self.truth(node.operand, depth + 1)
            return lambda params: None if (known := part(params)) is None else not known
        if isinstance(node, ast.Compare):
            return self._comparison(node, depth)
        if isinstance(node, ast.Name):
            return _flag(self._name(node))
        raise self._error(f"{_shown(node)} is not a comparison; {ALLOWED}")

    def _comparison(self, node: ast.Compare, depth: int) -> Truth:
        values = [self.value(node.left, depth + 1)]
        for test, right in zip(node.ops, node.comparators, strict=True):
            if type(test) not in COMPARISONS:
                raise self._error(f"'is' cannot be used in it; {ALLOWED}")
            if not isinstance(test, ast.In | ast.NotIn):
                values.append(self.value(right, depth + 1))
            elif isinstance(right, ast.Tuple | ast.List | ast.Set):
                values.append(_constant(tuple(map(self._literal, right.elts))))
            else:
                raise self._error(f"after 'in' write literal values such as ('x', 'y'), not {_shown(right)}")
        return _compared(values, [COMPARISONS[type(test)] for test in node.ops])

    def _literal(self, node: ast.AST) -> Any:
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if negative and isinstance(node, ast.UnaryOp) else node
        if not isinstance(inner, ast.Constant) or not isinstance(inner.value, bool | int | float | str):
            raise self._error(f"{_shown(node)} is not a number, text, True or False; {ALLOWED}")
        if negative and not checks.is_number(inner.value):
            raise self._error(f"{_shown(node)} is not a number")
        return -inner.value if negative else inner.value  # type: ignore[operator]

    def value(self, node: ast.AST, depth: int) -> Value:
        """A node that is a number, text, True or False."""
        self._check_depth(depth)
        if isinstance(node, ast.Constant):
            return _constant(self._literal(node))
        if isinstance(node, ast.Name):
            name = self._name(node)
            return lambda params: _active(params, name)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            sign = operator.neg if isinstance(node.op, ast.USub) else operator.pos
            return _applied(sign, [self.value(node.operand, depth + 1)])
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            parts = [self.value(part, depth + 1) for part in (node.left, node.right)]
            return _applied(ARITHMETIC[type(node.op)], parts)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        raise self._error(f"{_shown(node)} cannot be used in it; {ALLOWED}")

    def _call(self, node: ast.Call, depth: int) -> Value:
        name, count = node.func.id if isinstance(node.func, ast.Name) else "", len(node.args)
        if name not in FUNCTIONS or node.keywords:
            raise self._error(f"{_shown(node)} cannot be used in it; {ALLOWED}")
        function, least, most = FUNCTIONS[name]
        if not least <= count <= most:
            raise self._error(f"{name} takes {least if least == most else f'{least} or more'} numbers, not {count}")
        return _applied(function, [self.value(part, depth + 1) for part in node.args])

    def _name(self, node: ast.Name) -> str:
        if node.id not in self._names:
            raise self._error(
                f"there is no parameter {node.id!r}{texts.nearest(node.id, self._names)}; numbers and choices are: "
                f"{', '.join(self._names) or 'none'}"
            )
        self.used.add(node.id)
        return node.id

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._error(f"it is nested more than {MAX_DEPTH} times; give several requirements")


def _shown(node: ast.AST) -> str:
    try:
        return repr(checks.shortened(ast.unparse(node), 60)[1:-1])
    except (RecursionError, ValueError):
        return "a part of it"


# ---------------------------------------------------------------- evaluation


def _constant(value: Any) -> Value:
    return lambda _: value


def _active(params: Params, name: str) -> Any:
    if name not in params:
        raise _Inactive
    return params[name]


def _flag(name: str) -> Truth:
    def truth(params: Params) -> bool | None:
        value = params.get(name)
        if name in params and not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}, not true or false; compare it with something")
        return value

    return truth


def _applied(function: Callable[..., Any], arguments: Sequence[Value]) -> Value:
    def value(params: Params) -> Any:
        numbers = [argument(params) for argument in arguments]
        for number in numbers:
            if not isinstance(number, int | float):
                raise TypeError(f"{checks.shortened(number)} is not a number")
        return function(*numbers)

    return value


def _compared(values: Sequence[Value], tests: Sequence[Callable[[Any, Any], bool]]) -> Truth:
    def truth(params: Params) -> bool | None:
        try:
            sides = [value(params) for value in values]
        except _Inactive:
            return None
        return all(test(left, right) for test, left, right in zip(tests, sides, sides[1:], strict=False))

    return truth


def _joined(parts: Sequence[Truth], *, decisive: bool) -> Truth:
    """The parts joined by "or" if a part that is True decides, by "and" if one that is False does."""

    def truth(params: Params) -> bool | None:
        unknown = False
        for part in parts:
            known = part(params)
            if known is decisive:
                return decisive
            unknown = unknown or known is None
        return None if unknown else not decisive

    return truth


def _power(base: float, exponent: float) -> float:
    """As doubles, which cannot grow; infinite where it is too large for them."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


ARITHMETIC: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda value, members: value in members,
    ast.NotIn: lambda value, members: value not in members,
}
# Each with the least and the largest number of its arguments.
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "abs": (abs, 1, 1),
    "min": (min, 2, 100),
    "max": (max, 2, 100),
    "sqrt": (math.sqrt, 1, 1),
    "log": (math.log, 1, 1),
    "log2": (math.log2, 1, 1),
    "log10": (math.log10, 1, 1),
    "exp": (_exp, 1, 1),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "round": (round, 1, 1),
}
