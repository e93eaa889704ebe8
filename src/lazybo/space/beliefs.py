"""Beliefs about where the optimum is: what a user expects of single parameters, as densities of points.

======  ==============================================================================  ========
symbol  meaning                                                                         shape
======  ==============================================================================  ========
x       a coordinate of a point, in [0, 1] or half a step outside                       (n,)
c, s    the coordinate of ``around``, and a standard deviation: half of ``within``      scalar
t       the share of a belief that is spread evenly, since it may be wrong              scalar
p(x)    (1 - t) N(x; c, s) / (mean of N there) + t, relative to an even density         (n,)
======  ==============================================================================  ========

Beliefs about several parameters are independent: their densities are multiplied. A parameter without a belief, or one
that is not active, has the density 1.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo.core import Array, checks, codec
from lazybo.space.distributions import contains, in_words

if TYPE_CHECKING:
    from lazybo.space.axis import Axis, NumberAxis
    from lazybo.space.points import Points

# β: the logarithm of the density counts β/n times after n results, as in πBO (Hvarfner et al. 2022).
WEIGHT = 3.0
# t: how much of each belief is spread evenly over the range.
DOUBT = 0.1
# Quantiles are read off this many points.
GRID = 1025
SQRT_2, LOG_SQRT_2PI = math.sqrt(2.0), 0.5 * math.log(2.0 * math.pi)


HINTS = {
    **dict.fromkeys(("mean", "mu", "center", "value", "guess", "mode"), "use around="),
    **dict.fromkeys(("std", "sigma", "scale", "width", "factor", "sd"), "use within="),
    **dict.fromkeys(("low", "high"), "use around= for the middle and within= for the distance to the ends"),
    **dict.fromkeys(("probabilities", "probs", "p", "choices"), "use weights="),
}


@checks.hinting_class(HINTS)
@dataclass(frozen=True)
class Belief:
    """Where you expect the best value of a parameter. A belief fades as values arrive, so it may be wrong.

    Of a number: ``around`` is your guess, and ``within`` how far the best value may be from it: a factor if the range
    is logarithmic (``around=1e-3, within=3``: 3.3e-4 to 3e-3), otherwise a distance (``around=0.9, within=0.05``: 0.85
    to 0.95). Of choices: ``weights``, by how much you prefer them: ``weights={"adam": 3}`` takes "adam" to be three
    times as likely to be best as each choice that is not named.
    """

    around: float | None = None
    within: float | None = None
    weights: Mapping[Any, float] | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            if self.around is None or self.within is None:
                raise ValueError(
                    "a belief about a number needs around= and within=, such as lazybo.Belief(around=1e-3, within=3); "
                    "one about choices needs weights="
                )
            object.__setattr__(self, "around", checks.finite_number("around", self.around))
            object.__setattr__(self, "within", checks.positive("within", self.within))
            return
        if self.around is not None or self.within is not None:
            raise ValueError("a belief has either around= and within=, for a number, or weights=, for choices")
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise ValueError(f'weights must be a dict such as {{"adam": 3}}, not {checks.shortened(self.weights)}')
        checked = {
            each: checks.positive(f"the weight of {checks.shortened(each)}", w) for each, w in self.weights.items()
        }
        object.__setattr__(self, "weights", checked)

    def __hash__(self) -> int:
        return hash((self.around, self.within, tuple((self.weights or {}).items())))

    def to_plain(self) -> dict[str, Any]:
        """Plain data for JSON. Choices that JSON does not have become strings."""
        if self.weights is None:
            return {"around": self.around, "within": self.within}
        return {"weights": [[codec.to_plain(each, str), weight] for each, weight in self.weights.items()]}

    @classmethod
    def of(cls, plain: Any, parameter: Any = None) -> "Belief":
        """The inverse of `to_plain`; a belief itself is kept.

        With a ``parameter``, keys of weights may be the texts of its choices: a TOML file has no other keys.
        """
        if isinstance(plain, Belief):
            return plain
        if not isinstance(plain, Mapping) or not plain:
            example = "lazybo.Belief(around=1e-3, within=3)"
            in_file = "{around = 1e-3, within = 3}"
            raise ValueError(f"a belief must be such as {example}, in a file {in_file}, not {checks.shortened(plain)}")
        unknown = plain.keys() - {"around", "within", "weights"}
        if unknown:
            raise ValueError(
                f"a belief has around and within, or weights, but no {checks.shortened(min(map(str, unknown)))}"
            )
        weights = plain.get("weights")
        if isinstance(weights, Mapping) and isinstance(parameter, CategoricalDistribution):
            choices = {str(choice): choice for choice in parameter.choices}
            weights = {choices.get(key, key): weight for key, weight in weights.items()}
        weights = _of_pairs(weights) if isinstance(weights, list) else weights
        return cls(plain.get("around"), plain.get("within"), weights)

    @classmethod
    def parsed(cls, text: str, parameter: Any) -> "Belief":
        """A belief as text: ``1e-3x3`` (a factor), ``0.9+-0.05`` (a distance) or ``adam:3,sgd:2`` (weights)."""
        if isinstance(parameter, CategoricalDistribution):
            return cls(weights=_weights(text, parameter.choices))
        is_log = getattr(parameter, "log", False)
        around, is_given, within = text.lower().partition("x" if is_log else "+-")
        form = "AROUNDxFACTOR, such as 1e-3x3" if is_log else "AROUND+-DISTANCE, such as 0.9+-0.05"
        form += f", since the range is {'logarithmic' if is_log else 'linear'}"
        if not is_given:
            raise ValueError(f"write {form}")
        return cls(_as_number(around, form), _as_number(within, form))

    @classmethod
    def by_name(cls, given: Any) -> "dict[str, Belief]":
        """Beliefs by the names of parameters, as they were given."""
        if given is None:
            return {}
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise ValueError(
                "beliefs must be a dict from parameters to beliefs, such as "
                f'{{"lr": lazybo.Belief(around=1e-3, within=3)}}, not {checks.shortened(given)}'
            )
        found = {}
        for name, each in given.items():
            try:
                found[name] = cls.of(each)
            except ValueError as error:
                raise ValueError(f"the belief about {name!r}: {error}") from None
        return found

    @classmethod
    def checked(cls, given: Any, parameters: Mapping[str, Any]) -> "dict[str, Belief]":
        """The same, all of them about these parameters."""
        found = cls.by_name(given)
        for name, belief in found.items():
            if name not in parameters:
                raise ValueError(f"there is a belief about {name!r}, but this space has {sorted(parameters)}")
            belief.check(name, parameters[name])
        return found

    @staticmethod
    def fitting(beliefs: "Mapping[str, Belief]", parameters: Mapping[str, Any]) -> "dict[str, Belief]":
        """Those that can be about these parameters. In define-by-run, ranges change and parameters appear."""
        return {name: each for name, each in beliefs.items() if name in parameters and each._fits(parameters[name])}

    def _fits(self, parameter: Any) -> bool:
        try:
            self.check("", parameter)
        except ValueError:
            return False
        return True

    def check(self, name: str, parameter: Any) -> None:
        """Raise a ValueError unless this can be a belief about a parameter, a distribution or a kind with structure."""
        what = f"the belief about {name!r}"
        if isinstance(parameter, CategoricalDistribution):
            if self.weights is None:
                example = checks.shortened(parameter.choices[0], 40)
                raise ValueError(
                    f"{what} needs weights=, since it is a choice: lazybo.Belief(weights={{{example}: 3}})"
                )
            for choice in self.weights:
                if not contains(parameter, choice):
                    raise ValueError(f"{what}: {name} must be {in_words(parameter)}, not {checks.shortened(choice)}")
        elif isinstance(parameter, FloatDistribution | IntDistribution):
            self._check_number(what, name, parameter)
        else:
            raise ValueError(
                f"{what} cannot be used: there are beliefs about numbers and choices, but not about a "
                f"{type(parameter).__name__}; give a good one as initial= instead"
            )

    def _check_number(self, what: str, name: str, parameter: FloatDistribution | IntDistribution) -> None:
        if self.around is None or self.within is None:
            raise ValueError(f"{what} needs around= and within=, since it is a number, not weights=")
        if not parameter.low <= self.around <= parameter.high:
            raise ValueError(
                f"{what}: around must be from {parameter.low} to {parameter.high}, the range of {name}, not "
                f"{self.around}"
            )
        if parameter.log and self.within <= 1:
            raise ValueError(
                f"{what}: within must be a factor above 1, since the range of {name} is logarithmic, not {self.within}"
            )


def _of_pairs(pairs: list[Any]) -> dict[Any, Any]:
    """Weights as files have them if choices are not texts."""
    named: dict[Any, Any] = {}
    for each in pairs:
        if not isinstance(each, list) or len(each) != 2:
            raise ValueError(
                f'weights must be pairs of a choice and a number, such as [["adam", 3]], not {checks.shortened(each)}'
            )
        choice = codec.from_plain(each[0])
        if choice in named:
            raise ValueError(f"weights have {checks.shortened(choice)} twice; give each choice once")
        named[choice] = each[1]
    return named


def _weights(text: str, choices: Sequence[Any]) -> dict[Any, float]:
    form = f"CHOICE:WEIGHT, with the choices {', '.join(map(str, choices))}"
    weights = {}
    for each in next(csv.reader([text]), []) or [""]:
        choice, is_given, weight = each.rpartition(":")
        known = [one for one in choices if str(one) == choice]
        if not is_given or not known:
            raise ValueError(f"write {form}")
        if known[0] in weights:
            raise ValueError(f"there is a weight of {choice!r} already; give each choice once")
        weights[known[0]] = _as_number(weight, form)
    return weights


def _as_number(text: str, form: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number: write {form}") from None


class OfNumber:
    """A belief about a number."""

    def __init__(self, belief: Belief, axis: "NumberAxis") -> None:
        assert belief.around is not None
        assert belief.within is not None
        self._axis = axis
        self.center = min(max(float(axis.encode(belief.around)[0]), 0.0), 1.0)
        self._std = axis.length(belief.within) / 2.0
        low, high = axis.edges
        reached = self._reached(np.array(axis.edges))
        self._mean = float(reached[1] - reached[0]) / (high - low)

    def _reached(self, x: Array) -> Array:
        """The mass of N up to some coordinates, without a constant, (n,)."""
        return np.array([math.erf((each - self.center) / (self._std * SQRT_2)) / 2.0 for each in x.tolist()])

    def log_density(self, x: Array) -> tuple[Array, Array]:
        """log p, (n,), and its derivative by x."""
        z = (x - self.center) / self._std
        normal = (1.0 - DOUBT) / self._mean * np.exp(-0.5 * z * z - LOG_SQRT_2PI) / self._std
        density = normal + DOUBT
        return np.log(density), -normal / density * z / self._std

    def as_uniform(self, u: Array) -> Array:
        """Uniform numbers that make values of this density, for uniform numbers, (n,)."""
        grid = np.linspace(*self._axis.edges, GRID)
        reached = self._reached(grid)
        share = (1.0 - DOUBT) * (reached - reached[0]) / self._mean + DOUBT * (grid - grid[0])
        return self._axis.uniform(np.interp(u, share / share[-1], grid))

    @property
    def most(self) -> float:
        """A uniform number that makes the most likely value."""
        return float(self._axis.uniform(np.array([self.center]))[0])


class OfChoice:
    """A belief about a choice."""

    def __init__(self, belief: Belief, distribution: CategoricalDistribution) -> None:
        assert belief.weights is not None
        weights = np.ones(len(distribution.choices))
        for choice, weight in belief.weights.items():
            weights[int(distribution.to_internal_repr(choice))] = weight
        weights /= weights.mean()
        self._density = (1.0 - DOUBT) * weights + DOUBT

    def log_density(self, x: Array) -> tuple[Array, Array]:
        """log p, (n,), and zeros: choices have no derivative."""
        known = np.nan_to_num(x, nan=0.0).astype(np.intp)
        return np.log(self._density)[known], np.zeros(len(x))

    def as_uniform(self, u: Array) -> Array:
        """Uniform numbers that make choices of this density, for uniform numbers, (n,)."""
        reached = np.cumsum(self._density) / self._density.sum()
        drawn = np.minimum(np.searchsorted(reached, u, side="right"), len(reached) - 1)
        return (drawn + 0.5) / len(reached)

    @property
    def most(self) -> float:
        """A uniform number that makes the most likely choice."""
        return (int(np.argmax(self._density)) + 0.5) / len(self._density)


class Believed:
    """The beliefs about the parameters of a space: the density of points, and points that are drawn from it."""

    def __init__(self, beliefs: Mapping[str, Belief], points: "Points") -> None:
        self._points = points
        self._parts = [
            (points.slices[name].start, points.drawn[name].start, _of_axis(belief, points.axes[name]))
            for name, belief in beliefs.items()
            if name in points.axes
        ]

    def term(self, n: int) -> Callable[[Array], tuple[Array, Array]]:
        """What is added to an acquisition after n results, as a function of points, with its derivatives."""
        weight = WEIGHT / max(n, 1)

        def term(points: Array) -> tuple[Array, Array]:
            value, slope = self.log_density(points)
            return weight * value, weight * slope

        return term

    def points(self, u: Array, *, most: bool = False) -> Array:
        """Points of this density for uniform numbers, (n, draws); with ``most`` the first is the most likely one."""
        return self._points.from_uniform(self.as_uniform(u, most=most))

    def log_density(self, points: Array) -> tuple[Array, Array]:
        """The logarithm of the density at points, (n,), relative to an even one, and its derivatives, (n, d)."""
        total, slopes = np.zeros(len(points)), np.zeros(points.shape)
        for j, _, part in self._parts:
            value, slope = part.log_density(points[:, j])
            active = ~np.isnan(points[:, j])
            total += np.where(active, value, 0.0)
            slopes[:, j] = np.where(active, slope, 0.0)
        return total, slopes

    def as_uniform(self, u: Array, *, most: bool = False) -> Array:
        """Uniform numbers, (n, draws), changed so that the points they make have this density."""
        u = u.copy()
        for _, i, part in self._parts:
            u[:, i] = part.as_uniform(u[:, i])
            if most:
                u[0, i] = part.most
        return u


def _of_axis(belief: Belief, axis: "Axis") -> OfNumber | OfChoice:
    distribution = axis.distribution  # type: ignore[attr-defined]  # `check_belief` allows no kinds with structure
    if isinstance(distribution, CategoricalDistribution):
        return OfChoice(belief, distribution)
    return OfNumber(belief, axis)  # type: ignore[arg-type]
