"""`StudyView`: what a study says, computed from its trials as they were when they were read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial

from lazybo.core import Direction, checks, codec
from lazybo.search import Evaluation, Options, non_dominated
from lazybo.space import Space, Structured
from lazybo.study.attributes import Key, of_study
from lazybo.study.definition import (
    Definition,
    directions_of,
    first_run,
    keep_options,
    options_of,
    reporting_of,
    stored_options,
)
from lazybo.study.store import Store
from lazybo.study.trial import TrialView, evaluations_of, feasible_of

if TYPE_CHECKING:
    from lazybo.study.model import StudyModel

_T = TypeVar("_T")


@dataclass(frozen=True)
class StudyView:
    """A study and its trials, by number. Nothing here changes when the study does."""

    study: Study
    frozen: Sequence[FrozenTrial]

    @classmethod
    def of(cls, study: Study) -> "StudyView":
        """A study as it is now."""
        return cls(study, Store(study).trials())

    @cached_property
    def trials(self) -> tuple[TrialView, ...]:
        """All trials, by number."""
        return tuple(map(TrialView, self.frozen))

    def only(self, counts: Callable[[TrialView], bool]) -> "StudyView":
        """The same study as if it had only some of its trials."""
        return replace(self, frozen=[trial.frozen for trial in self.trials if counts(trial)])

    # ---------------------------------------------------------------- definition

    @property
    def name(self) -> str:
        """The name of the study."""
        return self.study.study_name

    @cached_property
    def directions(self) -> tuple[Direction, ...]:
        """The directions as `Optimizer` takes them."""
        return directions_of(self.study)

    @property
    def maximizes(self) -> bool:
        """Whether the first objective is maximised."""
        return self.directions[0] == "maximize"

    @cached_property
    def objectives(self) -> list[str]:
        """The names of the objectives; without names ``value``, or ``value 0``, ``value 1`` and so on for several."""
        if self.study.metric_names:
            return list(self.study.metric_names)
        count = len(self.directions)
        return ["value"] if count == 1 else [f"value {i}" for i in range(count)]

    @property
    def reports(self) -> int:
        """The position of the objective that trials report."""
        return reporting_of(self.study)

    @property
    def kinds(self) -> dict[str, Structured]:
        """The parameters with structure. Raises a ValueError if they are damaged."""
        return Store(self.study).kinds()

    def first_constraints(self, parse: Callable[[Sequence[str]], _T]) -> _T:
        """The constraints of the first run, parsed. Raises a ValueError that says what to do if they are damaged."""
        run = first_run(self.name, Store(self.study).attributes())
        with codec.readable(of_study(Key.RUN, self.name), Definition.REMEDY):
            return parse(run.constraints if run else ())

    @property
    def has_options(self) -> bool:
        """Whether a run or a sampler has stored its options. Raises a ValueError if they are damaged."""
        return bool(stored_options(self.study, self.frozen)[0])

    def options(self, space: Space | None = None) -> tuple[Options, Space]:
        """The options of the last run or sampler, and its space unless that is known.

        Predicates are not stored, so the space has none.
        """
        return options_of(self.study, self.frozen, space)

    def keep_options(self, options: Options, space: Space) -> None:
        """Store the options of a run that begins now."""
        keep_options(self.study, options, space, self.frozen)

    def model(self) -> "StudyModel":
        """The model that the last run or sampler would continue with, with all these trials."""
        from lazybo.study.model import model_of

        return model_of(self.study, self.frozen)

    # -------------------------------------------------------------------- trials

    @property
    def has_parameters(self) -> bool:
        """Whether any trial has a parameter."""
        return any(trial.params for trial in self.trials)

    @cached_property
    def complete(self) -> list[TrialView]:
        """The trials with finite values."""
        return [trial for trial in self.trials if trial.is_complete]

    @cached_property
    def constraints(self) -> list[str]:
        """The names of all constraints that any trial has measured, in alphabetical order."""
        return sorted({name for trial in self.trials for name in trial.constraints})

    @cached_property
    def feasible(self) -> list[TrialView]:
        """The trials with finite values that have measured and satisfied all constraints."""
        return feasible_of(self.trials)

    @cached_property
    def feasible_numbers(self) -> set[int]:
        """Their numbers."""
        return {trial.number for trial in self.feasible}

    @cached_property
    def front(self) -> list[TrialView]:
        """The feasible trials that no other dominates, by number. With one objective these are the best ones."""
        if not self.feasible:
            return []
        signs = np.array([-1.0 if each == "maximize" else 1.0 for each in self.directions])
        kept = non_dominated(np.array([trial.values for trial in self.feasible]) * signs)
        return [trial for trial, on_front in zip(self.feasible, kept, strict=True) if on_front]

    @property
    def paused(self) -> list[TrialView]:
        """The trials that can be resumed."""
        return [trial for trial in self.trials if trial.is_paused]

    def evaluations(self, space: Space, most: int | None = None) -> list[Evaluation]:
        """The feasible trials in the space, which may be recommended or repeated.

        With ``most``, only those of this number of configurations with the best values: to predict tens of thousands
        takes long, and the best one is not among those with bad values.
        """
        counted = self.feasible
        if most is not None and len(counted) > most:
            keyed = [(repr(sorted(trial.params.items())), trial) for trial in counted]
            by_value = sorted(keyed, key=lambda pair: pair[1].value, reverse=self.maximizes)
            kept = set([*dict.fromkeys(key for key, _ in by_value)][:most])
            counted = [trial for key, trial in keyed if key in kept]
        return evaluations_of(counted, space)


def resume(study: Study, *numbers: int) -> None:
    """Queue paused trials: the next run continues them before it starts others, and does not pause them again.

    Without numbers, all paused trials. Raises a ValueError if one of these trials is not paused.
    """
    paused = {trial.number: trial for trial in StudyView.of(study).paused}
    for number in numbers:
        if number not in paused:
            known = ", ".join(map(str, paused)) or "none"
            raise ValueError(f"trial {checks.shortened(number)} is not paused; paused trials: {known}")
    store = Store(study)
    for number in numbers or tuple(paused):
        store.set_trial_attributes(paused[number].id, {Key.TO_END: True})
        store.set_user_attributes(paused[number].id, {Key.PAUSED: None})
