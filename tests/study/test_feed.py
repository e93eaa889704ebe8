"""Which trials are read again, and which are waited for."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.study.attributes import Key
from lazybo.study.feed import Feed, Patience, StudyReaders, Unannounced
from lazybo.study.sampler import LazySampler


def trials_of(states: list[TrialState]) -> list[FrozenTrial]:
    trials = [create_trial(state=state, value=1.0 if state == TrialState.COMPLETE else None) for state in states]
    for number, trial in enumerate(trials):
        trial.number = number
    return trials


def take(feed: Feed, states: list[TrialState]) -> list[int]:
    """The numbers of the news; those that have finished are settled."""
    news = feed.news(trials_of(states))
    for trial in news:
        if trial.state.is_finished():
            feed.settle(trial)
    return [trial.number for trial in news]


def test_trials_are_given_until_they_are_settled() -> None:
    done, runs, waits = TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING
    feed = Feed()
    assert take(feed, [done, runs, done]) == [0, 1, 2]
    assert take(feed, [done, runs, done, waits, *[done] * 50]) == [1, *range(3, 54)]
    assert take(feed, [done, runs, done, waits, *[done] * 51]) == [1, 3, 54]
    assert take(feed, [done, TrialState.FAIL, done, runs, *[done] * 51]) == [1, 3]
    assert take(feed, [done] * 55) == [3]
    assert len(feed) == 55


def test_a_finished_trial_that_was_not_settled_is_given_again() -> None:
    feed, finished = Feed(), trials_of([TrialState.COMPLETE] * 4)
    for trial in feed.news(finished):
        assert trial.number == 2 or feed.settle(trial)
    assert [trial.number for trial in feed.news(finished)] == [2]


def test_a_trial_that_was_settled_before_it_was_seen_is_not_given() -> None:
    feed, finished = Feed(), trials_of([TrialState.COMPLETE] * 4)
    assert feed.settle(finished[1])
    assert not feed.settle(finished[1])
    assert [trial.number for trial in feed.news(finished)] == [0, 2, 3]


# --------------------------------------------------------------- wait for others


PATIENCE = Patience(announcement=2.0, driver=30.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that only moves when somebody sleeps, or when the test moves it."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now[0])
        patch.setattr(time, "sleep", sleep)
        yield now


@pytest.mark.parametrize("hours", [-3, 3])
def test_clocks_of_other_hosts_do_not_matter(hours: int, clock: list[float]) -> None:
    (trial,) = trials_of([TrialState.RUNNING])
    trial.datetime_start = datetime.now() + timedelta(hours=hours)
    unannounced = Unannounced(PATIENCE)
    assert unannounced.is_awaited(trial), "it has just been seen for the first time"
    clock[0] += 2.1
    assert not unannounced.is_awaited(trial), "it had its time"


def test_a_trial_of_a_driver_is_awaited_longer_since_its_proposal_comes(clock: list[float]) -> None:
    plain, driven = trials_of([TrialState.RUNNING] * 2)
    driven.system_attrs[Key.DRIVER] = "other"
    unannounced = Unannounced(PATIENCE)
    assert unannounced.awaited([plain, driven]) == 2, "the time of all of them begins"
    clock[0] += 2.1
    assert not unannounced.is_awaited(plain)
    assert unannounced.is_awaited(driven)
    clock[0] += 28.0
    assert not unannounced.awaited([plain, driven])


def test_the_time_of_a_trial_begins_when_those_before_it_have_announced_theirs(clock: list[float]) -> None:
    """Twenty clients make suggestions one after the other. The last one takes long, and it is not dead."""
    trials, unannounced = trials_of([TrialState.RUNNING] * 4), Unannounced(PATIENCE)
    for left in (4, 3, 2):
        assert unannounced.awaited(trials) == left
        clock[0] += 1.5
        trials = trials[1:]
    assert unannounced.awaited(trials) == 1
    clock[0] += 2.1
    assert unannounced.awaited(trials) == 0, "this one has had its time"


def test_a_trial_that_has_announced_its_parameters_is_not_awaited() -> None:
    trial = create_trial(state=TrialState.RUNNING, system_attrs={f"{Key.SUGGESTION}:0": "{}"})
    assert not Unannounced().is_awaited(trial)


def test_a_wait_ends_when_all_have_announced_or_the_time_is_over(clock: list[float]) -> None:
    trials, syncs = trials_of([TrialState.RUNNING]), []

    def sync() -> None:
        syncs.append(clock[0])
        if len(syncs) == 3:
            trials[:] = trials_of([TrialState.COMPLETE])

    unannounced = Unannounced(PATIENCE)
    unannounced.wait(lambda: trials, sync)
    assert len(syncs) == 3
    trials[:] = trials_of([TrialState.RUNNING])
    unannounced.wait(lambda: trials, sync)
    assert len(syncs) > 4, "it synced more than once before it gave up"
    assert clock[0] == pytest.approx(2.0, abs=0.1)


# ------------------------------------------------------------------------ readers


def test_a_database_that_is_opened_twice_has_one_reader(tmp_path: Path) -> None:
    """Optuna puts a cache of its own around the database for every study that it opens."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/s.db")
    optuna.create_study(study_name="s", storage=storage)
    studies = [optuna.load_study(study_name="s", storage=storage) for _ in range(2)]
    readers = StudyReaders(list)
    assert readers.of(studies[0]) is readers.of(studies[1])


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
