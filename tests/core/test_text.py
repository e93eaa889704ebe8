"""Text from outside: what a terminal would obey, and what nobody shall read."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo.core._text import printable, shortened, without_password


@given(st.text(st.characters()))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    safe = printable(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in safe)
    assert not any(c in safe for c in "\u061c\u200e\u200f\u202a\u202e\u2066\u2069\ufeff")
    safe.encode()


@pytest.mark.parametrize("text", ["", "lr = 1e-3", "Größe 寸法 \u3000", "می\u200cخواهم", "👩\u200d🔬", "a\xa0b", "×²σ"])
def test_text_of_all_scripts_stays(text: str) -> None:
    assert printable(text) == text


def test_colours_go_and_other_sequences_are_shown() -> None:
    assert printable("\x1b[1;31mred\x1b[0m") == "red"
    assert printable("a\x1b[2Jb\rc\nd\te\x9b\u202e\udcff") == r"a\x1b[2Jb\rc\nd\te\x9b\u202e\udcff"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@host/db", "postgresql://me:***@host/db"),
        ("see 'postgresql://me:pw@host/db' and x@y", "see 'postgresql://me:***@host/db' and x@y"),
        ("postgresql://me:p@w:/@host/db", "postgresql://me:***@host/db"),
        ("redis://:pw@host", "redis://:***@host"),
        ("mysql://host/db?ssl=1&Password=pw&a=b", "mysql://host/db?ssl=1&Password=***&a=b"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("mail me: x@y", "mail me: x@y"),
    ],
)
def test_a_url_shows_no_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_long_text_is_cut_to_its_length() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
