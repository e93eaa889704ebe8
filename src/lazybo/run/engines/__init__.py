"""Engines: one interface to everything that runs tasks. `make_engine` finds the engine for an ``executor``."""

from concurrent.futures import Executor
from importlib import import_module
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from lazybo.core import checks, texts
from lazybo.run.engines.base import Engine, EngineBroken, ForeignEngine, WorkerDied
from lazybo.run.engines.local import ProcessEngine, SerialEngine, ThreadEngine

__all__ = ["LOCAL", "Engine", "EngineBroken", "SerialEngine", "WorkerDied", "is_cluster", "make_engine"]

# The names of engines on this machine and on others, and how those with an address begin.
LOCAL = ("serial", "threads", "processes")
CLUSTERS = ("dask", "ray", "mpi")
ADDRESSES = ("dask://", "ray://")
PACKAGES = {"dask": "distributed", "ray": "ray", "mpi": "mpi4py"}
ACCEPTED = (
    "executor must be None, 'serial', 'threads', 'processes', 'dask', 'dask://host:port', 'ray', 'ray://host:port', "
    "'mpi', a distributed.Client, the module ray, an MPIPoolExecutor or another concurrent.futures.Executor"
)


def make_engine(executor: object, n_parallel: int | None, gpus: float = 0) -> Engine:
    """The engine for ``executor``, with ``n_parallel`` tasks at once (default: as many as it has workers).

    Without an executor, tasks run in this thread, or in ``n_parallel`` processes. Clusters reserve ``gpus`` for a task.
    """
    n_parallel = None if n_parallel is None else checks.whole("n_parallel", n_parallel, 1)
    if executor is None:
        executor = "serial" if n_parallel in (None, 1) else "processes"
    engine = _named(executor, n_parallel, gpus) if isinstance(executor, str) else _given(executor, n_parallel, gpus)
    if engine is None:
        error = ValueError if isinstance(executor, str) else TypeError
        raise error(f"{ACCEPTED}; got {executor!r}")
    return engine


def is_cluster(name: str) -> bool:
    """Whether the engine with this name may run tasks on other machines. Raises a ValueError if there is none."""
    if name in LOCAL:
        return False
    if name in CLUSTERS or name.startswith(ADDRESSES):
        return True
    addresses = " or ".join(f"{each}host:port" for each in ADDRESSES)
    named = ", ".join((*LOCAL, *CLUSTERS, addresses))
    raise ValueError(f"executor must be one of {named}, not {name!r}{texts.nearest(name, (*LOCAL, *CLUSTERS))}")


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        is_complete = bool(parts.hostname and parts.port)
    except ValueError:  # the port is no number
        is_complete = False
    if not is_complete:
        raise ValueError(f"executor must have a host and a port, such as dask://10.0.0.1:8786, not {address!r}")


def _named(name: str, n_parallel: int | None, gpus: float) -> Engine | None:
    if name.startswith(ADDRESSES):
        _check_address(name)
    if name == "serial":
        if n_parallel not in (None, 1):
            raise ValueError(f"executor='serial' runs one task at a time, not n_parallel={n_parallel}")
        return SerialEngine()
    if name == "threads":
        return ThreadEngine(n_parallel or _cpu_count())
    if name == "processes":
        return ProcessEngine(n_parallel or _cpu_count())
    if name == "dask":
        return _optional("dask").start_cluster(n_parallel or _cpu_count(), gpus)
    if name.startswith("dask://"):
        return _optional("dask").connect("tcp://" + name.removeprefix("dask://"), n_parallel, gpus)
    if name == "ray" or name.startswith("ray://"):
        return _optional("ray").connect(None if name == "ray" else name, n_parallel, gpus)
    if name == "mpi":
        return _optional("mpi").start_pool(n_parallel)
    return None


def _given(executor: object, n_parallel: int | None, gpus: float) -> Engine | None:
    # Compare class names, so that only packages the caller has imported are imported here.
    if isinstance(executor, ModuleType) and executor.__name__ == "ray":
        return _optional("ray").connect(None, n_parallel, gpus)
    if _is_a(executor, "distributed.", "Client"):
        return _optional("dask").DaskEngine(executor, n_parallel, gpus=gpus)
    if _is_a(executor, "mpi4py.futures", "MPIPoolExecutor"):
        return _optional("mpi").use_pool(executor, n_parallel)
    return ForeignEngine(executor, n_parallel) if isinstance(executor, Executor) else None


def _is_a(thing: object, module: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith(module) for kind in type(thing).__mro__)


def _optional(name: str) -> Any:
    try:
        return import_module(f"lazybo.run.engines.{name}")
    except ImportError as error:
        raise ImportError(f"executor={name!r} needs {PACKAGES[name]}: pip install {PACKAGES[name]}") from error


def _cpu_count() -> int:
    """The processors available to this process, within its affinity and container limits."""
    from loky import cpu_count

    return int(cpu_count())
