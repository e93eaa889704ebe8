"""What the trials of a study cost: the time that they took, or a metric that they returned."""

import math

from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import as_number, is_number
from lazybo.run.goals import metric_at
from lazybo.run.plain import short
from lazybo.study.attributes import SECONDS_KEY

# The cost that is a time. It is measured and need not be returned.
SECONDS = "seconds"
# Shorter evaluations count as this long: differences below a millisecond are noise.
LEAST_SECONDS = 1e-3


def measured_seconds(trial: FrozenTrial) -> float | None:
    """How long the evaluation of a trial took in its worker, if that was measured."""
    measured = trial.system_attrs.get(SECONDS_KEY)
    seconds = as_number("seconds", measured) if is_number(measured) else math.nan
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def seconds_of(trial: FrozenTrial) -> float | None:
    """How long the evaluation of a trial took: as a worker measured it, or by the times in the study."""
    measured = measured_seconds(trial)
    if measured is not None:
        return measured
    if trial.datetime_start is None or trial.datetime_complete is None:
        return None
    return max((trial.datetime_complete - trial.datetime_start).total_seconds(), 0.0)


def cost_of(trial: FrozenTrial, cost: str) -> float | None:
    """What a finished trial cost, if that is known. A pruned trial has not cost what a whole evaluation does."""
    if trial.state == TrialState.PRUNED:
        return None
    if cost == SECONDS:
        took = seconds_of(trial)
        return None if took is None else max(took, LEAST_SECONDS)
    metric = metric_at(trial.user_attrs, cost)
    return float(metric) if is_cost(metric) else None


def is_cost(metric: object) -> bool:
    """Whether a metric can be a cost: a positive finite number."""
    return is_number(metric) and math.isfinite(number := as_number("cost", metric)) and number > 0.0


def check_returned(trial: FrozenTrial, cost: str) -> None:
    """Raise a ValueError if a complete trial lacks the metric that is the cost."""
    found = metric_at(trial.user_attrs, cost)
    if cost != SECONDS and not is_cost(found):
        given = "there is none" if found is None else f"not {short(found)}"
        raise ValueError(
            f"trial {trial.number}: cost={cost!r} needs a positive number under this name in every trial, {given}; "
            f"call trial.set_user_attr({cost!r}, ...), or use cost='seconds', which is measured"
        )
