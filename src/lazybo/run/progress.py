"""One line about a run, on a terminal."""

import sys
from types import TracebackType

from tqdm import tqdm


class Progress:
    """A bar of trials with the best value, how many run and failed, and the optimiser's share of the time.

    Silent where nobody looks: when standard error is not a terminal.
    """

    def __init__(self, wanted: bool, total: int | None, done: int) -> None:
        visible = wanted and sys.stderr.isatty()
        self._bar = tqdm(total=total, initial=done, unit="trial", disable=not visible, dynamic_ncols=True)

    def show(self, done: int, best: float | None, running: int, failed: int, share: float) -> None:
        """The state of the run."""
        if self._bar.disable:
            return
        parts = [f"{running} running", f"optimiser {share:.0%}"]
        if best is not None:
            parts.insert(0, f"best {best:.6g}")
        if failed:
            parts.insert(-1, f"{failed} failed")
        self._bar.set_postfix_str(", ".join(parts), refresh=False)
        self._bar.update(done - self._bar.n)
        self._bar.refresh()

    def say(self, text: str) -> None:
        """A line above the bar, or on standard error."""
        tqdm.write(text, file=sys.stderr)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.close()
