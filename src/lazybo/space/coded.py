"""The axis of a parameter with structure: its values as codes, with features that the kernel sees.

======  ==============================================================  ========
symbol  meaning                                                         shape
======  ==============================================================  ========
c       code: the value as numbers, from which it is decoded            (n, c)
f       features of the value, which the kernel sees beside its code    (n, f)
x       coordinates of the axis: code and features, in units            (n, c+f)
======  ==============================================================  ========

The features of one part of a description (the paths of a graph, say) are a block of the kernel with one learned length
scale, so that the data decide which part matters. Blocks are in units in which two random values have a distance of
about 1, as two choices have.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array
from lazybo.gp import Column
from lazybo.space.axis import MAX_MOVES, Axis, Perturbation
from lazybo.space.kinds import Structured

# Features are scaled to a mean squared distance of 1, using this many random values.
MEASURED = 256


class CodedAxis(Axis):
    """The axis of a structured kind; its values are tuples of stored values.

    ``draws`` is how many uniform numbers a random value needs. Subclasses know codes, this class adds the features.
    """

    draws: int

    def __init__(self, kind: Structured, code: int, unit: float, parts: Sequence[Column]) -> None:
        """``code`` is the length of the code, ``unit`` its unit in coordinates; ``parts`` are the columns of both.

        A part of whole numbers has the unit 1.
        """
        self.kind, self.code, self._unit, self._parts = kind, code, unit, tuple(parts)
        self.width = sum(part.size for part in parts)
        self.numeric = np.zeros(self.width, dtype=bool)
        self._scales = np.ones(self.width - code)
        self._scales = self._measured()

    # ---------------------------------------------------------------- of subclasses

    @abstractmethod
    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        """The code of stored values."""

    @abstractmethod
    def stored_of(self, code: Array) -> tuple[Any, ...]:
        """The stored values of a code, (c,)."""

    @abstractmethod
    def features(self, codes: Array) -> Array:
        """Features of some codes, (n, f)."""

    @abstractmethod
    def drawn(self, u: Array) -> Array:
        """The codes for uniform numbers, (n, draws): all values are about equally likely."""

    @abstractmethod
    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:
        """The codes that are one move away, (m, c)."""

    @abstractmethod
    def varied(self, codes: Array, draws: Perturbation) -> Array:
        """Codes nearby, (n, c), by random draws; they are repaired."""

    @abstractmethod
    def repaired(self, codes: Array) -> Array:
        """The nearest codes that belong to values."""

    # -------------------------------------------------------------------------- axis

    def columns(self, *, conditional: bool) -> tuple[Column, ...]:
        columns, first = [], 0
        for part in self._parts:
            scale = self._unit if first < self.code else float(self._scales[first - self.code])
            unit = part.unit * scale
            columns.append(Column(part.categories, conditional, part.typical, part.size, unit))
            first += part.size
        return tuple(columns)

    def encode(self, value: Any) -> tuple[float, ...]:
        return tuple(self._at(np.array([self.code_of(value)], dtype=np.float64))[0].tolist())

    def decode(self, x: Sequence[float]) -> Any:
        return self.stored_of(self._codes(np.array([x], dtype=np.float64))[0])

    def from_uniform(self, u: Array) -> Array:
        return self._at(self.drawn(u))

    def snap(self, x: Array) -> Array:
        return self._changed(x, lambda codes, _: codes)

    def perturbed(self, x: Array, draws: Perturbation) -> Array:
        return self._changed(x, lambda codes, known: self.varied(codes, draws.part(slice(None), known)))

    def next_to(self, x: Array, at_hand: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        """The coordinates one move away: all of them, or `MAX_MOVES` at random."""
        codes = self.neighbours(self._codes(x[None])[0], rng)
        if len(codes) > MAX_MOVES:
            codes = codes[rng.choice(len(codes), MAX_MOVES, replace=False)]
        return self._at(codes)

    def distances(self, x: Array, center: Array) -> Array:
        """The number of differences between the codes, as a share of its length."""
        differ = np.abs(x[:, : self.code] - center[: self.code])
        return np.where(np.isnan(differ[:, 0]), np.nan, (differ > 0).mean(axis=1))

    def narrowed(self, low: Array, high: Array) -> Structured:  # type: ignore[override]  # noqa: ARG002
        return self.kind

    # ----------------------------------------------------------------------- private

    def _changed(self, x: Array, change: Callable[[Array, NDArray[np.bool_]], Array]) -> Array:
        """Coordinates whose codes are changed and repaired; rows of which not all is known are inactive."""
        known: NDArray[np.bool_] = np.logical_not(np.isnan(x[:, : self.code]).any(axis=1))
        found = np.full(x.shape, np.nan)
        found[known] = self._at(self.repaired(change(self._codes(x[known]), known)))
        return found

    def _codes(self, x: Array) -> Array:
        codes = x[:, : self.code] / self._unit
        return codes if self.numeric.any() else np.rint(codes)

    def _at(self, codes: Array) -> Array:
        """Coordinates of codes that belong to values."""
        return np.hstack((codes * self._unit, self.features(codes) * self._scales))

    def _measured(self) -> Array:
        """The unit of each feature, (f,): the same for a block."""
        samples = self.features(self.drawn(np.random.default_rng(0).random((MEASURED, self.draws))))
        owner = np.repeat(np.arange(len(self._parts)), [part.size for part in self._parts])[self.code :]
        variances = np.bincount(owner, weights=samples.var(axis=0), minlength=len(self._parts))[owner]
        scales: Array = 1.0 / np.sqrt(np.where(variances > 0, 2.0 * variances, 1.0))
        return scales


def top(keys: Array, count: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Where the ``count``, (n,), largest keys of each row are, (n, k)."""
    ranks = np.argsort(np.argsort(-keys, axis=1, kind="stable"), axis=1, kind="stable")
    chosen: NDArray[np.bool_] = ranks < count[:, None]
    return chosen


def exchanged(codes: Array, draws: Perturbation) -> Array:
    """Codes in which entries that are flipped change places with another one, in place."""
    n = codes.shape[1]
    other = np.minimum(draws.fresh[:, :n] * n, n - 1).astype(np.intp)
    for row, entry in np.argwhere(draws.flipped[:, :n]):
        pair = [entry, other[row, entry]]
        codes[row, pair] = codes[row, pair[::-1]]
    return codes
