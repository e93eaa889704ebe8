"""Text from outside (programs, storages, users), made safe for a terminal, a log, a picture or a notebook."""

import difflib
import html
import os
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

# Colours and other attributes of text, which many programs print.
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
# Control characters, controls of direction, lone surrogates, and separators that a terminal may take for a line end.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# These join or separate letters of some scripts, and emoji.
_JOINERS = "\u200c\u200d"
# Everything from the first colon to the last @ of a word: a password may contain an @ or a slash.
_USER = re.compile(r"(://[^:/@\s]*):[^\s'\"]*@")
_QUERY = re.compile(r"([?&;]\w*(?:password|passwd|pwd)=)[^&;\s'\"]+", re.IGNORECASE)


def without_colours(text: str) -> str:
    """Text without the escape sequences for colours."""
    return _COLOURS.sub("", text)


def printable(text: object) -> str:
    r"""Text as one line without control characters: an escape is written as ``\x1b``."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNSAFE and c not in _JOINERS else c
        for c in without_colours(str(text))
    )


def one_line(text: object) -> str:
    """Text on one line, without escape sequences and without the password of a URL."""
    return printable(without_password(re.sub(r"\s*[\r\n]+\s*", " ", str(text).rstrip())))


def without_password(text: str) -> str:
    """Text in which the passwords of URLs are replaced by asterisks."""
    return _QUERY.sub(r"\1***", _USER.sub(r"\1:***@", text))


def file_name(text: str) -> str:
    """Text as the name of a file: slashes and control characters become underscores."""
    return "".join("_" if char == "/" or printable(char) != char else char for char in text)


def shortened(text: str, length: int) -> str:
    """Text cut to at most this length."""
    return text if len(text) <= length else text[: length - 1] + "…"


def nearest(name: str, known: Collection[str]) -> str:
    """A hint with the most similar known name, or an empty text."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def counted(count: int, what: str) -> str:
    """For example "1 trial" or "3 trials"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def percent(share: float) -> str:
    """A share in percent. What is nearly none or all is not written as that."""
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


# ---------------------------------------------------------------------- notebooks

# Longer texts in a cell of a table are cut.
LONGEST = 60


def shown(value: Any) -> str:
    """A value for people: floats with six digits, everything else as short text on one line."""
    return f"{value:.6g}" if isinstance(value, float) else shortened(printable(value), LONGEST)


def interval(value: float, low: float, high: float) -> str:
    """A median with its 95 % interval, as text."""
    return f"{shown(value)} (95 %: {shown(low)} to {shown(high)})"


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """A table as HTML, with a title above it and a note below."""
    head = "".join(f"<th>{_cell(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    grid = f"<table>{top}<tbody>{body}</tbody></table>" if body else ""
    below = f"<p>{html.escape(printable(note))}</p>" if note else ""
    return f"<div><p><b>{html.escape(printable(title))}</b></p>{grid}{below}</div>"


def _cell(value: Any) -> str:
    return html.escape(shown(value))


def shows_bar() -> bool:
    """Whether a bar of progress can be drawn: in a notebook, or on a terminal that has a width."""
    with suppress(OSError, ValueError, AttributeError):  # standard error may be a file, or anything else
        return in_notebook() or os.get_terminal_size(sys.stderr.fileno()).columns > 0
    return False


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (Jupyter, VS Code, Colab)."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
