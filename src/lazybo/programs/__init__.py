"""Programs in any language as objectives."""

from lazybo.programs.program import Program

__all__ = ["Program"]
