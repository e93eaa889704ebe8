"""Orders and subsets of items as kinds of parameters.

A `Permutation` has the position of each item as its code. The kernel sees these positions, which of two items comes
first, which items are neighbours (as in a round trip), and which item is at which place (as in an assignment). The code
of a `Subset` is the membership of each item, and the kernel also sees how many there are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution

from lazybo.core import Array, checks
from lazybo.gp import Column
from lazybo.space.axis import MAX_MOVES, Perturbation
from lazybo.space.coded import CodedAxis, exchanged, top
from lazybo.space.kinds import Structured, names_of

# The moves of a permutation are listed, and there are about 2 n² of them.
MAX_ITEMS = 64
# With more items than this, the kernel does not see which item is at which place: it would have n² numbers for that.
MAX_PLACED = 20
MAX_PARTS = 256


@checks.hinting_class({"length": "a value has all items in some order; for some of the items use lazybo.Subset"})
@dataclass(frozen=True)
class Permutation(Structured):
    """An order of some items: ``lazybo.Permutation(["crop", "flip", "blur"])``. Its values are lists.

    A study has a parameter for each place, ``order[0]``, ``order[1]``, …, whose value is the item there.
    """

    items: Sequence[Any]

    name: ClassVar[str] = "permutation"

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", names_of("the items of a Permutation", self.items, 2, MAX_ITEMS))

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        return {f"{parameter}[{i}]": CategoricalDistribution(self.items) for i in range(len(self.items))}

    def write(self, value: Any) -> tuple[Any, ...]:
        is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        items = tuple(np.asarray(value, dtype=object).tolist()) if is_list else ()
        if len(items) != len(self.items) or any(each not in items for each in self.items):
            raise ValueError(
                f"must be a list of {checks.shortened(list(self.items))} in any order, not {checks.shortened(value)}"
            )
        return items

    def read(self, stored: Sequence[Any]) -> list[Any]:
        """The order; an item that appears again stands for the next one in the definition that is left."""
        order: list[Any] = []
        for each in stored:
            at = self.items.index(each)
            cycle = (*self.items[at:], *self.items[:at])
            order.append(next(item for item in cycle if item not in order))
        return order

    def make_axis(self) -> "PermutationAxis":
        return PermutationAxis(self)


class PermutationAxis(CodedAxis):
    """The positions of n items. Moves are swaps, insertions and reversals."""

    kind: Permutation

    def __init__(self, kind: Permutation) -> None:
        n = len(kind.items)
        self.draws, self.levels = n, float(math.factorial(n))
        self._first, self._second = np.triu_indices(n, 1)
        self._moves, self._placed = _moves_of_places(n), n <= MAX_PLACED
        pairs = Column(size=len(self._first), unit=1.0)
        places = (Column(size=n * n, unit=1.0),) if self._placed else ()
        # The mean squared difference of two random positions is (n² - 1)/6.
        super().__init__(
            kind, n, 1.0 / math.sqrt(n * (n * n - 1) / 6), (Column(size=n, unit=1.0), pairs, pairs, *places)
        )

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        order = self.kind.read(stored)
        return [float(order.index(item)) for item in self.kind.items]

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        return tuple(self.kind.items[i] for i in np.argsort(code, kind="stable"))

    def features(self, codes: Array) -> Array:
        """Which of two items comes first, which are neighbours (first and last are, too), and which item is where."""
        gap = codes[:, self._second] - codes[:, self._first]
        parts = [np.sign(gap), np.isin(np.abs(gap), (1, self.code - 1))]
        if self._placed:
            parts.append((codes[:, :, None] == np.arange(self.code)).reshape(len(codes), self.code**2))
        return np.hstack(parts).astype(np.float64)

    def drawn(self, u: Array) -> Array:
        return np.argsort(np.argsort(u, axis=1), axis=1).astype(np.float64)

    def repaired(self, codes: Array) -> Array:
        return np.argsort(np.argsort(codes, axis=1, kind="stable"), axis=1).astype(np.float64)

    def varied(self, codes: Array, draws: Perturbation) -> Array:
        return exchanged(codes.copy(), draws)

    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:
        moves = self._moves
        if len(moves) > MAX_MOVES:
            moves = moves[rng.choice(len(moves), MAX_MOVES, replace=False)]
        return moves[:, code.astype(np.intp)].astype(np.float64)

    def distances(self, x: Array, center: Array) -> Array:
        """The mean difference of positions, as a share of its mean among random orders, (n² - 1)/(3 n)."""
        gaps = np.abs(x[:, : self.code] - center[: self.code]).mean(axis=1) / self._unit
        return gaps / ((self.code**2 - 1) / (3 * self.code))

    def listed(self) -> Array:
        return self._at(np.array([*permutations(range(self.code))], dtype=np.float64))


def _moves_of_places(n: int) -> NDArray[np.intp]:
    """Where each place goes by a swap of two, an insertion or a reversal, each move once, (m, n)."""
    moves = []
    for i, j in combinations(range(n), 2):
        swap, forth, back, turn = (np.arange(n) for _ in range(4))
        swap[[i, j]] = j, i
        forth[i : j + 1] = np.roll(forth[i : j + 1], 1)
        back[i : j + 1] = np.roll(back[i : j + 1], -1)
        turn[i : j + 1] = turn[i : j + 1][::-1]
        moves += [swap, forth, back, turn]
    return np.unique(np.array(moves), axis=0)


# -------------------------------------------------------------------------------- subsets


@checks.hinting_class(dict.fromkeys(("size", "k", "n", "count"), "use at_least= and at_most="))
@dataclass(frozen=True)
class Subset(Structured):
    """Some of the items: ``lazybo.Subset(columns, at_least=1, at_most=20)``. Its values are lists in the items' order.

    A study has a parameter for each item, ``inputs[age]``, …, that is True if the item is in the subset.
    """

    items: Sequence[Any]
    at_least: int = 0
    at_most: int | None = None

    name: ClassVar[str] = "subset"

    def __post_init__(self) -> None:
        items = names_of("the items of a Subset", self.items, 1, MAX_PARTS)
        at_least = checks.whole("at_least of a Subset", self.at_least, 0, len(items))
        if self.at_most is not None:
            checks.whole("at_most of a Subset", self.at_most, max(at_least, 1), len(items))
        if at_least == len(items):
            raise ValueError(f"at_least of a Subset is {at_least}, so it has only one value: all items")
        object.__setattr__(self, "items", items)

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest number of items."""
        return self.at_least, len(self.items) if self.at_most is None else self.at_most

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        return {f"{parameter}[{item}]": CategoricalDistribution([False, True]) for item in self.items}

    def write(self, value: Any) -> tuple[Any, ...]:
        is_some = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        chosen = list(value) if is_some else []
        wrong = not is_some or any(each not in self.items for each in chosen) or len(set(chosen)) < len(chosen)
        least, most = self.sizes
        if wrong or not least <= len(chosen) <= most:
            some = f"{least} to {most} of {checks.shortened(list(self.items))}"
            raise ValueError(f"must be a list of {some}, each at most once, not {checks.shortened(value)}")
        return tuple(item in chosen for item in self.items)

    def read(self, stored: Sequence[Any]) -> list[Any]:
        """The items; if there are too few or too many, the first ones change."""
        inside = _within(np.array([stored], dtype=np.float64), *self.sizes)[0]
        return [item for item, there in zip(self.items, inside, strict=True) if there]

    def make_axis(self) -> "SubsetAxis":
        return SubsetAxis(self)


class SubsetAxis(CodedAxis):
    """Membership of n items. Moves add, remove or exchange items."""

    kind: Subset

    def __init__(self, kind: Subset) -> None:
        n = len(kind.items)
        self._least, self._most = kind.sizes
        self.draws, self.levels = n + 1, float(sum(math.comb(n, k) for k in range(self._least, self._most + 1)))
        super().__init__(kind, n, math.sqrt(2.0 / n), (Column(size=n, unit=1.0), Column()))

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        found: list[float] = self.repaired(np.array([stored], dtype=np.float64))[0].tolist()
        return found

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        return tuple(bool(each) for each in code)

    def features(self, codes: Array) -> Array:
        return codes.sum(axis=1, keepdims=True)

    def drawn(self, u: Array) -> Array:
        """Subsets whose sizes are equally likely."""
        size = self._least + np.floor(u[:, 0] * (self._most - self._least + 1)).astype(np.intp)
        return top(u[:, 1:], size).astype(np.float64)

    def repaired(self, codes: Array) -> Array:
        return _within(codes, self._least, self._most)

    def varied(self, codes: Array, draws: Perturbation) -> Array:
        return np.where(draws.flipped[:, 1:], 1.0 - codes, codes)

    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        """One item more, one less, or one instead of another."""
        inside, outside = np.flatnonzero(code > 0.5), np.flatnonzero(code < 0.5)
        changes = [[i, j] for i in inside for j in outside]
        changes += [[i] for i in inside] if len(inside) > self._least else []
        changes += [[j] for j in outside] if len(inside) < self._most else []
        moves = np.repeat(code[None], len(changes), axis=0)
        for move, change in zip(moves, changes, strict=True):
            move[change] = 1.0 - move[change]
        return moves

    def listed(self) -> Array:
        sizes = range(self._least, self._most + 1)
        chosen = [each for size in sizes for each in combinations(range(self.code), size)]
        return self._at(np.array([[i in each for i in range(self.code)] for each in chosen], dtype=np.float64))


def _within(codes: Array, least: int, most: int) -> Array:
    """Membership, in which the first items are added or removed if there are too few or too many."""
    inside = codes > 0.5
    count = np.clip(inside.sum(axis=1), least, most)
    order = np.arange(codes.shape[1]) / codes.shape[1]
    # Members first; to remove the first ones, the last members are kept, to add, the first others.
    return top(np.where(inside, 2.0 + order, 1.0 - order), count).astype(np.float64)
