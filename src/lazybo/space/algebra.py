"""What graphs compute, as sums of terms, and features of it.

A *term* is an operation of a sum, and a *sum* says how often it has each term. ``none`` adds nothing and ``skip`` is
the identity, so there are no terms of them. Terms have numbers, and 0 is the input: what is known about a term is
computed once for all graphs that have it.

The features of a sum are counts: how often each operation is used by the terms that it needs, how often each path of
operations leads to it from the input, and how often an operation has which surroundings (the labels of Weisfeiler and
Lehman).
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain, product
from typing import Any, TypeAlias

import numpy as np

from lazybo.core import Array

# The numbers of terms, and how often each is in the sum.
Sum: TypeAlias = tuple[tuple[int, int], ...]
INPUT: Sum = ((0, 1),)
# Paths and labels are counted in this many buckets, by a hash if there are more of them.
BUCKETS = 64
# Surroundings are labelled up to this distance.
DEPTH = 2


class Algebra:
    """The terms of graphs with some operations, of which ``none`` and ``skip`` may be special."""

    def __init__(self, none: Any, skip: Any) -> None:
        self._none, self._skip = none, skip
        self._numbers: dict[tuple[Any, Sum], int] = {}
        self.terms: list[tuple[Any, Sum]] = [("x", ())]  # the operation and what it is applied to

    def applied(self, operation: Any, inside: Sum) -> Sum:
        """An operation of a sum."""
        if operation == self._skip or not inside:
            return inside
        if operation == self._none:
            return ()
        number = self._numbers.setdefault((operation, inside), len(self.terms))
        if number == len(self.terms):
            self.terms.append((operation, inside))
        return ((number, 1),)

    def key(self, given: Sum) -> tuple[tuple[str, int], ...]:
        """A sum in which terms have names that are the same in every process: equal exactly for equal sums."""
        return tuple(sorted((self._name(number), count) for number, count in given))

    def _name(self, number: int) -> str:
        operation, inside = self.terms[number]
        text = repr((operation, self.key(inside)))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest() if number else "x"


def added(parts: Sequence[Sum]) -> Sum:
    """The sum of some sums."""
    if len(parts) == 1:
        return parts[0]
    counts: dict[int, int] = {}
    for part in parts:
        for number, count in part:
            counts[number] = counts.get(number, 0) + count
    return tuple(sorted(counts.items()))


class Counts:
    """Features of sums of an algebra: counts of ``operations``, paths of at most ``longest`` ones, and labels.

    Their numbers are ``sizes``: one for each operation and one for all, one for each path, or `BUCKETS`, and `BUCKETS`.
    """

    def __init__(self, algebra: Algebra, operations: Sequence[Any], longest: int) -> None:
        self._terms, self._operations = algebra.terms, list(operations)
        count = sum(len(operations) ** length for length in range(longest + 1))
        every = (path for length in range(longest + 1) for path in product(operations, repeat=length))
        self._entry = {path: i for i, path in enumerate(every)} if count <= BUCKETS else None
        self.sizes = (len(operations) + 1, min(count, BUCKETS), BUCKETS)
        # What is known of each term is computed once.
        for each in ("_needs", "_features", "_text", "_paths_to", "_counted_paths"):
            setattr(self, each, cache(getattr(self, each)))

    def of(self, sums: Sequence[Sum]) -> Array:
        """The features of some sums, (n, f)."""
        entries = [self._entries(given) for given in sums]
        row = np.repeat(np.arange(len(sums)), [len(each) for each in entries])
        column = np.fromiter(chain.from_iterable(entries), dtype=np.intp, count=len(row))
        f = sum(self.sizes)
        return np.bincount(row * f + column, minlength=len(sums) * f).reshape(-1, f).astype(np.float64)

    def _entries(self, given: Sum) -> list[int]:
        """The entries of the features of a sum that are 1, those that are 2 twice, and so on."""
        found: list[int] = []
        for number in frozenset().union(*(self._needs(number) for number, _ in given)):
            found += self._features(number)
        for number, count in given:
            found += self._counted_paths(number) * count
        return [*found, self._labelled(0, self._texts_of(given, DEPTH))]

    def _needs(self, number: int) -> frozenset[int]:
        """A term and all terms in it, without the input."""
        own = (number,) if number else ()
        return frozenset(own).union(*(self._needs(each) for each, _ in self._terms[number][1]))

    def _features(self, number: int) -> tuple[int, ...]:
        """What a term adds wherever it is, as entries of the features: its operation and its labels."""
        labels = (self._labelled(depth, self._text(number, depth)) for depth in range(1, DEPTH + 1))
        return (self._operations.index(self._terms[number][0]), self.sizes[0] - 1, *labels)

    def _labelled(self, depth: int, text: str) -> int:
        return self.sizes[0] + self.sizes[1] + _bucket(f"({depth}, {text})")

    def _text(self, number: int, depth: int) -> str:
        """A label as a text: an operation with those that it is applied to, up to this depth."""
        operation, inside = self._terms[number]
        plain = depth == 0 or number == 0
        return repr(operation) if plain else f"({operation!r}, {self._texts_of(inside, depth - 1)})"

    def _texts_of(self, given: Sum, depth: int) -> str:
        """The labels of the terms of a sum, and how often each is there, in the order of their texts."""
        texts = sorted(f"({self._text(number, depth)}, {count})" for number, count in given)
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def _paths_to(self, number: int) -> Counter[tuple[Any, ...]]:
        """How often each sequence of operations leads from the input to a term."""
        operation, inside = self._terms[number]
        found: Counter[tuple[Any, ...]] = Counter() if number else Counter({(): 1})
        for each, count in inside:
            for path, times in self._paths_to(each).items():
                found[*path, operation] += count * times
        return found

    def _counted_paths(self, number: int) -> tuple[int, ...]:
        """The entries of the paths to a term, each as often as there are such paths."""
        found: list[int] = []
        for path, times in self._paths_to(number).items():
            entry = _bucket(repr(path)) if self._entry is None else self._entry[path]
            found += [self.sizes[0] + entry] * times
        return tuple(found)


def _bucket(text: str) -> int:
    """A hash that is the same in every process."""
    return zlib.crc32(text.encode()) % BUCKETS
