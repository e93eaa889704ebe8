"""Files, and plain data that was written earlier and may have been damaged or edited since.

Everything that lazybo reads back, a file or an attribute of a study, goes through this module: either it is read, or
one ValueError says where it is, what is wrong with it, and what to do.
"""

import json
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

# What a parser raises for text that is not JSON.
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


def metric_at(metrics: Mapping[str, Any], name: str) -> Any:
    """A metric by its name, or by a dotted path of names; None if there is none."""
    if name in metrics:
        return metrics[name]
    head, dot, rest = name.partition(".")
    inner = metrics.get(head)
    return metric_at(inner, rest) if dot and isinstance(inner, Mapping) else None


def to_plain(value: Any, otherwise: Callable[[Any], Any]) -> Any:
    """A choice of a parameter for JSON. A tuple becomes ``{"tuple": [...]}``, a list ``{"list": [...]}``.

    ``otherwise`` converts what JSON does not have, or raises an error.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, tuple | list):
        return {type(value).__name__: [to_plain(part, otherwise) for part in value]}
    return value if isinstance(value, str | int | float | bool | None) else otherwise(value)


def from_plain(plain: Any) -> Any:
    """The inverse of `to_plain`."""
    if not isinstance(plain, Mapping):
        return plain
    ((kind, parts),) = plain.items()
    return (tuple if kind == "tuple" else list)(map(from_plain, parts))


def check_version(found: Any, readable_versions: Collection[int]) -> None:
    """Raise one sentence unless a file or study has one of these versions of its format."""
    newest = max(readable_versions)
    if isinstance(found, int) and found > newest:
        raise Advised(
            f"it was written by a newer lazybo: it has version {found} of its format, and this one reads up to "
            f"{newest}; upgrade lazybo"
        )
    if found not in readable_versions:
        raise ValueError(f"the version of its format must be {newest}, not {repr(found)[:80]}")


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error) or type(error).__name__


def _kind(plain: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(plain), "a number")


# --------------------------------------------------------------------------- files


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file as a whole: after an error or a kill at any moment there is the old file or the new one.

    A link stays, and the file that it points to is replaced. What is not a regular file, such as a pipe or /dev/stdout,
    is written directly.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    real = target.resolve()
    temporary = real.with_name(f".lazybo-{secrets.token_hex(8)}.tmp")
    try:
        _write_new(temporary, data)
        if real.exists():
            temporary.chmod(stat.S_IMODE(real.stat().st_mode))
        temporary.replace(real)
    except OSError as error:
        # The message names the file that was asked for.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file, with the permissions that any new file gets, and wait until it is on the disk."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_at_most(path: str | Path, most: int) -> bytes:
    """The content of a file or a pipe. Raises a ValueError for a device, and if it has more than ``most`` bytes."""
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not file.isatty():
            raise ValueError(f"{str(path)!r} is a device; give a file or a pipe")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{str(path)!r} has more than {most // 2**20} MB; give a smaller file")
    return content
