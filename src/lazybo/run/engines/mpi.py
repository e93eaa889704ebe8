"""Tasks on the ranks of an MPI job: ``mpiexec -n 5 python -m mpi4py.futures program.py`` has four workers.

MPI usually ends the whole job when a rank dies, and no engine can prevent that. A running task cannot be ended either:
when it is stopped, its rank stays busy, and the job ends no sooner than the task.
"""

import socket
from collections.abc import Callable
from functools import partial

from mpi4py.futures import MPIPoolExecutor

from lazybo.run.engines.base import ForeignEngine, local_address


def start_pool(workers: int | None) -> ForeignEngine:
    """An engine with a pool of its own."""
    pool = MPIPoolExecutor(max_workers=workers)
    # Don't wait: only tasks that were stopped may still run, and they may run for ever.
    return use_pool(pool, workers, release=partial(pool.shutdown, wait=False))


def use_pool(
    pool: MPIPoolExecutor, workers: int | None, *, release: Callable[[], object] = lambda: None
) -> ForeignEngine:
    """An engine on the caller's pool, which stays open."""
    engine = ForeignEngine(pool, workers, release=release)
    engine.host = _own_address()
    return engine


def _own_address() -> str:
    """Where other nodes reach this rank: its address on the default route, or the one of its host name."""
    address = local_address("192.0.2.1")  # reserved for documentation, used by no host
    if not address.startswith("127."):
        return address
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return address
