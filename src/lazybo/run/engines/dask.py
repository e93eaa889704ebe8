"""Tasks on a Dask cluster."""

import contextlib
import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import count
from typing import Any

import distributed

from lazybo.run.engines.base import Engine, EngineBroken, P, T, WorkerDied, caused, local_address

_logger = logging.getLogger(__name__)

# Seconds between two counts of the cluster's workers.
RECOUNT_INTERVAL = 1.0
# Seconds after which a worker that was told to exit counts as not responding.
EXIT_TIMEOUT = 10.0
# Seconds the scheduler may take to answer a question while a task is stopped, and to forget the task.
CANCEL_TIMEOUT = 5.0
# Seconds between two checks whether a local cluster has all its workers.
REPLACE_INTERVAL = 2.0
# Why Dask cancels tasks that can be sent again, in its words and in ours. A client that finds no scheduler within
# `distributed.comm.timeouts.connect` gives up, and cancels what was sent for another reason.
LOST = {
    "scheduler-restart": "the Dask cluster was restarted",
    "scheduler-connection-lost": "the connection to the Dask scheduler was lost",
}
# The resource that workers with devices have, as in Dask's documentation.
GPU = "GPU"


def start_cluster(workers: int, gpus: float) -> "DaskEngine":
    """An engine with a cluster of its own: processes on this machine, one thread each."""
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        resources={GPU: gpus} if gpus else None,
    )
    client = distributed.Client(cluster, set_as_default=False)
    return DaskEngine(client, workers, gpus=gpus, owned=(client, cluster))


def connect(address: str, workers: int | None, gpus: float) -> "DaskEngine":
    """An engine with a client of its own on an existing cluster."""
    client = distributed.Client(address, set_as_default=False)
    return DaskEngine(client, workers, gpus=gpus, owned=(client,))


class DaskEngine(Engine):
    """Runs tasks on the cluster of a client. At the end it closes what is ``owned``; the caller's client stays open.

    With ``gpus``, tasks run only on workers that have so much of the resource "GPU" left.
    Dask itself retries a task when its worker dies, on up to ``allowed-failures`` more workers.
    """

    def __init__(
        self,
        client: distributed.Client,
        workers: int | None,
        *,
        gpus: float = 0,
        owned: tuple[Any, ...] = (),
    ) -> None:
        if client.asynchronous:
            raise ValueError("a distributed.Client must not be asynchronous here: make it with asynchronous=False")
        super().__init__(workers or 1)
        self._client, self._owned, self._given = client, owned, workers
        known = self._ask("identity", seconds=None)["workers"].values()
        self._counted = -math.inf
        if gpus and known and not any(worker["resources"].get(GPU, 0) >= gpus for worker in known):
            raise ValueError(
                f"no worker of the Dask cluster has the resource {GPU} that devices need; start those that have "
                f"devices with: dask worker --nthreads 1 --resources {GPU}={gpus:g}"
            )
        self._resources = {GPU: gpus} if gpus else None
        self.can_stop = all(worker["nthreads"] == 1 and worker["nanny"] for worker in known)
        self._address = client.scheduler.address
        self.host = local_address(distributed.comm.get_address_host(self._address))
        # Keys sort in the order of submission.
        self._prefix = f"lazybo-{uuid.uuid4().hex}-"
        self._numbers = count()
        self._restarts: dict[str, threading.Thread] = {}  # by the worker's address
        self._closing = False
        self._keeper = _Keeper(client.cluster) if isinstance(client.cluster, distributed.LocalCluster) else None

    @property
    def workers(self) -> int:
        """As many as were asked for, or else the most threads that the cluster has had so far.

        A worker that is being restarted is missing only for a while.
        """
        due = time.monotonic() - self._counted > RECOUNT_INTERVAL
        if self._given is None and due and self._client.status == "running":
            self._counted = time.monotonic()
            # If the scheduler is gone, its tasks will fail and say so.
            with contextlib.suppress(OSError):
                self._workers = max(self._workers, sum(self._ask("ncores", workers=None).values()))
        return self._workers

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        sent: list[distributed.Future] = []
        future = self._add(sent)
        key = f"{self._prefix}{next(self._numbers):09}"
        try:
            # fifo_timeout: tasks run in the order of submission, however close together.
            call = partial(fn, *args, **kwargs)
            running = self._client.submit(call, key=key, pure=False, fifo_timeout="0 ms", resources=self._resources)
            sent.append(running)
            running.add_done_callback(partial(self._finish, future))
        except Exception as error:
            self._end(future, error=self._broken(error) if self._is_lost(error) else error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closing = len(self._owned) > 1  # the cluster ends, and its workers with it
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _release(self, *, at_once: bool) -> None:  # noqa: ARG002
        for thread in list(self._restarts.values()):
            thread.join()
        if self._keeper is not None:
            self._keeper.stop()
        for each in self._owned:
            each.close()

    def _finish(self, future: Future[Any], running: distributed.Future) -> None:
        try:
            self._end(future, result=running.result())
        except distributed.scheduler.KilledWorker as error:
            self._end(future, error=caused(WorkerDied(str(error), error.allowed_failures + 1), error))
        except CancelledError as error:
            # Tasks that we cancelled are not open any more, so the cluster was restarted or is lost.
            said = LOST.get(getattr(error, "reason", ""))
            self._end(future, error=self._broken(error) if said is None else caused(WorkerDied(said), error))
        except BaseException as error:
            self._end(future, error=self._broken(error) if self._is_lost(error) else error)
        finally:
            # Workers keep no results, so that they can be restarted.
            running.release()

    def _abandon(self, task: list[distributed.Future]) -> bool:
        try:
            return all(self._end_running(running) for running in task)
        except Exception as error:
            _logger.warning(f"A task could not be stopped: {error}")
            with contextlib.suppress(Exception):
                self._client.cancel(task)  # a suspended scheduler hears of it later
            return False

    def _end_running(self, running: distributed.Future) -> bool:
        """End one task. If it runs, its worker is restarted, unless that would cost something else.

        The worker stays if other tasks run there, if it holds data, or if no nanny would start it again.
        """
        # Submissions are sent in batches, which a question may overtake.
        self._wait_until(running, known=True)
        # Ask first where the task runs: the scheduler forgets a cancelled task.
        places = self._ask("processing", workers=None).items()
        address, keys = next(((address, keys) for address, keys in places if running.key in keys), ("", ()))
        self._client.cancel([running])
        # Before the scheduler has handled a cancellation, a queued task could still start.
        self._wait_until(running, known=False)
        worker = self._ask("identity")["workers"].get(address)
        if worker is None or address in self._restarts or self._closing:
            return True  # it waits at the scheduler, or its worker is ending anyway
        others = set(keys) - {running.key}
        in_line = worker["nthreads"] == 1 and all(key.startswith(self._prefix) for key in others)
        if in_line and any(key < running.key for key in others):
            self._wait_until_dropped(running.key, address)
            return True  # it waited behind another task of ours
        if (others and not in_line) or not worker["nanny"] or self._ask("has_what", workers=[address])[address]:
            return False
        # In another thread, since it may take seconds.
        thread = threading.Thread(target=self._restart, args=(address,), name="lazybo-restart", daemon=True)
        self._restarts[address] = thread
        thread.start()
        return True

    def _wait_until(self, running: distributed.Future, *, known: bool) -> None:
        """Wait until the scheduler knows a task that has not ended, or has forgotten it."""
        deadline = time.monotonic() + CANCEL_TIMEOUT
        while time.monotonic() < deadline and not (known and running.done()):
            if (self._ask("get_task_status", keys=[running.key])[running.key] is not None) == known:
                return
            time.sleep(0.002)

    def _wait_until_dropped(self, key: str, address: str) -> None:
        """Wait until the worker that had the task in line has heard of a cancellation: until then it could start."""
        deadline = time.monotonic() + CANCEL_TIMEOUT
        with contextlib.suppress(TimeoutError):  # a worker that does not respond
            while (left := deadline - time.monotonic()) > 0:
                if not self._run_there(address, left, _has, key).get(address):
                    return
                time.sleep(0.002)

    def _ask(self, question: str, seconds: float | None = CANCEL_TIMEOUT, **details: Any) -> Any:
        """What the scheduler answers. Raises a TimeoutError if it does not: it may be suspended."""
        return self._client.sync(getattr(self._client.scheduler, question), **details, callback_timeout=seconds)

    def _run_there(self, address: str, seconds: float, function: Callable[..., object], *args: Any) -> Any:
        """What a function returns on a worker, by its address. Raises a TimeoutError if the worker does not answer."""
        where = {"workers": [address], "on_error": "ignore", "callback_timeout": seconds}
        return self._client.sync(self._client._run, function, *args, **where)

    def _restart(self, address: str) -> None:
        """End the process of a worker; its nanny starts another.

        The worker exits by itself: a nanny that is asked to restart a worker whose task hangs waits for seconds, and
        sometimes gives the worker up. The nanny is asked only if the worker does not respond.
        """
        try:
            deadline = time.monotonic() + EXIT_TIMEOUT
            with contextlib.suppress(TimeoutError):  # a worker that is suspended does not even hear of it
                self._run_there(address, EXIT_TIMEOUT, _exit)
            while address in self._client.nthreads():
                if time.monotonic() > deadline:
                    self._client.restart_workers([address], raise_for_error=False)
                    break
                time.sleep(0.05)
        except Exception as error:
            _logger.warning(f"The Dask worker {address} of a task that was stopped could not be restarted: {error}")
        finally:
            del self._restarts[address]

    def _is_lost(self, error: BaseException) -> bool:
        """Whether the scheduler is gone. The client notices a moment after the first call that fails."""
        return self._client.status != "running" or isinstance(error, distributed.comm.CommClosedError)

    def _broken(self, cause: BaseException) -> EngineBroken:
        error = EngineBroken(
            f"the connection to the Dask cluster is lost: its scheduler at {self._address} does not answer. "
            "Start the cluster again and give a new Client or its address."
        )
        return caused(error, cause)


class _Keeper:
    """Replaces the workers that a local cluster has given up, until it is stopped.

    Dask looks for a worker by its name `lost-worker-timeout` (15 s) after it died. If there is none, Dask closes the
    nanny for good. So a worker is lost if it takes longer to start, or if its successor has just died too. The cluster
    still has its specification, and `scale` starts what is missing.
    """

    def __init__(self, cluster: distributed.LocalCluster) -> None:
        self._cluster = cluster
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lazybo-workers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._stopped.wait(REPLACE_INTERVAL):
            wanted = len(self._cluster.worker_spec)
            if len(self._cluster.workers) < wanted and self._cluster.status == distributed.Status.running:
                _logger.warning("Workers of the Dask cluster are lost; new ones are started.")
                self._cluster.scale(wanted)


def _exit() -> None:
    os._exit(1)


def _has(key: str, dask_worker: distributed.Worker) -> bool:
    """Whether a worker knows of a task; runs there."""
    return key in dask_worker.state.tasks
