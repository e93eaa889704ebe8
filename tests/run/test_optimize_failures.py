"""optimize(): what is left of a run that failed, and objectives that return or raise strange things."""

import asyncio
import gc
import math
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from lazybo import Limits, RunFailed, Space, optimize
from lazybo.run.arguments import known_results
from lazybo.run.limits import STOPPED_KEY, StopReason
from lazybo.run.trial import Trial

SPACE = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + params["y"] ** 2)


# ------------------------------------------------------- what is left of a run that failed


def fails_after(n: int, end: Any) -> Any:
    calls: list[int] = []

    def objective(params: dict[str, Any]) -> Any:
        calls.append(1)
        return bowl(params) if len(calls) <= n else end()

    return objective


def fail() -> float:
    raise ValueError("always")


def interrupt() -> float:
    raise KeyboardInterrupt


def callback(_: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    if trial.number == 4:
        raise ZeroDivisionError("in a callback")


class ClosedPool(ThreadPoolExecutor):
    """Is closed by its fifth task."""

    def submit(self, *arguments: Any, **options: Any) -> Any:
        if self._work_queue is not None and getattr(self, "taken", 0) == 5:
            self.shutdown(wait=False)
        self.taken = getattr(self, "taken", 0) + 1
        return super().submit(*arguments, **options)


@pytest.mark.parametrize(
    ("objective", "options", "error"),
    [
        (fails_after(5, fail), {"limits": Limits(max_failures=2)}, RuntimeError),
        (fails_after(5, lambda: None), {}, TypeError),
        (bowl, {"callbacks": [callback]}, ZeroDivisionError),
        (fails_after(5, interrupt), {}, KeyboardInterrupt),
        (bowl, {"executor": ClosedPool(1)}, RuntimeError),
    ],
    ids=["failures", "no value", "callback", "interrupt", "engine"],
)
def test_an_error_holds_the_study_and_says_so(
    objective: Any, options: dict[str, Any], error: type[BaseException]
) -> None:
    with pytest.raises(error) as raised:
        optimize(objective, SPACE, n_trials=9, seed=0, **options)
    study = raised.value.study  # type: ignore[attr-defined]
    complete = [t for t in study.trials if t.state == TrialState.COMPLETE]
    assert len(complete) == 5
    assert all(t.value == bowl(t.params) for t in complete)
    said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert "The finished trials are in error.study" in said


@pytest.mark.parametrize("kind", ["path", "journal"])
def test_with_a_storage_the_error_says_which_study_goes_on_where(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a study"
    storage = path if kind == "path" else JournalStorage(JournalFileBackend(str(path)))
    with pytest.raises(RunFailed) as raised:
        optimize(lambda _: 1 / 0, SPACE, n_trials=9, limits=Limits(max_failures=2), storage=storage, study_name="mine")
    assert f"The study 'mine' in {path} keeps the finished trials; make the same call again to resume." in str(
        raised.value
    )
    assert len(raised.value.study.trials) == 2


# --------------------------------------------------------------- objectives with bugs


def misspelt(params: dict[str, Any]) -> float:
    return params["x"] + nmupy.pi  # type: ignore[name-defined,no-any-return]  # noqa: F821


def without_module(params: dict[str, Any]) -> float:
    import a_module_that_is_not_there  # type: ignore[import-not-found]

    return float(a_module_that_is_not_there.value(params))


def without_attribute(params: dict[str, Any]) -> float:
    return float(params.x)  # type: ignore[attr-defined]


def with_wrong_types(params: dict[str, Any]) -> float:
    return float(params["x"] + "1")


def not_python(params: dict[str, Any]) -> float:
    return float(eval("x +* 2", params))


def of_another_space(trial: Trial) -> float:
    return trial.suggest_float("x", 0.0, 1.0, log=False)


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"], indirect=True)
@pytest.mark.parametrize(
    ("objective", "kind"),
    [
        (misspelt, NameError),
        (without_module, ImportError),
        (without_attribute, AttributeError),
        (with_wrong_types, TypeError),
        (not_python, SyntaxError),
        (of_another_space, (ValueError, RuntimeError)),  # of our own class only in this process
    ],
)
def test_a_bug_ends_the_run_at_once_and_shows_where_it_is(
    objective: Any, kind: Any, executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RunFailed, match="looks like a bug") as caught:
        optimize(objective, SPACE, n_trials=30, executor=executor, n_parallel=1, seed=0)
    assert [trial.state for trial in caught.value.study.trials] == [TrialState.FAIL]
    attributes = caught.value.study._storage.get_study_system_attrs(caught.value.study._study_id)
    assert attributes[STOPPED_KEY] == StopReason.BUG
    place = f'{Path(__file__).name}", line {objective.__code__.co_firstlineno + 1}, in {objective.__name__}'
    assert isinstance(caught.value.__cause__, kind)
    shown = "".join(traceback.format_exception(caught.value))
    assert place in shown
    assert caplog.text.count(place) == 1
    assert "lazybo/run/call.py" not in caplog.text, "the frames of our own are left out"


def test_what_an_objective_raised_keeps_no_variables_alive() -> None:
    """A model in the memory of a GPU would stay there."""
    alive: list[weakref.ref[Any]] = []

    class Model:
        pass

    def objective(params: dict[str, Any]) -> float:
        model = Model()
        alive.append(weakref.ref(model))
        raise RuntimeError(f"out of memory at {params['x']:.1f}")

    with pytest.raises(RunFailed, match=r"no trial completed, 3 failed; the last one: .* out of memory") as caught:
        optimize(objective, SPACE, n_trials=3, seed=0)
    gc.collect()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert [each() for each in alive] == [None] * 3


def test_the_cause_of_too_many_failures_is_the_first_of_them(caplog: pytest.LogCaptureFixture) -> None:
    def objective(params: dict[str, Any], trial: Trial) -> float:
        if trial.number == 1:
            raise KeyError("an accident")
        if trial.number > 2:
            raise ValueError(f"number {trial.number}")
        return bowl(params)

    with pytest.raises(RunFailed, match="4 evaluations in a row failed; the last one: ValueError: number 6") as caught:
        optimize(objective, SPACE, n_trials=20, limits=Limits(max_failures=4), seed=0)
    assert str(caught.value.__cause__) == "number 3"
    assert caplog.text.count("Traceback (most recent call last)") == 2, "one for each class"


def first_has_a_bug(failed: threading.Event) -> Callable[..., float]:
    """An objective whose first evaluation fails at once; the others end after ``failed`` is set."""

    def objective(params: dict[str, Any], trial: Trial) -> float:
        if trial.number == 0:
            raise TypeError("not for this one")
        assert failed.wait(60)
        return bowl(params)

    return objective


def test_a_bug_in_one_configuration_does_not_end_a_run_of_which_others_work() -> None:
    """The others have been started before it failed, and end after it."""
    failed = threading.Event()
    objective = first_has_a_bug(failed)

    study = optimize(
        objective, SPACE, n_trials=8, executor="threads", n_parallel=3, callbacks=[lambda *_: failed.set()], seed=0
    )
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] + [TrialState.COMPLETE] * 7


def test_a_bug_after_something_has_worked_is_a_failure_like_others(tmp_path: Path) -> None:
    def objective(params: dict[str, Any], trial: Trial) -> float:
        if trial.number in (0, 4):
            raise TypeError("perhaps of this configuration")
        return bowl(params)

    def run(function: Any, n_trials: int) -> optuna.Study:
        return optimize(function, SPACE, n_trials=n_trials, storage=tmp_path / "s.db", seed=0)

    with pytest.raises(RunFailed, match="looks like a bug"):
        run(objective, 6)
    assert [trial.state.name for trial in run(objective, 6).trials] == ["FAIL", *["COMPLETE"] * 3, "FAIL", "COMPLETE"]


def test_with_no_limit_failures_never_end_a_run() -> None:
    study = optimize(misspelt, SPACE, n_trials=12, limits=Limits(max_failures=None), seed=0)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 12


def test_a_run_of_which_nothing_completed_has_failed_also_when_it_is_resumed(tmp_path: Path) -> None:
    def objective(_: dict[str, Any]) -> float:
        return math.nan

    for _ in range(2):
        with pytest.raises(RunFailed, match="no trial completed, 4 failed; the last one: the value is nan"):
            optimize(objective, SPACE, n_trials=4, storage=tmp_path / "s.db", seed=0)
    assert len(optimize(bowl, SPACE, n_trials=5, storage=tmp_path / "s.db").trials) == 5


def test_what_was_pruned_or_stopped_by_the_user_has_not_failed() -> None:
    def pruned(trial: Trial) -> float:
        trial.report(1.0, 1)
        raise optuna.TrialPruned

    study = optimize(pruned, SPACE, n_trials=3, seed=0)
    assert [trial.state for trial in study.trials] == [TrialState.PRUNED] * 3

    def fails(_: dict[str, Any]) -> float:
        raise ValueError("at once")

    study = optimize(fails, SPACE, n_trials=3, callbacks=[lambda study, _: study.stop()], seed=0)
    assert len(study.trials) == 1


# ------------------------------------------------------------------ the boundary to objectives


def hostile(trial: Trial) -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    trial.set_user_attr(("a",), 1)  # type: ignore[arg-type]
    trial.set_user_attr("cycle", cycle)
    if trial.number == 1:
        raise asyncio.CancelledError
    if trial.number == 2:
        raise GeneratorExit
    if trial.number == 3:
        raise ValueError("x" * 10**7)
    return {"value": 1.0 + trial.number, (1, 2): {3: math.nan}, "array": np.ones(10**7), "kept": np.ones(2)}


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"], indirect=True)
def test_no_objective_stops_a_run_or_fills_its_storage(
    executor: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = tmp_path / "s.db"
    study = optimize(hostile, SPACE, n_trials=6, storage=storage, executor=executor, n_parallel=1, seed=0)
    states = [TrialState.FAIL if n in (1, 2, 3) else TrialState.COMPLETE for n in range(6)]
    assert [t.state for t in study.trials] == states
    for trial in study.trials:
        assert trial.user_attrs["('a',)"] == 1
        assert "cycle" not in trial.user_attrs
        if trial.state == TrialState.COMPLETE:
            assert trial.user_attrs == {"('a',)": 1, "(1, 2)": {"3": None}, "kept": [1.0, 1.0]}
    assert study.trials[1].system_attrs["fail_reason"].endswith("CancelledError")
    assert "metrics were dropped" in caplog.text
    assert caplog.text.count("'cycle' (ValueError: Circular reference detected)") == 1, "each is named once"
    assert "'array'" in caplog.text
    assert len(caplog.text) < 20_000
    assert storage.stat().st_size < 500_000


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_trial_that_reports_nan_and_is_pruned_has_no_value(kind: str, tmp_path: Path) -> None:
    def objective(trial: Trial) -> float:
        trial.report(math.nan, 0)
        if trial.number % 2:
            raise optuna.TrialPruned(object(), b"\xff")
        return 1.0

    storage = None if kind == "memory" else tmp_path / "s.db"
    study = optimize(objective, SPACE, n_trials=4, storage=storage, seed=0)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED] * 2
    assert study.trials[1].value is None


@pytest.mark.filterwarnings("ignore:Choices for a categorical")
@pytest.mark.parametrize("kind", ["database", "journal"])
def test_choices_that_are_tuples_survive_a_storage(kind: str, tmp_path: Path) -> None:
    """JSON makes lists of them: initial configurations failed, and a resumed run knew none of its trials."""
    space = {"layers": [(64,), (64, 64), (128,)], "x": (0.0, 1.0)}
    path = tmp_path / "s.db"

    def storage() -> Any:
        return JournalStorage(JournalFileBackend(str(path))) if kind == "journal" else path

    def objective(layers: tuple[int, ...], x: float) -> float:
        assert isinstance(layers, tuple)
        return x + len(layers)

    def run(n_trials: int, **where: Any) -> optuna.Study:
        initial = [{"layers": (64, 64)}, {"layers": (128,), "x": 0.5}]
        return optimize(objective, space, n_trials=n_trials, seed=1, progress=False, initial=initial, **where)

    whole = run(10)
    for n_trials in (7, 10):
        resumed = run(n_trials, storage=storage())
    assert [t.value for t in resumed.trials] == [t.value for t in whole.trials]
    known = known_results(resumed, Space(space), "minimize")
    assert [value for _, value in known] == [t.value for t in whole.trials]
    assert all(isinstance(params["layers"], tuple) for params, _ in known)
