"""`Engine`, the interface of all executors, and `ForeignEngine` for any that a caller has.

An engine runs calls in this thread, in threads, in processes or on a cluster. Its futures stay pending until the task
has ended, so they can be cancelled at any time, even while the task runs. `Engine.stop` does the same and also says
whether the worker is free again.
"""

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class WorkerDied(Exception):
    """The worker that ran the task is gone: it was killed, ran out of memory, left the interpreter or lost its node."""

    def __init__(self, message: str, attempts: int = 1) -> None:
        super().__init__(message)
        self.attempts = attempts  # how many times the engine itself has tried


class EngineBroken(Exception):
    """The caller's executor cannot run tasks any more. The message says what to do."""


def caused(error: E, cause: BaseException) -> E:
    """``error`` with its cause, for a future that fails with it."""
    error.__cause__ = cause
    return error


class Engine(Executor, ABC):
    """Something that runs tasks: a `concurrent.futures.Executor` that can also end a running task.

    Each future ends once, by what comes first: its result, its failure, or a cancellation. The thread that takes a task
    out of the table of open tasks ends its future.
    """

    remote: bool = True  # tasks run in other processes, so arguments are pickled
    host: str = "127.0.0.1"  # where workers can reach a socket of this process
    can_stop: bool = False  # whether `stop` can free the worker of a running task
    assigns_devices: bool = False  # whether it chooses the devices of a task and sets the environment

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._changed = threading.Condition()
        self._tasks: dict[Future[Any], object] = {}  # those that have not ended
        self._unsettled: set[Future[Any]] = set()  # of these tasks, and of those just taken out of the table
        self._closed = False

    @property
    def workers(self) -> int:
        """How many tasks it runs at once. A cluster may grow."""
        return self._workers

    @abstractmethod
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of one call. Every error, including one from sending the call to a worker, is in the future."""

    def stop(self, future: Future[Any]) -> bool:
        """End one task, queued or running, and cancel its future. Returns whether its worker is free, or will be soon.

        Other tasks are not affected.
        """
        task = self._take(future)
        if task is None:
            return True
        try:
            return self._abandon(task)
        finally:
            future.cancel()
            future.set_running_or_notify_cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks. When the open ones have ended, close what this engine opened.

        ``cancel_futures`` stops the open tasks; running ones only if the engine can do that.
        """
        with self._changed:
            self._closed = True
            futures = list(self._tasks)
        if cancel_futures:
            # Start with the latest: stopping a running task would only start a waiting one.
            for future in reversed(futures):
                self.stop(future)

        def release() -> None:
            with self._changed:
                self._changed.wait_for(lambda: not self._unsettled)
            self._release(at_once=cancel_futures)

        if wait:
            release()
        else:
            threading.Thread(target=release, name="lazybo-shutdown", daemon=True).start()

    @abstractmethod
    def _abandon(self, task: Any) -> bool:
        """End a cancelled task. Returns whether its worker will be free."""

    def _release(self, *, at_once: bool) -> object:
        """Close what this engine opened; ``at_once``: kill workers."""

    # ------------------------------------------------------- for the engines themselves

    def _add(self, task: object) -> Future[Any]:
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("this engine was shut down and takes no more tasks")
            self._tasks[future] = task
            self._unsettled.add(future)
        # This callback is the first, so that a later one may already shut the engine down.
        future.add_done_callback(self._settle)
        return future

    def _end(self, future: Future[Any], *, result: object = None, error: BaseException | None = None) -> None:
        # If the future is cancelled between the two steps, it ends as cancelled.
        if self._take(future) is None or not future.set_running_or_notify_cancel():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _take(self, future: Future[Any]) -> object | None:
        with self._changed:
            return self._tasks.pop(future, None)

    def _settle(self, future: Future[Any]) -> None:
        task = self._take(future)
        if task is not None:  # the caller cancelled the future
            future.set_running_or_notify_cancel()
            self._abandon(task)
        with self._changed:
            self._unsettled.discard(future)
            self._changed.notify_all()


def local_address(peer: str) -> str:
    """The address of this machine on the route to another one."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 9))  # connecting a datagram socket chooses the route and sends nothing
            return str(probe.getsockname()[0])
        except OSError:  # no route
            return "127.0.0.1"


class ForeignEngine(Engine):
    """Runs tasks on an executor that the caller opened and will close; ``release`` closes one that we opened."""

    def __init__(
        self, executor: Executor, workers: int | None, *, release: Callable[[], object] = lambda: None
    ) -> None:
        own = executor.workers if isinstance(executor, Engine) else getattr(executor, "_max_workers", None)
        super().__init__(workers or (own if isinstance(own, int) else 1))
        self._executor, self._closing = executor, release
        self._stop: Callable[[Future[Any]], bool] = Future.cancel
        self.remote = not isinstance(executor, ThreadPoolExecutor)
        if isinstance(executor, Engine):
            self.remote, self.host, self.can_stop = executor.remote, executor.host, executor.can_stop
            self._stop = executor.stop

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        sent: list[Future[Any]] = []
        future = self._add(sent)
        try:
            sent.append(self._executor.submit(fn, *args, **kwargs))
        except Exception as error:
            # A closed executor raises a plain RuntimeError.
            broken = isinstance(error, RuntimeError)
            self._end(future, error=self._broken(error) if broken else error)
        else:
            sent[0].add_done_callback(partial(self._finish, future))
        return future

    def _finish(self, future: Future[Any], running: Future[Any]) -> None:
        if running.cancelled():
            self.stop(future)
            return
        error = running.exception()
        if isinstance(error, BrokenExecutor):
            error = self._broken(error)
        self._end(future, result=None if error else running.result(), error=error)

    def _abandon(self, task: list[Future[Any]]) -> bool:
        """False if the task runs: a plain executor cannot end it."""
        return all(self._stop(running) for running in task)

    def _release(self, *, at_once: bool) -> None:  # noqa: ARG002
        self._closing()

    def _broken(self, cause: BaseException) -> EngineBroken:
        name = type(self._executor).__name__
        error = EngineBroken(
            f"the {name} cannot run tasks any more ({cause}). "
            "Give a new one, or executor='processes', which replaces workers that die."
        )
        return caused(error, cause)
