"""Tasks on a Ray cluster.

Ray ends a running task by killing its worker. If the task ends at that moment, Ray may already have given the same
worker another task, which dies with it. So a task whose worker dies shortly after a stop is sent again.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import ray
from ray import exceptions

from lazybo.run.engines.base import Engine, EngineBroken, P, T, WorkerDied, caused, local_address

# What Ray raises when a worker, its node or its result is lost.
DEATHS = (
    exceptions.WorkerCrashedError,
    exceptions.OutOfMemoryError,
    exceptions.NodeDiedError,
    exceptions.LocalRayletDiedError,
    exceptions.ObjectLostError,
)

# A worker that dies within KILL_SECONDS of a stop may have been killed by it. A task is sent up to MAX_ATTEMPTS times.
KILL_SECONDS = 10.0
MAX_ATTEMPTS = 3


@dataclass
class _Task:
    """A call, and the references of its attempts; the last one counts."""

    call: Callable[[], object]
    sent: list[Any] = field(default_factory=list)


def connect(address: str | None, workers: int | None, gpus: float) -> "RayEngine":
    """An engine on the cluster that this process is connected to, or with a connection of its own."""
    own = not ray.is_initialized()
    if own:
        ray.init(address=address)
    elif address is not None:
        raise ValueError(f"this process is connected to a Ray cluster: give executor='ray' instead of {address!r}")
    host = ray.util.get_node_ip_address() if address is None else local_address(urlsplit(address).hostname or "")
    if gpus and not ray.cluster_resources().get("GPU"):
        if own:
            ray.shutdown()
        raise ValueError(
            "the Ray cluster has no GPU that devices could be; start it with ray.init(num_gpus=...) or "
            "ray start --num-gpus=..."
        )
    return RayEngine(workers, host, gpus=gpus, owns_connection=own)


class RayEngine(Engine):
    """Runs tasks on a Ray cluster, one processor each. The caller's connection stays open.

    With ``gpus``, Ray chooses the devices of a task, and shows it only these.
    """

    can_stop = True
    assigns_devices = True

    def __init__(self, workers: int | None, host: str, *, gpus: float = 0, owns_connection: bool) -> None:
        super().__init__(workers or max(1, int(ray.cluster_resources().get("CPU", 1))))
        self.host = host
        self._owns_connection = owns_connection
        self._killed_at = -float("inf")
        # Ray itself must not retry: the caller decides about that.
        self._run = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_call)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        task = _Task(partial(fn, *args, **kwargs))
        future = self._add(task)
        self._send(task, future)
        return future

    def _send(self, task: _Task, future: Future[Any]) -> None:
        if not ray.is_initialized():
            # Ray would start a new cluster here without asking.
            self._end(future, error=_broken("ray.shutdown() was called"))
            return
        try:
            task.sent.append(self._run.remote(task.call))
            task.sent[-1].future().add_done_callback(partial(self._finish, task, future))
        except Exception as error:
            self._end(future, error=error)

    def _finish(self, task: _Task, future: Future[Any], running: Future[Any]) -> None:
        error = running.exception()
        if isinstance(error, exceptions.WorkerCrashedError) and self._send_again(task, future):
            return
        if isinstance(error, exceptions.RayTaskError):
            # The exception of the task itself. Ray's, its cause here, shows where on the worker it was raised.
            error = caused(error.cause, error)
        elif isinstance(error, DEATHS):
            error = caused(WorkerDied(f"the Ray worker that ran the task died: {error}", len(task.sent)), error)
        elif isinstance(error, exceptions.RaySystemError):
            error = caused(_broken(error), error)
        self._end(future, result=None if error else running.result(), error=error)

    def _send_again(self, task: _Task, future: Future[Any]) -> bool:
        """Resend a task whose worker may have been killed because of another task."""
        by_us = time.monotonic() - self._killed_at < KILL_SECONDS
        if future.done() or not by_us or len(task.sent) >= MAX_ATTEMPTS:
            return False
        self._send(task, future)
        if future.cancelled():  # in the meantime
            self._abandon(task)
        return True

    def _abandon(self, task: _Task) -> bool:
        if ray.is_initialized() and task.sent:
            self._killed_at = time.monotonic()
            ray.cancel(task.sent[-1], force=True)
        return True

    def _release(self, *, at_once: bool) -> None:  # noqa: ARG002
        if self._owns_connection:
            ray.shutdown()


def _call(call: Callable[[], object]) -> object:
    return call()


def _broken(reason: object) -> EngineBroken:
    return EngineBroken(f"the connection to the Ray cluster is lost ({reason}). Call ray.init() again.")
