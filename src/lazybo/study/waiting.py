"""Moved."""

from collections.abc import Callable

from lazybo.study.feed import Unannounced as Unannounced


def wait_for_earlier(is_awaited: Callable[[], bool], sync: Callable[[], object]) -> None:
    """Sync with the study until no earlier trial is awaited any more, or the time is over."""
    import time

    deadline, pause = time.monotonic() + 30.0, 0.0005
    while time.monotonic() < deadline and is_awaited():
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
        sync()
