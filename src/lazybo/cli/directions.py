"""The flags --maximize and --minimize, which may have the name of an objective."""

import re
import shutil
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

FLAGS = ("--maximize", "--minimize")
# What follows a flag is the name of an objective, if it looks like one: not an option, a file or module:function.
NAME = re.compile(r"[A-Za-z_][\w.\-]*")


class OptionalNames(TyperCommand):
    """A command whose flags --maximize and --minimize may have a value or none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a flag without a name gets an empty one."""
        return super().parse_args(ctx, with_names(args))


def with_names(args: Sequence[str]) -> list[str]:
    """The arguments with ``--maximize=NAME`` for ``--maximize NAME``, and ``--maximize=`` without a name."""
    end = args.index("--") if "--" in args else None
    flags, rest = (list(args), []) if end is None else (list(args[:end]), list(args[end:]))
    found: list[str] = []
    while flags:
        word = flags.pop(0)
        if word in FLAGS:
            # Without "--", a program may follow the flag.
            named = bool(flags) and is_name(flags[0]) and (end is not None or shutil.which(flags[0]) is None)
            word = f"{word}={flags.pop(0) if named else ''}"
        found.append(word)
    return found + rest


def is_name(word: str) -> bool:
    """Whether a word can be the name of an objective."""
    return NAME.fullmatch(word) is not None and not word.endswith(".toml")


def directions_of(maximize: Sequence[str], minimize: Sequence[str]) -> dict[str, Any]:
    """The settings ``direction`` and ``directions`` of these flags; both None if there are none."""
    named = {name: "maximize" for name in maximize if name} | {name: "minimize" for name in minimize if name}
    bare = [*(["maximize"] if "" in maximize else []), *(["minimize"] if "" in minimize else [])]
    both = [name for name in maximize if name and name in minimize]
    if both:
        raise ValueError(f"--maximize {both[0]} and --minimize {both[0]} exclude each other")
    twice = [name for names in (maximize, minimize) for name in names if name and names.count(name) > 1]
    if twice:
        raise ValueError(f"the objective {twice[0]} is given twice; give each objective once")
    if len(bare) > 1:
        raise ValueError("--maximize and --minimize exclude each other; name the objectives if there are several")
    if bare and named:
        raise ValueError(f"--{bare[0]} needs the name of its objective, as --{next(iter(named.values()))} has one")
    return {"direction": bare[0] if bare else None, "directions": named or None}
