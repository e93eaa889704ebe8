"""Printing: results to standard output, everything else to standard error, colours only on a terminal; help, flags.

Names, values, messages and output come from programs and storages. `clean` and `field` remove escape sequences and
passwords from all of it before it is printed.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer
from optuna.exceptions import StorageInternalError
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tqdm import tqdm
from typer.core import TyperCommand, TyperGroup

from lazybo.core import texts

# Exit codes that scripts can use.
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
# Wider than any table: in a pipe nothing is wrapped or cut.
_PIPE_WIDTH = 4000
# Text, or text and its style.
Cell = str | tuple[str, str]
# Control characters that JSON does not escape and a terminal may execute.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def clean(text: object) -> str:
    """Text on one line, without escape sequences and without the password of a URL."""
    return texts.one_line(text)


def field(text: object) -> str:
    """A name or value to print within a line: line breaks and control characters are shown as escapes."""
    return texts.printable(texts.without_password(str(text)))


def line(*parts: Cell, style: str = "", soft_wrap: bool = False) -> None:
    """Print one line of results; each part is text, or text and its style."""
    pairs = [part if isinstance(part, tuple) else (part, "") for part in parts]
    text = Text.assemble(*((field(part), its_style) for part, its_style in pairs), style=style)
    _out().print(text, soft_wrap=soft_wrap)


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]], left: Collection[str]) -> None:
    """Print a table. Columns in ``left`` are left-aligned; there is no header if all headings are empty."""
    found = Table(box=None, pad_edge=False, show_header=any(headings), header_style="bold")
    for heading in headings:
        found.add_column(field(heading), overflow="fold", justify="left" if heading in left else "right")
    for row in rows:
        # Rich would put a cell without a heading into a column of its own, under the wrong heading.
        pairs = [cell if isinstance(cell, tuple) else (cell, "") for _, cell in zip(headings, row, strict=True)]
        found.add_row(*(Text(field(cell), style=style) for cell, style in pairs))
    _out().print(found)


def plain(text: str) -> None:
    """Print a line for other programs; unchanged unless the output is a terminal."""
    print(field(text) if sys.stdout.isatty() else text)


def _out() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """Print a message to standard error, above the progress bar if there is one."""
    tqdm.write(clean(text), file=sys.stderr)
    sys.stderr.flush()


def print_error(message: object, code: int = BAD_INPUT) -> int:
    """Print one line with an error, and return the exit code."""
    line = clean(" ".join(str(message).split()))
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text.assemble(("lazybo: ", "bold red"), line))
    return code


def fail(message: object, code: int = BAD_INPUT) -> NoReturn:
    """Print one line with the error and exit."""
    raise typer.Exit(print_error(message, code))


@contextlib.contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """Print an error about the input as one line and exit with code 2. LAZYBO_DEBUG shows the traceback."""
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, StorageInternalError) as error:
        if os.environ.get("LAZYBO_DEBUG"):
            raise
        if isinstance(error, FileNotFoundError) and error.filename:
            fail(f"{str(error.filename)!r} cannot be used: {error.strerror}; name another file")
        fail(error)


def needs(package: str) -> None:
    """Exit with a message if a package is not installed."""
    try:
        __import__(package.replace("-", "_"))
    except ImportError:
        fail(f"this needs {package}, which is not installed: pip install {package}")


def print_json(thing: Any) -> None:
    """Print plain data as JSON."""
    print(as_json(thing, 2))


def as_json(thing: Any, indent: int) -> str:
    """Plain data as JSON, with control characters escaped."""
    text = json.dumps(thing, indent=indent, ensure_ascii=False, default=str)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def short(value: Any) -> str:
    """A value for people: floats with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def quiet_libraries() -> None:
    """Print warnings and log records as plain lines. Optuna's own progress messages are turned off."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.showwarning = lambda message, *_, **__: say(f"lazybo: {message}")
    logger = logging.getLogger("lazybo")
    logger.handlers = [_Lines()]
    logger.propagate = False


class _Lines(logging.Handler):
    """Log records as lines that do not tear a progress bar. Trials that failed have lines of their own."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "lazybo.failures":
            return
        first, *others = record.getMessage().splitlines() or [""]
        say(f"lazybo: {first}")
        for line in others:
            say(f"  | {line}")


# ----------------------------------------------------------------------------------------- help

# What the help shows as the value of an option: a word such as INTEGER, no Python type such as <int> or <bool>.
WORDS = {int: "INTEGER", float: "NUMBER", Path: "PATH", bool: ""}


class HelpInWords(TyperGroup):
    """A group of commands whose help has no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the group itself."""
        found = super().get_params(ctx)
        for parameter in found:
            show_a_word(parameter)
        return found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group, None if there is none with this name."""
        command = super().get_command(ctx, cmd_name)
        for parameter in command.get_params(ctx) if command is not None else ():
            show_a_word(parameter)
        return command


def show_a_word(parameter: Any) -> None:
    """Let the help show a word as the value of a parameter. Its choices, if there are any, stay."""
    kind = getattr(parameter, "type_descriptor", None)
    if kind is None or kind.is_choice:
        return  # without a descriptor it is an older Typer, which shows words itself
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = _no_type  # its name says what it is
    elif parameter.metavar is None:
        parameter.metavar = word_of(parameter)


def word_of(parameter: Any) -> str:
    """The word for the value of an option; empty for a flag."""
    return WORDS.get(parameter.type_descriptor.annotation, "TEXT")


def _no_type(ctx: object) -> None:  # noqa: ARG001 (Typer gives it by name)
    return None


# --------------------------------------------------------- names of objectives


class OptionalNames(TyperCommand):
    """A command whose flags --maximize and --minimize may be followed by the name of an objective."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a flag without a name gets an empty one. ``ctx.obj`` has the names in their order."""
        words = with_names(args)
        own = words[: words.index("--")] if "--" in words else words
        ctx.obj = [word.partition("=")[2] for word in own if word.startswith(("--maximize=", "--minimize="))]
        return super().parse_args(ctx, words)


def with_names(args: Sequence[str]) -> list[str]:
    """The arguments with ``--maximize=NAME`` for ``--maximize NAME``, and ``--maximize=`` without a name."""
    end = args.index("--") if "--" in args else None
    flags, rest = (list(args), []) if end is None else (list(args[:end]), list(args[end:]))
    found: list[str] = []
    while flags:
        word = flags.pop(0)
        if word in ("--maximize", "--minimize"):
            # Without "--", a program may follow the flag.
            named = bool(flags) and is_name(flags[0]) and (end is not None or shutil.which(flags[0]) is None)
            word = f"{word}={flags.pop(0) if named else ''}"
        found.append(word)
    return found + rest


def is_name(word: str) -> bool:
    """Whether a word can be the name of an objective: it is not an option, a file or module:function."""
    return re.fullmatch(r"[A-Za-z_][\w.\-]*", word) is not None and not word.endswith(".toml")
