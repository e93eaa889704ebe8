"""scikit-optimize: ``skopt.Optimizer`` with its defaults (Gaussian process, gp_hedge, 10 initial points)."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from skopt import Optimizer
from skopt.space import Categorical, Integer, Real

from benchmarks.peers.protocol import Parameter, Point, serve


class Skopt:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        self.kinds = [parameter[0] for parameter in space]
        self.optimizer = Optimizer(list(map(_dimension, space)), random_state=seed)

    def ask(self) -> Point:
        return [
            float(cell) if kind == "float" else int(cell)
            for cell, kind in zip(self.optimizer.ask(), self.kinds, strict=True)
        ]

    def tell(self, points: list[Point], values: list[float]) -> None:
        self.optimizer.tell(points, values)


def _dimension(parameter: Parameter) -> Any:
    kind, *rest = parameter
    if kind == "choice":
        return Categorical(list(range(rest[0])))
    prior = "log-uniform" if rest[2] else "uniform"
    return (Real if kind == "float" else Integer)(rest[0], rest[1], prior=prior)


if __name__ == "__main__":
    serve(Skopt, f"scikit-optimize {version('scikit-optimize')}")
