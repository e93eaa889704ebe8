"""Text from outside (programs, storages, users), made safe for a terminal, a log or a picture."""

import re
import unicodedata

# Colours and other attributes of text, which many programs print: they carry nothing to read.
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
# Controls, controls of direction, half characters, and separators that a terminal may take for the end of a line.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters of some scripts, and emoji, are joined and parted by these.
_JOINERS = "\u200c\u200d"
# Everything from the first colon to the last @ of a word: a password may itself hold an @ or a slash.
_USER = re.compile(r"(://[^:/@\s]*):[^\s'\"]*@")
_QUERY = re.compile(r"([?&;]\w*(?:password|passwd|pwd)=)[^&;\s'\"]+", re.IGNORECASE)


def without_colours(text: str) -> str:
    """A text without the escape sequences that colour it."""
    return _COLOURS.sub("", text)


def printable(text: object) -> str:
    r"""A text as one line that changes nothing but the line it stands in: an escape is written as ``\x1b``."""
    return "".join(_escaped(c) if _is_unsafe(c) else c for c in without_colours(str(text)))


def without_password(text: str) -> str:
    """A text in which no URL shows its password."""
    return _QUERY.sub(r"\1***", _USER.sub(r"\1:***@", text))


def shortened(text: str, length: int) -> str:
    """A text of at most this length."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in _UNSAFE and character not in _JOINERS


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
