"""Tasks on any `concurrent.futures.Executor` of the caller."""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from lazybo.run.engines.base import Engine, EngineBroken, OpenTasks, P, T


class ForeignEngine(Engine):
    """Runs tasks on an executor that the caller opened and will close; ``release`` closes one that we opened."""

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
            # A closed executor raises a plain RuntimeError.
            broken = isinstance(error, RuntimeError)
            self._open.end(future, error=self._broken(error) if broken else error)
        else:
            sent[0].add_done_callback(partial(self._finish, future))
        return future

    def stop(self, future: Future[Any]) -> bool:
        """End one task. False if it runs: a plain executor cannot end it."""
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
            f"the {name} cannot run tasks any more ({cause}). "
            "Give a new one, or executor='processes', which replaces workers that die."
        )
        error.__cause__ = cause
        return error
