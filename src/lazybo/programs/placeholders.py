"""Commands with placeholders: ``{lr}`` becomes a value, ``{lr:.3f}`` a formatted one, ``{{`` a brace.

A command is always a list of arguments and never passed to a shell, so a value is only ever text in its own argument.
"""

import json
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from lazybo.core import texts

# Placeholders of every trial besides its parameters: its number, its output folder, its checkpoint folder, the devices
# that it owns and the position of their entry in --devices.
CHECKPOINT = "checkpoint"
PLACES = ("device", "slot")
RESERVED = ("trial", "folder", CHECKPOINT, *PLACES)


def names(text: str) -> list[str]:
    """The placeholders in an argument, in order."""
    found = []
    for _, name, spec, conversion in _parsed(text):
        if name is None:
            continue
        if not name or conversion or "{" in (spec or ""):
            raise ValueError(f"{text!r} has a placeholder that is not a plain name; write {{{{ for a literal brace")
        found.append(name)
    return found


def fill(command: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Replace the placeholders by values.

    An argument whose parameter is not active is left out, and so is the flag directly before it:
    ``--opt adam --momentum {momentum}`` becomes ``--opt adam``.
    """
    filled: list[str] = []
    last_is_a_flag = False
    for word in command:
        used = names(word)
        if all(name in values for name in used):
            filled.append(fill_one(word, values))
            last_is_a_flag = not used and _is_flag(word)
            continue
        if last_is_a_flag and not _is_flag(word):
            filled.pop()
        last_is_a_flag = False
    return filled


def fill_one(text: str, values: Mapping[str, Any]) -> str:
    """Replace the placeholders in one argument or file name."""
    parts = []
    for literal, name, spec, _ in _parsed(text):
        parts.append(literal)
        if name is not None:
            parts.append(_written(values[name], spec or ""))
    return "".join(parts)


def check(command: Sequence[str], examples: Mapping[str, Sequence[Any]], *, all_used: bool = True) -> None:
    """Validate a command: every placeholder has a parameter, every parameter a placeholder, and all formats work.

    ``examples`` has some values of every parameter; the formats are tried with them.
    """
    taken = [name for name in RESERVED if name in examples]
    if taken:
        raise ValueError(f"the parameter {taken[0]!r} has the name of a built-in placeholder; rename it")
    used = {name for word in command for name in names(word)}
    for name in sorted(used - set(examples) - set(RESERVED)):
        hint = texts.nearest(name, [*examples, *RESERVED])
        raise ValueError(
            f"the placeholder {{{name}}} has no parameter{hint}; add one, or write {{{{{name}}}}} for the literal text"
        )
    for name in examples:
        if all_used and name not in used:
            raise ValueError(
                f"the parameter {name!r} has no placeholder in the command; add {{{name}}}, or give "
                "--from-environment if the program reads LAZYBO_PARAMS"
            )
    for word in command:
        _check_formats(word, examples)


def _check_formats(word: str, examples: Mapping[str, Sequence[Any]]) -> None:
    for _, name, spec, _ in _parsed(word):
        for value in examples.get(name or "", ()):
            try:
                _written(value, spec or "")
            except ValueError as error:
                raise ValueError(f"the placeholder in {word!r} cannot format {name}={value!r}: {error}") from None


def _parsed(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write {{{{ or }}}} for a literal brace") from None


def _written(value: Any, spec: str) -> str:
    if spec:
        return format(value, spec)
    if isinstance(value, bool):
        return str(value).lower()  # as in TOML and JSON
    if isinstance(value, list | dict):
        return json.dumps(value)  # a parameter with structure
    return str(value)


def _is_flag(word: str) -> bool:
    """Whether an argument is a flag: not a negative number, and not a single dash."""
    return word.startswith("-") and len(word.lstrip("-")) > 0 and not word[1:2].isdigit()
