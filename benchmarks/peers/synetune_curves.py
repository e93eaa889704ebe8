"""Syne Tune: asynchronous successive halving with a density model (BOHB), which judges after every epoch."""

import datetime
from collections.abc import Sequence
from importlib.metadata import version

from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer.baselines import BOHB
from syne_tune.optimizer.scheduler import SchedulerDecision

from benchmarks.peers.curve_protocol import serve
from benchmarks.peers.protocol import Parameter, Point, names
from benchmarks.peers.synetune import domain


class SyneTune:
    def __init__(self, space: Sequence[Parameter], seed: int, steps: int) -> None:
        self.names, self.steps = names(space), steps
        self.scheduler = BOHB(
            {name: domain(parameter) for name, parameter in zip(self.names, space, strict=True)},
            metric="loss",
            time_attr="epoch",
            max_t=steps,
            random_seed=seed,
        )
        self.trial: Trial | None = None
        self.epoch = self.number = 0

    def ask(self) -> tuple[int, Point, int]:
        if self.trial is None:
            suggestion = self.scheduler.suggest()
            self.trial = Trial(self.number, suggestion.config, datetime.datetime.now(tz=datetime.UTC))
            self.scheduler.on_trial_add(self.trial)
            self.epoch, self.number = 0, self.number + 1
        self.epoch += 1
        return self.trial.trial_id, [self.trial.config[name] for name in self.names], self.epoch

    def tell(self, values: list[float]) -> None:
        assert self.trial is not None
        result = {"loss": values[-1], "epoch": self.epoch}
        if self.epoch == self.steps:
            self.scheduler.on_trial_complete(self.trial, result)
            self.trial = None
        elif self.scheduler.on_trial_result(self.trial, result) == SchedulerDecision.STOP:
            self.trial = None


if __name__ == "__main__":
    serve(SyneTune, f"Syne Tune {version('syne-tune')}")
