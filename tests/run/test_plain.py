"""The boundary to objectives: anything goes in, plain data of bounded size comes out."""

import math
from collections import OrderedDict, UserDict, deque
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo.run import plain


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def odd(method: str, does: Any, *bases: type) -> Any:
    return type("Odd", bases, {method: lambda *_: does()})()


def fail() -> Any:
    raise SystemExit("no")


class OddInt(int):
    def __int__(self) -> int:
        raise SystemExit

    __str__ = __repr__ = __float__ = __index__ = __pos__ = __trunc__ = __int__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("metric", "kept"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.ones((2, 2)), [[1.0, 1.0], [1.0, 1.0]]),
        (np.array(1.5), 1.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (math.nan, None),
        ([1.0, -math.inf, np.nan], [1.0, None, None]),
        (np.array([1.0, np.nan]), [1.0, None]),
        ((1, 2), [1, 2]),
        (deque([1]), [1]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset("ba"), ["a", "b"]),
        ({2: {3: None}, True: 1}, {"2": {"3": None}, "true": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        (b"abc\xff", "abc\\xff"),
        (bytearray(b"abc"), "abc"),
        ("a\ud800b", "a?b"),
        ({"\udfff": "\x00"}, {"?": "\x00"}),
        (Path("a"), "a"),
        (Decimal("0.1"), "0.1"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (OddInt(7), 7),
        (1 + 2j, "(1+2j)"),
        (10**400, 10**400),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_has_a_plain_form_is_kept_in_it(metric: Any, kept: Any) -> None:
    found, dropped = plain.metrics({"m": metric})
    assert found == {"m": kept}
    assert type(found["m"]) is type(kept)
    assert dropped == ()


def cycle() -> Any:
    inside: list[Any] = []
    inside.append({"again": inside})
    return inside


def deep() -> Any:
    nested: Any = 1
    for _ in range(5000):
        nested = [nested]
    return nested


def wide() -> Any:
    """Small in memory, and more than the world can hold when it is written."""
    nested: Any = ["x"]
    for _ in range(49):
        nested = [nested, nested]
    return nested


@pytest.mark.parametrize(
    "metric",
    [
        cycle(),
        deep(),
        wide(),
        odd("__str__", fail),
        odd("__str__", lambda: 3),
        odd("tolist", fail),
        odd("items", fail, UserDict),
        {(1, 2): 3},
        "x" * 10**6,
        b"x" * 10**6,
        list(range(10**6)),
        np.zeros(10**7),
        10**100_000,
        {odd("__str__", fail): 1},
        [1, [2, {"a": odd("__str__", fail)}]],
    ],
    ids=lambda metric: type(metric).__name__,
)
def test_what_has_none_is_dropped_by_name_and_the_others_stay(metric: Any) -> None:
    found, dropped = plain.metrics({"before": 1, "bad": metric, "after": [2]})
    assert found == {"before": 1, "after": [2]}
    assert len(dropped) == 1
    assert dropped[0].startswith("'bad' (")
    assert len(dropped[0]) < 400


def test_a_metric_with_a_long_name_is_dropped() -> None:
    found, dropped = plain.metrics({"x" * 1000: 1, "after": 2})
    assert found == {"after": 2}
    assert "its name has more than 500 characters" in dropped[0]


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.binary(),
        st.complex_numbers(),
        st.builds(
            odd,
            st.sampled_from(["__str__", "__repr__", "tolist", "__class__", "__len__", "__float__", "nbytes"]),
            st.sampled_from([fail, lambda: 3, lambda: "x", lambda: None, lambda: math.nan, cycle]),
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.one_of(st.text(st.characters()), st.integers(), st.tuples(st.integers())), inner),
        st.lists(inner).map(lambda parts: np.array([*parts, None], dtype=object)),
    ),
    max_leaves=6,
)


@given(anything, anything)
def test_whatever_an_exception_holds_it_has_a_short_text(first: Any, second: Any) -> None:
    error = ValueError(first, second)
    error.__cause__ = KeyError(first)
    for text, length in [(plain.reason(error), 1100), (plain.trace(error), 20_000), (plain.short(first), 200)]:
        assert text
        assert len(text) <= length
        text.encode()
