"""Trials that run, for tests of those who report them."""

from typing import Any

import optuna

from lazybo.run.reports import OpenTrial
from lazybo.study import TrialView


def open_trial(trial: optuna.Trial, **details: Any) -> OpenTrial:
    """A trial that `study.ask` has begun, as a driver opens it."""
    return OpenTrial(TrialView(trial.study.trials[trial.number]), **details)
