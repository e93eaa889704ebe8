"""What is suggested next depends on the records and the saved state, not on the calls that led to them.

Queries change nothing, nor do pending rows that are removed again. The last test joins all of that in random order.
Four optimisers get the same calls in random order. After each call one is replaced by a copy, one is saved and loaded,
and one is read from; the fourth proposes all suggestions before it makes them. All of them must suggest the same to the
last bit.
"""

import copy
import math
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from optuna.distributions import FloatDistribution

from lazybo import Condition, Optimizer, Space
from lazybo.search.options import LocalModels
from lazybo.search.queries import Queries

PLANE: dict[str, Any] = {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}
MIXED: dict[str, Any] = {
    "rate": (1e-5, 1.0, "log"),
    "layers": (1, 9),
    "kind": ["a", "b", "c"],
    "width": (0.0, 1.0),
    "step": FloatDistribution(0.0, 2.0, step=0.25),
}
FINITE: dict[str, Any] = {"a": (1, 6), "kind": ["a", "b", "c"], "c": (1, 4)}
SPACES = [(PLANE, None), (MIXED, {"width": Condition("kind", ("a", "b"))}), (FINITE, None)]
COPIED, LOADED, READ, PROPOSING = range(4)


# Small rounds, so that several of them fit into a test.
SMALL = LocalModels(neighbours=20, round=6, best_of_all=15, spread_over_all=15)


def numbers(params: dict[str, Any]) -> list[float]:
    return [float(ord(value)) - 97 if isinstance(value, str) else float(value) for value in params.values()]


def may_be_evaluated(params: dict[str, Any]) -> bool:
    return sum(numbers(params)) <= 11


def somewhere(optimizer: Optimizer, seed: int) -> dict[str, Any]:
    return optimizer.space.points.decode(optimizer.space.points.sample(np.random.default_rng(seed), 1)[0])


def said(posteriors: list[Any]) -> list[bytes]:
    """What posteriors know and predict, with all bits."""
    known = [part.tobytes() for each in posteriors for part in (each.X, each.targets)]
    at = np.random.default_rng(0).random((3, posteriors[0].X.shape[1]))
    return [*known, *(part.tobytes() for each in posteriors for part in each.posterior(at))]


seeds = st.integers(0, 999)
counts = st.integers(1, 4)
options = st.fixed_dictionaries(
    {
        "lag": st.sampled_from([1, 5, "auto", None]),
        "local_after": st.sampled_from([8, 8, 15, 30, None]).map(lambda after: replace(SMALL, after=after)),
        "batch": st.sampled_from(["fantasy", "maxima"]),
        "n_startup": st.sampled_from([2, 6]),
        "direction": st.sampled_from([["minimize"], ["maximize"], ["minimize", "maximize"]]),
        "cost": st.sampled_from([None, None, "seconds"]),
        "feasible": st.sampled_from([None, None, may_be_evaluated]),
        "seed": seeds,
    }
)


# ---------------------------------------------------------------- single laws

# What an optimiser may have besides one objective: options, whether a constraint is measured, whether some fail.
KINDS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "one objective": ({}, False, False),
    "never learned": ({"lag": None}, False, False),
    "constraint": ({}, True, False),
    "failures": ({}, False, True),
    "cost": ({"cost": "seconds"}, False, False),
    "two objectives": ({"direction": ["minimize", "maximize"]}, True, True),
    "local models": ({"local_after": replace(SMALL, after=12)}, False, False),
    "local models with a constraint and failures": ({"local_after": replace(SMALL, after=12)}, True, True),
}


def used(kind: str, asked: int = 3) -> Optimizer:
    """An optimiser with values that it has not learned from yet, and one that is pending."""
    options, constrained, fails = KINDS[kind]
    optimizer = Optimizer(PLANE, seed=5, **options)
    pending = optimizer.announce(somewhere(optimizer, 99))
    optimizer.forecast(pending, 1.0, 0.5)
    for i in range(14 + asked):
        params = somewhere(optimizer, i) if i < 14 else optimizer.ask().params
        value = sum((each - 1.0) ** 2 for each in params.values())
        told = None if fails and i % 6 == 5 else value if len(optimizer.directions) == 1 else [value, params["x"]]
        measured = {"constraints": {"c": params["x"] - 2.0}} if constrained else {}
        if i < 14:
            optimizer.observe(params, told, seconds=1.0 + i % 3, **measured)
        else:
            optimizer.tell(optimizer.pending[-1], told, seconds=1.0, **measured)
    return optimizer


AT = {"x": 1.0, "y": -2.0}
QUERIES: dict[str, Callable[[Optimizer], Any]] = {
    "predictor": lambda optimizer: optimizer.model.predictor(),
    "surrogate": lambda optimizer: optimizer.model.surrogate(),
    "predict_all": lambda optimizer: optimizer.model.predict_all([AT, AT]),
    "predict_feasible": lambda optimizer: optimizer.model.predict_feasible(AT),
    "limits": lambda optimizer: optimizer.model.limits(),
    "related": lambda optimizer: optimizer.model.related(),
    "maxima": lambda optimizer: optimizer.model.maxima(),
    "contenders": lambda optimizer: optimizer.model.contenders(),
    "final_check": lambda optimizer: optimizer.model.final_check(optimizer.model.evaluations()).contenders(),
    "expected_gain": lambda optimizer: optimizer.model.expected_gain(5),
    "gain_parts": lambda optimizer: optimizer.model.gain_parts([1, 9]).expected(),
    "predict": lambda optimizer: optimizer.predict(AT),
    "recommend": lambda optimizer: optimizer.recommend(),
    "records": lambda optimizer: optimizer.records(),
    "repr": repr,
}


def test_every_query_is_tried() -> None:
    public = {name for name in vars(Queries) if not name.startswith("_") and callable(getattr(Queries, name))}
    assert public - QUERIES.keys() == {"evaluations", "to_repeat"}, "final_check and confirm use them"


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_changes_neither_the_state_nor_what_is_suggested(kind: str) -> None:
    """Also if learning is due: each query then learns for itself, and the same again."""
    curious, quiet = used(kind), used(kind)
    state, answers = curious.state(), {}
    for name, query in QUERIES.items():
        with suppress(ValueError):  # it is for one objective
            answers[name] = str(query(curious))
        assert curious.state() == state, name
    assert len(answers) >= 9
    assert curious.ask(2) == quiet.ask(2)
    assert curious.state() == quiet.state()


@pytest.mark.parametrize("between", ["nothing", "a query", "a proposal"])
@pytest.mark.parametrize("kind", KINDS)
def test_pending_rows_that_are_removed_again_leave_no_trace(kind: str, between: str) -> None:
    optimizer = used(kind)
    before = optimizer.planner.propose(99, 2)
    state = optimizer.state()
    added = [optimizer.announce(somewhere(optimizer, 200 + i)) for i in range(3)]
    if between != "a proposal":  # which would learn the forecast
        optimizer.forecast(added[1], 3.0, 0.1)
    if between == "a query":
        optimizer.model.maxima()
    elif between == "a proposal":
        optimizer.planner.propose(100)
    for i in (1, 0, 2):
        optimizer.forget(added[i])
    assert optimizer.state() == {**state, "next_number": state["next_number"] + 3}
    assert optimizer.planner.propose(99, 2) == before


@pytest.mark.parametrize("name", ["lag", "seed", "cost", "direction", "kernel", "anything"])
def test_no_option_of_an_optimiser_can_be_changed(name: str) -> None:
    optimizer = Optimizer(PLANE, seed=0)
    for where in (optimizer, optimizer.options, optimizer.model):
        with pytest.raises(AttributeError):
            setattr(where, name, 3)
    assert optimizer.options == Optimizer(PLANE, seed=0).options


# ------------------------------------------------------------- in random order


class History(RuleBasedStateMachine):
    """Calls of four optimisers, which must return the same."""

    optimizers: list[Optimizer]

    @initialize(
        where=st.sampled_from(SPACES),
        options=options,
        constrained=st.booleans(),
        noise=st.sampled_from([0.0, 0.5]),
        before=st.sampled_from([0, 10, 40]),
    )
    def begin(self, where: Any, options: dict[str, Any], constrained: bool, noise: float, before: int) -> None:
        space, conditions = where
        self.predicate, self.constrained, self.noise, self.reads = options["feasible"], constrained, noise, 0
        given = Space(space, conditions=conditions, feasible=options.pop("feasible"))
        self.optimizers = [Optimizer(given, **options) for _ in range(4)]
        self.kept: list[Any] = []
        self.observe(before, 0)

    def each(self, call: Callable[[Optimizer], Any]) -> Any:
        """What a call returns, which is the same for all of them."""
        first, *others = (call(optimizer) for optimizer in self.optimizers)
        assert [other == first for other in others] == [True] * 3
        return first

    def value(self, params: dict[str, Any], seed: int) -> float | list[float]:
        value = sum((math.log1p(abs(number)) - 0.3) ** 2 for number in numbers(params))
        value += self.noise * math.sin(1e4 * value + seed) + 1e30 * (seed % 17 == 16)
        return value if len(self.optimizers[0].directions) == 1 else [value, numbers(params)[0] - value]

    def measured(self, params: dict[str, Any], seed: int) -> dict[str, Any]:
        """What else is told of an evaluation."""
        variance = 0.01 * (seed % 5) if seed % 3 == 0 else 0.0
        constraint = {"constraints": {"c": numbers(params)[0] - 2.0}} if self.constrained and seed % 4 else {}
        several = len(self.optimizers[0].directions) == 2
        return {"variance": [variance, 0.02] if several else variance, "seconds": 1.0 + seed % 7, **constraint}

    def next_number(self) -> int:
        return self.optimizers[PROPOSING].state()["next_number"]

    # ------------------------------------------------------------------ records

    @rule(rounds=st.integers(2, 4), seed=seeds)
    def work(self, rounds: int, seed: int) -> None:
        """Some are always pending."""
        for each in range(rounds):
            self.ask(1 + (seed + each) % 4)
            self.tell(seed + each, fails=False)

    @rule(n=counts)
    def ask(self, n: int) -> None:
        number = self.next_number()
        proposed = [self.optimizers[PROPOSING].planner.propose(number, n) for _ in range(2)]
        asked = self.each(lambda optimizer: [suggestion.params for suggestion in optimizer.ask(n)])
        assert proposed == [asked, asked]

    @rule(n=counts)
    def ask_one_by_one(self, n: int) -> None:
        for _ in range(n):
            number = self.next_number()
            proposed = [self.optimizers[PROPOSING].planner.propose(number)[0] for _ in range(2)]
            asked = self.each(lambda optimizer: optimizer.ask().params)
            assert proposed == [asked, asked]

    @rule(seed=seeds, fails=st.sampled_from([False, False, False, True]))
    def tell(self, seed: int, fails: bool) -> None:
        def call(optimizer: Optimizer) -> None:
            for suggestion in optimizer.pending[seed % 3 :: 2]:
                value = None if fails else self.value(suggestion.params, seed)
                optimizer.tell(suggestion, value, **self.measured(suggestion.params, seed))

        self.each(call)

    @rule(seed=seeds)
    def forecast(self, seed: int) -> None:
        def call(optimizer: Optimizer) -> None:
            for suggestion in optimizer.pending[seed % 3 :][:1]:
                objective = seed % len(optimizer.directions)
                optimizer.forecast(suggestion, seed % 7, 0.1 * (1 + seed % 3), objective=objective)

        self.each(call)

    @rule(n=st.integers(1, 12), seed=seeds)
    def observe(self, n: int, seed: int) -> None:
        def call(optimizer: Optimizer) -> None:
            for each in range(seed, seed + n):
                params = somewhere(optimizer, each)
                value = None if each % 9 == 8 else self.value(params, each)
                optimizer.observe(params, value, **self.measured(params, each))

        self.each(call)

    @rule(seed=seeds)
    def announce(self, seed: int) -> None:
        self.each(lambda optimizer: optimizer.announce(somewhere(optimizer, seed)))

    @rule(n=counts, seed=seeds, proposes=st.booleans())
    def announce_and_forget(self, n: int, seed: int, proposes: bool) -> None:
        """Pending rows that are removed again change nothing, also if something was proposed in between."""
        added = [self.each(lambda optimizer, i=i: optimizer.announce(somewhere(optimizer, seed + i))) for i in range(n)]
        number = self.next_number()
        if proposes:
            self.optimizers[PROPOSING].model.maxima()
        self.each(lambda optimizer: [optimizer.forget(each) for each in added])
        self.each(lambda optimizer: optimizer.planner.propose(number))

    @rule(seed=seeds)
    def forget(self, seed: int) -> None:
        self.each(lambda optimizer: [optimizer.forget(each) for each in optimizer.pending[seed % 4 :][:1]])

    @rule()
    def confirm(self) -> None:
        if len(self.optimizers[0].directions) == 1:
            self.each(lambda optimizer: optimizer.confirm())

    @rule(seed=seeds)
    def correct(self, seed: int) -> None:
        def call(optimizer: Optimizer) -> None:
            told = [row for row in optimizer.records() if row["state"] == "COMPLETE" and row["number"] is not None]
            for row in told[seed % 5 :][:1]:
                params = {name[7:]: value for name, value in row.items() if name.startswith("params_")}
                optimizer.correct(
                    row["number"], self.value({k: v for k, v in params.items() if v is not None}, seed + 1)
                )

        self.each(call)

    # ------------------------------------------------- calls that record nothing

    @rule(number=seeds, n=counts)
    def propose(self, number: int, n: int) -> None:
        self.each(lambda optimizer: (optimizer.planner.propose(number), optimizer.planner.propose(number, n)))

    @rule(number=seeds)
    def complete(self, number: int) -> None:
        def call(optimizer: Optimizer) -> Any:
            name, value = next(iter(somewhere(optimizer, number).items()))
            try:
                return optimizer.planner.complete({name: value}, number)
            except ValueError as error:
                return str(error)

        self.each(call)

    @rule(share=st.sampled_from([0.0, 0.3, 1.0, None]))
    def learn(self, share: float | None) -> None:
        self.each(lambda optimizer: setattr(optimizer.planner, "budget_left", share))
        self.each(lambda optimizer: optimizer.learn())

    @invariant()
    def copy(self) -> None:
        self.optimizers[COPIED] = copy.deepcopy(self.optimizers[COPIED])

    @invariant()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimizer.json"
            self.optimizers[LOADED].save(path)
            self.optimizers[LOADED] = Optimizer.load(path, feasible=self.predicate)

    @invariant()
    def read(self) -> None:
        optimizer, self.reads = self.optimizers[READ], self.reads + 1
        at = somewhere(optimizer, self.reads)
        reads: list[Callable[[], Any]] = [
            optimizer.model.maxima,
            optimizer.model.related,
            optimizer.model.limits,
            optimizer.model.surrogate,
            optimizer.recommend,
            optimizer.model.contenders,
            optimizer.model.expected_gain,
            lambda: optimizer.best,
            lambda: optimizer.front,
            lambda: optimizer.model.predict_all([at, at]),
            lambda: optimizer.model.predict_feasible(at),
            lambda: repr(optimizer),
        ]
        before = optimizer.state()
        for read in (reads[self.reads % len(reads)], reads[-self.reads % 5]):
            with suppress(ValueError):  # it has no value yet, or several objectives
                read()
        assert optimizer.state() == before

    @invariant()
    def what_was_given_out_stays_as_it_was(self) -> None:
        """Whatever is called later, and whatever is due by then."""
        optimizer = self.optimizers[READ]
        with suppress(ValueError):  # it has no value yet
            if self.reads % 3 == 0:
                predictors = [optimizer.model.predictor(j) for j in range(len(optimizer.directions))]
                limits, success = optimizer.model.limits()
                views = [*predictors, *limits.values(), *([] if success is None else [success])]
                posteriors = [optimizer.model.surrogate()[0], *(view.posterior for view in views)]
                self.kept.append((posteriors, said(posteriors)))
        for posteriors, then in self.kept:
            assert said(posteriors) == then

    @invariant()
    def states_are_the_same(self) -> None:
        self.each(lambda optimizer: optimizer.state())

    def teardown(self) -> None:
        self.ask(3)


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=8, stateful_step_count=10)
