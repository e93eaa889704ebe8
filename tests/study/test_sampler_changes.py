"""Studies whose space changes between trials: no trial may fail, whatever changes.

Optuna itself refuses an objective that asks for a parameter of another kind, scale or choices. Trials that are added to
a study may have them.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import optuna
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from lazybo import Condition
from lazybo.study.model import model_of
from lazybo.study.pruner import LazyPruner
from lazybo.study.sampler import LazySampler

optuna.logging.set_verbosity(optuna.logging.ERROR)
# Optuna's own, about enqueued values and steps.
pytestmark = pytest.mark.filterwarnings("ignore:Fixed parameter", "ignore:The distribution is specified by")

LOG = ("rate", "width")
FLOATS = ("rate", "x", "unit0", "unit1", "unit2")
MODELS = ["tree", "net", "none"]
KINDS: list[BaseDistribution] = [
    FloatDistribution(0.5, 2.0),
    FloatDistribution(0.5, 2.0, log=True),
    IntDistribution(1, 2),
    IntDistribution(1, 2, log=True),
    CategoricalDistribution([1, 2]),
    CategoricalDistribution([2, "net", 1]),
]


def layered(trial: optuna.Trial, most: int) -> float:
    layers = trial.suggest_int("layers", 1, most)
    return sum(trial.suggest_float(f"units{k}", 0, 1) for k in range(layers))


@dataclass
class Program:
    """An objective whose ranges and structure can be changed."""

    ranges: dict[str, tuple[float, float, float]] = field(default_factory=dict)  # low, width, step (0: none)
    models: frozenset[str] = frozenset({"net"})  # with these there is a rate
    by_layers: bool = True  # one unit for each layer, or all units always
    asks: frozenset[str] = frozenset({"model", "layers", "width", "x", "within"})
    outcome: str = "complete"

    def __call__(self, trial: optuna.Trial) -> float:
        value = self._layers(trial) if "layers" in self.asks else 0.0
        if "model" in self.asks and trial.suggest_categorical("model", MODELS) in self.models:
            value += self._number(trial, "rate")
        for name in ("width", "x"):
            value += self._number(trial, name) if name in self.asks else 0.0
        if self.outcome != "complete":
            trial.report(value, 1)
            trial.report(value + 1.0, 2)
            if self.outcome == "pruned" or trial.should_prune():
                raise optuna.TrialPruned
        return value

    def _layers(self, trial: optuna.Trial) -> float:
        layers = int(self._number(trial, "layers"))
        units = [self._number(trial, f"unit{k}") for k in range(3) if k < layers or not self.by_layers]
        within = trial.suggest_int("within", min(layers, 1), max(layers, 1)) if "within" in self.asks else 0
        return sum(units) + within

    def _number(self, trial: optuna.Trial, name: str) -> float:
        low, width, step = self.ranges.get(name, (1, 2, 0))
        log = name in LOG
        low = max(low, 1) if log else low
        if name in FLOATS:
            return trial.suggest_float(name, low, low + width, log=log, step=None if log else step or None)
        return trial.suggest_int(name, int(low), int(low + width), log=log, step=1 if log else int(step) or 1)


class ChangingStudy(RuleBasedStateMachine):
    """A study in memory whose objective, ranges and recorded trials change between its trials."""

    def __init__(self) -> None:
        super().__init__()
        self.program = Program()
        self.open: list[optuna.Trial] = []
        self.study = optuna.create_study(sampler=LazySampler(seed=0, n_startup_trials=2), pruner=LazyPruner())

    @rule(
        name=st.sampled_from(("layers", "width", *FLOATS)),
        low=st.integers(-3, 5),
        width=st.sampled_from([0, 1, 2, 2, 5, 30]),
        step=st.sampled_from([0, 0, 1, 2]),
    )
    def change_a_range(self, name: str, low: int, width: int, step: int) -> None:
        self.program.ranges[name] = (low, width, step)

    @rule(models=st.frozensets(st.sampled_from(MODELS)), by_layers=st.booleans())
    def change_the_structure(self, models: frozenset[str], by_layers: bool) -> None:
        self.program.models, self.program.by_layers = models, by_layers

    @rule(asks=st.frozensets(st.sampled_from(["model", "layers", "width", "x", "within"])))
    def ask_for_other_parameters(self, asks: frozenset[str]) -> None:
        self.program.asks = asks

    @rule(count=st.integers(1, 5), outcome=st.sampled_from(["complete", "complete", "pruned", "reported"]))
    def run(self, count: int, outcome: str) -> None:
        self.program.outcome = outcome
        self.study.optimize(self.program, n_trials=count)  # raises if a trial fails

    @rule()
    def begin_a_trial(self) -> None:
        self.open.append(self.study.ask())
        self.program.outcome = "complete"
        self.program(self.open[-1])

    @precondition(lambda self: self.open)
    @rule(state=st.sampled_from([TrialState.COMPLETE, TrialState.FAIL]))
    def end_a_trial(self, state: TrialState) -> None:
        self.study.tell(self.open.pop(0), 0.5 if state == TrialState.COMPLETE else None, state)

    @rule(distribution=st.sampled_from(KINDS), data=st.data())
    def add_a_result_of_another_kind(self, distribution: BaseDistribution, data: st.DataObject) -> None:
        """Only of parameters that the objective has asked for: their kind is known then."""
        asked = sorted({name for trial in self.study.trials for name in trial.distributions})
        if asked:
            names = data.draw(st.sets(st.sampled_from(asked), min_size=1))
            self.study.add_trial(create_trial(value=1.0, **_of_kind(names, distribution)))

    @rule(layers=st.integers(-3, 5), x=st.floats(-3, 3))
    def enqueue(self, layers: int, x: float) -> None:
        self.study.enqueue_trial({"layers": layers, "x": x})

    @rule()
    def continue_with_another_sampler(self) -> None:
        self.study.sampler = LazySampler(seed=1, n_startup_trials=2)

    def teardown(self) -> None:
        if any(trial.params for trial in self.study.trials):
            model_of(self.study, self.study.trials)  # what a report opens


def _of_kind(names: set[str], distribution: BaseDistribution) -> dict[str, Any]:
    """Parameters that all have one distribution, as arguments of `create_trial`."""
    return {"params": dict.fromkeys(names, 2), "distributions": dict.fromkeys(names, distribution)}


TestChangingStudy = ChangingStudy.TestCase
TestChangingStudy.settings = settings(max_examples=25, stateful_step_count=15)


def test_a_range_that_others_depend_on_may_be_narrowed() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(lambda trial: layered(trial, 4), n_trials=15)
    study.optimize(lambda trial: layered(trial, 2), n_trials=10)
    for trial in study.trials[15:]:
        layers = trial.params["layers"]
        assert layers <= 2
        assert sorted(trial.params) == ["layers", *(f"units{k}" for k in range(layers))]


def test_results_outside_a_narrowed_range_still_count() -> None:
    sampler = LazySampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: layered(trial, 4), n_trials=15)
    study.optimize(lambda trial: layered(trial, 2), n_trials=2)
    model = model_of(study, study.trials)
    assert model.optimizer.planner.records.n_complete == 17
    assert model.space.conditions["units2"] == Condition("layers", (3, 4)), "never active in the new range"


def test_an_added_trial_of_another_kind_does_not_change_what_is_suggested() -> None:
    def objective(trial: optuna.Trial) -> float:
        return (trial.suggest_float("x", 0, 1) - 0.3) ** 2

    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(objective, n_trials=8)
    study.add_trial(create_trial(value=1.0, **_of_kind({"x"}, CategoricalDistribution([2, "net"]))))
    study.optimize(objective, n_trials=12)
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)
    assert study.best_value < 1e-4


# ---------------------------------------------------------------------- warnings


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What Optuna's loggers say, from warnings on."""
    optuna.logging.enable_propagation()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with caplog.at_level(logging.WARNING):
        yield caplog
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.logging.disable_propagation()


def messages(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in log.records if "lazybo" in record.name]


def below(trial: optuna.Trial) -> float:
    """Both parameters are always active; the range of b depends on a."""
    a = trial.suggest_int("a", 1, 20)
    return abs(a - 12) + abs(trial.suggest_int("b", 1, a) - 7)


def test_a_range_that_changes_is_said_once(log: pytest.LogCaptureFixture) -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(below, n_trials=30)
    (message,) = messages(log)
    assert "the range of 'b' changes between trials" in message


def test_a_parameter_that_is_active_where_no_trial_had_it_is_said_once(log: pytest.LogCaptureFixture) -> None:
    def objective(trial: optuna.Trial) -> float:
        value = trial.suggest_float("x", 0, 1)
        if trial.suggest_categorical("model", ["tree", "net"]) == "net" or trial.number > 12:
            value += trial.suggest_float("rate", 0, 1)
        return value

    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(objective, n_trials=30)
    (message,) = messages(log)
    assert "'rate' is new here" in message


def test_warnings_can_be_turned_off(log: pytest.LogCaptureFixture) -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0, warn_independent_sampling=False))
    study.optimize(below, n_trials=20)
    assert messages(log) == []
