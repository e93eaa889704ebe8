"""Rustuna (Optuna's interface in Rust): its TPE with its defaults, in a study in memory."""

from collections.abc import Sequence
from importlib.metadata import version

import rustuna

from benchmarks.peers.protocol import Parameter, Point, names, serve


class Tpe:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        self.space = dict(zip(names(space), space, strict=True))
        self.study = rustuna.create_study(sampler=rustuna.samplers.TPESampler(seed=seed))
        self.pending: rustuna.Trial | None = None

    def ask(self) -> Point:
        self.pending = self.study.ask()
        return [self._suggested(self.pending, name) for name in self.space]

    def _suggested(self, trial: "rustuna.Trial", name: str) -> float:
        kind, *rest = self.space[name]
        if kind == "choice":
            return trial.suggest_categorical(name, list(range(rest[0])))
        low, high, log = rest
        return (trial.suggest_float if kind == "float" else trial.suggest_int)(name, low, high, log=log)

    def tell(self, points: list[Point], values: list[float]) -> None:
        """The pending trial gets its value; other points are trials that were completed elsewhere."""
        if self.pending is not None:
            self.study.tell(self.pending.number, values[0])
            self.pending = None
            return
        for point, value in zip(points, values, strict=True):
            self.study.enqueue_trial(dict(zip(self.space, point, strict=True)))
            self.ask()
            self.study.tell(self.pending.number, value)
            self.pending = None


if __name__ == "__main__":
    serve(Tpe, f"rustuna {version('rustuna')}")
