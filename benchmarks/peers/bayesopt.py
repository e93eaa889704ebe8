"""bayesian-optimization: its own acquisition (upper confidence bound), 5 random points first, as its ``maximize``."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from bayes_opt import BayesianOptimization

from benchmarks.peers.protocol import Parameter, Point, names, serve


class BayesOpt:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        self.names = names(space)
        self.kinds = [parameter[0] for parameter in space]
        bounds = dict(zip(self.names, map(_bounds, space), strict=True))
        self.optimizer = BayesianOptimization(None, bounds, random_state=seed, verbose=0, allow_duplicate_points=True)
        self.told = 0

    def ask(self) -> Point:
        params: dict[str, Any] = self.optimizer.random_sample(1)[0] if self.told < 5 else self.optimizer.suggest()
        return [
            float(params[name]) if kind == "float" else int(params[name])
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]

    def tell(self, points: list[Point], values: list[float]) -> None:
        self.told += len(points)
        for point, value in zip(points, values, strict=True):
            typed = [str(cell) if kind == "choice" else cell for cell, kind in zip(point, self.kinds, strict=True)]
            self.optimizer.register(dict(zip(self.names, typed, strict=True)), -value)


def _bounds(parameter: Parameter) -> tuple[Any, ...]:
    kind, *rest = parameter
    if kind == "choice":
        return tuple(map(str, range(rest[0])))
    return (rest[0], rest[1], int) if kind == "int" else (rest[0], rest[1])


if __name__ == "__main__":
    serve(BayesOpt, f"bayesian-optimization {version('bayesian-optimization')}")
