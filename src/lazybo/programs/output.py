r"""What a program says: its value, values on the way to it, and metrics, in lines of bounded length.

A line that is a number, or a JSON object with ``value``, is a value; the last one counts. An object with ``step`` and
``value`` is an intermediate value. All else is for people to read. `Reading` may name another key of the objects, or
a regular expression that finds the value in a line.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lazybo.text import without_colours

# A longer line is no value, and is not kept in memory.
MAX_LINE = 1 << 20
# Some regular expressions take the square of a line's length: longer lines are not searched.
MAX_SEARCHED = 10_000
# Only lines that begin with one of these can be a number: digits, signs, a point, nan and inf.
_NUMBER_STARTS = frozenset(b"0123456789+-.nNiI")
_MAX_NUMBER = 64
VALUE, STEP = "value", "step"


@dataclass(frozen=True)
class Value:
    """A result and the metrics beside it."""

    value: float
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """An intermediate value."""

    step: int
    value: float


class Lines:
    """Bytes as they come -> whole lines. Of a line that is too long nothing is kept.

    ``at_returns``: a carriage return ends a line too, as it does for the eye on a terminal.
    """

    def __init__(self, *, at_returns: bool = False) -> None:
        self._rest = b""
        self._too_long = False
        self._at_returns = at_returns

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that these bytes complete."""
        *whole, rest = (data.replace(b"\r", b"\n") if self._at_returns else data).split(b"\n")
        for line in whole:
            if not self._too_long and len(self._rest) + len(line) <= MAX_LINE:
                yield self._rest + line
            self._rest, self._too_long = b"", False
        if self._too_long or len(self._rest) + len(rest) > MAX_LINE:
            self._rest, self._too_long = b"", True
        else:
            self._rest += rest

    def end(self) -> Iterator[bytes]:
        """The last line, if it had no end."""
        if self._rest:
            yield self._rest
        self._rest = b""


@dataclass(frozen=True)
class Reading:
    r"""How a value is read: from the lines of a program, or from a file.

    ``key`` is the key of a JSON object that holds the value; ``metrics.accuracy`` is a key within another object.
    ``regex`` is searched in every line. Its group ``value``, or its only group, is the value; a group ``step`` makes
    it an intermediate value: ``epoch (?P<step>\d+).*acc=(?P<value>\S+)``.
    """

    key: str | None = None
    regex: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None and self.regex is not None:
            raise ValueError("value_key and value_regex are two ways to read a value; give one of them")
        if self.key == "":
            raise ValueError("value_key must name a key of the JSON objects that the program prints, not ''")
        if self.regex is not None:
            _check_regex(self.regex)

    def __str__(self) -> str:
        if self.regex is not None:
            return f"a line that matches value_regex '{self.regex}'"
        if self.key is not None:
            return f"a JSON object with a number as {self.key!r}"
        return "a number or a JSON object with a number as 'value'"

    def lines(self) -> Lines:
        """An empty store of lines."""
        return Lines(at_returns=self.regex is not None)

    def meaning(self, line: bytes) -> Value | Step | None:
        """What a line says, if anything."""
        if self.regex is not None:
            found = self._matches(line)
            return found[-1] if found else None
        text = line.strip()
        if text[:1] == b"{":
            said = _object(text)
            return None if said is None else self._step(said) if STEP in said else self._value(said)
        if self.key is None and text and text[0] in _NUMBER_STARTS and len(text) <= _MAX_NUMBER:
            number = _number(text.decode(errors="replace"))
            return None if number is None else Value(number)
        return None

    def value_in(self, content: bytes) -> Value | None:
        """The value in a file: the whole of it is an object, or its last line that says a value counts."""
        said = _object(content) if self.regex is None else None
        whole = None if said is None else self._value(said)
        if whole is not None:
            return whole
        last = Last()
        for line in content.splitlines():
            last.note(self.meaning(line))
        return last.value

    def unreadable(self, line: bytes) -> str | None:
        """What the regular expression found in a line, if it is no number."""
        if self.regex is None or len(line) > MAX_SEARCHED:
            return None
        found = [m for m in _compiled(self.regex).finditer(_text(line)) if _said(m) is None]
        return found[-1].group() if found else None

    def _matches(self, line: bytes) -> list[Value | Step]:
        assert self.regex is not None, "there is one to match"
        if len(line) > MAX_SEARCHED:
            return []
        found = [_said(match) for match in _compiled(self.regex).finditer(_text(line))]
        return [said for said in found if said is not None]

    def _value(self, said: Mapping[str, Any]) -> Value | None:
        key = self.key or VALUE
        value = _at(said, key)
        if not _is_number(value):
            return None
        # A metric may not be called as the value is: it would take its place.
        return Value(float(value), {name: metric for name, metric in said.items() if name not in (key, VALUE)})

    def _step(self, said: Mapping[str, Any]) -> Step | None:
        step, value = said[STEP], _at(said, self.key or VALUE)
        if not _is_number(step) or not _is_number(value) or not math.isfinite(step) or step < 0 or step != int(step):
            return None
        return Step(int(step), float(value))


class Last:
    """The value of all that was said: the last one, or the last intermediate value if there was no other."""

    def __init__(self) -> None:
        self._value: Value | None = None
        self._step: Step | None = None

    def note(self, said: Value | Step | None) -> None:
        """What a line said."""
        if isinstance(said, Value):
            self._value = said
        elif said is not None:
            self._step = said

    @property
    def value(self) -> Value | None:
        """The value, if there is one."""
        if self._value is None and self._step is not None:
            return Value(self._step.value)
        return self._value


def _check_regex(regex: str) -> None:
    try:
        compiled = _compiled(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"value_regex '{regex}' is not a regular expression: {error}") from None
    names = set(compiled.groupindex)
    if names - {VALUE, STEP}:
        raise ValueError(f"value_regex '{regex}' has a group {min(names - {VALUE, STEP})!r}; call it value or step")
    if VALUE not in names and (names or compiled.groups != 1):
        raise ValueError(
            f"value_regex '{regex}' must have one group around the number, such as 'accuracy: (\\S+)', or a group "
            "(?P<value>...)"
        )


@lru_cache(maxsize=16)
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex)


def _said(match: re.Match[str]) -> Value | Step | None:
    """What a match says; None where its groups are no numbers."""
    named = match.groupdict()
    value = _number(named[VALUE] if VALUE in named else match.group(1))
    if value is None or named.get(STEP) is None:
        return None if value is None else Value(value)
    step = named[STEP].strip()
    return Step(int(step), value) if step.isascii() and step.isdigit() and len(step) <= _MAX_NUMBER else None


def _text(line: bytes) -> str:
    return without_colours(line.decode(errors="replace"))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _at(said: Mapping[str, Any], key: str) -> Any:
    """What an object has under a key, or under the parts of a dotted one."""
    if key in said:
        return said[key]
    head, dot, rest = key.partition(".")
    inner = said.get(head)
    return _at(inner, rest) if dot and isinstance(inner, dict) else None


def _is_number(thing: object) -> bool:
    """Whole numbers of JSON may be too large for a double: those are none."""
    if isinstance(thing, bool) or not isinstance(thing, int | float):
        return False
    try:
        float(thing)
    except OverflowError:
        return False
    return True
