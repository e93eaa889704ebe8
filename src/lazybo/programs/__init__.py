"""Programs in any language as objectives."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.programs.output import Reading as Reading
    from lazybo.programs.placeholders import nearest as nearest
    from lazybo.programs.program import GRACE as GRACE
    from lazybo.programs.program import NO_VALUE as NO_VALUE
    from lazybo.programs.program import ON_STDERR as ON_STDERR
    from lazybo.programs.program import Program as Program
    from lazybo.programs.program import kind_of as kind_of
    from lazybo.programs.program import last_lines as last_lines
else:
    __getattr__ = lazily(
        __name__,
        {
            "GRACE": "program",
            "NO_VALUE": "program",
            "ON_STDERR": "program",
            "Program": "program",
            "Reading": "output",
            "kind_of": "program",
            "last_lines": "program",
            "nearest": "placeholders",
        },
    )
