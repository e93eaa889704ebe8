"""LazyScheduler: stops, pauses and resumes the trainings of a Ray Tune run. Needs Ray Tune (extra ``tune``).

The scheduler records each Tune trial in a study, asks `LazyPruner` after each report, and chooses which paused training
to continue as `optimize()` does: by the first bracket, then by the model of curves (`lazybo.run.next_trial`).

Tune tells a scheduler the values of a configuration, not the search space. So the range of a parameter is that of the
values seen so far, and its scale is guessed from them.

Tune does not save the state of a scheduler. The study is a journal in the folder from which Tune copies the state of an
experiment to its storage, so `Tuner.restore` finds it there again.
"""

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.core import Direction, checks
from lazybo.run import RESUMED, Bracket, bracket_for
from lazybo.space import contains
from lazybo.study import (
    Entry,
    LazyPruner,
    Ledger,
    Result,
    Store,
    is_paused,
    open_alone,
    params_in,
    paused_step,
    point_in,
    state_of,
)

try:
    from ray.tune import Trainable
    from ray.tune.experiment import Trial
    from ray.tune.result import SHOULD_CHECKPOINT
    from ray.tune.schedulers import TrialScheduler
    from ray.tune.trainable import FunctionTrainable
    from ray.tune.utils import flatten_dict
except ImportError as error:
    raise ImportError(f"lazybo.ray needs Ray Tune ({error}): pip install 'ray[tune]'") from error

# User: the id of this trial in Ray Tune.
TUNE_KEY = "lazybo:tune"
# The journal in the folder of an experiment. When Tune restores one, it copies back only files with this ending.
FILE = "lazybo-study.json"
DIRECTIONS: dict[str, Direction] = {"min": "minimize", "max": "maximize"}
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
        self._pruner = LazyPruner(max_step=self._max_t)
        self._n_trials: int | None = None
        self._run: _Run | None = None  # from the first trial on
        self._unworthy: object = None  # the state in which no paused training was worth resuming

    def __getstate__(self) -> dict[str, Any]:
        """Only the settings: when Tune restores a run, it adds all trials again, and the study has the rest."""
        return {**self.__dict__, "_run": None, "_unworthy": None}

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
            folder = Path(trial.storage.experiment_driver_staging_path)
            self._run = _Run(folder, DIRECTIONS[self._mode or "min"])
        self._run.note(trial)
        known = self._run.recorded(trial)
        if known is None or known.state.is_finished():
            return
        if trial.status in (Trial.TERMINATED, Trial.ERROR):
            self._run.finish(trial, TrialState.PRUNED if trial.status == Trial.TERMINATED else TrialState.FAIL)
        elif is_paused(known):
            trial.set_status(Trial.PAUSED)  # Tune has made it PENDING, and would start it

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Whether a training continues, pauses or stops."""
        run, reported = self._running, self._report(trial, result)
        known = run.recorded(trial)
        if reported is None or known is None or reported[0] < (known.last_step or 0):
            return TrialScheduler.CONTINUE  # a step after the last checkpoint is repeated
        step, value = reported
        if known.state.is_finished():  # Tune was killed before it had recorded the end
            stops = known.state == TrialState.PRUNED or step >= self._max_t
            return TrialScheduler.STOP if stops else TrialScheduler.CONTINUE
        if step >= self._max_t and math.isfinite(value):
            run.finish(trial, TrialState.COMPLETE, value)
            return TrialScheduler.STOP
        can_pause = math.isfinite(value) and _has_checkpoint(trial, result) and not _is_limited(tune_controller)
        if not (can_pause and self._is_at_rung(known)) and not self._is_pruned(known):
            return TrialScheduler.CONTINUE
        if can_pause:
            run.pause(trial, step)
            return TrialScheduler.PAUSE
        run.finish(trial, TrialState.PRUNED)
        return TrialScheduler.STOP

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Record the end of a training that was not ended here: it returned, or the user's rule has stopped it."""
        if (reported := self._report(trial, result)) is not None:
            state = TrialState.COMPLETE if math.isfinite(reported[1]) else TrialState.PRUNED
            self._running.finish(trial, state, reported[1])

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:  # noqa: ARG002
        """Record a failure. If Tune tries again, the next report begins a new trial of the study."""
        self._running.finish(trial, TrialState.FAIL)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:  # noqa: ARG002
        """Record that a paused training does not continue."""
        self._running.finish(trial, TrialState.PRUNED)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The paused training that is worth more than a new one, or the next new one."""
        trials = tune_controller.get_trials()
        pending, paused, running = (
            [trial for trial in trials if trial.status == status]
            for status in (Trial.PENDING, Trial.PAUSED, Trial.RUNNING)
        )
        if not paused and not pending:
            return None
        # One is resumed at a time: when it has reported, another may be worth more.
        resumed = next((trial for trial in pending if self._running.is_resumed(trial)), None)
        if resumed is not None:
            return resumed
        found = self._worth_resuming(pending, paused, running, more=not tune_controller.search_alg.is_finished())
        if found is not None:
            self._running.resume(found)
        elif not pending and not running:
            for trial in paused:
                tune_controller.stop_trial(trial)
        return found or (pending[0] if pending else None)

    def debug_string(self) -> str:
        """How many trainings are in each state, for Tune's progress."""
        trials = [] if self._run is None else self._run.trials()
        counts = Counter(state_of(each).name.lower() for each in trials)
        return (
            f"Using LazyScheduler: {', '.join(f'{n} {state}' for state, n in sorted(counts.items())) or 'no reports'}"
        )

    # -------------------------------------------------------------------- decisions

    @property
    def _running(self) -> "_Run":
        assert self._run is not None, "Tune adds a trial before anything else"
        return self._run

    def _report(self, trial: Trial, result: Mapping[str, Any]) -> tuple[int, float] | None:
        """Record a value at its step; None if there is none: a function may return without a report."""
        if self._metric is None or self._metric not in result:
            return None
        if self._time_attr not in result:
            raise ValueError(
                f"trial {trial.trial_id} does not report {self._time_attr!r}; give time_attr= the name of a count that "
                f"grows with each report, for example 'training_iteration'. It reports: {', '.join(result)}"
            )
        step = checks.whole(
            self._time_attr, math.floor(checks.finite_number(self._time_attr, result[self._time_attr])), 0
        )
        value = checks.as_number(self._metric, result[self._metric])
        self._running.report(trial, step, value)
        return step, value

    def _bracket(self) -> Bracket | None:
        """The first bracket, until it is over."""
        # A grid has more trials than num_samples says.
        n_trials = None if self._n_trials is None else max(self._n_trials, len(self._running.configs))
        bracket = bracket_for(self._max_t, n_trials, -1.0 if self._mode == "max" else 1.0)
        return None if bracket is None or bracket.is_over(self._running.trials()) else bracket

    def _is_at_rung(self, trial: FrozenTrial) -> bool:
        """Whether the first bracket pauses a training here."""
        bracket = self._bracket()
        return bracket is not None and (trial.last_step or 0) >= bracket.pause_at(paused_step(trial))

    def _is_pruned(self, trial: FrozenTrial) -> bool:
        """Whether a new training is worth more than the rest of this one."""
        step = trial.last_step or 0
        if math.isfinite(trial.intermediate_values[step]) and step < RESUMED * paused_step(trial):
            return False
        return self._pruner.prune(self._running.study, trial)

    def _worth_resuming(
        self, pending: Sequence[Trial], paused: Sequence[Trial], running: Sequence[Trial], *, more: bool
    ) -> Trial | None:
        """The paused training to continue before a new one begins, if any; ``more`` trials may be suggested."""
        run = self._running
        state = run.changes, [trial.trial_id for trial in pending[:1]], len(paused), len(running), more
        if not paused or self._unworthy == state:  # Tune asks many times a second
            return None
        bracket = self._bracket()
        if bracket is not None:
            starts = any(run.recorded(trial) is None for trial in running)
            found = bracket.next_of(run.trials(), needed=bool(pending) or starts or more)
        else:
            found = self._best_to_resume(paused, run.params(pending[0]) if pending else None)
        if found is not None:  # None if Tune is still saving it
            found = next((trial for trial in paused if trial.trial_id == found.user_attrs[TUNE_KEY]), None)
        self._unworthy = state if found is None else None
        return found

    def _best_to_resume(self, paused: Sequence[Trial], new: Mapping[str, Any] | None) -> FrozenTrial | None:
        """The paused training that the model prefers to a new one with these parameters."""
        known = [each for each in map(self._running.recorded, paused) if each is not None]
        curves = self._pruner.curves(self._running.study, known[0]) if known else None
        if curves is None:
            return None
        fits = new is not None and point_in(curves.space, new) is not None
        return curves.best_to_resume(known, params_in(curves.space.distributions, new) if fits and new else None)


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


# --------------------------------------------------------------------- the study


class _Run:
    """The trials of a Tune run in a study, and the space that they show."""

    def __init__(self, folder: Path, direction: Direction) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.study = optuna.create_study(
            storage=open_alone(str(folder / FILE)), study_name="tune", direction=direction, load_if_exists=True
        )
        self.changes = 0  # counts what the choice of a paused training depends on
        self._store = Store(self.study)
        self._ledger = Ledger(self._store, {}, None)
        self.configs: dict[str, dict[str, Any]] = {}  # by Tune's id, as are the following
        self._space: dict[str, BaseDistribution] = {}
        self._resumed: set[str] = set()  # trainings that have not reported since
        # If an id is there twice, the first attempt has failed, and Tune has tried again.
        self._entries = {each.user_attrs[TUNE_KEY]: _entry(each) for each in self._store.trials()}

    def trials(self) -> list[FrozenTrial]:
        """All trials that have reported."""
        return self._store.trials()

    def note(self, trial: Trial) -> None:
        """Note the configuration of a trial, and extend the space to it."""
        config = {name: _plain(value) for name, value in flatten_dict(trial.config).items()}
        self.configs[trial.trial_id] = config
        for name, value in config.items():
            if name not in self._space or not contains(self._space[name], value):
                self._space[name] = _guessed([each[name] for each in self.configs.values() if name in each])

    def params(self, trial: Trial) -> dict[str, Any]:
        """The configuration of a trial in the space as it is known now: what was a number may be a choice."""
        config = self.configs[trial.trial_id]
        is_choice = {name: isinstance(self._space[name], CategoricalDistribution) for name in config}
        return {name: str(value) if is_choice[name] else value for name, value in config.items()}

    def recorded(self, trial: Trial) -> FrozenTrial | None:
        """A trial in the study, with the space as it is known now; None before its first report."""
        entry = self._entries.get(trial.trial_id)
        if entry is None:
            return None
        found = copy.copy(self._store.trial(entry.trial_id))
        found.distributions = self._space
        return found

    def report(self, trial: Trial, step: int, value: float) -> None:
        """Record a value, unless the step has one. The first begins a trial of the study."""
        self._resumed.discard(trial.trial_id)
        known = self.recorded(trial)
        values = {} if known is None else known.intermediate_values
        if known is None or known.state == TrialState.FAIL:
            params = self.params(trial)
            begun = create_trial(
                state=TrialState.RUNNING,
                params=params,
                distributions={name: self._space[name] for name in params},
                user_attrs={TUNE_KEY: trial.trial_id},
                intermediate_values=dict(values),
            )
            self._entries[trial.trial_id] = _entry(self._store.trial(self._store.add(begun)))
        if step not in values:
            self._ledger.report({self._entries[trial.trial_id].trial_id: {step: value}})

    def pause(self, trial: Trial, step: int) -> None:
        """Record that a training pauses after this step."""
        self._ledger.pause(self._entries[trial.trial_id], step, {})
        self.changes += 1

    def resume(self, trial: Trial) -> None:
        """Record that a paused training continues."""
        entry = self._entries[trial.trial_id]
        self._ledger.claim(entry.trial_id)
        self._ledger.unpause(entry.trial_id)
        self._resumed.add(trial.trial_id)
        self.changes += 1

    def is_resumed(self, trial: Trial) -> bool:
        """Whether a training was resumed and has not reported since."""
        return trial.trial_id in self._resumed

    def finish(self, trial: Trial, state: TrialState, value: float | None = None) -> None:
        """End a trial, unless it has ended or never reported."""
        if trial.trial_id in self._entries:
            self._ledger.finish(self._entries[trial.trial_id], Result(state, value, {}, {}))
            self.changes += 1


def _entry(trial: FrozenTrial) -> Entry:
    return Entry(trial._trial_id, trial.number, trial.params)


def _plain(value: Any) -> Any:
    """A value of a configuration as one of a parameter: a finite number, or else a text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str) or (checks.is_number(value) and math.isfinite(value)) else repr(value)


def _guessed(values: Sequence[Any]) -> BaseDistribution:
    """The distribution of a parameter, by its values: their range, or the choices that they are.

    The scale is logarithmic if the median is nearer to the middle of the range on that scale.
    """
    if not all(map(checks.is_number, values)):
        return CategoricalDistribution(list(dict.fromkeys(map(str, values))))
    low, high = min(values), max(values)
    log = low > 0 and median(values) ** 2 < (low + high) / 2 * math.sqrt(low * high)
    if all(isinstance(value, int) for value in values):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)
