"""Engines on this machine: in the caller's thread, in threads, in processes."""

import os
import signal
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from lazybo.run.engines.base import Engine, P, T, WorkerDied, caused

if TYPE_CHECKING:
    from loky import ProcessPoolExecutor

# Seconds between a worker's checks whether the process that started it still runs.
PARENT_CHECK_INTERVAL = 1.0


class SerialEngine(Engine):
    """Runs a task when it is submitted, in the caller's thread."""

    remote = False

    def __init__(self) -> None:
        super().__init__(workers=1)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future that has ended. KeyboardInterrupt is raised here, not kept in the future."""
        future = self._add("runs")
        try:
            result = fn(*args, **kwargs)
        except KeyboardInterrupt:
            self.stop(future)
            raise
        except BaseException as error:
            self._end(future, error=error)
        else:
            self._end(future, result=result)
        return future

    def _abandon(self, task: object) -> bool:  # noqa: ARG002
        return True  # the task of every future has ended


class _Task:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.future: Future[Any]
        self.stopped = False
        self.pool: ProcessPoolExecutor | None = None


class _SlotEngine(Engine):
    """Tasks wait in a queue for one of ``workers`` slots."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._slots = threading.Lock()  # held to change the two collections below
        self._waiting: deque[_Task] = deque()
        self._running: set[_Task] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        task = _Task(partial(fn, *args, **kwargs))
        task.future = self._add(task)
        with self._slots:
            self._waiting.append(task)
        self._advance()
        return task.future

    def _abandon(self, task: _Task) -> bool:
        """End one task and free its slot. Returns whether the task has really ended."""
        with self._slots:
            if task in self._waiting:
                self._waiting.remove(task)
                return True
        if not self._leave(task):
            return True
        ended = self._kill(task)
        self._advance()
        return ended

    def _leave(self, task: _Task) -> bool:
        """Free the slot of a task; False if it had none. `_advance` starts the next task."""
        with self._slots:
            if task not in self._running:
                return False
            self._running.remove(task)
            return True

    def _advance(self) -> None:
        while True:
            with self._slots:
                if not self._waiting or len(self._running) >= self._workers:
                    return
                task = self._waiting.popleft()
                self._running.add(task)
            self._start(task)

    @abstractmethod
    def _start(self, task: _Task) -> None:
        """Start a task that has a slot."""

    @abstractmethod
    def _kill(self, task: _Task) -> bool:
        """End a running task. Returns False if the engine cannot do that."""


class ThreadEngine(_SlotEngine):
    """Runs each task in its own daemon thread, so a task that hangs blocks neither a slot nor the interpreter's exit.

    A thread cannot be ended: when its task is stopped, the slot is free, but the thread continues.
    """

    remote = False

    def _start(self, task: _Task) -> None:
        try:
            threading.Thread(target=self._work, args=(task,), name="lazybo-task", daemon=True).start()
        except RuntimeError as error:  # the system cannot start another thread
            self._finish(task, error=error)

    def _work(self, task: _Task) -> None:
        try:
            result = task.call()
        except BaseException as error:
            self._finish(task, error=error)
        else:
            self._finish(task, result=result)

    def _finish(self, task: _Task, *, result: object = None, error: BaseException | None = None) -> None:
        if self._leave(task):
            self._advance()
        self._end(task.future, result=result, error=error)

    def _kill(self, task: _Task) -> bool:  # noqa: ARG002
        return False


class ProcessEngine(_SlotEngine):
    """Runs tasks in processes, with a pool of one process for each slot.

    A worker that dies loses only its own task, and stopping a task ends one process (and those it started). Workers
    start when they are needed, and are kept.
    """

    can_stop = True

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._lock = threading.Lock()
        self._idle: list[ProcessPoolExecutor] = []
        self._retiring: list[threading.Thread] = []

    def _start(self, task: _Task) -> None:
        try:
            with self._lock:
                # Hold the lock: a pool that is shut down while it starts its process cannot be closed properly.
                if task.stopped:
                    return
                task.pool, running = self._send(task.call)
        except Exception as error:  # the system has no processes, memory or file descriptors left
            if self._leave(task):
                self._end(task.future, error=error)
        else:
            running.add_done_callback(partial(self._finish, task))

    def _send(self, call: Callable[[], object]) -> "tuple[ProcessPoolExecutor, Future[Any]]":
        """Start a call in an idle worker or a new one."""
        while True:
            pool = self._idle.pop() if self._idle else _new_pool()
            try:
                with _no_interrupts():
                    return pool, pool.submit(call)
            except BrokenExecutor:
                # Its worker died while it was idle, so no task is lost.
                self._retire(pool, kill=True)

    def _finish(self, task: _Task, running: Future[Any]) -> None:
        if not self._leave(task):
            return  # it was stopped
        error = running.exception()
        assert task.pool is not None, "a task that ended was sent"
        with self._lock:
            if isinstance(error, BrokenExecutor):
                self._retire(task.pool, kill=True)
                text = "the process that ran the task died: " + " ".join(str(error).split())
                error = caused(WorkerDied(text), error)
            else:
                self._idle.append(task.pool)
        self._advance()
        self._end(task.future, result=None if error else running.result(), error=error)

    def _kill(self, task: _Task) -> bool:
        with self._lock:
            task.stopped = True
            if task.pool is not None:
                self._retire(task.pool, kill=True)
        return True

    def _retire(self, pool: "ProcessPoolExecutor", *, kill: bool) -> None:
        """Shut a pool down in the background, since that waits for the pool's own thread, which may be this one."""
        thread = threading.Thread(target=pool.shutdown, kwargs={"kill_workers": kill}, name="lazybo-retire")
        thread.start()
        self._retiring = [*(t for t in self._retiring if t.is_alive()), thread]

    def _release(self, *, at_once: bool) -> None:
        with self._lock:
            while self._idle:
                self._retire(self._idle.pop(), kill=at_once)
            retiring = self._retiring
        for thread in retiring:
            thread.join()


def _new_pool() -> "ProcessPoolExecutor":
    from loky import ProcessPoolExecutor

    return ProcessPoolExecutor(
        max_workers=1,
        timeout=None,
        initializer=_begin_worker,
        initargs=(os.getpid(),),
        # A worker that keeps its data grows. That is no memory leak, so loky must not restart it.
        env={"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"},
    )


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes started in this block ignore Ctrl-C, which the terminal sends to all of its processes."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Otherwise the resource tracker would start with the first process, and unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(parent: int) -> None:
    """Ignore Ctrl-C, which the driver handles, and exit when the driver is gone, since nobody would get the result."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_INTERVAL)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, name="lazybo-watch", daemon=True).start()
