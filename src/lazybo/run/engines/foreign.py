"""Tasks on any `concurrent.futures.Executor` of the caller."""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from lazybo.run.engines.base import Engine, EngineBroken, P, T, caused


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
        """A future of one call, which waits in the executor's own queue."""
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
