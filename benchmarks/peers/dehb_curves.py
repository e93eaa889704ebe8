"""DEHB: differential evolution and Hyperband, from one epoch to all."""

import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from dehb import DEHB

from benchmarks.peers.configspace import config_space, point_of
from benchmarks.peers.curve_protocol import serve
from benchmarks.peers.protocol import Parameter, Point


class Dehb:
    def __init__(self, space: Sequence[Parameter], seed: int, steps: int) -> None:
        self.space = space
        self.folder = tempfile.TemporaryDirectory()
        self.dehb = DEHB(
            cs=config_space(space, seed),
            min_fidelity=1,
            max_fidelity=steps,
            seed=seed,
            n_workers=1,
            output_path=self.folder.name,
        )
        self.ids: dict[tuple[Any, ...], int] = {}
        self.last: dict[int, float] = {}
        self.pending: tuple[dict[str, Any], int] | None = None

    def ask(self) -> tuple[int, Point, int]:
        job = self.dehb.ask()
        point = point_of(job["config"], self.space)
        number = self.ids.setdefault(tuple(point), len(self.ids))
        self.pending = job, number
        return number, point, max(round(job["fidelity"]), 1)

    def tell(self, values: list[float]) -> None:
        assert self.pending is not None
        job, number = self.pending
        if values:
            self.last[number] = values[-1]
        self.dehb.tell(job, {"fitness": self.last[number], "cost": float(len(values))})


if __name__ == "__main__":
    serve(Dehb, f"DEHB {version('dehb')}")
