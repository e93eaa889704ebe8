"""Moved."""

from lazybo.search.options import pack, unpack
from lazybo.study.definition import read_earlier

__all__ = ["pack", "read_earlier", "unpack"]
