"""What a program says on its standard output: numbers and JSON objects, in lines of bounded length.

A line that is a number, or a JSON object with ``value``, is a value; the last one counts. An object with ``step`` and
``value`` is an intermediate value. All else is for people to read.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# A longer line is no value, and is not kept in memory.
MAX_LINE = 1 << 20
# Only lines that begin with one of these can be a number: digits, signs, a point, nan and inf.
_NUMBER_STARTS = frozenset(b"0123456789+-.nNiI")
_MAX_NUMBER = 64


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
    """Bytes as they come -> whole lines. Of a line that is too long nothing is kept."""

    def __init__(self) -> None:
        self._rest = b""
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that these bytes complete."""
        *whole, rest = data.split(b"\n")
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


def meaning(line: bytes) -> Value | Step | None:
    """What a line of output says, if anything."""
    text = line.strip()
    if text[:1] == b"{":
        said = _object(text)
        if said is not None and "step" in said:
            return _step(said)
        return _value(said)
    if text and text[0] in _NUMBER_STARTS and len(text) <= _MAX_NUMBER:
        try:
            return Value(float(text))
        except ValueError:
            return None
    return None


def value_in(content: bytes) -> Value | None:
    """The value in a file: the whole of it is an object, or its last line that is a value counts."""
    whole = _value(_object(content))
    if whole is not None:
        return whole
    found = [said for said in map(meaning, content.splitlines()) if isinstance(said, Value)]
    return found[-1] if found else None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _value(said: dict[str, Any] | None) -> Value | None:
    if said is None or not _is_number(said.get("value")):
        return None
    return Value(float(said["value"]), {name: metric for name, metric in said.items() if name != "value"})


def _step(said: dict[str, Any]) -> Step | None:
    step, value = said["step"], said.get("value")
    if not _is_number(step) or not _is_number(value) or not math.isfinite(step) or step < 0 or step != int(step):
        return None
    return Step(int(step), float(said["value"]))


def _is_number(thing: object) -> bool:
    """Whole numbers of JSON may be too large for a double: those are none."""
    if isinstance(thing, bool) or not isinstance(thing, int | float):
        return False
    try:
        float(thing)
    except OverflowError:
        return False
    return True
