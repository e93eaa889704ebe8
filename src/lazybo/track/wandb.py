"""Trials in Weights & Biases. The only module that imports it (extra ``wandb``)."""

from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.track.tracker import TrackedRun, Tracker

try:
    import wandb
except ImportError as error:
    raise ImportError(f"this tracker needs wandb ({error}): pip install 'lazybo[wandb]'") from error


class WandB(Tracker):
    """Logs each trial as a run of a project, in a group with the name of the study.

    ``options`` go to ``wandb.init``: ``mode="offline"`` writes to a folder and needs no account.
    """

    def __init__(self, project: str, **options: Any) -> None:
        super().__init__()
        self._options = {"project": project, **options}

    def start(self, study: str, trial: FrozenTrial) -> TrackedRun:
        """The run of a trial. Its id follows from the study, so that a resumed study continues it."""
        name = f"{study}-{trial.number}"
        return _OnlineRun(
            wandb.init(
                id="".join(letter if letter.isalnum() else "-" for letter in name),
                name=name,
                group=study,
                resume="allow",
                reinit="create_new",
                **self._options,
            )
        )


class _OnlineRun:
    def __init__(self, run: Any) -> None:
        self._run = run

    def describe(self, params: Mapping[str, Any]) -> None:
        self._run.config.update(dict(params), allow_val_change=True)

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        if step is None:
            self._run.summary.update(dict(values))
        else:
            self._run.log(dict(values), step=step)

    def end(self, state: str) -> None:
        self._run.summary["state"] = state
        self._run.finish(exit_code=int(state == "fail"))
