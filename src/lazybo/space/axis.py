"""The kinds of parameters: an axis converts the values of one to coordinates of a point and back."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lazybo.core import Array, checks
from lazybo.gp import Column
from lazybo.space.distributions import contains

# If the distribution rejects the value of a level because of rounding, the nearest level that it accepts is used. First
# a few levels on either side are tried, then many.
NEAR_LEVELS = 8
FAR_LEVELS = 2**15
# Up to MAX_MOVES choices, a move tries all others; with more, those at hand and RANDOM_MOVES at random.
MAX_MOVES = 64
RANDOM_MOVES = 32
# Decoded values of a discrete parameter that are remembered.
MAX_VALUES = 2**12
# Coordinates further outside of [0, 1] than this only grow with the logarithm: kernels square them. They are so far
# away that they have no covariance with anything in the cube either way.
FAR = 1e6
# Typical length scales of real and whole numbers, each on a linear and a logarithmic scale, in the trainings of
# `benchmarks.priors`. Only their ratios count.
TYPICAL = {(False, False): 1.1, (False, True): 0.5, (True, False): 0.95, (True, True): 0.85}
LARGEST = sys.float_info.max


class Axis(ABC):
    """One parameter that can vary: converts its values to coordinates of a point and back.

    An axis has ``width`` coordinates. ``numeric``, (w,), says which of them are numbers in [0, 1] that may move
    continuously. ``levels`` is the number of values, infinity if there are too many to count, and ``draws`` how many
    uniform numbers a random one needs. Arrays of coordinates are (n, w). To add a kind of parameter, write a subclass,
    and add its distribution to `AXES`; kinds with structure are in `kinds.py`.
    """

    width = 1
    draws = 1
    numeric: NDArray[np.bool_]
    levels: float
    # The moves of an axis: among so many choices, which count from 0; one level up or down; or what `next_to` lists.
    choices = 0
    steps: "Scale | None" = None
    lists_moves = True

    @abstractmethod
    def columns(self, *, conditional: bool) -> tuple[Column, ...]:
        """What a kernel has to know of each coordinate."""

    @abstractmethod
    def encode(self, value: Any) -> tuple[float, ...]:
        """The coordinates of a value."""

    @abstractmethod
    def decode(self, x: Sequence[float]) -> Any:
        """The value at some coordinates, (w,)."""

    def decode_all(self, x: Array) -> list[Any]:
        """The values at coordinates that belong to values: those of `decode` to the last bit, perhaps faster."""
        return [self.decode(each) for each in x.tolist()]

    @abstractmethod
    def from_uniform(self, u: Array) -> Array:
        """Coordinates for uniform numbers in [0, 1), (n, draws): values are as likely as their scale says."""

    @abstractmethod
    def listed(self) -> Array:
        """The coordinates of all values, (levels, w), each once, if there are few."""

    def snap(self, x: Array) -> Array:
        """The nearest coordinates that belong to a value."""
        return x

    def has_place(self, value: Any) -> bool:  # noqa: ARG002 - only numbers have values outside of their range
        """Whether a value outside of the distribution has coordinates too."""
        return False

    def free(self, x: Array) -> NDArray[np.bool_]:
        """Which coordinates may move continuously from here, (n, w)."""
        return self.numeric & ~np.isnan(x)

    def project(self, x: Array, free: NDArray[np.bool_]) -> Array:  # noqa: ARG002 - for axes with fewer dimensions
        """The nearest coordinates that belong to values, if only the ``free`` ones, (n, w), may move."""
        return x

    @abstractmethod
    def perturbed(self, x: Array, draws: "Perturbation") -> Array:
        """Coordinates of values nearby, by random draws that are the same for every kind of axis."""

    def next_to(self, x: Array, at_hand: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        """The coordinates one discrete move away from x, (m, w); ``at_hand`` are those of other points, (s, w)."""
        return np.zeros((0, self.width))

    def distances(self, x: Array, center: Array) -> Array:
        """How far coordinates are from some center, (n,): NaN where only one of them is known."""
        return np.abs(x - center).max(axis=1)

    @abstractmethod
    def narrowed(self, low: Array, high: Array) -> BaseDistribution:
        """The distribution between two coordinates, each (w,); the whole one if it has no order."""


@dataclass(frozen=True)
class Perturbation:
    """Random draws for each uniform number that an axis needs, each (n, draws).

    ``touched`` numbers move by ``step``; ``flipped`` choices become others, by the uniform numbers ``fresh``.
    """

    touched: NDArray[np.bool_]
    step: Array
    flipped: NDArray[np.bool_]
    fresh: Array

    def part(self, columns: slice, rows: NDArray[np.bool_] | slice = slice(None)) -> "Perturbation":
        """The draws for some coordinates, and for some points."""
        return Perturbation(**{name: each[rows, columns] for name, each in vars(self).items()})


class ChoiceAxis(Axis):
    """A choice: its coordinate is its position, which counts from 0."""

    def __init__(self, distribution: CategoricalDistribution) -> None:
        self.distribution = distribution
        self.levels, self.numeric = float(len(distribution.choices)), np.array([False])
        if self.levels <= MAX_MOVES:
            self.choices, self.lists_moves = len(distribution.choices), False

    def columns(self, *, conditional: bool) -> tuple[Column, ...]:
        return (Column(int(self.levels), conditional=conditional),)

    def encode(self, value: Any) -> tuple[float, ...]:
        return (float(self.distribution.to_internal_repr(value)),)

    def decode(self, x: Sequence[float]) -> Any:
        return self.distribution.choices[int(x[0])]

    def from_uniform(self, u: Array) -> Array:
        return np.minimum(np.floor(u * self.levels), self.levels - 1)

    def listed(self) -> Array:
        return np.arange(self.levels)[:, None]

    def perturbed(self, x: Array, draws: Perturbation) -> Array:
        return np.where(draws.flipped & ~np.isnan(x), np.floor(draws.fresh * self.levels), x)

    def next_to(self, x: Array, at_hand: Array, rng: np.random.Generator) -> Array:
        drawn = rng.integers(int(self.levels), size=RANDOM_MOVES)
        tried: Array = np.unique(np.concatenate((at_hand[~np.isnan(at_hand)], drawn)))
        return tried[tried != x[0], None]

    def distances(self, x: Array, center: Array) -> Array:
        differ = np.abs(x - center)[:, 0]
        return np.where(np.isnan(differ), np.nan, differ != 0)

    def narrowed(self, low: Array, high: Array) -> BaseDistribution:  # noqa: ARG002 - choices have no order
        return self.distribution


@dataclass(frozen=True)
class Scale:
    """The levels of a discrete number, which count from 0, and their coordinates; of several numbers, arrays of these.

    ``origin`` and ``extent`` are those of the logarithm of a number on a logarithmic scale.
    """

    low: Any
    step: Any
    levels: Any
    origin: Any
    extent: Any
    log: bool = False

    @classmethod
    def joined(cls, scales: "Sequence[Scale]") -> "Scale":
        """Several scales, all linear or all logarithmic, as one."""
        numbers = [(each.low, each.step, each.levels, each.origin, each.extent) for each in scales]
        low, step, levels, origin, extent = np.array(numbers, dtype=np.float64).T
        return cls(low, step, levels, origin, extent, scales[0].log)

    def level(self, x: Any) -> Any:
        """The level nearest to a coordinate."""
        if not self.log:
            return np.rint(x * (self.levels - 1))
        value = np.exp(self.origin + x * self.extent)
        return np.minimum(np.maximum(np.rint((value - self.low) / self.step), 0), self.levels - 1)

    def at(self, level: Any) -> Any:
        """The coordinates of levels."""
        if not self.log:
            return level / (self.levels - 1)
        value = np.asarray(self.low + level * self.step, dtype=np.float64)
        return (np.log(value) - self.origin) / self.extent


class NumberAxis(Axis):
    """A number: its coordinate is in [0, 1], on a linear or logarithmic scale.

    A discrete number has one of ``levels`` values. Its coordinate is always computed from its level, so that equal
    values have equal coordinates to the last bit.
    """

    lists_moves = False

    def __init__(self, distribution: FloatDistribution | IntDistribution) -> None:
        self.distribution = distribution
        self.levels, self.numeric = _levels(distribution), np.array([True])
        self._continuous = math.isinf(self.levels)
        self._values: dict[float, Any] = {}  # decoded values of discrete coordinates
        self._log = distribution.log
        self._low, self._high, self._step = distribution.low, distribution.high, distribution.step or 0
        # If high - low would overflow, the axis has units of 2.
        self._half = 0.5 if math.isinf(float(self._high) - float(self._low)) else 1.0
        self._origin = self._measure(self._low)
        self._extent = self._measure(self._high) - self._origin
        if self._log and not self._extent:  # so narrow that the logarithms of its ends are equal
            self._log = False
            self._origin = self._measure(self._low)
            self._extent = self._measure(self._high) - self._origin
        self.scale = Scale(self._low, self._step, self.levels, self._origin, self._extent, self._log)
        self.steps = None if self._continuous else self.scale
        half = 0.5 / (self.levels - 1)
        self.edges = -half, 1.0 + half
        """The coordinates of the range that values are drawn from: half a step beyond the ends if they are discrete."""
        if self._log:
            half = self._step / 2
            self.edges = self.length(1.0 - half / self._low), 1.0 + self.length(1.0 + half / self._high)

    def columns(self, *, conditional: bool) -> tuple[Column, ...]:
        whole = isinstance(self.distribution, IntDistribution)
        return (Column(0, conditional=conditional, typical=TYPICAL[whole, self._log]),)

    def _measure(self, value: float) -> float:
        """The position of a number on the linear or logarithmic scale."""
        return math.log(value) if self._log else float(value) * self._half

    def encode(self, value: Any) -> tuple[float, ...]:
        if not self._continuous:
            level = self._level_of(value)
            if self._log and self._low + level * self._step <= 0:
                raise ValueError(f"{value} is not positive, so it has no place on a logarithmic scale")
            x = float(self.scale.at(level))
            return (x if abs(x) <= FAR else _far(x, math.log(abs(x))),)
        x = (self._measure(value) - self._origin) / self._extent
        if abs(x) <= FAR:
            return (x,)
        # In halves, since the difference may overflow.
        gap = self._measure(value) / 2.0 - self._origin / 2.0
        return (_far(gap, math.log(abs(gap)) + math.log(2.0) - math.log(self._extent)),)

    def has_place(self, value: Any) -> bool:
        try:
            if not checks.is_float_like(value) or not math.isfinite(float(value)):
                return False
            return math.isfinite(self.encode(value)[0])
        except (TypeError, ValueError, OverflowError):
            return False

    def decode(self, x: Sequence[float]) -> Any:
        return self.decode_all(np.array([x]))[0]

    def _decode(self, x: float) -> Any:
        """The value of a discrete number."""
        end = self._low if x <= 0.0 else self._high if x >= 1.0 else None
        if end is not None and contains(self.distribution, float(end)):
            return self.distribution.to_external_repr(float(end))
        return self._known_value(int(self.scale.level(x)))

    def decode_all(self, x: Array) -> list[Any]:
        x = x[:, 0]
        if not self._continuous:
            places = self.scale.at(self.scale.level(x)).tolist()
            for place in set(places) - self._values.keys():
                if len(self._values) >= MAX_VALUES:
                    return [self._decode(each) for each in places]
                self._values[place] = self._decode(place)
            return [self._values[place] for place in places]
        if self._log:
            low, high, origin, extent, exp = self._low, self._high, self._origin, self._extent, math.exp
            return [
                low if each <= 0.0 else high if each >= 1.0 else min(max(exp(origin + each * extent), low), high)
                for each in x.tolist()
            ]
        inner = np.minimum(np.maximum((self._origin + x * self._extent) / self._half, self._low), self._high)
        decoded: list[Any] = np.where(x <= 0.0, self._low, np.where(x >= 1.0, self._high, inner)).tolist()
        return decoded

    def _known_value(self, level: int) -> Any:
        """The value at a level, or the nearest one that the distribution accepts, as it would be read from a study.

        Studies store doubles: they cannot hold all integers beyond 2⁵³, and far from 0 small steps are lost in
        rounding.
        """
        for distance in range(NEAR_LEVELS):
            for near in (level - distance, level + distance):
                value = float(self._low + near * self._step)
                for double in (value, math.nextafter(value, -math.inf), math.nextafter(value, math.inf)):
                    if contains(self.distribution, double):
                        return self.distribution.to_external_repr(double)
        offsets = np.arange(-FAR_LEVELS, FAR_LEVELS)
        values = float(self._low) + (float(level) + offsets) * float(self._step)
        multiple = (values - float(self._low)) / float(self._step)
        order = np.argsort(np.abs(offsets), kind="stable")
        for i in order[(np.abs(multiple - np.round(multiple)) < 1e-8)[order]]:
            if contains(self.distribution, float(values[i])):
                return self.distribution.to_external_repr(float(values[i]))
        return self.distribution.to_external_repr(float(self._low + level * self._step))

    def _level_of(self, value: Any) -> int:
        """The level nearest to a value, which may be outside the range."""
        whole = self.distribution
        if isinstance(whole, IntDistribution) and value == int(value):
            level = int(value) - whole.low
            level = level if whole.step == 1 else round(Fraction(level, whole.step))
            return min(max(level, -int(LARGEST)), int(LARGEST))
        level = (value * self._half - self._low * self._half) / (self._step * self._half)
        return round(min(max(level, -LARGEST), LARGEST))

    def from_uniform(self, u: Array) -> Array:
        """Coordinates for uniform numbers: even on the scale between the `edges`, then those of the nearest level."""
        low, high = self.edges
        if self._log:
            return self.snap(low + u * (high - low))
        return u if self._continuous else self.scale.at(np.minimum(np.floor(u * self.levels), self.levels - 1))

    def uniform(self, x: Array) -> Array:
        """Uniform numbers that `from_uniform` turns into these coordinates, or into the nearest level, (n,)."""
        low, high = self.edges
        return (x - low) / (high - low)

    def listed(self) -> Array:
        return np.array(self.scale.at(np.arange(self.levels))[:, None])

    def length(self, within: float) -> float:
        """How far a factor leads on a logarithmic scale, or a difference on a linear one, in coordinates."""
        return (math.log(within) if self._log else within * self._half) / self._extent

    def snap(self, x: Array) -> Array:
        return x if self._continuous else self.scale.at(self.scale.level(x))

    def perturbed(self, x: Array, draws: Perturbation) -> Array:
        return np.where(draws.touched, np.clip(x + draws.step, 0.0, 1.0), x)

    def narrowed(self, low: Array, high: Array) -> BaseDistribution:
        """The distribution between two coordinates; of a discrete number at least two levels.

        It is the whole distribution if doubles cannot tell the two ends apart.
        """
        whole, (first_end,), (last_end,) = self.distribution, low.tolist(), high.tolist()
        if self._continuous:
            ends = self.decode((first_end,)), self.decode((last_end,))
            return FloatDistribution(*ends, log=self._log) if self._measure(ends[0]) < self._measure(ends[1]) else whole
        first, last = int(self.scale.level(max(first_end, 0.0))), int(self.scale.level(min(last_end, 1.0)))
        if first == last:
            first, last = max(first - 1, 0), min(last + 1, int(self.levels) - 1)
        # As decimals: Optuna cuts ranges that steps do not divide as such, and warns.
        origin, step = Decimal(str(self._low)), Decimal(str(self._step))
        ends = type(self._low)(origin + first * step), type(self._low)(origin + last * step)
        if (origin + last * step) != Decimal(str(ends[1])) or not all(contains(whole, end) for end in ends):
            return whole  # doubles cannot hold the ends
        kind = IntDistribution if isinstance(whole, IntDistribution) else FloatDistribution  # also of an older kind
        return kind(*ends, log=self._log, step=whole.step)  # type: ignore[arg-type]


# The axis of each distribution.
AXES: dict[type[BaseDistribution], Callable[[Any], Axis]] = {
    CategoricalDistribution: ChoiceAxis,
    FloatDistribution: NumberAxis,
    IntDistribution: NumberAxis,
}


def axis_of(distribution: BaseDistribution) -> Axis:
    """The axis of a distribution, which may also be one of Optuna's older kinds: they are subclasses."""
    return next(make(distribution) for kind, make in AXES.items() if isinstance(distribution, kind))


def _far(side: float, log_distance: float) -> float:
    """A coordinate on this side of [0, 1] that grows with the logarithm of its distance from 0."""
    return math.copysign(FAR * (1.0 + log_distance - math.log(FAR)), side)


def _levels(distribution: BaseDistribution) -> float:
    """How many values a numeric parameter has; infinity if it is continuous."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.step is None:
        return float("inf")
    if isinstance(distribution, IntDistribution):
        return float((distribution.high - distribution.low) // distribution.step + 1)
    count = (distribution.high / 2 - distribution.low / 2) / (distribution.step / 2)
    return float(round(count) + 1) if math.isfinite(count) else math.inf
