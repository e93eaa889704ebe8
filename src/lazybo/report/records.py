"""Small records of the trials of a study: history, times, front, learning curves, failures."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import one_thread, texts
from lazybo.study import (
    REPEAT_KEY,
    Ending,
    Store,
    complete_trials,
    constraints_of,
    directions_of,
    failure_of,
    feasible_trials,
    front_of,
    is_paused,
    measured_constraints,
    model_of,
    names_of,
    reporting_of,
)

# With more stopped trainings than this, their forecasts are not shown: they would hide the forecasts of running ones.
FEW_STOPPED = 8
PAUSED = "paused"
STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


def state_of(trial: FrozenTrial) -> str:
    """The state of a trial in one word."""
    return PAUSED if is_paused(trial) else STATES[trial.state]


@dataclass(frozen=True)
class History:
    """Values by trial number, and the best so far after each of them: NaN before the first feasible trial.

    ``infeasible`` are the numbers of trials that violate a constraint: they are never the best.
    """

    numbers: list[int]
    values: list[float]
    best: list[float]
    pruned: list[int]
    failed: list[int]
    infeasible: list[int] = field(default_factory=list)


def history(study: Study) -> History:
    """Values by trial number, and the best so far of the feasible ones, for a study with one objective."""
    if len(study.directions) > 1:
        raise ValueError(f"the study {study.study_name!r} has several objectives, so it has no history; use its front")
    trials = Store(study).trials()
    complete = complete_trials(trials)
    values = [float(trial.values[0]) for trial in complete]
    feasible = {trial.number for trial in feasible_trials(trials)}
    better = np.fmax if directions_of(study) == ("maximize",) else np.fmin
    counted = [v if t.number in feasible else math.nan for t, v in zip(complete, values, strict=True)]
    return History(
        [trial.number for trial in complete],
        values,
        [float(best) for best in better.accumulate(counted)],
        [trial.number for trial in trials if trial.state == TrialState.PRUNED],
        [trial.number for trial in trials if trial.state == TrialState.FAIL],
        [trial.number for trial in complete if trial.number not in feasible],
    )


@dataclass(frozen=True)
class Front:
    """The trials of a study with several objectives: names, values (n, q), and which trials are on the front.

    ``infeasible`` trials violate a constraint, or have not measured it.
    """

    names: list[str]
    directions: list[str]
    numbers: list[int]
    values: list[list[float]]
    on_front: list[bool]
    infeasible: list[bool]


def front(study: Study) -> Front:
    """The complete trials of a study; those on the front are not dominated by any feasible trial."""
    trials = Store(study).trials()
    complete = complete_trials(trials)
    best = {trial.number for trial in front_of(study, trials)}
    feasible = {trial.number for trial in feasible_trials(trials)}
    return Front(
        names_of(study),
        list(directions_of(study)),
        [trial.number for trial in complete],
        [list(trial.values) for trial in complete],
        [trial.number in best for trial in complete],
        [trial.number not in feasible for trial in complete],
    )


@dataclass(frozen=True)
class Times:
    """Seconds of each evaluation, and of the wait before it: from the last end of another trial to its own start.

    The wait is the time of the optimiser and the storage. A trial that started before any other had ended has none.
    """

    numbers: list[int]
    evaluation: list[float]
    waited_numbers: list[int]
    waits: list[float]


def times(study: Study) -> Times:
    """How long evaluations took, and the waits between them."""
    spans = sorted(
        (trial.datetime_start.timestamp(), trial.datetime_complete.timestamp(), trial.number)
        for trial in Store(study).trials()
        if trial.datetime_start is not None and trial.datetime_complete is not None
    )
    ends = np.sort([end for _, end, _ in spans])
    waited, waits = [], []
    for start, _, number in spans:
        earlier = int(np.searchsorted(ends, start, side="right"))
        if earlier:
            waited.append(number)
            waits.append(float(start - ends[earlier - 1]))
    return Times([number for *_, number in spans], [end - start for start, end, _ in spans], waited, waits)


# ---------------------------------------------------------------------- learning curves


@dataclass(frozen=True)
class LearningCurve:
    """The values that a trial has reported, and the forecast of its value at the last step, if there is one."""

    number: int
    state: str
    steps: list[int]
    values: list[float]
    forecast: Ending | None = None


@dataclass(frozen=True)
class LearningCurves:
    """All learning curves of a study. ``last_step`` is the largest step seen; forecasts are made for it.

    ``best`` is the number of the trial with the best last value among those that completed and are feasible.
    """

    objective: str
    direction: str
    last_step: int
    best: int | None
    curves: list[LearningCurve]


@one_thread()
def learning_curves(study: Study) -> LearningCurves:
    """The learning curves of a study, with forecasts for running trials and, if there are few, for stopped ones.

    Raises a ValueError if no trial has reported anything.
    """
    trials = Store(study).trials()
    reported = [trial for trial in trials if trial.intermediate_values]
    if not reported:
        raise ValueError(f"no trial of the study {study.study_name!r} has reported values, so there are no curves")
    endings = _endings(study, trials, reported)
    objective = reporting_of(study)
    direction = directions_of(study)[objective]
    return LearningCurves(
        names_of(study)[objective],
        direction,
        max(max(trial.intermediate_values) for trial in reported),
        _best_curve(trials, maximize=direction == "maximize"),
        [_curve(trial, endings.get(trial.number)) for trial in reported],
    )


def _curve(trial: FrozenTrial, ending: Ending | None) -> LearningCurve:
    steps = sorted(trial.intermediate_values)
    values = [trial.intermediate_values[step] for step in steps]
    return LearningCurve(trial.number, state_of(trial), steps, values, ending)


def _best_curve(trials: Sequence[FrozenTrial], *, maximize: bool) -> int | None:
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
    """The epochs of all trials that completed or were pruned or paused; None if none of them has reported."""
    ends = (TrialState.COMPLETE, TrialState.PRUNED)
    ended = [t for t in trials if (t.state in ends or is_paused(t)) and t.intermediate_values]
    if not ended:
        return None
    counts = [len(trial.intermediate_values) for trial in ended]
    stopped = [trial.state != TrialState.COMPLETE for trial in ended]
    longest = max((n for n, early in zip(counts, stopped, strict=True) if not early), default=max(counts))
    in_full = sum(max(n, longest) if early else n for n, early in zip(counts, stopped, strict=True))
    return Epochs(sum(counts), in_full, sum(stopped), len(ended))


# ----------------------------------------------------------------------------- failures


@dataclass(frozen=True)
class Failures:
    """The trials that failed for the same reason, and the output folder of the last one, if it has one."""

    reason: str
    numbers: list[int]
    output: str | None


def reason_of(trial: FrozenTrial) -> str:
    """Why a trial failed, without paths, which differ from trial to trial."""
    reason = failure_of(trial).get("summary", trial.system_attrs.get("fail_reason", "no reason is known"))
    return texts.one_line(str(reason))


def failures(trials: Sequence[FrozenTrial]) -> list[Failures]:
    """Failed trials grouped by reason, the most frequent reason first."""
    reasons: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        if trial.state == TrialState.FAIL:
            reasons.setdefault(reason_of(trial), []).append(trial)
    return [
        Failures(reason, [trial.number for trial in found], found[-1].user_attrs.get("output"))
        for reason, found in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]


# ------------------------------------------------------------------------------- table


def table_of(study: Study) -> list[dict[str, Any]]:
    """One row for each trial with the columns of Optuna's ``trials_dataframe()``; None where a trial has no entry.

    If the study had a final check, ``repeat_of`` is the first trial with the configuration that a trial repeats.
    """
    trials, names = Store(study).trials(), names_of(study)
    values = ["value"] if len(names) == 1 else [f"values_{name}" for name in study.metric_names or range(len(names))]
    rows = [_row(trial, values) for trial in trials]
    more = []
    if constraints_of(trials):
        more, counted = ["feasible"], {trial.number for trial in feasible_trials(trials)}
        for row, trial in zip(rows, trials, strict=True):
            row["feasible"] = trial.number in counted if trial.state == TrialState.COMPLETE else None
    found = [
        sorted({name for row in rows for name in row if name.startswith(prefix)})
        for prefix in ("params_", "user_attrs_", "constraints_")
    ]
    columns = ["number", *values, "datetime_start", "datetime_complete", "duration", *itertools.chain(*found), *more]
    columns += ["state", "reason", *(["repeat_of"] if any("repeat_of" in row for row in rows) else [])]
    return [{column: row.get(column) for column in columns} for row in rows]


def _row(trial: FrozenTrial, values: Sequence[str]) -> dict[str, Any]:
    start, end = trial.datetime_start, trial.datetime_complete
    return {
        "number": trial.number,
        **dict(zip(values, trial.values or [None] * len(values), strict=True)),
        "datetime_start": start.isoformat() if start else None,
        "datetime_complete": end.isoformat() if end else None,
        "duration": (end - start).total_seconds() if start and end else None,
        **{f"params_{name}": value for name, value in trial.params.items()},
        **{f"user_attrs_{name}": value for name, value in trial.user_attrs.items() if name != "traceback"},
        **{f"constraints_{name}": value for name, value in measured_constraints(trial).items()},
        **({"repeat_of": trial.system_attrs[REPEAT_KEY]} if REPEAT_KEY in trial.system_attrs else {}),
        "state": trial.state.name,
        "reason": trial.system_attrs.get("fail_reason"),
    }
