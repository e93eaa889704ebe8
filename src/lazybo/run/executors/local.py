"""Engines of this machine: at once, in threads, in processes, and on whatever executor the caller brings."""

import os
import signal
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from lazybo.run.executors.base import Engine, EngineBroken, OpenTasks, P, T, WorkerDied

if TYPE_CHECKING:
    from loky import ProcessPoolExecutor

# How often a worker looks whether the process that started it is still there, in seconds.
WATCH = 1.0


class SerialEngine(Engine):
    """Runs a task when it is submitted, in the caller's thread."""

    _workers = 1
    remote = False

    def __init__(self) -> None:
        self._open = OpenTasks[str](lambda _: True)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future that has ended. An interrupt from the keyboard is the caller's, not the task's."""
        future = self._open.add("runs")
        try:
            result = fn(*args, **kwargs)
        except KeyboardInterrupt:
            self._open.stop(future)
            raise
        except BaseException as error:
            self._open.end(future, error=error)
        else:
            self._open.end(future, result=result)
        return future

    def stop(self, future: Future[Any]) -> bool:
        """True: when a caller has a future, its task has ended."""
        return self._open.stop(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks."""
        self._open.close(wait, cancel_futures, lambda: None)


class _Task:
    """A call that waits for a slot or has one."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.future: Future[Any]
        self.stopped = False
        self.pool: ProcessPoolExecutor | None = None


class _SlotEngine(Engine):
    """Tasks that queue for one of ``workers`` slots."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._open = OpenTasks(self._abandon)
        self._line = _Line(workers, self._start)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of one call, which waits for a slot."""
        task = _Task(partial(fn, *args, **kwargs))
        task.future = self._open.add(task)
        self._line.join(task)
        return task.future

    def stop(self, future: Future[Any]) -> bool:
        """End one task, and free its slot; whether it runs no more."""
        return self._open.stop(future)

    def _abandon(self, task: _Task) -> bool:
        if self._line.drop(task) or not self._line.leave(task):
            return True
        ended = self._kill(task)
        self._line.advance()
        return ended

    @abstractmethod
    def _start(self, task: _Task) -> None:
        """Begin a task that has got a slot."""

    @abstractmethod
    def _kill(self, task: _Task) -> bool:
        """End a task that runs; whether that can be done."""


class ThreadEngine(_SlotEngine):
    """Runs each task in a daemon thread of its own, so that one that hangs keeps neither a slot nor the interpreter.

    A thread cannot be ended: one that is stopped gives up its slot and goes on in vain.
    """

    remote = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks."""
        self._open.close(wait, cancel_futures, lambda: None)

    def _start(self, task: _Task) -> None:
        try:
            threading.Thread(target=self._work, args=(task,), name="lazybo-task", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._finish(task, error=error)

    def _work(self, task: _Task) -> None:
        try:
            result = task.call()
        except BaseException as error:
            self._finish(task, error=error)
        else:
            self._finish(task, result=result)

    def _finish(self, task: _Task, *, result: object = None, error: BaseException | None = None) -> None:
        if self._line.leave(task):
            self._line.advance()
        self._open.end(task.future, result=result, error=error)

    def _kill(self, task: _Task) -> bool:  # noqa: ARG002
        return False


class ProcessEngine(_SlotEngine):
    """Runs tasks in processes, one pool of one process for each slot.

    So a worker that dies takes only its own task with it, and stopping a task ends one process (and those it started).
    Workers start when they are needed, and are kept.
    """

    can_stop = True

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._lock = threading.Lock()
        self._idle: list[ProcessPoolExecutor] = []
        self._retiring: list[threading.Thread] = []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks, and end the workers: those of cancelled tasks at once."""
        self._open.close(wait, cancel_futures, partial(self._release, kill=cancel_futures))

    def _start(self, task: _Task) -> None:
        try:
            with self._lock:
                # Under the lock: a pool that is shut down while it starts its process is left in pieces.
                if task.stopped:
                    return
                task.pool, running = self._send(task.call)
        except Exception as error:  # the system has no process, memory or file left
            if self._line.leave(task):
                self._open.end(task.future, error=error)
        else:
            running.add_done_callback(partial(self._finish, task))

    def _send(self, call: Callable[[], object]) -> "tuple[ProcessPoolExecutor, Future[Any]]":
        """Begin a call in an idle worker or a new one."""
        while True:
            pool = self._idle.pop() if self._idle else _new_pool()
            try:
                with _no_interrupts():
                    return pool, pool.submit(call)
            except BrokenExecutor:
                # Its worker died while it had nothing to do: that is no task's fault.
                self._retire(pool, kill=True)

    def _finish(self, task: _Task, running: Future[Any]) -> None:
        if not self._line.leave(task):
            return  # it was stopped
        error = running.exception()
        assert task.pool is not None, "a task that ended was sent"
        with self._lock:
            if isinstance(error, BrokenExecutor):
                self._retire(task.pool, kill=True)
                death = WorkerDied("the process that ran the task died: " + " ".join(str(error).split()))
                death.__cause__ = error
                error = death
            else:
                self._idle.append(task.pool)
        self._line.advance()
        self._open.end(task.future, result=None if error else running.result(), error=error)

    def _kill(self, task: _Task) -> bool:
        with self._lock:
            task.stopped = True
            if task.pool is not None:
                self._retire(task.pool, kill=True)
        return True

    def _retire(self, pool: "ProcessPoolExecutor", *, kill: bool) -> None:
        """End a pool in the background: this may be its own thread, which ending a pool waits for."""
        thread = threading.Thread(target=pool.shutdown, kwargs={"kill_workers": kill}, name="lazybo-retire")
        thread.start()
        self._retiring = [*(t for t in self._retiring if t.is_alive()), thread]

    def _release(self, *, kill: bool) -> None:
        with self._lock:
            while self._idle:
                self._retire(self._idle.pop(), kill=kill)
            retiring = self._retiring
        for thread in retiring:
            thread.join()


class ForeignEngine(Engine):
    """Runs tasks on another executor, which the caller opened and will close; ``release`` closes one of our own."""

    def __init__(
        self, executor: Executor, workers: int | None, *, release: Callable[[], object] = lambda: None
    ) -> None:
        own = getattr(executor, "_max_workers", None)
        self._workers = workers or (own if isinstance(own, int) else 1)
        self.remote = not isinstance(executor, ThreadPoolExecutor)
        stop: Callable[[Future[Any]], bool] = Future.cancel
        if isinstance(executor, Engine):
            self._workers = workers or executor.workers
            self.remote, self.host, self.can_stop = executor.remote, executor.host, executor.can_stop
            stop = executor.stop
        self._executor = executor
        self._release = release
        self._open = OpenTasks[list[Future[Any]]](lambda sent: all(stop(running) for running in sent))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of one call, which waits in the executor's own queue."""
        sent: list[Future[Any]] = []
        future = self._open.add(sent)
        try:
            sent.append(self._executor.submit(fn, *args, **kwargs))
        except Exception as error:
            # An executor that was closed says so by a plain RuntimeError.
            broken = isinstance(error, RuntimeError)
            self._open.end(future, error=self._broken(error) if broken else error)
        else:
            sent[0].add_done_callback(partial(self._finish, future))
        return future

    def stop(self, future: Future[Any]) -> bool:
        """End one task. False if it runs: an executor of this kind lets it run on."""
        return self._open.stop(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks. The caller's executor stays open."""
        self._open.close(wait, cancel_futures, self._release)

    def _finish(self, future: Future[Any], running: Future[Any]) -> None:
        if running.cancelled():
            self._open.stop(future)
            return
        error = running.exception()
        if isinstance(error, BrokenExecutor):
            error = self._broken(error)
        self._open.end(future, result=None if error else running.result(), error=error)

    def _broken(self, cause: BaseException) -> EngineBroken:
        name = type(self._executor).__name__
        error = EngineBroken(
            f"the {name} runs nothing any more ({cause}). "
            "Give a new one, or executor='processes', which replaces workers that die."
        )
        error.__cause__ = cause
        return error


class _Line:
    """Tasks that wait for one of some slots, first come first served."""

    def __init__(self, slots: int, start: Callable[[_Task], None]) -> None:
        self._slots = slots
        self._start = start
        self._lock = threading.Lock()
        self._waiting: deque[_Task] = deque()
        self._running: set[_Task] = set()

    def join(self, task: _Task) -> None:
        """Queue up."""
        with self._lock:
            self._waiting.append(task)
        self.advance()

    def drop(self, task: _Task) -> bool:
        """Whether the task still waited: it does so no more."""
        with self._lock:
            if task not in self._waiting:
                return False
            self._waiting.remove(task)
            return True

    def leave(self, task: _Task) -> bool:
        """Whether the task still had a slot: it is free then, for `advance` to give away."""
        with self._lock:
            if task not in self._running:
                return False
            self._running.remove(task)
            return True

    def advance(self) -> None:
        """Start tasks in the slots that are free."""
        while True:
            with self._lock:
                if not self._waiting or len(self._running) >= self._slots:
                    return
                task = self._waiting.popleft()
                self._running.add(task)
            self._start(task)


def _new_pool() -> "ProcessPoolExecutor":
    from loky import ProcessPoolExecutor

    return ProcessPoolExecutor(
        max_workers=1,
        timeout=None,
        initializer=_begin_worker,
        initargs=(os.getpid(),),
        # A worker that grows, for it keeps its data, is no leak to be plugged by a restart.
        env={"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"},
    )


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes that are started in here are born deaf to Ctrl-C, which reaches all that share the terminal."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Otherwise it starts with the first of them, and lifts the block.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the driver, and end when it is gone: what it cannot receive is not worth computing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), name="lazybo-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)
