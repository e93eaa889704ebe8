"""Tasks on the ranks of an MPI job: ``mpiexec -n 5 python -m mpi4py.futures program.py`` has four workers.

A rank that dies ends the whole job, as a rule: MPI sees to that, and no engine can prevent it. A task that runs cannot
be ended either: when it is stopped its rank stays busy, and the job ends no sooner than the task.
"""

import socket
from collections.abc import Callable
from functools import partial

from mpi4py.futures import MPIPoolExecutor

from lazybo.run.executors.base import local_address
from lazybo.run.executors.local import ForeignEngine


def start_pool(workers: int | None) -> ForeignEngine:
    """An engine with a pool of its own."""
    pool = MPIPoolExecutor(max_workers=workers)
    # Without waiting: all tasks have ended, but for those that were stopped and may run for ever.
    return use_pool(pool, workers, release=partial(pool.shutdown, wait=False))


def use_pool(
    pool: MPIPoolExecutor, workers: int | None, *, release: Callable[[], object] = lambda: None
) -> ForeignEngine:
    """An engine on the caller's pool, which stays open."""
    engine = ForeignEngine(pool, workers, release=release)
    engine.host = _own_address()
    return engine


def _own_address() -> str:
    """Where ranks on other nodes find this one: on the way to the world, or else under its name."""
    address = local_address("192.0.2.1")  # kept for documentation: an address of nobody
    if not address.startswith("127."):
        return address
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return address
