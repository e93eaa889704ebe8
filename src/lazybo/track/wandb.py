"""Trials in Weights & Biases. The only module that imports it (extra ``wandb``)."""

import inspect
from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.track.tracker import TrackedRun, Tracker

try:
    import wandb
except ImportError as error:
    raise ImportError(f"this tracker needs wandb ({error}): pip install wandb") from error


# The arguments of wandb.init that say which trial a run is.
OURS = {"project", "id", "name", "group", "config", "resume", "reinit"}
MODES = (None, "online", "offline", "shared", "disabled", "dryrun", "run")


class WandB(Tracker):
    """Logs each trial as a run of a project, in a group with the name of the study.

    ``options`` go to ``wandb.init``: ``mode="offline"`` writes to a folder and needs no account.
    """

    def __init__(self, project: str, **options: Any) -> None:
        super().__init__()
        if not isinstance(project, str) or not project:
            raise TypeError(f"project must be the name of a project, not {project!r}")
        known = inspect.signature(wandb.init).parameters.keys() - OURS
        for name in options:
            if name not in known:
                why = "the tracker gives it to each run" if name in OURS else f"it has {', '.join(sorted(known))}"
                raise TypeError(f"WandB() takes the arguments of wandb.init, but no {name}=: {why}")
        if options.get("mode") not in MODES:
            raise ValueError(f"mode must be one of {[*MODES[1:]]}, not {options['mode']!r}")
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
