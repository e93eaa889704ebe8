"""Problems over structured values: architectures, permutations, subsets and mixtures, each with its optimum.

A problem gives its space twice: `structured`, for `lazybo` with its structured kinds, and `flat`, as unrelated Optuna
parameters for everything else. Both decode to a solution, a plain tuple. Flat parameters follow Optuna's FAQ: a
permutation is a Lehmer code, shares are normalised exponential keys.

| family | solution |
|---|---|
| `cells` | NAS-Bench-201: the operations of the six edges of a cell |
| `gnn` | NAS-Bench-Graph: the inputs of four nodes, and their operations |
| `permutations` | the items in their order |
| `subsets` | the chosen columns, sorted |
| `mixtures` | the share of each ingredient |
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks.paper import architectures

Params = Mapping[str, Any]
Solution = tuple[Any, ...]

# How many random solutions are drawn for the unit of regret, their median regret.
SCALE_DRAWS = 1000
# The continuous problems count as solved at this regret, one hundredth of a random solution's.
CLOSE = 0.01
# Exchanges that a local search on a mixture tries before it gives up.
EXCHANGES = 60


class Shape(Protocol):
    """The solutions of a problem: drawing them, editing them, and the two ways of writing them as parameters."""

    @property
    def flat(self) -> dict[str, BaseDistribution]: ...
    def from_flat(self, params: Params) -> Solution: ...
    @property
    def structured(self) -> dict[str, Any]: ...
    def from_structured(self, params: Params) -> Solution: ...
    def random(self, rng: np.random.Generator) -> Solution: ...
    def neighbours(self, solution: Solution, rng: np.random.Generator) -> Iterator[Solution]:
        """The solutions that are one edit away, in random order."""


def identity(solution: Solution) -> Solution:
    """The key of a solution that no other solution is equivalent to."""
    return solution


@dataclass(frozen=True)
class Problem:
    """A function of solutions to minimise. Solutions with the same ``key`` are equivalent."""

    name: str
    family: str
    shape: Shape
    value: Callable[[Solution], float]
    optimum: float
    scale: float
    tolerance: float = 1e-9
    key: Callable[[Solution], Any] = identity

    def regret(self, value: float) -> float:
        """Distance to the optimum; 1 is the median of random solutions."""
        return (value - self.optimum) / self.scale

    def solved(self, value: float) -> bool:
        return self.regret(value) <= self.tolerance


def scale_of(shape: Shape, value: Callable[[Solution], float], optimum: float) -> float:
    """The unit of regret: the median regret of random solutions."""
    rng = np.random.default_rng(0)
    return float(np.median([value(shape.random(rng)) for _ in range(SCALE_DRAWS)])) - optimum


def _shuffled(solutions: list[Solution], rng: np.random.Generator) -> Iterator[Solution]:
    return (solutions[i] for i in rng.permutation(len(solutions)))


# ------------------------------------------------------------------- architectures


@dataclass(frozen=True)
class Codes:
    """The codes of `benchmarks.paper.architectures`."""

    networks: architectures.Networks

    @property
    def flat(self) -> dict[str, BaseDistribution]:
        return self.networks.space("choices")

    def from_flat(self, params: Params) -> Solution:
        return self.networks.code(params)

    @property
    def structured(self) -> dict[str, Any]:
        return self.networks.space("graph")

    def from_structured(self, params: Params) -> Solution:
        return self.networks.code(params)

    def random(self, rng: np.random.Generator) -> Solution:
        return tuple(each[rng.integers(len(each))] for each in self.networks.choices.values())

    def neighbours(self, solution: Solution, rng: np.random.Generator) -> Iterator[Solution]:
        """One choice is another one."""
        columns = enumerate(self.networks.choices.values())
        edits = [(j, other) for j, each in columns for other in each if other != solution[j]]
        return _shuffled([(*solution[:j], other, *solution[j + 1 :]) for j, other in edits], rng)


@cache
def architecture(name: str) -> Problem:
    """Trained networks of one data set; the value is the validation accuracy in percent, negated."""
    networks = architectures.load(name)
    shape, optimum = Codes(networks), -networks.best

    def value(solution: Solution) -> float:
        return -networks.look_up(solution)[0]

    scale = scale_of(shape, value, optimum)
    return Problem(name, name.partition("-")[0], shape, value, optimum, scale, key=networks.key)


# -------------------------------------------------------------------- permutations


@dataclass(frozen=True)
class Orders:
    """Permutations of n items."""

    n: int

    @property
    def flat(self) -> dict[str, BaseDistribution]:
        return {f"x{i}": IntDistribution(0, self.n - 1 - i) for i in range(self.n - 1)}

    def from_flat(self, params: Params) -> Solution:
        left = list(range(self.n))
        return (*(left.pop(params[f"x{i}"]) for i in range(self.n - 1)), *left)

    @property
    def structured(self) -> dict[str, Any]:
        import lazybo

        return {"order": lazybo.Permutation(list(range(self.n)))}

    def from_structured(self, params: Params) -> Solution:
        return tuple(params["order"])

    def random(self, rng: np.random.Generator) -> Solution:
        return tuple(map(int, rng.permutation(self.n)))

    def neighbours(self, solution: Solution, rng: np.random.Generator) -> Iterator[Solution]:
        return _shuffled([*_swaps(solution), *_insertions(solution)], rng)


def _swaps(order: Solution) -> Iterator[Solution]:
    for i, j in combinations(range(len(order)), 2):
        yield (*order[:i], order[j], *order[i + 1 : j], order[i], *order[j + 1 :])


def _insertions(order: Solution) -> Iterator[Solution]:
    """An item moves by two places or more: by one is a swap."""
    for i, item in enumerate(order):
        rest = order[:i] + order[i + 1 :]
        for j in range(len(order)):
            if abs(i - j) > 1:
                yield (*rest[:j], item, *rest[j:])


CITIES = 15
# The length of the shortest tour and the least cost of the assignment; the tests compute them in other ways.
TOUR, ASSIGNMENT = 2.8772730776029207, 11156.0
# chr12c of QAPLIB, which scipy.optimize.quadratic_assignment is tested with: weights of a tree, and distances.
TREE = ((0, 1, 90), (0, 2, 10), (1, 3, 23), (2, 4, 43), (3, 5, 88), (4, 6, 26), (5, 7, 16), (6, 8, 1), (7, 9, 96))
TREE_END = ((8, 10, 29), (9, 11, 37))
DISTANCES = (
    *(36, 54, 26, 59, 72, 9, 34, 79, 17, 46, 95),
    *(73, 35, 90, 58, 30, 78, 35, 44, 79, 36),
    *(21, 10, 97, 58, 66, 69, 61, 54, 63),
    *(93, 12, 46, 40, 37, 48, 68, 85),
    *(64, 5, 29, 76, 16, 5, 76),
    *(96, 55, 38, 54, 0, 34),
    *(83, 35, 11, 56, 37),
    *(44, 12, 15, 80),
    *(64, 39, 33),
    *(70, 86),
    *(18,),
)


def cities() -> np.ndarray:
    """The distances between cities at random places of a square, (cities, cities)."""
    places = np.random.default_rng(15).uniform(size=(CITIES, 2))
    return np.linalg.norm(places[:, None] - places[None], axis=2)


def flows_and_distances() -> tuple[np.ndarray, np.ndarray]:
    """The two symmetric matrices of chr12c, (12, 12)."""
    flows, distances = np.zeros((12, 12)), np.zeros((12, 12))
    for i, j, weight in (*TREE, *TREE_END):
        flows[i, j] = flows[j, i] = weight
    distances[np.triu_indices(12, 1)] = DISTANCES
    return flows, distances + distances.T


@cache
def salesman() -> Problem:
    """The length of a closed tour through all cities."""
    between = cities()

    def length(tour: Solution) -> float:
        return float(between[list(tour), [*tour[1:], tour[0]]].sum())

    shape = Orders(CITIES)
    return Problem("permutations-salesman", "permutations", shape, length, TOUR, scale_of(shape, length, TOUR))


@cache
def assignment() -> Problem:
    """The cost of placing facility i at location p(i)."""
    flows, distances = flows_and_distances()

    def cost(places: Solution) -> float:
        return float((flows * distances[np.ix_(places, places)]).sum())

    shape = Orders(len(flows))
    return Problem(
        "permutations-assignment", "permutations", shape, cost, ASSIGNMENT, scale_of(shape, cost, ASSIGNMENT)
    )


# ------------------------------------------------------------------------- subsets


@dataclass(frozen=True)
class Subsets:
    """From 1 to ``at_most`` of n columns. Flat: a choice for each column; with a limit, a size and a key for each."""

    n: int
    at_most: int

    @property
    def flat(self) -> dict[str, BaseDistribution]:
        if self.at_most == self.n:
            return {f"x{i}": CategoricalDistribution((False, True)) for i in range(self.n)}
        return {"size": IntDistribution(1, self.at_most)} | {f"x{i}": FloatDistribution(0, 1) for i in range(self.n)}

    def from_flat(self, params: Params) -> Solution:
        keys = np.array([params[f"x{i}"] for i in range(self.n)], dtype=float)
        size = params.get("size", max(int(keys.sum()), 1))
        return tuple(sorted(map(int, np.argsort(-keys, kind="stable")[:size])))

    @property
    def structured(self) -> dict[str, Any]:
        import lazybo

        return {"columns": lazybo.Subset(list(range(self.n)), at_least=1, at_most=self.at_most)}

    def from_structured(self, params: Params) -> Solution:
        return tuple(sorted(params["columns"]))

    def random(self, rng: np.random.Generator) -> Solution:
        size = int(rng.integers(1, self.at_most + 1))
        return tuple(sorted(map(int, rng.choice(self.n, size, replace=False))))

    def neighbours(self, solution: Solution, rng: np.random.Generator) -> Iterator[Solution]:
        """One column more, less, or another one instead."""
        chosen, others = set(solution), [j for j in range(self.n) if j not in solution]
        found = [chosen - {i} for i in solution if len(chosen) > 1]
        found += [chosen | {j} for j in others if len(chosen) < self.at_most]
        found += [chosen - {i} | {j} for i in solution for j in others]
        return _shuffled([tuple(sorted(each)) for each in found], rng)


# The columns with the least cross-validated error that many local searches found.
BEST = {
    "cancer": (0, 5, 6, 7, 10, 14, 16, 17, 20, 21, 23, 26, 28, 29),
    "diabetes": (1, 2, 3, 6, 8, 10, 11, 30, 47, 52, 53, 64),
}
FOLDS, RIDGE = 5, 1e-3


@cache
def columns(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised columns, (n, columns), and targets, (n,), with mean 0 and standard deviation 1."""
    from sklearn.datasets import load_breast_cancer, load_diabetes
    from sklearn.preprocessing import PolynomialFeatures

    if data == "cancer":
        x, y = load_breast_cancer(return_X_y=True)
    else:
        x, y = load_diabetes(return_X_y=True)
        x = PolynomialFeatures(2, include_bias=False).fit_transform(x)
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


@cache
def feature_selection(data: str, at_most: int) -> Problem:
    """The mean squared error of a ridge regression on some columns, cross-validated.

    The Gram matrices of the folds are computed once, so that an evaluation only solves small systems.
    """
    x, y = columns(data)
    x = np.column_stack([x, np.ones(len(x))])
    held_out = np.random.default_rng(0).permutation(len(x)) % FOLDS
    folds = [(x[held_out != k], y[held_out != k], x[held_out == k], y[held_out == k]) for k in range(FOLDS)]
    grams = [(a.T @ a + RIDGE * len(a) * np.diag([1.0] * (x.shape[1] - 1) + [0.0]), a.T @ b) for a, b, _, _ in folds]

    def error(chosen: Solution) -> float:
        rows = [*chosen, x.shape[1] - 1]
        total = 0.0
        for (gram, moment), (_, _, test, target) in zip(grams, folds, strict=True):
            weights = np.linalg.solve(gram[np.ix_(rows, rows)], moment[rows])
            total += float(((test[:, rows] @ weights - target) ** 2).sum())
        return total / len(y)

    shape = Subsets(x.shape[1] - 1, at_most)
    best = error(BEST[data])
    return Problem(f"subsets-{data}", "subsets", shape, error, best, scale_of(shape, error, best))


# ------------------------------------------------------------------------ mixtures


@dataclass(frozen=True)
class Shares:
    """Shares of n ingredients that sum to one, at most ``at_most`` of them positive."""

    n: int
    at_most: int

    @property
    def flat(self) -> dict[str, BaseDistribution]:
        return {f"x{i}": FloatDistribution(0, 1) for i in range(self.n)}

    def from_flat(self, params: Params) -> Solution:
        keys = -np.log(np.clip([params[f"x{i}"] for i in range(self.n)], 1e-12, 1 - 1e-12))
        keys[np.argsort(-keys)[self.at_most :]] = 0.0
        return tuple(map(float, keys / keys.sum()))

    @property
    def structured(self) -> dict[str, Any]:
        import lazybo

        return {"recipe": lazybo.Mixture([f"x{i}" for i in range(self.n)], total=1.0, at_most=self.at_most)}

    def from_structured(self, params: Params) -> Solution:
        recipe = params["recipe"]
        return tuple(float(recipe.get(f"x{i}", 0.0)) for i in range(self.n))

    def random(self, rng: np.random.Generator) -> Solution:
        shares = np.zeros(self.n)
        shares[rng.choice(self.n, self.at_most, replace=False)] = rng.dirichlet(np.ones(self.at_most))
        return tuple(map(float, shares))

    def neighbours(self, solution: Solution, rng: np.random.Generator) -> Iterator[Solution]:
        """Random exchanges: a part of one share, or all of it, moves to another ingredient."""
        for _ in range(EXCHANGES):
            shares = np.array(solution)
            source, target = rng.choice(np.flatnonzero(shares)), rng.integers(self.n)
            part = shares[source] * (1.0 if rng.random() < 0.2 else 10 ** rng.uniform(-3, 0))
            shares[source] -= part
            shares[target] += part
            if np.count_nonzero(shares) <= self.at_most:
                yield tuple(map(float, shares))


def peaks(shares: np.ndarray) -> float:
    """Two peaks: a broad one at equal shares, and a narrow one, twice as high, where two ingredients dominate."""
    broad = np.exp(-8.0 * ((shares - 0.2) ** 2).sum())
    narrow = 2.0 * np.exp(-40.0 * ((shares - np.array([0.6, 0.0, 0.3, 0.0, 0.1])) ** 2).sum())
    return -float(broad + narrow)


def ackley(shares: np.ndarray) -> float:
    """Ackley's function around a recipe that needs five of eight ingredients: many local optima."""
    z = 8.0 * (shares - np.array([0.3, 0.0, 0.25, 0.2, 0.0, 0.15, 0.1, 0.0]))
    root = np.sqrt((z**2).mean())
    return float(20.0 - 20.0 * np.exp(-0.2 * root) + np.e - np.exp(np.cos(2 * np.pi * z).mean()))


@cache
def blending() -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of a quadratic blending model of ten ingredients: alone, (10,), and in pairs, (10, 10)."""
    rng = np.random.default_rng(10)
    return rng.uniform(0.0, 1.0, 10), np.triu(rng.normal(0.0, 2.0, (10, 10)), 1)


def scheffe(shares: np.ndarray) -> float:
    """Scheffé's quadratic model of blending: each pair of ingredients helps or hurts."""
    alone, pairs = blending()
    return float(alone @ shares + shares @ pairs @ shares)


# The function, ingredients, how many of them at most, and the optimum; the tests find it again.
MIXTURES: dict[str, tuple[Callable[[np.ndarray], float], int, int, float]] = {
    "peaks": (peaks, 5, 5, -2.1283140296712624),
    "ackley": (ackley, 8, 8, 0.0),
    "scheffe": (scheffe, 10, 3, -0.7862660300980107),
}


@cache
def mixture(name: str) -> Problem:
    """A function on the simplex."""
    function, n, at_most, optimum = MIXTURES[name]
    shape = Shares(n, at_most)

    def value(solution: Solution) -> float:
        return function(np.array(solution))

    scale = scale_of(shape, value, optimum)
    return Problem(f"mixtures-{name}", "mixtures", shape, value, optimum, scale, tolerance=CLOSE)


# ----------------------------------------------------------------------------- all

PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{name: partial(architecture, name) for name in architectures.NAMES},
    "permutations-salesman": salesman,
    "permutations-assignment": assignment,
    "subsets-cancer": partial(feature_selection, "cancer", 30),
    "subsets-diabetes": partial(feature_selection, "diabetes", 12),
    **{f"mixtures-{name}": partial(mixture, name) for name in MIXTURES},
}
