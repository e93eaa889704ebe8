"""Mixtures, and choices with descriptors, as kinds of parameters.

The code of a `Mixture` is the share of each part, which moves continuously; if not all parts can be in it, the kernel
also sees which ones are. The code of `Described` is the position of the choice, and the kernel also sees its
descriptors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from lazybo.core import Array, checks
from lazybo.gp import Column
from lazybo.space.axis import Perturbation
from lazybo.space.coded import CodedAxis, exchanged, top
from lazybo.space.kinds import Structured, names_of

MAX_PARTS = 64
# Shares may differ from their total by so much, as rounded ones do; stored ones are scaled if they differ by more.
ROUGHLY, EXACTLY = 1e-6, 1e-9
# With more descriptors than this they share one length scale.
MAX_DESCRIPTORS = 16


@checks.hinting_class({"sum": "use total="})
@dataclass(frozen=True)
class Mixture(Structured):
    """Shares of some parts that add up to ``total``: ``lazybo.Mixture(["water", "ethanol", "dmso"], at_most=2)``.

    Its values are dicts from each part to its share; at most ``at_most`` of them are not 0. A study has a parameter
    for each part, ``recipe[water]``, …: its share.
    """

    parts: Sequence[Any]
    total: float = 1.0
    at_most: int | None = None

    name: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        parts = names_of("the parts of a Mixture", self.parts, 2, MAX_PARTS)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "total", checks.positive("total of a Mixture", self.total))
        if self.at_most is not None:
            checks.whole("at_most of a Mixture", self.at_most, 1, len(parts))

    @property
    def most(self) -> int:
        """How many shares may be above 0."""
        return len(self.parts) if self.at_most is None else self.at_most

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        return {f"{parameter}[{part}]": FloatDistribution(0.0, self.total) for part in self.parts}

    def write(self, value: Any) -> tuple[Any, ...]:
        good = isinstance(value, Mapping) and all(part in self.parts for part in value)
        shares = [value.get(part, 0.0) for part in self.parts] if good else []
        good = bool(shares) and all(
            checks.is_number(each) and 0 <= each <= self.total * (1 + ROUGHLY) for each in shares
        )
        some = f"a dict of shares of {checks.shortened(list(self.parts))}"
        if not good:
            raise ValueError(f"must be {some}, each from 0 to {self.total:g}, not {checks.shortened(value)}")
        numbers = np.array(shares, dtype=np.float64)
        if abs(numbers.sum() - self.total) > ROUGHLY * self.total:
            raise ValueError(f"must be {some} that add up to {self.total:g}, not to {numbers.sum():g}")
        if np.count_nonzero(numbers) > self.most:
            raise ValueError(f"must be {some} of which at most {self.most} are not 0, not {checks.shortened(value)}")
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
        """Shares that add up to the total, none above it; to the last bit the same if they nearly do."""
        total = shares.sum()
        near = abs(total - self.total) <= EXACTLY * self.total
        return np.minimum(shares if near else shares / total * self.total, self.total)

    def make_axis(self) -> "MixtureAxis":
        return MixtureAxis(self)


class MixtureAxis(CodedAxis):
    """The shares of n parts. They move continuously, and by exchanges; see `project` for how they keep their total."""

    kind: Mixture

    def __init__(self, kind: Mixture) -> None:
        n = len(kind.parts)
        self._most, self.levels = kind.most, math.inf if kind.most > 1 else float(n)
        self.draws = n if self._most == n else 2 * n + 1
        block = (Column(size=n, unit=1.0),) if self._most < n else ()
        super().__init__(kind, n, 1.0, (*[Column()] * n, *block))
        self.numeric[:n] = self._most > 1

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        return [share / self.kind.total for share in self.kind.read(stored).values()]

    def stored_of(self, code: Array) -> tuple[Any, ...]:
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
        return shares / shares.sum(axis=1, keepdims=True)

    def repaired(self, codes: Array) -> Array:
        kept = np.where(top(codes, np.full(len(codes), self._most)), np.maximum(codes, 0.0), 0.0)
        empty = ~(kept.sum(axis=1) > 0)
        kept[empty, : self._most] = 1.0
        total = kept.sum(axis=1, keepdims=True)
        return np.where(np.abs(total - 1.0) <= EXACTLY, kept, kept / total)

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

    def varied(self, codes: Array, draws: Perturbation) -> Array:
        """Shares make steps, and some change places with another one."""
        n = self.code
        present = (codes > 0) | (self._most == n)
        codes = np.maximum(codes + np.where(draws.touched[:, :n] & present, draws.step[:, :n], 0.0), 0.0)
        return exchanged(codes, draws)

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
        gaps: Array = 0.5 * np.abs(x[:, : self.code] - center[: self.code]).sum(axis=1)
        return gaps

    def listed(self) -> Array:
        return self._at(np.eye(self.code))


# -------------------------------------------------------------------- choices with descriptors


@checks.hinting_class({"descriptors": "give a dict from choices to lists of numbers"})
@dataclass(frozen=True)
class Described(Structured):
    """One of some choices, each with the same number of descriptors: ``lazybo.Described({"water": [78.4, 1.0], …})``.

    The model sees the descriptors: choices with similar ones are expected to be similarly good. A study has an ordinary
    choice.
    """

    choices: Mapping[Any, Sequence[float]] = field(hash=False)

    name: ClassVar[str] = "described"

    def __post_init__(self) -> None:
        if not isinstance(self.choices, Mapping):
            raise ValueError(f"Described takes a dict from choices to numbers, not {checks.shortened(self.choices)}")
        names = names_of("the choices of Described", [*self.choices], 2, 10_000)
        table = {name: _descriptors(name, self.choices[name]) for name in names}
        first = names[0]
        for name, numbers in table.items():
            if len(numbers) != len(table[first]):
                counts = (
                    f"{checks.shortened(first)} has {len(table[first])}, {checks.shortened(name)} has {len(numbers)}"
                )
                raise ValueError(f"all choices of Described must have as many numbers: {counts}")
        object.__setattr__(self, "choices", table)

    def __hash__(self) -> int:
        return hash(tuple(self.choices.items()))

    def to_plain(self) -> dict[str, Any]:
        """As pairs: the keys of objects in JSON are texts."""
        return {"kind": self.name, "choices": [[name, list(numbers)] for name, numbers in self.choices.items()]}

    @classmethod
    def from_plain(cls, **given: Any) -> "Described":
        """From pairs, or from a table as files have it."""
        pairs = given.get("choices")
        if not isinstance(pairs, list):
            return cls(**given)
        for each in pairs:
            if not isinstance(each, list | tuple) or len(each) != 2:
                raise ValueError(
                    "Described takes a table from choices to numbers, such as {water = [78.4, 1.0], ethanol = [24.5, "
                    f"0.7]}}, or a list of such pairs, not {checks.shortened(each)}"
                )
        return cls(**given | {"choices": dict(pairs)})

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        return {parameter: CategoricalDistribution([*self.choices])}

    def write(self, value: Any) -> tuple[Any, ...]:
        try:
            known = value in self.choices
        except TypeError:
            known = False
        if not known:
            raise ValueError(f"must be one of {checks.shortened([*self.choices], 200)}, not {checks.shortened(value)}")
        return (next(choice for choice in self.choices if choice == value),)

    def read(self, stored: Sequence[Any]) -> Any:
        return stored[0]

    def make_axis(self) -> "DescribedAxis":
        return DescribedAxis(self)


def _descriptors(name: Any, given: Any) -> tuple[float, ...]:
    """The descriptors of a choice as numbers."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ValueError(
            f"{checks.shortened(name)} of Described must have a list of numbers, not {checks.shortened(given)}"
        )
    numbers = tuple(checks.finite_number(f"the descriptors of {checks.shortened(name)}", each) for each in given)
    if not numbers:
        raise ValueError(f"{checks.shortened(name)} of Described has no numbers; use a plain list of choices instead")
    return numbers


class DescribedAxis(CodedAxis):
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
        return (float(self._choices.index(stored[0])),)

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        return (self._choices[int(code[0])],)

    def features(self, codes: Array) -> Array:
        found: Array = self._table[codes[:, 0].astype(np.intp)]
        return found

    def drawn(self, u: Array) -> Array:
        return np.minimum(np.floor(u * self.levels), self.levels - 1)

    def repaired(self, codes: Array) -> Array:
        return np.clip(codes, 0.0, self.levels - 1)

    def varied(self, codes: Array, draws: Perturbation) -> Array:
        return np.where(draws.flipped, self.drawn(draws.fresh), codes)

    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        others = np.arange(self.levels)
        return others[others != code[0], None]

    def listed(self) -> Array:
        return self._at(np.arange(self.levels)[:, None])
