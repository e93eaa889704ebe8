"""Known constraints: a predicate of the user says which configurations may be evaluated.

The predicate is a Python function of a configuration. It is called here and nowhere else, for the configuration at a
point, so a point that is feasible here decodes to a configuration for which the predicate was true.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array, shortened
from lazybo.space.space import Space

Predicate: TypeAlias = Callable[[dict[str, Any]], bool]

# Answers that are remembered: more than a step asks for.
MAX_REMEMBERED = 2**15
# A step that leaves the feasible set ends at its border, to 1/2⁷ of its length.
BISECTIONS = 7


class Feasibility:
    """Whether points are feasible. Answers are remembered: the predicate must always give the same one."""

    def __init__(self, space: Space, predicate: Predicate) -> None:
        if not callable(predicate):
            raise ValueError(
                "feasible must be a function that takes a configuration (a dict) and returns True or False, not "
                f"{shortened(predicate)}"
            )
        self._space = space
        self._predicate = predicate
        self._conditional = bool(space.conditions or space.optional)
        self._known: dict[bytes, bool] = {}

    def holds(self, params: Mapping[str, Any]) -> bool:
        """The predicate of a configuration. If it fails, a ValueError names the configuration."""
        return bool(self._answers([dict(params)])[0])

    def fresh(self, points: Array) -> NDArray[np.bool_]:
        """Which points are feasible, (m,). The answers are not remembered: for many points that are asked once."""
        if self._conditional:
            # A number on its way between two levels may switch other parameters on or off.
            points = self._space.repair(self._space.snap(points).copy())
        return np.array(self._answers(self._space.decode_all(points)), dtype=bool)

    def _answers(self, configurations: list[dict[str, Any]]) -> list[bool]:
        predicate = self._predicate
        answers: list[bool] = []
        try:
            answers.extend(predicate(params) for params in configurations)  # keeps the answers before an exception
        except Exception as error:  # the predicate is the user's: anything can go wrong in it
            given, reason = configurations[len(answers)], f"{type(error).__name__}: {error}"
            raise ValueError(f"feasible cannot be evaluated for {shortened(given, 400)}: {reason}") from error
        for params, answer in zip(configurations, answers, strict=True):
            if not isinstance(answer, bool | np.bool_):
                raise ValueError(
                    f"feasible must return True or False, but returned {shortened(answer)} "
                    f"({type(answer).__name__}) for {shortened(params, 400)}"
                )
        return answers

    def __call__(self, points: Array) -> NDArray[np.bool_]:
        """Which points are feasible, (m,)."""
        data, width = points.tobytes(), 8 * self._space.dim
        keys = [data[i : i + width] for i in range(0, len(data), width)]
        new = [i for i, key in enumerate(keys) if key not in self._known]
        if len(self._known) + len(new) > MAX_REMEMBERED:
            self._known.clear()
            new = list(range(len(keys)))
        if new:
            self._known.update(zip([keys[i] for i in new], self.fresh(points[new]).tolist(), strict=True))
        return np.array([self._known[key] for key in keys], dtype=bool)

    def shortened(self, start: Array, end: Array, bisections: int = BISECTIONS) -> Array:
        """The ends of steps, (m, d); a step that ends outside is shortened to the border, by bisection.

        Choices are those of the end, unless no part of such a step is feasible: then the end is the start.
        """
        rows = np.flatnonzero(~self(end))
        if len(rows) == 0:
            return end
        first, last = start[rows], end[rows]
        found, low, high = first, np.zeros(len(rows)), np.ones(len(rows))
        for _ in range(bisections):
            middle = (low + high) / 2
            there = np.where(self._space.categorical, last, first + middle[:, None] * (last - first))
            there = np.where(np.isnan(there), last, there)
            inside = self(there)
            found = np.where(inside[:, None], there, found)
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        ends = end.copy()
        ends[rows] = found
        return ends
