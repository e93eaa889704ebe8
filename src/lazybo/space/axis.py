"""One parameter: convert its values to coordinates of a point and back."""

import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lazybo.core.checks import Array, is_float_like, shortened

# If the distribution rejects the value of a level because of rounding, the nearest level that it accepts is used. First
# so many levels on either side are tried, then so many.
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
LARGEST = sys.float_info.max


class Axis:
    """One parameter that can vary: converts its values to [0, 1], or to 0, 1, … for choices, and back.

    A discrete number has one of ``levels`` values. Its coordinate is always computed from its level, so that equal
    values have equal coordinates to the last bit.
    """

    def __init__(self, distribution: BaseDistribution) -> None:
        self.distribution = distribution
        self.categories = len(distribution.choices) if isinstance(distribution, CategoricalDistribution) else 0
        self.levels = float(self.categories) if self.categories else _levels(distribution)
        self._continuous = math.isinf(self.levels)
        self._values: dict[float, Any] = {}  # decoded values of discrete coordinates
        if not self.categories:
            assert isinstance(distribution, FloatDistribution | IntDistribution)
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

    def _measure(self, value: float) -> float:
        """The position of a number on the linear or logarithmic scale."""
        return math.log(value) if self._log else float(value) * self._half

    def encode(self, value: Any) -> float:
        """The coordinate of a value."""
        if self.categories:
            return float(self.distribution.to_internal_repr(value))
        if not self._continuous:
            level = self._level_of(value)
            if self._log and self._low + level * self._step <= 0:
                raise ValueError(f"{value} is not positive, so it has no place on a logarithmic scale")
            x = float(self._at_level(level))
            return x if abs(x) <= FAR else _far(x, math.log(abs(x)))
        x = (self._measure(value) - self._origin) / self._extent
        if abs(x) <= FAR:
            return x
        # In halves, since the difference may overflow.
        gap = self._measure(value) / 2.0 - self._origin / 2.0
        return _far(gap, math.log(abs(gap)) + math.log(2.0) - math.log(self._extent))

    def decode(self, x: float) -> Any:
        """The value at a coordinate."""
        distribution = self.distribution
        if isinstance(distribution, CategoricalDistribution):
            return distribution.choices[int(x)]
        # The ends are returned exactly, without rounding errors.
        end = self._low if x <= 0.0 else self._high if x >= 1.0 else None
        if end is not None and contains(distribution, float(end)):
            return distribution.to_external_repr(float(end))
        if not self._continuous:
            return self._known_value(int(self._level(x)))
        scaled = self._origin + float(x) * self._extent
        return min(max(math.exp(scaled) if self._log else scaled / self._half, self._low), self._high)

    def decode_all(self, x: Array) -> list[Any]:
        """The values at coordinates that belong to a value: those of `decode` to the last bit, many times faster."""
        if not self._continuous:
            places = self.snap(x).tolist()
            for place in set(places) - self._values.keys():
                if len(self._values) >= MAX_VALUES:
                    return [self.decode(each) for each in places]
                self._values[place] = self.decode(place)
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
            level = round(Fraction(int(value) - whole.low, whole.step))
            return min(max(level, -int(LARGEST)), int(LARGEST))
        level = (value * self._half - self._low * self._half) / (self._step * self._half)
        return round(min(max(level, -LARGEST), LARGEST))

    def from_uniform(self, u: Array) -> Array:
        """Coordinates for uniform numbers in [0, 1): all levels are equally likely."""
        if self._continuous:
            return u
        level = np.minimum(np.floor(u * self.levels), self.levels - 1)
        return level if self.categories else self._at_level(level)

    def snap(self, x: Array) -> Array:
        """The nearest coordinates that belong to a value."""
        return x if self.categories or self._continuous else self._at_level(self._level(x))

    def next_to(self, x: float, at_hand: Array, rng: np.random.Generator) -> list[float]:
        """The coordinates one discrete move away: the next levels, or other choices.

        If there are more than `MAX_MOVES` choices, these are the ones ``at_hand`` and some at random.
        """
        if self.categories > MAX_MOVES:
            drawn = rng.integers(self.categories, size=RANDOM_MOVES)
            tried = np.unique(np.concatenate((at_hand[~np.isnan(at_hand)], drawn)))
            return [float(c) for c in tried if c != x]
        if self.categories:
            return [float(c) for c in range(self.categories) if c != x]
        if self._continuous:
            return []
        level = self._level(x)
        near = np.array([k for k in (level - 1, level + 1) if 0 <= k < self.levels])
        return [float(value) for value in self._at_level(near)]

    def narrowed(self, low: float, high: float) -> BaseDistribution:
        """The distribution between two coordinates; of a discrete number at least two levels, and all choices.

        It is the whole distribution if doubles cannot tell the two ends apart.
        """
        whole = self.distribution
        if isinstance(whole, CategoricalDistribution):
            return whole
        assert isinstance(whole, FloatDistribution | IntDistribution)
        if self._continuous:
            ends = self.decode(low), self.decode(high)
            return FloatDistribution(*ends, log=self._log) if self._measure(ends[0]) < self._measure(ends[1]) else whole
        first, last = int(self._level(max(low, 0.0))), int(self._level(min(high, 1.0)))
        if first == last:
            first, last = max(first - 1, 0), min(last + 1, int(self.levels) - 1)
        # As decimals: Optuna cuts ranges that steps do not divide as such, and warns.
        origin, step = Decimal(str(self._low)), Decimal(str(self._step))
        ends = type(self._low)(origin + first * step), type(self._low)(origin + last * step)
        if (origin + last * step) != Decimal(str(ends[1])) or not all(contains(whole, end) for end in ends):
            return whole  # doubles cannot hold the ends
        return type(whole)(*ends, log=self._log, step=whole.step)  # type: ignore[arg-type]

    def _level(self, x: Any) -> Any:
        """The level nearest to a coordinate."""
        if not self._log:
            return np.round(x * (self.levels - 1))
        value = np.exp(self._origin + x * self._extent)
        return np.clip(np.round((value - self._low) / self._step), 0, self.levels - 1)

    def _at_level(self, level: Any) -> Any:
        """The coordinates of levels, which count from 0."""
        if not self._log:
            return level / (self.levels - 1)
        value = np.asarray(self._low + level * self._step, dtype=np.float64)
        return (np.log(value) - self._origin) / self._extent


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


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a value from a user belongs to the distribution."""
    numeric = not isinstance(distribution, CategoricalDistribution)
    try:
        if numeric and not is_float_like(value):
            return False
        return distribution._contains(distribution.to_internal_repr(value))
    except (TypeError, ValueError, OverflowError):
        return False


def plain_value(distribution: BaseDistribution, value: Any) -> Any:
    """A value of the distribution without NumPy types; for choices the object in the distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(distribution.to_internal_repr(value))]
    if isinstance(distribution, IntDistribution) and value == int(value):
        return int(value)
    return value if type(value) in (int, float) else float(value)


def only_value(distribution: BaseDistribution) -> Any:
    """The one value of a single-valued distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    return distribution.low  # type: ignore[attr-defined]


def allowed_values(distribution: BaseDistribution) -> str:
    """The values of a distribution in words, for messages."""
    if isinstance(distribution, CategoricalDistribution):
        return f"one of {shortened(list(distribution.choices), 200)}"
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    kind, usual = ("a whole number", 1) if isinstance(distribution, IntDistribution) else ("a number", None)
    steps = "" if distribution.step == usual else f" in steps of {distribution.step}"
    return f"{kind} from {distribution.low} to {distribution.high}{steps}"


def has_place(axis: Axis | None, value: Any) -> bool:
    """Whether a number has a coordinate on this axis, which may be outside of [0, 1]."""
    try:
        if axis is None or axis.categories or not is_float_like(value) or not math.isfinite(float(value)):
            return False
        return math.isfinite(axis.encode(value))
    except (TypeError, ValueError, OverflowError):
        return False
