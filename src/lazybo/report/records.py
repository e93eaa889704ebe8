"""Small records of the trials of a study: history, times, front, learning curves, failures."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study

from lazybo.core import one_thread, texts
from lazybo.study import StudyView, TrialView

# With more stopped trainings than this, their forecasts are not shown: they would hide the forecasts of running ones.
FEW_STOPPED = 8
# The states that are counted; experiments that nobody made count as failed.
STATES = ("complete", "pruned", "failed", "running", "waiting", "paused")


def counted_state(trial: TrialView) -> str:
    """The state of a trial that it counts as."""
    return "failed" if trial.has_failed else trial.state


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
    view = StudyView.of(study)
    complete, feasible = view.complete, view.feasible_numbers
    values = [trial.value for trial in complete]
    better = np.fmax if view.maximizes else np.fmin
    counted = [v if t.number in feasible else math.nan for t, v in zip(complete, values, strict=True)]
    return History(
        [trial.number for trial in complete],
        values,
        [float(best) for best in better.accumulate(counted)],
        [trial.number for trial in view.trials if trial.state == "pruned"],
        [trial.number for trial in view.trials if trial.has_failed],
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
    view = StudyView.of(study)
    complete, feasible, best = view.complete, view.feasible_numbers, {trial.number for trial in view.front}
    return Front(
        view.objectives,
        list(view.directions),
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
        (trial.frozen.datetime_start.timestamp(), trial.frozen.datetime_complete.timestamp(), trial.number)
        for trial in StudyView.of(study).trials
        if trial.frozen.datetime_start is not None and trial.frozen.datetime_complete is not None
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
    forecast: Any = None


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
    view = StudyView.of(study)
    reported = [trial for trial in view.trials if trial.reported]
    if not reported:
        raise ValueError(f"no trial of the study {study.study_name!r} has reported values, so there are no curves")
    endings = _endings(view, reported)
    direction = view.directions[view.reports]
    curves = []
    for trial in reported:
        steps = sorted(trial.reported)
        values = [trial.reported[step] for step in steps]
        curves.append(LearningCurve(trial.number, counted_state(trial), steps, values, endings.get(trial.number)))
    return LearningCurves(
        view.objectives[view.reports],
        direction,
        max(max(trial.reported) for trial in reported),
        _best_curve(view, maximize=direction == "maximize"),
        curves,
    )


def _best_curve(view: StudyView, *, maximize: bool) -> int | None:
    lasts = {trial.number: trial.reported[max(trial.reported)] for trial in view.feasible if trial.reported}
    known = {number: value for number, value in lasts.items() if math.isfinite(value)}
    return (max if maximize else min)(known, key=known.__getitem__, default=None)


def _endings(view: StudyView, reported: Sequence[TrialView]) -> dict[int, Any]:
    """Forecasts by trial number; empty if there is no model of the study."""
    running = [trial for trial in reported if not trial.has_ended]
    stopped = [trial for trial in reported if trial.state == "pruned"]
    wanted = [*running, *(stopped if len(stopped) <= FEW_STOPPED else [])]
    if not wanted or not view.has_parameters:
        return {}
    model = view.model().curves
    found = {trial.number: model.ending(trial.frozen) for trial in wanted}
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

    def __str__(self) -> str:
        """How many trainings were stopped, and the share of epochs that this saved; empty if none was."""
        if not self.stopped:
            return ""
        stopped = f"{self.stopped} of {texts.counted(self.trainings, 'training')} stopped early"
        saved = texts.percent(1 - self.trained / self.in_full)
        return f"{stopped}: {self.trained} of {texts.counted(self.in_full, 'epoch')} trained ({saved} saved)"


def epochs(trials: Sequence[TrialView]) -> Epochs | None:
    """The epochs of all trials that completed or were pruned or paused; None if none of them has reported."""
    ended = [trial for trial in trials if trial.state in ("complete", "pruned", "paused") and trial.reported]
    if not ended:
        return None
    counts = [len(trial.reported) for trial in ended]
    stopped = [trial.state != "complete" for trial in ended]
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


def reason_of(trial: TrialView) -> str:
    """Why a trial failed, without paths, which differ from trial to trial."""
    reason = trial.failure.get("summary", trial.fail_reason or "no reason is known")
    return texts.one_line(str(reason))


def failures(trials: Sequence[TrialView]) -> list[Failures]:
    """Failed trials grouped by reason, the most frequent reason first."""
    reasons: dict[str, list[TrialView]] = {}
    for trial in trials:
        if trial.has_failed:
            reasons.setdefault(reason_of(trial), []).append(trial)
    return [
        Failures(reason, [trial.number for trial in found], found[-1].own.get("output"))
        for reason, found in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]


# ------------------------------------------------------------------------------- table


def table_of(study: Study) -> list[dict[str, Any]]:
    """One row for each trial with the columns of Optuna's ``trials_dataframe()``; None where a trial has no entry.

    If the study had a final check, ``repeat_of`` is the first trial with the configuration that a trial repeats.
    """
    view = StudyView.of(study)
    names = view.objectives
    values = ["value"] if len(names) == 1 else [f"values_{name}" for name in study.metric_names or range(len(names))]
    rows = [_row(trial, view, values) for trial in view.trials]
    there = sorted({name for row in rows for name in row})
    more = [name for prefix in ("params_", "user_attrs_", "constraints_") for name in there if name.startswith(prefix)]
    columns = ["number", *values, "datetime_start", "datetime_complete", "duration", *more]
    columns += ["feasible", "state", "reason", "repeat_of"]
    return [{column: row.get(column) for column in columns if column in there} for row in rows]


def _row(trial: TrialView, view: StudyView, values: Sequence[str]) -> dict[str, Any]:
    start, end, attributes = trial.frozen.datetime_start, trial.frozen.datetime_complete, trial.frozen.user_attrs
    known: Sequence[float | None] = trial.values or [None] * len(values)
    feasible = trial.number in view.feasible_numbers if trial.state == "complete" else None
    return {
        "number": trial.number,
        **dict(zip(values, known, strict=True)),
        "datetime_start": start.isoformat() if start else None,
        "datetime_complete": end.isoformat() if end else None,
        "duration": (end - start).total_seconds() if start and end else None,
        **{f"params_{name}": value for name, value in trial.params.items()},
        **{f"user_attrs_{name}": value for name, value in attributes.items() if name != "traceback"},
        **{f"constraints_{name}": value for name, value in trial.constraints.items()},
        **({"feasible": feasible} if view.constraints else {}),
        **({"repeat_of": trial.repeat_of} if trial.repeat_of is not None else {}),
        "state": trial.frozen.state.name,
        "reason": trial.fail_reason,
    }


# ------------------------------------------------------------------------------- plain data


def plain(thing: Any) -> Any:
    """A record as dicts and lists. JSON has no NaN and no infinity: they are None."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: plain(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
    if isinstance(thing, np.ndarray):
        return plain(thing.tolist())
    if isinstance(thing, BaseDistribution):
        return str(thing)
    if isinstance(thing, tuple) and hasattr(thing, "_asdict"):
        return plain(thing._asdict())
    if isinstance(thing, Mapping):
        return {name: plain(each) for name, each in thing.items()}
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        return [plain(each) for each in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing
