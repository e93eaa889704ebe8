"""SMAC3: its facade for hyperparameters (random forest, log expected improvement), each configuration tried once."""

import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from ConfigSpace import Categorical, Configuration, ConfigurationSpace, Float, Integer
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory.dataclasses import TrialInfo, TrialValue

from benchmarks.peers.protocol import Parameter, Point, names, serve


class Smac:
    def __init__(self, space: Sequence[Parameter], seed: int, budget: int) -> None:
        self.names = names(space)
        self.kinds = [parameter[0] for parameter in space]
        self.space = ConfigurationSpace(seed=seed)
        self.space.add([_dimension(name, parameter) for name, parameter in zip(self.names, space, strict=True)])
        self.folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            self.space, deterministic=True, n_trials=budget, seed=seed, output_directory=self.folder.name
        )
        self.facade = HyperparameterOptimizationFacade(
            scenario,
            lambda _config, seed=0: 0.0,  # noqa: ARG005 - never called: values are told
            intensifier=HyperparameterOptimizationFacade.get_intensifier(scenario, max_config_calls=1),
            overwrite=True,
            logging_level=False,
        )
        self.pending: TrialInfo | None = None

    def ask(self) -> Point:
        self.pending = self.facade.ask()
        return [
            float(self.pending.config[name]) if kind == "float" else int(self.pending.config[name])
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]

    def tell(self, points: list[Point], values: list[float]) -> None:
        if self.pending is not None:
            self.facade.tell(self.pending, TrialValue(cost=values[0], time=0.0))
            self.pending = None
            return
        for point, value in zip(points, values, strict=True):
            config = Configuration(self.space, dict(zip(self.names, point, strict=True)))
            self.facade.tell(TrialInfo(config=config, seed=0), TrialValue(cost=value, time=0.0))


def _dimension(name: str, parameter: Parameter) -> Any:
    kind, *rest = parameter
    if kind == "choice":
        return Categorical(name, list(range(rest[0])))
    return (Float if kind == "float" else Integer)(name, (rest[0], rest[1]), log=rest[2])


if __name__ == "__main__":
    serve(Smac, f"SMAC3 {version('smac')}")
