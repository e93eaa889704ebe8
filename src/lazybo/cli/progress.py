"""One plain line for every trial, where nobody looks at a bar: in a log."""

import math

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lazybo.cli import console


class LogLines:
    """A callback that says how each trial ended and what the best one is."""

    def __init__(self, study: Study) -> None:
        self._maximizes = study.direction == StudyDirection.MAXIMIZE
        self._best: FrozenTrial | None = None
        self._failed = 0
        for trial in study.get_trials(deepcopy=False):
            self._count(trial)
        self._before = _ends(study)

    def begun(self, study: Study) -> bool:
        """Whether any trial has ended since."""
        return _ends(study) > self._before

    def __call__(self, _: Study, trial: FrozenTrial) -> None:
        """A trial has ended."""
        self._count(trial)
        console.say(self.line(trial))

    def line(self, trial: FrozenTrial) -> str:
        """For example ``trial 12  value 0.931  best 0.940 (trial 9)  3 failed``."""
        parts = [f"trial {trial.number}"]
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            parts.append(f"value {trial.value:.6g}")
        elif trial.state == TrialState.PRUNED:
            parts.append(f"pruned at step {trial.last_step}")
        else:
            parts.append("failed")
        if self._best is not None:
            parts.append(f"best {self._best.value:.6g} (trial {self._best.number})")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return "  ".join(parts)

    def _count(self, trial: FrozenTrial) -> None:
        self._failed += trial.state == TrialState.FAIL
        if trial.state != TrialState.COMPLETE or trial.value is None or math.isnan(trial.value):
            return
        best = None if self._best is None else self._best.value
        if best is None or (trial.value > best if self._maximizes else trial.value < best):
            self._best = trial


def _ends(study: Study) -> int:
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
