"""The learning curves of a study as records of numbers, with forecasts of where unfinished ones end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.blas import one_thread
from lazybo.study import ledger
from lazybo.study.curves import Ending
from lazybo.study.factory import model_of, reporting_of
from lazybo.study.feasible import feasible_trials, names_of
from lazybo.study.paused import is_paused

# Of more stopped trainings than this, no forecasts are shown: they would hide the running ones.
FEW_STOPPED = 8
NAMES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
    TrialState.FAIL: "failed",
}


@dataclass(frozen=True)
class LearningCurve:
    """What a trial has reported, and the forecast of its value at the last step, if there is one."""

    number: int
    state: str
    steps: list[int]
    values: list[float]
    forecast: Ending | None = None


@dataclass(frozen=True)
class Curves:
    """All learning curves of a study. ``last_step`` is the largest step seen, where forecasts are made for.

    ``best`` is the number of the trial with the best last value, of those that completed and are feasible.
    """

    objective: str
    direction: str
    last_step: int
    best: int | None
    curves: list[LearningCurve]


@dataclass(frozen=True)
class Epochs:
    """How many epochs were trained, and how many there would be if no training had been stopped.

    An epoch is one reported value. A stopped training would have had as many as the longest completed one.
    """

    trained: int
    in_full: int
    stopped: int
    trainings: int


def epochs(trials: Sequence[FrozenTrial]) -> Epochs | None:
    """The epochs of all trials that have completed, or were pruned or paused; None if none of them has reported."""
    ends = (TrialState.COMPLETE, TrialState.PRUNED)
    ended = [t for t in trials if (t.state in ends or is_paused(t)) and t.intermediate_values]
    if not ended:
        return None
    counts = [len(trial.intermediate_values) for trial in ended]
    stopped = [trial.state != TrialState.COMPLETE for trial in ended]
    longest = max((n for n, early in zip(counts, stopped, strict=True) if not early), default=max(counts))
    in_full = sum(max(n, longest) if early else n for n, early in zip(counts, stopped, strict=True))
    return Epochs(sum(counts), in_full, sum(stopped), len(ended))


@one_thread()
def curves(study: Study) -> Curves:
    """The learning curves of a study, and where those that run, or were stopped if these are few, are expected to end.

    Raises a ValueError if no trial has reported anything.
    """
    trials = ledger.read(study)
    reported = [trial for trial in trials if trial.intermediate_values]
    if not reported:
        raise ValueError(nothing_reported(study))
    endings = _endings(study, trials, reported)
    objective = reporting_of(study)
    return Curves(
        names_of(study)[objective],
        study.directions[objective].name.lower(),
        max(max(trial.intermediate_values) for trial in reported),
        _best(trials, maximize=study.directions[objective].name == "MAXIMIZE"),
        [_curve(trial, endings.get(trial.number)) for trial in reported],
    )


def nothing_reported(study: Study) -> str:
    """Why a study has no curves."""
    return f"no trial of the study {study.study_name!r} has reported values, so there are no curves"


def _curve(trial: FrozenTrial, ending: Ending | None) -> LearningCurve:
    steps = sorted(trial.intermediate_values)
    state = "paused" if is_paused(trial) else NAMES[trial.state]
    return LearningCurve(trial.number, state, steps, [trial.intermediate_values[step] for step in steps], ending)


def _best(trials: Sequence[FrozenTrial], *, maximize: bool) -> int | None:
    ended = [trial for trial in feasible_trials(trials) if trial.intermediate_values]
    lasts = {trial.number: trial.intermediate_values[max(trial.intermediate_values)] for trial in ended}
    known = {number: value for number, value in lasts.items() if math.isfinite(value)}
    chosen = max if maximize else min
    return chosen(known, key=lambda number: known[number]) if known else None


def _endings(study: Study, trials: Sequence[FrozenTrial], reported: Sequence[FrozenTrial]) -> dict[int, Ending]:
    """Forecasts by trial number; empty if there is no model of the study."""
    running = [trial for trial in reported if not trial.state.is_finished()]
    stopped = [trial for trial in reported if trial.state == TrialState.PRUNED]
    wanted = [*running, *(stopped if len(stopped) <= FEW_STOPPED else [])]
    if not wanted or not any(trial.params for trial in trials):
        return {}
    model = model_of(study, trials).curves
    found = {trial.number: model.ending(trial) for trial in wanted}
    return {number: ending for number, ending in found.items() if ending is not None}
