"""Tracker: a callback that shows trials in another tool, value by value.

Workers report to the driver, so a tracker runs in the driver, and workers on other machines need neither the tool nor
its server. A trial is one run of the tool. Its name follows from the study and the number of the trial, so that a
resumed study continues the runs that it has.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
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


@dataclass
class _Logged:
    run: TrackedRun
    names: set[str] = field(default_factory=set)
    steps: set[int] = field(default_factory=set)


class Tracker(ABC):
    """Logs the trials of a run: parameters, reported values as they arrive, results and metrics.

    Give it to `optimize` in ``callbacks``. It also works as a callback of ``study.optimize``, where the values of a
    trial are logged when it ends. If the tool cannot be reached, a warning says so and the run goes on; what a trial
    has reported meanwhile is logged when it ends. Used by several threads at once; the tool is used in one of its own.

    A trial waits for a tool that is silent for ``patience`` seconds, later ones not at all until the tool answers.
    Clients try to reach a server that is gone for many minutes.
    """

    patience: float = 20.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Callable[[], object], threading.Event]] = deque()
        self._works = False  # whether a thread works on what waits
        self._silent = self._failed = False  # what the tool did the last time
        self._logged: dict[int, _Logged] = {}  # by the number of the trial

    @abstractmethod
    def start(self, study: str, trial: FrozenTrial) -> TrackedRun:
        """A new run for a trial, or the one that it has."""

    def report(self, study: Study, trial: FrozenTrial, step: int, value: float) -> None:
        """Log a value that a running trial has reported."""
        if not (self._silent or self._failed):
            self._log(trial, partial(self._report, study, trial, {step: value}))

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Log what a trial has reported, and if it has ended, its results."""
        self._log(trial, partial(self._follow, study, trial))

    def _follow(self, study: Study, trial: FrozenTrial) -> None:
        self._report(study, trial, trial.intermediate_values)
        if trial.state.is_finished():
            run = self._known(study, trial).run
            found = {**results(study, trial), **metrics(trial)}
            if found:
                run.log(found, None)
            run.end(trial.state.name.lower())
            del self._logged[trial.number]

    def _report(self, study: Study, trial: FrozenTrial, values: Mapping[int, float]) -> None:
        known = self._known(study, trial)
        for step, value in values.items():
            if step not in known.steps:
                known.run.log({REPORTED: value}, step)
                known.steps.add(step)

    def _known(self, study: Study, trial: FrozenTrial) -> "_Logged":
        """A trial in the tool, with all parameters that it has."""
        if trial.number not in self._logged:
            self._logged[trial.number] = _Logged(self.start(study.study_name, trial))
        known = self._logged[trial.number]
        new = {name: value for name, value in trial.params.items() if name not in known.names}
        if new:
            known.run.describe(new)
            known.names.update(new)
        return known

    def _log(self, trial: FrozenTrial, action: Callable[[], object]) -> None:
        """Let the tool's thread do something, and wait for it unless the tool does not answer."""
        done = threading.Event()
        with self._lock:
            self._waiting.append((trial.number, action, done))
            if not self._works:
                threading.Thread(target=self._work, name="lazybo-tracker", daemon=True).start()
                self._works = True
        if not self._silent and not done.wait(self.patience) and not self._silent:
            self._silent = True
            _logger.warning(f"{type(self).__name__} has not answered for {self.patience:g} s; the run goes on")

    def _work(self) -> None:
        while True:
            with self._lock:
                self._works = bool(self._waiting)
                if not self._works:
                    return
                number, action, done = self._waiting.popleft()
            try:
                action()
                self._silent = self._failed = False
            except BaseException as error:  # a server that is down must not end a training
                self._failed = True
                _logger.warning(f"{type(self).__name__} could not log trial {number}: {error}")
            done.set()


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
