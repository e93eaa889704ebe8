"""Moved."""

from lazybo.study.training_curves import Ending as Ending
