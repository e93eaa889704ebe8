"""Moved."""

from lazybo.study.trial import as_given, infer_space

__all__ = ["as_given", "infer_space"]
