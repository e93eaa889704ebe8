"""Search spaces of all kinds, and problems in them: the one generator that tests of laws and `benchmarks.fuzz` use.

Every function takes a `random.Random`. hypothesis drives the same functions with random numbers of its own and makes
failing examples smaller: ``@given(spaces())``.
"""

import string
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Belief, Condition, Described, Graph, Mixture, Permutation, Space, Subset
from lazybo.space import Structured

Params = dict[str, Any]
Maker = Callable[[Random], Any]

# ------------------------------------------------------------------------ parameters


def _real(random: Random) -> BaseDistribution:
    low, width = random.choice([(-1e3, 1.0), (-1.0, 1e6), (0.0, 1e-6), (0.0, 1.0), (1e-3, 40.0), (2.0, 1.0)])
    return FloatDistribution(low, low + width * random.uniform(1.0, 2.0))


def _logarithmic(random: Random) -> BaseDistribution:
    low = 10.0 ** random.uniform(-9, 3)
    return FloatDistribution(low, low * 10.0 ** random.uniform(0.1, 9), log=True)


def _stepped(random: Random) -> BaseDistribution:
    low, step = random.randint(-5, 5), random.choice([0.1, 0.25, 1.0, 3.0])
    return FloatDistribution(low, round(low + step * random.randint(1, 50), 6), step=step)


def _whole(random: Random) -> BaseDistribution:
    low, step = random.randint(-100, 100), random.choice([1, 1, 2, 7])
    return IntDistribution(low, low + step * random.choice([1, 3, 20, 1000]), step=step)


def _whole_logarithmic(random: Random) -> BaseDistribution:
    low = random.choice([1, 1, 2, 16, 100])
    return IntDistribution(low, low + random.choice([1, 5, 99, 4000]), log=True)


def _choices(random: Random) -> list[Any]:
    several = [None, True, False, 2, 37, 0.5, "a", "b", "", "x y", "ü"]
    return random.sample(several, random.randint(2, 6))


def _many_choices(random: Random) -> list[Any]:
    return list(range(random.choice([65, 200])))


def _single(random: Random) -> BaseDistribution:
    return random.choice([FloatDistribution(2.0, 2.0), IntDistribution(3, 3), CategoricalDistribution(["only"])])


def _names(random: Random, least: int = 2) -> list[Any]:
    return random.sample([*string.ascii_lowercase[:6], "", " ", -3, 0, 99, "ü", "a[0]"], random.randint(least, 5))


def _permutation(random: Random) -> Structured:
    return Permutation(_names(random))


def _subset(random: Random) -> Structured:
    names = _names(random)
    at_least = random.randint(0, len(names) - 1)
    return Subset(names, at_least=at_least, at_most=random.randint(max(at_least, 1), len(names)))


def _mixture(random: Random) -> Structured:
    names = _names(random)
    return Mixture(names, total=random.choice([1.0, 100.0, 0.3]), at_most=random.randint(1, len(names)))


def _described(random: Random) -> Structured:
    count = random.choice([1, 2, 20])
    return Described({each: [random.uniform(-9, 9) for _ in range(count)] for each in _names(random)})


OPERATIONS = [["none", "skip", "a"], ["a", "b"], ["zero", "conv", "identity", "pool"]]


def _edges(random: Random) -> Structured:
    return Graph(nodes=random.randint(2, 4), operations=random.choice(OPERATIONS))


def _nodes(random: Random) -> Structured:
    operations = random.choice(OPERATIONS)
    return Graph(nodes=random.randint(3, 4), operations=operations, labels="nodes", at_most=random.randint(1, 3))


def _inputs(random: Random) -> Structured:
    return Graph(nodes=random.randint(3, 5), operations=random.choice(OPERATIONS), labels="nodes", inputs=1)


NUMBERS: tuple[Maker, ...] = (_real, _logarithmic, _stepped, _whole, _whole_logarithmic)
STRUCTURES: tuple[Maker, ...] = (_permutation, _subset, _mixture, _described, _edges, _nodes, _inputs)
PLAIN: tuple[Maker, ...] = (*NUMBERS, _choices, _single)
FINITE: tuple[Maker, ...] = (
    lambda random: [*"abc"[: random.randint(2, 3)]],
    lambda random: (1, random.randint(2, 4)),
    lambda random: IntDistribution(1, 3, log=True),
    lambda random: FloatDistribution(0.0, 1.0, step=0.5),
    lambda random: Permutation([*"xyz"]),
    lambda random: Subset([*"uv"]),
    lambda random: Described({"p": [0.0, 1.0], "q": [0.3, 1.0]}),
    _single,
)


def make_kind(random: Random) -> Structured:
    """Any parameter with structure, small enough to be listed."""
    found: Structured = random.choice(STRUCTURES)(random)
    return found


def make_distribution(random: Random) -> BaseDistribution:
    """Any parameter without structure, as a distribution."""
    found = random.choice(PLAIN)(random)
    return CategoricalDistribution(found) if isinstance(found, list) else found


# ---------------------------------------------------------------------------- spaces


def number_of(value: Any) -> float:
    """Any value as a number from -1 to 1 that changes smoothly where the value does."""
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        return value / (1.0 + abs(value))
    if isinstance(value, Mapping):
        whole = sum(value.values())
        return sum(share / whole * number_of(str(name)) for name, share in value.items())
    if isinstance(value, list):
        return sum(number_of(str(each)) * (i + 1) for i, each in enumerate(value)) / (1 + len(value)) ** 2
    if isinstance(value, set | frozenset):
        return number_of(sorted(map(str, value)))
    return zlib.crc32(repr(value).encode()) / 2**31 - 1.0


def score(params: Mapping[str, Any], which: str = "") -> float:
    """A number for a configuration as users see it; ``which`` names different functions."""
    return sum((number_of(value) - number_of(name + which)) ** 2 for name, value in params.items())


def make_space(
    random: Random, *, finite: bool | None = None, functions: bool | None = None, beliefs: bool = True
) -> Space:
    """Any space with up to five parameters in any order.

    It may have conditions, and with ``functions`` a known constraint, features and canonical forms; if that is None,
    they are drawn like everything else.
    """
    finite = random.random() < 0.2 if finite is None else finite
    makers = FINITE if finite else (*PLAIN, *STRUCTURES, _real, _choices, _many_choices)
    names = random.sample(["x", "lr", "n", "opt", "p[0]", "été", "a b"], random.randint(1, 5))
    parameters = {name: random.choice(makers)(random) for name in names}
    known: dict[str, Any] = {"conditions": _conditions(random, Space(parameters))}
    free = Space(parameters, **known)
    if beliefs and random.random() < 0.3:
        known["beliefs"] = _beliefs(random, free)
    if functions is None:
        functions = random.random() < 0.5
    if functions:
        known |= _functions(random, free)
    return Space(parameters, **known)


def _conditions(random: Random, space: Space) -> dict[str, Condition]:
    """Conditions on parents anywhere in the order, without circles."""
    found: dict[str, Condition] = {}
    order = random.sample([*space.parameters], len(space.parameters))
    for i, name in enumerate(order[1:], 1):
        if random.random() < 0.6:
            continue
        parent = random.choice(order[:i])
        d = space.distributions.get(parent)
        if isinstance(d, CategoricalDistribution):
            values = [*d.choices]
        elif isinstance(d, IntDistribution):
            values = [d.low, d.high, d.low + d.step * random.randint(0, (d.high - d.low) // d.step)]
        else:
            continue
        different = [each for i, each in enumerate(values) if each not in values[:i]]
        found[name] = Condition(parent, tuple(random.sample(different, random.randint(1, min(len(different), 3)))))
    return found


def _beliefs(random: Random, space: Space) -> dict[str, Belief]:
    found = {}
    for name, d in space.parameters.items():
        if isinstance(d, CategoricalDistribution):
            found[name] = Belief(weights={random.choice(d.choices): random.choice([0.2, 3.0, 100.0])})
        elif isinstance(d, FloatDistribution | IntDistribution):
            within = random.choice([1.5, 10.0]) if d.log else max(d.high - d.low, 1e-6) * random.choice([0.01, 0.5])
            found[name] = Belief(around=random.choice([d.low, d.high]), within=within)
    return {name: found[name] for name in found if random.random() < 0.7}


def _functions(random: Random, space: Space) -> dict[str, Any]:
    """What users' functions know: each of them is there or not."""
    known: dict[str, Any] = {}
    if random.random() < 0.4:
        count = random.randint(1, 3)
        known["features"] = lambda params: [score(params, f"feature {i}") for i in range(count)]
        if random.random() < 0.4:
            known["instead_of"] = random.sample([*space.parameters], random.randint(1, len(space.parameters)))
    canonical = _canonical(random, space) if random.random() < 0.4 else None
    if canonical is not None:
        known["canonical"] = canonical
    if random.random() < 0.5:
        stands_for = _identity if canonical is None else canonical
        examples = space.points.decode_all(space.points.sample(_numpy(random), 64))
        scores = sorted(score(stands_for(space.values(params)), "allowed") for params in examples)
        highest = scores[random.randint(len(scores) // 3, len(scores) - 1)]
        known["feasible"] = lambda params: score(stands_for(params), "allowed") <= highest
    return known


def _identity(params: Params) -> Params:
    return params


def _canonical(random: Random, space: Space) -> Callable[[Params], Params] | None:
    """A parameter that does not matter, and on which no other depends, gets the same value always."""
    parents = {each.parent for each in space.conditions.values()}
    name = random.choice([*space.parameters])
    if name in parents:
        return None
    points = space.points.sample(_numpy(random), 200)
    value = next((v[name] for v in map(space.values, space.points.decode_all(points)) if name in v), None)
    return lambda params: {each: value if each == name else given for each, given in params.items()}


def _numpy(random: Random) -> np.random.Generator:
    return np.random.default_rng(random.randint(0, 2**31))


# -------------------------------------------------------------------------- problems


@dataclass
class Problem:
    """Something to optimise: a space, options of an optimiser, and functions of a configuration."""

    space: Space
    options: Params = field(default_factory=dict)
    constraints: tuple[str, ...] = ()

    @property
    def functions(self) -> Params:
        """The functions that no file can hold."""
        named = {name: getattr(self.space, name) for name in ("feasible", "features", "canonical")}
        return {name: function for name, function in named.items() if function is not None}

    def value(self, params: Params) -> Any:
        """The value of each objective, or of the only one."""
        stands_for = self.space.canonical or _identity
        given = self.options.get("direction", "minimize")
        values = [
            score(stands_for(params), f"objective {i}") for i in range(1 if isinstance(given, str) else len(given))
        ]
        return values[0] if len(values) == 1 else values

    def measured(self, params: Params) -> Params:
        """What is told beside the values."""
        constraints = {name: score(params, name) - 1.0 for name in self.constraints}
        return ({"constraints": constraints} if constraints else {}) | (
            {"seconds": 1.0 + score(params, "cost")} if self.options.get("cost") else {}
        )


def make_problem(random: Random, **of_space: Any) -> Problem:
    """Any space with one to three objectives, with or without constraints and other options."""
    options: Params = {
        "seed": random.randint(0, 2**31),
        "n_startup": random.choice([2, 3, 5]),
        "direction": random.choice(["minimize", "minimize", "maximize", ["minimize", "maximize"], ["minimize"] * 3]),
        "batch": random.choice(["auto", "fantasy", "maxima"]),
    }
    if random.random() < 0.5:
        options["lag"] = random.choice([1, 4, None])
    if random.random() < 0.2:
        options["cost"] = "seconds"
    if random.random() < 0.2:
        options["local_after"] = 8
    if random.random() < 0.2:
        options["kernel"] = "matern52"
    if random.random() < 0.3:
        options["acquisition"] = random.choice(["ei", "ucb", "pi"])
    if random.random() < 0.2:
        options["value_transform"] = random.choice(["scaled", "centred"])
    if random.random() < 0.2:
        options["deterministic"] = True
    constraints = ("memory",) if random.random() < 0.25 else ()
    return Problem(make_space(random, **of_space), options, constraints)


# ------------------------------------------------------------------------ strategies

_RANDOMS = st.randoms(use_true_random=False)


def kinds() -> st.SearchStrategy[Structured]:
    """Any parameter with structure, small enough to be listed."""
    return _RANDOMS.map(make_kind)


def distributions() -> st.SearchStrategy[BaseDistribution]:
    """Any parameter without structure."""
    return _RANDOMS.map(make_distribution)


def spaces(**of_space: Any) -> st.SearchStrategy[Space]:
    """Any space; the arguments are those of `make_space`."""
    return _RANDOMS.map(lambda random: make_space(random, **of_space))


def problems(**of_space: Any) -> st.SearchStrategy[Problem]:
    """Any problem; the arguments are those of `make_space`."""
    return _RANDOMS.map(lambda random: make_problem(random, **of_space))


@st.composite
def stored_values(draw: st.DrawFn, kind: Structured) -> list[Any]:
    """Any values of the parameters that a kind is stored as."""
    return [
        draw(st.sampled_from(each.choices) if hasattr(each, "choices") else st.floats(each.low, each.high))  # type: ignore[attr-defined]
        for each in kind.stored("p").values()
    ]
