"""HEBO with its defaults."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import torch
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.hebo import HEBO

from benchmarks.peers.protocol import Parameter, Point, names, serve


class Hebo:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - what HEBO draws from
        self.names = names(space)
        self.kinds = [parameter[0] for parameter in space]
        design = [{"name": name, **_dimension(parameter)} for name, parameter in zip(self.names, space, strict=True)]
        self.optimizer = HEBO(DesignSpace().parse(design), scramble_seed=seed)

    def ask(self) -> Point:
        row = self.optimizer.suggest(n_suggestions=1).iloc[0]
        return [
            float(row[name]) if kind == "float" else int(row[name])
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]

    def tell(self, points: list[Point], values: list[float]) -> None:
        typed = [
            [str(cell) if kind == "choice" else cell for cell, kind in zip(point, self.kinds, strict=True)]
            for point in points
        ]
        self.optimizer.observe(pd.DataFrame(typed, columns=self.names), np.array(values)[:, None])


def _dimension(parameter: Parameter) -> dict[str, Any]:
    kind, *rest = parameter
    if kind == "choice":
        return {"type": "cat", "categories": list(map(str, range(rest[0])))}
    types = {"float": ("num", "pow"), "int": ("int", "pow_int")}
    return {"type": types[kind][bool(rest[2])], "lb": rest[0], "ub": rest[1]}


if __name__ == "__main__":
    serve(Hebo, f"HEBO {version('HEBO')}")
