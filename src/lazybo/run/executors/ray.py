"""Tasks on a Ray cluster."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import ray
from ray import exceptions

from lazybo.run.executors.base import Engine, EngineBroken, OpenTasks, P, T, WorkerDied, local_address

# What Ray raises when a worker, its node or its result is lost.
DEATHS = (
    exceptions.WorkerCrashedError,
    exceptions.OutOfMemoryError,
    exceptions.NodeDiedError,
    exceptions.LocalRayletDiedError,
    exceptions.ObjectLostError,
)


def connect(address: str | None, workers: int | None) -> "RayEngine":
    """An engine on the cluster that this process is connected to, or with a connection of its own."""
    own = not ray.is_initialized()
    if own:
        ray.init(address=address)
    elif address is not None:
        raise ValueError(f"this process is connected to a Ray cluster: give executor='ray' instead of {address!r}")
    host = ray.util.get_node_ip_address() if address is None else local_address(urlsplit(address).hostname or "")
    return RayEngine(workers, host, release=ray.shutdown if own else lambda: None)


class RayEngine(Engine):
    """Runs tasks on a Ray cluster, one processor each. ``release`` closes a connection that we opened."""

    can_stop = True

    def __init__(self, workers: int | None, host: str, *, release: Callable[[], object]) -> None:
        self._workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.host = host
        self._release = release
        self._open = OpenTasks(self._abandon)
        # Without Ray's own retries: the caller decides about them.
        self._run = ray.remote(num_cpus=1, max_retries=0)(_call)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of one call, which waits in Ray's own queue."""
        sent: list[Any] = []
        future = self._open.add(sent)
        if not ray.is_initialized():
            # Ray would start a new cluster here without asking.
            self._open.end(future, error=_broken("ray.shutdown() was called"))
            return future
        try:
            sent.append(self._run.remote(partial(fn, *args, **kwargs)))
            sent[0].future().add_done_callback(partial(self._finish, future))
        except Exception as error:
            self._open.end(future, error=error)
        return future

    def stop(self, future: Future[Any]) -> bool:
        """End one task; if it runs, by killing its worker."""
        return self._open.stop(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks. The caller's connection stays open."""
        self._open.close(wait, cancel_futures, self._release)

    def _finish(self, future: Future[Any], running: Future[Any]) -> None:
        error = running.exception()
        if isinstance(error, exceptions.RayTaskError):
            # The exception of the task itself, caused by Ray's, which shows where on the worker it was raised.
            error.cause.__cause__ = error
            error = error.cause
        elif isinstance(error, DEATHS):
            died = WorkerDied(f"the Ray worker that ran the task died: {error}")
            died.__cause__ = error
            error = died
        elif isinstance(error, exceptions.RaySystemError):
            broken = _broken(error)
            broken.__cause__ = error
            error = broken
        self._open.end(future, result=None if error else running.result(), error=error)

    def _abandon(self, sent: list[Any]) -> bool:
        if ray.is_initialized():
            for running in sent:
                ray.cancel(running, force=True)
        return True


def _call(call: Callable[[], object]) -> object:
    return call()


def _broken(reason: object) -> EngineBroken:
    return EngineBroken(f"the connection to the Ray cluster is lost ({reason}). Call ray.init() again.")
