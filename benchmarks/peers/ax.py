"""Ax: ``Client`` with its defaults (the centre, Sobol points, then BoTorch's models with mixed search)."""

import logging
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from benchmarks.peers.protocol import Parameter, Point, names, serve


class Ax:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        torch.set_num_threads(1)
        logging.disable(logging.WARNING)
        self.names = names(space)
        self.kinds = [parameter[0] for parameter in space]
        self.client = Client(random_seed=seed)
        self.client.configure_experiment([_config(*each) for each in zip(self.names, space, strict=True)])
        self.client.configure_optimization(objective="-loss")
        self.pending: int | None = None

    def ask(self) -> Point:
        ((self.pending, params),) = self.client.get_next_trials(max_trials=1).items()
        return [
            float(params[name]) if kind == "float" else int(params[name])
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]

    def tell(self, points: list[Point], values: list[float]) -> None:
        for point, value in zip(points, values, strict=True):
            number = self.client.attach_trial(self._params(point)) if self.pending is None else self.pending
            self.pending = None
            self.client.complete_trial(number, raw_data={"loss": value})

    def _params(self, point: Point) -> dict[str, Any]:
        cells = zip(self.names, self.kinds, point, strict=True)
        return {name: str(cell) if kind == "choice" else cell for name, kind, cell in cells}


def _config(name: str, parameter: Parameter) -> RangeParameterConfig | ChoiceParameterConfig:
    kind, *rest = parameter
    if kind == "choice":
        return ChoiceParameterConfig(name, list(map(str, range(rest[0]))), "str", is_ordered=False)
    return RangeParameterConfig(name, (rest[0], rest[1]), kind, scaling="log" if rest[2] else "linear")


if __name__ == "__main__":
    serve(Ax, f"Ax {version('ax-platform')}")
