"""What a kind of parameter with structure is: one value for users, several ordinary parameters in a study.

Users see a plain *value*, such as a list. A study has *stored* values: a few ordinary parameters that any Optuna tool
can read, and any combination of them can be read back as a value.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from optuna.distributions import BaseDistribution

from lazybo.core import checks

if TYPE_CHECKING:
    from lazybo.space.axis import Axis

# Axes that are remembered: local models make a space for each of their boxes.
MAX_AXES = 64


class Structured(ABC):
    """A kind of parameter with structure; immutable. Subclasses are frozen dataclasses of plain data."""

    # What files and studies call it.
    name: ClassVar[str]
    kinds: ClassVar[dict[str, type["Structured"]]] = {}
    """All kinds by their names."""

    def __init_subclass__(cls) -> None:
        Structured.kinds[cls.name] = cls

    @abstractmethod
    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        """The parameters that a study has for a parameter with this name."""

    @abstractmethod
    def write(self, value: Any) -> tuple[Any, ...]:
        """The stored values of a value. A ValueError says what it must be."""

    @abstractmethod
    def read(self, stored: Sequence[Any]) -> Any:
        """The value of any stored values: those of `write`, or the nearest ones that mean something."""

    @abstractmethod
    def make_axis(self) -> "Axis":
        """A new axis."""

    @property
    def axis(self) -> "Axis":
        """The axis, made once."""
        return _axis_of(self)

    @staticmethod
    def of_plain(plain: Any) -> "Structured":
        """The kind that `to_plain` wrote, or that a file describes."""
        kinds = Structured.kinds
        if not isinstance(plain, Mapping) or plain.get("kind") not in kinds:
            raise ValueError(
                f"a parameter with structure must have a kind, one of {[*kinds]}, not {checks.shortened(plain)}"
            )
        given = {name: value for name, value in plain.items() if name != "kind"}
        try:
            return kinds[plain["kind"]].from_plain(**given)
        except TypeError:
            needed = [name for name, default in kinds[plain["kind"]].arguments().items() if default is MISSING]
            raise ValueError(f"a {plain['kind']} needs {' and '.join(needed)}, not {sorted(given)}") from None

    @classmethod
    def from_plain(cls, **given: Any) -> "Structured":
        """The kind with arguments that `to_plain` wrote."""
        return cls(**given)

    @classmethod
    def arguments(cls) -> dict[str, Any]:
        """Its arguments with their defaults, `dataclasses.MISSING` if there is none."""
        return {each.name: each.default for each in fields(cls)}  # type: ignore[arg-type]

    def to_plain(self) -> dict[str, Any]:
        """The kind as plain data for JSON: its name, and its arguments unless they are the defaults."""
        given = {name: (getattr(self, name), default) for name, default in self.arguments().items()}
        return {"kind": self.name} | {
            name: _plain(value) for name, (value, default) in given.items() if value != default
        }

    @staticmethod
    def text(value: Any) -> str:
        """A value as people would write it: without quotes and brackets, shares with four digits."""
        if isinstance(value, Mapping):
            return ", ".join(f"{name} {share:.4g}" for name, share in value.items() if share)
        return ", ".join(map(str, value)) if isinstance(value, list | set | frozenset) else str(value)


def _plain(value: Any) -> Any:
    """Plain data as JSON would return it."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


@lru_cache(maxsize=MAX_AXES)
def _axis_of(kind: Structured) -> "Axis":
    return kind.make_axis()


# ------------------------------------------------------------------------------ checks


def names_of(what: str, given: Any, least: int, most: int) -> tuple[Any, ...]:
    """``given`` as a tuple of different names: texts or whole numbers."""
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__") or hasattr(given, "keys"):
        raise ValueError(f"{what} must be a list of names, not {checks.shortened(given)}")
    if isinstance(given, set | frozenset):
        raise ValueError(f"{what} must be a list: a set has another order in every process")
    names = tuple(each.item() if isinstance(each, np.generic) else each for each in given)
    _check_different(what, names)
    if not least <= len(names) <= most:
        raise ValueError(f"{what} must be from {least} to {most} names, not {len(names)}")
    return names


def _check_different(what: str, names: Sequence[Any]) -> None:
    """Raise a ValueError unless these are texts or whole numbers that a study can tell apart."""
    seen: dict[str, Any] = {}
    for each in names:
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise ValueError(f"{what} must be texts or whole numbers, not {checks.shortened(each)}")
        if seen.get(str(each), each) != each:
            pair = f"{checks.shortened(seen[str(each)])} and {checks.shortened(each)}"
            raise ValueError(f"{what} have {pair}, which look the same in a study; rename one")
        if str(each) in seen:
            raise ValueError(f"{what} have {checks.shortened(each)} twice; give each once")
        seen[str(each)] = each
