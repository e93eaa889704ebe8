"""The progress bar of a run, on a terminal or in a notebook, and the time that the optimiser takes."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from tqdm import tqdm

from lazybo.core.text import printable
from lazybo.run.limits import Tally

# Characters of the line in a notebook, whose width is unknown, and seconds between two updates.
NOTEBOOK_WIDTH = 100
INTERVAL = 0.1


class Progress:
    """A bar of trials with the best value, how many run and failed, and the optimiser's share of the time.

    Nothing is printed if standard error is neither a terminal nor a notebook. In a notebook it is a line of text, not
    a widget: that needs no other package, and is still there when the notebook is opened again.
    """

    def __init__(self, wanted: bool, total: int | None, done: int) -> None:
        notebook = in_notebook()
        self._bar = tqdm(
            total=total,
            initial=done,
            unit="trial",
            disable=not (wanted and (notebook or sys.stderr.isatty())),
            # A notebook shows standard error as if something were wrong.
            file=sys.stdout if notebook else sys.stderr,
            ncols=NOTEBOOK_WIDTH if notebook else None,
            dynamic_ncols=not notebook,
        )
        self._shown = -INTERVAL

    def show(self, done: int, tally: Tally, running: int, share: float) -> None:
        """Update the bar."""
        if self._bar.disable:
            return
        parts = [f"{running} running", f"optimiser {share:.0%}"]
        if tally.best is not None:
            parts.insert(0, f"best {tally.best:.6g}")
        elif tally.front:
            parts.insert(0, f"front of {tally.front}")
        if tally.infeasible:
            parts.insert(-1, f"{tally.infeasible} infeasible")
        if tally.failed:
            parts.insert(-1, f"{tally.failed} failed")
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        self._bar.n = done
        if time.monotonic() >= self._shown + INTERVAL:
            self._shown = time.monotonic()
            self._bar.refresh()

    def say(self, text: str) -> None:
        """Print a line above the bar, on standard error."""
        tqdm.write(printable(text), file=sys.stderr)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()


class WorkTime:
    """The seconds that the driver works itself, without those it waits for evaluations."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the time of this block."""
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    @contextmanager
    def paused(self, condition: bool) -> Iterator[None]:
        """Leave out the time of this block, within one that is measured, if the condition holds."""
        start = time.perf_counter()
        yield
        if condition:
            self.seconds -= time.perf_counter() - start


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (Jupyter, VS Code, Colab)."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
