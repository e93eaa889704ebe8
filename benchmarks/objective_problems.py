"""Problems with several objectives, with constraints, or with both. Everything is minimised; feasible is at most 0.

The functions follow their published formulas: BraninCurrin (Belakaria et al. 2019), ZDT (Zitzler, Deb, Thiele 2000),
DTLZ2 (Deb et al. 2005), VehicleSafety (Liao et al. 2008), C2-DTLZ2 (Jain, Deb 2014), Gardner (Gardner et al. 2014) and
Gramacy (Gramacy et al. 2016). The reference points and the largest hypervolumes are those of BoTorch's test functions.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution

from benchmarks import lcbench, problems, trainings
from lazybo.search import non_dominated

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """What an evaluation gives."""

    values: tuple[float, ...]
    constraints: tuple[float, ...] = ()

    @property
    def feasible(self) -> bool:
        return all(value <= 0 for value in self.constraints)


@dataclass(frozen=True)
class Problem:
    """A problem. ``best`` is the largest hypervolume for ``reference``, or the least feasible value of one objective.

    ``scale`` is the regret that counts as 1.
    """

    name: str
    space: dict[str, BaseDistribution]
    evaluate: Callable[[Params], Measured]
    best: float
    scale: float
    reference: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"{self.name} has nothing to find: no configuration is better than an ordinary one")

    @property
    def objectives(self) -> int:
        return len(self.reference) or 1

    def regret(self, found: list[Measured]) -> float:
        """What is missing to the best, of all feasible evaluations; in units of ``scale``."""
        values = np.array([each.values for each in found if each.feasible]).reshape(-1, self.objectives)
        if self.reference:
            return max(self.best - hypervolume(values, np.array(self.reference)), 0.0) / self.scale
        return float((values.min() - self.best) / self.scale) if len(values) else 1.0


def hypervolume(values: np.ndarray, reference: np.ndarray) -> float:
    """The volume between the points (n, q) and the reference: slices along the last objective."""
    values = values[(values < reference).all(axis=1)]
    if not len(values):
        return 0.0
    if len(reference) == 1:
        return float(reference[0] - values.min())
    values = values[non_dominated(values)]
    values = values[np.argsort(values[:, -1])]
    heights = np.diff(values[:, -1], append=reference[-1])
    return sum(height * hypervolume(values[: i + 1, :-1], reference[:-1]) for i, height in enumerate(heights.tolist()))


def branin(a: float, b: float) -> float:
    return (
        (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10
    )


def currin(x: float, y: float) -> float:
    factor = 1 - math.exp(-1 / (2 * y)) if y > 0 else 1.0
    return factor * (2300 * x**3 + 1900 * x**2 + 2092 * x + 60) / (100 * x**3 + 500 * x**2 + 4 * x + 20)


def branin_currin(x: np.ndarray) -> tuple[float, float]:
    return branin(15 * x[0] - 5, 15 * x[1]), currin(x[0], x[1])


def in_branins_disk(x: np.ndarray) -> tuple[float]:
    return ((15 * x[0] - 5 - 2.5) ** 2 + (15 * x[1] - 7.5) ** 2 - 50,)


def zdt1(x: np.ndarray) -> tuple[float, float]:
    g = 1 + 9 * float(x[1:].mean())
    return float(x[0]), g * (1 - math.sqrt(x[0] / g))


def zdt3(x: np.ndarray) -> tuple[float, float]:
    g = 1 + 9 * float(x[1:].mean())
    return float(x[0]), g * (1 - math.sqrt(x[0] / g) - x[0] / g * math.sin(10 * math.pi * x[0]))


def dtlz2(objectives: int) -> Callable[[np.ndarray], tuple[float, ...]]:
    def function(x: np.ndarray) -> tuple[float, ...]:
        radius = 1 + float(((x[objectives - 1 :] - 0.5) ** 2).sum())
        angles = x[: objectives - 1] * math.pi / 2
        cosines = np.concatenate(([1.0], np.cumprod(np.cos(angles))))
        sines = np.concatenate((np.sin(angles), [1.0]))
        return tuple(float(value) for value in (radius * cosines * sines)[::-1])

    return function


def near_few_points(x: np.ndarray) -> tuple[float]:
    """The constraint of C2-DTLZ2: within 0.2 of an axis' point, or of the middle of the sphere."""
    f = np.array(dtlz2(2)(x))
    squares = f**2
    at_axes = min((f[i] - 1) ** 2 + sum(squares[j] - 0.04 for j in range(2) if j != i) for i in range(2))
    return (float(min(at_axes, ((f - 1 / math.sqrt(2)) ** 2 - 0.04).sum())),)


def vehicle_safety(u: np.ndarray) -> tuple[float, float, float]:
    a, b, c, d, e = 1 + 2 * u
    mass = 1640.2823 + 2.3573285 * a + 2.3220035 * b + 4.5688768 * c + 7.7213633 * d + 4.4559504 * e
    ain = 6.5856 + 1.15 * a - 1.0427 * b + 0.9738 * c + 0.8364 * d - 0.3695 * a * d + 0.0861 * a * e
    ain += 0.3628 * b * d - 0.1106 * a**2 - 0.3437 * c**2 + 0.1764 * d**2
    toe = -0.0551 + 0.0181 * a + 0.1024 * b + 0.0421 * c - 0.0073 * a * b + 0.024 * b * c - 0.0118 * b * d
    toe += -0.0204 * c * d - 0.008 * c * e - 0.0241 * b**2 + 0.0109 * d**2
    return float(mass), float(ain), float(toe)


def gardner(u: np.ndarray) -> tuple[tuple[float], tuple[float]]:
    x, y = 6 * u
    return (math.cos(2 * x) * math.cos(y) + math.sin(x),), (
        math.cos(x) * math.cos(y) - math.sin(x) * math.sin(y) + 0.5,
    )


def narrow_gardner(u: np.ndarray) -> tuple[tuple[float], tuple[float]]:
    """Small feasible islands: 2 % of the space."""
    x, y = 6 * u
    return (math.sin(x) + y,), (math.sin(x) * math.sin(y) + 0.95,)


def gramacy(u: np.ndarray) -> tuple[tuple[float], tuple[float, float]]:
    x, y = u
    return (x + y,), (1.5 - x - 2 * y - 0.5 * math.sin(2 * math.pi * (x * x - 2 * y)), x * x + y * y - 1.5)


Function = Callable[[np.ndarray], tuple[tuple[float, ...], tuple[float, ...]]]


def _continuous(name: str, dim: int, function: Function, best: float, scale: float, *reference: float) -> Problem:
    keys = [f"x{i}" for i in range(dim)]
    return Problem(
        name,
        {key: FloatDistribution(0.0, 1.0) for key in keys},
        lambda params: Measured(*function(np.array([params[key] for key in keys]))),
        best,
        scale,
        reference,
    )


def _free(function: Callable[[np.ndarray], tuple[float, ...]]) -> Function:
    return lambda x: (function(x), ())


def _bound(
    function: Callable[[np.ndarray], tuple[float, ...]], constraints: Callable[[np.ndarray], tuple[float, ...]]
) -> Function:
    return lambda x: (function(x), constraints(x))


DTLZ2_VOLUME = 1.1**3 - math.pi / 6
VEHICLE = (1864.72022, 11.81993945, 0.2903999384)
FUNCTIONS: dict[str, Callable[[], Problem]] = {
    "BraninCurrin": lambda: _continuous("BraninCurrin", 2, _free(branin_currin), 59.36011874867746, 59.36, 18.0, 6.0),
    "ZDT1": lambda: _continuous("ZDT1", 6, _free(zdt1), 120 + 2 / 3, 120.67, 11.0, 11.0),
    "ZDT3": lambda: _continuous("ZDT3", 6, _free(zdt3), 128.77811613069076, 128.78, 11.0, 11.0),
    "DTLZ2": lambda: _continuous("DTLZ2", 6, _free(dtlz2(3)), DTLZ2_VOLUME, DTLZ2_VOLUME, 1.1, 1.1, 1.1),
    "VehicleSafety": lambda: _continuous(
        "VehicleSafety", 5, _free(vehicle_safety), 246.81607081187002, 246.8, *VEHICLE
    ),
    "C2DTLZ2": lambda: _continuous(
        "C2DTLZ2", 6, _bound(dtlz2(2), near_few_points), 0.3996406303723544, 0.39964, 1.1, 1.1
    ),
    "ConstrainedBraninCurrin": lambda: _continuous(
        "ConstrainedBraninCurrin", 2, _bound(branin_currin, in_branins_disk), 608.4004237022673, 608.4, 80.0, 12.0
    ),
    "Gardner": lambda: _continuous("Gardner", 2, gardner, -1.8887513614506348, 1.8887),
    "GardnerNarrow": lambda: _continuous("GardnerNarrow", 2, narrow_gardner, 0.2532358975871893, 5.0),
    "Gramacy": lambda: _continuous("Gramacy", 2, gramacy, 0.5997880521843, 0.6),
}
TABLES = tuple(name for name in problems.table_names() if not name.startswith("nasbench"))
# Bounds of a table's time: the quantile of all its configurations.
TIME_QUANTILE = 0.2
# That of LCBench's number of weights. A larger share: 30 % of the networks have one layer and the fewest weights.
WEIGHTS_QUANTILE = 0.4
# Trainings with a bound on the training time that a quarter of all configurations keeps. On these data sets the bound
# matters: without it, the error can be clearly lower.
TIMED = (
    *("lcbench-167161", "lcbench-167168", "lcbench-168330", "lcbench-189908"),
    *("xgboost-1049", "xgboost-1464", "xgboost-4134", "xgboost-44"),
)
SECONDS_QUANTILE = 0.25
# The reference point of a table is the median of its rows, or their worst values if the front has less than this share
# of the box from the median to the best values: where one objective rises as the other falls, none beats both medians.
LEAST_SHARE = 0.01
# The quantile and the unit of regret are of so many random configurations; the optimum is searched so many times.
DRAWS, SEARCHES = 20_000, 4
NAMES = (
    *FUNCTIONS,
    *(f"{name}+time" for name in TABLES),  # two objectives: the error, and the logarithm of the training time
    *(f"{name}<time" for name in TABLES),  # one objective, and a constraint: the training time
    *(
        f"lcbench-{name}+weights" for name in lcbench.DATA
    ),  # two objectives: the error, and the logarithm of the weights
    *(f"lcbench-{name}<weights" for name in lcbench.DATA),  # one objective, and a constraint: the logarithm
    *(f"{name}<seconds" for name in TIMED),  # one objective, and a constraint: the training time
)
# The others have several objectives.
ONE_OBJECTIVE = {"Gardner", "GardnerNarrow", "Gramacy", *(name for name in NAMES if "<" in name)}


@cache
def load(name: str) -> Problem:
    """A problem by its name."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]()
    if name.endswith("<seconds"):
        return seconds_bound(name.removesuffix("<seconds"))
    bench, _, data = re.split(r"[+<]", name)[0].partition("-")
    if bench == "lcbench":
        return weights_front(data) if "+" in name else weights_bound(data)
    return table_front(bench, data) if "+" in name else table_bound(bench, data)


def table_front(bench: str, data: str) -> Problem:
    """Error and time of a table. Its front is known."""
    space, rows = problems._table(bench, data)
    every = np.array([(row.mean, math.log(row.seconds)) for row in rows.values()])

    def evaluate(params: Params) -> Measured:
        row = rows[tuple(params.values())]
        return Measured((row.mean, math.log(row.seconds)))

    return _of_front(f"{bench}-{data}+time", space, evaluate, every, every)


def _of_front(
    name: str,
    space: dict[str, BaseDistribution],
    evaluate: Callable[[Params], Measured],
    rows: np.ndarray,
    front: np.ndarray,
) -> Problem:
    """The problem to find this front, with a reference point from all rows."""
    reference = np.median(rows, axis=0)
    if hypervolume(front, reference) <= LEAST_SHARE * np.prod(reference - front.min(axis=0)):
        reference = rows.max(axis=0)
    best = hypervolume(front, reference)
    return Problem(name, space, evaluate, best, best, tuple(reference.tolist()))


def table_bound(bench: str, data: str) -> Problem:
    """The error of a table, with a bound on the time that a fifth of all configurations keeps."""
    space, rows = problems._table(bench, data)
    bound = float(np.quantile([row.seconds for row in rows.values()], TIME_QUANTILE))
    kept = [row.mean for row in rows.values() if row.seconds <= bound]

    def evaluate(params: Params) -> Measured:
        row = rows[tuple(params.values())]
        return Measured((row.mean,), (row.seconds - bound,))

    return Problem(f"{bench}-{data}<time", space, evaluate, min(kept), float(np.median(kept)) - min(kept))


def weights_front(data: str) -> Problem:
    """Error and weights of LCBench's networks."""
    finals = lcbench.finals(data)
    space: dict[str, BaseDistribution] = dict(finals.space)
    return _of_front(f"lcbench-{data}+weights", space, lambda p: Measured(finals(p)), finals.rows, finals.front())


def weights_bound(data: str) -> Problem:
    """The error of LCBench's networks, with a bound on the logarithm of the number of weights."""
    finals = lcbench.finals(data)
    bound = float(np.quantile(finals.rows[:, 1], WEIGHTS_QUANTILE))
    kept, front = finals.rows[finals.rows[:, 1] <= bound, 0], finals.front()
    best = float(front[front[:, 1] <= bound, 0].min())

    def evaluate(params: Params) -> Measured:
        error, weights = finals(params)
        return Measured((error,), (weights - bound,))

    space: dict[str, BaseDistribution] = dict(finals.space)
    return Problem(f"lcbench-{data}<weights", space, evaluate, best, float(np.median(kept)) - best)


def seconds_bound(name: str) -> Problem:
    """The error of a training in per cent, with a bound on its time. Both come from a surrogate."""
    training, (source, _, data) = trainings.load(name), name.partition("-")

    def measure(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if source == "lcbench":
            seconds, accuracy, *_ = trainings.lcbench_outputs(data, rows).T
            return 100.0 - accuracy, seconds
        outputs = trainings.xgboost_outputs(data, rows)
        return 100.0 * (1.0 - outputs[:, 0]), outputs[:, 6]

    def limits() -> tuple[float, float, float]:
        """The bound, the lowest error within it, and the median of random configurations within it."""
        rows = training.values(np.random.default_rng(2).random((DRAWS, len(training.space))))
        errors, seconds = measure(rows)
        bound = float(np.quantile(seconds, SECONDS_QUANTILE))

        def penalised(rows: np.ndarray) -> np.ndarray:
            errors, seconds = measure(rows)
            return np.where(seconds <= bound, errors, 100.0 + seconds)

        allowed = trainings.Training(training.space, training.conditions, penalised)
        best = min(allowed.optimum(seed) for seed in range(SEARCHES))
        return bound, best, float(np.median(errors[seconds <= bound]))

    bound, best, median = trainings.kept(f"seconds-{name}", limits)

    def evaluate(params: Params) -> Measured:
        errors, seconds = measure(np.array([trainings.encoded(training.space, params)]))
        return Measured((float(errors[0]),), (float(seconds[0]) - bound,))

    return Problem(f"{name}<seconds", training.space, evaluate, best, median - best)
