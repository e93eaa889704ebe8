"""What an engine promises, and the book that every engine keeps of its unfinished tasks.

An engine runs calls somewhere: here, in threads, in processes, on a cluster. A future that it gives out stays pending
until its task has ended, so it can be cancelled at any time, also while the task runs. `Engine.stop` does the same and
says whether the worker is free again.
"""

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Task = TypeVar("Task")


class WorkerDied(Exception):
    """The worker that ran the task is gone: it was killed, ran out of memory, left the interpreter or lost its node."""

    def __init__(self, message: str, attempts: int = 1) -> None:
        super().__init__(message)
        self.attempts = attempts  # how many times the engine itself has tried


class EngineBroken(Exception):
    """What the caller gave to run tasks on can run none any more. The message names the remedy."""


class Engine(Executor, ABC):
    """Something that runs tasks: a `concurrent.futures.Executor` that can also end a task that runs."""

    _workers: int
    remote: bool = True  # tasks run in other processes: arguments travel by pickle
    host: str = "127.0.0.1"  # where workers can reach a socket of this process
    can_stop: bool = False  # whether `stop` can free the worker of a task that runs

    @property
    def workers(self) -> int:
        """How many tasks it runs at once. A cluster may grow."""
        return self._workers

    @abstractmethod
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of one call. What goes wrong with the call, also on its way to a worker, is in the future."""

    @abstractmethod
    def stop(self, future: Future[Any]) -> bool:
        """End one task, queued or running; whether its worker is, or will shortly be, free.

        Its future ends as cancelled. Other tasks are not affected.
        """

    @abstractmethod
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks and, once those there are have ended, close what this engine opened and nothing else.

        With ``cancel_futures`` they are stopped, those that run as far as the engine can.
        """


class OpenTasks(Generic[Task]):
    """The tasks of an engine that have not ended, by their futures.

    Whoever takes a task out of the book ends its future. So each ends once, whichever comes first: its result, its
    failure, a cancellation. ``abandon`` ends a task that was cancelled and says whether its worker will be free.
    """

    def __init__(self, abandon: Callable[[Task], bool]) -> None:
        self._abandon = abandon
        self._changed = threading.Condition()
        self._tasks: dict[Future[Any], Task] = {}
        self._unsettled: set[Future[Any]] = set()  # those in the book, and those just taken out of it
        self._closed = False

    def add(self, task: Task) -> Future[Any]:
        """A new future for a task."""
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("this engine was shut down and takes no more tasks")
            self._tasks[future] = task
            self._unsettled.add(future)
        # The first callback of all, so that a later one may already shut the engine down.
        future.add_done_callback(self._settle)
        return future

    def end(self, future: Future[Any], *, result: object = None, error: BaseException | None = None) -> None:
        """End a future, unless it has ended."""
        # A future that is cancelled between the two steps is one that was cancelled in time.
        if self._take(future) is None or not future.set_running_or_notify_cancel():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def stop(self, future: Future[Any]) -> bool:
        """Cancel a future and abandon its task; whether its worker will be free, as that of an ended task is."""
        task = self._take(future)
        if task is None:
            return True
        try:
            return self._abandon(task)
        finally:
            future.cancel()
            future.set_running_or_notify_cancel()

    def close(self, wait: bool, cancel: bool, release: Callable[[], object]) -> None:
        """Take no more tasks, and call ``release`` once there are none: before returning if ``wait``."""
        with self._changed:
            self._closed = True
            futures = list(self._tasks)
        if cancel:
            # Those that wait, the latest, go first: stopping the others would only let them begin.
            for future in reversed(futures):
                self.stop(future)
        if wait:
            self._release(release)
        else:
            threading.Thread(target=self._release, args=(release,), name="lazybo-shutdown", daemon=True).start()

    def _release(self, release: Callable[[], object]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._unsettled)
        release()

    def _take(self, future: Future[Any]) -> Task | None:
        with self._changed:
            return self._tasks.pop(future, None)

    def _settle(self, future: Future[Any]) -> None:
        task = self._take(future)
        if task is not None:  # nobody here has ended it: the caller cancelled the future
            future.set_running_or_notify_cancel()
            self._abandon(task)
        with self._changed:
            self._unsettled.discard(future)
            self._changed.notify_all()


def local_address(peer: str) -> str:
    """The address of this machine on its way to another one."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 9))  # of a datagram socket: chooses the route and sends nothing
            return str(probe.getsockname()[0])
        except OSError:  # no way there
            return "127.0.0.1"
