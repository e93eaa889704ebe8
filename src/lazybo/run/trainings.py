"""Trainings: a study of trainings that another tool runs, which reports their values and obeys decisions.

The tool has an id and a configuration for each training. It may tell no search space: then the range of a parameter is
that of the values seen so far, and its scale is guessed from them.
"""

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from lazybo.core import Direction, checks
from lazybo.run.next_trial import RESUMED, Bracket, bracket_for
from lazybo.space import Space
from lazybo.study import LazyPruner, Result, Session, Store, TrialView

# User: the id of this training in the tool.
ID_KEY = "lazybo:tune"
Verdict: TypeAlias = Literal["continue", "pause", "stop"]


class Trainings:
    """Trainings of up to ``max_step`` steps, by the ids of the tool that runs them, in a study kept in a file.

    ``n_trials`` is how many there will be, if that is known.
    """

    def __init__(self, file: Path, direction: Direction, max_step: int, n_trials: int | None = None) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.study = optuna.create_study(
            storage=Store.open(file, alone=True), study_name="tune", direction=direction, load_if_exists=True
        )
        self._max_step, self._n_trials, self._pruner = max_step, n_trials, LazyPruner(max_step=max_step)
        self._session = Session(self.study)
        self._configs: dict[str, dict[str, Any]] = {}
        self._space: dict[str, BaseDistribution] = {}
        self._resumed: set[str] = set()  # those that have not reported since
        self._changes = 0  # counts what the choice of a paused training depends on
        self._unworthy: object = None  # the state in which none was worth resuming
        # If an id is there twice, the first attempt has failed, and the tool has tried again.
        self._trials = {_id_of(each): each for each in self._session.read().trials}

    def counts(self) -> Counter[str]:
        """How many of those that have reported are in each state."""
        return Counter(each.state for each in self._session.read().trials)

    # -------------------------------------------------------------------- what happens

    def note(self, key: str, config: Mapping[str, Any]) -> None:
        """Note a configuration, and extend the space to it."""
        self._configs[key] = {name: _plain(value) for name, value in config.items()}
        for name, value in self._configs[key].items():
            if name not in self._space or not Space({name: self._space[name]}).allows(name, value):
                self._space[name] = _guessed([each[name] for each in self._configs.values() if name in each])

    def report(self, key: str, step: int, value: float, *, can_pause: bool) -> Verdict:
        """Record a value, unless the step has one, and decide whether the training continues."""
        self._record(key, step, value)
        known = self._recorded(key)
        if known is None or step < (known.last_step or 0):
            return "continue"  # a step after the last checkpoint is repeated
        ends = step >= self._max_step
        if known.has_ended:  # the tool was killed before it had recorded the end
            return "stop" if ends or known.state == "pruned" else "continue"
        if ends and math.isfinite(value):
            self.finish(key, TrialState.COMPLETE, value)
            return "stop"
        can_pause = can_pause and math.isfinite(value)
        bracket = self._bracket() if can_pause else None
        is_at_rung = bracket is not None and step >= bracket.pause_at(known.handling.paused_step)
        if not is_at_rung and not self._is_pruned(known):
            return "continue"
        if not can_pause:
            self.finish(key, TrialState.PRUNED)
            return "stop"
        self._session.pause(self._trials[key], step, {})
        self._changes += 1
        return "pause"

    def ended(self, key: str, step: int, value: float) -> None:
        """Record the end of a training that was not ended here."""
        self._record(key, step, value)
        self.finish(key, TrialState.COMPLETE if math.isfinite(value) else TrialState.PRUNED, value)

    def resume(self, key: str) -> None:
        """Record that a paused training continues."""
        self._session.claim(self._trials[key])
        self._session.unpause(self._trials[key])
        self._resumed.add(key)
        self._changes += 1

    def finish(self, key: str, state: TrialState, value: float | None = None) -> None:
        """End a training, unless it has ended or never reported."""
        if key in self._trials:
            self._session.finish(self._trials[key], Result(state, () if value is None else (value,)))
            self._changes += 1

    # ----------------------------------------------------------------------- questions

    def is_paused(self, key: str) -> bool:
        """Whether a training is paused."""
        known = self._recorded(key)
        return known is not None and known.is_paused

    def is_resumed(self, key: str) -> bool:
        """Whether a training was resumed and has not reported since."""
        return key in self._resumed

    def worth_resuming(
        self, pending: Sequence[str], paused: Sequence[str], running: Sequence[str], *, more: bool
    ) -> str | None:
        """The paused training to continue before a new one begins, if any; ``more`` new ones may come."""
        state = self._changes, pending[:1], len(paused), len(running), more
        if not paused or self._unworthy == state:  # a tool may ask many times a second
            return None
        bracket = self._bracket()
        if bracket is not None:
            starts = any(self._recorded(key) is None for key in running)
            found = bracket.next_of(self._session.read().trials, needed=bool(pending) or starts or more)
        else:
            found = self._best_to_resume(paused, self._params(pending[0]) if pending else None)
        key = None if found is None else _id_of(found)
        if key in paused:
            return key
        self._unworthy = state
        return None

    # -------------------------------------------------------------------- decisions

    def _bracket(self) -> Bracket | None:
        """The first bracket, until it is over."""
        # A grid has more trials than the tool says.
        n_trials = None if self._n_trials is None else max(self._n_trials, len(self._configs))
        bracket = bracket_for(self._max_step, n_trials, -1.0 if self.study.direction.name == "MAXIMIZE" else 1.0)
        return None if bracket is None or bracket.is_over(self._session.read().trials) else bracket

    def _is_pruned(self, trial: TrialView) -> bool:
        """Whether a new training is worth more than the rest of this one."""
        step = trial.last_step or 0
        if math.isfinite(trial.reported[step]) and step < RESUMED * trial.handling.paused_step:
            return False
        return self._pruner.prune(self.study, trial.frozen)

    def _best_to_resume(self, paused: Sequence[str], new: Mapping[str, Any] | None) -> TrialView | None:
        """The paused training that the model prefers to a new one with these parameters."""
        known = [each for each in map(self._recorded, paused) if each is not None]
        curves = self._pruner.curves(self.study, known[0].frozen) if known else None
        return None if curves is None else curves.best_to_resume(known, new)

    # -------------------------------------------------------------------- the study

    def _params(self, key: str) -> dict[str, Any]:
        """A configuration in the space as it is known now: what was a number may be a choice."""
        config = self._configs[key]
        is_choice = {name: isinstance(self._space[name], CategoricalDistribution) for name in config}
        return {name: str(value) if is_choice[name] else value for name, value in config.items()}

    def _recorded(self, key: str) -> TrialView | None:
        """A training in the study, with the space as it is known now; None before its first report."""
        trial = self._trials.get(key)
        if trial is None:
            return None
        found = copy.copy(self._session.store.trial(trial.id))
        found.distributions = self._space
        return TrialView(found)

    def _record(self, key: str, step: int, value: float) -> None:
        """Record a value. The first begins a trial of the study, as does the first after a failure."""
        self._resumed.discard(key)
        known = self._recorded(key)
        values = {} if known is None else known.reported
        if known is None or known.has_failed:
            params = self._params(key)
            begun = create_trial(
                state=TrialState.RUNNING,
                params=params,
                distributions={name: self._space[name] for name in params},
                user_attrs={ID_KEY: key},
                intermediate_values=dict(values),
            )
            store = self._session.store
            self._trials[key] = TrialView(store.trial(store.add(begun)))
        if step not in values:
            self._session.report({self._trials[key].id: {step: value}})


def _id_of(trial: TrialView) -> str:
    return str(trial.frozen.user_attrs[ID_KEY])


def _plain(value: Any) -> Any:
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
