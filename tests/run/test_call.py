"""What the arguments of an objective stand for."""

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from lazybo import Limits, kfold, optimize
from lazybo.run.objective import Call, call_of

PARAMS = {"x": 2.0, "y": 3.0}
TRIAL = "the trial"


def got(objective: Callable[..., Any], params: dict[str, Any] = PARAMS, names: Any = ("x", "y"), **options: Any) -> Any:
    """What an objective is given, after it has travelled to a worker."""
    call: Call = pickle.loads(cloudpickle.dumps(call_of(objective, names, **options)))
    return call(params, TRIAL, 7)


class Bound:
    def method(self, x: float, y: float) -> Any:
        return x, y

    def __call__(self, y: float, trial: Any, *, x: float) -> Any:
        return x, y, trial

    @staticmethod
    def static(x: float, y: float) -> Any:
        return x, y

    @classmethod
    def of_class(cls, x: float, y: float) -> Any:
        return x, y


def with_data(data: str, x: float, y: float, scale: int = 1) -> Any:
    return data, x, y, scale


@functools.wraps(with_data)
def wrapper(*args: Any, **kwargs: Any) -> Any:
    return with_data(*args, **kwargs)


def by_position(x: float, y: float, /) -> Any:
    return x, y


def keywords(**everything: Any) -> Any:
    return everything


@pytest.mark.parametrize(
    ("objective", "given"),
    [
        (lambda x, y: (x, y), (2.0, 3.0)),
        (lambda y, x: (x, y), (2.0, 3.0)),
        (lambda *, y, x: (x, y), (2.0, 3.0)),
        (lambda x, y, trial: (x, y, trial), (2.0, 3.0, TRIAL)),
        (lambda trial, x: (x, trial), (2.0, TRIAL)),
        (lambda x, y=9.0, z=5: (x, y, z), (2.0, 3.0, 5)),
        (lambda x, **rest: (x, rest), (2.0, {"y": 3.0})),
        (keywords, PARAMS),
        (lambda trial, **rest: (trial, rest), (TRIAL, PARAMS)),
        (lambda params, x: (params, x), (PARAMS, 2.0)),
        (lambda config, y, trial: (config, y, trial), (PARAMS, 3.0, TRIAL)),
        (by_position, (2.0, 3.0)),
        (Bound().method, (2.0, 3.0)),
        (Bound(), (2.0, 3.0, TRIAL)),
        (Bound.static, (2.0, 3.0)),
        (Bound.of_class, (2.0, 3.0)),
        (functools.partial(with_data, "data"), ("data", 2.0, 3.0, 1)),
        (functools.partial(with_data, data="data", scale=4), ("data", 2.0, 3.0, 4)),
        (functools.partial(wrapper, "data"), ("data", 2.0, 3.0, 1)),
        # The dict of all parameters, under any name, and the trial.
        (lambda params: params, PARAMS),
        (lambda p: p, PARAMS),
        (lambda p=None: p, PARAMS),
        (lambda params, verbose=False: (params, verbose), (PARAMS, False)),
        (lambda p, **rest: (p, rest), (PARAMS, {})),
        (lambda trial: trial, TRIAL),
        (lambda params, trial: (params, trial), (PARAMS, TRIAL)),
        (lambda trial, p: (p, trial), (PARAMS, TRIAL)),
        (lambda params, trial=None: (params, trial), (PARAMS, TRIAL)),
        (lambda *arguments: arguments, (PARAMS,)),
        (lambda *arguments, **rest: (arguments, rest), ((PARAMS,), {})),
        (max, "y"),  # has no signature
    ],
)
def test_an_objective_is_given_what_its_arguments_stand_for(objective: Callable[..., Any], given: Any) -> None:
    assert got(objective) == given


def test_a_name_of_the_space_stands_for_that_parameter_whatever_else_it_could_mean() -> None:
    assert got(lambda x: x, {"x": 2.0}, ["x"]) == 2.0
    assert got(math.sqrt, {"x": 4.0}, ["x"]) == 2.0
    assert got(lambda params: params, {"params": 2.0}, ["params"]) == 2.0
    assert got(lambda trial, config: (trial, config), {"trial": 1, "config": 2}, ["trial", "config"]) == (1, 2)
    assert not call_of(lambda trial: trial, ["trial"]).takes_trial
    assert call_of(lambda trial: trial, ["x"]).takes_trial


def test_a_parameter_that_is_not_active_keeps_its_default() -> None:
    names, conditional = ("optimiser", "momentum"), ["momentum"]
    for objective in (lambda optimiser, momentum=None: momentum, lambda optimiser, **rest: rest.get("momentum")):
        assert got(objective, {"optimiser": "adam"}, names, conditional=conditional) is None
        assert got(objective, {"optimiser": "sgd", "momentum": 0.9}, names, conditional=conditional) == 0.9
    for objective in (lambda optimiser, momentum: 0, lambda optimiser, momentum=0, /: 0):
        with pytest.raises(TypeError, match="'momentum' is not active in every trial: give its argument a default"):
            call_of(objective, names, conditional)


def test_folds_come_with_the_parameters_in_either_form() -> None:
    assert got(lambda params, fold: (params, fold), folds=True) == (PARAMS, 7)
    assert got(lambda p, k: (p, k), folds=True) == (PARAMS, 7)
    assert got(lambda fold, p: (p, fold), folds=True) == (PARAMS, 7)
    assert got(lambda x, y, fold: (x, y, fold), folds=True) == (2.0, 3.0, 7)
    assert got(lambda x, y, k: (x, y, k), folds=True) == (2.0, 3.0, 7)
    assert got(lambda fold, **rest: (fold, rest), folds=True) == (7, PARAMS)
    assert got(lambda *arguments: arguments, folds=True) == (PARAMS, 7)
    assert kfold(lambda x, y, fold: x + y + fold)(PARAMS) == 6.0
    assert kfold(lambda params, fold: params["x"] + fold, k=2)(PARAMS) == 2.5


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (3, "must be a function"),
        (
            lambda a, b: a,
            r"lambda\(a, b\) cannot be called: the space has no parameter 'a', 'b'\. It may take \(params\)",
        ),
        (lambda x, z: x, "the space has no parameter 'z'.*by their names, .x, y., with or without trial"),
        (lambda params, t: 0, "the space has no parameter 't'"),
        (lambda a, b, c: a, "no parameter 'a', 'b', 'c'"),
        (lambda params, *, z: 0, "no parameter 'z'"),
        (lambda x: x, "no argument takes the parameter 'y'"),
        (lambda: 0, "no argument takes the parameter 'x', 'y'"),
        (lambda z=1, x=2, /: 0, "no argument takes the parameter"),
        (Bound.method, "no parameter 'self'"),
    ],
)
def test_an_objective_that_cannot_be_called_is_refused_with_its_signature(objective: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call_of(objective, ("x", "y"))


def test_an_objective_that_returns_no_number_but_a_coroutine_is_refused() -> None:
    async def later(x: float, y: float) -> float:
        return x + y

    class Later:
        async def __call__(self, params: Any) -> float:
            return float(params["x"])

    for objective in (later, functools.partial(later, 1.0), Later()):
        with pytest.raises(TypeError, match="async"):
            call_of(objective, ("x", "y"))


def test_a_misspelt_name_is_named_when_the_dict_makes_it_fail() -> None:
    study = optimize(
        lambda lrr: lrr**2, {"lr": (0.0, 1.0)}, n_trials=1, limits=Limits(max_failures=None), progress=False
    )
    assert "'lrr' is not a parameter of the space, so it got a dict" in study.trials[0].system_attrs["fail_reason"]


@pytest.mark.parametrize("objective", [lambda params: params + 1, lambda p: p["lr"] + "1", lambda p: p["rate"]])
def test_other_errors_are_told_as_they_are(objective: Any) -> None:
    study = optimize(objective, {"lr": (0.0, 1.0)}, n_trials=1, limits=Limits(max_failures=None), progress=False)
    assert "got a dict" not in study.trials[0].system_attrs["fail_reason"]
