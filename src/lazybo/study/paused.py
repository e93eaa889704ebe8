"""Moved."""

from lazybo.study.trial import is_paused as is_paused
from lazybo.study.trial import paused_trials as paused_trials
from lazybo.study.trial import resume as resume
