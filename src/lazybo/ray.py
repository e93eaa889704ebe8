"""LazyScheduler: stops, pauses and resumes the trainings of a Ray Tune run. Needs Ray Tune (extra ``tune``).

The scheduler records each Tune trial in a study and asks `lazybo.run.Trainings` after each report: whether the training
continues, and which paused one to resume.

Tune does not save the state of a scheduler. The study is a journal in the folder from which Tune copies the state of an
experiment to its storage, so `Tuner.restore` finds it there again.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import TrialState

from lazybo.core import Direction, checks
from lazybo.run import Trainings

try:
    from ray.tune import Trainable
    from ray.tune.experiment import Trial
    from ray.tune.result import SHOULD_CHECKPOINT
    from ray.tune.schedulers import TrialScheduler
    from ray.tune.trainable import FunctionTrainable
    from ray.tune.utils import flatten_dict
except ImportError as error:
    raise ImportError(f"lazybo.ray needs Ray Tune ({error}): pip install 'ray[tune]'") from error

# The journal in the folder of an experiment. When Tune restores one, it copies back only files with this ending.
FILE = "lazybo-study.json"
DIRECTIONS: dict[str, Direction] = {"min": "minimize", "max": "maximize"}
VERDICTS = {"continue": TrialScheduler.CONTINUE, "pause": TrialScheduler.PAUSE, "stop": TrialScheduler.STOP}
# What a training with checkpoints implements, if it is a class.
CHECKPOINTS = ("save_checkpoint", "load_checkpoint")


class LazyScheduler(TrialScheduler):
    """A Tune scheduler that stops a training when a new one is worth more, by a model of all curves of the run.

    A training with a checkpoint is paused instead, and may be resumed later. Others are stopped for good: those of
    functions that report no checkpoint, of classes without ``save_checkpoint`` and ``load_checkpoint``, and all of them
    if the search algorithm limits the concurrent trials, since it counts paused ones. When nothing runs any more and no
    paused training is worth resuming, the paused ones are stopped.

    ``max_t`` is the last value of ``time_attr``, where a training is stopped as complete. ``metric`` and ``mode`` may
    be given here or in ``TuneConfig``.
    """

    _supports_buffered_results = False  # a decision counts before the next step

    def __init__(
        self,
        *,
        max_t: int,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("time_attr", time_attr), *([] if metric is None else [("metric", metric)])):
            if not (isinstance(value, str) and value):
                raise ValueError(f"{name} must be the name of a reported value, not {checks.shortened(value)}")
        self._max_t, self._time_attr = checks.whole("max_t", max_t, 1), time_attr
        self._metric, self._mode = metric, None if mode is None else checks.one_of("mode", mode, list(DIRECTIONS))
        self._n_trials: int | None = None
        self._run: Trainings | None = None  # from the first trial on

    def __getstate__(self) -> dict[str, Any]:
        """Only the settings: when Tune restores a run, it adds all trials again, and the study has the rest."""
        return {**self.__dict__, "_run": None}

    @property
    def study(self) -> Study | None:
        """The Optuna study of the run; None before its first trial."""
        return None if self._run is None else self._run.study

    # ------------------------------------------------------------- Tune's interface

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take metric and mode from ``TuneConfig``; False if they were given to the scheduler too."""
        if (metric and self._metric) or (mode and self._mode):
            return False
        metric, mode = metric or self._metric, mode or self._mode
        if not metric or not mode:
            raise ValueError(
                "LazyScheduler needs a metric and a mode; give both in tune.TuneConfig(metric=..., mode=...) or in "
                f"LazyScheduler(metric=..., mode=...), not metric={metric!r} and mode={mode!r}"
            )
        self._metric, self._mode = metric, checks.one_of("mode", mode, list(DIRECTIONS))
        samples = spec.get("num_samples", -1)
        self._n_trials = samples if samples > 0 else None
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:  # noqa: ARG002 (Tune's, as below)
        """Note a configuration. In a run that is restored, a trial that was paused still is."""
        if self._run is None:
            folder, direction = Path(trial.storage.experiment_driver_staging_path), DIRECTIONS[self._mode or "min"]
            self._run = Trainings(folder / FILE, direction, self._max_t, self._n_trials)
        self._run.note(trial.trial_id, flatten_dict(trial.config))
        if trial.status in (Trial.TERMINATED, Trial.ERROR):
            state = TrialState.PRUNED if trial.status == Trial.TERMINATED else TrialState.FAIL
            self._run.finish(trial.trial_id, state)
        elif self._run.is_paused(trial.trial_id):
            trial.set_status(Trial.PAUSED)  # Tune has made it PENDING, and would start it

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Whether a training continues, pauses or stops."""
        reported = self._reported(trial, result)
        if reported is None:
            return VERDICTS["continue"]
        can_pause = _has_checkpoint(trial, result) and not _is_limited(tune_controller)
        return VERDICTS[self._running.report(trial.trial_id, *reported, can_pause=can_pause)]

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Record the end of a training that was not ended here: it returned, or the user's rule has stopped it."""
        if (reported := self._reported(trial, result)) is not None:
            self._running.ended(trial.trial_id, *reported)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:  # noqa: ARG002
        """Record a failure. If Tune tries again, the next report begins a new trial of the study."""
        self._running.finish(trial.trial_id, TrialState.FAIL)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:  # noqa: ARG002
        """Record that a paused training does not continue."""
        self._running.finish(trial.trial_id, TrialState.PRUNED)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The paused training that is worth more than a new one, or the next new one."""
        trials: dict[str, dict[str, Trial]] = {status: {} for status in (Trial.PENDING, Trial.PAUSED, Trial.RUNNING)}
        for trial in tune_controller.get_trials():
            if trial.status in trials:
                trials[trial.status][trial.trial_id] = trial
        pending, paused, running = trials.values()
        if not paused and not pending:
            return None
        # One is resumed at a time: when it has reported, another may be worth more.
        resumed = next(filter(self._running.is_resumed, pending), None)
        if resumed is not None:
            return pending[resumed]
        more = not tune_controller.search_alg.is_finished()
        key = self._running.worth_resuming([*pending], [*paused], [*running], more=more)
        if key is not None:
            self._running.resume(key)
            return paused[key]
        if not pending and not running:
            for trial in paused.values():
                tune_controller.stop_trial(trial)
        return next(iter(pending.values()), None)

    def debug_string(self) -> str:
        """How many trainings are in each state, for Tune's progress."""
        counts = sorted(({} if self._run is None else self._run.counts()).items())
        return f"Using LazyScheduler: {', '.join(f'{n} {state}' for state, n in counts) or 'no reports'}"

    @property
    def _running(self) -> Trainings:
        assert self._run is not None, "Tune adds a trial before anything else"
        return self._run

    def _reported(self, trial: Trial, result: Mapping[str, Any]) -> tuple[int, float] | None:
        """The step and the value of a report; None if there is none: a function may return without one."""
        if self._metric is None or self._metric not in result:
            return None
        if self._time_attr not in result:
            raise ValueError(
                f"trial {trial.trial_id} does not report {self._time_attr!r}; give time_attr= the name of a count that "
                f"grows with each report, for example 'training_iteration'. It reports: {', '.join(result)}"
            )
        step = math.floor(checks.finite_number(self._time_attr, result[self._time_attr]))
        return checks.whole(self._time_attr, step, 0), checks.as_number(self._metric, result[self._metric])


def _has_checkpoint(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Whether a training that is paused now would continue from a checkpoint."""
    kind = trial.get_trainable_cls()
    if issubclass(kind, FunctionTrainable):
        return bool(result.get(SHOULD_CHECKPOINT)) or trial.checkpoint is not None
    return all(getattr(kind, name) is not getattr(Trainable, name) for name in CHECKPOINTS)


def _is_limited(tune_controller: Any) -> bool:
    """Whether the search algorithm limits the trials that have not ended, so that paused ones keep others waiting."""
    search = tune_controller.search_alg
    while search is not None and not getattr(search, "max_concurrent", 0):
        search = getattr(search, "searcher", None)
    return search is not None
