"""Which trials are read again."""

import optuna
from optuna.distributions import FloatDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.study.sampler import LazySampler
from lazybo.study.unsettled import Unsettled


def trials_of(states: list[TrialState]) -> list[FrozenTrial]:
    trials = [create_trial(state=state, value=1.0 if state == TrialState.COMPLETE else None) for state in states]
    for number, trial in enumerate(trials):
        trial.number = number
    return trials


def numbers(trials: list[FrozenTrial]) -> list[int]:
    return [trial.number for trial in trials]


def test_only_new_and_unfinished_trials_are_read_again() -> None:
    done, runs, waits = TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING
    unsettled = Unsettled()
    assert numbers(unsettled.among(trials_of([done, runs, done]))) == [0, 1, 2]
    unsettled.note(trials_of([done, runs, done, waits, *[done] * 50]))
    assert numbers(unsettled.among(trials_of([done, runs, done, waits, *[done] * 51]))) == [1, 3, 54]
    unsettled.note(trials_of([done, TrialState.FAIL, done, runs, *[done] * 51]))
    assert numbers(unsettled.among(trials_of([done] * 55))) == [3]


def test_a_trial_that_was_left_out_is_read_again() -> None:
    unsettled = Unsettled()
    finished = trials_of([TrialState.COMPLETE] * 4)
    unsettled.note(finished, except_number=2)
    assert numbers(unsettled.among(finished)) == [2]


def test_the_latest_trial_counts_even_if_an_earlier_one_still_runs() -> None:
    sampler = LazySampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    study.ask({"x": FloatDistribution(0, 1)})
    study.tell(study.ask({"x": FloatDistribution(0, 2)}), 1.0)
    for _ in range(3):
        assert sampler.infer_relative_search_space(study, study.ask()._get_latest_trial()) == {
            "x": FloatDistribution(0, 2)
        }


class Counting(InMemoryStorage):
    """Counts how often all trials are read."""

    reads = 0

    def get_all_trials(self, *arguments: object, **options: object) -> list[FrozenTrial]:
        self.reads += 1
        return super().get_all_trials(*arguments, **options)  # type: ignore[arg-type]


def test_a_suggestion_reads_the_study_once() -> None:
    storage = Counting()
    study = optuna.create_study(storage=storage, sampler=LazySampler(seed=0))
    for _ in range(12):
        before = storage.reads
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        assert storage.reads - before <= 2, "one of them is Optuna's own"
        study.tell(trial, 1.0)
