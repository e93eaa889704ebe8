"""Vizier: its default algorithm (``VizierGPUCBPEBandit``, a Gaussian process with an upper confidence bound).

Vizier knows no logarithmic whole numbers: they are given as discrete values on a logarithmic scale.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import jax
from vizier import algorithms as vza
from vizier import pyvizier as vz
from vizier._src.algorithms.designers.gp_ucb_pe import VizierGPUCBPEBandit

from benchmarks.peers.protocol import Parameter, Point, names, serve


class Vizier:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        jax.config.update("jax_enable_x64", True)  # as Vizier's own service does
        self.names = names(space)
        self.kinds = [parameter[0] for parameter in space]
        problem = vz.ProblemStatement()
        for name, parameter in zip(self.names, space, strict=True):
            _add(problem.search_space.root, name, parameter)
        problem.metric_information.append(vz.MetricInformation("loss", goal=vz.ObjectiveMetricGoal.MINIMIZE))
        self.designer = VizierGPUCBPEBandit(problem, rng=jax.random.PRNGKey(seed))
        self.told = 0

    def ask(self) -> Point:
        params = self.designer.suggest(count=1)[0].parameters
        return [
            float(params.get_value(name)) if kind == "float" else int(params.get_value(name))
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]

    def tell(self, points: list[Point], values: list[float]) -> None:
        trials = []
        for point, value in zip(points, values, strict=True):
            self.told += 1
            cells = zip(self.names, self.kinds, point, strict=True)
            params = {name: str(cell) if kind == "choice" else cell for name, kind, cell in cells}
            trial = vz.Trial(id=self.told, parameters=params)
            trials.append(trial.complete(vz.Measurement({"loss": value})))
        self.designer.update(vza.CompletedTrials(trials), vza.ActiveTrials())


def _add(root: Any, name: str, parameter: Parameter) -> None:
    kind, *rest = parameter
    if kind == "choice":
        root.add_categorical_param(name, list(map(str, range(rest[0]))))
        return
    low, high, log = rest
    scale = vz.ScaleType.LOG if log else vz.ScaleType.LINEAR
    if kind == "float":
        root.add_float_param(name, low, high, scale_type=scale)
    elif log:
        root.add_discrete_param(name, list(range(low, high + 1)), scale_type=scale)
    else:
        root.add_int_param(name, low, high, scale_type=scale)


if __name__ == "__main__":
    serve(Vizier, f"Vizier {version('google-vizier')}")
