"""Paused trials: trainings that were stopped for now and can be continued from their checkpoints.

In the study a paused trial is waiting (Optuna has no state of its own for it) and has the attribute `PAUSED_KEY`.
"""

from functools import partial

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import shortened
from lazybo.study.attributes import PAUSED_KEY, TO_END_KEY
from lazybo.study.retry import with_retries


def is_paused(trial: FrozenTrial) -> bool:
    """Whether a trial is paused."""
    return trial.state == TrialState.WAITING and trial.user_attrs.get(PAUSED_KEY) is not None


def paused_trials(study: Study) -> list[FrozenTrial]:
    """The paused trials of a study."""
    return [trial for trial in with_retries(partial(study.get_trials, deepcopy=False)) if is_paused(trial)]


def resume(study: Study, *numbers: int) -> None:
    """Queue paused trials: the next run continues them before it starts others, and does not pause them again.

    Without numbers, all paused trials. Raises ValueError if one of the numbers is not that of a paused trial.
    """
    paused = {trial.number: trial for trial in paused_trials(study)}
    for number in numbers:
        if number not in paused:
            known = ", ".join(map(str, paused)) or "none"
            raise ValueError(f"trial {shortened(number)} is not paused; paused trials: {known}")
    storage = study._storage
    for number in numbers or tuple(paused):
        trial_id = paused[number]._trial_id
        with_retries(partial(storage.set_trial_system_attr, trial_id, TO_END_KEY, True))
        with_retries(partial(storage.set_trial_user_attr, trial_id, PAUSED_KEY, None))
