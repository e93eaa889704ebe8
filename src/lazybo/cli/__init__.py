"""The lazybo command: parse, call, print."""

import os
import sys

from lazybo.cli import console
from lazybo.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command. Wrong arguments print one line and end with exit code 2."""
    from typer.exceptions import Exit, TyperException

    console.quiet_libraries()
    try:
        code = app(standalone_mode=False)
    except TyperException as error:  # an argument that Typer rejects
        with_help = f"{error.format_message()} (see lazybo --help)"
        try:
            console.fail(with_help)
        except Exit as end:
            code = end.exit_code
    except KeyboardInterrupt:
        code = console.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone. Without this, Python prints another error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = console.FAILED
    sys.exit(code if isinstance(code, int) else 0)
