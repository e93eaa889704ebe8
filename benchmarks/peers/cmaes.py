"""CatCMA with margin (``cmaes.CatCMAwM``, the optimiser behind OptunaHub's CatCmawmSampler), with its defaults.

Logarithmic parameters are given as logarithms. A whole number with only two values is given as a choice, as the library
recommends.
"""

import math
from collections.abc import Sequence

import cmaes
import numpy as np

from benchmarks.peers.protocol import Parameter, Point, serve


class CatCma:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        self.columns = [_Column(parameter) for parameter in space]
        floats, levels, counts = (
            [each.domain for each in self.columns if each.kind == kind] for kind in ("float", "int", "choice")
        )
        self.optimizer = cmaes.CatCMAwM(floats or None, levels or None, counts or None, seed=seed)
        self.generation: list[tuple[cmaes.CatCMAwM.Solution, float]] = []
        self.pending: cmaes.CatCMAwM.Solution | None = None

    def ask(self) -> Point:
        self.pending = self.optimizer.ask()
        x, z, c = self.pending.x, self.pending.z, self.pending.c
        cells = {
            "float": iter(() if x is None else x.tolist()),
            "int": iter(() if z is None else z.tolist()),
            "choice": iter(() if c is None else np.argmax(c, axis=1).tolist()),
            "fixed": iter(lambda: 0.0, None),
        }
        return [each.value(next(cells[each.kind])) for each in self.columns]

    def tell(self, _points: list[Point], values: list[float]) -> None:
        """It learns from whole generations of its own points; others tell it nothing."""
        if self.pending is None:
            return
        self.generation.append((self.pending, values[0]))
        self.pending = None
        if len(self.generation) == self.optimizer.population_size:
            self.optimizer.tell(self.generation)
            self.generation = []


class _Column:
    """One parameter: the kind and the domain that the optimiser sees, and the way back."""

    def __init__(self, parameter: Parameter) -> None:
        self.kind, *rest = parameter
        self.whole, self.low, self.log = self.kind == "int", 0, False
        if self.kind == "choice":
            self.domain = rest[0]
            return
        self.low, high, self.log = rest
        scaled = [math.log(each) if self.log else each for each in (self.low, high)]
        self.domain = scaled
        if self.low == high:
            self.kind = "fixed"
        elif self.whole and high - self.low == 1:
            self.kind, self.domain = "choice", 2
        elif self.whole:
            self.domain = [math.log(each) if self.log else each for each in range(self.low, high + 1)]

    def value(self, cell: float) -> float:
        """The value of a cell that the optimiser asked for."""
        if self.kind in ("choice", "fixed"):
            return self.low + int(cell)
        value = math.exp(cell) if self.log else cell
        return round(value) if self.whole else value


if __name__ == "__main__":
    serve(CatCma, f"cmaes {cmaes.__version__}")
