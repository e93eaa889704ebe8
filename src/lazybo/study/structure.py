"""Moved."""

from lazybo.study.trial import Structure as Structure
from lazybo.study.trial import as_given as as_given
from lazybo.study.trial import infer_structure as infer_structure
