"""Damage to plain data: every way in which a test replaces a part of it."""

import json
from collections.abc import Iterator
from typing import Any

# What may be in place of anything else. `NESTED` is written as a very deep list, `MISSING` is removed.
NESTED, MISSING = "<nested>", "<missing>"
DAMAGE: list[Any] = [None, True, -1, 1e39, 1e308, 5e-324, 10**39, 10**400, "x", [], {}, float("nan"), NESTED, MISSING]
DEPTH = 10_000

Path = tuple[str | int, ...]


def places(plain: Any, path: Path = ()) -> Iterator[Path]:
    """The paths to all parts of plain data; of a list only its first, middle and last entry."""
    if path:
        yield path
    if isinstance(plain, dict):
        for name, part in plain.items():
            yield from places(part, (*path, name))
    elif isinstance(plain, list):
        for i in sorted({0, len(plain) // 2, len(plain) - 1} & set(range(len(plain)))):
            yield from places(plain[i], (*path, i))


def damaged(text: str, path: Path, damage: Any) -> str:
    """A JSON text in which the part at a path is replaced."""
    plain = at = json.loads(text)
    for step in path[:-1]:
        at = at[step]
    if damage == MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = damage
    return json.dumps(plain).replace(json.dumps(NESTED), "[" * DEPTH + "]" * DEPTH)
