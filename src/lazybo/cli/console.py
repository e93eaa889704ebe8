"""What the command prints: results on standard output, all else on standard error, colours on a terminal only."""

import contextlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import typer
from optuna.exceptions import StorageInternalError
from rich.console import Console
from rich.text import Text
from tqdm import tqdm

# Exit codes that scripts can use.
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
# Wider than any table: in a pipe nothing is wrapped or cut.
_PIPE_WIDTH = 4000


def out() -> Console:
    """Standard output as it is now."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """A line for people, above a progress bar if there is one."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


def fail(message: object, code: int = BAD_INPUT) -> NoReturn:
    """End with one line that says why."""
    line = " ".join(str(message).split())
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
    print(json.dumps(thing, indent=2, ensure_ascii=False, default=str))


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
    """Log records as lines that do not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"lazybo: {record.getMessage()}")
