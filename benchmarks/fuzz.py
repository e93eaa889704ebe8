"""Random calls on random problems: ``python -m benchmarks.fuzz --operations 20000``.

Every problem is one of `tests.spaces`: parameters of all kinds in any order, conditions, known constraints, features,
canonical forms, beliefs, several objectives. An optimiser gets calls in random order: ask, tell, failures, forecasts,
observe, correct, forget, announce, confirm, predict, recommend, front, copy, and save and load. After each load the new
optimiser must have the same state, predictions and suggestions as the old one, to the last bit. One problem in twelve
is a study, run by `lazybo.optimize` or by Optuna with `LazySampler`; its suggestions are made again by
`lazybo.study.replay`. Each trial counts as an operation.

All calls are valid, so every exception and every warning of NumPy is an *internal error*. ``--seed`` is the first
problem; a problem that fails is run again by ``--seed N --problems 1``. It writes nothing.
"""

import argparse
import copy
import json
import logging
import math
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import optuna

import lazybo
from lazybo import Optimizer
from lazybo.study import replay
from tests.spaces import Problem, make_problem, make_space

# Calls on one problem.
CALLS = 30
# One problem in so many is a study.
STUDIES = 12
TRIALS = 12
# Print tracebacks (an environment variable, so that processes have it).
TRACEBACKS = bool(os.environ.get("FUZZ_TRACEBACKS"))


@dataclass
class Found:
    """What the calls on one problem have shown."""

    seed: int
    operations: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


class Different(AssertionError):
    """Two optimisers that should be the same are not."""


class Broken(AssertionError):
    """An answer that cannot be right."""


def equal(what: str, one: Any, other: Any) -> None:
    """Raise unless two answers are the same to the last bit."""
    if repr(one) != repr(other):
        raise Different(f"{what}: {one!r:.300} and {other!r:.300}")


class Session:
    """An optimiser of one problem that gets random calls."""

    def __init__(self, problem: Problem, random: Random) -> None:
        self.problem, self.random = problem, random
        self.optimizer = Optimizer(problem.space, **problem.options)
        self.one = len(self.optimizer.directions) == 1

    def calls(self) -> list[tuple[str, int, Callable[[], None]]]:
        """The calls that are valid now: name, weight, function."""
        table = [*self.optimizer.records()]
        done = any(row["state"] == "COMPLETE" for row in table)
        pending = bool(self.optimizer.pending)
        every: list[tuple[str, int, bool, Callable[[], None]]] = [
            ("ask", 6, True, self.ask),
            ("ask several", 1, True, partial(self.ask, 3)),
            ("tell", 10, pending, self.tell),
            ("fail", 1, pending, partial(self.tell, fails=True)),
            ("forecast", 1, pending, self.forecast),
            ("forget", 1, pending, self.forget),
            ("observe", 2, True, self.observe),
            ("announce", 1, True, self.announce),
            ("correct", 1, done, self.correct),
            ("confirm", 1, done and self.one, self.confirm),
            ("predict", 2, done, self.predict),
            ("recommend", 1, done and self.one, self.recommend),
            ("best", 1, done, self.best),
            ("maxima", 1, done and self.one, self.maxima),
            ("expected gain", 1, done and self.one, self.expected_gain),
            ("propose", 1, True, self.propose),
            ("complete", 1, True, self.complete),
            ("copy", 1, True, self.copy),
            ("load", 3, True, self.load),
        ]
        return [(name, weight, call) for name, weight, valid, call in every if valid]

    def step(self) -> str:
        """One random call; returns its name."""
        calls = self.calls()
        name, _, call = self.random.choices(calls, [weight for _, weight, _ in calls])[0]
        self.last = name
        call()
        return name

    # ------------------------------------------------------------------ records

    def ask(self, n: int | None = None) -> None:
        asked = self.optimizer.ask(n)
        for suggestion in [asked] if n is None else asked:
            self.check(self.problem.space.store(suggestion.params))

    def check(self, params: Mapping[str, Any]) -> None:
        """Stored parameters are a configuration that may be evaluated."""
        space = self.problem.space
        space.check(params)
        values = space.values(params)
        if space.store(values) != params:
            raise Broken(f"{params} is read back as {space.store(values)}")
        if space.feasible is not None and not space.feasible(values):
            raise Broken(f"{values} is not feasible")

    def anywhere(self) -> dict[str, Any]:
        rng = np.random.default_rng(self.random.randint(0, 2**31))
        space = self.problem.space
        return space.values(space.points.decode(space.points.sample(rng, 1)[0]))

    def tell(self, *, fails: bool = False) -> None:
        suggestion = self.random.choice(self.optimizer.pending)
        value = None if fails else self.problem.value(suggestion.params)
        self.optimizer.tell(suggestion, value, **self.problem.measured(suggestion.params))

    def forecast(self) -> None:
        suggestion = self.random.choice(self.optimizer.pending)
        objective = self.random.randrange(len(self.optimizer.directions))
        self.optimizer.forecast(suggestion, self.random.random(), 0.1, objective=objective)

    def forget(self) -> None:
        self.optimizer.forget(self.random.choice(self.optimizer.pending))

    def observe(self) -> None:
        for _ in range(self.random.choice([1, 4])):
            params = self.anywhere()
            self.optimizer.observe(params, self.problem.value(params), **self.problem.measured(params))

    def announce(self) -> None:
        self.optimizer.announce(self.anywhere())

    def correct(self) -> None:
        told = [row for row in self.optimizer.records() if row["state"] == "COMPLETE" and row["number"] is not None]
        if told:
            value = self.random.random()
            row = self.random.choice(told)
            self.optimizer.correct(row["number"], value if self.one else [value] * len(self.optimizer.directions))

    def confirm(self) -> None:
        self.optimizer.confirm()

    # --------------------------------------------------------- calls that record nothing

    def predict(self) -> None:
        for each in self.predicted():
            if not each.low <= each.value <= each.high:
                raise Broken(f"{each}")

    def predicted(self) -> list[Any]:
        """Predictions of all objectives at two points."""
        several = self.optimizer.model.predict_all([self.anywhere(), self.anywhere()])
        return [each for one in several for each in one]

    def recommend(self) -> None:
        try:
            found = self.optimizer.recommend()
        except ValueError as error:
            if "feasible" not in str(error) and "constraint" not in str(error):
                raise
            return
        if not found.low <= found.value <= found.high or not math.isfinite(found.value):
            raise Broken(f"{found}")

    def best(self) -> None:
        repr(self.optimizer.front)
        repr(self.optimizer)

    def maxima(self) -> None:
        for params, _ in self.optimizer.model.maxima():
            self.check(params)

    def expected_gain(self) -> None:
        try:
            gain = self.optimizer.model.expected_gain(5)
        except ValueError as error:
            if "feasible" not in str(error) and "constraint" not in str(error):
                raise
            return
        if not gain >= 0.0:
            raise Broken(f"a gain of {gain}")

    def propose(self) -> None:
        before = self.optimizer.records()
        for params in self.optimizer.planner.propose(self.random.randint(0, 99), 2):
            self.check(params)
        equal("the records after a proposal", before, self.optimizer.records())

    def complete(self) -> None:
        params = self.problem.space.store(self.anywhere())
        fixed = {name: params[name] for name in self.random.sample([*params], self.random.randint(0, len(params)))}
        conditions, child = self.problem.space.stored_conditions, [*fixed]
        while child:  # a parameter is only active with its parents
            if (condition := conditions.get(child.pop())) is not None:
                fixed[condition.parent] = params[condition.parent]
                child.append(condition.parent)
        try:
            found = self.optimizer.planner.complete(fixed, 7)
        except ValueError as error:
            if self.problem.space.feasible is None or "feasible" not in str(error):
                raise
            return
        self.problem.space.check(found)
        if fixed.items() - found.items():
            raise Broken(f"{found} is no completion of {fixed}")

    def copy(self) -> None:
        self.optimizer = copy.deepcopy(self.optimizer)

    def load(self) -> None:
        """Save, load, and compare: the state, a prediction and what is asked next."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimizer.json"
            self.optimizer.save(path)
            loaded = Optimizer.load(path, **self.problem.functions)
            equal("the state", self.optimizer.state(), loaded.state())
            loaded.save(path)
            state = Optimizer.load(path, **self.problem.functions).state()
            equal("the state of a second load", self.optimizer.state(), state)
        equal("the parameters", [*self.problem.space.parameters], [*loaded.space.parameters])
        self.last = "ask after load"
        if any(row["state"] == "COMPLETE" for row in self.optimizer.records()):
            at = [self.anywhere(), self.anywhere()]
            equal("a prediction", self.optimizer.model.predict_all(at), loaded.model.predict_all(at))
        equal("what is asked", self.optimizer.ask(), loaded.ask())
        equal("the state after ask", self.optimizer.state(), loaded.state())
        self.optimizer = loaded


# ---------------------------------------------------------------------------- studies


def study_of(problem: Problem, random: Random, folder: str) -> tuple[optuna.Study, Callable[..., bool] | None]:
    """A run of `optimize` on a problem; its predicate, if it has one."""
    given = problem.options.get("direction", "minimize")
    names = ("n_startup", "lag", "batch", "kernel", "acquisition", "value_transform", "deterministic", "local_after")
    model = {name: problem.options[name] for name in names if name in problem.options}
    if "n_startup" in model:
        model["n_startup_trials"] = model.pop("n_startup")

    def objective(params: dict[str, Any]) -> Any:
        if random.random() < 0.1:
            raise ArithmeticError("diverged")
        return problem.value(params)

    study = lazybo.optimize(
        objective,
        problem.space,
        n_trials=TRIALS,
        storage=f"sqlite:///{folder}/study.db",
        seed=random.randint(0, 99),
        progress=False,
        direction=given,
        sampler=lazybo.LazySampler(**model),
        limits=lazybo.Limits(max_failures=None),
    )
    return study, problem.space.feasible


def replayed(found: Found, seed: int) -> None:
    """A study, each of whose suggestions is made again."""
    random = Random(seed)  # noqa: S311 - nothing is secret
    space = make_space(random, functions=False) if random.random() < 0.5 else make_space(random)
    if space.features is not None or space.canonical is not None:
        space = space.changed(features=None, canonical=None, instead_of=())  # no study holds them
    problem = Problem(space, make_problem(random, functions=False).options)
    with tempfile.TemporaryDirectory() as folder:
        study, feasible = study_of(problem, random, folder)
        found.operations["trial"] += len(study.trials)
        for each in replay(study, feasible):
            found.operations["replay"] += 1
            if each.missing:
                found.errors.append(f"seed {seed}: trial {each.number} cannot be replayed: {each.missing}")
            elif each.differs:
                found.differences.append(f"seed {seed}: trial {each.number}: {each.params} and {each.again}")


def fuzz(seed: int) -> Found:
    """The calls on one problem."""
    found = Found(seed)
    session: Session | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            if seed % STUDIES == STUDIES - 1:
                replayed(found, seed)
                return found
            random = Random(seed)  # noqa: S311
            session = Session(make_problem(random), random)
            for _ in range(CALLS):
                found.operations[session.step()] += 1
        except Different as error:
            found.differences.append(f"seed {seed}: {error}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            call = "" if session is None else f"{getattr(session, 'last', 'begin')}: "
            place = f"{Path(where.filename).name}:{where.lineno}"
            if TRACEBACKS:
                traceback.print_exc()
            found.errors.append(f"seed {seed}: {call}{type(error).__name__} at {place}: {error!s:.300}")
    return found


def seeds(first: int, problems: int | None) -> Iterator[int]:
    return iter(range(first, first + problems)) if problems else count(first)


def prepare() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("lazybo").setLevel(logging.CRITICAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first problem")
    parser.add_argument("--problems", type=int, help="so many problems, instead of so many operations")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    start, operations, problems = time.perf_counter(), Counter[str](), 0
    errors, differences = list[str](), list[str]()
    with ProcessPoolExecutor(options.processes, initializer=prepare) as executor:
        following = seeds(options.seed, options.problems)
        wanted = options.operations if options.problems is None else math.inf
        while operations.total() < wanted:
            some = [seed for seed, _ in zip(following, range(8 * options.processes), strict=False)]
            if not some:
                break
            for found in executor.map(fuzz, some):
                problems += 1
                operations += found.operations
                for each in (*found.errors, *found.differences):
                    print(each, flush=True)
                errors += found.errors
                differences += found.differences
    print(json.dumps(dict(operations.most_common())))
    print(
        f"{operations.total()} operations on {problems} problems in {time.perf_counter() - start:.0f} s: "
        f"{len(errors)} internal errors, {len(differences)} differences after load or replay"
    )
    sys.exit(bool(errors or differences))


if __name__ == "__main__":
    main()
