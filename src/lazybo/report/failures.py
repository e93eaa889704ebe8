"""Why trials failed, grouped by their reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from lazybo.core.text import one_line
from lazybo.study.attributes import failure_of


@dataclass(frozen=True)
class Failures:
    """The trials that failed for the same reason, and where the last of them has left its output, if anywhere."""

    reason: str
    numbers: list[int]
    output: str | None


def reason_of(trial: FrozenTrial) -> str:
    """Why a trial failed, without paths, which differ from trial to trial."""
    reason = failure_of(trial).get("summary", trial.system_attrs.get("fail_reason", "no reason is known"))
    return one_line(str(reason))


def failures(trials: Sequence[FrozenTrial]) -> list[Failures]:
    """The reasons of failures, the most frequent first."""
    reasons: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        if trial.state == TrialState.FAIL:
            reasons.setdefault(reason_of(trial), []).append(trial)
    return [
        Failures(reason, [trial.number for trial in found], found[-1].user_attrs.get("output"))
        for reason, found in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
