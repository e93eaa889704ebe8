"""Programs in any language as objectives."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.programs.output import Reading as Reading
    from lazybo.programs.program import Program as Program
    from lazybo.programs.program import command_line as command_line
    from lazybo.programs.program import why_no_value as why_no_value
else:
    __getattr__ = lazily(
        __name__,
        {
            "Program": "program",  # a command with placeholders as an objective
            "Reading": "output",  # how to find the value in the output of a program
            "command_line": "program",  # the command that a trial ran
            "why_no_value": "program",  # what a program that gave no value printed last, and what to do
        },
    )
