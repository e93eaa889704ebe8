"""One line for each trial in a log; above a progress bar only the failed trials."""

import math

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lazybo.cli import console
from lazybo.study.attributes import FAILURE_KEY, REPEAT_KEY
from lazybo.text import shortened

REASON_LENGTH = 160


class LogLines:
    """A callback that prints how each trial ended and the best value. A repeated reason is shortened."""

    def __init__(self, study: Study, *, only_failures: bool) -> None:
        self._maximizes = study.direction == StudyDirection.MAXIMIZE
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
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            parts.append(f"value {trial.value:.6g}")
        elif trial.state == TrialState.PRUNED:
            parts.append(f"pruned at step {trial.last_step}")
        else:
            parts.append(self._failure(trial))
        if REPEAT_KEY in trial.system_attrs:
            parts.append(f"repeat of trial {trial.system_attrs[REPEAT_KEY]}")
        if self._best is not None:
            parts.append(f"best {self._best.value:.6g} (trial {self._best.number})")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return "  ".join(parts)

    def _failure(self, trial: FrozenTrial) -> str:
        reason = reason_of(trial)
        self._reasons[reason] = times = self._reasons.get(reason, 0) + 1
        short = shortened(reason, REASON_LENGTH)
        return f"failed: {short}" if times == 1 else f"failed: {shortened(reason, 40)} again ({times} times)"

    def _count(self, trial: FrozenTrial) -> None:
        self._failed += trial.state == TrialState.FAIL
        if trial.state != TrialState.COMPLETE or trial.value is None or math.isnan(trial.value):
            return
        best = None if self._best is None else self._best.value
        if best is None or (trial.value > best if self._maximizes else trial.value < best):
            self._best = trial


def reason_of(trial: FrozenTrial) -> str:
    """Why a trial failed, without paths, which differ from trial to trial."""
    reason = trial.system_attrs.get("fail_reason", "no reason is known")
    return console.clean(trial.system_attrs.get(FAILURE_KEY, {}).get("summary", reason))


def _ends(study: Study) -> int:
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
