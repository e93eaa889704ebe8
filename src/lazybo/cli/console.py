"""What the command prints: results on standard output, all else on standard error, colours on a terminal only.

Names, values, messages and output come from programs and storages. All of it passes `clean`, so that nothing but our
own colours reaches a terminal, and no password.
"""

import contextlib
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import typer
from optuna.exceptions import StorageInternalError
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

from lazybo.run.failure import is_failed_trial
from lazybo.text import printable, without_password

# Exit codes that scripts can use.
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
# Wider than any table: in a pipe nothing is wrapped or cut.
_PIPE_WIDTH = 4000


# A text, or a text and its style.
Cell = str | tuple[str, str]
# What JSON would print as it is, and a terminal might obey.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def clean(text: object) -> str:
    """A text as people may see it: one line, no escape sequences, no password of a URL."""
    return printable(without_password(re.sub(r"\s*[\r\n]+\s*", " ", str(text).rstrip())))


def field(text: object) -> str:
    """A name or a value within a line: what would end the line is shown as it is written."""
    return printable(without_password(str(text)))


def line(*parts: Cell, style: str = "", soft_wrap: bool = False) -> None:
    """Print a line of results: texts, or texts with their styles."""
    pairs = [part if isinstance(part, tuple) else (part, "") for part in parts]
    text = Text.assemble(*((field(part), its_style) for part, its_style in pairs), style=style)
    _out().print(text, soft_wrap=soft_wrap)


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]], left: Collection[str]) -> None:
    """Print results in columns: under the headings unless all are empty, to the right unless they are ``left``."""
    found = Table(box=None, pad_edge=False, show_header=any(headings), header_style="bold")
    for heading in headings:
        found.add_column(heading, overflow="fold", justify="left" if heading in left else "right")
    for row in rows:
        pairs = [cell if isinstance(cell, tuple) else (cell, "") for cell in row]
        found.add_row(*(Text(field(cell), style=style) for cell, style in pairs))
    _out().print(found)


def plain(text: str) -> None:
    """Print a line for other programs: as it is, but for a terminal."""
    print(field(text) if sys.stdout.isatty() else text)


def _out() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """A line for people, above a progress bar if there is one."""
    tqdm.write(clean(text), file=sys.stderr)
    sys.stderr.flush()


def fail(message: object, code: int = BAD_INPUT) -> NoReturn:
    """End with one line that says why."""
    line = clean(" ".join(str(message).split()))
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text.assemble(("lazybo: ", "bold red"), line))
    raise typer.Exit(code)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Bad input is one line and the exit code 2."""
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, StorageInternalError) as error:
        if os.environ.get("LAZYBO_DEBUG"):
            raise
        fail(error)


def needs(package: str, extra: str) -> None:
    """Refuse what needs a package that is not installed."""
    try:
        __import__(package)
    except ImportError:
        fail(f"this needs {package}, which is not installed: pip install 'lazybo[{extra}]'")


def print_json(thing: Any) -> None:
    """Plain data for programs."""
    print(as_json(thing, 2))


def as_json(thing: Any, indent: int) -> str:
    """Plain data as JSON; characters that a terminal might obey are escaped."""
    text = json.dumps(thing, indent=indent, ensure_ascii=False, default=str)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def short(value: Any) -> str:
    """A value as people read it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def quiet_libraries() -> None:
    """Our own warnings and those of libraries as plain lines; what Optuna has to say is said by the command itself."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.showwarning = lambda message, *_, **__: say(f"lazybo: {message}")
    logger = logging.getLogger("lazybo")
    logger.handlers = [_Lines()]
    logger.propagate = False


class _Lines(logging.Handler):
    """Log records as lines that do not tear a progress bar. Trials that failed have lines of their own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not is_failed_trial(record):
            say(f"lazybo: {record.getMessage()}")
