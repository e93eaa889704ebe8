"""Moved."""

from lazybo.study.trial import evaluations_of as evaluations_of
from lazybo.study.trial import most_promising as most_promising
from lazybo.study.trial import point_of as point_of
