"""The boundary to objectives: whatever they return, raise or attach becomes plain data of bounded size.

An objective is foreign code. Its metrics and exceptions may hold cycles, objects that fail when they are printed, or a
gigabyte. The worker turns all of that into plain data before anything is sent. No function of this module except
`number` raises anything but KeyboardInterrupt.
"""

import json
import reprlib
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any, TypeVar

# The end of a long traceback matters most; storages may limit the length of a string.
TRACEBACK_LENGTH = 20_000
REASON_LENGTH = 1_000
# How many frames of a traceback a log shows: those of the objective, and where the exception was raised.
FIRST_FRAMES, LAST_FRAMES = 4, 6
# How many arguments of an exception are kept.
MAX_ARGUMENTS = 8
# Characters that all metrics of one trial may take as JSON, and those of one name (Optuna's tables hold 512).
METRICS_LENGTH = 1_000_000
NAME_LENGTH = 500

T = TypeVar("T")
_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _shortened.maxlong = 100


def _harmless(function: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """What a function returns, or else another one if an object of an objective made it fail in any way."""
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return otherwise()


def reason(error: BaseException) -> str:
    """The type and message of an exception, in a few lines at most."""
    found = partial(traceback.TracebackException.from_exception, error, compact=True)
    return _harmless(
        lambda: cut("".join(found().format_exception_only()).strip(), REASON_LENGTH),
        lambda: f"{type(error).__name__} (it cannot be printed)",
    )


def trace(error: BaseException) -> str:
    """The end of an exception's traceback, with its causes."""
    kept: deque[str] = deque()
    length = 0
    try:
        for text in traceback.TracebackException.from_exception(error, compact=True).format():
            kept.append(text[-TRACEBACK_LENGTH:])
            length += len(kept[-1])
            while length - len(kept[0]) >= TRACEBACK_LENGTH:
                length -= len(kept.popleft())
    except KeyboardInterrupt:
        raise
    except BaseException:  # its message cannot be printed, but its frames can
        kept.extend([*traceback.format_tb(error.__traceback__), reason(error)])
    return _printable("".join(kept)[-TRACEBACK_LENGTH:])


def kind(error: BaseException) -> str:
    """The name of an exception's class, with its module unless it is built in."""
    found = type(error)
    name = found.__qualname__ if found.__module__ == "builtins" else f"{found.__module__}.{found.__qualname__}"
    return cut(name, NAME_LENGTH)


def arguments(error: BaseException) -> tuple[Any, ...]:
    """The arguments of an exception if they are short plain data, or else its message."""

    def is_short(thing: object) -> bool:
        return type(thing) in (bool, int, float, type(None)) or (type(thing) is str and len(thing) <= REASON_LENGTH)

    if len(error.args) <= MAX_ARGUMENTS and all(map(is_short, error.args)):
        return error.args
    return (reason(error).partition(": ")[2],)


def short_trace(error: BaseException) -> str:
    """Where an exception was raised, in a few lines: its first frames, its last ones, and its type and message."""
    frames = _harmless(lambda: traceback.format_tb(error.__traceback__), list[str])
    left_out = len(frames) - FIRST_FRAMES - LAST_FRAMES
    if left_out > 0:
        frames[FIRST_FRAMES:-LAST_FRAMES] = [f"  [... {left_out} more]\n"]
    return "".join(
        ["Traceback (most recent call last):\n", *(cut(each, REASON_LENGTH) for each in frames), reason(error)]
    )


def number(thing: Any) -> float:
    """A float. Strings are rejected, although Python would parse them. Raises what ``float`` raises."""
    if isinstance(thing, str | bytes):
        raise TypeError("a string is not a number")
    return float.__pos__(float(thing))


def short(thing: object) -> str:
    """A short representation of an object, on one line."""
    text = _harmless(
        lambda: _printable(_shortened.repr(thing)),
        lambda: f"an object of {type(thing).__name__} (it cannot be printed)",
    )
    return text if len(text) <= 100 else text[:97] + "..."


def cut(text: str, length: int) -> str:
    """``text`` without its middle if it is too long, and without lone surrogates, which no encoding has."""
    if len(text) > length:
        text = f"{text[: length * 3 // 4]} [...] {text[len(text) - length // 5 :]}"
    return _printable(text)


def metrics(given: Mapping[Any, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Metrics as plain data for JSON, and the names of those that were dropped, each with the reason.

    A bad metric never makes an evaluation fail. Numbers, strings, lists and dicts are kept, arrays become lists, other
    objects strings. JSON has no NaN and no infinity, so these become None. What JSON cannot have as a key is dropped.
    """
    plain: dict[str, Any] = {}
    dropped: list[str] = []
    left = METRICS_LENGTH
    items: list[tuple[Any, Any]] = _harmless(lambda: list(given.items()), list)
    for name, metric in items:
        try:
            key = _printable(str.__str__(name) if isinstance(name, str) else str(name))
            if len(key) > NAME_LENGTH:
                raise _NotPlain(f"its name has more than {NAME_LENGTH} characters")
            text = _json(metric, left - len(key))
            plain[key] = json.loads(text, parse_constant=lambda _: None)
            left -= len(key) + len(text)
        except KeyboardInterrupt:
            raise
        except _NotPlain as error:
            dropped.append(f"{short(name)} ({error})")
        except BaseException as error:
            dropped.append(f"{short(name)} ({cut(reason(error), 100)})")
    return plain, tuple(dropped)


class _NotPlain(Exception):
    """A metric that cannot be kept; the message says why."""


_TOO_LONG = f"it is too long: the metrics of a trial may take {METRICS_LENGTH:,} characters together"


def _json(thing: Any, most: int) -> str:
    """A metric as JSON of at most so many characters."""
    parts, length = [], 0
    for part in json.JSONEncoder(ensure_ascii=False, default=_in_json).iterencode(thing):
        length += len(part)
        if length > most:
            raise _NotPlain(_TOO_LONG)
        parts.append(part)
    return _printable("".join(parts))


def _in_json(thing: Any) -> Any:
    """What stands in JSON for something that it does not have."""
    if isinstance(thing, bytes | bytearray):
        return bytes(thing).decode(errors="backslashreplace")
    if isinstance(thing, Mapping):
        return dict(thing.items())
    if isinstance(thing, Set):  # in a stable order
        return sorted(thing, key=repr)
    if isinstance(thing, deque):
        return list(thing)
    if hasattr(thing, "tolist"):
        # Do not convert an array that is far too large.
        size = getattr(thing, "nbytes", 0)
        if isinstance(size, int) and size // 4 > METRICS_LENGTH:
            raise _NotPlain(_TOO_LONG)
        return thing.tolist()
    return str(thing)


def _printable(text: str) -> str:
    """Replace lone surrogates, since printing one would raise."""
    return text.encode(errors="replace").decode()
