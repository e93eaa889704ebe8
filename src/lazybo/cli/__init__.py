"""The lazybo command: parse, call, print."""

import gc
import os
import sys

from lazybo.core.checks import check_optuna

check_optuna()

from lazybo.cli import console  # noqa: E402 (needs Optuna)
from lazybo.cli.app import app  # noqa: E402 (needs Optuna)

__all__ = ["app", "main"]


def main() -> None:
    """Run the command. Wrong arguments print one line and end with exit code 2."""
    from typer import Exit

    # The imported modules stay until the end. Otherwise the collector looks at them again for every few thousand rows.
    gc.freeze()
    console.quiet_libraries()
    try:
        code = app(standalone_mode=False)
    except BrokenPipeError:
        # The reader of our output is gone. Without this, Python prints another error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = console.FAILED
    except Exception as error:
        # An argument that Typer rejects. The class of such errors depends on Typer's version, the method does not.
        if not hasattr(error, "format_message"):
            raise
        with_help = f"{error.format_message()} (see lazybo --help)"
        try:
            console.fail(with_help)
        except Exit as end:
            code = end.exit_code
    except KeyboardInterrupt:
        code = console.INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
