"""Points of a space as rows of the unit cube, for peers that support nothing else."""

import math
from collections.abc import Sequence

from benchmarks.peers.protocol import Parameter, Point


class UnitCube:
    """Numbers to [0, 1], on their own scale; choices one-hot, or as their indices."""

    def __init__(self, space: Sequence[Parameter], *, one_hot: bool = True) -> None:
        self.space, self.one_hot = space, one_hot
        self.width = sum(parameter[1] if parameter[0] == "choice" and one_hot else 1 for parameter in space)

    def encode(self, point: Point) -> list[float]:
        row: list[float] = []
        for (kind, *rest), value in zip(self.space, point, strict=True):
            if kind == "choice":
                row += [float(index == value) for index in range(rest[0])] if self.one_hot else [float(value)]
            else:
                low, high, log = rest
                at, start, end = (_scaled(each, log) for each in (value, low, high))
                row.append((at - start) / (end - start) if end > start else 0.5)
        return row

    def decode(self, row: Sequence[float]) -> Point:
        """The nearest point of the space."""
        point: Point = []
        cells = iter(row)
        for kind, *rest in self.space:
            if kind == "choice":
                weights = [next(cells) for _ in range(rest[0] if self.one_hot else 1)]
                point.append(weights.index(max(weights)) if self.one_hot else round(weights[0]))
                continue
            low, high, log = rest
            start, end = _scaled(low, log), _scaled(high, log)
            at = start + next(cells) * (end - start)
            value = min(max(math.exp(at) if log else at, low), high)
            point.append(round(value) if kind == "int" else value)
        return point


def _scaled(value: float, log: bool) -> float:
    return math.log(value) if log else value
