"""Engines: one interface to everything that runs tasks."""

from lazybo.run.engines.base import Engine, EngineBroken, WorkerDied
from lazybo.run.engines.choose import make_engine

__all__ = ["Engine", "EngineBroken", "WorkerDied", "make_engine"]
