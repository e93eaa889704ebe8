"""Plain data that was written earlier, and may have been damaged or edited since.

Everything that lazybo reads back, a file or an attribute of a study, goes through this module: either it is read, or
one ValueError says where it is, what is wrong with it, and what to do.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# What a parser raises for a text that is not JSON.
NOT_JSON = (ValueError, RecursionError)
# What code that expects valid plain data may raise when it gets something else.
INVALID = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, zlib.error)


class Advised(ValueError):
    """What was written cannot be used, and the message already says what to do."""


@contextmanager
def readable(where: str, remedy: str = "", errors: tuple[type[Exception], ...] = INVALID) -> Iterator[None]:
    """Turn every error about invalid plain data into a ValueError: ``where`` it is, the reason, and the remedy."""
    try:
        yield
    except Advised as error:
        raise Advised(f"{where} cannot be read: {error}") from None
    except errors as error:
        text = f"{where} cannot be read: {_reason(error)}"
        raise (Advised(f"{text}; {remedy}") if remedy else ValueError(text)) from None


def from_json(text: str | bytes) -> Any:
    """What a JSON text holds. Raises a ValueError if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    except RecursionError as error:
        raise ValueError(_reason(error)) from None


def object_from_json(text: str | bytes) -> dict[str, Any]:
    """What a JSON text holds, which must be an object."""
    return as_object(from_json(text))


def as_object(plain: Any) -> dict[str, Any]:
    """``plain`` itself if it is an object of JSON."""
    if not isinstance(plain, Mapping):
        raise ValueError(f"it must be an object, not {_kind(plain)}")
    return dict(plain)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error) or type(error).__name__


def _kind(plain: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(plain), "a number")
