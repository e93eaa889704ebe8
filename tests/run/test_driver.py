"""The loop beside other processes: those that died, and those that live."""

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from optuna.trial import TrialState

from lazybo import Limits, Optimizer, RunFailed, Space, kfold, optimize
from lazybo.run.limits import STOPPED_KEY, StopReason
from lazybo.run.next_trial import Orphans, SharedStudy
from lazybo.run.presence import present
from lazybo.run.trial import Trial
from lazybo.search import Options
from lazybo.study import Result, Session, Store, TrialView

SPACE: dict[str, BaseDistribution] = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
PARAMS = {"x": 1.5, "y": -2.5}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + params["y"] ** 2)


class Lines(BaseJournalBackend):
    """A journal without a file, and so without a lock for several writes: Redis is one."""

    def __init__(self) -> None:
        self._lines: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return copy.deepcopy(self._lines[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._lines += logs


@pytest.fixture(params=["sqlite", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> BaseStorage:
    if request.param == "without a lock":
        return JournalStorage(Lines())
    if request.param == "journal":
        return JournalStorage(JournalFileBackend(str(tmp_path / "journal")))
    return Store.open(tmp_path / "s.db")


def never(_: int) -> None:
    raise AssertionError("nobody came first")


def begin(study: optuna.Study, name: str, params: dict[str, Any] = PARAMS) -> TrialView:
    """A trial that the driver under this name runs."""
    entry = Session(study, Space(SPACE), name).begin(len(study.trials), params, never)
    assert entry is not None
    return entry


def run(storage: BaseStorage, objective: Any = bowl, **options: Any) -> optuna.Study:
    return optimize(objective, SPACE, **{"n_trials": 8, "storage": storage, "study_name": "s", "seed": 0, **options})


@pytest.fixture
def study(storage: BaseStorage) -> optuna.Study:
    return optuna.create_study(storage=storage, study_name="s")


def test_a_trial_of_a_driver_that_died_is_run_again_with_the_same_parameters(
    study: optuna.Study, storage: BaseStorage
) -> None:
    begin(study, "dead")
    run(storage)
    assert study.trials[0].params == PARAMS
    assert study.trials[0].value == bowl(PARAMS)
    assert study.trials[0].system_attrs["lazybo:attempts"] == 1
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 8


def test_a_trial_whose_drivers_died_too_often_fails(study: optuna.Study, storage: BaseStorage) -> None:
    entry = begin(study, "dead")
    study._storage.set_trial_system_attr(entry.id, "lazybo:attempts", 1)
    run(storage, limits=Limits(retries=1))
    assert study.trials[0].state == TrialState.FAIL
    assert "died, 2 times" in study.trials[0].system_attrs["fail_reason"]
    assert len(study.trials) == 8


def test_folds_that_were_recorded_are_not_evaluated_again(study: optuna.Study, storage: BaseStorage) -> None:
    entry = begin(study, "dead")
    storage.set_trial_intermediate_value(entry.id, 1, 100.0)
    calls = []

    def objective(params: dict[str, Any], fold: int) -> float:
        calls.append((params == PARAMS, fold))
        return bowl(params)

    run(storage, kfold(objective), n_trials=1)
    assert calls == [(True, 0), (True, 2)]
    assert study.trials[0].value == pytest.approx((2 * bowl(PARAMS) + 100) / 3)


def test_trials_of_a_living_driver_are_left_to_it_and_counted(study: optuna.Study, storage: BaseStorage) -> None:
    with present(study) as other:
        theirs = begin(study, other)
        ended: list[optuna.Study] = []
        ours = threading.Thread(target=lambda: ended.append(run(storage)))
        ours.start()
        deadline = time.monotonic() + 30
        while sum(t.state == TrialState.COMPLETE for t in study.trials) < 7 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        assert len(study.trials) == 8
        assert not ended  # it waits for the trial of the other
        Session(study, Space(SPACE), other).finish(theirs, Result(TrialState.COMPLETE, (3.0,)))
        ours.join(30)
        assert ended
    assert study.trials[0].value == 3.0
    assert len(study.trials) == 8


def test_a_driver_that_dies_while_another_runs_is_taken_over(study: optuna.Study, storage: BaseStorage) -> None:
    begun = threading.Event()
    with present(study) as other:
        begin(study, other)
        ended: list[optuna.Study] = []
        ours = threading.Thread(target=lambda: ended.append(run(storage, callbacks=[lambda *_: begun.set()])))
        ours.start()
        assert begun.wait(30)
        assert study.trials[0].state == TrialState.RUNNING
    ours.join(30)
    assert ended
    assert study.trials[0].params == PARAMS
    assert study.trials[0].value == bowl(PARAMS)


@pytest.mark.parametrize("storage", ["sqlite", "journal", "without a lock"], indirect=True)
def test_what_another_driver_does_meanwhile_is_known(study: optuna.Study, storage: BaseStorage) -> None:
    """Another driver begins a trial between any two of ours: suggestions keep away from it, and the total is exact."""
    with present(study) as name:
        other = Session(study, Space(SPACE), name)

        def callback(study: optuna.Study, trial: Any) -> None:
            if trial.number % 2 == 0 and len(study.trials) < 19:
                entry = other.begin(trial.number + 1, {"x": trial.number / 4 - 5, "y": 4.0}, never)
                assert entry is not None
                other.finish(entry, Result(TrialState.COMPLETE, (bowl(entry.params),)))

        run(storage, n_trials=20, callbacks=[callback])
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 20
    assert len({tuple(t.params.values()) for t in study.trials}) == 20
    assert not any("lazybo:attempts" in t.system_attrs for t in study.trials), "none was taken over"
    assert study.best_value < 0.5


def interfering(monkeypatch: pytest.MonkeyPatch, interfere: Callable[[], object]) -> None:
    """Let something happen after every proposal, before the trial begins."""
    planner_class = type(Optimizer(SPACE).planner)
    propose = planner_class.propose

    def slow(planner: Any, *arguments: int) -> list[dict[str, Any]]:
        proposed = propose(planner, *arguments)
        interfere()
        return proposed

    monkeypatch.setattr(planner_class, "propose", slow)


@pytest.mark.parametrize("storage", ["sqlite", "journal", "without a lock"], indirect=True)
@pytest.mark.parametrize("lost", [2, 5, 31])
def test_the_total_is_exact_however_many_races_for_a_number_are_lost(
    lost: int, study: optuna.Study, storage: BaseStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver takes a number during each of our first proposals, and is not seen in between."""
    with present(study) as name:
        other = Session(study, Space(SPACE), name)
        left = list(range(lost))

        def interfere() -> None:
            if left:
                i = left.pop()
                entry = other.begin(len(study.trials), {"x": i / 10, "y": 4.0}, never)
                assert entry is not None
                other.finish(entry, Result(TrialState.COMPLETE, (bowl(entry.params),)))

        interfering(monkeypatch, interfere)
        run(storage, n_trials=lost + 6)
    ended = [trial for trial in study.trials if trial.state != TrialState.WAITING]
    assert [trial.state for trial in ended] == [TrialState.COMPLETE] * (lost + 6)
    assert len({tuple(trial.params.values()) for trial in ended}) == lost + 6
    assert len(ended) == len(study.trials) or isinstance(getattr(storage, "_backend", None), Lines)


@pytest.mark.parametrize("storage", ["without a lock"], indirect=True)
def test_without_a_lock_no_more_trials_are_evaluated_than_are_wanted(
    study: optuna.Study, storage: BaseStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver begins the last trial at the same moment."""
    with present(study) as name:
        other = Session(study, Space(SPACE), name)

        def interfere() -> None:
            if len(study.trials) == 7:
                entry = other.begin(7, PARAMS, never)
                assert entry is not None
                other.finish(entry, Result(TrialState.COMPLETE, (1.0,)))

        interfering(monkeypatch, interfere)
        run(storage)
    assert sum(trial.state == TrialState.COMPLETE for trial in study.trials) == 8
    assert [trial.state for trial in study.trials[8:]] == [TrialState.WAITING]


def test_a_driver_waits_for_the_parameters_of_earlier_trials_only(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later trial waits for the parameters of ours, so both would wait until their time is over."""
    with present(study) as us, present(study) as them:
        ours = Session(study, Space(SPACE), us, options=Options(seed=0))
        shared = SharedStudy(ours, Orphans(ours, retries=2), set())
        blank = optuna.trial.create_trial(state=TrialState.RUNNING, system_attrs={"lazybo:driver": us})
        study._storage.create_new_trial(study._study_id, blank)
        blank.system_attrs["lazybo:driver"] = them
        study._storage.create_new_trial(study._study_id, blank)
        monkeypatch.setattr(time, "sleep", pytest.fail)
        shared.sync(0)
        shared.wait_for_earlier(0)
    assert shared.elsewhere == 1


def test_a_value_that_comes_after_another_process_ended_the_trial_is_not_used(
    study: optuna.Study, storage: BaseStorage, caplog: pytest.LogCaptureFixture
) -> None:
    def objective(params: dict[str, Any], trial: Trial) -> float:
        if trial.number == 2:
            storage.set_trial_state_values(study.trials[2]._trial_id, TrialState.COMPLETE, [77.0])
        return bowl(params)

    run(storage, objective)
    assert study.trials[2].value == 77.0
    assert "ended by another process" in caplog.text
    assert len(study.trials) == 8


@pytest.mark.parametrize(
    ("objective", "options", "reason"),
    [
        (lambda params: 1 / 0, {"limits": Limits(max_failures=2)}, StopReason.FAILURES),
        (lambda params: None, {}, StopReason.INVALID_VALUE),
        (bowl, {"callbacks": [lambda study, trial: 1 / 0]}, StopReason.CALLBACK_FAILED),
        (bowl, {"limits": Limits(target_value=1e9)}, StopReason.TARGET),
        (bowl, {}, None),
    ],
)
def test_a_study_keeps_why_its_last_run_ended_early(
    objective: Any, options: dict[str, Any], reason: StopReason | None
) -> None:
    storage = optuna.storages.InMemoryStorage()
    with contextlib.suppress(RunFailed, ZeroDivisionError):
        run(storage, objective, **options)
    study_id = storage.get_study_id_from_name("s")
    assert storage.get_study_system_attrs(study_id)[STOPPED_KEY] == reason


def test_a_trial_that_is_enqueued_meanwhile_takes_the_last_place(study: optuna.Study, storage: BaseStorage) -> None:
    wanted = {"x": 3.0, "y": 3.0}

    def callback(study: optuna.Study, trial: Any) -> None:
        if trial.number == 1:
            study.enqueue_trial(wanted)

    run(storage, n_trials=3, callbacks=[callback])
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 3
    assert study.trials[2].params == wanted


def test_a_proposal_waits_until_an_earlier_trial_of_another_process_has_its_parameters(study: optuna.Study) -> None:
    """As plain Optuna does it: the other process gets a number first, and its parameters later."""
    announced = threading.Event()

    def announce(trial_id: int) -> None:
        announced.set()  # before the first parameter: the driver goes on as soon as it sees that one
        for name, distribution in SPACE.items():
            study._storage.set_trial_param(trial_id, name, PARAMS[name], distribution)

    def interfere(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        if trial.number == 5:
            threading.Timer(0.2, announce, [study._storage.create_new_trial(study._study_id)]).start()

    known: list[bool] = []

    def objective(params: dict[str, Any], trial: Trial) -> float:
        if trial.number == 7:
            known.append(announced.is_set())
        return bowl(params)

    run(study._storage, objective, callbacks=[interfere])
    assert known == [True]


def test_a_proposal_uses_what_running_trials_have_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trial 0 ends after trial 1 has reported three values; then trial 2 is proposed, while trial 1 runs."""
    reported, started, seen = threading.Event(), threading.Event(), []
    model_class = type(Session(optuna.create_study(), Space(SPACE), options=Options(seed=0)).model)
    watch = model_class.watch

    def spy(model: Any, number: int, values: Mapping[int, float]) -> None:
        seen.append((number, dict(values)))
        watch(model, number, values)

    def trains(params: dict[str, Any], trial: Trial) -> float:
        if trial.number == 0:
            assert reported.wait(60)
        elif trial.number == 1:
            for step in (1, 2, 3):
                trial.report(bowl(params) + 1 / step, step)
            reported.set()
            assert started.wait(60)
        else:
            started.set()
        return bowl(params)

    monkeypatch.setattr(model_class, "watch", spy)
    study = optimize(trains, SPACE, n_trials=3, seed=0, executor="threads", n_parallel=2, progress=False)
    assert (1, study.trials[1].intermediate_values) in seen
