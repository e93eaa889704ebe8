"""What happens in a worker, and on the way back."""

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo.run.objective import Call, Given, call_of
from lazybo.run.trial import Trial
from lazybo.run.worker import Outcome, Task, evaluate


def outcome(function: Any, **task: Any) -> Outcome:
    return evaluate(call_of(function, ["x"]), Task(3, {"x": 2.0}, **task))


def test_params_and_trial_are_given() -> None:
    assert outcome(lambda params: params["x"]).value == 2.0
    assert outcome(lambda trial: trial.number).value == 3.0
    assert outcome(lambda p, trial: p["x"] + trial.params["x"] + trial.number).value == 7.0


def test_an_outcome_travels_though_the_exception_could_not() -> None:
    class Local(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("cannot be pickled")

    def objective(_: Any) -> float:
        raise Local("here")

    ended = pickle.loads(pickle.dumps(outcome(objective)))
    assert ended.state == "failed"
    assert ended.reason.endswith("Local: here")
    assert "in objective" in ended.traceback
    assert ended.seconds >= 0


class Hostile(Exception):
    """Fails at everything that is asked of it."""

    def fail(self, *_: Any) -> Any:
        raise Stop

    __str__ = __repr__ = __float__ = __len__ = __iter__ = __index__ = __reduce__ = tolist = fail


class Stop(BaseException):
    """Caught by no `except Exception`."""


def raising(error: Any) -> Any:
    def objective(trial: Trial) -> float:
        trial.set_user_attr("epoch", 2)
        raise error

    return objective


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), GeneratorExit(), SystemExit(3), StopIteration(), Stop(), Hostile(), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_every_exception_but_an_interrupt_is_a_failed_trial(error: BaseException) -> None:
    ended = pickle.loads(pickle.dumps(outcome(raising(error))))
    assert (ended.state, ended.metrics) == ("failed", {"epoch": 2})
    assert type(error).__name__ in ended.reason
    assert "in objective" in ended.traceback


def test_what_is_long_is_cut_before_it_travels() -> None:
    giant = "x" * 10**7
    ended = outcome(raising(ValueError(f"the beginning{giant}the end")))
    assert len(pickle.dumps(ended)) < 25_000
    assert "the beginning" in ended.reason
    assert ended.reason.endswith("the end")
    assert len(pickle.dumps(outcome(lambda _: giant))) < 1000
    ended = outcome(lambda _: {"value": 1.0, "good": 2, "giant": giant, "array": np.zeros(10**7)})
    assert (ended.value, ended.metrics) == (1.0, {"good": 2})
    assert [text.split(" (")[0] for text in ended.dropped] == ["'giant'", "'array'"]
    assert len(pickle.dumps(ended)) < 1000


def test_a_number_that_no_float_holds_is_a_failure() -> None:
    ended = outcome(lambda _: 10**400)
    assert ended.state == "failed"
    assert "too large" in ended.reason


@pytest.mark.parametrize("value", [10**400, "0.5", None, b"1", [1.0], Hostile()], ids=range(6))
def test_a_report_that_is_no_number_is_refused_by_name(value: Any) -> None:
    ended = outcome(lambda trial: trial.report(value, 0))
    assert ended.state == "failed"
    if not isinstance(value, Hostile):
        assert ended.reason.startswith("ValueError: report takes a number")
        assert len(ended.reason) < 200


@pytest.mark.parametrize("step", [-1, 1.5, "1", True, None, 2**31, 10**400], ids=range(7))
def test_a_step_that_no_storage_holds_is_refused(step: Any) -> None:
    ended = outcome(lambda trial: trial.report(1.0, step))
    assert "step must be a whole number" in ended.reason


def test_a_trial_looks_parameters_up_and_knows_no_others() -> None:
    trial = Trial(0, {"x": 1.5, "n": 3, "k": "a"})
    assert trial.suggest_float("x", 0, 1, log=True) == 1.5
    assert trial.suggest_int("n", 0, 9) == 3
    assert trial.suggest_categorical("k", ["a"]) == "a"
    with pytest.raises(KeyError, match="'y' is not active"):
        trial.suggest_float("y", 0, 1)
    with pytest.raises(ValueError, match="step"):
        trial.report(1.0, -1)
    trial.report(1.0, 0)
    assert not trial.should_prune()


SPACE = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "width": FloatDistribution(0.0, 1.0, step=0.25),
    "layers": IntDistribution(1, 9, step=2),
    "units": IntDistribution(1, 1024, log=True),
    "opt": CategoricalDistribution(["sgd", "adam", None]),
}
VALUES = {"lr": 1e-3, "width": 0.5, "layers": 3, "units": 64, "opt": "adam"}
Suggest = Callable[[Trial], Any]


def suggested(suggest: Suggest) -> Any:
    """What a ``suggest_*`` call returns in an evaluation of a run with this space."""
    returned: list[Any] = []
    call = Call(lambda trial: returned.append(suggest(trial)) or 0.0, (Given.TRIAL,), space=SPACE)
    ended = evaluate(call, Task(0, VALUES))
    if ended.state == "failed":
        raise ValueError(ended.reason)
    return returned[0]


@pytest.mark.parametrize(
    ("suggest", "value"),
    [
        (lambda trial: trial.suggest_float("lr", 1e-5, 0.1, log=True), 1e-3),
        (lambda trial: trial.suggest_float("lr", 10**-5, 1 / 10, log=True), 1e-3),
        (lambda trial: trial.suggest_float("lr"), 1e-3),
        (lambda trial: trial.suggest_float("width", 0, 1, step=0.25), 0.5),
        (lambda trial: trial.suggest_int("layers", 1, 9, step=2), 3),
        (lambda trial: trial.suggest_int("layers", 1, 10, step=2), 3),
        (lambda trial: trial.suggest_int("units", low=1, high=1024, log=True), 64),
        (lambda trial: trial.suggest_int("units"), 64),
        (lambda trial: trial.suggest_categorical("opt", ("sgd", "adam", None)), "adam"),
        (lambda trial: trial.suggest_categorical("opt", [None, "adam", "sgd"]), "adam"),
        (lambda trial: trial.suggest_categorical("opt"), "adam"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # Optuna's, of a range that is no multiple of its step
def test_a_suggestion_that_agrees_with_the_space_is_the_parameter(suggest: Suggest, value: Any) -> None:
    assert suggested(suggest) == value


@pytest.mark.parametrize(
    ("suggest", "message"),
    [
        (
            lambda trial: trial.suggest_float("lr", 0.0, 1.0),
            r"suggest_float\('lr', 0.0, 1.0\) contradicts the space, where 'lr' is a number from 1e-05 to 0.1 on a "
            r"logarithmic scale; write the same in both, or use trial.params\['lr'\]",
        ),
        (lambda trial: trial.suggest_float("lr", 1e-5, 0.1), "contradicts"),
        (lambda trial: trial.suggest_float("lr", 1e-5, 1.0, log=True), "contradicts"),
        (lambda trial: trial.suggest_int("lr"), r"suggest_int\('lr'\) contradicts .* a number from"),
        (lambda trial: trial.suggest_float("width", 0, 1), "a number from 0.0 to 1.0 in steps of 0.25;"),
        (lambda trial: trial.suggest_float("width", 0, 1, step=0.5), r"suggest_float\('width', 0, 1, step=0.5\)"),
        (lambda trial: trial.suggest_float("units", 1, 1024, log=True), "a whole number from 1 to 1024 on a log"),
        (lambda trial: trial.suggest_int("units", 1, 1024), "a whole number from 1 to 1024 on a logarithmic scale;"),
        (lambda trial: trial.suggest_int("layers", 1, 9), "a whole number from 1 to 9 in steps of 2;"),
        (lambda trial: trial.suggest_int("layers", 1, 7, step=2), r"suggest_int\('layers', 1, 7, step=2\)"),
        (
            lambda trial: trial.suggest_categorical("layers", [1, 3]),
            r"'layers', \[1, 3\]\) contradicts .* whole number",
        ),
        (lambda trial: trial.suggest_categorical("opt", ["sgd", "adam"]), r"one of \['sgd', 'adam', None\]"),
        (lambda trial: trial.suggest_categorical("opt", ["sgd", "adam", "lion"]), "contradicts"),
        (lambda trial: trial.suggest_float("opt", 0, 1), "contradicts .* one of"),
        (
            lambda trial: trial.suggest_float("l_r", 1e-5, 0.1, log=True),
            "'l_r' is not in the space, which has 'lr', 'width', 'layers', 'units', 'opt'; did you mean 'lr'",
        ),
        (lambda trial: trial.suggest_int("momentum"), "'momentum' is not in the space, which has [^;]*$"),
    ],
)
def test_a_suggestion_that_contradicts_the_space_is_refused(suggest: Suggest, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        suggested(suggest)


def test_a_payload_that_cannot_be_loaded_fails_its_trial() -> None:
    ended = evaluate(b"nonsense", Task(0, {}))
    assert ended.state == "failed"
    assert ended.traceback
