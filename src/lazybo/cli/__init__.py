"""The lazybo command: parse, call, print."""

import os
import sys

from lazybo.cli import console
from lazybo.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; whatever is wrong with its arguments is one line and the exit code 2."""
    from typer.exceptions import Exit, TyperException

    console.quiet_libraries()
    try:
        code = app(standalone_mode=False)
    except TyperException as error:  # what Typer itself refuses
        with_help = f"{error.format_message()} (lazybo --help says more)"
        try:
            console.fail(with_help)
        except Exit as end:
            code = end.exit_code
    except KeyboardInterrupt:
        code = console.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; Python's own farewell must not fail in turn.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = console.FAILED
    sys.exit(code if isinstance(code, int) else 0)
