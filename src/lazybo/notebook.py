"""Small HTML tables for notebooks. Everything from outside is escaped; colours are those of the notebook."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

from lazybo.text import printable, shortened

# Longer texts in a cell are cut.
LONGEST = 60


def shown(value: Any) -> str:
    """A value for people: floats with six digits, everything else as short text on one line."""
    return f"{value:.6g}" if isinstance(value, float) else shortened(printable(value), LONGEST)


def interval(value: float, low: float, high: float) -> str:
    """A median with its 95 % interval, as text."""
    return f"{shown(value)} (95 %: {shown(low)} to {shown(high)})"


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """A table as HTML, with a title above it and a note below."""
    head = "".join(f"<th>{_escaped(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    grid = f"<table>{top}<tbody>{body}</tbody></table>" if body else ""
    below = f"<p>{html.escape(printable(note))}</p>" if note else ""
    return f"<div><p><b>{html.escape(printable(title))}</b></p>{grid}{below}</div>"


def _escaped(value: Any) -> str:
    return html.escape(shown(value))
