"""Syne Tune: conformal quantile regression (``CQR``), which samples from boosted trees."""

import datetime
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, lograndint, loguniform, randint, uniform
from syne_tune.optimizer.baselines import CQR

from benchmarks.peers.protocol import Parameter, Point, names, serve


class SyneTune:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        np.random.seed(seed)  # noqa: NPY002 - what its trees draw from
        self.names = names(space)
        domains = {name: domain(parameter) for name, parameter in zip(self.names, space, strict=True)}
        self.scheduler = CQR(domains, metric="loss", random_seed=seed)
        self.told = 0

    def ask(self) -> Point:
        config = self.scheduler.suggest().config
        return [config[name] for name in self.names]

    def tell(self, points: list[Point], values: list[float]) -> None:
        for point, value in zip(points, values, strict=True):
            config = dict(zip(self.names, point, strict=True))
            trial = Trial(self.told, config, datetime.datetime.now(tz=datetime.UTC))
            self.scheduler.on_trial_complete(trial, {"loss": value})
            self.told += 1


def domain(parameter: Parameter) -> Any:
    """A parameter as Syne Tune has it."""
    kind, *rest = parameter
    if kind == "choice":
        return choice(list(range(rest[0])))
    low, high, log = rest
    if kind == "int":
        return lograndint(low, high) if log else randint(low, high)
    return loguniform(low, high) if log else uniform(low, high)


if __name__ == "__main__":
    serve(SyneTune, f"Syne Tune {version('syne-tune')}")
