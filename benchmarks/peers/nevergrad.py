"""nevergrad: ``NGOpt``, which chooses an algorithm by the space and the budget."""

from collections.abc import Sequence
from typing import Any

import nevergrad as ng

from benchmarks.peers.protocol import Parameter, Point, serve


class Nevergrad:
    def __init__(self, space: Sequence[Parameter], seed: int, budget: int) -> None:
        self.kinds = [parameter[0] for parameter in space]
        self.space = ng.p.Tuple(*map(_dimension, space))
        self.space.random_state.seed(seed)
        self.optimizer = ng.optimizers.NGOpt(self.space, budget=budget, num_workers=1)
        self.pending: Any = None

    def ask(self) -> Point:
        self.pending = self.optimizer.ask()
        cells = zip(self.kinds, self.pending.value, strict=True)
        return [float(cell) if kind == "float" else int(cell) for kind, cell in cells]

    def tell(self, points: list[Point], values: list[float]) -> None:
        for point, value in zip(points, values, strict=True):
            asked = self.space.spawn_child(new_value=tuple(point)) if self.pending is None else self.pending
            self.pending = None
            self.optimizer.tell(asked, value)


def _dimension(parameter: Parameter) -> Any:
    kind, *rest = parameter
    if kind == "choice":
        return ng.p.Choice(list(range(rest[0])))
    low, high, log = rest
    if low == high:
        return ng.p.Constant(low)
    number = ng.p.Log(lower=low, upper=high) if log else ng.p.Scalar(lower=low, upper=high)
    return number.set_integer_casting() if kind == "int" else number


if __name__ == "__main__":
    serve(Nevergrad, f"nevergrad {ng.__version__}")
