"""SMAC3: its facade for hyperparameters (random forest, log expected improvement), each configuration tried once."""

import tempfile
from collections.abc import Sequence
from importlib.metadata import version

from ConfigSpace import Configuration
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory.dataclasses import TrialInfo, TrialValue

from benchmarks.peers.configspace import config_space, point_of
from benchmarks.peers.protocol import Parameter, Point, names, serve


class Smac:
    def __init__(self, space: Sequence[Parameter], seed: int, budget: int) -> None:
        self.names, self.parameters = names(space), space
        self.space = config_space(space, seed)
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
        return point_of(self.pending.config, self.parameters)

    def tell(self, points: list[Point], values: list[float]) -> None:
        if self.pending is not None:
            self.facade.tell(self.pending, TrialValue(cost=values[0], time=0.0))
            self.pending = None
            return
        for point, value in zip(points, values, strict=True):
            config = Configuration(self.space, dict(zip(self.names, point, strict=True)))
            self.facade.tell(TrialInfo(config=config, seed=0), TrialValue(cost=value, time=0.0))


if __name__ == "__main__":
    serve(Smac, f"SMAC3 {version('smac')}")
