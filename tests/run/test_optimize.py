"""optimize(): what a person with a training function sees."""

import functools
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

import lazybo
from lazybo import Condition, optimize
from lazybo.run.engines import Engine
from lazybo.run.trial import Trial

SPACE = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + params["y"] ** 2)


def values(study: optuna.Study) -> list[float | None]:
    return [trial.value for trial in study.trials]


# ----------------------------------------------------------------- the result


def test_it_finds_the_minimum_and_returns_an_optuna_study() -> None:
    study = optimize(bowl, SPACE, n_trials=25, seed=0)
    assert study.best_value < 1e-3
    assert [trial.number for trial in study.trials] == list(range(25))
    assert study.trials[0].distributions == SPACE
    assert all(trial.duration is not None for trial in study.trials)


@pytest.mark.parametrize("kernel", [lazybo.Matern52(np.full(2, 0.1)), "additive"])
def test_the_model_begins_as_it_is_told_to(kernel: object) -> None:
    options: dict[str, Any] = {"lag": None, "kernel": kernel, "noise": 1e-6, "value_transform": "centred"}
    study = optimize(bowl, SPACE, n_trials=12, seed=0, sampler=lazybo.LazySampler(n_startup_trials=5, **options))
    optimizer = lazybo.Optimizer(SPACE, seed=0, n_startup=5, **options)
    for trial in study.trials:
        suggestion = optimizer.ask()
        assert trial.params == suggestion.params
        optimizer.tell(suggestion, bowl(suggestion.params))


def test_the_study_goes_on_with_plain_optuna() -> None:
    study = optimize(bowl, SPACE, n_trials=8, seed=0)
    study.optimize(lambda t: bowl({"x": t.suggest_float("x", -5, 5), "y": t.suggest_float("y", -5, 5)}), n_trials=12)
    assert len(study.trials) == 20
    assert isinstance(study.sampler, lazybo.LazySampler)
    assert study.best_value < 0.5


def test_conditions_are_kept() -> None:
    space = {
        "kind": CategoricalDistribution(["a", "b"]),
        "depth": IntDistribution(1, 12),
    }
    study = optimize(
        lambda p: p.get("depth", 4.5),
        lazybo.Space(space, conditions={"depth": Condition("kind", ("a",))}),
        n_trials=12,
        seed=1,
    )
    assert all(("depth" in trial.params) == (trial.params["kind"] == "a") for trial in study.trials)
    assert study.best_params == {"kind": "a", "depth": 1}


# ----------------------------------------------------------- what it may return


def test_a_dict_gives_the_value_and_metrics() -> None:
    study = optimize(
        lambda p: {"value": bowl(p), "size": np.int64(3), "curve": np.ones(2), "thing": Path("a")},
        SPACE,
        n_trials=3,
        seed=0,
    )
    assert study.trials[0].user_attrs == {"size": 3, "curve": [1.0, 1.0], "thing": "a"}


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "is a return statement missing"),
        ("0.5", "must return a number"),
        ({"loss": 1.0}, "without 'value'"),
        ([1.0, 2.0], "several objectives need several directions"),
    ],
)
def test_what_is_no_number_ends_the_run_with_a_clear_error(returned: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=message):
        optimize(lambda _: returned, SPACE, n_trials=5, storage=tmp_path / "s.db")
    (trial,) = optuna.load_study(study_name="lazybo", storage=f"sqlite:///{tmp_path}/s.db").trials
    assert trial.state == TrialState.FAIL
    assert message in trial.system_attrs["fail_reason"]


def test_evaluations_that_run_when_an_invalid_value_comes_are_not_lost() -> None:
    began = threading.Barrier(3)
    seen = []

    def objective(_: dict[str, Any], trial: Trial) -> float | None:
        if trial.number < 3:
            began.wait(20)
        if trial.number == 0:
            return None
        deadline = time.monotonic() + 20
        while study.trials[0].state != TrialState.FAIL and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append(trial.number)
        return 1.0

    study = optuna.create_study(study_name="s")
    with pytest.raises(TypeError):
        optimize(
            objective, SPACE, n_trials=50, n_parallel=3, executor="threads", storage=study._storage, study_name="s"
        )
    complete = [trial.number for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert complete == sorted(seen)
    assert not any(trial.state == TrialState.RUNNING for trial in study.trials)


# ------------------------------------------------------------------- failures


def test_an_exception_fails_its_trial_with_its_traceback_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def objective(params: dict[str, Any]) -> float:
        if params["x"] > 0:
            raise RuntimeError("out of memory, perhaps")
        return bowl(params)

    study = optimize(objective, SPACE, n_trials=20, seed=0)
    failed = [trial for trial in study.trials if trial.state == TrialState.FAIL]
    assert failed
    assert all("out of memory, perhaps" in trial.user_attrs["traceback"] for trial in failed)
    assert "in objective" in failed[0].user_attrs["traceback"]
    assert failed[0].system_attrs["fail_reason"] == "RuntimeError: out of memory, perhaps"
    assert len(study.trials) == 20
    assert "failed with" in caplog.text


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_a_failure(bad: float) -> None:
    study = optimize(lambda p: bad if p["x"] > 0 else bowl(p), SPACE, n_trials=10, seed=0)
    assert {trial.state for trial in study.trials} == {TrialState.FAIL, TrialState.COMPLETE}


def test_sys_exit_in_an_objective_is_a_failure_and_not_the_end() -> None:
    study = optimize(lambda p: exit(3) if p["x"] > 0 else bowl(p), SPACE, n_trials=10, seed=0)
    assert len(study.trials) == 10


def test_too_many_failures_in_a_row_end_the_run_and_say_why() -> None:
    calls = []

    def objective(_: dict[str, Any]) -> float:
        calls.append(1)
        raise ValueError("always")

    with pytest.raises(RuntimeError, match="4 evaluations in a row failed; the last one: ValueError: always"):
        optimize(objective, SPACE, n_trials=100, limits=lazybo.Limits(max_failures=4))
    assert len(calls) == 4


def test_failures_that_are_not_in_a_row_do_not_end_it() -> None:
    calls = []

    def objective(params: dict[str, Any]) -> float:
        calls.append(1)
        if len(calls) % 3:
            raise ValueError("often")
        return bowl(params)

    assert len(optimize(objective, SPACE, n_trials=20, limits=lazybo.Limits(max_failures=3)).trials) == 20


# -------------------------------------------------------------------- the end


def test_it_stops_at_the_target() -> None:
    study = optimize(bowl, SPACE, n_trials=200, seed=0, limits=lazybo.Limits(target_value=0.5))
    assert study.best_value <= 0.5
    assert study.best_trial.number == len(study.trials) - 1
    again = optimize(
        lambda p: -bowl(p), SPACE, n_trials=200, seed=0, limits=lazybo.Limits(target_value=-0.5), direction="maximize"
    )
    assert len(again.trials) == len(study.trials)


def test_it_stops_after_patience_trials_without_a_better_value() -> None:
    study = optimize(
        lambda p: min(bowl(p), 1000.0) if p["x"] > 100 else 1.0, SPACE, n_trials=100, limits=lazybo.Limits(patience=7)
    )
    assert len(study.trials) == 8


def test_it_stops_at_the_timeout_and_keeps_what_runs() -> None:
    study = optimize(lambda _: time.sleep(0.05) or 1.0, SPACE, limits=lazybo.Limits(timeout=0.3))
    assert 1 <= len(study.trials) < 20
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)


def test_a_callback_sees_each_trial_and_may_stop_the_study() -> None:
    seen: list[FrozenTrial] = []

    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        seen.append(trial)
        if len(seen) == 6:
            study.stop()

    study = optimize(bowl, SPACE, n_trials=100, seed=0, callbacks=[callback])
    assert len(study.trials) == 6
    assert [trial.value for trial in seen] == values(study)


def test_an_exception_of_a_callback_reaches_the_caller_after_its_trial_is_recorded() -> None:
    study = optuna.create_study(study_name="s")

    def callback(*_: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        optimize(bowl, SPACE, n_trials=9, callbacks=[callback], storage=study._storage, study_name="s")
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE]


# ----------------------------------------------------------------- repeatable


def test_a_run_on_disk_is_the_run_in_memory_and_a_resumed_one_too(tmp_path: Path) -> None:
    whole = optimize(bowl, SPACE, n_trials=24, seed=3)
    for n_trials in (9, 17, 24):
        parts = optimize(bowl, SPACE, n_trials=n_trials, seed=3, storage=tmp_path / "s.db")
    for one, other in zip(whole.trials, parts.trials, strict=True):
        assert one.params == pytest.approx(other.params, abs=1e-6)


class _InOrder(ThreadPoolExecutor):
    """An executor whose tasks end in an order that is given: the n-th to end is the task under order[n].

    It ends when the driver has answered the end before with the next task, if there is one.
    """

    def __init__(self, order: list[int], workers: int) -> None:
        super().__init__(workers)
        self._order, self._workers = order, workers
        self._turn = threading.Condition()
        self._submitted = self._ended = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            number, self._submitted = self._submitted, self._submitted + 1
            self._turn.notify_all()

        def wait() -> Any:
            result = fn(*args, **kwargs)
            with self._turn:
                assert self._turn.wait_for(lambda: self._is_next(number), timeout=60)
            return result

        future = super().submit(wait)
        future.add_done_callback(self._next)
        return future

    def _is_next(self, number: int) -> bool:
        answered = self._submitted >= min(self._workers + self._ended, len(self._order))
        return answered and self._order[self._ended] == number

    def _next(self, _: Any) -> None:
        with self._turn:
            self._ended += 1
            self._turn.notify_all()


@pytest.mark.parametrize("workers", [4])
def test_with_several_workers_the_same_order_of_ends_gives_the_same_run(workers: int) -> None:
    rng = np.random.default_rng(0)
    order, running, following = [], list(range(workers)), workers
    for _ in range(30):
        order.append(running.pop(int(rng.integers(len(running)))))
        if following < 30:
            running.append(following)
            following += 1
    runs = []
    for _ in range(2):
        with _InOrder(order, workers) as executor:
            runs.append(optimize(bowl, SPACE, n_trials=30, seed=5, n_parallel=workers, executor=executor))
    assert [t.params for t in runs[0].trials] == [t.params for t in runs[1].trials]
    assert len({tuple(t.params.values()) for t in runs[0].trials}) == 30


# ------------------------------------------------------------------- parallel


@pytest.mark.parametrize("synchronous", [False, True])
def test_rounds_wait_for_their_slowest_and_the_asynchronous_loop_does_not(synchronous: bool) -> None:
    most_behind = 0
    begun: set[int] = set()
    lock = threading.Lock()

    def objective(_: dict[str, Any], trial: Trial) -> float:
        nonlocal most_behind
        with lock:
            begun.add(trial.number)
            most_behind = max(most_behind, len([n for n in begun if n > 3]) if 0 in begun else 0)
        if trial.number == 0:
            deadline = time.monotonic() + 20
            while not synchronous and time.monotonic() < deadline:
                with lock:
                    if max(begun) >= 10:  # others go on while this one runs
                        break
                time.sleep(0.01)
            time.sleep(0.3 if synchronous else 0)
            with lock:
                begun.discard(0)
        return 1.0

    study = optimize(objective, SPACE, n_trials=12, n_parallel=4, executor="threads", synchronous=synchronous, seed=0)
    assert len(study.trials) == 12
    assert (most_behind == 0) == synchronous


KNOWN = [({"x": x, "y": y}, bowl({"x": x, "y": y})) for x, y in [(-4, -4), (4, 3), (-2, 4), (3, -4), (0, -1)]]


@pytest.mark.parametrize("workers", [4, 9])
def test_many_workers_get_a_trial_at_once_and_few_get_one_that_knows_the_last_value(workers: int) -> None:
    """With many workers the next trial is proposed while all are busy, so it does not depend on the value that ends."""

    def following(value: float) -> dict[str, Any]:
        """What is evaluated after trial 0 ended with this value, while all others run."""
        begun = threading.Event()

        def objective(params: dict[str, Any], trial: Trial) -> float:
            if trial.number == workers:
                begun.set()
            elif trial.number > 0:
                assert begun.wait(60)
            return value if trial.number == 0 else bowl(params)

        sampler = lazybo.LazySampler(n_startup_trials=1)
        options = {"n_parallel": workers, "executor": "threads", "warm_start": KNOWN, "sampler": sampler}
        study = optimize(objective, SPACE, n_trials=workers + 1, seed=0, **options)
        assert all(trial.state == TrialState.COMPLETE for trial in study.trials)
        return study.trials[workers].params

    assert (following(0.0) == following(80.0)) == (workers == 9)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_two_runs_at_once_in_one_process_share_a_study(tmp_path: Path, kind: str) -> None:
    begun: list[int] = []

    def objective(params: dict[str, Any], trial: Trial) -> float:
        begun.append(trial.number)
        time.sleep(0.01)
        return bowl(params)

    storage = optuna.storages.InMemoryStorage() if kind == "memory" else tmp_path / "s.db"
    optimize(bowl, SPACE, n_trials=1, storage=storage, study_name="s", seed=0)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(
                optimize,
                objective,
                SPACE,
                n_trials=21,
                n_parallel=2,
                executor="threads",
                storage=storage,
                study_name="s",
            )
            for _ in range(2)
        ]
        studies = [run.result(120) for run in runs]
    assert [trial.state for trial in studies[0].trials] == [TrialState.COMPLETE] * 21
    assert sorted(begun) == list(range(1, 21)), "each was begun once"


def test_lambdas_and_closures_go_to_processes(process_pool: Engine) -> None:
    offset = 7.0
    study = optimize(lambda p: bowl(p) + offset, SPACE, n_trials=6, executor=process_pool)
    assert all(t.value == pytest.approx(bowl(t.params) + 7.0) for t in study.trials)


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"], indirect=True)
def test_objectives_of_named_parameters_run_everywhere_and_get_the_trial(executor: str) -> None:
    offset = 1.0

    def objective(x: float, *, y: float, trial: Trial) -> float:
        trial.set_user_attr("sum", x + y)
        return (x - offset) ** 2 + y**2

    study = optimize(functools.partial(objective, y=0.0), SPACE, n_trials=3, executor=executor, seed=0)
    for trial in study.trials:
        assert trial.value == pytest.approx(bowl(trial.params))
        assert trial.user_attrs["sum"] == pytest.approx(sum(trial.params.values()))


def test_an_objective_that_cannot_be_sent_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot be sent to workers.*executor='threads'"):
        optimize(lambda p: lock.locked() or bowl(p), SPACE, n_trials=5, n_parallel=2, storage=tmp_path / "s.db")
    assert not (tmp_path / "s.db").exists()


# ------------------------------------------------------- reports and pruning


def learning_curve(params: dict[str, Any], trial: Trial) -> float:
    for step in range(5):
        trial.report(bowl(params) + 5 - step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    trial.set_user_attr("epochs", 5)
    return bowl(params)


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"], indirect=True)
def test_an_objective_that_takes_its_trial_reports_and_is_pruned(executor: str, tmp_path: Path) -> None:
    study = optimize(
        learning_curve,
        SPACE,
        n_trials=20,
        seed=0,
        executor=executor,
        n_parallel=1 if executor == "serial" else 3,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
        storage=tmp_path / "s.db",
    )
    pruned = [t for t in study.trials if t.state == TrialState.PRUNED]
    complete = [t for t in study.trials if t.state == TrialState.COMPLETE]
    assert pruned
    assert complete
    assert all(t.value == t.intermediate_values[t.last_step] for t in pruned if t.last_step is not None)
    assert all(len(t.intermediate_values) == 5 and t.user_attrs == {"epochs": 5} for t in complete)


def test_an_objective_may_be_one_for_optuna() -> None:
    def objective(trial: Trial) -> float:
        return bowl({"x": trial.suggest_float("x", -5, 5), "y": trial.suggest_float("y", -5, 5)}) + 0 * trial.number

    study = optimize(objective, SPACE, n_trials=10, seed=0)
    assert all(t.value == pytest.approx(bowl(t.params)) for t in study.trials)


# -------------------------------------------------------------- what is known


def test_initial_configurations_come_first_and_once(tmp_path: Path) -> None:
    initial = [{"x": 1.0, "y": 0.0}, {"x": -2.0, "y": 3.0}]
    for n_trials in (3, 6):
        study = optimize(bowl, SPACE, n_trials=n_trials, initial=initial, storage=tmp_path / "s.db")
    assert [t.params for t in study.trials[:2]] == initial
    assert sum(t.params in initial for t in study.trials) == 2
    assert len(study.trials) == 6


def test_initial_configurations_may_be_parts_and_are_completed_once(tmp_path: Path) -> None:
    space = {"x": (-5.0, 5.0), "n": (1, 9), "kind": ["a", "b"]}
    initial = [{"x": np.float64(1.0)}, {"kind": "b", "n": 3}, {"x": 2, "n": np.int64(4), "kind": "a"}]
    for n_trials in (2, 6):
        study = optimize(
            lambda x, n, kind: x**2 + n + (kind == "a"),
            space,
            n_trials=n_trials,
            initial=initial,
            storage=tmp_path / "s.db",
            seed=0,
        )
    first, second, third, *others = [trial.params for trial in study.trials]
    assert first["x"] == 1.0
    assert (second["kind"], second["n"]) == ("b", 3)
    assert third == {"x": 2.0, "n": 4, "kind": "a"}
    assert [len(trial.params) for trial in study.trials] == [3] * 6
    assert all(params["x"] != 1.0 for params in others)


def test_a_part_of_a_conditional_space_brings_what_it_hangs_on() -> None:
    space = {"kind": ["a", "b", "c"], "inner": ["p", "q"], "depth": (1, 9), "shared": (0.0, 1.0)}
    conditions = {
        "inner": Condition("kind", ("a",)),
        "depth": Condition("inner", ("q",)),
        "shared": Condition("kind", ("a", "b")),
    }

    def objective(kind: str, inner: str = "", depth: int = 0, shared: float = 0.0) -> float:
        return len(kind + inner) + depth + shared

    initial = [{"depth": 4}, {"kind": "b"}, {"kind": "c"}, {}]
    study = optimize(objective, lazybo.Space(space, conditions=conditions), n_trials=6, initial=initial, seed=0)
    assert study.trials[0].params.items() > {"kind": "a", "inner": "q", "depth": 4}.items()
    assert study.trials[1].params.keys() == {"kind", "shared"}
    assert study.trials[2].params == {"kind": "c"}
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)
    for wrong, message in [
        ({"shared": 0.5}, "'shared' is only active while 'kind' is one of .*; give 'kind' too"),
        ({"kind": "b", "inner": "p"}, "'inner' is only active while"),
        ({"kind": "b", "depth": 1}, "only active while"),
    ]:
        with pytest.raises(ValueError, match=f"initial configuration 0: .*{message}"):
            optimize(objective, lazybo.Space(space, conditions=conditions), n_trials=6, initial=[wrong])


def test_enqueued_trials_are_run_and_completed() -> None:
    study = optuna.create_study(study_name="s")
    study.enqueue_trial({"x": 2.0})
    study.enqueue_trial({"x": 99.0})
    optimize(bowl, SPACE, n_trials=5, storage=study._storage, study_name="s", seed=0)
    assert study.trials[0].params["x"] == 2.0
    assert study.trials[0].value == pytest.approx(bowl(study.trials[0].params))
    assert study.trials[1].state == TrialState.FAIL
    assert "x must be a number from -5.0 to 5.0, not 99.0" in study.trials[1].system_attrs["fail_reason"]
    assert len(study.trials) == 5


def test_a_warm_start_is_known_and_does_not_count() -> None:
    earlier = optimize(bowl, SPACE, n_trials=30, seed=0)
    cold = optimize(bowl, SPACE, n_trials=3, seed=1)
    warm = optimize(bowl, SPACE, n_trials=3, seed=1, warm_start=earlier)
    assert len(warm.trials) == 3
    assert warm.best_value < 0.05 < cold.best_value


# -------------------------------------------------------------------- folds


def fold_value(params: dict[str, Any], fold: int) -> float:
    return bowl(params) + (fold - 1) * 0.3


def test_folds_are_averaged_and_their_spread_is_the_noise() -> None:
    study = optimize(lazybo.kfold(fold_value, k=3), SPACE, n_trials=12, seed=0)
    trial = study.trials[5]
    assert trial.value == pytest.approx(bowl(trial.params))
    assert trial.user_attrs["folds"] == pytest.approx([fold_value(trial.params, fold) for fold in range(3)])
    assert trial.system_attrs["lazybo:variance"] == pytest.approx(0.3**2 / 3)


def test_folds_run_as_tasks_of_their_own() -> None:
    together = threading.Barrier(3)

    def objective(params: dict[str, Any], fold: int) -> float:
        together.wait(20)  # only passes if all three folds of a trial run at once
        return fold_value(params, fold)

    study = optimize(lazybo.kfold(objective), SPACE, n_trials=4, n_parallel=3, executor="threads", seed=0)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 4


def test_a_fold_that_fails_fails_its_trial() -> None:
    def objective(params: dict[str, Any], fold: int) -> float:
        if fold == 1 and params["x"] > 0:
            raise RuntimeError("fold 1")
        return fold_value(params, fold)

    study = optimize(lazybo.kfold(objective), SPACE, n_trials=10, n_parallel=3, executor="threads", seed=0)
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.FAIL}
    assert all((t.state == TrialState.FAIL) == (t.params["x"] > 0) for t in study.trials)


def test_when_a_fold_has_failed_a_fold_that_hangs_keeps_no_worker() -> None:
    first: list[dict[str, Any]] = []
    together, over = threading.Barrier(2), threading.Event()

    def objective(params: dict[str, Any], fold: int) -> float:
        first.append(params)
        if params != first[0]:
            together.wait(10)  # only passes if both workers are free
        elif fold == 1:
            over.wait(60)
        else:
            raise RuntimeError("at once")
        return bowl(params)

    try:
        study = optimize(lazybo.kfold(objective, k=2), SPACE, n_trials=2, n_parallel=2, executor="threads", seed=0)
    finally:
        over.set()
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.COMPLETE]
