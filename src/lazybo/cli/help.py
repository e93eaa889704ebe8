"""What the help shows as the value of an option: a word such as INTEGER, no Python type such as <int> or <bool>."""

from pathlib import Path
from typing import Any

from typer.core import TyperGroup

WORDS = {int: "INTEGER", float: "NUMBER", Path: "PATH", bool: ""}


class HelpInWords(TyperGroup):
    """A group of commands whose help has no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the group itself."""
        found = super().get_params(ctx)
        for parameter in found:
            show_a_word(parameter)
        return found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group, None if there is none with this name."""
        command = super().get_command(ctx, cmd_name)
        for parameter in command.get_params(ctx) if command is not None else ():
            show_a_word(parameter)
        return command


def show_a_word(parameter: Any) -> None:
    """Let the help show a word as the value of a parameter. Its choices, if there are any, stay."""
    kind = getattr(parameter, "type_descriptor", None)
    if kind is None or kind.is_choice:
        return  # without a descriptor it is an older Typer, which shows words itself
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = _no_type  # its name says what it is
    elif parameter.metavar is None:
        parameter.metavar = word_of(parameter)


def word_of(parameter: Any) -> str:
    """The word for the value of an option; empty for a flag."""
    return WORDS.get(parameter.type_descriptor.annotation, "TEXT")


def _no_type(ctx: object) -> None:  # noqa: ARG001 (Typer gives it by name)
    return None
