"""Orders, subsets, mixtures and choices with descriptors, as kinds of parameters.

==========================  =================================  =====================================================
kind                        code                               features that the kernel sees besides
==========================  =================================  =====================================================
`Permutation`               the position of each item          which of two items comes first; which are neighbours
`Subset`                    1 for each item that is in it      how many items are in it
`Mixture`                   the share of each part             with ``at_most``: which parts are in it
`Described`                 the position of the choice         its descriptors
==========================  =================================  =====================================================
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from lazybo.core.checks import Array, finite_number, is_number, positive, shortened, whole
from lazybo.gp.kernels.base import Column
from lazybo.space.axis import MAX_MOVES, Perturbation
from lazybo.space.kinds import Kind, KindAxis, names_of, top

# The moves of a permutation are listed, and there are about 2 n² of them.
MAX_ITEMS = 64
MAX_PARTS = 256
# Shares may differ from their total by so much, as rounded ones do; stored ones are scaled if they differ by more.
ROUGHLY, EXACTLY = 1e-6, 1e-9
# With more descriptors than this they share one length scale.
MAX_DESCRIPTORS = 16


@dataclass(frozen=True)
class Permutation(Kind):
    """An order of some items: ``lazybo.Permutation(["crop", "flip", "blur"])``. Its values are lists.

    A study has a parameter for each place, ``order[0]``, ``order[1]``, …, whose value is the item there.
    """

    items: Sequence[Any]

    name: ClassVar[str] = "permutation"

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", names_of("the items of a Permutation", self.items, 2, MAX_ITEMS))

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        """The item at each place."""
        return {f"{parameter}[{i}]": CategoricalDistribution(self.items) for i in range(len(self.items))}

    def write(self, value: Any) -> tuple[Any, ...]:
        """The items in this order."""
        is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        items = tuple(np.asarray(value, dtype=object).tolist()) if is_list else ()
        if len(items) != len(self.items) or any(each not in items for each in self.items):
            raise ValueError(f"must be a list of {shortened(list(self.items))} in any order, not {shortened(value)}")
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
        """A new axis."""
        return PermutationAxis(self)


class PermutationAxis(KindAxis):
    """The positions of n items. Moves are swaps, insertions and reversals."""

    kind: Permutation

    def __init__(self, kind: Permutation) -> None:
        n = len(kind.items)
        self.draws, self.levels = n, float(math.factorial(n))
        self._first, self._second = np.triu_indices(n, 1)
        self._moves = _moves_of_places(n)
        pairs = Column(size=len(self._first))
        # The mean squared difference of two random positions is (n² - 1)/6.
        super().__init__(kind, n, 1.0 / math.sqrt(n * (n * n - 1) / 6), (Column(size=n), pairs, pairs))

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        """The position of each item."""
        order = self.kind.read(stored)
        return [float(order.index(item)) for item in self.kind.items]

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        """The items in the order of their positions."""
        return tuple(self.kind.items[i] for i in np.argsort(code, kind="stable"))

    def features(self, codes: Array) -> Array:
        """For each pair of items: ±1 by which comes first, and 1 if they are neighbours; first and last are, too."""
        gap = codes[:, self._second] - codes[:, self._first]
        return np.hstack((np.sign(gap), np.isin(np.abs(gap), (1, self.code - 1))))

    def drawn(self, u: Array) -> Array:
        """The ranks of uniform numbers."""
        return np.argsort(np.argsort(u, axis=1), axis=1).astype(np.float64)

    def repaired(self, codes: Array) -> Array:
        """The ranks of the positions."""
        return np.argsort(np.argsort(codes, axis=1, kind="stable"), axis=1).astype(np.float64)

    def perturbed(self, x: Array, draws: Perturbation) -> Array:
        """Items that are flipped change places with another."""
        x = x.copy()
        other = np.minimum(draws.fresh * self.code, self.code - 1).astype(np.intp)
        for row, item in np.argwhere(draws.flipped):
            pair = [item, other[row, item]]
            x[row, pair] = x[row, pair[::-1]]
        return self.snap(x)

    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:
        """Swaps, insertions and reversals."""
        moves = self._moves
        if len(moves) > MAX_MOVES:
            moves = moves[rng.choice(len(moves), MAX_MOVES, replace=False)]
        return moves[:, code.astype(np.intp)].astype(np.float64)

    def distances(self, x: Array, center: Array) -> Array:
        """The mean difference of positions, as a share of its mean among random orders, (n² - 1)/(3 n)."""
        gaps = np.abs(x[:, : self.code] - center[: self.code]).mean(axis=1) / self._unit
        return gaps / ((self.code**2 - 1) / (3 * self.code))

    def listed(self) -> Array:
        """All orders."""
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


@dataclass(frozen=True)
class Subset(Kind):
    """Some of the items: ``lazybo.Subset(columns, at_least=1, at_most=20)``. Its values are lists in the items' order.

    A study has a parameter for each item, ``inputs[age]``, …, that is True if the item is in the subset.
    """

    items: Sequence[Any]
    at_least: int = 0
    at_most: int | None = None

    name: ClassVar[str] = "subset"

    def __post_init__(self) -> None:
        items = names_of("the items of a Subset", self.items, 1, MAX_PARTS)
        at_least = whole("at_least of a Subset", self.at_least, 0, len(items))
        if self.at_most is not None:
            whole("at_most of a Subset", self.at_most, max(at_least, 1), len(items))
        if at_least == len(items):
            raise ValueError(f"at_least of a Subset is {at_least}, so it has only one value: all items")
        object.__setattr__(self, "items", items)

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest number of items."""
        return self.at_least, len(self.items) if self.at_most is None else self.at_most

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        """Whether each item is in the subset."""
        return {f"{parameter}[{item}]": CategoricalDistribution([False, True]) for item in self.items}

    def write(self, value: Any) -> tuple[Any, ...]:
        """Whether each item is in the subset."""
        is_some = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        chosen = list(value) if is_some else []
        wrong = not is_some or any(each not in self.items for each in chosen) or len(set(chosen)) < len(chosen)
        least, most = self.sizes
        if wrong or not least <= len(chosen) <= most:
            some = f"{least} to {most} of {shortened(list(self.items))}"
            raise ValueError(f"must be a list of {some}, each at most once, not {shortened(value)}")
        return tuple(item in chosen for item in self.items)

    def read(self, stored: Sequence[Any]) -> list[Any]:
        """The items; if there are too few or too many, the first ones change."""
        inside = self.axis.repaired(np.array([stored], dtype=np.float64))[0]
        return [item for item, there in zip(self.items, inside, strict=True) if there]

    def make_axis(self) -> "SubsetAxis":
        """A new axis."""
        return SubsetAxis(self)


class SubsetAxis(KindAxis):
    """Membership of n items. Moves add, remove or exchange items."""

    kind: Subset

    def __init__(self, kind: Subset) -> None:
        n = len(kind.items)
        self._least, self._most = kind.sizes
        self.draws, self.levels = n + 1, float(sum(math.comb(n, k) for k in range(self._least, self._most + 1)))
        super().__init__(kind, n, math.sqrt(2.0 / n), (Column(size=n), Column()))

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        """Membership."""
        found: list[float] = self.repaired(np.array([stored], dtype=np.float64))[0].tolist()
        return found

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        """Membership as stored."""
        return tuple(bool(each) for each in code)

    def features(self, codes: Array) -> Array:
        """How many items are in it."""
        return codes.sum(axis=1, keepdims=True)

    def drawn(self, u: Array) -> Array:
        """Subsets whose sizes are equally likely."""
        size = self._least + np.floor(u[:, 0] * (self._most - self._least + 1)).astype(np.intp)
        return top(u[:, 1:], size).astype(np.float64)

    def repaired(self, codes: Array) -> Array:
        """Membership, in which the first items are added or removed if there are too few or too many."""
        inside = codes > 0.5
        count = np.clip(inside.sum(axis=1), self._least, self._most)
        order = np.arange(self.code) / self.code
        # Members first; to remove the first ones, the last members are kept, to add, the first others.
        return top(np.where(inside, 2.0 + order, 1.0 - order), count).astype(np.float64)

    def perturbed(self, x: Array, draws: Perturbation) -> Array:
        """Items that are flipped enter or leave."""
        codes, flipped = self._codes(x), draws.flipped[:, 1:]
        return self.snap(np.hstack((np.where(flipped, 1.0 - codes, codes) * self._unit, x[:, self.code :])))

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
        """All subsets."""
        sizes = range(self._least, self._most + 1)
        chosen = [each for size in sizes for each in combinations(range(self.code), size)]
        return self._at(np.array([[i in each for i in range(self.code)] for each in chosen], dtype=np.float64))


# ------------------------------------------------------------------------------- mixtures


@dataclass(frozen=True)
class Mixture(Kind):
    """Shares of some parts that add up to ``total``: ``lazybo.Mixture(["water", "ethanol", "dmso"], at_most=2)``.

    Its values are dicts from each part to its share; at most ``at_most`` of them are not 0. A study has a parameter
    for each part, ``recipe[water]``, …: its share.
    """

    parts: Sequence[Any]
    total: float = 1.0
    at_most: int | None = None

    name: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        parts = names_of("the parts of a Mixture", self.parts, 2, MAX_ITEMS)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "total", positive("total of a Mixture", self.total))
        if self.at_most is not None:
            whole("at_most of a Mixture", self.at_most, 1, len(parts))

    @property
    def most(self) -> int:
        """How many shares may be above 0."""
        return len(self.parts) if self.at_most is None else self.at_most

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        """The share of each part."""
        return {f"{parameter}[{part}]": FloatDistribution(0.0, self.total) for part in self.parts}

    def write(self, value: Any) -> tuple[Any, ...]:
        """The shares."""
        good = isinstance(value, Mapping) and all(part in self.parts for part in value)
        shares = [value.get(part, 0.0) for part in self.parts] if good else []
        good = bool(shares) and all(is_number(each) and 0 <= each <= self.total * (1 + ROUGHLY) for each in shares)
        some = f"a dict of shares of {shortened(list(self.parts))}"
        if not good:
            raise ValueError(f"must be {some}, each from 0 to {self.total:g}, not {shortened(value)}")
        numbers = np.array(shares, dtype=np.float64)
        if abs(numbers.sum() - self.total) > ROUGHLY * self.total:
            raise ValueError(f"must be {some} that add up to {self.total:g}, not to {numbers.sum():g}")
        if np.count_nonzero(numbers) > self.most:
            raise ValueError(f"must be {some} of which at most {self.most} are not 0, not {shortened(value)}")
        found: list[float] = self._scaled(numbers).tolist()
        return tuple(found)

    def read(self, stored: Sequence[Any]) -> dict[Any, float]:
        """The shares of at most ``at_most`` parts, the largest ones, scaled to their total."""
        shares = np.array(stored, dtype=np.float64)
        shares = np.where(top(shares[None], np.array([self.most]))[0], np.maximum(shares, 0.0), 0.0)
        if not shares.sum() > 0:
            shares[: self.most] = 1.0
        return dict(zip(self.parts, self._scaled(shares).tolist(), strict=True))

    def _scaled(self, shares: Array) -> Array:
        """Shares that add up to the total; to the last bit the same if they nearly do."""
        total = shares.sum()
        return shares if abs(total - self.total) <= EXACTLY * self.total else shares / total * self.total

    def make_axis(self) -> "MixtureAxis":
        """A new axis."""
        return MixtureAxis(self)


class MixtureAxis(KindAxis):
    """The shares of n parts. They move continuously, and by exchanges; see `project` for how they keep their total."""

    kind: Mixture

    def __init__(self, kind: Mixture) -> None:
        n = len(kind.parts)
        self._most, self.levels = kind.most, math.inf if kind.most > 1 else float(n)
        self.draws = n if self._most == n else 2 * n + 1
        block = (Column(size=n),) if self._most < n else ()
        super().__init__(kind, n, 1.0, (*[Column()] * n, *block))
        self.numeric[:n] = self._most > 1

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        """The shares, of 1."""
        return [share / self.kind.total for share in self.kind.read(stored).values()]

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        """The shares."""
        return tuple(self.kind.read((code * self.kind.total).tolist()).values())

    def features(self, codes: Array) -> Array:
        """Which parts are in it, if not all can be."""
        return (codes > 0).astype(np.float64) if self._most < self.code else np.zeros((len(codes), 0))

    def drawn(self, u: Array) -> Array:
        """Uniform on the simplex; with ``at_most`` on a random face."""
        shares = -np.log(np.maximum(u[:, : self.code], 1e-300))
        if self._most < self.code:
            count = 1 + np.floor(np.sqrt(u[:, -1]) * self._most).astype(np.intp)  # more often many than few
            shares = np.where(top(u[:, self.code : -1], count), shares, 0.0)
        return _normalised(shares)

    def repaired(self, codes: Array) -> Array:
        """The largest shares, scaled to their total."""
        kept = np.where(top(codes, np.full(len(codes), self._most)), np.maximum(codes, 0.0), 0.0)
        empty = ~(kept.sum(axis=1) > 0)
        kept[empty, : self._most] = 1.0
        total = kept.sum(axis=1)
        near = np.abs(total - 1.0) <= EXACTLY
        return np.where(near[:, None], kept, _normalised(kept))

    def free(self, x: Array) -> NDArray[np.bool_]:
        """The shares that may move continuously: with ``at_most``, those that are not 0."""
        free = np.tile(self.numeric, (len(x), 1)) & ~np.isnan(x)
        if self._most < self.code:
            free[:, : self.code] &= x[:, : self.code] > 0
        return free

    def project(self, x: Array, free: NDArray[np.bool_]) -> Array:
        """The nearest coordinates whose free shares are at least 0 and add up as before (Duchi et al. 2008)."""
        x, free = x.copy(), free[:, : self.code]
        shares = np.where(free, x[:, : self.code], -np.inf)
        ordered = -np.sort(-shares, axis=1)
        excess = np.cumsum(np.where(np.isfinite(ordered), ordered, 0.0), axis=1) - 1.0
        counts = np.arange(1, self.code + 1)
        inside = np.isfinite(ordered) & (ordered * counts > excess)
        last = np.maximum(inside.sum(axis=1) - 1, 0)
        shift = np.take_along_axis(excess, last[:, None], axis=1) / (last[:, None] + 1)
        x[:, : self.code] = np.where(free, np.maximum(x[:, : self.code] - shift, 0.0), x[:, : self.code])
        return x

    def perturbed(self, x: Array, draws: Perturbation) -> Array:
        """Shares make steps, and some change places with another one."""
        x, n = x.copy(), self.code
        present = (x[:, :n] > 0) | (self._most == n)
        step = np.where(draws.touched[:, :n] & present, draws.step[:, :n], 0.0)
        x[:, :n] = np.maximum(x[:, :n] + step, 0.0)
        other = np.minimum(draws.fresh[:, :n] * n, n - 1).astype(np.intp)
        for row, part in np.argwhere(draws.flipped[:, :n]):
            pair = [part, other[row, part]]
            x[row, pair] = x[row, pair[::-1]]
        return self.snap(x)

    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        """Two shares are exchanged, or one gets half or all of another."""
        moves = []
        room = np.count_nonzero(code) < self._most
        for i, j in permutations(range(self.code), 2):
            if code[i] <= 0:
                continue
            parts = [code[i], 0.5 * code[i]] if code[j] > 0 or room else [code[i]]
            for part in parts:
                move = code.copy()
                move[[i, j]] = code[i] - part, code[j] + part
                moves.append(move)
            if code[j] > 0 and i < j:
                move = code.copy()
                move[[i, j]] = code[[j, i]]
                moves.append(move)
        return np.array(moves).reshape(-1, self.code)

    def distances(self, x: Array, center: Array) -> Array:
        """Half the sum of differences between shares."""
        gaps: Array = 0.5 * np.abs(x[:, : self.code] - center[: self.code]).sum(axis=1)
        return gaps

    def listed(self) -> Array:
        """All mixtures of one part."""
        return self._at(np.eye(self.code))


def _normalised(shares: Array) -> Array:
    """Rows that add up to 1."""
    rows: Array = shares / shares.sum(axis=1, keepdims=True)
    return rows


# -------------------------------------------------------------------- choices with descriptors


@dataclass(frozen=True)
class Described(Kind):
    """One of some choices, each with the same number of descriptors: ``lazybo.Described({"water": [78.4, 1.0], …})``.

    The model sees the descriptors: choices with similar ones are expected to be similarly good. A study has an ordinary
    choice.
    """

    choices: Mapping[Any, Sequence[float]] = field(hash=False)

    name: ClassVar[str] = "described"

    def __post_init__(self) -> None:
        if not isinstance(self.choices, Mapping):
            raise ValueError(f"Described takes a dict from choices to numbers, not {shortened(self.choices)}")
        names = names_of("the choices of Described", [*self.choices], 2, 10_000)
        table = {name: _descriptors(name, self.choices[name]) for name in names}
        first = names[0]
        for name, numbers in table.items():
            if len(numbers) != len(table[first]):
                counts = f"{shortened(first)} has {len(table[first])}, {shortened(name)} has {len(numbers)}"
                raise ValueError(f"all choices of Described must have as many numbers: {counts}")
        object.__setattr__(self, "choices", table)

    def __hash__(self) -> int:
        return hash(tuple(self.choices.items()))

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        """The choice itself."""
        return {parameter: CategoricalDistribution([*self.choices])}

    def write(self, value: Any) -> tuple[Any, ...]:
        """The choice itself."""
        try:
            known = value in self.choices
        except TypeError:
            known = False
        if not known:
            raise ValueError(f"must be one of {shortened([*self.choices], 200)}, not {shortened(value)}")
        return (next(choice for choice in self.choices if choice == value),)

    def read(self, stored: Sequence[Any]) -> Any:
        """The choice itself."""
        return stored[0]

    def make_axis(self) -> "DescribedAxis":
        """A new axis."""
        return DescribedAxis(self)


def _descriptors(name: Any, given: Any) -> tuple[float, ...]:
    """The descriptors of a choice as numbers."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ValueError(f"{shortened(name)} of Described must have a list of numbers, not {shortened(given)}")
    numbers = tuple(finite_number(f"the descriptors of {shortened(name)}", each) for each in given)
    if not numbers:
        raise ValueError(f"{shortened(name)} of Described has no numbers; use a plain list of choices instead")
    return numbers


class DescribedAxis(KindAxis):
    """The position of a choice, and its descriptors."""

    kind: Described
    draws = 1

    def __init__(self, kind: Described) -> None:
        self._choices, self._table = [*kind.choices], np.array([*kind.choices.values()])
        self.levels = float(len(self._choices))
        count = self._table.shape[1]
        own = [Column()] * count if count <= MAX_DESCRIPTORS else [Column(size=count)]
        low, high = self._table.min(axis=0), self._table.max(axis=0)
        self._table = (self._table - low) / np.where(high > low, high - low, 1.0)
        super().__init__(kind, 1, 1.0, (Column(len(self._choices)), *own))

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        """The position."""
        return (float(self._choices.index(stored[0])),)

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        """The choice."""
        return (self._choices[int(code[0])],)

    def features(self, codes: Array) -> Array:
        """The descriptors."""
        found: Array = self._table[codes[:, 0].astype(np.intp)]
        return found

    def drawn(self, u: Array) -> Array:
        """Equally likely choices."""
        return np.minimum(np.floor(u * self.levels), self.levels - 1)

    def repaired(self, codes: Array) -> Array:
        """A position within the list."""
        return np.clip(codes, 0.0, self.levels - 1)

    def perturbed(self, x: Array, draws: Perturbation) -> Array:
        """Some choices become others."""
        there = np.where(draws.flipped & ~np.isnan(x[:, :1]), self.drawn(draws.fresh), x[:, :1])
        return self.snap(np.hstack((there, x[:, 1:])))

    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        """All other choices."""
        others = np.arange(self.levels)
        return others[others != code[0], None]

    def listed(self) -> Array:
        """All choices."""
        return self._at(np.arange(self.levels)[:, None])
