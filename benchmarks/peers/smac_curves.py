"""SMAC3's multi-fidelity facade: Hyperband with a random forest, from one epoch to all."""

import tempfile
from collections.abc import Sequence
from importlib.metadata import version

from smac import MultiFidelityFacade, Scenario
from smac.runhistory.dataclasses import TrialInfo, TrialValue

from benchmarks.peers.configspace import config_space, point_of
from benchmarks.peers.curve_protocol import serve
from benchmarks.peers.protocol import Parameter, Point

# More trials than any run asks for.
MANY = 100_000


class Smac:
    def __init__(self, space: Sequence[Parameter], seed: int, steps: int) -> None:
        self.space = space
        self.folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            config_space(space, seed),
            deterministic=True,
            n_trials=MANY,
            seed=seed,
            min_budget=1,
            max_budget=steps,
            output_directory=self.folder.name,
        )
        self.facade = MultiFidelityFacade(
            scenario,
            lambda _config, seed=0, budget=0: 0.0,  # noqa: ARG005 - never called: values are told
            overwrite=True,
            logging_level=False,
        )
        self.ids: dict[object, int] = {}
        self.last: dict[int, float] = {}
        self.pending: tuple[TrialInfo, int] | None = None

    def ask(self) -> tuple[int, Point, int]:
        info = self.facade.ask()
        number = self.ids.setdefault(info.config, len(self.ids))
        self.pending = info, number
        return number, point_of(info.config, self.space), round(info.budget)

    def tell(self, values: list[float]) -> None:
        assert self.pending is not None
        info, number = self.pending
        if values:
            self.last[number] = values[-1]
        self.facade.tell(info, TrialValue(cost=self.last[number], time=0.0))


if __name__ == "__main__":
    serve(Smac, f"SMAC3 {version('smac')}")
