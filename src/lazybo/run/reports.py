"""Intermediate values on their way to a study: several are written together, at most twice a second.

A value that arrives after a quiet time is written at once, and those that follow it within `INTERVAL` are written
together. So a slow training waits for no timer, and a fast one does not wait for a commit after each of its steps. A
process that is killed loses what it was told in the last half second.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping

# Seconds between two writes.
INTERVAL = 0.5

# Writes values by step, by the id of their trial; gives the ids of the trials that had ended and have got none.
Write = Callable[[Mapping[int, Mapping[int, float]]], Collection[int]]


class Reports:
    """Values that are not written yet. Used by several threads at once."""

    def __init__(self, write: Write, interval: float = INTERVAL) -> None:
        self._write = write
        self._interval = interval
        self._waiting: dict[int, dict[int, float]] = {}
        self._ended: set[int] = set()
        self._due = -float("inf")  # when the next write may be made, on the monotonic clock
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # held during a write: whoever flushes waits for it

    def add(self, trial_id: int, step: int, value: float) -> bool:
        """Write a value now or soon; False if the trial is known to have ended."""
        with self._lock:
            if trial_id in self._ended:
                return False
            self._waiting.setdefault(trial_id, {})[step] = value
            wait = self._due - time.monotonic()
            if wait > 0:
                self._start_timer(wait)
                return True
        self.flush()
        return trial_id not in self._ended

    def _start_timer(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = threading.Timer(seconds, self._on_time)
            self._timer.daemon = True
            self._timer.start()

    def _on_time(self) -> None:
        # The values are kept: the next report, or the end of the trial, meets the error.
        with contextlib.suppress(Exception):
            self.flush()

    def flush(self) -> None:
        """Write all values that wait. If that fails, they wait on."""
        with self._writing:
            with self._lock:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                written, self._waiting = self._waiting, {}
            if not written:
                return
            try:
                ended = self._write(written)
            except BaseException:
                with self._lock:
                    for trial_id, values in written.items():
                        self._waiting[trial_id] = {**values, **self._waiting.get(trial_id, {})}
                raise
            finally:
                self._due = time.monotonic() + self._interval
            self._ended.update(ended)

    def forget(self, trial_id: int) -> None:
        """Note that no more values of a trial will come."""
        self._ended.discard(trial_id)
