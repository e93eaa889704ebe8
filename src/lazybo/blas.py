"""One BLAS thread while lazybo does linear algebra.

Its matrices are small: more threads gain nothing, and they fight with evaluations, and with each other, for the cores.
That has been seen to cost thirty times the run.

`one_thread` stands at every door: public functions and methods that do linear algebra. OpenBLAS without OpenMP, MKL and
BLIS have one setting for the whole process: the first thread to come sets it, the last one to go restores it. OpenBLAS
with OpenMP has one for each thread, which each thread sets for itself.

Only libraries that are loaded when a door is first used are limited. NumPy and SciPy, which do all of the work here,
are imported by this module; a library that comes later (torch, for example) works for others, and keeps its setting.

threadpoolctl lets one thread at a time control OpenBLAS, and ignores all others. The guard must hold in every thread,
so it sets the number past that rule. Where others change the number while lazybo works, theirs stays.
"""

import os
import threading
from contextlib import ContextDecorator
from functools import cache
from typing import Any

import numpy.linalg  # noqa: F401 (loads the library to be limited)
import scipy.linalg  # noqa: F401 (it may have a library of its own)
from threadpoolctl import ThreadpoolController


class _Guard(ContextDecorator):
    """Reentrant and without state of its own, so that one will do for all doors and threads."""

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
    """How many threads are inside, and what to restore when the last of them leaves."""

    def __init__(self) -> None:
        self.inside = 0
        self.before: _Numbers = []


_Numbers = list[tuple[Any, int]]
_guard = _Guard()
_here = threading.local()  # depth, before: of this thread
_process = _Process()
_lock = threading.Lock()


def _limit(libraries: list[Any]) -> _Numbers:
    """Set those that have more threads to one; what they had before."""
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
    """The BLAS libraries with a setting for each thread, and those with one for the process. The search takes ms."""
    found = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    own = [lib for lib in found if lib.internal_api == "openblas" and getattr(lib, "threading_layer", "") == "openmp"]
    return own, [library for library in found if library not in own]


def _after_fork() -> None:
    """Only the thread that forked lives on in the child: the others will never leave."""
    global _lock
    _lock = threading.Lock()
    inside = getattr(_here, "depth", 0) > 0
    if _process.inside > inside:
        _process.inside = int(inside)
        if not inside:
            _restore(_process.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
