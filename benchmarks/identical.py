"""The same suggestions to the last bit, before and after a change: ``python -m benchmarks.identical record FILE``.

It writes the suggestions of 55 runs to a JSON file, every float with all its bits: ten problems with two seeds and 60
evaluations each; constraints, several objectives, failures, costs, earlier studies, local models, batches, forecasts
and other options of `Optimizer`; studies with `LazySampler` and `optimize()`, one of which is resumed by new processes.
``compare FILE`` runs them again and names the first difference of each run. Use the same machine and libraries for
both. It takes about a minute; ``--quick`` makes 30 evaluations with `Optimizer` only.

To compare with a version that has another interface, change the functions under "construction" in a copy.
"""

import argparse
import json
import logging
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import lazybo

SEEDS = (0, 1)
EVALUATIONS, QUICK_EVALUATIONS = 60, 30
Params = Mapping[str, Any]
Record = list[Any]

# ------------------------------------------------------------------------------------------------- construction


def make_space(parameters: dict[str, Any], conditions: Any = None, feasible: Any = None) -> lazybo.Space:
    return lazybo.Space(parameters, conditions=conditions or {}, feasible=feasible)


def make_optimizer(space: lazybo.Space, directions: Any = "minimize", **options: Any) -> lazybo.Optimizer:
    return lazybo.Optimizer(space, direction=directions, **options)


def set_budget(optimizer: lazybo.Optimizer, share: float) -> None:
    optimizer.planner.budget_left = share


def propose(optimizer: lazybo.Optimizer, number: int) -> dict[str, Any]:
    return optimizer.planner.propose(number)[0]


def propose_batch(optimizer: lazybo.Optimizer, number: int, n: int) -> list[dict[str, Any]]:
    return optimizer.planner.propose(number, n)


def planner_of(optimizer: lazybo.Optimizer) -> Any:
    """What completes configurations and revises values."""
    return optimizer.planner


def run_optimize(
    objective: Any,
    space: lazybo.Space,
    *,
    directions: Any = "minimize",
    model: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    **options: Any,
) -> optuna.Study:
    """A run; ``model`` are options of the model, ``limits`` say when it ends."""
    return lazybo.optimize(
        objective,
        space,
        direction=directions,
        sampler=lazybo.LazySampler(**model) if model else None,
        limits=lazybo.Limits(**limits) if limits else None,
        progress=False,
        **options,
    )


# ---------------------------------------------------------------------------------------------------- problems


@dataclass(frozen=True)
class Problem:
    """A space and an objective to minimise; ``noise`` is the standard deviation of a measurement."""

    space: lazybo.Space
    objective: Callable[[Params], float]
    noise: float = 0.0

    def measured(self, params: Params, seed: int, number: int) -> float:
        if not self.noise:
            return self.objective(params)
        return self.objective(params) + self.noise * float(np.random.default_rng((seed, number)).standard_normal())


def cube(dim: int, bound: float) -> lazybo.Space:
    return make_space({f"x{j}": (-bound, bound) for j in range(dim)})


def levy(params: Params) -> float:
    w = [1.0 + (x - 1.0) / 4.0 for x in params.values()]
    middle = sum((a - 1.0) ** 2 * (1.0 + 10.0 * math.sin(math.pi * a + 1.0) ** 2) for a in w[:-1])
    last = (w[-1] - 1.0) ** 2 * (1.0 + math.sin(2.0 * math.pi * w[-1]) ** 2)
    return math.sin(math.pi * w[0]) ** 2 + middle + last


def rosenbrock(params: Params) -> float:
    x = list(params.values())
    return sum(100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2 for a, b in pairwise(x))


def branin(params: Params) -> float:
    x, y = params["x"], params["y"]
    return (
        (y - 5.1 / (4.0 * math.pi**2) * x * x + 5.0 / math.pi * x - 6.0) ** 2
        + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * math.cos(x)
        + 10.0
    )


MIXED = {
    "lr": (1e-5, 1e-1, "log"),
    "layers": (1, 8),
    "width": (16, 512, "log"),
    "dropout": (0.0, 0.8),
    "activation": ["relu", "gelu", "tanh"],
}


def training(params: Params) -> float:
    lr, width = math.log10(params["lr"]) + 3.0, math.log2(params["width"]) - 7.0
    kind = {"relu": 0.1, "gelu": 0.0, "tanh": 0.3}[params["activation"]]
    depth = 0.05 * (params["layers"] - 3) ** 2
    return lr * lr + 0.1 * width * width + depth + kind + (params["dropout"] - 0.2) ** 2 + 0.3 * lr * width


def conditional_space(feasible: Any = None) -> lazybo.Space:
    parameters = {
        "optimiser": ["sgd", "adam", "lbfgs"],
        "lr": (1e-4, 1.0, "log"),
        "momentum": (0.0, 0.99),
        "nesterov": [True, False],
        "beta": (0.8, 0.999),
        "history": (1, 20),
    }
    conditions = {
        "momentum": lazybo.Condition("optimiser", ("sgd",)),
        "nesterov": lazybo.Condition("optimiser", ("sgd",)),
        "beta": lazybo.Condition("optimiser", ("adam",)),
        "history": lazybo.Condition("optimiser", ("lbfgs",)),
    }
    return make_space(parameters, conditions, feasible)


def conditional(params: Params) -> float:
    base = (math.log10(params["lr"]) + 2.0) ** 2
    if params["optimiser"] == "sgd":
        return base + 4.0 * (params["momentum"] - 0.9) ** 2 + (0.0 if params["nesterov"] else 0.2)
    if params["optimiser"] == "adam":
        return base + 0.1 + 20.0 * (params["beta"] - 0.95) ** 2
    return base + 0.5 + 0.01 * (params["history"] - 10) ** 2


def steps_space() -> lazybo.Space:
    distributions = {
        "a": optuna.distributions.FloatDistribution(0.0, 1.0, step=0.05),
        "b": optuna.distributions.IntDistribution(1, 64, log=True),
        "c": optuna.distributions.CategoricalDistribution(["a", "b", None, "d"]),
        "d": optuna.distributions.FloatDistribution(1e-3, 10.0, log=True),
    }
    return make_space(distributions)


def stepped(params: Params) -> float:
    return (
        (params["a"] - 0.35) ** 2
        + 0.1 * (math.log2(params["b"]) - 3.0) ** 2
        + {"a": 0.2, "b": 0.1, None: 0.0, "d": 0.4}[params["c"]]
        + abs(math.log10(params["d"]))
    )


def bowl(params: Params) -> float:
    return sum((1.0 + 0.3 * j) * (x - 0.1 * (j % 7)) ** 2 for j, x in enumerate(params.values()))


PROBLEMS: dict[str, Problem] = {
    "branin": Problem(make_space({"x": (-5.0, 10.0), "y": (0.0, 15.0)}), branin),
    "levy 3-D": Problem(cube(3, 10.0), levy),
    "levy 5-D": Problem(cube(5, 10.0), levy),
    "rosenbrock 4-D": Problem(cube(4, 2.0), rosenbrock),
    "bowl 20-D": Problem(cube(20, 2.0), bowl),
    "mixed": Problem(make_space(MIXED), training),
    "mixed, noisy": Problem(make_space(MIXED), training, noise=0.3),
    "levy 3-D, noisy": Problem(cube(3, 10.0), levy, noise=3.0),
    "conditional": Problem(conditional_space(), conditional),
    "steps and choices": Problem(steps_space(), stepped),
}

# ------------------------------------------------------------------------------------------- runs of the optimiser


def exact(value: Any) -> Any:
    """Plain data for JSON with the bits of every float."""
    if isinstance(value, bool | None | str):
        return repr(value)
    if isinstance(value, float | np.floating):
        return float(value).hex()
    if isinstance(value, Mapping):
        return {str(key): exact(each) for key, each in sorted(value.items(), key=lambda item: str(item[0]))}
    if isinstance(value, list | tuple):
        return [exact(each) for each in value]
    return repr(value)


def expected(optimizer: Any) -> list[Any]:
    """What is recommended at the end, and what the model predicts there."""
    found = optimizer.recommend()
    said = optimizer.predict(found.params)
    return [exact(found.params), exact([found.value, found.low, found.high]), exact([said.value, said.low, said.high])]


def simple(
    problem: Problem, seed: int, n: int, tell: Callable[[Any, Any, int], None] | None = None, **options: Any
) -> Record:
    """One suggestion after the other."""
    optimizer = make_optimizer(problem.space, seed=seed, **options)
    record: Record = []
    for number in range(n):
        suggestion = optimizer.ask()
        record.append(exact(suggestion.params))
        if tell is None:
            optimizer.tell(suggestion, problem.measured(suggestion.params, seed, number))
        else:
            tell(optimizer, suggestion, number)
    return [*record, *expected(optimizer)] if isinstance(options.get("directions", "minimize"), str) else record


def constraints(n: int) -> Record:
    def tell(optimizer: Any, suggestion: Any, _number: int) -> None:
        params = suggestion.params
        limits = {"memory": params["width"] * params["layers"] / 300.0 - 1.0, "rate": params["lr"] - 1e-2}
        if params["layers"] == 2:
            del limits["rate"]
        optimizer.tell(suggestion, training(params), constraints=limits)

    return simple(PROBLEMS["mixed"], 3, n, tell)


def two_objectives(n: int) -> Record:
    def tell(optimizer: Any, suggestion: Any, _number: int) -> None:
        params = suggestion.params
        optimizer.tell(suggestion, [training(params), -float(params["width"] * params["layers"])])

    return simple(PROBLEMS["mixed"], 4, n, tell, directions=["minimize", "maximize"])


def two_objectives_with_constraint(n: int) -> Record:
    def tell(optimizer: Any, suggestion: Any, number: int) -> None:
        params = suggestion.params
        values = [conditional(params), params["lr"]] if number % 9 else None
        optimizer.tell(suggestion, values, constraints={"rate": 1e-3 - params["lr"]} if number % 9 else None)

    return simple(PROBLEMS["conditional"], 5, n, tell, directions=["minimize", "minimize"])


def failures(n: int) -> Record:
    def tell(optimizer: Any, suggestion: Any, _number: int) -> None:
        x = list(suggestion.params.values())
        optimizer.tell(suggestion, None if x[0] + x[1] > 4.0 else levy(suggestion.params))

    return simple(PROBLEMS["levy 3-D"], 6, n, tell)


def cost(n: int) -> Record:
    def tell(optimizer: Any, suggestion: Any, number: int) -> None:
        params = suggestion.params
        seconds = None if number % 11 == 5 else 0.01 * params["width"] * params["layers"]
        optimizer.tell(suggestion, training(params), seconds=seconds)
        if number > n // 2:
            set_budget(optimizer, 1.0 - number / n)

    return simple(PROBLEMS["mixed"], 7, n, tell, cost="seconds")


def earlier_tables() -> list[list[dict[str, Any]]]:
    rng = np.random.default_rng(5)
    tables = []
    for shift in (0.2, 1.5):
        rows = []
        for _ in range(25):
            params: dict[str, Any] = {
                "lr": float(10 ** rng.uniform(-5, -1)),
                "layers": int(rng.integers(1, 9)),
                "width": int(rng.integers(16, 513)),
                "dropout": float(rng.uniform(0.0, 0.8)),
                "activation": ("relu", "gelu", "tanh")[int(rng.integers(3))],
            }
            rows.append({**params, "value": 10.0 * training(params) + shift * params["dropout"]})
        tables.append(rows)
    return tables


def earlier(n: int) -> Record:
    return simple(PROBLEMS["mixed"], 8, n, earlier=earlier_tables())


def local_models(n: int) -> Record:
    return simple(PROBLEMS["levy 5-D"], 9, n, local_after=20)


def local_models_conditional(n: int) -> Record:
    return simple(PROBLEMS["conditional"], 10, n, local_after=20)


def known_constraint(n: int) -> Record:
    space = make_space({f"x{j}": (0.0, 1.0) for j in range(4)}, feasible=lambda p: sum(p.values()) <= 1.2)
    return simple(Problem(space, bowl), 11, n)


def known_constraint_conditional(n: int) -> Record:
    space = conditional_space(lambda p: p["lr"] * (10.0 if p["optimiser"] == "sgd" else 1.0) <= 0.5)
    return simple(Problem(space, conditional), 12, n)


def batch(n: int, way: str = "auto") -> Record:
    """Batches of three; one of them stays pending until the next batch was suggested."""
    optimizer = make_optimizer(PROBLEMS["levy 3-D"].space, seed=13, batch=way)
    record: Record = []
    waiting: list[Any] = []
    while len(record) < n:
        suggestions = optimizer.ask(3)
        record += [exact(each.params) for each in suggestions]
        for each in (*waiting, suggestions[2], suggestions[0]):
            optimizer.tell(each, levy(each.params))
        waiting = [suggestions[1]]
    return [*record, exact([each.params for each in optimizer.pending]), *expected(optimizer)]


def forecasts(n: int) -> Record:
    """Forecasts of pending evaluations, evaluations that were stopped, values with a variance, and revised ones."""
    optimizer = make_optimizer(PROBLEMS["levy 3-D"].space, seed=14, directions="maximize")
    record: Record = []
    for number in range(n):
        suggestion = optimizer.ask()
        record.append(exact(suggestion.params))
        value = -levy(suggestion.params)
        if number % 4 == 1:
            optimizer.forecast(suggestion, value - 1.0, 2.0, stopped=number % 8 == 1)
        if number % 8 != 1:
            optimizer.tell(suggestion, value, variance=0.1 if number % 5 == 0 else 0.0)
        if number % 20 == 19:
            optimizer.planner.revise({number: (value + 0.5, 0.2)})
    return [*record, *expected(optimizer)]


def by_hand(n: int) -> Record:
    """Everything else that changes an optimiser; half way it is saved and read again."""
    optimizer = make_optimizer(PROBLEMS["mixed"].space, seed=15, lag=5)
    record: Record = []
    for number in range(n):
        if number == n // 2:
            with tempfile.TemporaryDirectory() as folder:
                optimizer.save(Path(folder) / "optimizer.json")
                optimizer = lazybo.Optimizer.load(Path(folder) / "optimizer.json")
        if number % 7 == 3:
            params = optimizer.planner.complete({"layers": 4, "activation": "gelu"}, 1000 + number)
            record.append(exact(params))
            optimizer.tell(optimizer.announce(params), training(params))
        if number % 7 == 5:
            optimizer.observe({**params, "dropout": 0.5}, training({**params, "dropout": 0.5}))
        record.append(exact(optimizer.planner.propose(2000 + number)[0]))
        suggestion = optimizer.ask()
        record.append(exact(suggestion.params))
        if number % 10 == 9:
            optimizer.forget(suggestion)
            continue
        optimizer.tell(suggestion, training(suggestion.params))
        if number == n // 3:
            optimizer.correct(suggestion, training(suggestion.params) + 0.1)
        if number % 10 == 4:
            record += expected(optimizer)
    return [*record, *expected(optimizer)]


def proposals(n: int) -> Record:
    """Batches that are proposed and not recorded, by one model and by local ones."""
    record: Record = []
    variants: tuple[dict[str, Any], ...] = ({"batch": "fantasy"}, {"batch": "maxima"}, {"local_after": 15})
    for options in variants:
        optimizer = make_optimizer(PROBLEMS["levy 3-D"].space, seed=18, **options)
        for number in range(n // 2):
            if number % 6 == 5:
                record += [exact(each) for each in propose_batch(optimizer, number, 3)]
            suggestion = optimizer.ask()
            record.append(exact(suggestion.params))
            if number % 7 != 4:
                optimizer.tell(suggestion, levy(suggestion.params))
    return record


def confirmed(n: int) -> Record:
    """A noisy objective whose best configurations are repeated at the end."""
    problem = PROBLEMS["levy 3-D, noisy"]
    optimizer = make_optimizer(problem.space, seed=16)
    record: Record = []
    for number in range(n):
        suggestion = optimizer.ask() if number < n - 8 else optimizer.confirm()
        record.append(exact(suggestion.params if suggestion else None))
        if suggestion:
            optimizer.tell(suggestion, problem.measured(suggestion.params, 16, number))
    return [*record, *expected(optimizer)]


def with_options(**options: Any) -> Callable[[int], Record]:
    return lambda n: simple(PROBLEMS["levy 3-D"], 17, n, **options)


def optimizer_runs(*, quick: bool) -> Iterator[tuple[str, Callable[[], Record]]]:
    """The runs with `Optimizer`."""
    n = QUICK_EVALUATIONS if quick else EVALUATIONS
    for name, problem in PROBLEMS.items():
        for seed in SEEDS[:1] if quick else SEEDS:
            yield f"{name}, seed {seed}", partial(simple, problem, seed, n)
    special: dict[str, Callable[[int], Record]] = {
        "constraints": constraints,
        "two objectives": two_objectives,
        "two objectives, constraint, failures": two_objectives_with_constraint,
        "failures": failures,
        "cost": cost,
        "earlier studies": earlier,
        "local models": local_models,
        "local models, conditional": local_models_conditional,
        "known constraint": known_constraint,
        "known constraint, conditional": known_constraint_conditional,
        "batch": batch,
        "batch of maxima": partial(batch, way="maxima"),
        "forecasts": forecasts,
        "by hand": by_hand,
        "confirmed": confirmed,
        "proposals": proposals,
        "matern52, ucb": with_options(kernel="matern52", acquisition="ucb"),
        "ei, scaled, lag 4": with_options(acquisition="ei", value_transform="scaled", lag=4),
        "pi, centred, no lag": with_options(acquisition="pi", value_transform="centred", lag=None, noise=1e-4),
        "deterministic": with_options(deterministic=True),
        "n_startup": with_options(n_startup=3, noise=0.01),
    }
    for name, function in special.items():
        yield name, partial(function, n)


# ------------------------------------------------------------------------------------------------------ studies


def trials_of(study: optuna.Study) -> Record:
    """Parameters, values and reports of all trials."""
    return [
        [trial.state.name, exact(trial.params), exact(trial.values), exact(trial.intermediate_values)]
        for trial in study.get_trials(deepcopy=False)
    ]


def suggested(trial: optuna.Trial) -> dict[str, Any]:
    params: dict[str, Any] = {"lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True)}
    params["layers"] = trial.suggest_int("layers", 1, 8)
    params["width"] = trial.suggest_int("width", 16, 512, log=True)
    params["dropout"] = trial.suggest_float("dropout", 0.0, 0.8)
    params["activation"] = trial.suggest_categorical("activation", ["relu", "gelu", "tanh"])
    return params


def curve(params: Params, step: int) -> float:
    """The value of a training after a step: it decays to the final value."""
    return training(params) + 3.0 * math.exp(-step * (0.1 + 0.05 * params["layers"])) + 0.02 * math.sin(step)


def sampler_study(objective: Callable[[optuna.Trial], Any], n: int, **options: Any) -> Record:
    study_options = {key: options.pop(key) for key in ("direction", "directions", "pruner") if key in options}
    sampler = lazybo.LazySampler(warn_independent_sampling=False, **options)
    study = optuna.create_study(sampler=sampler, **study_options)
    study.optimize(objective, n_trials=n, catch=(ArithmeticError,))
    return trials_of(study)


def sampler_curves() -> Record:
    def objective(trial: optuna.Trial) -> float:
        params = suggested(trial)
        for step in range(1, 21):
            trial.report(curve(params, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return curve(params, 20)

    return sampler_study(objective, 40, seed=20, pruner=lazybo.LazyPruner(max_step=20))


def sampler_conditional() -> Record:
    def objective(trial: optuna.Trial) -> float:
        params: dict[str, Any] = {"optimiser": trial.suggest_categorical("optimiser", ["sgd", "adam", "lbfgs"])}
        params["lr"] = trial.suggest_float("lr", 1e-4, 1.0, log=True)
        if params["optimiser"] == "sgd":
            params["momentum"] = trial.suggest_float("momentum", 0.0, 0.99)
            params["nesterov"] = trial.suggest_categorical("nesterov", [True, False])
        elif params["optimiser"] == "adam":
            params["beta"] = trial.suggest_float("beta", 0.8, 0.999)
        else:
            params["history"] = trial.suggest_int("history", 1, 20)
        if trial.number % 9 == 4:
            raise ArithmeticError
        return conditional(params)

    return sampler_study(objective, 45, seed=21)


def sampler_objectives() -> Record:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        params = suggested(trial)
        trial.set_user_attr("size", params["width"] * params["layers"] / 500.0 - 1.0)
        return training(params), float(params["width"])

    def limits(trial: optuna.trial.FrozenTrial) -> tuple[float, ...]:
        return (trial.user_attrs["size"],)

    return sampler_study(
        objective, 40, seed=22, directions=["minimize", "maximize"], constraints_func=limits, n_startup_trials=8
    )


def optimize_curves() -> Record:
    def train(params: dict[str, Any]) -> Iterator[float]:
        for step in range(1, 13):
            yield curve(params, step)

    return trials_of(run_optimize(train, PROBLEMS["mixed"].space, n_trials=25, seed=23, max_steps=12))


def optimize_paused() -> Record:
    def train(params: dict[str, Any], checkpoint: Path) -> Iterator[float]:
        state = checkpoint / "steps"
        done = int(state.read_text()) if state.exists() else 0
        for step in range(done + 1, 13):
            state.write_text(str(step))
            yield curve(params, step)

    return trials_of(run_optimize(train, PROBLEMS["mixed"].space, n_trials=40, seed=33, max_steps=12))


def optimize_pruned() -> Record:
    def train(params: dict[str, Any], trial: Any) -> float:
        for step in range(1, 16):
            trial.report(curve(params, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return curve(params, 15)

    return trials_of(run_optimize(train, PROBLEMS["mixed"].space, n_trials=30, seed=24))


def optimize_constraints() -> Record:
    def train(params: dict[str, Any]) -> dict[str, float]:
        return {"value": training(params), "memory": float(params["width"] * params["layers"]), "price": params["lr"]}

    study = run_optimize(
        train, PROBLEMS["mixed"].space, n_trials=35, seed=25, constraints={"memory": 400.0}, model={"cost": "price"}
    )
    return trials_of(study)


def optimize_objectives() -> Record:
    def train(params: dict[str, Any]) -> dict[str, float]:
        return {"loss": training(params), "size": float(params["width"])}

    study = run_optimize(
        train, PROBLEMS["mixed"].space, n_trials=30, seed=26, directions={"loss": "minimize", "size": "maximize"}
    )
    return trials_of(study)


def optimize_failures() -> Record:
    def train(params: dict[str, Any]) -> float:
        if params["x0"] + params["x1"] > 4.0:
            raise ArithmeticError("diverged")
        return levy(params)

    study = run_optimize(
        train,
        PROBLEMS["levy 3-D"].space,
        n_trials=40,
        seed=27,
        initial=[{"x0": 1.0}, {"x0": -2.0, "x1": 0.5, "x2": 3.0}],
        limits={"max_failures": None, "confirm": 4, "patience": 100},
    )
    return trials_of(study)


def optimize_earlier() -> Record:
    study = run_optimize(
        training,
        PROBLEMS["mixed"].space,
        n_trials=20,
        seed=28,
        model={"earlier": earlier_tables(), "lag": 3, "n_startup_trials": 4},
        warm_start=earlier_tables()[0][:6],
    )
    return trials_of(study)


def optimize_rounds() -> Record:
    study = run_optimize(
        conditional,
        PROBLEMS["conditional"].space,
        n_trials=30,
        seed=29,
        n_parallel=3,
        executor="threads",
        synchronous=True,
    )
    return trials_of(study)


def optimize_local() -> Record:
    return trials_of(run_optimize(levy, PROBLEMS["levy 5-D"].space, n_trials=45, seed=30, model={"local_after": 20}))


def optimize_feasible() -> Record:
    space = conditional_space(lambda p: p["lr"] * (10.0 if p["optimiser"] == "sgd" else 1.0) <= 0.5)
    return trials_of(run_optimize(conditional, space, n_trials=30, seed=31))


RESUMED_AT = (13, 31, 45)


def resumed() -> Record:
    """A study on SQLite that is stopped twice, and continued by a new process each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        for upto in RESUMED_AT:
            command = [sys.executable, "-m", "benchmarks.identical", "part", str(path), str(upto)]
            subprocess.run(command, check=True)  # noqa: S603 - this module
        storage = f"sqlite:///{path}"
        (name,) = optuna.get_all_study_names(storage)
        return trials_of(optuna.load_study(study_name=name, storage=storage))


def part(path: str, upto: int) -> None:
    """The part of `resumed` that one process runs."""

    def train(params: dict[str, Any], trial: Any) -> float:
        for step in range(1, 9):
            trial.report(curve(params, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return curve(params, 8) if params["layers"] < 7 else math.nan

    run_optimize(train, PROBLEMS["mixed"].space, n_trials=upto, storage=path, seed=32)


STUDIES: dict[str, Callable[[], Record]] = {
    "sampler, learning curves": sampler_curves,
    "sampler, conditional, failures": sampler_conditional,
    "sampler, two objectives, constraint": sampler_objectives,
    "optimize, learning curves": optimize_curves,
    "optimize, paused trainings": optimize_paused,
    "optimize, pruned": optimize_pruned,
    "optimize, constraint, cost": optimize_constraints,
    "optimize, two objectives": optimize_objectives,
    "optimize, failures, initial, confirm": optimize_failures,
    "optimize, earlier, warm start": optimize_earlier,
    "optimize, rounds": optimize_rounds,
    "optimize, local models": optimize_local,
    "optimize, known constraint": optimize_feasible,
    "optimize, resumed on SQLite": resumed,
}

# ------------------------------------------------------------------------------------------------------ command


def compared(old: Record, new: Record) -> str:
    """The first difference, or an empty text."""
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            return f"differs from entry {i} of {len(old)}:\n    {json.dumps(a)[:400]}\n    {json.dumps(b)[:400]}"
    return "" if len(old) == len(new) else f"{len(old)} entries before, {len(new)} now"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "compare", "part"))
    parser.add_argument("file")
    parser.add_argument("upto", type=int, nargs="?")
    parser.add_argument("--quick", action="store_true", help="30 evaluations, and Optimizer only")
    parser.add_argument("--only", default="", help="only runs whose name contains this")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("lazybo").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if options.what == "part":
        part(options.file, options.upto)
        return
    runs = dict(optimizer_runs(quick=options.quick)) | ({} if options.quick else STUDIES)
    before = json.loads(Path(options.file).read_text()) if options.what == "compare" else {}
    found, different = {}, 0
    start = time.process_time()
    for name, run in runs.items():
        if options.only not in name:
            continue
        try:
            found[name] = run()
        except Exception as error:
            if options.what == "record":
                raise
            found[name] = [f"{type(error).__name__}: {error}"]
        if options.what == "compare":
            said = compared(before.get(name, []), found[name])
            different += bool(said)
            print(f"{name:40} {said or 'identical'}", flush=True)
    if options.what == "record":
        Path(options.file).write_text(json.dumps(found, indent=0))
    print(f"{len(found)} runs, {different} different, {time.process_time() - start:.0f} s of CPU time")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
