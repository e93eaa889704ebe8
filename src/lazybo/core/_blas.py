"""One BLAS thread while lazybo does linear algebra.

The matrices are small: more threads gain nothing, and they compete for the cores with evaluations and with each other.
We have seen runs that took thirty times as long.

`one_thread` guards every public function and method that does linear algebra. OpenBLAS without OpenMP, MKL and BLIS
have one setting for the whole process: the first thread that enters sets it, the last one that leaves restores it.
OpenBLAS with OpenMP has one setting for each thread, and each thread sets its own.

Only libraries that are loaded when the guard is first used are limited. NumPy and SciPy, which do all of the work here,
are imported by this module. A library that is loaded later (torch, for example) keeps its setting.

threadpoolctl lets only one thread at a time control OpenBLAS. The guard must work in every thread, so it sets the
number without that rule. If other code changes the number while lazybo works, its number stays.
"""

import os
import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy.linalg  # noqa: F401 (loads the library to be limited)
import scipy.linalg  # noqa: F401 (it may have a library of its own)
from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
T = TypeVar("T")


class _Guard:
    """Reentrant and without state of its own, so that one object serves all functions and threads."""

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function under the guard. Inside a guarded function, a call costs next to nothing more."""

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            if getattr(_here, "depth", 0):
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return guarded

    def __enter__(self) -> None:
        depth = getattr(_here, "depth", 0)
        if depth == 0:
            own, shared = _libraries()
            _here.before = _limit(own)
            with _lock:
                if _process.inside == 0:
                    _process.before = _limit(shared)
                _process.inside += 1
        _here.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        _here.depth -= 1
        if _here.depth == 0:
            with _lock:
                _process.inside -= 1
                if _process.inside == 0:
                    _restore(_process.before)
            _restore(_here.before)


def one_thread() -> _Guard:
    """Guard that limits BLAS to one thread: in a ``with``, or as a decorator. It may be nested."""
    return _guard


class _Process:
    """How many threads are inside a guard, and what to restore when the last one leaves."""

    def __init__(self) -> None:
        self.inside = 0
        self.before: _Numbers = []


_Numbers = list[tuple[Any, int]]
_guard = _Guard()
_here = threading.local()  # depth, before: of this thread
_process = _Process()
_lock = threading.Lock()


def _limit(libraries: list[Any]) -> _Numbers:
    """Set libraries with more threads to one thread; returns the numbers they had."""
    before = [(library, number) for library in libraries if (number := library.get_num_threads() or 1) > 1]
    for library, _ in before:
        _set(library, 1)
    return before


def _restore(before: _Numbers) -> None:
    for library, number in before:
        if library.get_num_threads() == 1:
            _set(library, number)


def _set(library: Any, number: int) -> None:
    getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


@cache
def _libraries() -> tuple[list[Any], list[Any]]:
    """The BLAS libraries with a setting for each thread, and those with one for the process. Slow: some ms."""
    found = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    own = [lib for lib in found if lib.internal_api == "openblas" and getattr(lib, "threading_layer", "") == "openmp"]
    return own, [library for library in found if library not in own]


def _after_fork() -> None:
    """Only the thread that forked exists in the child: the others will never leave the guard."""
    global _lock
    _lock = threading.Lock()
    inside = getattr(_here, "depth", 0) > 0
    if _process.inside > inside:
        _process.inside = int(inside)
        if not inside:
            _restore(_process.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
