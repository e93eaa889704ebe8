"""Writing to storages without transactions through the calls that every Optuna storage has."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.study.attributes import Key, announcement
from lazybo.study.databases import NumberTaken
from lazybo.study.journal import Journal, gathered
from lazybo.study.store import Store


class StorageCalls:
    """The methods of `lazybo.study.databases.Tables`, for memory, journal files and any other Optuna storage.

    A process may be killed between any two writes. In a journal, what belongs together is one write.
    """

    def __init__(self, store: Store, space: Mapping[str, BaseDistribution]) -> None:
        self._store, self._storage = store, store.storage
        self._space = space

    def trials(self) -> list[FrozenTrial]:
        return self._store.trials()

    def add_trial(
        self,
        state: TrialState,
        params: Mapping[str, Any],
        attributes: Mapping[str, Any],
        low: int = 0,
        high: float = inf,
        notes: Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        number = self._storage.get_n_trials(self._store.study_id)
        if not low <= number < high:
            raise NumberTaken(number)
        distributions = {name: self._space[name] for name in params}
        trial = create_trial(state=state, params={**params}, distributions=distributions, system_attrs={**attributes})
        with gathered(self._storage):
            self.set_study_attributes(notes or {})
        trial_id = self._storage.create_new_trial(self._store.study_id, trial)
        return trial_id, self._storage.get_trial_number_from_id(trial_id)

    def change_state(
        self,
        trial_id: int,
        before: Sequence[TrialState],
        after: TrialState,
        *,
        driver: str | None = None,
        values: Sequence[float] | None = None,
        user_attrs: Mapping[str, Any] | None = None,
        system_attrs: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write the state last: it decides whether other processes use the rest, also after a kill in between."""
        trial = self._storage.get_trial(trial_id)
        if trial.state not in before or (driver is not None and trial.system_attrs.get(Key.DRIVER) != driver):
            return False
        with gathered(self._storage):
            self.set_user_attributes(trial_id, user_attrs or {})
            self.set_trial_attributes(trial_id, system_attrs or {})
        return bool(self._storage.set_trial_state_values(trial_id, after, values))

    def restart(self, trial_id: int) -> None:
        """Optuna's calls cannot change the start of a trial."""

    def unfinished(self, trial_ids: Iterable[int]) -> set[int]:
        return {trial_id for trial_id in trial_ids if not self._has_ended(trial_id)}

    def _has_ended(self, trial_id: int) -> bool:
        try:
            return self._storage.get_trial(trial_id).state.is_finished()
        except KeyError:
            return True  # its study was deleted

    def report(self, values: Mapping[int, Mapping[int, float]]) -> None:
        if isinstance(self._storage, Journal):
            self._storage.set_intermediate_values(values)
            return
        for trial_id, steps in values.items():
            try:
                for step, value in steps.items():
                    self._storage.set_trial_intermediate_value(trial_id, step, value)
            except UpdateFinishedTrialError:
                continue  # without a lock, another process may have ended it in between

    def set_params(self, trial_id: int, params: Mapping[str, Any], known: Collection[str] = ()) -> None:
        """Write the announcement first: other processes see all parameters at once."""
        self.set_trial_attributes(trial_id, announcement(params, self._space))
        for name, value in params.items():
            if name not in known:
                number = self._internal(name, value)
                self._storage.set_trial_param(trial_id, name, number, self._space[name])

    def set_study_attributes(self, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._storage.set_study_system_attr(self._store.study_id, key, value)

    def set_trial_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._storage.set_trial_system_attr(trial_id, key, value)

    def set_user_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._storage.set_trial_user_attr(trial_id, key, value)

    def _internal(self, name: str, value: Any) -> float:
        return float(self._space[name].to_internal_repr(value))
