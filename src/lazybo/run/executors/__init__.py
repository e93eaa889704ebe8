"""Engines: one interface to everything that runs tasks."""

from lazybo.run.executors.base import Engine, EngineBroken, WorkerDied
from lazybo.run.executors.choose import make_engine

__all__ = ["Engine", "EngineBroken", "WorkerDied", "make_engine"]
