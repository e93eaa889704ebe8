"""One line for each trial in a log; above a progress bar only the failed trials."""

import math

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.cli import console
from lazybo.core.text import shortened
from lazybo.report.failures import reason_of
from lazybo.run.limits import Tally
from lazybo.study.attributes import REPEAT_KEY
from lazybo.study.feasible import measured_constraints, names_of, violates
from lazybo.study.paused import is_paused

REASON_LENGTH = 160


class LogLines:
    """A callback that prints how each trial ended and the best value. A repeated reason is shortened."""

    def __init__(self, study: Study, *, only_failures: bool) -> None:
        self._names = names_of(study)
        self._tally = Tally(*(each.name.lower() for each in study.directions))
        self._only_failures = only_failures
        self._best: FrozenTrial | None = None
        self._failed = 0
        self._reasons: dict[str, int] = {}
        for trial in study.get_trials(deepcopy=False):
            self._count(trial)
        self._before = _ends(study)

    def begun(self, study: Study) -> bool:
        """Whether any trial has ended since this object was made."""
        return _ends(study) > self._before

    def __call__(self, _: Study, trial: FrozenTrial) -> None:
        """Print the line of a trial that has ended."""
        self._count(trial)
        if trial.state == TrialState.FAIL or not self._only_failures:
            console.say(self.line(trial))

    def line(self, trial: FrozenTrial) -> str:
        """For example ``trial 12  value 0.931  best 0.940 (trial 9)  3 failed``."""
        parts = [f"trial {trial.number}"]
        if trial.state == TrialState.COMPLETE and trial.values:
            parts += [f"{name} {value:.6g}" for name, value in zip(self._names, trial.values, strict=True)]
            if violates(measured_constraints(trial)):
                parts.append("infeasible")
        elif trial.state == TrialState.PRUNED:
            parts.append(f"pruned at step {trial.last_step}")
        elif is_paused(trial):
            parts.append(f"paused at step {trial.last_step}")
        else:
            parts.append(self._failure(trial))
        if REPEAT_KEY in trial.system_attrs:
            parts.append(f"repeat of trial {trial.system_attrs[REPEAT_KEY]}")
        if self._best is not None:
            parts.append(f"best {self._best.value:.6g} (trial {self._best.number})")
        elif self._tally.front:
            parts.append(f"front of {self._tally.front}")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return "  ".join(parts)

    def _failure(self, trial: FrozenTrial) -> str:
        reason = reason_of(trial)
        self._reasons[reason] = times = self._reasons.get(reason, 0) + 1
        short = shortened(reason, REASON_LENGTH)
        return f"failed: {short}" if times == 1 else f"failed: {shortened(reason, 40)} again ({times} times)"

    def _count(self, trial: FrozenTrial) -> None:
        """Count a trial; the best is the first of the best feasible ones."""
        self._failed += trial.state == TrialState.FAIL
        if trial.state != TrialState.COMPLETE or not all(map(math.isfinite, trial.values)):
            return
        before = self._tally.best
        self._tally.count(trial.state, trial.values, feasible=not violates(measured_constraints(trial)))
        if self._tally.best != before:
            self._best = trial


def _ends(study: Study) -> int:
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
