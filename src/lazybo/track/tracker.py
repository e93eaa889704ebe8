"""Tracker: a callback that shows trials in another tool, value by value.

Workers report to the driver, so a tracker runs in the driver, and workers on other machines need neither the tool nor
its server. A trial is one run of the tool. Its name follows from the study and the number of the trial, so that a
resumed study continues the runs that it has.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from optuna.study import Study
from optuna.trial import FrozenTrial

_logger = logging.getLogger("lazybo")
# The name under which the values that trainings report are logged.
REPORTED = "value"
# The name of the result of a trial with one objective.
FINAL = "final_value"


class TrackedRun(Protocol):
    """A trial in another tool."""

    def describe(self, params: Mapping[str, Any]) -> None:
        """Add parameters; called again when the objective has asked its trial for more of them."""

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        """Log numbers by name, of a step or of the whole trial."""

    def end(self, state: str) -> None:
        """The trial has ended: "complete", "pruned" or "fail"."""


class Tracker(ABC):
    """Logs the trials of a run: parameters, reported values as they arrive, results and metrics.

    Give it to `optimize` in ``callbacks``. It also works as a callback of ``study.optimize``, where the values of a
    trial are logged when it ends. If the tool cannot be reached, a warning says so and the run goes on. Used by several
    threads at once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # By the number of the trial; the names and the steps are those that were logged.
        self._runs: dict[int, TrackedRun] = {}
        self._names: dict[int, set[str]] = {}
        self._steps: dict[int, set[int]] = {}

    @abstractmethod
    def start(self, study: str, trial: FrozenTrial) -> TrackedRun:
        """A new run for a trial, or the one that it has."""

    def report(self, study: Study, trial: FrozenTrial, step: int, value: float) -> None:
        """Log a value that a running trial has reported."""
        self._try(self._report, study, trial, {step: value})

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Log what a trial has reported, and if it has ended, its results."""
        self._try(self._follow, study, trial)

    def _follow(self, study: Study, trial: FrozenTrial) -> None:
        self._report(study, trial, trial.intermediate_values)
        if trial.state.is_finished():
            run = self._run(study, trial)
            found = {**results(study, trial), **metrics(trial)}
            if found:
                run.log(found, None)
            run.end(trial.state.name.lower())
            del self._runs[trial.number], self._names[trial.number], self._steps[trial.number]

    def _report(self, study: Study, trial: FrozenTrial, values: Mapping[int, float]) -> None:
        run = self._run(study, trial)
        for step, value in values.items():
            if step not in self._steps[trial.number]:
                run.log({REPORTED: value}, step)
                self._steps[trial.number].add(step)

    def _run(self, study: Study, trial: FrozenTrial) -> TrackedRun:
        number = trial.number
        if number not in self._runs:
            self._runs[number], self._names[number], self._steps[number] = (
                self.start(study.study_name, trial),
                set(),
                set(),
            )
        new = {name: value for name, value in trial.params.items() if name not in self._names[number]}
        if new:
            self._runs[number].describe(new)
            self._names[number].update(new)
        return self._runs[number]

    def _try(self, action: Any, study: Study, trial: FrozenTrial, *arguments: Any) -> None:
        try:
            with self._lock:
                action(study, trial, *arguments)
        except Exception as error:  # a server that is down must not end a training
            _logger.warning(f"{type(self).__name__} could not log trial {trial.number}: {error}")


def results(study: Study, trial: FrozenTrial) -> dict[str, float]:
    """The objectives of a finished trial by name."""
    values = trial.values or []
    if study.metric_names:
        names = list(study.metric_names)
    else:
        names = [FINAL] if len(values) == 1 else [f"{FINAL}_{i}" for i in range(len(values))]
    return dict(zip(names, values, strict=False))


def metrics(trial: FrozenTrial) -> dict[str, float]:
    """The numbers that an objective returned beside its value."""
    return {
        name: float(value)
        for name, value in trial.user_attrs.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("lazybo:")
    }
