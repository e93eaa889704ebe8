"""What a user's functions say about configurations: features that the model sees, and which ones are equivalent."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazybo.core import Array, checks
from lazybo.gp import Column

if TYPE_CHECKING:
    from lazybo.space.space import Space

# Numbers that describe a configuration.
Features: TypeAlias = Callable[[dict[str, Any]], Sequence[float]]
# A key that equivalent configurations share, or the one that stands for all of them.
Canonical: TypeAlias = Callable[[dict[str, Any]], Any]
# Configurations that are remembered: more than a step asks for.
MAX_REMEMBERED = 2**15
# More features than this share one length scale.
MAX_COLUMNS = 16


# The canonical forms of so many examples are checked.
CHECKED = 8


class Derived:
    """Features and canonical forms of configurations. Both functions must always return the same.

    Features have units in which most of ``examples`` are from 0 to 1, as the coordinates of numbers are.
    """

    def __init__(
        self,
        space: "Space",
        features: Features | None,
        canonical: Canonical | None,
        examples: Sequence[Mapping[str, Any]],
    ) -> None:
        for name, function in (("features", features), ("canonical", canonical)):
            if function is not None and not callable(function):
                wrong = (
                    f"{name} must be a function that takes a configuration (a dict), not {checks.shortened(function)}"
                )
                raise ValueError(wrong)
        self._space, self._features, self._canonical = space, features, canonical
        self._known: dict[bytes, Array] = {}
        self._keys: dict[bytes, Any] = {}
        self._middle, self._width = np.zeros(0), np.ones(0)
        self.count = 0
        if features is not None:
            self.count = len(self._checked(examples[0]))
            if not self.count:
                raise ValueError("features must return at least one number, not an empty list")
            table = np.array([self._checked(each) for each in examples])
            deviation = table.std(axis=0)
            self._middle, self._width = table.mean(axis=0), np.where(deviation > 0, math.sqrt(12.0) * deviation, 1.0)
        few = self.count <= MAX_COLUMNS
        self.columns = (Column(),) * self.count if few else (Column(size=self.count),)

    @classmethod
    def of(cls, space: "Space", examples: Sequence[Mapping[str, Any]]) -> "Derived":
        """What the functions of a space say; its canonical form is checked with some of the examples."""
        derived = cls(space, space.features, space.canonical, examples)
        # A function of feasible configurations may fail for others.
        for each in examples[:CHECKED] if space.canonical is not None and space.feasible is None else ():
            derived.check_canonical(each)
        return derived

    def described(self, params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Array]:
        """The configuration that stands for this one, or itself, and the features in their units."""
        key = self.key(params)
        if isinstance(key, Mapping):
            # What stands for a configuration outside the space may have its values, as for results outside a region.
            params = self._standing(key, outside=not all(map(self._space.allows, params, params.values())))
        if self._features is None:
            return params, np.zeros(0)
        return params, (self._checked(params) - self._middle) / self._width + 0.5

    def key(self, params: Mapping[str, Any]) -> Any:
        """The key of a configuration, or the one that stands for it; None if there is no such function."""
        if self._canonical is None:
            return None
        key = _called("canonical", self._canonical, self._space.values(params))
        if key is None or not (isinstance(key, Mapping) or _is_hashable(key)):
            wrong = "canonical must return a configuration, or a key such as a text or a tuple"
            raise ValueError(f"{wrong}, not {checks.shortened(key)}")
        return key

    def check_canonical(self, params: Mapping[str, Any]) -> None:
        """Raise a ValueError unless the canonical form of a configuration is always the same one."""
        first, again = self.key(params), self.key(params)
        changes = first != again
        if isinstance(first, Mapping):
            standing = self._standing(first)
            changes = changes or self._standing(self.key(standing)) != standing
        if changes:
            values = checks.shortened(self._space.values(params), 200)
            raise ValueError(
                f"canonical must always return the same for equivalent configurations, but does not for {values}: not "
                "when it is called again, or when it gets what it has returned"
            )

    def _standing(self, key: Any, *, outside: bool = False) -> Mapping[str, Any]:
        """The configuration that canonical has returned, as a study has it."""
        try:
            return self._space.plain(key, outside=outside)
        except ValueError as error:
            wrong = f"canonical returned {checks.shortened(key, 200)}, which is no configuration: {error}"
            raise ValueError(wrong) from None

    def key_at(self, point: bytes, params: Callable[[], Mapping[str, Any]]) -> Any:
        """The key of the configuration at a point, which is computed once."""
        if point not in self._keys:
            if len(self._keys) >= MAX_REMEMBERED:
                self._keys.clear()
            self._keys[point] = self.key(params())
        return self._keys[point]

    def remembered(self, row: Array, place: Callable[[Array], Array]) -> Array:
        """The point with the right features for one with any, (d,); ``place`` computes it once."""
        key = row[: len(row) - self.count].tobytes()
        if key not in self._known:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = place(row)
        return self._known[key]

    def _checked(self, params: Mapping[str, Any]) -> Array:
        """The features of a configuration."""
        assert self._features is not None
        values = self._space.values(params)
        found = _called("features", self._features, values)
        numbers = list(found) if isinstance(found, Sequence | np.ndarray) and not isinstance(found, str) else [found]
        for each in numbers:
            if not checks.is_number(each) or not math.isfinite(each):
                given = f"{checks.shortened(each)} for {checks.shortened(values, 200)}"
                raise ValueError(f"features must return finite numbers, not {given}")
        if self.count and len(numbers) != self.count:
            given = f"{len(numbers)} for {checks.shortened(values, 200)}"
            raise ValueError(f"features must return {self.count} numbers as before, not {given}")
        return np.array(numbers, dtype=np.float64)


def _is_hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _called(name: str, function: Callable[[dict[str, Any]], Any], values: dict[str, Any]) -> Any:
    """What a user's function returns. If it fails, a ValueError names the configuration."""
    try:
        return function(dict(values))
    except Exception as error:  # the function is the user's: anything can go wrong in it
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{name} cannot be computed for {checks.shortened(values, 400)}: {reason}") from error
