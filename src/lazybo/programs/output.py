r"""Parse the output of a program: its value, its intermediate values and its metrics.

A line that is a number, or a JSON object with ``value``, is a value; the last one counts. An object with ``step`` and
``value`` is an intermediate value. All other lines are ignored. `Reading` may name another key of the objects, or a
regular expression that finds the value in a line.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lazybo.core import checks, codec, texts

# A longer line is not kept in memory and cannot be a value.
MAX_LINE = 1 << 20
# The time of some regular expressions grows with the square of the line's length: skip longer lines.
MAX_SEARCHED = 10_000
# The first byte of a number: a digit, a sign, a point, or the first letter of nan and inf.
_NUMBER_STARTS = frozenset(b"0123456789+-.nNiI")
_MAX_NUMBER = 64
VALUE, STEP = "value", "step"


@dataclass(frozen=True)
class Value:
    """The value of a trial and its metrics."""

    value: float
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """An intermediate value."""

    step: int
    value: float


class Lines:
    """Split chunks of bytes into lines. A line that is too long is dropped.

    With ``at_returns`` a carriage return also ends a line, as in a progress bar on a terminal.
    """

    def __init__(self, *, at_returns: bool = False) -> None:
        self._rest = b""
        self._too_long = False
        self._at_returns = at_returns

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield the lines that are now complete."""
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
        """Yield the last line if it has no line break."""
        if self._rest:
            yield self._rest
        self._rest = b""


@dataclass(frozen=True)
class Reading:
    r"""How to read a value from the lines of a program or from a file.

    ``key`` is the key of the value in a JSON object; ``metrics.accuracy`` is a nested key.
    ``regex`` is searched in every line. Its group ``value``, or its only group, is the value; a group ``step`` makes
    it an intermediate value: ``epoch (?P<step>\d+).*acc=(?P<value>\S+)``.
    ``names`` are the keys of several objectives; the value is then a JSON object with a number under each of them.
    """

    key: str | None = None
    regex: str | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.key is not None and self.regex is not None:
            raise ValueError("value_key and value_regex exclude each other; give one of them")
        if self.names and (self.key is not None or self.regex is not None):
            raise ValueError("value_key and value_regex read one value; several objectives are keys of a JSON object")
        if self.key == "":
            raise ValueError("value_key must be a key of the JSON objects that the program prints, not ''")
        if self.regex is not None:
            _check_regex(self.regex)

    def __str__(self) -> str:
        if self.regex is not None:
            return f"a line that matches value_regex '{self.regex}'"
        if self.names:
            return f"a JSON object with numbers as {' and '.join(map(repr, self.names))}"
        if self.key is not None:
            return f"a JSON object with a number as {self.key!r}"
        return "a number or a JSON object with a number as 'value'"

    def lines(self) -> Lines:
        """A new line splitter for this way of reading."""
        return Lines(at_returns=self.regex is not None)

    def parse(self, line: bytes) -> Value | Step | None:
        """The value or intermediate value in a line, or None."""
        if self.regex is not None:
            return next((parsed for _, parsed in self._matches(line) if parsed is not None), None)
        text = line.strip()
        if text[:1] == b"{":
            parsed = _object(text)
            return None if parsed is None else self._step(parsed) if STEP in parsed else self._value(parsed)
        if self.key is None and not self.names and text and text[0] in _NUMBER_STARTS and len(text) <= _MAX_NUMBER:
            number = _number(text.decode(errors="replace"))
            return None if number is None else Value(number)
        return None

    def value_in(self, content: bytes) -> Value | None:
        """The value in a file: the file is one JSON object, or its last line with a value counts."""
        parsed = _object(content) if self.regex is None else None
        value = None if parsed is None else self._value(parsed)
        if value is not None:
            return value
        last = Last()
        for line in content.splitlines():
            last.add(self.parse(line))
        return last.value

    def unreadable(self, line: bytes) -> str | None:
        """The text that the regular expression matched in a line, if its group is not a number."""
        return next((match.group() for match, parsed in self._matches(line) if parsed is None), None)

    def _matches(self, line: bytes) -> list[tuple[re.Match[str], Value | Step | None]]:
        """The matches of the regular expression with what they say, the last one first."""
        if self.regex is None or len(line) > MAX_SEARCHED:
            return []
        return [(match, _from_match(match)) for match in _compiled(self.regex).finditer(_text(line))][::-1]

    def _value(self, parsed: Mapping[str, Any]) -> Value | None:
        if self.names:
            found = [codec.metric_at(parsed, name) for name in self.names]
            return Value(float(found[0]), dict(parsed)) if all(map(_is_double, found)) else None
        key = self.key or VALUE
        value = codec.metric_at(parsed, key)
        if not _is_double(value):
            return None
        # A metric called "value" would overwrite the value.
        return Value(float(value), {name: metric for name, metric in parsed.items() if name not in (key, VALUE)})

    def _step(self, parsed: Mapping[str, Any]) -> Step | None:
        step, value = parsed[STEP], codec.metric_at(parsed, self.key or VALUE)
        if self.names:
            return None  # a pruner cannot compare several objectives
        if not _is_double(step) or not _is_double(value) or not math.isfinite(step) or step < 0 or step != int(step):
            return None
        return Step(int(step), float(value))


class Last:
    """The value of a whole output: the last value, or the last intermediate value if there is no other."""

    def __init__(self) -> None:
        self._value: Value | None = None
        self.step: Step | None = None  # the last intermediate value

    def add(self, parsed: Value | Step | None) -> None:
        """Add the result of one line."""
        if isinstance(parsed, Value):
            self._value = parsed
        elif parsed is not None:
            self.step = parsed

    @property
    def value(self) -> Value | None:
        """The value, if there is one."""
        if self._value is None and self.step is not None:
            return Value(self.step.value)
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


def _from_match(match: re.Match[str]) -> Value | Step | None:
    """The value or intermediate value of a match; None if its groups are not numbers."""
    named = match.groupdict()
    value = _number(named[VALUE] if VALUE in named else match.group(1))
    if value is None or named.get(STEP) is None:
        return None if value is None else Value(value)
    step = named[STEP].strip()
    return Step(int(step), value) if step.isascii() and step.isdigit() and len(step) <= _MAX_NUMBER else None


def _text(line: bytes) -> str:
    return texts.without_colours(line.decode(errors="replace"))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        parsed = codec.from_json(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _is_double(thing: Any) -> bool:
    """Whether this is a number that fits into a double. Bools and larger integers are rejected."""
    return checks.is_number(thing) and (isinstance(thing, float) or abs(thing) <= sys.float_info.max)
