"""One BLAS thread while the optimiser works.

Its matrices are small: more threads gain nothing, and where evaluations run at the same time they fight with them,
which has been seen to cost four times the run.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_limiter: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread; the setting is the process's, so the first to come makes it, the last to go ends it."""
    global _inside, _limiter
    with _lock:
        if _inside == 0:
            _limiter = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limiter.restore_original_limits()


@cache
def _controller() -> ThreadpoolController:
    """Looking for the libraries takes a while; they stay where they are."""
    return ThreadpoolController()
