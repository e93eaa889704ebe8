"""Rustuna (Optuna's interface in Rust): its TPE with its defaults, in a study in memory."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import rustuna

from benchmarks.peers.protocol import Parameter, Point, names, serve


class Tpe:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        self.space = dict(zip(names(space), space, strict=True))
        self.study = rustuna.create_study(sampler=rustuna.samplers.TPESampler(seed=seed))
        self.pending: int | None = None

    def ask(self) -> Point:
        trial = self.study.ask()
        self.pending = trial.number
        return [_suggested(trial, name, *parameter) for name, parameter in self.space.items()]

    def tell(self, points: list[Point], values: list[float]) -> None:
        """The pending trial gets its value; other points are trials that were completed elsewhere."""
        if self.pending is not None:
            self.study.tell(self.pending, values[0])
            self.pending = None
            return
        for point, value in zip(points, values, strict=True):
            self.study.enqueue_trial(dict(zip(self.space, point, strict=True)))
            self.ask()
            self.study.tell(self.pending, value)
            self.pending = None


def _suggested(trial: rustuna.Trial, name: str, kind: str, *range_: Any) -> Any:
    if kind == "choice":
        return trial.suggest_categorical(name, list(range(*range_)))
    low, high, log = range_
    return (trial.suggest_float if kind == "float" else trial.suggest_int)(name, low, high, log=log)


if __name__ == "__main__":
    serve(Tpe, f"rustuna {version('rustuna')}")
