"""The boundary to objectives: whatever they return, raise or attach becomes plain data of bounded size.

An objective is foreign code. Its metrics and exceptions may hold cycles, objects that fail when they are printed, or a
gigabyte. The worker turns all of that into plain data before anything is sent. No function of this module except
`number` raises anything but KeyboardInterrupt.
"""

import math
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
# How deep lists and dicts may be nested.
DEPTH = 50

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
    objects strings. JSON has no NaN and no infinity, so these become None.
    """
    plain: dict[str, Any] = {}
    dropped: list[str] = []
    left = METRICS_LENGTH
    items: list[tuple[Any, Any]] = _harmless(lambda: list(given.items()), list)
    for name, metric in items:
        try:
            converter = _Converter(left)
            key = converter.key(name)
            plain[key] = converter.data(metric)
            left = converter.left
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


class _Converter:
    """Turns one metric into plain data of at most ``left`` characters."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._inside: set[int] = set()  # the containers around what is being converted

    def data(self, thing: Any) -> Any:
        # Call the methods of the built-in types: those of a subclass could do anything.
        if thing is None or thing is True or thing is False:
            self._pay(5)
            return thing
        if isinstance(thing, str):
            return self._text(str.__str__(thing))
        if isinstance(thing, int):
            self._pay(self._digits(thing))
            return int.__pos__(thing)
        if isinstance(thing, float):
            self._pay(20)
            number = float.__pos__(thing)
            return number if math.isfinite(number) else None
        if isinstance(thing, bytes | bytearray):
            self._pay(len(thing))
            return bytes(thing).decode(errors="backslashreplace")
        if isinstance(thing, Mapping | list | tuple | Set | deque):
            return self._container(thing)
        if hasattr(thing, "tolist"):
            # Do not convert an array that is far too large.
            size = getattr(thing, "nbytes", 0)
            if isinstance(size, int) and size // 4 > self.left:
                raise _NotPlain(_TOO_LONG)
            return self._nested(thing, lambda: self.data(thing.tolist()))
        return self._text(str(thing))

    def key(self, name: Any) -> str:
        text = str.__str__(name if isinstance(name, str) else str(name))
        if len(text) > NAME_LENGTH:
            raise _NotPlain(f"its name has more than {NAME_LENGTH} characters")
        return self._text(text)

    def _text(self, text: str) -> str:
        self._pay(len(text) + 4)
        return _printable(text)

    def _container(self, thing: Any) -> Any:
        if isinstance(thing, Mapping):
            return self._nested(thing, lambda: {self.key(k): self.data(v) for k, v in thing.items()})
        if isinstance(thing, Set):  # in a stable order
            return self._nested(thing, lambda: sorted((self.data(part) for part in thing), key=repr))
        return self._nested(thing, lambda: [self.data(part) for part in thing])

    def _nested(self, thing: Any, convert: Callable[[], Any]) -> Any:
        if id(thing) in self._inside:
            raise _NotPlain("it contains itself")
        if len(self._inside) >= DEPTH:
            raise _NotPlain(f"it is nested more than {DEPTH} deep")
        self._inside.add(id(thing))
        self._pay(2)
        converted = convert()
        self._inside.remove(id(thing))
        return converted

    def _digits(self, number: int) -> int:
        digits = int.bit_length(number) * 3 // 10 + 2
        if digits > 4000:  # Python itself refuses to print more than 4300
            raise _NotPlain("it has thousands of digits")
        return digits

    def _pay(self, characters: int) -> None:
        self.left -= characters
        if self.left < 0:
            raise _NotPlain(_TOO_LONG)


def _printable(text: str) -> str:
    """Replace lone surrogates, since printing one would raise."""
    return text.encode(errors="replace").decode()
